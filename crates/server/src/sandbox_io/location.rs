//! Extractor of a sandbox id and a path inside the sandbox.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use workspace_api::error_codes;
use workspace_sandbox::FilePath;

use crate::error::ApiError;
use crate::snapshots::percent_decode;

/// Path parameters of `/api/v1/sandboxes/{id}/files/{path}` and the like. Paths need not be UTF-8, which axum's
/// extractor requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileLocation {
    /// Id of the sandbox.
    pub(super) sandbox: String,
    /// Path inside the sandbox, decoded once. The route omits the first slash.
    pub(super) path: FilePath,
}

impl<S: Send + Sync> FromRequestParts<S> for FileLocation {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::parse(parts.uri.path())
    }
}

impl FileLocation {
    fn parse(path: &str) -> Result<Self, ApiError> {
        // "", "api", "v1", "sandboxes", id, "files", path
        let mut parts = path.splitn(7, '/').skip(4);
        let mut next = |skipped| percent_decode(parts.nth(skipped).unwrap_or_default());
        let (Some(sandbox), Some(path)) = (next(0), next(1)) else {
            let message = "a `%` in the path needs two hexadecimal digits";
            return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "path"));
        };
        let path = FilePath::new([&b"/"[..], &path].concat())?;
        Ok(Self { sandbox: String::from_utf8_lossy(&sandbox).into_owned(), path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_decoded_once() {
        let base = "/api/v1/sandboxes/sbx-1/files";
        for (end, path) in [
            ("", &b"/"[..]),
            ("/", b"/"),
            ("/a/b", b"/a/b"),
            ("/a%2fb%252f", b"/a/b%2f"),
            ("/%FF+%20x", b"/\xff+ x"),
            ("//a//b/", b"//a//b/"),
        ] {
            let found = FileLocation::parse(&format!("{base}{end}")).unwrap();
            assert_eq!((found.sandbox.as_str(), found.path.as_bytes()), ("sbx-1", path), "{end}");
        }
    }

    #[test]
    fn parents_nuls_and_wrong_escapes_are_refused() {
        for end in ["..", "a/../b", "%2e%2e", "a%2f..", "a%00", "%", "%4", "%zz"] {
            let refused = FileLocation::parse(&format!("/api/v1/sandboxes/sbx-1/files/{end}")).unwrap_err();
            assert_eq!(refused.code(), error_codes::INVALID_REQUEST, "{end}");
        }
    }
}
