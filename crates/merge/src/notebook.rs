//! Strategy for Jupyter notebooks, which merges cell by cell.
//!
//! Running a notebook changes it: outputs, execution counts, timestamps, the language version. Two sides that
//! ran it have changed the same values, and without cell ids every cell that ran looks like a new element.
//! Therefore
//!
//! 1. cells of both sides are matched with those of the base ([`matching`]) and named ([`names`]),
//! 2. changes within cells are decided and written into the texts of both sides ([`rewrite`]): sources are
//!    merged line by line, and results that both sides changed are taken from one side,
//! 3. everything else is merged as JSON values, with cells identified by their names.
//!
//! If there are conflicts, but lines merge cleanly, the merge of lines is taken, unless it gives two cells
//! the same id.

mod cells;
mod matching;
mod names;
mod rewrite;

use bumpalo::Bump;

use self::cells::Notebook;
use self::rewrite::Rewritten;
use crate::conflict::{Conflict, ConflictLocation};
use crate::file::{Input, Merged as Content, Outcome, Side};
use crate::json::{self, Json};
use crate::layout::{self, Syntax};
use crate::rule::FileRule;
use crate::strategy::Strategy;
use crate::structured::{Structured, parses_to};
use crate::text::{DiffLimits, TextMerge};
use crate::text_strategy::Text;
use crate::value::Document;
use crate::value::merge::{Cells, Documents, ValueMerge, merge_cells};

/// Strategy for `.ipynb` files.
pub(crate) struct Notebooks;

const NAME: &str = "notebook";

impl Strategy for Notebooks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn merge(&self, input: &Input<'_>, rule: &FileRule) -> Outcome {
        let arena = Bump::new();
        let Some(read) = ParsedVersions::new(input, &arena) else {
            return Structured(Json).merge(input, rule);
        };
        let Some(prepared) = Prepared::new(&read, &arena, Side::Ours) else {
            return Structured(Json).merge(input, rule);
        };
        let values = prepared.merge(rule, Side::Ours);
        let lines = by_lines(input);
        let is_clean = values.conflicts.is_empty() && prepared.rewritten.conflicts.is_empty();
        if is_clean {
            let merged = values.merged.as_ref();
            if let Some(lines) = lines.as_ref().filter(|lines| parses_to::<Json>(lines, merged, &[])) {
                return Outcome::Merged(Content::new(lines.clone()));
            }
            if let Some(written) = prepared.written(rule).filter(|text| read.is_valid(text.as_bytes())) {
                return Outcome::Merged(Content::new(written));
            }
        }
        if let Some(lines) = lines.filter(|lines| read.is_valid(lines)) {
            return Outcome::Merged(Content::new(lines));
        }
        Outcome::Conflict(if is_clean {
            Conflict::whole(
                NAME,
                "the cells of both sides can be merged, but not written without losing something",
            )
        } else {
            let places = prepared.rewritten.conflicts.iter().cloned().chain(values.conflicts);
            Conflict {
                strategy: NAME,
                reason: "both sides changed the same cells".to_owned(),
                places: places.map(ConflictLocation::Value).collect(),
            }
        })
    }

    fn settle(&self, input: &Input<'_>, rule: &FileRule, side: Side) -> Vec<u8> {
        let arena = Bump::new();
        let read = ParsedVersions::new(input, &arena);
        let prepared = read.as_ref().and_then(|read| Prepared::new(read, &arena, side));
        let Some(prepared) = prepared else { return Structured(Json).settle(input, rule, side) };
        let values = prepared.merge(rule, side);
        let merged = values.merged.as_ref();
        let lines = Text.settle(input, rule, side);
        if parses_to::<Json>(&lines, merged, &[]) {
            return lines;
        }
        let written = merged.map(|merged| layout::write(prepared.documents(), merged, Syntax::Json));
        match written.filter(|text| parses_to::<Json>(text.as_bytes(), merged, &[])) {
            Some(text) => text.into_bytes(),
            None => input.versions.of(side).to_vec(),
        }
    }

    fn conflict_sides(&self, input: &Input<'_>, rule: &FileRule) -> Option<[Vec<u8>; 2]> {
        let arena = Bump::new();
        if ParsedVersions::new(input, &arena).is_none() {
            return Structured(Json).conflict_sides(input, rule);
        }
        Some([Side::Ours, Side::Theirs].map(|side| self.settle(input, rule, side)))
    }
}

/// Returns the merge of lines; `None` if it has conflicts.
fn by_lines(input: &Input<'_>) -> Option<Vec<u8>> {
    let versions = &input.versions;
    let base = versions.base.unwrap_or_default();
    TextMerge::new(base, versions.ours, versions.theirs, DiffLimits::default()).ok()?.merged()
}

/// Three parsed versions of a notebook.
struct ParsedVersions<'a> {
    base: Option<Notebook<'a>>,
    ours: Notebook<'a>,
    theirs: Notebook<'a>,
}

impl<'a> ParsedVersions<'a> {
    /// Parses all versions; `None` if one of them is not a supported notebook.
    fn new(input: &Input<'a>, arena: &'a Bump) -> Option<Self> {
        let read = |text: &'a [u8]| Notebook::read(std::str::from_utf8(text).ok()?, arena);
        let base = match input.versions.base {
            None => None,
            Some(base) => Some(read(base)?),
        };
        let mut read = Self { base, ours: read(input.versions.ours)?, theirs: read(input.versions.theirs)? };
        if read.versions().any(Notebook::has_positional_ids) {
            read.base.as_mut().map(Notebook::clear_ids);
            read.ours.clear_ids();
            read.theirs.clear_ids();
        }
        Some(read)
    }

    fn versions(&self) -> impl Iterator<Item = &Notebook<'a>> {
        [self.base.as_ref(), Some(&self.ours), Some(&self.theirs)].into_iter().flatten()
    }

    /// Returns whether a text is a notebook without duplicate cell ids, which appear if both sides moved a
    /// cell.
    fn is_valid(&self, text: &[u8]) -> bool {
        let arena = Bump::new();
        let notebook = std::str::from_utf8(text).ok().and_then(|text| Notebook::read(text, &arena));
        let had_before = || self.versions().any(|notebook| notebook.has_duplicate_ids);
        notebook.is_some_and(|notebook| !notebook.has_duplicate_ids || had_before())
    }
}

/// Both sides after the decisions about cells were written into their texts.
struct Prepared<'r, 'a> {
    read: &'r ParsedVersions<'a>,
    ours: Document<'a>,
    theirs: Document<'a>,
    rewritten: Rewritten,
}

impl<'r, 'a> Prepared<'r, 'a> {
    /// Rewrites both sides; `None` if a rewritten text cannot be parsed.
    fn new(read: &'r ParsedVersions<'a>, arena: &'a Bump, settle: Side) -> Option<Self> {
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

    /// Returns the merged notebook in the text of ours, or of theirs if the first does not parse to the
    /// merged value.
    fn written(&self, rule: &FileRule) -> Option<String> {
        let into = |documents: Documents<'_>, cells: Cells<'_>| {
            let merged = merge_cells(documents, &rule.keys, Side::Ours, Some(cells)).merged;
            let text = layout::write(documents, merged.as_ref()?, Syntax::Json);
            parses_to::<Json>(text.as_bytes(), merged.as_ref(), &[]).then_some(text)
        };
        into(self.documents(), self.cells())
            .or_else(|| into(self.documents().mirrored(), self.cells().mirrored()))
    }
}
