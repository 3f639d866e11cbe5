//! Settings of a project, other than its policy.

use serde_json::{Map, Value, json};

use super::git_directory::{GIT_SETTING, GitDirectory};
use super::merge_mode::{MERGE_SETTING, MergeMode};

/// Settings of a project to set. A field that is `None` stays as it is; for a new project, it is the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProjectSettings {
    /// Treatment of a `.git` in the root of the files.
    pub git: Option<GitDirectory>,
    /// Occasions at which the changes in sandboxes are merged.
    pub merge: Option<MergeMode>,
}

impl ProjectSettings {
    /// Returns the settings as they are stored.
    pub(super) fn to_json(self) -> Value {
        let git = self.git.map(|git| (GIT_SETTING.to_owned(), json!(git.as_str())));
        let merge = self.merge.map(|merge| (MERGE_SETTING.to_owned(), merge.to_json()));
        Value::Object(git.into_iter().chain(merge).collect::<Map<_, _>>())
    }
}
