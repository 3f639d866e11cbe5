//! Conflicts of a tree merge, as data: the class, the path, and the entries of the three trees.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use workspace_state::{Entry, Node, TreePath};

use crate::conflict::Conflict;
use crate::merge::Decision;

/// Kind of a conflict between trees. "The tree" is the merged tree, unless a conflict rule decided otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum ConflictClass {
    /// Both sides changed a file, and the changes cannot be merged. The tree has our file.
    #[serde(rename = "content")]
    Content,
    /// Both sides added a file of the same name. The tree has our file.
    #[serde(rename = "add/add")]
    AddAdd,
    /// One side changed an entry that the other side removed. The tree has the changed entry.
    #[serde(rename = "modify/delete")]
    ModifyDelete,
    /// Both sides added a file, with different permission bits other than the read and write bits. The tree has those
    /// of our side.
    #[serde(rename = "mode")]
    Mode,
    /// Both sides changed an extended attribute. The tree has our value.
    #[serde(rename = "attributes")]
    Attributes,
    /// Both sides changed the target of a symlink. The tree has our symlink.
    #[serde(rename = "symlink")]
    Symlink,
    /// One side has a file, the other side a symlink. The tree has both: their entry has another name.
    #[serde(rename = "distinct types")]
    DistinctTypes,
    /// One side has a file or symlink, the other side a directory. The tree has both: their entry has another name.
    #[serde(rename = "file/directory")]
    FileDirectory,
    /// Both sides renamed the same file to different names: the tree has both. Or they renamed different
    /// files to the same name: the tree has both, and their file has another name.
    #[serde(rename = "rename/rename")]
    RenameRename,
    /// One side added a file with the name that the other side gave to a renamed file. The tree has both: their file
    /// has another name.
    #[serde(rename = "rename/add")]
    RenameAdd,
    /// One side renamed a file that the other side removed. The tree has the file under its new name.
    #[serde(rename = "rename/delete")]
    RenameDelete,
    /// One side added a file to a directory that the other side renamed. The tree has the file in the renamed
    /// directory.
    #[serde(rename = "file location")]
    FileLocation,
    /// One side added a file to a directory that the other side renamed, but the new path of the file is ambiguous or
    /// taken. The tree has the file at the path at which it was added.
    #[serde(rename = "directory rename")]
    DirectoryRename,
    /// Both sides added names that some file systems treat as equal. The tree has both.
    #[serde(rename = "name collision")]
    Collision,
    /// The strategy requires a review (a decision by a person) of every change of this file. The tree has our file.
    #[serde(rename = "critical")]
    ReviewRequired,
}

impl ConflictClass {
    /// Returns the name used in serialised conflicts.
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
            Self::ReviewRequired => "critical",
        }
    }
}

/// Entry of one of the three trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeVersion {
    /// Path of the entry in its own tree.
    pub path: Vec<u8>,
    /// Entry at that path.
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

/// Conflict between trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeConflict {
    /// Kind of the conflict.
    pub class: ConflictClass,
    /// Path in the merged tree; of our entry if the tree has the entries of both sides.
    pub path: TreePath,
    /// Path of their entry in the merged tree, if the tree has the entries of both sides.
    #[serde(rename = "beside", skip_serializing_if = "Option::is_none")]
    pub theirs_path_in_merged: Option<TreePath>,
    /// Entry of the base, if it had one.
    pub base: Option<TreeVersion>,
    /// Entry in our tree, if it has one.
    pub ours: Option<TreeVersion>,
    /// Entry in their tree, if it has one.
    pub theirs: Option<TreeVersion>,
    /// Conflict within the file, if its content was merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Conflict>,
    /// Decision of the conflict rule; `None` if the conflict needs a review.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decision>,
}

impl TreeConflict {
    pub(super) fn new(class: ConflictClass, path: &[u8]) -> Self {
        let path = TreePath(path.to_vec());
        Self {
            class,
            path,
            theirs_path_in_merged: None,
            base: None,
            ours: None,
            theirs: None,
            file: None,
            decided: None,
        }
    }
}
