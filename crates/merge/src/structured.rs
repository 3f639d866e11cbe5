//! Documents whose values are merged.
//!
//! 1. All versions are read; where one cannot be, the file is text.
//! 2. Their values are merged. Conflicts of values are the verdict, but for elements changed side by side.
//! 3. Lines are merged. If that says what the merge of values does, it is taken: it keeps everything as it was written. What
//!    git merges in arrays is merged, therefore.
//! 4. Else the merged value is written into the text of ours, or else of theirs, and read again. It counts only if it says
//!    what it should and has all comments that either side wrote, where it wrote them ([`comments`](crate::comments)).

use bumpalo::Bump;

use crate::comments::{Comments, ThreeComments};
use crate::conflict::{Conflict, Place};
use crate::file::{Input, Merged as Content, Outcome, Side};
use crate::kinds;
use crate::policy::FileRule;
use crate::simple::Binary;
use crate::strategy::Strategy;
use crate::text::{Effort, Favor, TextMerge};
use crate::text_strategy::Text;
use crate::value::merge::{Documents, Merged, ValueMerge, merge};
use crate::value::{Document, Node};

/// How documents of a kind are read and written.
pub(crate) trait Format: Send + Sync {
    /// Of the strategy.
    const NAME: &'static str;

    /// None if it cannot be read, or not surely.
    fn parse<'a>(text: &'a str, arena: &'a Bump) -> Option<Document<'a>>;

    /// The text of the side that leads, with the parts that were merged; none if it cannot be told how. It need not be right: it
    /// is read again.
    fn write(documents: Documents<'_>, merged: &Merged<'_>) -> Option<String>;
}

/// Merges documents of a kind.
pub(crate) struct Structured<F>(pub(crate) F);

impl<F: Format> Strategy for Structured<F> {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn merge(&self, input: &Input<'_>, rule: &FileRule) -> Outcome {
        let arena = Bump::new();
        let Some(read) = Read::new::<F>(input, &arena) else { return unread(input).merge(input, rule) };
        let documents = read.documents();
        let values = merge(documents, &rule.keys, Side::Ours);
        if !values.is_unsure() {
            return in_conflict(F::NAME, values);
        }
        let text = TextMerge::new(
            documents.base_text(),
            read.ours.text.as_bytes(),
            read.theirs.text.as_bytes(),
            Effort::default(),
        );
        let lines = text.ok().filter(TextMerge::is_clean).map(|text| text.favor(Favor::Ours));
        let merged = values.merged.as_ref();
        if let Some(lines) = lines.filter(|lines| says::<F>(lines, merged, &values.unsure)) {
            return Outcome::Merged(Content::new(lines));
        }
        if !values.conflicts.is_empty() {
            return in_conflict(F::NAME, values);
        }
        let comments = ThreeComments::new(documents, &rule.keys);
        let edited = read.with_comments::<F>(comments.as_ref(), &arena);
        let written = written::<F>(edited.documents(documents), comments.as_ref(), &rule.keys);
        match written {
            Some(content) => Outcome::Merged(Content::new(content)),
            None => not_written(F::NAME, input, rule),
        }
    }

    fn settle(&self, input: &Input<'_>, rule: &FileRule, side: Side) -> Vec<u8> {
        let arena = Bump::new();
        let Some(read) = Read::new::<F>(input, &arena) else {
            return unread(input).settle(input, rule, side);
        };
        let comments = ThreeComments::new(read.documents(), &rule.keys);
        let edited = read.with_comments::<F>(comments.as_ref(), &arena);
        let documents = edited.documents(read.documents());
        let values = merge(documents, &rule.keys, side);
        let merged = values.merged.as_ref();
        let lines = Text.settle(input, rule, side);
        if says::<F>(&lines, merged, &[]) {
            return lines;
        }
        let written = merged.and_then(|merged| F::write(documents, merged));
        match written.filter(|text| says::<F>(text.as_bytes(), merged, &[])) {
            Some(text) => text.into_bytes(),
            None => read.documents().of(side).text.as_bytes().to_vec(),
        }
    }

    /// Lines know nothing of values: those that could be merged would be in conflict with the others.
    fn in_conflict(&self, input: &Input<'_>, rule: &FileRule) -> Option<[Vec<u8>; 2]> {
        Read::new::<F>(input, &Bump::new())?;
        Some([Side::Ours, Side::Theirs].map(|side| self.settle(input, rule, side)))
    }
}

