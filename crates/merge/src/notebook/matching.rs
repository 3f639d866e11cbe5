//! Matching of the cells of a Jupyter notebook between the base and a side.
//!
//! 1. Cells with the same id are matched.
//! 2. Of the other cells, those with the same type and source are matched, in order.
//! 3. In each gap between the pairs of step 2, cells of the same type with similar sources are matched, in order, if at
//!    least one cell of the pair has no id.
//! 4. Of the remaining cells whose source is not blank, those with the same type and source are matched if the base and
//!    the side have exactly one such cell each: it was moved.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

use super::cells::{Cell, ContentHash};

/// Maximum number of pairs of a base cell and a cell of the side in a gap, for which all pairs are compared. In a
/// larger gap, each cell is compared with the next [`WINDOW`] base cells only.
const PAIRS_MAX: usize = 4_096;

/// Number of base cells that a cell in a large gap is compared with.
const WINDOW: usize = 8;

/// Maximum number of words of a cell that are compared. Further words are ignored.
const WORDS_MAX: usize = 2_000;

/// Maximum total number of words that are compared for a side. After that, no cells are similar.
const WORDS_COMPARED_MAX: usize = 20_000_000;

/// Minimum similarity of two matching cells: the share of common words, in thousandths.
const SIMILARITY_MIN: usize = 500;

/// Returns the index of the matching base cell for each cell of a side.
pub(super) fn match_cells(base: &[Cell<'_>], side: &[Cell<'_>]) -> Vec<Option<usize>> {
    let mut matching = Matching {
        base,
        side,
        matches_of_side: vec![None; side.len()],
        matches_of_base: vec![None; base.len()],
        base_words: HashMap::new(),
        side_words: HashMap::new(),
        word_budget: WORDS_COMPARED_MAX,
    };
    matching.match_by_id();
    matching.match_by_content();
    matching.match_moved();
    matching.matches_of_side
}

/// State of matching the cells of a side with the base cells.
struct Matching<'c, 'a> {
    base: &'c [Cell<'a>],
    side: &'c [Cell<'a>],
    /// Index of the matching base cell, for each cell of the side.
    matches_of_side: Vec<Option<usize>>,
    /// Index of the matching cell of the side, for each base cell.
    matches_of_base: Vec<Option<usize>>,
    /// Hashes of the words of base cells, by index.
    base_words: HashMap<usize, Vec<u64>>,
    /// Hashes of the words of cells of the side, by index.
    side_words: HashMap<usize, Vec<u64>>,
    /// Number of words that may still be compared.
    word_budget: usize,
}

impl Matching<'_, '_> {
    /// Matches two cells, given by their indexes.
    fn pair(&mut self, base: usize, side: usize) {
        self.matches_of_side[side] = Some(base);
        self.matches_of_base[base] = Some(side);
    }

    /// Matches cells with the same id (step 1).
    fn match_by_id(&mut self) {
        let ids: HashMap<&str, usize> =
            self.base.iter().enumerate().filter_map(|(index, cell)| Some((cell.id?, index))).collect();
        for (index, cell) in self.side.iter().enumerate() {
            if let Some(base_index) = cell.id.and_then(|id| ids.get(id)) {
                self.pair(*base_index, index);
            }
        }
    }

    /// Matches cells with the same type and source, and similar cells between them (steps 2 and 3).
    fn match_by_content(&mut self) {
        let unmatched = |matched: &[Option<usize>]| -> Vec<usize> {
            matched.iter().enumerate().filter(|(_, pair)| pair.is_none()).map(|(index, _)| index).collect()
        };
        let (base, side) = (unmatched(&self.matches_of_base), unmatched(&self.matches_of_side));
        let mut input: InternedInput<ContentHash> = InternedInput::default();
        input.update_before(base.iter().map(|index| self.base[*index].hash));
        input.update_after(side.iter().map(|index| self.side[*index].hash));
        let diff = Diff::compute(Algorithm::Myers, &input);
        let (mut base_start, mut side_start) = (0, 0);
        let hunks: Vec<_> = diff.hunks().collect();
        for hunk in hunks {
            let (before, after) = (range(&hunk.before), range(&hunk.after));
            for (old, new) in (base_start..before.start).zip(side_start..after.start) {
                self.pair(base[old], side[new]);
            }
            (base_start, side_start) = (before.end, after.end);
            self.pair_similar(&base[before], &side[after]);
        }
        for (old, new) in (base_start..base.len()).zip(side_start..side.len()) {
            self.pair(base[old], side[new]);
        }
    }

