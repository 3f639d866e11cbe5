//! `If-Match` and `If-None-Match`: conditions on the current target of a reference.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use workspace_api::error_codes;
use workspace_state::SnapshotId;

use crate::error::ApiError;

/// Returns the entity tag of a reference: the id of its target in quotes.
pub(super) fn entity_tag(target: &SnapshotId) -> Result<HeaderValue, ApiError> {
    HeaderValue::try_from(quoted(target)).map_err(ApiError::internal)
}

fn quoted(target: &SnapshotId) -> String {
    format!("\"{target}\"")
}

/// Conditions of a request. A header that cannot be parsed is an error: ignoring it could overwrite a change of another
/// client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Precondition {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

/// Value of a condition.
#[derive(Debug, PartialEq, Eq)]
enum Tags {
    /// `*`: any current value.
    Any,
    /// One of these entity tags.
    Listed(Vec<String>),
}

impl Precondition {
    pub(super) fn parse(headers: &HeaderMap) -> Result<Self, ApiError> {
        Ok(Self {
            if_match: Tags::parse(headers, &header::IF_MATCH)?,
            if_none_match: Tags::parse(headers, &header::IF_NONE_MATCH)?,
        })
    }

    /// Fails with `PRECONDITION_FAILED` if the current target of the reference `name` does not fulfil the conditions.
    pub(super) fn check(&self, name: &str, current: Option<&SnapshotId>) -> Result<(), ApiError> {
        let matches = self.if_match.as_ref().is_none_or(|tags| tags.contain(current, Comparison::Strong));
        if matches && !self.is_known(current) {
            return Ok(());
        }
        let error = match current {
            Some(current) => {
                let message =
                    format!("the reference `{name}` points to {current}; the condition does not allow that");
                let error = ApiError::new(error_codes::PRECONDITION_FAILED, message);
                error.detail("current", current.to_string()).header(header::ETAG, entity_tag(current)?)
            }
            None => {
                let message = format!("there is no reference `{name}`; the condition requires one");
                ApiError::new(error_codes::PRECONDITION_FAILED, message)
            }
        };
        Err(error.detail("reference", name))
    }

    /// Returns true if `If-None-Match` has the current value, so that a client that reads need not get it again.
    pub(super) fn is_known(&self, current: Option<&SnapshotId>) -> bool {
        self.if_none_match.as_ref().is_some_and(|tags| tags.contain(current, Comparison::Weak))
    }
}

/// Comparison of entity tags (RFC 9110). A weak comparison ignores the mark of weak tags (`W/`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

impl Tags {
    fn parse(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, ApiError> {
        let malformed = || {
            let message = format!("{name} must be `*`, or entity tags in double quotes, separated by commas");
            ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", name.as_str())
        };
        let mut tags = Vec::new();
        for value in headers.get_all(name) {
            let text = value.to_str().map_err(|_| malformed())?;
            tags.extend(text.split(',').map(|tag| tag.trim().to_owned()));
        }
        if tags.is_empty() {
            return Ok(None);
        }
        if tags == ["*"] {
            return Ok(Some(Self::Any));
        }
        if tags.iter().all(|tag| is_entity_tag(tag)) {
            Ok(Some(Self::Listed(tags)))
        } else {
            Err(malformed())
        }
    }

    fn contain(&self, current: Option<&SnapshotId>, comparison: Comparison) -> bool {
        let Some(current) = current else { return false };
        let current = quoted(current);
        let is_current = |tag: &str| match comparison {
            Comparison::Strong => tag == current,
            Comparison::Weak => tag.strip_prefix("W/").unwrap_or(tag) == current,
        };
        match self {
            Self::Any => true,
            Self::Listed(tags) => tags.iter().any(|tag| is_current(tag)),
        }
    }
}

fn is_entity_tag(tag: &str) -> bool {
    let opaque = tag.strip_prefix("W/").unwrap_or(tag);
    opaque.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).is_some_and(|inner| !inner.contains('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&'static str, &str)]) -> Result<Precondition, ApiError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        Precondition::parse(&headers)
    }

    #[test]
    fn conditions_are_checked_as_rfc_9110_says() {
        let (at, other) = (SnapshotId::generate(), SnapshotId::generate());
        let (tag, weak) = (format!("\"{at}\""), format!("W/\"{at}\""));
        let listed = format!("\"x\", {tag}");
        for (name, value, of_this, of_other, of_none) in [
            ("if-match", tag.as_str(), true, false, false),
            ("if-match", &weak, false, false, false),
            ("if-match", &listed, true, false, false),
            ("if-match", "*", true, true, false),
            ("if-none-match", "*", false, false, true),
            ("if-none-match", &tag, false, true, true),
            ("if-none-match", &weak, false, true, true),
        ] {
            let condition = parse(&[(name, value)]).unwrap();
            let allows = |current: Option<&SnapshotId>| condition.check("main", current).is_ok();
            let found = (allows(Some(&at)), allows(Some(&other)), allows(None));
            assert_eq!(found, (of_this, of_other, of_none), "{name}: {value}");
        }
        assert_eq!(parse(&[]).unwrap(), Precondition::default());
        assert!(Precondition::default().check("main", None).is_ok());
        // Several headers are one list.
        let condition = parse(&[("if-match", "\"x\""), ("if-match", &tag)]).unwrap();
        assert!(condition.check("main", Some(&at)).is_ok());
        let error = parse(&[("if-match", "\"x\"")]).unwrap().check("main", Some(&at)).unwrap_err();
        assert_eq!(error.code(), error_codes::PRECONDITION_FAILED);
        assert_eq!(error.body("id").error.details["current"], at.to_string());
    }

    #[test]
    fn malformed_conditions_are_errors_and_not_ignored() {
        let id = SnapshotId::generate().to_string();
        for value in ["", "x", &id, "\"", "\"a", "\"a\"b\"", "*, \"a\"", "\"a\",", "\"a\" \"b\"", "é"] {
            for name in ["if-match", "if-none-match"] {
                let error = parse(&[(name, value)]).unwrap_err();
                assert_eq!(error.code(), error_codes::INVALID_REQUEST, "{name}: {value}");
            }
        }
        assert!(parse(&[("if-match", "*"), ("if-match", "*")]).is_err());
    }
}
