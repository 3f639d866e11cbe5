//! Conversion between types of the sandbox service and those of the API.

use workspace_api::error_codes;
use workspace_api::files::{FileEntry, FileKind};
use workspace_sandbox::{FileEntry as SandboxEntry, FileKind as SandboxKind, FilePath, SandboxError};
use workspace_state::{Timestamp, quote_path, unquote_path};

use crate::error::ApiError;
use crate::time::format_store_time;

/// Number of octal digits of permission bits.
const MODE_DIGITS: std::ops::RangeInclusive<usize> = 3..=4;

pub(super) fn entry_to_api(entry: &SandboxEntry) -> Result<FileEntry, ApiError> {
    let kind = match entry.kind {
        SandboxKind::File => FileKind::File,
        SandboxKind::Directory => FileKind::Directory,
        SandboxKind::Symlink => FileKind::Symlink,
        SandboxKind::Special => FileKind::Special,
    };
    let target = (kind == FileKind::Symlink).then(|| quote_path(&entry.target).into_owned());
    Ok(FileEntry {
        path: quote_path(&entry.path).into_owned(),
        kind,
        mode: format!("{:04o}", entry.mode),
        size: entry.size,
        modified: format_store_time(Timestamp(entry.mtime_ns))?,
        etag: entity_tag(entry),
        uid: entry.uid,
        gid: entry.gid,
        target,
    })
}

/// Returns the value of the header `ETag`.
pub(super) fn entity_tag(entry: &SandboxEntry) -> String {
    format!("\"{}\"", entry.fingerprint)
}

/// Parses permission bits in octal. `field` is their name in the request.
pub(super) fn parse_mode(text: &str, field: &str) -> Result<u32, ApiError> {
    let is_octal =
        MODE_DIGITS.contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    u32::from_str_radix(text, 8).ok().filter(|_| is_octal).ok_or_else(|| {
        invalid(field, &format!("`{text}` is not a mode of three or four octal digits, such as `0644`"))
    })
}

/// Parses an absolute path, which may be quoted (see `workspace_api::files`). `field` is its name in the request.
pub(super) fn parse_path(text: &str, field: &str) -> Result<FilePath, ApiError> {
    let path = unquote_path(text).ok_or_else(|| invalid(field, "the quotes or escapes are not valid"))?;
    FilePath::new(path).map_err(|error| match error {
        SandboxError::Invalid { message, .. } => invalid(field, &message),
        other => other.into(),
    })
}

/// Creates the error for a field that is not valid.
pub(super) fn invalid(field: &str, message: &str) -> ApiError {
    ApiError::new(error_codes::INVALID_REQUEST, format!("{field}: {message}")).detail("field", field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_three_or_four_octal_digits() {
        for (text, mode) in [("644", 0o644), ("0755", 0o755), ("1777", 0o1777), ("000", 0)] {
            assert_eq!(parse_mode(text, "mode").unwrap(), mode);
        }
        for text in ["", "7", "64", "+644", "0o644", "888", "00644", "-rw"] {
            assert_eq!(parse_mode(text, "mode").unwrap_err().code(), error_codes::INVALID_REQUEST, "{text}");
        }
    }

    #[test]
    fn paths_are_read_as_they_are_shown() {
        for path in [&b"/a b"[..], b"/\xff\n", b"/\"quoted\"", b"/"] {
            assert_eq!(parse_path(&quote_path(path), "path").unwrap().as_bytes(), path);
        }
        for text in ["a", "", "/a/..", "\"/a", "\"/\\9\""] {
            let refused = parse_path(text, "operations[3].from").unwrap_err();
            assert_eq!(refused.body("id").error.details["field"], "operations[3].from", "{text}");
        }
    }
}
