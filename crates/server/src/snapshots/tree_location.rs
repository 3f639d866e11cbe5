//! Extractor of a path in a snapshot or a project.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use workspace_api::error_codes;

use crate::error::ApiError;

/// Path parameters of `/api/v1/snapshots/{id}/tree/{path}`, `/api/v1/projects/{project}/files/{path}` and the like.
/// Paths of a tree need not be UTF-8, which axum's extractor requires.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TreeLocation {
    /// Snapshot by id, or project by name or id.
    pub(crate) root: String,
    /// Path in the tree, decoded. `%2F` is a separator, too, because names contain no slash.
    pub(crate) path: Vec<u8>,
}

impl<S: Send + Sync> FromRequestParts<S> for TreeLocation {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::parse(parts.uri.path()).ok_or_else(|| {
            ApiError::new(error_codes::INVALID_REQUEST, "a `%` in the path needs two hexadecimal digits")
        })
    }
}

impl TreeLocation {
    fn parse(path: &str) -> Option<Self> {
        // "", "api", "v1", "snapshots", root, "tree", path
        let mut parts = path.splitn(7, '/').skip(4);
        let root = percent_decode(parts.next().unwrap_or_default())?;
        let path = percent_decode(parts.nth(1).unwrap_or_default())?;
        Some(Self { root: String::from_utf8_lossy(&root).into_owned(), path })
    }
}

/// Decodes percent-encoding; `None` if it is invalid.
pub(crate) fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.as_bytes().split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?);
        bytes.extend_from_slice(rest);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_can_be_in_a_path() {
        let base = "/api/v1/snapshots/an-id/tree";
        for (end, path) in [
            ("", &b""[..]),
            ("/", b""),
            ("/a/b", b"a/b"),
            ("/a%2fb%2Fc", b"a/b/c"),
            ("/%FF%00%25+x", b"\xff\0%+x"),
            ("/a//b/", b"a//b/"),
        ] {
            let location = TreeLocation { root: "an-id".to_owned(), path: path.to_vec() };
            assert_eq!(TreeLocation::parse(&format!("{base}{end}")), Some(location), "{end}");
        }
        for end in ["/%", "/%4", "/%zz", "/%+1", "/%é"] {
            assert_eq!(TreeLocation::parse(&format!("{base}{end}")), None, "{end}");
        }
    }
}