fn in_conflict(strategy: &'static str, values: ValueMerge<'_>) -> Outcome {
    Outcome::Conflict(Conflict {
        strategy,
        reason: "both sides changed the same values".to_owned(),
        places: values.conflicts.into_iter().map(Place::Value).collect(),
    })
}

/// What merges a file that cannot be read.
fn unread(input: &Input<'_>) -> &'static dyn Strategy {
    let versions = &input.versions;
    let all = [versions.base.unwrap_or_default(), versions.ours, versions.theirs];
    if all.into_iter().all(kinds::is_text) { &Text } else { &Binary }
}

/// Values could be merged, but nobody can write that without losing something. Lines that merge to something else than the
/// values are no way out: they would be wrong without anybody being told.
fn not_written(strategy: &'static str, input: &Input<'_>, rule: &FileRule) -> Outcome {
    match Text.merge(input, rule) {
        Outcome::Conflict(conflict) => Outcome::Conflict(conflict),
        Outcome::Merged(_) => Outcome::Conflict(Conflict::whole(
            strategy,
            "the values of both sides can be merged, but not written without losing something",
        )),
    }
}

/// All versions of a document, read.
struct Read<'a> {
    base: Option<Document<'a>>,
    ours: Document<'a>,
    theirs: Document<'a>,
}

impl<'a> Read<'a> {
    fn new<F: Format>(input: &Input<'a>, arena: &'a Bump) -> Option<Self> {
        let read = |text: &'a [u8]| F::parse(std::str::from_utf8(text).ok()?, arena);
        let base = match input.versions.base {
            None => None,
            Some(base) => Some(read(base)?),
        };
        Some(Self { base, ours: read(input.versions.ours)?, theirs: read(input.versions.theirs)? })
    }

    fn documents(&self) -> Documents<'_> {
        Documents { base: self.base.as_ref(), ours: &self.ours, theirs: &self.theirs }
    }

    /// Both sides with what only the other one made of comments.
    fn with_comments<F: Format>(&self, comments: Option<&ThreeComments<'_>>, arena: &'a Bump) -> Edited<'a> {
        let texts = comments.map_or([None, None], |comments| comments.merged_into(self.documents()));
        let [ours, theirs] = texts.map(|text| text.and_then(|text| F::parse(arena.alloc_str(&text), arena)));
        // Comments say nothing: a text that says something else now was taken apart wrongly.
        Edited {
            ours: ours.filter(|edited| edited.root == self.ours.root),
            theirs: theirs.filter(|edited| edited.root == self.theirs.root),
        }
    }
}

/// The sides whose comments were changed.
struct Edited<'a> {
    ours: Option<Document<'a>>,
    theirs: Option<Document<'a>>,
}

impl<'a> Edited<'a> {
    fn documents<'d>(&'d self, read: Documents<'d>) -> Documents<'d>
    where
        'a: 'd,
    {
        Documents {
            base: read.base,
            ours: self.ours.as_ref().unwrap_or(read.ours),
            theirs: self.theirs.as_ref().unwrap_or(read.theirs),
        }
    }
}

/// Whether a text says what was merged, apart from some arrays.
pub(crate) fn says<F: Format>(text: &[u8], merged: Option<&Merged<'_>>, unsure: &[&Node<'_>]) -> bool {
    let arena = Bump::new();
    let document = std::str::from_utf8(text).ok().and_then(|text| F::parse(text, &arena));
    document.is_some_and(|document| merged.is_some_and(|merged| merged.is_but(&document.root, unsure)))
}

/// What was merged, written into the text of ours, or of theirs if something of theirs would be lost.
fn written<F: Format>(
    documents: Documents<'_>,
    comments: Option<&ThreeComments<'_>>,
    keys: &[String],
) -> Option<String> {
    let into = |documents: Documents<'_>| {
        let merged = merge(documents, keys, Side::Ours).merged?;
        F::write(documents, &merged).filter(|text| {
            let arena = Bump::new();
            let document = F::parse(text, &arena);
            document.is_some_and(|document| {
                let has_comments =
                    || comments.is_none_or(|comments| comments.are_in(&Comments::of(&document, keys)));
                merged.is(&document.root) && has_comments()
            })
        })
    };
    into(documents).or_else(|| into(documents.mirrored()))
}
