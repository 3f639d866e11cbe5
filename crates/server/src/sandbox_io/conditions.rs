//! Conditions on the present file: `If-Match` and `If-None-Match`.

use axum::http::{HeaderMap, header};
use workspace_api::error_codes;
use workspace_sandbox::{FileCondition, FileEntry, FilePath, Fingerprint, Scope, Service};

use super::conversion::{entity_tag, invalid};
use crate::entity_tag::{header_items, is_same_strongly, is_same_weakly};
use crate::error::ApiError;

/// Result of the conditions in a request for content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// The client needs the content.
    Stale,
    /// The client has the content.
    Fresh,
}

/// Checks the conditions of a request for content.
pub(super) fn check_read(headers: &HeaderMap, entry: &FileEntry) -> Result<Freshness, ApiError> {
    let tag = entity_tag(entry);
    if headers.contains_key(header::IF_MATCH)
        && !header_items(headers, &header::IF_MATCH).any(|item| is_same_strongly(item, &tag))
    {
        return Err(precondition_failed());
    }
    let is_fresh = header_items(headers, &header::IF_NONE_MATCH).any(|item| is_same_weakly(item, &tag));
    Ok(if is_fresh { Freshness::Fresh } else { Freshness::Stale })
}

/// Condition of a request that writes a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteCondition {
    None,
    /// Condition that the sandbox can check.
    One(FileCondition),
    /// The file has one of these fingerprints. If there are none, the condition fails.
    AnyOf(Vec<Fingerprint>),
}

impl WriteCondition {
    /// Parses the condition in the headers. Tags that are not of a file in a sandbox are left out: they never match.
    pub(super) fn parse(headers: &HeaderMap) -> Result<Self, ApiError> {
        let none_match: Vec<&str> = header_items(headers, &header::IF_NONE_MATCH).collect();
        match (headers.contains_key(header::IF_MATCH), none_match.as_slice()) {
            (true, [_, ..]) => Err(invalid("If-None-Match", "send either `If-Match` or `If-None-Match`")),
            (false, []) => Ok(Self::None),
            (false, ["*"]) => Ok(Self::One(FileCondition::Absent)),
            (false, _) => Err(invalid("If-None-Match", "only `*` is supported for a write")),
            (true, []) => {
                let items: Vec<&str> = header_items(headers, &header::IF_MATCH).collect();
                if items.contains(&"*") {
                    return Ok(Self::One(FileCondition::Exists));
                }
                Ok(Self::AnyOf(items.into_iter().filter_map(parse_tag).collect()))
            }
        }
    }

    /// Returns the condition for the sandbox, which checks it when the file is replaced. The sandbox checks one
    /// fingerprint, so of several, the one that the file has now is used.
    pub(super) async fn resolve(
        self,
        service: &Service,
        scope: &Scope,
        sandbox: &str,
        path: &FilePath,
    ) -> Result<Option<FileCondition>, ApiError> {
        let fingerprints = match self {
            Self::None => return Ok(None),
            Self::One(condition) => return Ok(Some(condition)),
            Self::AnyOf(fingerprints) => fingerprints,
        };
        if let [fingerprint] = fingerprints[..] {
            return Ok(Some(FileCondition::Unchanged(fingerprint)));
        }
        let follows_symlink = true;
        let present = service.stat_file(scope, sandbox, path, follows_symlink).await.map_err(ApiError::from);
        let present = present.map_err(|error| match error.code() {
            error_codes::PATH_NOT_FOUND => precondition_failed(),
            _ => error,
        })?;
        let known = fingerprints.contains(&present.fingerprint);
        known.then_some(Some(FileCondition::Unchanged(present.fingerprint))).ok_or_else(precondition_failed)
    }
}

/// Parses an entity tag, with its double quotes; `None` if it is weak or not of a file in a sandbox.
pub(super) fn parse_tag(tag: &str) -> Option<Fingerprint> {
    Fingerprint::parse(tag.strip_prefix('"')?.strip_suffix('"')?)
}

fn precondition_failed() -> ApiError {
    ApiError::new(error_codes::PRECONDITION_FAILED, "the file does not match the condition of the request")
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const TAG: &str = "\"1-2-3-4\"";

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    fn parse(pairs: &[(HeaderName, &'static str)]) -> Result<WriteCondition, ApiError> {
        WriteCondition::parse(&headers(pairs))
    }

    #[test]
    fn conditions_of_writes_are_parsed() {
        let fingerprint = Fingerprint::parse("1-2-3-4").unwrap();
        assert_eq!(parse(&[]).unwrap(), WriteCondition::None);
        let one = WriteCondition::One;
        assert_eq!(parse(&[(header::IF_NONE_MATCH, "*")]).unwrap(), one(FileCondition::Absent));
        assert_eq!(parse(&[(header::IF_MATCH, "*")]).unwrap(), one(FileCondition::Exists));
        let any_of = parse(&[(header::IF_MATCH, TAG)]).unwrap();
        assert_eq!(any_of, WriteCondition::AnyOf(vec![fingerprint]));
        // Weak tags, and tags of other servers, never match.
        let foreign = parse(&[(header::IF_MATCH, "W/\"1-2-3-4\", \"abc\", 1-2-3-4")]).unwrap();
        assert_eq!(foreign, WriteCondition::AnyOf(Vec::new()));
        for wrong in
            [&[(header::IF_NONE_MATCH, TAG)][..], &[(header::IF_MATCH, TAG), (header::IF_NONE_MATCH, "*")]]
        {
            assert_eq!(parse(wrong).unwrap_err().code(), error_codes::INVALID_REQUEST);
        }
    }
}
