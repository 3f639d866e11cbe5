//! Rename detection: pairs of a removed and an added leaf (file or symlink) that are the same file.
//!
//! The tree diff has already found pairs with equal content. Other pairs are found by similarity, but only
//! among files whose rename affects the merge: files that one side removed and the other side changed, and files
//! from removed directories to which the other side added files.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use workspace_state::{FileNode, Node, StoreError, Tree};

use super::changes::SideChanges;
use super::paths::{ancestors, name};
use super::result::Result;
use super::similarity::{MAX_SCORE, Pieces, can_reach_score, score_of_chunks};

/// Maximum number of removed symlinks with the same target. With more, none of them is paired: the pairs would be
/// arbitrary.
const SAME_TARGET_MAX: usize = 1000;
/// Maximum number of size comparisons for each content comparison that [`RenameOptions::pairs`] allows.
const SIZE_CHECKS_PER_PAIR: usize = 16;

/// Limits of rename detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenameOptions {
    /// Minimum similarity of a file and its renamed version, in percent. Above 100, only renames with equal
    /// content are found.
    pub similarity: u8,
    /// Maximum number of pairs of files that are compared in one search. A tree merge searches at least once per side.
    pub pairs: usize,
    /// Maximum number of bytes that are read in one search. Files beyond this limit are compared by the ids of their
    /// chunks (stored pieces of content).
    pub bytes: u64,
}

impl Default for RenameOptions {
    fn default() -> Self {
        Self { similarity: 50, pairs: 200_000, bytes: 64 << 20 }
    }
}

/// Finds renames by `side` that affect changes by `other`.
pub(super) fn find(
    options: RenameOptions,
    side: &mut SideChanges<'_>,
    other: &SideChanges<'_>,
) -> Result<()> {
    pair_symlinks(side);
    let (removed, added) = candidates(side);
    let filter = SourceFilter::new(side, other);
    let sources: Vec<&Candidate> =
        removed.iter().filter(|candidate| filter.is_relevant(&candidate.path)).collect();
    if sources.is_empty() || added.is_empty() {
        return Ok(());
    }
    let mut search = RenameSearch::new((side.base, side.tree), options);
    search.pair_by_name(&removed, &sources, &added)?;
    search.pair_by_similarity(&sources, &added)?;
    let found = search.found;
    side.renames.extend(found);
    Ok(())
}

/// Finds renames by `side` from or to selected paths among unpaired files, even if the renames do not affect changes of
/// the other side.
pub(super) fn find_selected(
    options: RenameOptions,
    side: &mut SideChanges<'_>,
    is_selected: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    let (removed, added) = candidates(side);
    let mut search = RenameSearch::new((side.base, side.tree), options);
    let (removed_refs, added_refs): (Vec<_>, Vec<_>) = (removed.iter().collect(), added.iter().collect());
    let selected = |candidates: &[&Candidate]| -> Vec<Candidate> {
        candidates
            .iter()
            .filter(|candidate| is_selected(&candidate.path))
            .map(|candidate| (*candidate).clone())
            .collect()
    };
    search.pair_by_similarity(&selected(&removed_refs).iter().collect::<Vec<_>>(), &added)?;
    search.pair_by_similarity(&removed_refs, &selected(&added_refs))?;
    let found = search.found;
    side.renames.extend(found);
    Ok(())
}

/// File that may have been renamed, or be the result of a rename.
#[derive(Debug, Clone, Copy)]
pub struct RenameCandidate<'c> {
    /// Path of the file.
    pub path: &'c [u8],
    /// Attributes and content of the file.
    pub file: &'c FileNode,
    /// File that was at the same path before; `None` if there was none.
    pub replaced: Option<&'c FileNode>,
}

