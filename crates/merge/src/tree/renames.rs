//! Which removed and added leaves are one under two names.
//!
//! The comparison of trees has found those with equal content. The others are guessed by how alike they are, and only
//! where it matters: what one side removed and the other changed, or what tells where a directory went to.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use workspace_state::{FileNode, Node, Tree};

use super::Result;
use super::changes::Changes;
use super::paths::{above, name};
use super::similarity::{Pieces, SAME, may_score};

/// So many symlinks to one place say nothing about which of them is which.
const SAME_TARGET_MAX: usize = 1000;
/// For each pair of files that may be compared, how many are looked at to find out that they cannot be alike.
const LOOKS: usize = 16;

/// How hard renames are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenameOptions {
    /// How alike a file and a renamed version of it are at least, in percent; more than 100 finds equal ones only.
    pub similarity: u8,
    /// How many pairs of files are compared at most, for each side.
    pub pairs: usize,
    /// How many bytes are read for it at most, for each side.
    pub bytes: u64,
}

impl Default for RenameOptions {
    fn default() -> Self {
        Self { similarity: 50, pairs: 200_000, bytes: 64 << 20 }
    }
}

/// Finds renames of `side` that matter for what `other` did.
pub(super) fn find(options: RenameOptions, side: &mut Changes<'_>, other: &Changes<'_>) -> Result<()> {
    pair_symlinks(side);
    let (removed, added) = candidates(side);
    let matters = Matters::new(side, other);
    let sources: Vec<&Candidate> = removed.iter().filter(|one| matters.source(&one.path)).collect();
    if sources.is_empty() || added.is_empty() {
        return Ok(());
    }
    let (base, tree) = (side.base, side.tree);
    let mut search = Search { base, tree, left: options, pieces: HashMap::new(), found: BTreeMap::new() };
    search.by_name(&removed, &sources, &added)?;
    search.by_likeness(&sources, &added)?;
    let found = search.found;
    side.renames.extend(found);
    Ok(())
}

/// Finds renames from or to names that matter whatever the other side did, among what no other rename was found for.
pub(super) fn find_of(
    options: RenameOptions,
    side: &mut Changes<'_>,
    matters: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    let (removed, added) = candidates(side);
    let (base, tree) = (side.base, side.tree);
    let mut search = Search { base, tree, left: options, pieces: HashMap::new(), found: BTreeMap::new() };
    let (from, to): (Vec<_>, Vec<_>) = (removed.iter().collect(), added.iter().collect());
    let that_matter = |all: &[&Candidate]| -> Vec<Candidate> {
        all.iter().filter(|one| matters(&one.path)).map(|one| (*one).clone()).collect()
    };
    search.by_likeness(&that_matter(&from).iter().collect::<Vec<_>>(), &added)?;
    search.by_likeness(&from, &that_matter(&to))?;
    let found = search.found;
    side.renames.extend(found);
    Ok(())
}

/// A file that may have another name.
#[derive(Clone)]
struct Candidate {
    path: Vec<u8>,
    file: FileNode,
    is_old: bool,
}

fn candidates(side: &Changes<'_>) -> (Vec<Candidate>, Vec<Candidate>) {
    let targets: BTreeSet<&Vec<u8>> = side.renames.values().collect();
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    for (path, change) in &side.leaves {
        let (entry, is_old) = match (&change.old, &change.new) {
            (Some(old), None) if !side.renames.contains_key(path) => (old, true),
            (None, Some(new)) if !targets.contains(path) => (new, false),
            _ => continue,
        };
        // Every empty file is like every other, so that says nothing.
        if let Node::File(file) = &entry.node
            && !file.extents.is_empty()
        {
            let candidate = Candidate { path: path.clone(), file: file.clone(), is_old };
            if is_old { removed.push(candidate) } else { added.push(candidate) }
        }
    }
    (removed, added)
}

/// Symlinks that point to the same are paired first by name, then in order.
fn pair_symlinks(side: &mut Changes<'_>) {
    let mut gone: BTreeMap<&[u8], Vec<&Vec<u8>>> = BTreeMap::new();
    let mut found = Vec::new();
    for (path, change) in side.leaves.iter().filter(|(_, change)| change.new.is_none()) {
        if let Some(Node::Symlink(link)) = change.old.as_ref().map(|entry| &entry.node) {
            gone.entry(&link.target).or_default().push(path);
        }
    }
    gone.retain(|_, sources| sources.len() <= SAME_TARGET_MAX);
    if gone.is_empty() {
        return;
    }
    let mut taken = BTreeSet::new();
    for named in [true, false] {
        for (path, change) in side.leaves.iter().filter(|(_, change)| change.old.is_none()) {
            let Some(Node::Symlink(link)) = change.new.as_ref().map(|entry| &entry.node) else { continue };
            let Some(sources) = gone.get_mut(&link.target[..]) else { continue };
            if taken.contains(path) {
                continue;
            }
            let at = sources.iter().position(|from| !named || name(from) == name(path));
            if let Some(at) = at {
                found.push((sources.remove(at).clone(), path.clone()));
                taken.insert(path);
            }
        }
    }
    side.renames.extend(found);
}

