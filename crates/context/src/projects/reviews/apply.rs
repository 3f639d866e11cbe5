//! Application of a resolution to a head, in the store alone.

use std::sync::Arc;

use workspace_merge::{FileRule, Input, Strategies, Versions, merge_file};
use workspace_state::{Attributes, Entry, Node, Snapshot, Store, Tree, VirtualTree, quote_path};

use super::resolve::{Resolution, ResolveRequest, rule_with};
use super::sides::{SideLocation, version_of};
use crate::projects::error::{ProjectError, Result};

/// Maximum size in bytes of a file that is merged by a strategy.
const MERGE_MAX: u64 = 16 << 20;
/// Classes of conflicts about the mode or the attributes of an entry, whose content is merged.
const ATTRIBUTE_CLASSES: [&str; 2] = ["mode", "attributes"];

/// Resolution of a review, with everything that it needs.
#[derive(Debug)]
pub(super) struct Application {
    pub(super) review: String,
    pub(super) class: String,
    pub(super) path: Vec<u8>,
    /// Path under which the head has the entry of the agent, if it has those of both sides.
    pub(super) beside: Option<Vec<u8>>,
    pub(super) base: Option<SideLocation>,
    pub(super) theirs: Option<SideLocation>,
    /// Settings for merges of the path.
    pub(super) rule: FileRule,
    pub(super) expected: HeadCheck,
    pub(super) request: Arc<ResolveRequest>,
}

/// Version that the head must have, because the reviewer has seen it.
#[derive(Debug)]
pub(super) enum HeadCheck {
    /// That of another head; `None` is one without files.
    SameAs(Option<Snapshot>),
    /// That with this identity.
    Version(String),
}

