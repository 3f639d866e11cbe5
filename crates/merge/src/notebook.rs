//! Jupyter notebooks, cell by cell.
//!
//! Running a notebook changes it: results, numbers of executions, times, the version of the language. Two sides that ran it
//! have changed the same values, therefore, and without ids every cell that was run is another element. So
//!
//! 1. cells of both sides are matched with those of the base ([`matching`]) and named ([`names`]),
//! 2. what is of cells is decided and written into the texts of both sides ([`rewrite`]): sources are merged line by line,
//!    results that both sides changed are taken of one side,
//! 3. the rest is merged as values of JSON are, with the names of cells to tell them from each other.
//!
//! What is in conflict then, but not as lines, is taken as lines, unless that gives two cells the same id.

mod cells;
mod matching;
mod names;
mod rewrite;

use bumpalo::Bump;

use self::cells::Notebook;
use self::rewrite::Rewritten;
use crate::conflict::{Conflict, Place};
use crate::file::{Input, Merged as Content, Outcome, Side};
use crate::json::{self, Json};
use crate::layout::{self, Syntax};
use crate::policy::FileRule;
use crate::strategy::Strategy;
use crate::structured::{Structured, says};
use crate::text::{Effort, TextMerge};
use crate::text_strategy::Text;
use crate::value::Document;
use crate::value::merge::{Cells, Documents, ValueMerge, merge_cells};

/// Merges `.ipynb`.
pub(crate) struct Notebooks;

const NAME: &str = "notebook";

impl Strategy for Notebooks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn merge(&self, input: &Input<'_>, rule: &FileRule) -> Outcome {
        let arena = Bump::new();
        let Some(read) = Read::new(input, &arena) else { return Structured(Json).merge(input, rule) };
        let Some(joined) = Joined::new(&read, &arena, Side::Ours) else {
            return Structured(Json).merge(input, rule);
        };
        let values = joined.merge(rule, Side::Ours);
        let lines = by_lines(input);
        let is_clean = values.conflicts.is_empty() && joined.rewritten.conflicts.is_empty();
        if is_clean {
            let merged = values.merged.as_ref();
            if let Some(lines) = lines.as_ref().filter(|lines| says::<Json>(lines, merged, &[])) {
                return Outcome::Merged(Content::new(lines.clone()));
            }
            if let Some(written) = joined.written(rule).filter(|text| read.is_sound(text.as_bytes())) {
                return Outcome::Merged(Content::new(written));
            }
        }
        if let Some(lines) = lines.filter(|lines| read.is_sound(lines)) {
            return Outcome::Merged(Content::new(lines));
        }
        Outcome::Conflict(if is_clean {
            Conflict::whole(
                NAME,
                "the cells of both sides can be merged, but not written without losing something",
            )
        } else {
            let places = joined.rewritten.conflicts.iter().cloned().chain(values.conflicts);
            Conflict {
                strategy: NAME,
                reason: "both sides changed the same cells".to_owned(),
                places: places.map(Place::Value).collect(),
            }
        })
    }

    fn settle(&self, input: &Input<'_>, rule: &FileRule, side: Side) -> Vec<u8> {
        let arena = Bump::new();
        let read = Read::new(input, &arena);
        let joined = read.as_ref().and_then(|read| Joined::new(read, &arena, side));
        let Some(joined) = joined else { return Structured(Json).settle(input, rule, side) };
        let values = joined.merge(rule, side);
        let merged = values.merged.as_ref();
        let lines = Text.settle(input, rule, side);
        if says::<Json>(&lines, merged, &[]) {
            return lines;
        }
        let written = merged.map(|merged| layout::write(joined.documents(), merged, Syntax::Json));
        match written.filter(|text| says::<Json>(text.as_bytes(), merged, &[])) {
            Some(text) => text.into_bytes(),
            None => input.versions.of(side).to_vec(),
        }
    }

    fn in_conflict(&self, input: &Input<'_>, rule: &FileRule) -> Option<[Vec<u8>; 2]> {
        let arena = Bump::new();
        if Read::new(input, &arena).is_none() {
            return Structured(Json).in_conflict(input, rule);
        }
        Some([Side::Ours, Side::Theirs].map(|side| self.settle(input, rule, side)))
    }
}

