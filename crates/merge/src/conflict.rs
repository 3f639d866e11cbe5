//! What cannot be merged, as data.

use serde::Serialize;

use crate::text::Region;

/// Why a file could not be merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// Which strategy says so.
    pub strategy: &'static str,
    /// Why, for people.
    pub reason: String,
    /// Where. Nothing if it is about the file as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
}

impl Conflict {
    /// About the file as a whole.
    pub fn whole(strategy: &'static str, reason: impl Into<String>) -> Self {
        Self { strategy, reason: reason.into(), places: Vec::new() }
    }
}

/// Where both sides disagree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Place {
    /// Lines.
    Lines(Region),
    /// A value in a document.
    Value(ValueConflict),
}

/// A value that both sides changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueConflict {
    /// Where: keys joined by dots, elements of arrays by their number or `[id=…]`.
    pub path: String,
    /// The value in the base, as written there; none if it was not there.
    pub base: Option<String>,
    /// In ours.
    pub ours: Option<String>,
    /// In theirs.
    pub theirs: Option<String>,
}
