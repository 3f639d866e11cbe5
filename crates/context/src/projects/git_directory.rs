//! Git: treatment of a repository (`.git`) among the files of a project, and the git commit that an import is from.

use workspace_catalog::Project;
use workspace_state::{Tree, TreeId, VirtualTree};

use super::error::Result;

/// Key of this setting in the stored settings of a project.
pub(super) const GIT_SETTING: &str = "git";
/// Directory of a git repository.
const GIT_DIRECTORY: &str = ".git";

/// Treatment of a git repository (`.git`) in the root of imported or completed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitDirectory {
    /// The repository stays in the workspace and does not become part of the project: the git index files of two agents
    /// could not be merged.
    Ignored,
    /// The repository is part of the project.
    Kept,
}

/// Origin of imported files: a commit of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportOrigin {
    /// Id of the commit.
    pub commit: String,
    /// Time of the commit in milliseconds since 1970.
    pub commit_time: Option<i64>,
}

impl GitDirectory {
    /// Returns the setting of a project, by default [`Self::Ignored`].
    pub fn of(project: &Project) -> Self {
        match project.settings.get(GIT_SETTING).and_then(serde_json::Value::as_str) {
            Some("kept") => Self::Kept,
            _ => Self::Ignored,
        }
    }

    /// Returns the name of the setting: `ignored` or `kept`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ignored => "ignored",
            Self::Kept => "kept",
        }
    }

    /// Adds the `.git` of a workspace to a tree, if the project ignores it.
    pub(super) fn add_ignored(self, workspace: &Tree, tree: &mut VirtualTree) -> Result<()> {
        match workspace.entry(GIT_DIRECTORY)? {
            Some(entry) if self == Self::Ignored => Ok(tree.graft(GIT_DIRECTORY, &entry, GIT_DIRECTORY)?),
            _ => Ok(()),
        }
    }

    /// Returns the id of a tree without the `.git` that the project ignores.
    pub(super) fn tree_id_without_ignored(self, tree: &Tree) -> Result<TreeId> {
        Ok(match self.without_ignored(tree)? {
            Some(without) => without.tree_id()?,
            None => tree.id(),
        })
    }

    /// Returns a tree without the `.git` that the project ignores; `None` if the project keeps it, or there is none.
    pub(super) fn without_ignored(self, tree: &Tree) -> Result<Option<VirtualTree>> {
        if self == Self::Kept || tree.entry(GIT_DIRECTORY)?.is_none() {
            return Ok(None);
        }
        let mut without = VirtualTree::over(tree)?;
        without.remove(GIT_DIRECTORY)?;
        Ok(Some(without))
    }
}
