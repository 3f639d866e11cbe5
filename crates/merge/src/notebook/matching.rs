//! Which cell of a side was which cell of the base.
//!
//! 1. Cells of the same id.
//! 2. Of the others, those of the same kind and source, in order.
//! 3. Between these, those of similar source, in order; only where one of the two has no id.
//! 4. Of what is left, those of the same kind and source that no other cell has: they were moved.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

use super::cells::{Cell, Content};

/// Larger gaps are not compared cell by cell with each other, but each cell with the next few.
const PAIRS_MAX: usize = 4_096;

/// Cells of the base that a cell in a large gap is compared with.
const NEXT: usize = 8;

/// Words of a cell that count.
const WORDS_MAX: usize = 2_000;

/// Words that are compared in all, per side.
const EFFORT: usize = 20_000_000;

/// Thousandths of the words of two cells that both have, from which on they are similar.
const SIMILAR: usize = 500;

/// For each cell of a side, which one of the base it was.
pub(super) fn matched(base: &[Cell<'_>], side: &[Cell<'_>]) -> Vec<Option<usize>> {
    let mut matching = Matching {
        base,
        side,
        of_side: vec![None; side.len()],
        of_base: vec![None; base.len()],
        words: HashMap::new(),
        effort: EFFORT,
    };
    matching.by_id();
    matching.by_content();
    matching.moved();
    matching.of_side
}

struct Matching<'c, 'a> {
    base: &'c [Cell<'a>],
    side: &'c [Cell<'a>],
    of_side: Vec<Option<usize>>,
    of_base: Vec<Option<usize>>,
    words: HashMap<(bool, usize), Vec<u64>>,
    effort: usize,
}

impl Matching<'_, '_> {
    fn pair(&mut self, base: usize, side: usize) {
        self.of_side[side] = Some(base);
        self.of_base[base] = Some(side);
    }

    fn by_id(&mut self) {
        let ids: HashMap<&str, usize> =
            self.base.iter().enumerate().filter_map(|(at, cell)| Some((cell.id?, at))).collect();
        for (at, cell) in self.side.iter().enumerate() {
            if let Some(found) = cell.id.and_then(|id| ids.get(id)) {
                self.pair(*found, at);
            }
        }
    }

    fn by_content(&mut self) {
        let left = |matched: &[Option<usize>]| -> Vec<usize> {
            matched.iter().enumerate().filter(|(_, pair)| pair.is_none()).map(|(at, _)| at).collect()
        };
        let (base, side) = (left(&self.of_base), left(&self.of_side));
        let mut input: InternedInput<Content> = InternedInput::default();
        input.update_before(base.iter().map(|at| self.base[*at].content));
        input.update_after(side.iter().map(|at| self.side[*at].content));
        let diff = Diff::compute(Algorithm::Myers, &input);
        let (mut in_base, mut in_side) = (0, 0);
        let hunks: Vec<_> = diff.hunks().collect();
        for hunk in hunks {
            let (before, after) = (range(&hunk.before), range(&hunk.after));
            for (old, new) in (in_base..before.start).zip(in_side..after.start) {
                self.pair(base[old], side[new]);
            }
            (in_base, in_side) = (before.end, after.end);
            self.similar(&base[before], &side[after]);
        }
        for (old, new) in (in_base..base.len()).zip(in_side..side.len()) {
            self.pair(base[old], side[new]);
        }
    }

    /// Pairs cells of a gap.
    fn similar(&mut self, base: &[usize], side: &[usize]) {
        if base.len() * side.len() > PAIRS_MAX {
            return self.similar_to_next(base, side);
        }
        // best[i][j]: the most likeness that cells of the base from i on and cells of the side from j on can have.
        let width = side.len() + 1;
        let mut likeness = vec![0; (base.len() + 1) * width];
        let mut best = likeness.clone();
        for old in (0..base.len()).rev() {
            for new in (0..side.len()).rev() {
                let at = old * width + new;
                likeness[at] = self.likeness(base[old], side[new]);
                let paired = if likeness[at] == 0 { 0 } else { likeness[at] + best[at + width + 1] };
                best[at] = paired.max(best[at + 1]).max(best[at + width]);
            }
        }
        let (mut old, mut new) = (0, 0);
        while old < base.len() && new < side.len() {
            let at = old * width + new;
            if likeness[at] > 0 && best[at] == likeness[at] + best[at + width + 1] {
                self.pair(base[old], side[new]);
                (old, new) = (old + 1, new + 1);
            } else if best[at] == best[at + width] {
                old += 1;
            } else {
                new += 1;
            }
        }
    }

