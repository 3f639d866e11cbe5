//! Merge of slots. A slot has the three versions (base, ours and theirs) of the leaf (file or symlink) at a path.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use workspace_state::{Attributes, Entry, Extent, FileNode, Node, Tree, TreePath};

use super::attributes::{self, NodeAttributes};
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::options::TreeOptions;
use super::result::{MergedFile, Result};
use super::slot::{Slot, Slots, are_equal};
use crate::file::{Author, Histories, Input, Side, Versions};
use crate::file_settings::{FileSettings, OnConflict};
use crate::file_type;
use crate::merge::{Decision, FileMerge, merge_file, winner};
use crate::strategy::Strategy;

/// File or symlink of the result.
#[derive(Debug)]
pub(super) enum ResultLeaf {
    /// Entry of one of the three trees.
    Unchanged(Entry),
    /// Content of one side with merged attributes. The content is a list of extents: stored pieces and holes.
    NewAttributes(Vec<Extent>, Attributes),
    /// Merged content.
    NewContent(Vec<u8>, Attributes),
}

/// Result at a path.
#[derive(Debug, Default)]
pub(super) struct ResultEntry {
    /// Merged file or symlink; `None` if the result has none at this path.
    pub(super) leaf: Option<ResultLeaf>,
    /// Leaf of our tree at this path; `None` if it has none there.
    pub(super) existing: Option<Entry>,
}

/// Results by path.
pub(super) type ResultEntries = BTreeMap<Vec<u8>, ResultEntry>;

/// State of a merge of trees: merges slots, and collects conflicts and merged files.
pub(super) struct TreeMerger<'a> {
    pub(super) options: &'a TreeOptions,
    pub(super) base: &'a Tree,
    pub(super) ours: &'a Tree,
    pub(super) theirs: &'a Tree,
    /// Paths that keep our entries until a review (a decision by a person), each with its conflict rule. They are old
    /// and new paths of renames that require a review, and paths from which content was moved to a path that requires
    /// one.
    held_for_review: HashMap<Vec<u8>, OnConflict>,
    conflicts: Vec<TreeConflict>,
    /// Files whose content was merged.
    merged: Vec<MergedFile>,
}

impl<'a> TreeMerger<'a> {
    pub(super) fn new(options: &'a TreeOptions, base: &'a Tree, ours: &'a Tree, theirs: &'a Tree) -> Self {
        let held_for_review = HashMap::new();
        Self { options, base, ours, theirs, held_for_review, conflicts: Vec::new(), merged: Vec::new() }
    }

    /// Returns the conflicts and the merged files, sorted by path.
    pub(super) fn finish(mut self) -> (Vec<TreeConflict>, Vec<MergedFile>) {
        self.conflicts.sort_by(|a, b| (&a.path, a.class).cmp(&(&b.path, b.class)));
        self.merged.sort_by(|a, b| a.path.cmp(&b.path));
        (self.conflicts, self.merged)
    }

    /// Adds a conflict to the result.
    pub(super) fn report(&mut self, conflict: TreeConflict) {
        self.conflicts.push(conflict);
    }

    /// Merges all slots.
    pub(super) fn merge_slots(&mut self, slots: Slots) -> Result<ResultEntries> {
        self.hold_sources_for_review(&slots);
        let mut result = ResultEntries::new();
        // Entries of their side that need another name, each with its path.
        let mut renamed = Vec::new();
        for (path, mut slot) in slots {
            let existing = slot.existing.take();
            let (leaf, their_leaf) = self.merge_slot(&path, slot)?;
            renamed.extend(their_leaf.map(|their_leaf| (path.clone(), their_leaf)));
            result.insert(path, ResultEntry { leaf, existing });
        }
        for (path, (leaf, conflict)) in renamed {
            let free_path = self.free_path(&path, &result)?;
            self.report(TreeConflict {
                theirs_path_in_merged: Some(TreePath(free_path.clone())),
                ..conflict
            });
            result.insert(free_path, ResultEntry { leaf: Some(leaf), existing: None });
        }
        Ok(result)
    }

