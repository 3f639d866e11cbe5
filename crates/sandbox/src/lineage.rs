//! Lineage of a sandbox: its creator, the sandbox that it is a fork of, and its project and agent. The *base* of a
//! workspace is the part of the project's head (its present files) that it was made from, or was rebased onto.

use serde::{Deserialize, Serialize};
use workspace_catalog::SnapshotOrigin;
use workspace_state::SnapshotId;

use crate::error::Result;
use crate::text::check_text;

/// Maximum length of the name of a project or an agent, in bytes.
const NAME_MAX: usize = 128;

/// Maximum number of former bases that a sandbox remembers.
const FORMER_BASES_MAX: usize = 64;

/// Maximum number of paths in each list of [`RevertedChanges`].
const LISTED_PATHS_MAX: usize = 20;
/// Maximum length of each list of [`RevertedChanges`] in bytes.
const LISTED_PATHS_BYTES_MAX: usize = 4 << 10;

/// Origin and purpose of a sandbox, and the bases of its workspace. Only the bases change, when the workspace is
/// rebased or restored.
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
    /// Head of the project that the workspace was made from, or last rebased onto; `None` without a project. A fork has
    /// the base of the original, with the snapshot that the original last completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_base: Option<ProjectBase>,
    /// Bases before rebases, oldest first. A restore to an older snapshot may make one of them the base again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_bases: Vec<ProjectBase>,
}

/// Head of a project that a workspace was made from, or was rebased onto. Changes since then are merged when the work
/// is completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectBase {
    /// Id of the project.
    pub project: String,
    /// Agent for which the files were chosen by the policy of the project.
    pub agent: String,
    /// Snapshot that the changes of the workspace are compared with: the files of the head that the agent may see.
    #[serde(with = "snapshot_text")]
    pub snapshot: SnapshotId,
    /// Sequence of the head.
    pub sequence: i64,
    /// Version of the policy.
    pub policy_version: i64,
    /// Key of the agent's view under that policy, which is equal for agents that see the same; `None` in sandboxes of
    /// older servers.
    #[serde(default, rename = "view", skip_serializing_if = "Option::is_none")]
    pub view_key: Option<String>,
    /// Snapshot with which a rebase replaced the files of the workspace; `None` before the first rebase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebased: Option<SnapshotId>,
    /// Snapshot that a fork began with, or was rebased to before it changed anything: with these files, it has changed
    /// nothing itself. `None` for other sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untouched: Option<SnapshotId>,
    /// Refused changes that were reverted when the server last replaced the files of the workspace; `None` if it did not
    /// do that, or for another reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted: Option<RevertedChanges>,
}

/// Refused changes that were reverted in a workspace. Of each list of paths, only the beginning is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RevertedChanges {
    /// Id of the last completion of the workspace before that.
    pub completion: String,
    /// Number of reverted changes.
    pub count: u64,
    /// Quoted paths of reverted changes.
    pub paths: Vec<String>,
    /// Number of refused changes that were left alone, because the agent had changed the entries again.
    pub kept_count: u64,
    /// Quoted paths that were left alone.
    pub kept: Vec<String>,
}

/// Head of a project, with the policy under which it is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HeadVersion {
    /// Sequence of the head.
    pub sequence: i64,
    /// Version of the policy.
    pub policy_version: i64,
}

/// Head with which the changes in a workspace conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictingHead {
    /// The head.
    #[serde(flatten)]
    pub head: HeadVersion,
    /// Id of the last completion of the workspace when the conflict was found; `None` if there was none. After another
    /// completion, fewer changes are left to merge, which may no longer conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
}

/// Returns the origin of a snapshot that is made in a sandbox whose files have the base `base`.
pub(crate) fn origin_in(sandbox: &str, base: Option<&ProjectBase>) -> SnapshotOrigin {
    let round_id = base.map(|base| base.round_id(sandbox));
    SnapshotOrigin { sandbox: Some(sandbox.to_owned()), round_id }
}

impl ProjectBase {
    /// Returns the id of the present round of a sandbox's workspace, under which its completions and snapshots are
    /// recorded: `SANDBOX`, or `SANDBOX/SNAPSHOT` after a rebase to that snapshot. A completion before a rebase
    /// contains nothing of what is completed after it.
    pub fn round_id(&self, sandbox: &str) -> String {
        match self.rebased {
            Some(snapshot) => format!("{sandbox}/{snapshot}"),
            None => sandbox.to_owned(),
        }
    }
}

