//! Paths inside a sandbox.

use std::fmt;

use crate::error::{Result, SandboxError};

/// Maximum length of a path in bytes, as in Linux.
const LENGTH_MAX: usize = 4_095;

/// Absolute path inside a sandbox, without `..`. It need not be UTF-8.
#[derive(Clone, PartialEq, Eq)]
pub struct FilePath(Vec<u8>);

impl FilePath {
    /// Checks a path.
    pub fn new(path: impl Into<Vec<u8>>) -> Result<Self> {
        let path = path.into();
        let message = match &path[..] {
            path if !path.starts_with(b"/") => "must be absolute",
            path if path.len() > LENGTH_MAX => "must have at most 4095 bytes",
            path if path.contains(&0) => "must not contain a NUL",
            path if path.split(|byte| *byte == b'/').any(|name| name == b"..") => "must not contain `..`",
            _ => return Ok(Self(path)),
        };
        Err(SandboxError::Invalid { field: "path", message: message.to_owned() })
    }

    /// Returns the bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.0.clone()
    }
}

/// Shows the path, with a replacement for bytes that are not UTF-8.
impl fmt::Display for FilePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FilePath({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_without_parents_are_accepted() {
        for path in ["", "a", "/a/..", "/../a", "/a\0", &format!("/{}", "a".repeat(LENGTH_MAX))] {
            assert!(FilePath::new(path).is_err(), "{path}");
        }
        for path in ["/", "/a/b..c/.d", "//a/"] {
            assert_eq!(FilePath::new(path).unwrap().to_string(), path);
        }
        assert_eq!(FilePath::new(b"/\xff".to_vec()).unwrap().to_string(), "/\u{fffd}");
    }
}
