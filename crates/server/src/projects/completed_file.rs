//! Files of completions in paths of requests.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use workspace_api::error_codes;
use workspace_context::projects::RefusedChange;
use workspace_state::unquote_path;

use crate::error::ApiError;
use crate::snapshots::percent_decode;

/// Path parameters of a file of a completion. Its path need not be UTF-8, which axum's extractor requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CompletedFile {
    pub(super) project: String,
    pub(super) completion: String,
    /// Path in the files of the agent, decoded.
    pub(super) path: Vec<u8>,
}

impl<S: Send + Sync> FromRequestParts<S> for CompletedFile {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::parse(parts.uri.path()).ok_or_else(|| {
            ApiError::new(error_codes::INVALID_REQUEST, "a `%` in the path needs two hexadecimal digits")
        })
    }
}

impl CompletedFile {
    fn parse(path: &str) -> Option<Self> {
        // "", "api", "v1", "projects", project, "completions", completion, "files", path
        let mut parts = path.splitn(9, '/').skip(4).step_by(2);
        let mut next = || percent_decode(parts.next().unwrap_or_default());
        let (project, completion, path) = (next()?, next()?, next()?);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Some(Self { project: text(project), completion: text(completion), path })
    }
}

/// Returns the path of the request for the content that a refused change had; `None` for a deletion, which had none.
pub(super) fn content_route(project: &str, completion: &str, refused: &RefusedChange) -> Option<String> {
    let path = unquote_path(&refused.path).filter(|_| refused.has_content())?;
    let (completion, path) = (percent_encode(completion.as_bytes()), percent_encode(&path));
    Some(format!("/api/v1/projects/{project}/completions/{completion}/files/{path}"))
}

/// Encodes bytes for the path of a URL. Slashes stay.
fn percent_encode(bytes: &[u8]) -> String {
    let mut encoded = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use workspace_state::quote_path;

    use super::*;

    #[test]
    fn the_route_of_a_refused_change_leads_to_its_path() {
        for path in
            [b"a.txt".as_slice(), b"dir/a b.txt", b"dir/100%.txt", "é".as_bytes(), b"a\nb", b"\xff\"/"]
        {
            let change = RefusedChange {
                path: quote_path(path).into_owned(),
                change: "addition".to_owned(),
                reason: String::new(),
            };
            let route = content_route("prj-1", "key-1", &change).unwrap();
            let file = CompletedFile::parse(&route).unwrap();
            let found = (file.project.as_str(), file.completion.as_str(), file.path.as_slice());
            assert_eq!(found, ("prj-1", "key-1", path), "{route}");
            let deletion = RefusedChange { change: "deletion".to_owned(), ..change };
            assert_eq!(content_route("prj-1", "key-1", &deletion), None);
        }
    }
}