    fn similar_to_next(&mut self, base: &[usize], side: &[usize]) {
        let mut from = 0;
        for new in side {
            let near = from..(from + NEXT).min(base.len());
            let found = near.map(|at| (self.likeness(base[at], *new), at)).max_by_key(|(likeness, at)| {
                // Of those that are as similar, the first.
                (*likeness, usize::MAX - *at)
            });
            if let Some((likeness, at)) = found
                && likeness > 0
            {
                self.pair(base[at], *new);
                from = at + 1;
            }
        }
    }

    /// Thousandths; 0 if they are not similar.
    fn likeness(&mut self, base: usize, side: usize) -> usize {
        let (old, new) = (&self.base[base], &self.side[side]);
        if old.kind != new.kind || (old.id.is_some() && new.id.is_some()) {
            return 0;
        }
        if self.effort == 0 {
            return 0;
        }
        for (key, cell) in [((false, base), old), ((true, side), new)] {
            self.words.entry(key).or_insert_with(|| words(&cell.source));
        }
        let (Some(old), Some(new)) = (self.words.get(&(false, base)), self.words.get(&(true, side))) else {
            return 0;
        };
        let size = old.len() + new.len();
        self.effort = self.effort.saturating_sub(size.max(1));
        if size == 0 || self.effort == 0 {
            return 0;
        }
        let likeness = in_both(old, new) * 2_000 / size;
        if likeness < SIMILAR { 0 } else { likeness }
    }

    fn moved(&mut self) {
        let mut found: HashMap<Content, (Found, Found)> = HashMap::new();
        let is_left =
            |pair: &Option<usize>, cell: &Cell<'_>| pair.is_none() && !cell.source.trim().is_empty();
        for (at, cell) in self.base.iter().enumerate().filter(|(at, cell)| is_left(&self.of_base[*at], cell))
        {
            found.entry(cell.content).or_default().0.add(at);
        }
        for (at, cell) in self.side.iter().enumerate().filter(|(at, cell)| is_left(&self.of_side[*at], cell))
        {
            found.entry(cell.content).or_default().1.add(at);
        }
        for (_, pair) in found {
            if let (Found::Once(base), Found::Once(side)) = pair {
                self.pair(base, side);
            }
        }
    }
}

/// Places where something was found.
#[derive(Debug, Clone, Copy, Default)]
enum Found {
    #[default]
    Nowhere,
    Once(usize),
    Often,
}

impl Found {
    fn add(&mut self, at: usize) {
        *self = match self {
            Self::Nowhere => Self::Once(at),
            Self::Once(_) | Self::Often => Self::Often,
        };
    }
}

pub(super) fn range(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Hashes of the words and signs of a source, sorted.
fn words(source: &str) -> Vec<u64> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let ends = source.char_indices().filter(|(at, letter)| {
        let next = source[at + letter.len_utf8()..].chars().next();
        !is_word(*letter) || !next.is_some_and(is_word)
    });
    let mut start = 0;
    let pieces = ends.filter_map(|(at, letter)| {
        let end = at + letter.len_utf8();
        let word = &source[std::mem::replace(&mut start, end)..end];
        (!word.trim().is_empty()).then_some(word)
    });
    let mut hashes: Vec<u64> = pieces.take(WORDS_MAX).map(hash).collect();
    hashes.sort_unstable();
    hashes
}

fn hash(word: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    word.hash(&mut hasher);
    hasher.finish()
}

/// Number of elements that two sorted lists have in common.
fn in_both(one: &[u64], other: &[u64]) -> usize {
    let (mut count, mut left, mut right) = (0, 0, 0);
    while let (Some(a), Some(b)) = (one.get(left), other.get(right)) {
        match a.cmp(b) {
            std::cmp::Ordering::Less => left += 1,
            std::cmp::Ordering::Greater => right += 1,
            std::cmp::Ordering::Equal => (count, left, right) = (count + 1, left + 1, right + 1),
        }
    }
    count
}
