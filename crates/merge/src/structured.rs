//! Strategy for JSON, YAML and TOML: values are merged, not lines.
//!
//! 1. All versions are parsed. If parsing fails, the file is merged as text.
//! 2. The values are merged. A conflict between values is a conflict of the file. Exception: arrays in which
//!    both sides changed adjacent elements are left to step 3.
//! 3. Lines are merged. If the merged text parses to the merged value, that text is the result, since it keeps all
//!    formatting. Therefore arrays are merged whenever git can merge them.
//! 4. Otherwise the merged value is written into our text. The new text is parsed again. It is rejected if its value
//!    differs from the merged value, or if it lost or moved a comment ([`comments`](crate::comments)). Then the same
//!    is tried with their text.

use bumpalo::Bump;

use crate::comments::{Comments, ThreeComments};
use crate::conflict::{Conflict, ConflictLocation};
use crate::file::{Input, MergedContent, Outcome, Side};
use crate::file_settings::FileSettings;
use crate::file_type;
use crate::strategy::Strategy;
use crate::text::{DiffLimits, Favor, TextMerge};
use crate::text_strategy::Text;
use crate::unparsed_strategies::Binary;
use crate::value::merge::{Documents, MergedValue, ValueMerge, merge};
use crate::value::{Document, SyntaxNode};

/// Parser and writer of a document format.
pub(crate) trait Format: Send + Sync {
    /// Name of the strategy.
    const NAME: &'static str;

    /// Parses a document; `None` if it is invalid or uses unsupported syntax.
    fn parse<'a>(text: &'a str, arena: &'a Bump) -> Option<Document<'a>>;

    /// Returns the text of one side (the template) with the merged value in place of its own value. For each object or
    /// array, `merged` has the side whose text and order are kept. `None` if the value cannot be written. The text may
    /// be wrong, so callers parse it again.
    fn write(documents: Documents<'_>, merged: &MergedValue<'_>) -> Option<String>;
}

/// Merge strategy for documents of a format.
pub(crate) struct Structured<F>(pub(crate) F);

impl<F: Format> Strategy for Structured<F> {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn merge(&self, input: &Input<'_>, settings: &FileSettings) -> Outcome {
        let arena = Bump::new();
        let Some(parsed) = ParsedVersions::new::<F>(input, &arena) else {
            return fallback(input).merge(input, settings);
        };
        let documents = parsed.documents();
        let values = merge(documents, &settings.keys, Side::Ours);
        if !values.has_only_adjacent_conflicts() {
            return value_conflict(F::NAME, values);
        }
        let text = TextMerge::new(
            documents.base_text(),
            parsed.ours.text.as_bytes(),
            parsed.theirs.text.as_bytes(),
            DiffLimits::default(),
        );
        let lines = text.ok().filter(TextMerge::is_clean).map(|text| text.favor(Favor::Ours));
        let merged = values.merged.as_ref();
        if let Some(lines) = lines.filter(|lines| parses_to::<F>(lines, merged, &values.adjacent_conflicts)) {
            return Outcome::Merged(MergedContent::new(lines));
        }
        if !values.conflicts.is_empty() {
            return value_conflict(F::NAME, values);
        }
        // `None` if no version has a comment.
        let comments = ThreeComments::new(documents, &settings.keys);
        let edited = parsed.with_comments::<F>(comments.as_ref(), &arena);
        let written = write_merged::<F>(edited.documents(documents), comments.as_ref(), &settings.keys);
        match written {
            Some(content) => Outcome::Merged(MergedContent::new(content)),
            None => unwritable(F::NAME, input, settings, comments.as_ref()),
        }
    }

    fn resolve(&self, input: &Input<'_>, settings: &FileSettings, side: Side) -> Vec<u8> {
        let arena = Bump::new();
        let Some(parsed) = ParsedVersions::new::<F>(input, &arena) else {
            return fallback(input).resolve(input, settings, side);
        };
        let comments = ThreeComments::new(parsed.documents(), &settings.keys);
        let edited = parsed.with_comments::<F>(comments.as_ref(), &arena);
        let documents = edited.documents(parsed.documents());
        let values = merge(documents, &settings.keys, side);
        let merged = values.merged.as_ref();
        let lines = Text.resolve(input, settings, side);
        if parses_to::<F>(&lines, merged, &[]) {
            return lines;
        }
        let written = merged.and_then(|merged| F::write(documents, merged));
        match written.filter(|text| parses_to::<F>(text.as_bytes(), merged, &[])) {
            Some(text) => text.into_bytes(),
            None => parsed.documents().of(side).text.as_bytes().to_vec(),
        }
    }

    // A merge of lines would also report conflicts in values that can be merged.
    fn conflict_sides(&self, input: &Input<'_>, settings: &FileSettings) -> Option<[Vec<u8>; 2]> {
        ParsedVersions::new::<F>(input, &Bump::new())?;
        Some([Side::Ours, Side::Theirs].map(|side| self.resolve(input, settings, side)))
    }
}