/// Which sources matter.
struct Matters<'c> {
    side: &'c Changes<'c>,
    other: &'c Changes<'c>,
    filled: HashSet<&'c [u8]>,
}

impl<'c> Matters<'c> {
    fn new(side: &'c Changes<'_>, other: &'c Changes<'_>) -> Self {
        Self { side, other, filled: other.filled() }
    }

    /// The other side changed the file, or put something into a directory that is gone.
    fn source(&self, path: &[u8]) -> bool {
        let is_wanted = |directory| self.filled.contains(directory) && self.side.has_removed(directory);
        self.other.leaves.contains_key(path) || above(path).any(is_wanted)
    }
}

struct Search<'t> {
    base: &'t Tree,
    tree: &'t Tree,
    left: RenameOptions,
    pieces: HashMap<(Vec<u8>, bool), Option<Pieces>>,
    found: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Search<'_> {
    fn least(&self) -> u64 {
        u64::from(self.left.similarity) * SAME / 100
    }

    /// Files with a name that nothing else has, if they are rather alike.
    fn by_name(&mut self, removed: &[Candidate], sources: &[&Candidate], added: &[Candidate]) -> Result<()> {
        let (removed, added) = (unique_names(removed), unique_names(added));
        let least = self.least().midpoint(SAME);
        for source in sources {
            let name = name(&source.path);
            if !matches!(removed.get(name), Some(Some(_))) {
                continue;
            }
            if let Some(Some(target)) = added.get(name)
                && self.score(source, target, least)? >= least
            {
                self.found.insert(source.path.clone(), target.path.clone());
            }
        }
        Ok(())
    }

    /// The rest: the most alike first.
    fn by_likeness(&mut self, sources: &[&Candidate], added: &[Candidate]) -> Result<()> {
        let taken: BTreeSet<Vec<u8>> = self.found.values().cloned().collect();
        let left = sources.iter().filter(|source| !self.found.contains_key(&source.path));
        let left: Vec<&Candidate> = left.copied().collect();
        let least = self.least();
        let mut scores = Vec::new();
        let mut looks = self.left.pairs.saturating_mul(LOOKS);
        for (to, target) in added.iter().enumerate().filter(|(_, one)| !taken.contains(&one.path)) {
            for (from, source) in left.iter().enumerate() {
                if looks == 0 || self.left.pairs == 0 {
                    break;
                }
                looks -= 1;
                let score = self.score(source, target, least)?;
                if score >= least {
                    let same_name = name(&source.path) == name(&target.path);
                    scores.push((score, same_name, from, to));
                }
            }
        }
        scores.sort_by_key(|(score, same_name, ..)| Reverse((*score, *same_name)));
        let mut used = BTreeSet::new();
        for (_, _, from, to) in scores {
            let source = &left[from].path;
            if !self.found.contains_key(source) && used.insert(to) {
                self.found.insert(source.clone(), added[to].path.clone());
            }
        }
        Ok(())
    }

    /// How alike two files are; 0 if it cannot be enough, or all that may be spent is spent.
    fn score(&mut self, source: &Candidate, target: &Candidate, least: u64) -> Result<u64> {
        if self.left.pairs == 0 || !may_score(source.file.size(), target.file.size(), least) {
            return Ok(0);
        }
        self.left.pairs -= 1;
        self.read(source)?;
        self.read(target)?;
        let pieces = |one: &Candidate| self.pieces.get(&(one.path.clone(), one.is_old))?.as_ref();
        Ok(match (pieces(source), pieces(target)) {
            (Some(source), Some(target)) => source.score(target),
            _ => 0,
        })
    }

    fn read(&mut self, one: &Candidate) -> Result<()> {
        let key = (one.path.clone(), one.is_old);
        if self.pieces.contains_key(&key) {
            return Ok(());
        }
        let size = one.file.size();
        let pieces = if size > self.left.bytes {
            None
        } else {
            self.left.bytes -= size;
            let tree = if one.is_old { self.base } else { self.tree };
            Some(Pieces::new(&tree.read(&one.file)?))
        };
        self.pieces.insert(key, pieces);
        Ok(())
    }
}

/// What has a name alone; nothing where several have it.
fn unique_names(all: &[Candidate]) -> HashMap<&[u8], Option<&Candidate>> {
    let mut names = HashMap::new();
    for one in all {
        names.entry(name(&one.path)).and_modify(|found| *found = None).or_insert(Some(one));
    }
    names
}
