//! What of two trees cannot be had at once, as data.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use workspace_state::{Entry, Node, TreePath};

use crate::conflict::Conflict;
use crate::merge::Decided;

/// What kind of conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum ConflictClass {
    /// Both sides changed a file in ways that exclude each other. Ours is in the tree.
    #[serde(rename = "content")]
    Content,
    /// Both sides added a file of one name. Ours is in the tree.
    #[serde(rename = "add/add")]
    AddAdd,
    /// One side changed what the other removed. What was changed is in the tree.
    #[serde(rename = "modify/delete")]
    ModifyDelete,
    /// Both sides gave a file other permission bits. Those of ours are in the tree.
    #[serde(rename = "mode")]
    Mode,
    /// Both sides gave an extended attribute another value. That of ours is in the tree.
    #[serde(rename = "attributes")]
    Attributes,
    /// Both sides made a symlink point elsewhere. Ours is in the tree.
    #[serde(rename = "symlink")]
    Symlink,
    /// A file on one side, a symlink on the other. Theirs is beside ours.
    #[serde(rename = "distinct types")]
    DistinctTypes,
    /// A file or symlink on one side, a directory on the other. Theirs is beside ours.
    #[serde(rename = "file/directory")]
    FileDirectory,
    /// Both sides renamed a file, to other names: both are in the tree. Or both renamed other files to one name: theirs
    /// is beside ours.
    #[serde(rename = "rename/rename")]
    RenameRename,
    /// One side added a file of the name that the other gave to another one. Theirs is beside ours.
    #[serde(rename = "rename/add")]
    RenameAdd,
    /// One side renamed what the other removed. It is in the tree under its new name.
    #[serde(rename = "rename/delete")]
    RenameDelete,
    /// One side added a file to a directory that the other renamed. It is in the directory of the new name.
    #[serde(rename = "file location")]
    FileLocation,
    /// One side added a file to a directory that the other renamed, and it is unclear or impossible where to put it. It
    /// is where it was added.
    #[serde(rename = "directory rename")]
    DirectoryRename,
    /// Both sides added names that some filesystems do not tell apart. Both are in the tree.
    #[serde(rename = "name collision")]
    Collision,
    /// A rule says that somebody looks at every change of this file. Ours is in the tree.
    #[serde(rename = "critical")]
    Critical,
}

impl ConflictClass {
    /// Its name, as it is serialised.
    pub fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::AddAdd => "add/add",
            Self::ModifyDelete => "modify/delete",
            Self::Mode => "mode",
            Self::Attributes => "attributes",
            Self::Symlink => "symlink",
            Self::DistinctTypes => "distinct types",
            Self::FileDirectory => "file/directory",
            Self::RenameRename => "rename/rename",
            Self::RenameAdd => "rename/add",
            Self::RenameDelete => "rename/delete",
            Self::FileLocation => "file location",
            Self::DirectoryRename => "directory rename",
            Self::Collision => "name collision",
            Self::Critical => "critical",
        }
    }
}

/// An entry of one of the three trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeVersion {
    /// Where its tree has it.
    pub path: Vec<u8>,
    /// What it is.
    pub entry: Entry,
}

impl TreeVersion {
    pub(super) fn new(path: &[u8], entry: Entry) -> Self {
        Self { path: path.to_vec(), entry }
    }
}

impl Serialize for TreeVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let node = &self.entry.node;
        let mut fields = serializer.serialize_struct("TreeVersion", 4)?;
        fields.serialize_field("path", &TreePath(self.path.clone()))?;
        fields.serialize_field("kind", &node.kind())?;
        fields.serialize_field("mode", &format!("{:04o}", node.mode()))?;
        fields.serialize_field("size", &if matches!(node, Node::Directory(_)) { 0 } else { node.size() })?;
        fields.end()
    }
}

/// What could not be merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeConflict {
    /// What kind of conflict.
    pub class: ConflictClass,
    /// Where.
    pub path: TreePath,
    /// Where theirs is in the tree, if both are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<TreePath>,
    /// What was there.
    pub base: Option<TreeVersion>,
    /// What ours has.
    pub ours: Option<TreeVersion>,
    /// What theirs has.
    pub theirs: Option<TreeVersion>,
    /// What the merge of the file says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Conflict>,
    /// Who won, where a rule decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

impl TreeConflict {
    pub(super) fn new(class: ConflictClass, path: &[u8]) -> Self {
        let path = TreePath(path.to_vec());
        Self { class, path, beside: None, base: None, ours: None, theirs: None, file: None, decided: None }
    }
}