    fn settings(&self, path: &[u8]) -> Cow<'a, FileSettings> {
        self.options.rules.settings(path)
    }

    /// Returns the strategy of a file; `None` if it depends on the content, as for files without a known extension.
    fn strategy(&self, path: &[u8]) -> Option<&dyn Strategy> {
        let settings = self.settings(path);
        let named = settings.strategy.as_deref();
        let name = named.or_else(|| file_type::by_extension(&String::from_utf8_lossy(path)))?;
        self.options.strategies.get(name).map(|strategy| &**strategy)
    }

    /// Returns the conflict rule of a file if its strategy requires a review of every change; `None` if not.
    fn review_rule(&self, path: &[u8]) -> Option<OnConflict> {
        self.strategy(path)
            .filter(|strategy| strategy.requires_review())
            .map(|_| self.settings(path).on_conflict)
    }

    /// Returns true if every change of the file at a path needs a review.
    pub(super) fn path_requires_review(&self, path: &[u8]) -> bool {
        self.review_rule(path).is_some()
    }

    /// Holds back a rename by their side if the rename requires a review: both paths keep our entries until the review.
    /// Returns true if the rename is held back.
    pub(super) fn try_hold_for_review(&mut self, from: &[u8], to: &[u8]) -> bool {
        let Some(rule) = self.rename_review_rule(from, to) else { return false };
        self.held_for_review.extend([from, to].map(|path| (path.to_vec(), rule)));
        true
    }

    /// Holds an entry for a review if their side moved its content to a path that requires a review, and replaced or
    /// removed it at the old path. Otherwise neither path would have the content until the review.
    fn hold_sources_for_review(&mut self, slots: &Slots) {
        let added = slots.iter().filter(|(_, slot)| slot.base.is_none());
        // Contents that their side added at paths that require a review.
        let rules_by_content: HashMap<&[Extent], OnConflict> = added
            .filter_map(|(path, slot)| Some((content_of(&slot.theirs)?, self.review_rule(path)?)))
            .collect();
        if rules_by_content.is_empty() {
            return;
        }
        let replaced = slots.iter().filter(|(_, slot)| !are_equal(slot.base.as_ref(), slot.theirs.as_ref()));
        let held = replaced.filter_map(|(path, slot)| {
            let rule = rules_by_content.get(content_of(&slot.base)?)?;
            (content_of(&slot.theirs) != content_of(&slot.base)).then(|| (path.clone(), *rule))
        });
        self.held_for_review.extend(held);
    }

    /// Returns true if a rename needs a review.
    pub(super) fn rename_requires_review(&self, from: &[u8], to: &[u8]) -> bool {
        self.rename_review_rule(from, to).is_some()
    }

    /// Returns the conflict rule of the old or the new path if that path requires a review; `None` if neither does.
    fn rename_review_rule(&self, from: &[u8], to: &[u8]) -> Option<OnConflict> {
        self.review_rule(from).or_else(|| self.review_rule(to))
    }

    /// Returns the conflict rule of a slot if one of its paths requires a review: its own path, or a path from which a
    /// rename moved a version.
    fn slot_review_rule(&self, path: &[u8], slot: &Slot) -> Option<OnConflict> {
        let versions = [&slot.base, &slot.ours, &slot.theirs].into_iter().flatten();
        let other_paths = versions.map(|version| &version.path[..]).filter(|other| *other != path);
        let held_rule = self.held_for_review.get(path).copied();
        held_rule.or_else(|| std::iter::once(path).chain(other_paths).find_map(|path| self.review_rule(path)))
    }

    /// Returns true if the merged version gets a history (state such as the operations of a CRDT): the caller stores
    /// histories, both sides have a file, and its strategy is always run.
    fn keeps_history(&self, path: &[u8], slot: &Slot) -> bool {
        let is_file = |version: &Option<TreeVersion>| {
            version.as_ref().is_some_and(|version| matches!(version.entry.node, Node::File(_)))
        };
        self.options.histories.is_set()
            && is_file(&slot.ours)
            && is_file(&slot.theirs)
            && self.strategy(path).is_some_and(Strategy::is_always_run)
    }

    /// Returns true if equal changes of both sides are both applied.
    fn applies_equal_changes_twice(&self, path: &[u8], slot: &Slot) -> bool {
        let has_content = |version: &Option<TreeVersion>| content_of(version).is_some();
        has_content(&slot.ours)
            && has_content(&slot.theirs)
            && self
                .strategy(path)
                .is_some_and(|strategy| strategy.applies_equal_changes_twice(&self.settings(path)))
    }

    /// Merges a slot. Returns the leaf for the path. If their leaf needs another name, also returns their leaf and the
    /// conflict to report.
    #[expect(clippy::type_complexity, reason = "the pair is used by a single caller")]
    fn merge_slot(
        &mut self,
        path: &[u8],
        slot: Slot,
    ) -> Result<(Option<ResultLeaf>, Option<(ResultLeaf, TreeConflict)>)> {
        let are_same = |a: &Option<TreeVersion>, b: &Option<TreeVersion>| are_equal(a.as_ref(), b.as_ref());
        let unchanged =
            |version: Option<TreeVersion>| version.map(|version| ResultLeaf::Unchanged(version.entry));
        let applies_equal_changes_twice =
            are_same(&slot.ours, &slot.theirs) && self.applies_equal_changes_twice(path, &slot);
        if are_same(&slot.ours, &slot.theirs) && !applies_equal_changes_twice
            || are_same(&slot.base, &slot.theirs)
        {
            return Ok((unchanged(slot.ours), None));
        }
        if let Some(rule) = self.slot_review_rule(path, &slot) {
            return Ok((
                self.take_version_by(rule, ConflictClass::ReviewRequired, path, &slot, Side::Ours),
                None,
            ));
        }
        if are_same(&slot.base, &slot.ours) && !self.keeps_history(path, &slot) {
            return Ok((unchanged(slot.theirs), None));
        }
        match (&slot.ours, &slot.theirs) {
            (None, _) => {
                Ok((self.take_version(ConflictClass::ModifyDelete, path, &slot, Side::Theirs), None))
            }
            (_, None) => Ok((self.take_version(ConflictClass::ModifyDelete, path, &slot, Side::Ours), None)),
            (Some(ours), Some(theirs)) => match (&ours.entry.node, &theirs.entry.node) {
                (Node::File(_), Node::File(_)) => Ok((self.merge_files(path, &slot)?, None)),
                (Node::Symlink(_), Node::Symlink(_)) => {
                    Ok((self.take_version(ConflictClass::Symlink, path, &slot, Side::Ours), None))
                }
                _ => {
                    let renamed = ResultLeaf::Unchanged(theirs.entry.clone());
                    let ours = ResultLeaf::Unchanged(ours.entry.clone());
                    let conflict = conflict_of(ConflictClass::DistinctTypes, path, &slot);
                    Ok((Some(ours), Some((renamed, conflict))))
                }
            },
        }
    }

    /// Reports a conflict, and takes the version that the conflict rule of the path prefers, or else that of the side
    /// `default`.
    fn take_version(
        &mut self,
        class: ConflictClass,
        path: &[u8],
        slot: &Slot,
        default: Side,
    ) -> Option<ResultLeaf> {
        self.take_version_by(self.settings(path).on_conflict, class, path, slot, default)
    }

    /// Reports a conflict and takes a version, like [`Self::take_version`], but by the given conflict rule.
    fn take_version_by(
        &mut self,
        rule: OnConflict,
        class: ConflictClass,
        path: &[u8],
        slot: &Slot,
        default: Side,
    ) -> Option<ResultLeaf> {
        let winner = winner(&self.author_of_ours(path), &self.author_of_theirs(path), rule);
        let decided = winner.map(|winner| Decision { winner, rule });
        let version = match decided.map_or(default, |decided| decided.winner) {
            Side::Ours => slot.ours.clone(),
            Side::Theirs => slot.theirs.clone(),
        };
        self.report(TreeConflict { decided, ..conflict_of(class, path, slot) });
        version.map(|version| ResultLeaf::Unchanged(version.entry))
    }

    /// Merges two files. At least one of them differs from the base.
    fn merge_files(&mut self, path: &[u8], slot: &Slot) -> Result<Option<ResultLeaf>> {
        let (Some(ours), Some(theirs)) = (&slot.ours, &slot.theirs) else { return Ok(None) };
        let (Node::File(our_file), Node::File(their_file)) = (&ours.entry.node, &theirs.entry.node) else {
            return Ok(None);
        };
        let base = slot.base.as_ref().and_then(|base| match &base.entry.node {
            Node::File(file) => Some(file),
            Node::Symlink(_) | Node::Directory(_) => None,
        });
        let attributes = attributes::merge(
            base.map(NodeAttributes::of_file),
            NodeAttributes::of_file(our_file),
            NodeAttributes::of_file(their_file),
        );
        for (class, clash) in [
            (ConflictClass::Mode, attributes.modes_clash),
            (ConflictClass::Attributes, attributes.xattrs_clash),
        ] {
            if clash {
                self.report(conflict_of(class, path, slot));
            }
        }
        let mut merged_attributes =
            Attributes { mode: attributes.mode, xattrs: attributes.xattrs, modified: None, link_label: None };
        // Version whose content is the result; `None` if the contents must be merged.
        let unmerged = if self.keeps_history(path, slot) {
            None
        } else if our_file.same_content(their_file) && !self.applies_equal_changes_twice(path, slot)
            || base.is_some_and(|base| base.same_content(their_file))
        {
            Some(ours)
        } else if base.is_some_and(|base| base.same_content(our_file)) {
            Some(theirs)
        } else {
            None
        };
        if let Some(unmerged) = unmerged {
            return Ok(Some(with_attributes(&unmerged.entry, merged_attributes)));
        }
        let class = if base.is_some() { ConflictClass::Content } else { ConflictClass::AddAdd };
        let Some(merge) = self.merge_contents(path, slot)? else {
            return Ok(self.take_version(class, path, slot, Side::Ours));
        };
        let is_resolved = merge.is_resolved();
        if let Some(conflict) = merge.conflict {
            let tree_conflict = conflict_of(class, path, slot);
            self.report(TreeConflict { file: Some(conflict), decided: merge.decided, ..tree_conflict });
        }
        if !is_resolved {
            return Ok(Some(with_attributes(&ours.entry, merged_attributes)));
        }
        if let Some(strategy) = merge.strategy {
            self.merged.push(MergedFile {
                path: TreePath(path.to_vec()),
                strategy,
                base: slot.base.clone(),
                ours: ours.clone(),
                theirs: theirs.clone(),
                decided: merge.decided,
                history: merge.merged.history,
            });
        }
        merged_attributes.modified = ours.entry.modified.max(theirs.entry.modified);
        Ok(Some(ResultLeaf::NewContent(merge.merged.content, merged_attributes)))
    }

    /// Merges the contents of a slot; `None` if a version exceeds the size limit.
    fn merge_contents(&self, path: &[u8], slot: &Slot) -> Result<Option<FileMerge>> {
        let versions = [&slot.base, &slot.ours, &slot.theirs].map(Option::as_ref);
        let Some(contents) = self.read(versions)? else { return Ok(None) };
        let name = String::from_utf8_lossy(path);
        let input = self.input(path, &name, &contents);
        let merge = merge_file(&self.options.strategies, &self.settings(path), &input)?;
        Ok(Some(merge))
    }

    /// Reads the contents of the three versions with their stored histories; `None` if a file exceeds the
    /// size limit.
    pub(super) fn read(&self, versions: [Option<&TreeVersion>; 3]) -> Result<Option<Contents>> {
        let [base, ours, theirs] = versions.map(|version| match version.map(|version| &version.entry.node) {
            Some(Node::File(file)) => Some(file),
            _ => None,
        });
        let all = [base, ours, theirs];
        if all.into_iter().flatten().any(|file| file.size() > self.options.content_max) {
            return Ok(None);
        }
        let read = |tree: &Tree, file: Option<&FileNode>| file.map(|file| tree.read(file)).transpose();
        let histories = &self.options.histories;
        Ok(Some(Contents {
            base: read(self.base, base)?,
            ours: read(self.ours, ours)?.unwrap_or_default(),
            theirs: read(self.theirs, theirs)?.unwrap_or_default(),
            histories: [histories.of(versions[0]), histories.of(versions[1])],
        }))
    }

    /// Returns the author of our entry at a path.
    pub(super) fn author_of_ours(&self, path: &[u8]) -> Author {
        self.options.authors.get(path).copied().unwrap_or(self.options.ours)
    }

    /// Returns the author of their entry at a path. Its priority may depend on the path; that of our side was resolved
    /// when it was recorded in [`TreeOptions::authors`].
    pub(super) fn author_of_theirs(&self, path: &[u8]) -> Author {
        let author = self.options.theirs;
        Author { priority: self.options.rules.priority(path).unwrap_or(author.priority), ..author }
    }

    /// Creates the input of a strategy. `name` is the path as text, with replacement characters if it is not UTF-8.
    pub(super) fn input<'r>(&self, path: &[u8], name: &'r str, contents: &'r Contents) -> Input<'r> {
        let versions =
            Versions { base: contents.base.as_deref(), ours: &contents.ours, theirs: &contents.theirs };
        let [base, ours] = contents.histories.each_ref().map(Option::as_deref);
        Input {
            our_author: self.author_of_ours(path),
            their_author: self.author_of_theirs(path),
            histories: Histories { base, ours },
            ..Input::new(name, versions)
        }
    }
}

