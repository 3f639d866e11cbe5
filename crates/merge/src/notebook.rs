//! Merge strategy for Jupyter notebooks: merges them cell by cell.
//!
//! Running a notebook changes its file: outputs, execution counts, timestamps, the language version. If both
//! sides ran the notebook, they changed the same values, and without cell ids every cell that ran looks like a new
//! array element. Therefore a merge has three steps:
//!
//! 1. The cells of both sides are matched with the cells of the base ([`matching`]). All cells get generated names, so
//!    that versions of the same cell have the same name ([`names`]).
//! 2. Cells that both sides changed are merged, and the merged cells are written into the texts of both sides
//!    ([`rewrite`]): sources are merged line by line, and results of a run (such as outputs) are taken from one side.
//! 3. All other values are merged as JSON. Cells are identified by their names.
//!
//! If there are conflicts, or the result cannot be written, but lines merge without conflicts, the merge of lines is
//! the result, unless two cells have the same id in it.

mod cells;
mod matching;
mod names;
mod rewrite;

use bumpalo::Bump;

use self::cells::Notebook;
use self::rewrite::RewriteResult;
use crate::conflict::{Conflict, ConflictLocation};
use crate::file::{Input, MergedContent, Outcome, Side};
use crate::file_settings::FileSettings;
use crate::json::{self, Json};
use crate::layout::{self, Syntax};
use crate::strategy::Strategy;
use crate::structured::{Structured, parses_to};
use crate::text::{DiffLimits, TextMerge};
use crate::text_strategy::Text;
use crate::value::Document;
use crate::value::merge::{CellNames, Documents, ValueMerge, merge_cells};

/// Strategy for `.ipynb` files.
pub(crate) struct Notebooks;

/// Name of the strategy.
const NAME: &str = "notebook";

impl Strategy for Notebooks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn merge(&self, input: &Input<'_>, settings: &FileSettings) -> Outcome {
        let arena = Bump::new();
        let Some(parsed) = ParsedVersions::new(input, &arena) else {
            return Structured(Json).merge(input, settings);
        };
        let Some(sides) = RewrittenSides::new(&parsed, &arena, Side::Ours) else {
            return Structured(Json).merge(input, settings);
        };
        let values = sides.merge(settings, Side::Ours);
        let lines = merge_lines(input);
        let is_clean = values.conflicts.is_empty() && sides.rewritten.conflicts.is_empty();
        if is_clean {
            let merged = values.merged.as_ref();
            if let Some(lines) = lines.as_ref().filter(|lines| parses_to::<Json>(lines, merged, &[])) {
                return Outcome::Merged(MergedContent::new(lines.clone()));
            }
            if let Some(written) = sides.write(settings).filter(|text| parsed.is_valid(text.as_bytes())) {
                return Outcome::Merged(MergedContent::new(written));
            }
        }
        if let Some(lines) = lines.filter(|lines| parsed.is_valid(lines)) {
            return Outcome::Merged(MergedContent::new(lines));
        }
        Outcome::Conflict(if is_clean {
            Conflict::whole(NAME, "the cells of both sides can be merged, but the result cannot be written")
        } else {
            let locations = sides.rewritten.conflicts.iter().cloned().chain(values.conflicts);
            Conflict {
                strategy: NAME,
                reason: "both sides changed the same cells".to_owned(),
                locations: locations.map(ConflictLocation::Value).collect(),
            }
        })
    }

    fn resolve(&self, input: &Input<'_>, settings: &FileSettings, side: Side) -> Vec<u8> {
        let arena = Bump::new();
        let parsed = ParsedVersions::new(input, &arena);
        let sides = parsed.as_ref().and_then(|parsed| RewrittenSides::new(parsed, &arena, side));
        let Some(sides) = sides else { return Structured(Json).resolve(input, settings, side) };
        let values = sides.merge(settings, side);
        let merged = values.merged.as_ref();
        let lines = Text.resolve(input, settings, side);
        if parses_to::<Json>(&lines, merged, &[]) {
            return lines;
        }
        let written = merged.map(|merged| layout::write(sides.documents(), merged, Syntax::Json));
        match written.filter(|text| parses_to::<Json>(text.as_bytes(), merged, &[])) {
            Some(text) => text.into_bytes(),
            None => input.versions.of(side).to_vec(),
        }
    }

    fn conflict_sides(&self, input: &Input<'_>, settings: &FileSettings) -> Option<[Vec<u8>; 2]> {
        let arena = Bump::new();
        if ParsedVersions::new(input, &arena).is_none() {
            return Structured(Json).conflict_sides(input, settings);
        }
        Some([Side::Ours, Side::Theirs].map(|side| self.resolve(input, settings, side)))
    }
}

