//! Settings for the merge of one file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Conflict rule: selects the side that wins conflicts, or leaves them to a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Keeps our version, and reports the conflict for a review: a person decides later.
    #[default]
    Review,
    /// Resolves each conflict with our version; other changes of both sides are kept if the strategy can merge them.
    Ours,
    /// Resolves each conflict with their version. Other changes are kept as for `Ours`.
    Theirs,
    /// Last writer wins: resolves each conflict with the version of the later [`Author::time`](crate::Author::time), or
    /// with their version if the times are equal. Other changes are kept as for `Ours`.
    Lww,
    /// Resolves each conflict with the version of the higher [`Author::priority`](crate::Author::priority), or by the
    /// rule `Lww` if the priorities are equal. Other changes are kept as for `Ours`.
    Priority,
}

/// CRDT type of a value in a `.crdt.json` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CrdtType {
    /// Integer that is the sum of the increments of all sides.
    Counter,
    /// Array that is merged as an unordered set.
    Set,
    /// Single value. Of several concurrent values, all replicas choose the same one.
    Register,
}

/// Settings for the merge of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FileSettings {
    /// Name of the strategy in [`Strategies`](crate::Strategies), for example `text`; `None` selects it by the type of
    /// the file.
    pub strategy: Option<String>,
    /// Conflict rule.
    pub on_conflict: OnConflict,
    /// Fields that identify array elements. The first field that is a unique scalar in every element of all three
    /// versions is used; if there is none, elements are matched by position and content.
    pub keys: Vec<String>,
    /// CRDT types by path: keys joined by dots, `*` for any key or element. Other paths are registers.
    pub schema: BTreeMap<String, CrdtType>,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self {
            strategy: None,
            on_conflict: OnConflict::default(),
            keys: ["id", "key", "name"].map(str::to_owned).to_vec(),
            schema: BTreeMap::new(),
        }
    }
}
