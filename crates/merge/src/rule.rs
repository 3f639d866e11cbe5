//! Settings for the merge of one file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Rule for conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Keeps ours until a reviewer decides.
    #[default]
    Review,
    /// Takes ours.
    Ours,
    /// Takes theirs.
    Theirs,
    /// Takes the version that was written last.
    Lww,
    /// Takes the version of the author with the higher priority; the later one if priorities are equal.
    Priority,
}

/// CRDT type of a value in a `.crdt.json` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Crdt {
    /// Number to which the differences of all sides are added.
    Counter,
    /// Unordered array without duplicates.
    Set,
    /// Single value; among concurrent values the same one wins everywhere.
    Register,
}

/// Settings for the merge of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FileRule {
    /// Name of the strategy; if not set, the type of the file decides.
    pub strategy: Option<String>,
    /// Rule for conflicts.
    pub on_conflict: OnConflict,
    /// Fields that identify array elements. The first one that all elements have is used.
    pub keys: Vec<String>,
    /// CRDT types by path: keys joined by dots, `*` for any key or element.
    pub schema: BTreeMap<String, Crdt>,
}

impl Default for FileRule {
    fn default() -> Self {
        Self {
            strategy: None,
            on_conflict: OnConflict::default(),
            keys: ["id", "key", "name"].map(str::to_owned).to_vec(),
            schema: BTreeMap::new(),
        }
    }
}
