//! Conflicts within one file.

use serde::Serialize;

use crate::text::LineConflict;

/// Conflict within one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// Name of the strategy that found the conflict.
    pub strategy: &'static str,
    /// Reason of the conflict, as text for users.
    pub reason: String,
    /// Conflicting parts of the file; empty if the whole file is in conflict.
    #[serde(rename = "places", skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<ConflictLocation>,
}

impl Conflict {
    /// Creates a conflict of the whole file.
    pub fn whole(strategy: &'static str, reason: impl Into<String>) -> Self {
        Self { strategy, reason: reason.into(), locations: Vec::new() }
    }
}

/// Part of a file that both sides changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum ConflictLocation {
    /// Conflicting lines.
    Lines(LineConflict),
    /// Conflicting value of a document.
    Value(ValueConflict),
}

/// Value that both sides changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueConflict {
    /// Path of the value: keys joined by dots, array elements as `[field=name]`, cells of a notebook as `[id=ID]` or
    /// `[INDEX]`. Empty for the root value.
    pub path: String,
    /// Source text of the value in the base; `None` if the base does not have it.
    pub base: Option<String>,
    /// Source text in our version; `None` if our side removed it.
    pub ours: Option<String>,
    /// Source text in their version; `None` if their side removed it.
    pub theirs: Option<String>,
}
