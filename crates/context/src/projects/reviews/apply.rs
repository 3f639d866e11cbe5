//! Application of the decision about a review (a conflict that waits for a decision) to the head: the present files of
//! the project. This module reads and writes only the store; the caller records the result.

use std::sync::Arc;

use workspace_merge::{FileSettings, Input, Strategies, Versions, merge_file};
use workspace_state::{Attributes, Entry, Node, Snapshot, Store, Tree, VirtualTree, Xattrs, quote_path};

use super::resolve::{Resolution, ResolveRequest, settings_with};
use super::sides::{EntryInTree, VersionLocation, version_of};
use crate::projects::error::{ProjectError, Result};

/// Maximum size in bytes of a file that is merged by a strategy.
const MERGE_MAX: u64 = 16 << 20;

/// Conflict about the attributes of an entry. The content of the entry is merged already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttributeConflict {
    /// Both sides added the file, with different modes.
    Mode,
    /// Both sides changed an extended attribute.
    Xattrs,
}

impl AttributeConflict {
    /// Returns the conflict of a class of reviews; `None` for a conflict about the entry or its content.
    fn of_class(class: &str) -> Option<Self> {
        match class {
            "mode" => Some(Self::Mode),
            "attributes" => Some(Self::Xattrs),
            _ => None,
        }
    }
}

/// Resolution of a review, with everything that it needs.
#[derive(Debug)]
pub(super) struct Application {
    /// Id of the review.
    pub(super) review: String,
    /// Class of the conflict, such as `content` or `mode`.
    pub(super) class: String,
    /// Path of the review.
    pub(super) path: Vec<u8>,
    /// Path of the agent's entry in the head, after a conflict for which the merge kept both entries: both sides
    /// renamed the file, or added different entries of one name. Equal to the agent's own path if the agent chose the
    /// name, and otherwise a name that the merge made. `None` for other conflicts.
    pub(super) theirs_path_in_head: Option<Vec<u8>>,
    /// Location of the entry in the base; `None` if the base has none.
    pub(super) base: Option<VersionLocation>,
    /// Location of the entry in the snapshot of the agent; `None` if the agent removed it.
    pub(super) theirs: Option<VersionLocation>,
    /// Settings for merges of the path.
    pub(super) settings: FileSettings,
    /// False before the first change of the project.
    pub(super) has_head: bool,
    /// Version that the path must have in the head.
    pub(super) expected: HeadCheck,
    pub(super) request: Arc<ResolveRequest>,
}

/// Version that the path must have in the head, because the reviewer has seen that version.
#[derive(Debug)]
pub(super) enum HeadCheck {
    /// Version in this head: the head with the sequence that the reviewer names, or else the head when the review was
    /// opened. `None` is the state before the first change.
    AsInHead(Option<Snapshot>),
    /// Version with this identity ([`version_of`]).
    Version(String),
}