/// Returns the content of a version, if it is a file and not empty.
fn content_of(version: &Option<TreeVersion>) -> Option<&[Extent]> {
    match &version.as_ref()?.entry.node {
        Node::File(file) if !file.extents.is_empty() => Some(&file.extents),
        _ => None,
    }
}

/// Contents of three versions; empty for a side without a file.
pub(super) struct Contents {
    base: Option<Vec<u8>>,
    ours: Vec<u8>,
    theirs: Vec<u8>,
    /// Stored histories of the base and of our version.
    histories: [Option<Vec<u8>>; 2],
}

/// Returns a file with its content and the given attributes; any other entry unchanged.
fn with_attributes(entry: &Entry, attributes: Attributes) -> ResultLeaf {
    match &entry.node {
        Node::File(file) if file.mode != attributes.mode || file.xattrs != attributes.xattrs => {
            let attributes = Attributes { modified: entry.modified, ..attributes };
            ResultLeaf::NewAttributes(file.extents.clone(), attributes)
        }
        _ => ResultLeaf::Unchanged(entry.clone()),
    }
}

/// Creates a conflict with the three versions of a slot.
fn conflict_of(class: ConflictClass, path: &[u8], slot: &Slot) -> TreeConflict {
    let (base, ours, theirs) = (slot.base.clone(), slot.ours.clone(), slot.theirs.clone());
    TreeConflict { base, ours, theirs, ..TreeConflict::new(class, path) }
}
