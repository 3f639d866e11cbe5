//! Lineage of a sandbox: who created it, from what, and for what.

use serde::{Deserialize, Serialize};
use workspace_state::SnapshotId;

use crate::error::Result;
use crate::text::check_text;

/// Maximum length of the name of a project or an agent, in bytes.
const NAME_MAX: usize = 128;

/// Origin and purpose of a sandbox. The configuration of the sandbox has it, so it never changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// Id of the sandbox that it is a fork of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<String>,
    /// Name of the key that created it; `None` if the caller had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Name of the project that it belongs to. Lists can be filtered by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Agent that works in it, a text of the client's choice. Lists can be filtered by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Head of the project that the workspace was made from; `None` without a project. A fork has that of the original,
    /// with the snapshot that the original last completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_base: Option<ProjectBase>,
    /// Snapshot that a fork began with. A fork with these files has changed nothing itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_snapshot: Option<SnapshotId>,
}

/// Head of a project that a workspace was made from. Changes since then are merged when the work is completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectBase {
    /// Id of the project.
    pub project: String,
    /// Agent for which the files were chosen by the policy of the project.
    pub agent: String,
    /// Snapshot that the workspace was made from: the files of the head that the agent may see.
    #[serde(with = "snapshot_text")]
    pub snapshot: SnapshotId,
    /// Sequence of the head.
    pub sequence: i64,
    /// Version of the policy.
    pub policy_version: i64,
}

/// Serialises the id of a snapshot as text.
mod snapshot_text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use workspace_state::SnapshotId;

    pub(super) fn serialize<S: Serializer>(id: &SnapshotId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SnapshotId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Lineage {
    /// Returns true if nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Validates the texts that clients choose.
    pub(crate) fn check(&self) -> Result<()> {
        self.project.as_deref().map(|name| check_text("project", name, NAME_MAX)).transpose()?;
        self.agent.as_deref().map(|name| check_text("agent", name, NAME_MAX)).transpose()?;
        Ok(())
    }

    /// Returns the lineage of a fork of the sandbox `id`. `completed` is the snapshot of the sandbox whose changes were
    /// completed: those of the fork begin there.
    pub(crate) fn fork(self, id: &str, created_by: Option<String>, completed: Option<SnapshotId>) -> Self {
        let project_base = self.project_base.map(|base| {
            let snapshot = completed.unwrap_or(base.snapshot);
            ProjectBase { snapshot, ..base }
        });
        // The caller sets the snapshot when it has made it.
        Self { forked_from: Some(id.to_owned()), created_by, project_base, fork_snapshot: None, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_inherits_project_and_agent() {
        let name = |text: &str| Some(text.to_owned());
        let lineage =
            Lineage { created_by: name("ci"), project: name("p"), agent: name("a"), ..Lineage::default() };
        let fork = lineage.fork("sbx-1", name("laptop"), None);
        let expected = Lineage {
            forked_from: name("sbx-1"),
            created_by: name("laptop"),
            project: name("p"),
            agent: name("a"),
            ..Lineage::default()
        };
        assert_eq!(fork, expected);
    }

    #[test]
    fn names_are_bounded_and_have_no_control_characters() {
        let check =
            |project: &str| Lineage { project: Some(project.to_owned()), ..Lineage::default() }.check();
        assert!(check("checkout").is_ok() && check(&"x".repeat(NAME_MAX)).is_ok());
        for wrong in ["", "a\nb", "a\0b", &"x".repeat(NAME_MAX + 1)] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}
