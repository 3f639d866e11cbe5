//! Git repositories: the one in the root of imported and completed files, and the one that an import is from.

use workspace_catalog::Project;
use workspace_state::{Tree, TreeId, VirtualTree};

use super::error::Result;

/// Name of the setting in the settings of a project.
pub(super) const GIT_SETTING: &str = "git";
/// Directory of a git repository.
const GIT_DIRECTORY: &str = ".git";

/// Treatment of a git repository (`.git`) in the root of files that enter a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitDirectory {
    /// It stays in the workspace: two agents' index files could only conflict.
    Ignored,
    /// It is part of the project.
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

    /// Puts the part of a workspace that does not enter the project into a tree.
    pub(super) fn keep(self, workspace: &Tree, tree: &mut VirtualTree) -> Result<()> {
        match workspace.entry(GIT_DIRECTORY)? {
            Some(entry) if self == Self::Ignored => Ok(tree.graft(GIT_DIRECTORY, &entry, GIT_DIRECTORY)?),
            _ => Ok(()),
        }
    }

    /// Returns the id of the part of a tree that enters the project.
    pub(super) fn tree_id(self, tree: &Tree) -> Result<TreeId> {
        Ok(match self.apply(tree)? {
            Some(part) => part.tree_id()?,
            None => tree.id(),
        })
    }

    /// Returns the part of a tree that enters the project; `None` if that is the whole tree.
    pub(super) fn apply(self, tree: &Tree) -> Result<Option<VirtualTree>> {
        if self == Self::Kept || tree.entry(GIT_DIRECTORY)?.is_none() {
            return Ok(None);
        }
        let mut without = VirtualTree::over(tree)?;
        without.remove(GIT_DIRECTORY)?;
        Ok(Some(without))
    }
}