    /// Pairs similar cells in a gap between equal cells, in order and with the largest total similarity. `base` and
    /// `side` are the indexes of the cells in the gap.
    fn pair_similar(&mut self, base: &[usize], side: &[usize]) {
        if base.len() * side.len() > PAIRS_MAX {
            return self.pair_similar_in_window(base, side);
        }
        // A table with `width` columns. best[old * width + new] is the largest total similarity of pairs of the base
        // cells from `old` on and the side's cells from `new` on.
        let width = side.len() + 1;
        let mut similarity = vec![0; (base.len() + 1) * width];
        let mut best = similarity.clone();
        for old in (0..base.len()).rev() {
            for new in (0..side.len()).rev() {
                let index = old * width + new;
                similarity[index] = self.similarity(base[old], side[new]);
                let paired =
                    if similarity[index] == 0 { 0 } else { similarity[index] + best[index + width + 1] };
                best[index] = paired.max(best[index + 1]).max(best[index + width]);
            }
        }
        let (mut old, mut new) = (0, 0);
        while old < base.len() && new < side.len() {
            let index = old * width + new;
            if similarity[index] > 0 && best[index] == similarity[index] + best[index + width + 1] {
                self.pair(base[old], side[new]);
                (old, new) = (old + 1, new + 1);
            } else if best[index] == best[index + width] {
                old += 1;
            } else {
                new += 1;
            }
        }
    }

    /// Pairs each cell of the side with the most similar of the next [`WINDOW`] base cells, if any is similar.
    fn pair_similar_in_window(&mut self, base: &[usize], side: &[usize]) {
        let mut next_base = 0;
        for new in side {
            let window = next_base..(next_base + WINDOW).min(base.len());
            let best = window.map(|index| (self.similarity(base[index], *new), index)).max_by_key(
                |(similarity, index)| {
                    // Prefer the first of equally similar cells.
                    (*similarity, usize::MAX - *index)
                },
            );
            if let Some((similarity, index)) = best
                && similarity > 0
            {
                self.pair(base[index], *new);
                next_base = index + 1;
            }
        }
    }

    /// Returns the similarity of two cells, given by their indexes, in thousandths; 0 if it is less than
    /// [`SIMILARITY_MIN`], the types differ, both cells have ids, or the budget is used up.
    fn similarity(&mut self, base: usize, side: usize) -> usize {
        let (old, new) = (&self.base[base], &self.side[side]);
        if old.kind != new.kind || (old.id.is_some() && new.id.is_some()) {
            return 0;
        }
        if self.word_budget == 0 {
            return 0;
        }
        let old = self.base_words.entry(base).or_insert_with(|| words(&old.source));
        let new = self.side_words.entry(side).or_insert_with(|| words(&new.source));
        let size = old.len() + new.len();
        self.word_budget = self.word_budget.saturating_sub(size.max(1));
        if size == 0 || self.word_budget == 0 {
            return 0;
        }
        let similarity = count_common(old, new) * 2_000 / size;
        if similarity < SIMILARITY_MIN { 0 } else { similarity }
    }

    /// Matches cells that were moved (step 4).
    fn match_moved(&mut self) {
        // Indexes of unmatched cells in the base and in the side, by content.
        let mut occurrences: HashMap<ContentHash, (Occurrences, Occurrences)> = HashMap::new();
        let is_unmatched =
            |pair: &Option<usize>, cell: &Cell<'_>| pair.is_none() && !cell.source.trim().is_empty();
        for (index, cell) in self
            .base
            .iter()
            .enumerate()
            .filter(|(index, cell)| is_unmatched(&self.matches_of_base[*index], cell))
        {
            occurrences.entry(cell.hash).or_default().0.add(index);
        }
        for (index, cell) in self
            .side
            .iter()
            .enumerate()
            .filter(|(index, cell)| is_unmatched(&self.matches_of_side[*index], cell))
        {
            occurrences.entry(cell.hash).or_default().1.add(index);
        }
        for (_, pair) in occurrences {
            if let (Occurrences::Once(base), Occurrences::Once(side)) = pair {
                self.pair(base, side);
            }
        }
    }
}

/// Indexes at which a content hash occurs in a version.
#[derive(Debug, Clone, Copy, Default)]
enum Occurrences {
    #[default]
    None,
    Once(usize),
    Many,
}

impl Occurrences {
    fn add(&mut self, index: usize) {
        *self = match self {
            Self::None => Self::Once(index),
            Self::Once(_) | Self::Many => Self::Many,
        };
    }
}

/// Converts a range of indexes.
pub(super) fn range(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Returns the hashes of the first [`WORDS_MAX`] words and symbols of a source, sorted.
fn words(source: &str) -> Vec<u64> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let ends = source.char_indices().filter(|(offset, character)| {
        let next = source[offset + character.len_utf8()..].chars().next();
        !is_word(*character) || !next.is_some_and(is_word)
    });
    let mut start = 0;
    let pieces = ends.filter_map(|(offset, character)| {
        let end = offset + character.len_utf8();
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

/// Counts the common elements of two sorted lists.
fn count_common(one: &[u64], other: &[u64]) -> usize {
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