impl RevertedChanges {
    /// Creates the report about reverted changes, and about others that were left alone.
    pub fn new(completion: String, reverted: Vec<String>, kept: Vec<String>) -> Self {
        let (count, kept_count) = (reverted.len() as u64, kept.len() as u64);
        Self { completion, count, paths: first_paths(reverted), kept_count, kept: first_paths(kept) }
    }
}

/// Returns the first paths, at most [`LISTED_PATHS_MAX`] with [`LISTED_PATHS_BYTES_MAX`].
fn first_paths(mut paths: Vec<String>) -> Vec<String> {
    paths.truncate(LISTED_PATHS_MAX);
    let mut bytes = 0;
    paths.retain(|path| {
        bytes += path.len();
        bytes <= LISTED_PATHS_BYTES_MAX
    });
    paths
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

    /// Returns the lineage of a fork of the sandbox `id`. `completed` is the snapshot of its last completion, with
    /// which the changes of the fork are compared; `None` without a completion.
    pub(crate) fn fork(self, id: &str, created_by: Option<String>, completed: Option<SnapshotId>) -> Self {
        let project_base = self.project_base.map(|base| {
            let snapshot = completed.unwrap_or(base.snapshot);
            // The caller sets `untouched` when it has made the snapshot of the fork.
            ProjectBase { snapshot, rebased: None, untouched: None, reverted: None, ..base }
        });
        let forked_from = Some(id.to_owned());
        Self { forked_from, created_by, project_base, former_bases: Vec::new(), ..self }
    }

    /// Replaces the base, and remembers the former one.
    pub(crate) fn set_base(&mut self, base: ProjectBase) {
        let rebased = base.rebased;
        if let Some(former) = self.project_base.replace(base).filter(|former| former.rebased != rebased) {
            self.former_bases.push(ProjectBase { reverted: None, ..former });
        }
        self.former_bases.retain(|former| former.rebased != rebased);
        let excess = self.former_bases.len().saturating_sub(FORMER_BASES_MAX);
        self.former_bases.drain(..excess);
    }

    /// Forgets a former base whose files no snapshot has.
    pub(crate) fn forget_base(&mut self, rebased: SnapshotId) {
        self.former_bases.retain(|former| former.rebased != Some(rebased));
    }

    /// Returns the base and the former ones.
    pub(crate) fn bases(&self) -> impl Iterator<Item = &ProjectBase> {
        self.project_base.iter().chain(&self.former_bases)
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

    /// Returns a base. `rebased` is each byte of the id of the snapshot of a rebase; `None` before the first rebase.
    fn base(rebased: Option<u8>) -> ProjectBase {
        ProjectBase {
            project: "p".to_owned(),
            agent: "a".to_owned(),
            snapshot: SnapshotId::from_bytes([9; 16]),
            sequence: 1,
            policy_version: 0,
            view_key: None,
            rebased: rebased.map(|byte| SnapshotId::from_bytes([byte; 16])),
            untouched: None,
            reverted: None,
        }
    }

    #[test]
    fn former_bases_are_remembered_once_and_bounded() {
        let mut lineage = Lineage { project_base: Some(base(None)), ..Lineage::default() };
        lineage.set_base(base(Some(1)));
        // The same base at a later head is no other base.
        lineage.set_base(ProjectBase { sequence: 2, ..base(Some(1)) });
        assert_eq!(lineage.former_bases, [base(None)]);
        // Back to the first one, by a restore.
        lineage.set_base(base(None));
        assert_eq!(lineage.former_bases, [ProjectBase { sequence: 2, ..base(Some(1)) }]);
        for byte in 0..100 {
            lineage.set_base(base(Some(byte)));
        }
        assert_eq!(lineage.former_bases.len(), FORMER_BASES_MAX);
        lineage.forget_base(SnapshotId::from_bytes([98; 16]));
        assert_eq!(lineage.former_bases.len(), FORMER_BASES_MAX - 1);
        assert_eq!(lineage.fork("sbx-1", None, None).former_bases, []);
    }

    #[test]
    fn a_rebase_begins_another_sequence_of_completions() {
        let id = SnapshotId::from_bytes([7; 16]);
        assert_eq!(base(None).round_id("sbx-1"), "sbx-1");
        assert_eq!(base(Some(7)).round_id("sbx-1"), format!("sbx-1/{id}"));
    }

    #[test]
    fn lists_of_reverted_paths_are_bounded() {
        let paths = |count: usize, length: usize| vec!["x".repeat(length); count];
        let report = RevertedChanges::new("c".to_owned(), paths(1_000, 1), paths(3, 2_000));
        assert_eq!((report.count, report.paths.len()), (1_000, LISTED_PATHS_MAX));
        assert_eq!((report.kept_count, report.kept.len()), (3, 2));
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