/// None if lines are in conflict.
fn by_lines(input: &Input<'_>) -> Option<Vec<u8>> {
    let versions = &input.versions;
    let base = versions.base.unwrap_or_default();
    TextMerge::new(base, versions.ours, versions.theirs, Effort::default()).ok()?.merged()
}

/// All versions of a notebook.
struct Read<'a> {
    base: Option<Notebook<'a>>,
    ours: Notebook<'a>,
    theirs: Notebook<'a>,
}

impl<'a> Read<'a> {
    /// None if one of them is no notebook, or not one that can be merged by its cells.
    fn new(input: &Input<'a>, arena: &'a Bump) -> Option<Self> {
        let read = |text: &'a [u8]| Notebook::read(std::str::from_utf8(text).ok()?, arena);
        let base = match input.versions.base {
            None => None,
            Some(base) => Some(read(base)?),
        };
        let mut read = Self { base, ours: read(input.versions.ours)?, theirs: read(input.versions.theirs)? };
        if read.versions().any(Notebook::numbers_its_cells) {
            read.base.as_mut().map(Notebook::forget_ids);
            read.ours.forget_ids();
            read.theirs.forget_ids();
        }
        Some(read)
    }

    fn versions(&self) -> impl Iterator<Item = &Notebook<'a>> {
        [self.base.as_ref(), Some(&self.ours), Some(&self.theirs)].into_iter().flatten()
    }

    /// Returns whether a text is a notebook, and no cell is in it twice because both sides moved it.
    fn is_sound(&self, text: &[u8]) -> bool {
        let arena = Bump::new();
        let notebook = std::str::from_utf8(text).ok().and_then(|text| Notebook::read(text, &arena));
        let had_before = || self.versions().any(|notebook| notebook.has_id_twice);
        notebook.is_some_and(|notebook| !notebook.has_id_twice || had_before())
    }
}

/// Both sides with what was decided about cells.
struct Joined<'r, 'a> {
    read: &'r Read<'a>,
    ours: Document<'a>,
    theirs: Document<'a>,
    rewritten: Rewritten,
}

impl<'r, 'a> Joined<'r, 'a> {
    /// None if the rewritten texts cannot be read.
    fn new(read: &'r Read<'a>, arena: &'a Bump, settle: Side) -> Option<Self> {
        let rewritten = rewrite::rewrite(read.base.as_ref(), &read.ours, &read.theirs, settle);
        let [ours, theirs] =
            [&rewritten.ours, &rewritten.theirs].map(|text| json::parse(arena.alloc_str(text), arena));
        Some(Self { read, ours: ours?, theirs: theirs?, rewritten })
    }

    fn documents(&self) -> Documents<'_> {
        let base = self.read.base.as_ref().map(|base| &base.document);
        Documents { base, ours: &self.ours, theirs: &self.theirs }
    }

    fn cells(&self) -> Cells<'_> {
        let names = &self.rewritten.names;
        Cells { base: &names.base, ours: &names.ours, theirs: &names.theirs, labels: &names.labels }
    }

    fn merge(&self, rule: &FileRule, settle: Side) -> ValueMerge<'_> {
        merge_cells(self.documents(), &rule.keys, settle, Some(self.cells()))
    }

    /// The merged notebook in the text of ours, or of theirs if that does not say what it should.
    fn written(&self, rule: &FileRule) -> Option<String> {
        let into = |documents: Documents<'_>, cells: Cells<'_>| {
            let merged = merge_cells(documents, &rule.keys, Side::Ours, Some(cells)).merged;
            let text = layout::write(documents, merged.as_ref()?, Syntax::Json);
            says::<Json>(text.as_bytes(), merged.as_ref(), &[]).then_some(text)
        };
        into(self.documents(), self.cells())
            .or_else(|| into(self.documents().mirrored(), self.cells().mirrored()))
    }
}