impl Application {
    /// Returns the name of the merge strategy that is used, if one is.
    pub(super) fn strategy_name(&self) -> Option<&'static str> {
        let Resolution::Strategy(name) = &self.request.resolution else { return None };
        Strategies::default().get(name).map(|strategy| strategy.name())
    }

    /// Returns the head with the resolution applied.
    pub(super) fn apply(&self, store: &Store, head: &Tree) -> Result<VirtualTree> {
        if self.request.resolution == Resolution::Ours {
            return Ok(VirtualTree::over(head)?);
        }
        // A project without files has no tree in the store that could be changed.
        let is_empty = matches!(head.root().node, Node::Directory(root) if root.entries == 0);
        let mut next = if is_empty { store.empty_tree()? } else { VirtualTree::over(head)? };
        let present = head.entry(&self.path)?;
        self.check_expected(store, present.as_ref())?;
        self.check_parents(head)?;
        let changes_attributes =
            self.request.resolution == Resolution::Theirs && ATTRIBUTE_CLASSES.contains(&self.class.as_str());
        if !changes_attributes && matches!(present, Some(Entry { node: Node::Directory(_), .. })) {
            let path = quote_path(&self.path);
            return Err(self.not_applicable(format!(
                "`{path}` is a directory in the head; rename or remove it first, or keep `ours`"
            )));
        }
        match &self.request.resolution {
            Resolution::Ours => {}
            Resolution::Theirs if changes_attributes => self.take_attributes(store, &mut next, present)?,
            Resolution::Theirs => self.take_theirs(store, head, &mut next, present.as_ref())?,
            Resolution::Strategy(name) => {
                let merged = self.merge(store, head, present.as_ref(), name)?;
                next.write(&self.path, merged)?;
            }
            Resolution::Content(content) => self.write(store, &mut next, present.as_ref(), content)?,
            Resolution::Delete => remove(&mut next, &self.path)?,
        }
        Ok(next)
    }

    fn check_expected(&self, store: &Store, present: Option<&Entry>) -> Result<()> {
        let version = version_of(present);
        let expected = match &self.expected {
            HeadCheck::Version(version) => version.clone(),
            HeadCheck::SameAs(None) => version_of(None),
            HeadCheck::SameAs(Some(head)) => {
                version_of(Tree::of_snapshot(store, head)?.entry(&self.path)?.as_ref())
            }
        };
        if version == expected {
            return Ok(());
        }
        let path = quote_path(&self.path).into_owned();
        Err(ProjectError::ReviewOutdated { review: self.review.clone(), path, version })
    }

    /// Fails if a parent of the path is no directory any more. Missing ones are created.
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
            // The snapshot of the agent still has what the policy refused below it.
            let reason =
                "theirs is a directory; keep `ours`, and let the agent complete it under another name";
            return Err(self.not_applicable(reason.to_owned()));
        }
        match &self.beside {
            // The agent gave it this name: that of the head goes.
            Some(beside) if *beside == location.path => {
                remove(next, &self.path)?;
                if head.entry(beside)?.is_none() {
                    next.graft(beside, &theirs, &location.path)?;
                }
                return Ok(());
            }
            // The merge gave it this name, because the other was taken.
            Some(beside) if version_of(head.entry(beside)?.as_ref()) == version_of(Some(&theirs)) => {
                remove(next, beside)?;
            }
            _ => {}
        }
        // The same content with another time is no change.
        if version_of(present) != version_of(Some(&theirs)) {
            remove(next, &self.path)?;
            next.graft(&self.path, &theirs, &location.path)?;
        }
        Ok(())
    }

    fn entry_of_theirs(&self, store: &Store) -> Result<Option<(&SideLocation, Entry)>> {
        let Some(location) = &self.theirs else { return Ok(None) };
        Ok(location.open(store)?.1.map(|entry| (location, entry)))
    }

    /// Takes mode and attributes of the agent, and leaves the content, which is merged already.
    fn take_attributes(&self, store: &Store, next: &mut VirtualTree, present: Option<Entry>) -> Result<()> {
        let theirs = self.entry_of_theirs(store)?.map(|(_, entry)| entry.node);
        match (present.map(|entry| entry.node), theirs) {
            (Some(Node::File(present)), Some(Node::File(theirs))) => {
                let attributes =
                    Attributes { mode: theirs.mode, xattrs: theirs.xattrs, ..Attributes::default() };
                Ok(next.put_extents(&self.path, &present.extents, attributes)?)
            }
            (Some(Node::Directory(_)), Some(Node::Directory(theirs))) => {
                let attributes =
                    Attributes { mode: theirs.mode, xattrs: theirs.xattrs, ..Attributes::default() };
                Ok(next.put_directory(&self.path, attributes)?)
            }
            _ => Err(self.not_applicable(format!(
                "`{}` has another type in the head; keep `ours`, or write new content",
                quote_path(&self.path)
            ))),
        }
    }

    /// Merges the present file and that of the agent.
    fn merge(&self, store: &Store, head: &Tree, present: Option<&Entry>, name: &str) -> Result<Vec<u8>> {
        let theirs = match &self.theirs {
            Some(location) => {
                let (tree, entry) = location.open(store)?;
                self.file_content(&tree, entry.as_ref(), "the version of the agent")?
            }
            None => self.file_content(head, None, "the version of the agent")?,
        };
        let ours = self.file_content(head, present, "the present version")?;
        let base = match &self.base {
            Some(location) => {
                let (tree, entry) = location.open(store)?;
                Some(self.file_content(&tree, entry.as_ref(), "the base")?)
            }
            None => None,
        };
        let path = quote_path(&self.path);
        let input = Input::new(&path, Versions { base: base.as_deref(), ours: &ours, theirs: &theirs });
        let merged = merge_file(&Strategies::default(), &rule_with(&self.rule, name), &input);
        let merged = merged.map_err(ProjectError::UnknownStrategy)?;
        match merged.conflict {
            None => Ok(merged.merged.content),
            Some(conflict) => Err(self.not_applicable(format!(
                "strategy `{name}` cannot merge `{path}`: {}; choose `ours`, `theirs` or new content",
                conflict.reason
            ))),
        }
    }

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

    /// Writes new content. A file keeps its mode; a new one gets that of the agent.
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

fn remove(tree: &mut VirtualTree, path: &[u8]) -> Result<()> {
    if tree.exists(path)? {
        tree.remove(path)?;
    }
    Ok(())
}