/// Pairs files that were removed from the tree `before` with files that are new in the tree `after` and so similar that
/// they are probably the same file, edited. Returns the old path for each new path. A file that is still similar to the
/// file that it replaced is an edit of that file, and in no pair. If a limit is reached, the last files of `added` are
/// not compared.
pub fn pair_similar_files(
    options: RenameOptions,
    (before, removed): (&Tree, &[RenameCandidate<'_>]),
    (after, added): (&Tree, &[RenameCandidate<'_>]),
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, StoreError> {
    let mut search = RenameSearch::new((before, after), options);
    let candidate =
        |path: &[u8], file: &FileNode, is_old| Candidate { path: path.to_vec(), file: file.clone(), is_old };
    // All empty files are equal, so they are not paired.
    let has_content = |candidate: &&RenameCandidate<'_>| !candidate.file.extents.is_empty();
    let removed = removed.iter().filter(has_content);
    let removed: Vec<Candidate> = removed.map(|found| candidate(found.path, found.file, true)).collect();
    let (mut new, threshold) = (Vec::new(), search.threshold());
    for found in added.iter().filter(has_content) {
        let target = candidate(found.path, found.file, false);
        let is_edited = match found.replaced {
            Some(file) => search.score(&candidate(found.path, file, true), &target, threshold)? >= threshold,
            None => false,
        };
        if !is_edited {
            new.push(target);
        }
    }
    let sources: Vec<&Candidate> = removed.iter().collect();
    search.pair_by_name(&removed, &sources, &new)?;
    search.pair_by_similarity(&sources, &new)?;
    Ok(search.found.into_iter().map(|(from, to)| (to, from)).collect())
}

/// Removed or added file that may be part of a rename, with the tree that has it.
#[derive(Clone)]
struct Candidate {
    path: Vec<u8>,
    file: FileNode,
    /// True for a removed file, which is read from the base; false for an added one, which is read from the tree of
    /// the side.
    is_old: bool,
}

/// Returns the removed and the added files that are not part of a rename yet.
fn candidates(side: &SideChanges<'_>) -> (Vec<Candidate>, Vec<Candidate>) {
    let targets: BTreeSet<&Vec<u8>> = side.renames.values().collect();
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    for (path, change) in &side.leaves {
        let (entry, is_old) = match (&change.old, &change.new) {
            (Some(old), None) if !side.renames.contains_key(path) => (old, true),
            (None, Some(new)) if !targets.contains(path) => (new, false),
            _ => continue,
        };
        // All empty files are equal, so equal content does not identify a rename.
        if let Node::File(file) = &entry.node
            && !file.extents.is_empty()
        {
            let candidate = Candidate { path: path.clone(), file: file.clone(), is_old };
            if is_old { removed.push(candidate) } else { added.push(candidate) }
        }
    }
    (removed, added)
}

/// Pairs removed and added symlinks with equal targets: first those with the same name, then the others in the order of
/// their paths. Symlinks in directories that were moved as a whole are already paired.
fn pair_symlinks(side: &mut SideChanges<'_>) {
    let mut removed: BTreeMap<&[u8], Vec<&Vec<u8>>> = BTreeMap::new();
    let mut found = Vec::new();
    for (path, change) in side.leaves.iter().filter(|(_, change)| change.new.is_none()) {
        if !side.renames.contains_key(path)
            && let Some(Node::Symlink(link)) = change.old.as_ref().map(|entry| &entry.node)
        {
            removed.entry(&link.target).or_default().push(path);
        }
    }
    removed.retain(|_, sources| sources.len() <= SAME_TARGET_MAX);
    if removed.is_empty() {
        return;
    }
    let mut taken: BTreeSet<&Vec<u8>> = side.renames.values().collect();
    for same_name in [true, false] {
        for (path, change) in side.leaves.iter().filter(|(_, change)| change.old.is_none()) {
            let Some(Node::Symlink(link)) = change.new.as_ref().map(|entry| &entry.node) else { continue };
            let Some(sources) = removed.get_mut(&link.target[..]) else { continue };
            if taken.contains(path) {
                continue;
            }
            let index = sources.iter().position(|from| !same_name || name(from) == name(path));
            if let Some(index) = index {
                found.push((sources.remove(index).clone(), path.clone()));
                taken.insert(path);
            }
        }
    }
    side.renames.extend(found);
}

/// Filter for removed files whose rename affects the merge.
struct SourceFilter<'c> {
    /// Changes of the side that may have renamed files.
    side: &'c SideChanges<'c>,
    /// Changes of the other side.
    other: &'c SideChanges<'c>,
    /// Directories in which the other side added entries.
    directories_with_additions: HashSet<&'c [u8]>,
}

impl<'c> SourceFilter<'c> {
    fn new(side: &'c SideChanges<'_>, other: &'c SideChanges<'_>) -> Self {
        Self { side, other, directories_with_additions: other.directories_with_additions() }
    }

    /// Returns true if the other side changed the file, or added files to a removed directory above it.
    fn is_relevant(&self, path: &[u8]) -> bool {
        let is_affected = |directory| {
            self.directories_with_additions.contains(directory) && self.side.has_removed(directory)
        };
        self.other.leaves.contains_key(path) || ancestors(path).any(is_affected)
    }
}

/// Maximum number of extents (pieces of the content of a file) that a search compares. This takes about a second.
const EXTENTS_MAX: usize = 4_000_000;

/// Search for pairs of similar files.
struct RenameSearch<'t> {
    base: &'t Tree,
    tree: &'t Tree,
    /// Minimum similarity, number of pairs that may still be compared, and number of bytes that may still be read.
    budget: RenameOptions,
    /// Number of extents that may still be compared, of files that are too large to be read.
    extents: usize,
    /// Hashed pieces of files ([`super::similarity`]), by path and [`Candidate::is_old`]; `None` for files that were
    /// not read because they exceeded the budget.
    pieces: HashMap<(Vec<u8>, bool), Option<Pieces>>,
    /// Renames: old path to new path.
    found: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl<'t> RenameSearch<'t> {
    fn new((base, tree): (&'t Tree, &'t Tree), budget: RenameOptions) -> Self {
        Self { base, tree, budget, extents: EXTENTS_MAX, pieces: HashMap::new(), found: BTreeMap::new() }
    }

    /// Returns the minimum similarity as a score; above [`MAX_SCORE`] if it is more than 100 percent.
    fn threshold(&self) -> u64 {
        u64::from(self.budget.similarity) * MAX_SCORE / 100
    }

    /// Pairs a removed and an added file that have the same name, if no other removed or added file has this name, and
    /// their similarity is at least halfway between the threshold and the maximum.
    fn pair_by_name(
        &mut self,
        removed: &[Candidate],
        sources: &[&Candidate],
        added: &[Candidate],
    ) -> Result<(), StoreError> {
        let (removed, added) = (unique_names(removed), unique_names(added));
        let threshold = self.threshold().midpoint(MAX_SCORE);
        for source in sources {
            let name = name(&source.path);
            if !matches!(removed.get(name), Some(Some(_))) {
                continue;
            }
            if let Some(Some(target)) = added.get(name)
                && self.score(source, target, threshold)? >= threshold
            {
                self.found.insert(source.path.clone(), target.path.clone());
            }
        }
        Ok(())
    }

    /// Pairs the remaining files, the most similar first; of equally similar ones, first those with the same name.
    fn pair_by_similarity(&mut self, sources: &[&Candidate], added: &[Candidate]) -> Result<(), StoreError> {
        let taken: BTreeSet<Vec<u8>> = self.found.values().cloned().collect();
        let unpaired = sources.iter().filter(|source| !self.found.contains_key(&source.path));
        let unpaired: Vec<&Candidate> = unpaired.copied().collect();
        let threshold = self.threshold();
        let mut scores = Vec::new();
        let mut size_checks = self.budget.pairs.saturating_mul(SIZE_CHECKS_PER_PAIR);
        for (to, target) in added.iter().enumerate().filter(|(_, candidate)| !taken.contains(&candidate.path))
        {
            for (from, source) in unpaired.iter().enumerate() {
                if size_checks == 0 || self.budget.pairs == 0 {
                    break;
                }
                size_checks -= 1;
                let score = self.score(source, target, threshold)?;
                if score >= threshold {
                    let same_name = name(&source.path) == name(&target.path);
                    scores.push((score, same_name, from, to));
                }
            }
        }
        scores.sort_by_key(|(score, same_name, ..)| Reverse((*score, *same_name)));
        let mut used = BTreeSet::new();
        for (_, _, from, to) in scores {
            let source = &unpaired[from].path;
            if !self.found.contains_key(source) && used.insert(to) {
                self.found.insert(source.clone(), added[to].path.clone());
            }
        }
        Ok(())
    }

    /// Returns the similarity of two files as a score; 0 if their sizes differ too much to reach the threshold, or a
    /// limit is reached. Files that are too large to be read are compared by the ids of their chunks.
    fn score(&mut self, source: &Candidate, target: &Candidate, threshold: u64) -> Result<u64, StoreError> {
        if self.budget.pairs == 0 || !can_reach_score(source.file.size(), target.file.size(), threshold) {
            return Ok(0);
        }
        self.budget.pairs -= 1;
        self.read_pieces(source)?;
        self.read_pieces(target)?;
        let pieces =
            |candidate: &Candidate| self.pieces.get(&(candidate.path.clone(), candidate.is_old))?.as_ref();
        Ok(match (pieces(source), pieces(target)) {
            (Some(source), Some(target)) => source.score(target),
            _ => match self.extents.checked_sub(source.file.extents.len() + target.file.extents.len()) {
                Some(rest) => {
                    self.extents = rest;
                    score_of_chunks(&source.file, &target.file)
                }
                None => 0,
            },
        })
    }

    /// Reads a file and adds its pieces to `self.pieces`, within the budget.
    fn read_pieces(&mut self, candidate: &Candidate) -> Result<(), StoreError> {
        let key = (candidate.path.clone(), candidate.is_old);
        if self.pieces.contains_key(&key) {
            return Ok(());
        }
        let size = candidate.file.size();
        let pieces = if size > self.budget.bytes {
            None
        } else {
            self.budget.bytes -= size;
            let tree = if candidate.is_old { self.base } else { self.tree };
            Some(Pieces::new(&tree.read(&candidate.file)?))
        };
        self.pieces.insert(key, pieces);
        Ok(())
    }
}

/// Returns the only file with each name; `None` for a name that several files have.
fn unique_names(all: &[Candidate]) -> HashMap<&[u8], Option<&Candidate>> {
    let mut names = HashMap::new();
    for candidate in all {
        names.entry(name(&candidate.path)).and_modify(|found| *found = None).or_insert(Some(candidate));
    }
    names
}