impl Application {
    /// Returns the name of the merge strategy that the reviewer chose; `None` for other choices.
    pub(super) fn strategy_name(&self) -> Option<&'static str> {
        let Resolution::Strategy(name) = &self.request.resolution else { return None };
        Strategies::default().get(name).map(|strategy| strategy.name())
    }

    /// Returns the head with the resolution applied. Fails if the head does not have the expected version of the path,
    /// except for the choice `ours`.
    pub(super) fn apply(&self, store: &Store, head: &Tree) -> Result<VirtualTree> {
        if self.request.resolution == Resolution::Ours {
            return Ok(VirtualTree::over(head)?);
        }
        // Before the first change, `head` is an empty tree that is not in the store, so a changed tree over it could
        // not be committed. The unchanged tree that is returned above is not committed.
        let mut next = if self.has_head { VirtualTree::over(head)? } else { store.empty_tree()? };
        let present = head.entry(&self.path)?;
        self.check_expected(store, present.as_ref())?;
        self.check_parents(head)?;
        let conflict = AttributeConflict::of_class(&self.class);
        let changes_attributes = self.request.resolution == Resolution::Theirs && conflict.is_some();
        if !changes_attributes && matches!(present, Some(Entry { node: Node::Directory(_), .. })) {
            let path = quote_path(&self.path);
            return Err(self.not_applicable(format!(
                "`{path}` is a directory in the head; rename or remove it first, or keep `ours`"
            )));
        }
        match &self.request.resolution {
            Resolution::Ours => {}
            Resolution::Theirs => match conflict {
                Some(conflict) => self.take_attributes(store, &mut next, present, conflict)?,
                None => self.take_theirs(store, head, &mut next, present.as_ref())?,
            },
            Resolution::Strategy(name) => {
                let merged = self.merge(store, head, present.as_ref(), name)?;
                next.write(&self.path, merged)?;
            }
            Resolution::Content(content) => self.write(store, &mut next, present.as_ref(), content)?,
            Resolution::Delete => remove(&mut next, &self.path)?,
        }
        Ok(next)
    }

    /// Fails if the head does not have the version of the path that the reviewer has seen.
    fn check_expected(&self, store: &Store, present: Option<&Entry>) -> Result<()> {
        let version = version_of(present);
        let expected = match &self.expected {
            HeadCheck::Version(version) => version.clone(),
            HeadCheck::AsInHead(None) => version_of(None),
            HeadCheck::AsInHead(Some(head)) => {
                version_of(Tree::of_snapshot(store, head)?.entry(&self.path)?.as_ref())
            }
        };
        if version == expected {
            return Ok(());
        }
        let path = quote_path(&self.path).into_owned();
        Err(ProjectError::ReviewOutdated { review: self.review.clone(), path, version })
    }

    /// Fails if a parent of the path is no directory any more. Missing parents are allowed: a write creates them.
    fn check_parents(&self, head: &Tree) -> Result<()> {
        let slashes = self.path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (slash, _) in slashes {
            let parent = &self.path[..slash];
            match head.entry(parent)? {
                None => return Ok(()),
                Some(entry) if matches!(entry.node, Node::Directory(_)) => {}
                Some(_) => {
                    let parent = quote_path(parent);
                    return Err(self.not_applicable(format!(
                        "`{parent}` is no directory in the head any more; rename or remove it first, or keep `ours`"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Takes the entry of the agent, or its removal.
    fn take_theirs(
        &self,
        store: &Store,
        head: &Tree,
        next: &mut VirtualTree,
        present: Option<&Entry>,
    ) -> Result<()> {
        let Some((location, theirs)) = self.entry_of_theirs(store)? else {
            return remove(next, &self.path);
        };
        if matches!(theirs.node, Node::Directory(_)) {
            // The snapshot of the agent still has the entries below the directory that the policy refused.
            let reason =
                "theirs is a directory; keep `ours`, and let the agent complete it under another name";
            return Err(self.not_applicable(reason.to_owned()));
        }
        let path_in_theirs = &location.path;
        match &self.theirs_path_in_head {
            // The agent gave its entry this name. The entry at the path of the review is removed.
            Some(kept) if kept == path_in_theirs => {
                remove(next, &self.path)?;
                if head.entry(kept)?.is_none() {
                    // Adds the entry with everything below it. Since both paths are equal, `graft` need not check the
                    // depth of that.
                    next.graft(kept, &theirs, path_in_theirs)?;
                }
                return Ok(());
            }
            // The merge gave the entry of the agent this name, because the head has another entry at the path of the
            // review.
            Some(kept) if version_of(head.entry(kept)?.as_ref()) == version_of(Some(&theirs)) => {
                remove(next, kept)?;
            }
            _ => {}
        }
        // An entry that differs only in its time is not replaced.
        if version_of(present) != version_of(Some(&theirs)) {
            remove(next, &self.path)?;
            next.graft(&self.path, &theirs, path_in_theirs)?;
        }
        Ok(())
    }

    /// Returns the entry of the agent and its location; `None` if the agent removed it.
    fn entry_of_theirs(&self, store: &Store) -> Result<Option<(&VersionLocation, Entry)>> {
        let Some(location) = &self.theirs else { return Ok(None) };
        Ok(location.open(store)?.entry.map(|entry| (location, entry)))
    }

    /// Takes the mode, or the extended attributes that the agent changed. Content and modification time stay. The
    /// file becomes separate from other hard links to it, which keep their attributes.
    fn take_attributes(
        &self,
        store: &Store,
        next: &mut VirtualTree,
        present: Option<Entry>,
        conflict: AttributeConflict,
    ) -> Result<()> {
        let theirs = self.entry_of_theirs(store)?.map(|(_, entry)| entry.node);
        let base = match &self.base {
            Some(location) => location.open(store)?.entry.map(|entry| entry.node),
            None => None,
        };
        let base = base.as_ref().and_then(xattrs_of);
        let modified = present.as_ref().and_then(|entry| entry.modified);
        let attributes = |(mode, xattrs): (u16, Xattrs), (their_mode, their_xattrs): (u16, &Xattrs)| {
            let (mode, xattrs) = match conflict {
                AttributeConflict::Mode => (their_mode, xattrs),
                AttributeConflict::Xattrs => (mode, with_changes(xattrs, base, their_xattrs)),
            };
            Attributes { mode, xattrs, ..Attributes::default() }
        };
        match (present.map(|entry| entry.node), theirs) {
            (Some(Node::File(present)), Some(Node::File(theirs))) => {
                let attributes = attributes((present.mode, present.xattrs), (theirs.mode, &theirs.xattrs));
                let attributes = Attributes { modified, ..attributes };
                Ok(next.put_extents(&self.path, &present.extents, attributes)?)
            }
            (Some(Node::Directory(present)), Some(Node::Directory(theirs))) => {
                let attributes = attributes((present.mode, present.xattrs), (theirs.mode, &theirs.xattrs));
                Ok(next.put_directory(&self.path, attributes)?)
            }
            _ => Err(self.not_applicable(format!(
                "`{}` has another type in the head; keep `ours`, or write new content",
                quote_path(&self.path)
            ))),
        }
    }

    /// Merges the file in the head and the file of the agent by the strategy `name`.
    fn merge(&self, store: &Store, head: &Tree, present: Option<&Entry>, name: &str) -> Result<Vec<u8>> {
        let theirs = match &self.theirs {
            Some(location) => {
                let EntryInTree { tree, entry } = location.open(store)?;
                self.file_content(&tree, entry.as_ref(), "the version of the agent")?
            }
            None => self.file_content(head, None, "the version of the agent")?,
        };
        let ours = self.file_content(head, present, "the present version")?;
        let base = match &self.base {
            Some(location) => {
                let EntryInTree { tree, entry } = location.open(store)?;
                Some(self.file_content(&tree, entry.as_ref(), "the base")?)
            }
            None => None,
        };
        let path = quote_path(&self.path);
        let input = Input::new(&path, Versions { base: base.as_deref(), ours: &ours, theirs: &theirs });
        let merged = merge_file(&Strategies::default(), &settings_with(&self.settings, name), &input);
        let merged = merged.map_err(ProjectError::UnknownStrategy)?;
        match merged.conflict {
            None => Ok(merged.merged.content),
            Some(conflict) => Err(self.not_applicable(format!(
                "strategy `{name}` cannot merge `{path}`: {}; choose `ours`, `theirs` or new content",
                conflict.reason
            ))),
        }
    }

    /// Reads a version of the file for a merge. Fails if the entry is no file or is too large. `what` names the version
    /// in the error.
    fn file_content(&self, tree: &Tree, entry: Option<&Entry>, what: &str) -> Result<Vec<u8>> {
        match entry.map(|entry| &entry.node) {
            Some(Node::File(file)) if file.size() <= MERGE_MAX => Ok(tree.read(file)?),
            Some(Node::File(_)) => Err(self.not_applicable(format!(
                "{what} is larger than {} MiB, which is too large to merge; choose `ours`, `theirs` or new content",
                MERGE_MAX >> 20
            ))),
            _ => Err(self.not_applicable(format!(
                "{what} is no file, so there is nothing to merge; choose `ours`, `theirs` or new content"
            ))),
        }
    }

    /// Writes new content. A file in the head keeps its mode; a new file gets the mode of the agent's file.
    fn write(
        &self,
        store: &Store,
        next: &mut VirtualTree,
        present: Option<&Entry>,
        content: &[u8],
    ) -> Result<()> {
        if matches!(present, Some(Entry { node: Node::File(_), .. })) {
            return Ok(next.write(&self.path, content)?);
        }
        remove(next, &self.path)?;
        next.write(&self.path, content)?;
        if let Some((_, Entry { node: Node::File(file), .. })) = self.entry_of_theirs(store)? {
            next.chmod(&self.path, file.mode)?;
        }
        Ok(())
    }

    fn not_applicable(&self, reason: String) -> ProjectError {
        ProjectError::ResolutionNotApplicable { review: self.review.clone(), reason }
    }
}

/// Result of the choice `theirs`, which takes the version of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TheirsChoice {
    /// Size of the resulting file in bytes; `None` if the result is no file.
    pub size: Option<u64>,
}

/// Returns the result of the choice `theirs` for a review of this class; `None` if [`Application::apply`] refuses that
/// choice, because of the type of the agent's entry or of the entry in the present head.
pub(super) fn theirs_choice(
    class: &str,
    head: Option<&Entry>,
    theirs: Option<&Entry>,
) -> Option<TheirsChoice> {
    let [head, theirs] = [head, theirs].map(|entry| entry.map(|entry| &entry.node));
    match (AttributeConflict::of_class(class), head, theirs) {
        // The content stays.
        (Some(_), Some(Node::File(head)), Some(Node::File(_))) => {
            Some(TheirsChoice { size: Some(head.size()) })
        }
        (Some(_), Some(Node::Directory(_)), Some(Node::Directory(_))) => Some(TheirsChoice { size: None }),
        (Some(_), ..) | (None, Some(Node::Directory(_)), _) | (None, _, Some(Node::Directory(_))) => None,
        (None, _, Some(Node::File(theirs))) => Some(TheirsChoice { size: Some(theirs.size()) }),
        (None, ..) => Some(TheirsChoice { size: None }),
    }
}

/// Returns the extended attributes of a file or directory; `None` for a symlink.
fn xattrs_of(node: &Node) -> Option<&Xattrs> {
    match node {
        Node::File(file) => Some(&file.xattrs),
        Node::Directory(directory) => Some(&directory.xattrs),
        Node::Symlink(_) => None,
    }
}

/// Returns `xattrs` with the changes between `base` and `theirs`. Without a base, all attributes of `theirs` count as
/// added.
fn with_changes(mut xattrs: Xattrs, base: Option<&Xattrs>, theirs: &Xattrs) -> Xattrs {
    let removed = base.into_iter().flat_map(Xattrs::keys).filter(|name| !theirs.contains_key(*name));
    for name in removed {
        xattrs.remove(name);
    }
    for (name, value) in theirs {
        if base.and_then(|base| base.get(name)) != Some(value) {
            xattrs.insert(name.clone(), value.clone());
        }
    }
    xattrs
}

/// Removes the entry at a path, if there is one.
fn remove(tree: &mut VirtualTree, path: &[u8]) -> Result<()> {
    if tree.exists(path)? {
        tree.remove(path)?;
    }
    Ok(())
}