/// Creates a conflict at the values that could not be merged.
fn value_conflict(strategy: &'static str, values: ValueMerge<'_>) -> Outcome {
    Outcome::Conflict(Conflict {
        strategy,
        reason: "both sides changed the same values".to_owned(),
        locations: values.conflicts.into_iter().map(ConflictLocation::Value).collect(),
    })
}

/// Returns the strategy for a file that cannot be parsed.
fn fallback(input: &Input<'_>) -> &'static dyn Strategy {
    let versions = &input.versions;
    let all = [versions.base.unwrap_or_default(), versions.ours, versions.theirs];
    if all.into_iter().all(file_type::is_text) { &Text } else { &Binary }
}

/// Returns the conflict for values that were merged, but cannot be written as text without losing or moving comments,
/// or not at all. A merge of lines without conflicts cannot be used instead: its value differs from the merged value.
fn unwritable(
    strategy: &'static str,
    input: &Input<'_>,
    settings: &FileSettings,
    comments: Option<&ThreeComments<'_>>,
) -> Outcome {
    let reason = if comments.is_some() {
        "the values of both sides can be merged, but the result cannot be written without losing comments"
    } else {
        "the values of both sides can be merged, but the result cannot be written"
    };
    match Text.merge(input, settings) {
        Outcome::Conflict(conflict) => Outcome::Conflict(conflict),
        Outcome::Merged(_) => Outcome::Conflict(Conflict::whole(strategy, reason)),
    }
}

/// Three parsed versions of a document.
struct ParsedVersions<'a> {
    base: Option<Document<'a>>,
    ours: Document<'a>,
    theirs: Document<'a>,
}

impl<'a> ParsedVersions<'a> {
    /// Parses all versions; `None` if one of them cannot be parsed.
    fn new<F: Format>(input: &Input<'a>, arena: &'a Bump) -> Option<Self> {
        let parse = |text: &'a [u8]| F::parse(std::str::from_utf8(text).ok()?, arena);
        let base = match input.versions.base {
            None => None,
            Some(base) => Some(parse(base)?),
        };
        Some(Self { base, ours: parse(input.versions.ours)?, theirs: parse(input.versions.theirs)? })
    }

    fn documents(&self) -> Documents<'_> {
        Documents { base: self.base.as_ref(), ours: &self.ours, theirs: &self.theirs }
    }

    /// Writes the comment changes of each side into the text of the other side. If `comments` is `None`, there are
    /// none.
    fn with_comments<F: Format>(
        &self,
        comments: Option<&ThreeComments<'_>>,
        arena: &'a Bump,
    ) -> EditedSides<'a> {
        let texts = comments.map_or([None, None], |comments| comments.merge_into(self.documents()));
        let [ours, theirs] = texts.map(|text| text.and_then(|text| F::parse(arena.alloc_str(&text), arena)));
        // Comments do not affect values: if the value differs, the edit was wrong.
        EditedSides {
            ours: ours.filter(|edited| edited.root == self.ours.root),
            theirs: theirs.filter(|edited| edited.root == self.theirs.root),
        }
    }
}

/// Sides with the comment changes of the other side; `None` for a side that has none to take, or whose text could not
/// be edited.
struct EditedSides<'a> {
    ours: Option<Document<'a>>,
    theirs: Option<Document<'a>>,
}

impl<'a> EditedSides<'a> {
    /// Returns the versions, with the edited document of each side that has one.
    fn documents<'d>(&'d self, unedited: Documents<'d>) -> Documents<'d>
    where
        'a: 'd,
    {
        Documents {
            base: unedited.base,
            ours: self.ours.as_ref().unwrap_or(unedited.ours),
            theirs: self.theirs.as_ref().unwrap_or(unedited.theirs),
        }
    }
}

/// Returns true if a text parses to the merged value. The content of the arrays `except` may differ.
pub(crate) fn parses_to<F: Format>(
    text: &[u8],
    merged: Option<&MergedValue<'_>>,
    except: &[&SyntaxNode<'_>],
) -> bool {
    let arena = Bump::new();
    let document = std::str::from_utf8(text).ok().and_then(|text| F::parse(text, &arena));
    document.is_some_and(|document| merged.is_some_and(|merged| merged.equals_except(&document.root, except)))
}

/// Writes the merged value into our text, or else into their text; `None` if both results have a wrong value or lost a
/// comment.
fn write_merged<F: Format>(
    documents: Documents<'_>,
    comments: Option<&ThreeComments<'_>>,
    keys: &[String],
) -> Option<String> {
    let write_into = |documents: Documents<'_>| {
        let merged = merge(documents, keys, Side::Ours).merged?;
        F::write(documents, &merged).filter(|text| {
            let arena = Bump::new();
            let document = F::parse(text, &arena);
            document.is_some_and(|document| {
                let has_comments = || {
                    comments.is_none_or(|comments| comments.are_preserved_in(&Comments::of(&document, keys)))
                };
                merged.equals(&document.root) && has_comments()
            })
        })
    };
    write_into(documents).or_else(|| write_into(documents.swap_sides()))
}