/// Merges lines; `None` if there are conflicts.
fn merge_lines(input: &Input<'_>) -> Option<Vec<u8>> {
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
        let parse = |text: &'a [u8]| Notebook::read(std::str::from_utf8(text).ok()?, arena);
        let base = match input.versions.base {
            None => None,
            Some(base) => Some(parse(base)?),
        };
        let mut parsed =
            Self { base, ours: parse(input.versions.ours)?, theirs: parse(input.versions.theirs)? };
        if parsed.versions().any(Notebook::has_positional_ids) {
            parsed.base.as_mut().map(Notebook::clear_ids);
            parsed.ours.clear_ids();
            parsed.theirs.clear_ids();
        }
        Some(parsed)
    }

    /// Iterates over the versions that exist.
    fn versions(&self) -> impl Iterator<Item = &Notebook<'a>> {
        [self.base.as_ref(), Some(&self.ours), Some(&self.theirs)].into_iter().flatten()
    }

    /// Returns true if a merged text is a notebook without duplicate cell ids, or if a version had duplicate ids
    /// already. A merge of lines duplicates a cell that both sides moved.
    fn is_valid(&self, text: &[u8]) -> bool {
        let arena = Bump::new();
        let notebook = std::str::from_utf8(text).ok().and_then(|text| Notebook::read(text, &arena));
        let had_duplicates = || self.versions().any(|notebook| notebook.has_duplicate_ids);
        notebook.is_some_and(|notebook| !notebook.has_duplicate_ids || had_duplicates())
    }
}

/// Both sides after [`rewrite`], which wrote the merged cells into their texts.
struct RewrittenSides<'r, 'a> {
    parsed: &'r ParsedVersions<'a>,
    ours: Document<'a>,
    theirs: Document<'a>,
    /// Generated names of the cells, and conflicts within cells.
    rewritten: RewriteResult,
}

impl<'r, 'a> RewrittenSides<'r, 'a> {
    /// Rewrites both sides, with conflicts resolved in favour of `favored`; `None` if a rewritten text cannot be
    /// parsed.
    fn new(parsed: &'r ParsedVersions<'a>, arena: &'a Bump, favored: Side) -> Option<Self> {
        let rewritten = rewrite::rewrite(parsed.base.as_ref(), &parsed.ours, &parsed.theirs, favored);
        let [ours, theirs] =
            [&rewritten.ours, &rewritten.theirs].map(|text| json::parse(arena.alloc_str(text), arena));
        Some(Self { parsed, ours: ours?, theirs: theirs?, rewritten })
    }

    fn documents(&self) -> Documents<'_> {
        let base = self.parsed.base.as_ref().map(|base| &base.document);
        Documents { base, ours: &self.ours, theirs: &self.theirs }
    }

    /// Returns the generated names of the cells.
    fn cells(&self) -> CellNames<'_> {
        let names = &self.rewritten.names;
        CellNames { base: &names.base, ours: &names.ours, theirs: &names.theirs, labels: &names.labels }
    }

    /// Merges the rewritten documents as JSON.
    fn merge(&self, settings: &FileSettings, favored: Side) -> ValueMerge<'_> {
        merge_cells(self.documents(), &settings.keys, favored, Some(self.cells()))
    }

    /// Writes the merged notebook into our text, or else into their text; `None` if both results have a wrong value.
    fn write(&self, settings: &FileSettings) -> Option<String> {
        let write_into = |documents: Documents<'_>, cells: CellNames<'_>| {
            let merged = merge_cells(documents, &settings.keys, Side::Ours, Some(cells)).merged;
            let text = layout::write(documents, merged.as_ref()?, Syntax::Json);
            parses_to::<Json>(text.as_bytes(), merged.as_ref(), &[]).then_some(text)
        };
        write_into(self.documents(), self.cells())
            .or_else(|| write_into(self.documents().swap_sides(), self.cells().swap_sides()))
    }
}
