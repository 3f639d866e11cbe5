//! Merge of arrays. Cells of a notebook are matched by generated names. Other elements are matched by a key field if
//! all elements have one; otherwise the array is merged as a sequence, like the lines of a text.

use super::merge::{ChildVersions, MergedValue, Part, Step, ValueMerger};
use super::named_children::NamedChildren;
use super::{SyntaxNode, Value};
use crate::file::Side;
use crate::quote::{Escaping, push_quoted};
use crate::text::hunk::{Hunk, HunkKind};
use crate::text::{DiffLimits, TextMerge};

/// Merges two arrays.
pub(super) fn merge<'d>(
    merger: &mut ValueMerger<'d, '_>,
    base: Option<&'d SyntaxNode<'d>>,
    ours: &'d SyntaxNode<'d>,
    theirs: &'d SyntaxNode<'d>,
) -> MergedValue<'d> {
    let base_elements = match base.map(|base| &base.value) {
        Some(Value::Array(elements)) => *elements,
        _ => &[],
    };
    // This array is the `cells` of a notebook, whose cells have generated names.
    if let Some(cells) = merger.notebook_cell_names() {
        let versions = ChildVersions {
            base: NamedChildren::with_names(base_elements, cells.base),
            ours: NamedChildren::with_names(ours.children(), cells.ours),
            theirs: NamedChildren::with_names(theirs.children(), cells.theirs),
        };
        return by_names(merger, base, ours, theirs, &versions, |name| Step::Cell(cells.label(name)));
    }
    match by_field(merger.keys, base_elements, ours, theirs) {
        Some((field, versions)) => {
            by_names(merger, base, ours, theirs, &versions, |name| Step::Element { field, name })
        }
        None => by_sequence(merger, base, base_elements, ours, theirs),
    }
}

/// Matches elements by the first of the fields `keys` that all elements of all three versions have, with values that
/// are unique in their version. Returns the field and the matched elements; `None` if there is no such field.
fn by_field<'d>(
    keys: &[String],
    base: &'d [SyntaxNode<'d>],
    ours: &'d SyntaxNode<'d>,
    theirs: &'d SyntaxNode<'d>,
) -> Option<(&'d str, ChildVersions<'d>)> {
    keys.iter().find_map(|key| {
        let versions = ChildVersions {
            base: NamedChildren::by_field(base, key)?,
            ours: NamedChildren::by_field(ours.children(), key)?,
            theirs: NamedChildren::by_field(theirs.children(), key)?,
        };
        let first = ours.children().first().or(theirs.children().first())?;
        let field = first.children().iter().find(|member| member.key == *key)?;
        Some((field.key, versions))
    })
}

/// Merges elements by their names. `step` returns the step of a value's path for a name.
fn by_names<'d>(
    merger: &mut ValueMerger<'d, '_>,
    base: Option<&'d SyntaxNode<'d>>,
    ours: &'d SyntaxNode<'d>,
    theirs: &'d SyntaxNode<'d>,
    versions: &ChildVersions<'d>,
    step: impl Fn(&'d str) -> Step<'d>,
) -> MergedValue<'d> {
    let common_names = |side: &NamedChildren<'d, 'd>| -> Vec<&'d str> {
        let names = (0..side.nodes.len()).map(|index| (index, side.name(index)));
        let is_in_all_versions = |(index, name): &(usize, &'d str)| {
            let hint = *index;
            [&versions.base, &versions.ours, &versions.theirs]
                .iter()
                .all(|side| side.find(name, hint).is_some())
        };
        names.filter(is_in_all_versions).map(|(_, name)| name).collect()
    };
    let [base_order, our_order, their_order] =
        [&versions.base, &versions.ours, &versions.theirs].map(common_names);
    // The template is the side whose text and order the result keeps.
    let template = if ours.children().is_empty() {
        Side::Theirs
    } else if our_order == their_order || their_order == base_order {
        Side::Ours
    } else if our_order == base_order {
        Side::Theirs
    } else {
        // Both sides reordered the elements.
        merger.add_conflict(base, Some(ours), Some(theirs));
        merger.favored
    };
    let parts = merger.merge_named(versions, template, step);
    MergedValue::Parts(template, if template == Side::Ours { ours } else { theirs }, parts)
}

/// Merges elements like the lines of a text, except that changes of different, adjacent elements do not conflict.
fn by_sequence<'d>(
    merger: &mut ValueMerger<'d, '_>,
    base: Option<&'d SyntaxNode<'d>>,
    base_elements: &'d [SyntaxNode<'d>],
    ours: &'d SyntaxNode<'d>,
    theirs: &'d SyntaxNode<'d>,
) -> MergedValue<'d> {
    let [base_lines, our_lines, their_lines] = [base_elements, ours.children(), theirs.children()].map(lines);
    let merged = TextMerge::new(&base_lines, &our_lines, &their_lines, DiffLimits::default());
    let Ok(text) = merged else {
        merger.add_conflict(base, Some(ours), Some(theirs));
        return MergedValue::Whole(merger.favored, if merger.favored == Side::Ours { ours } else { theirs });
    };
    let (picks, is_clean) =
        pick_elements(&text, [base_elements, ours.children(), theirs.children()], merger.favored);
    // The template is the side whose text the result keeps. It is their side only if all elements are from that side:
    // their text then shows how the elements are formatted.
    let template =
        if picks.iter().all(|(side, _)| *side == Side::Theirs) { Side::Theirs } else { Side::Ours };
    let node = |side: Side| if side == Side::Ours { ours } else { theirs };
    let parts = picks.into_iter().map(|(side, index)| Part {
        template_index: (side == template).then_some(index),
        value: MergedValue::Whole(side, &node(side).children()[index]),
    });
    if !is_clean {
        // Both sides changed adjacent elements. An element can span several lines, so the caller tries a merge of lines
        // if all conflicts are of this kind.
        merger.add_adjacent_conflict(base, ours, theirs, node(template));
    }
    MergedValue::Parts(template, node(template), parts.collect())
}

/// Returns the merged elements as pairs of side and index in that side, and true if there was no conflict. `text` is
/// the line merge of the elements, with one line per element; `versions` are the elements of base, ours and theirs.
fn pick_elements(
    text: &TextMerge<'_>,
    versions: [&[SyntaxNode<'_>]; 3],
    favored: Side,
) -> (Vec<(Side, usize)>, bool) {
    let ours = versions[1].len();
    let (mut picks, mut next_of_ours, mut is_clean) = (Vec::with_capacity(ours), 0, true);
    for hunk in text.hunks() {
        picks.extend((next_of_ours..hunk.ours.start).map(|index| (Side::Ours, index)));
        next_of_ours = hunk.ours.end;
        if hunk.kind == HunkKind::Conflict {
            if let Some(resolved) = resolve_adjacent(hunk, versions) {
                picks.extend(resolved);
                continue;
            }
            is_clean = false;
        }
        match (hunk.kind, favored) {
            (HunkKind::Ours | HunkKind::SameResult, _) | (HunkKind::Conflict, Side::Ours) => {
                picks.extend(hunk.ours.clone().map(|index| (Side::Ours, index)));
            }
            (HunkKind::Theirs, _) | (HunkKind::Conflict, Side::Theirs) => {
                picks.extend(hunk.theirs.clone().map(|index| (Side::Theirs, index)));
            }
        }
    }
    picks.extend((next_of_ours..ours).map(|index| (Side::Ours, index)));
    (picks, is_clean)
}

/// Resolves a hunk in which the sides changed different, adjacent elements, which a merge of lines reports as a
/// conflict. `None` if an element was added or removed, or both sides changed the same element.
fn resolve_adjacent(hunk: &Hunk, [base, ours, theirs]: [&[SyntaxNode<'_>]; 3]) -> Option<Vec<(Side, usize)>> {
    let length = hunk.base.len();
    if hunk.ours.len() != length || hunk.theirs.len() != length {
        return None;
    }
    let pick = |offset: usize| {
        let (base_index, our_index, their_index) =
            (hunk.base.start + offset, hunk.ours.start + offset, hunk.theirs.start + offset);
        if base[base_index] == theirs[their_index] {
            Some((Side::Ours, our_index))
        } else {
            (base[base_index] == ours[our_index]).then_some((Side::Theirs, their_index))
        }
    };
    (0..length).map(pick).collect()
}

/// Returns a text with one line per element, in which equal elements have equal lines.
fn lines(elements: &[SyntaxNode<'_>]) -> Vec<u8> {
    let mut lines = String::new();
    for element in elements {
        push_canonical(&mut lines, element);
        lines.push('\n');
    }
    lines.into_bytes()
}

/// Returns a value as text on one line. Equal values have equal texts.
pub(crate) fn canonical(node: &SyntaxNode<'_>) -> String {
    let mut line = String::new();
    push_canonical(&mut line, node);
    line
}

/// Appends the text of [`canonical`].
fn push_canonical(line: &mut String, node: &SyntaxNode<'_>) {
    match &node.value {
        Value::Literal(text) => line.push_str(text),
        Value::String(text) => push_quoted(line, text, Escaping::Minimal),
        Value::Array(elements) => {
            line.push('[');
            for element in *elements {
                push_canonical(line, element);
                line.push(',');
            }
            line.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<&SyntaxNode<'_>> = members.iter().collect();
            members.sort_by(|one, other| one.key.cmp(other.key));
            line.push('{');
            for member in members {
                push_quoted(line, member.key, Escaping::Minimal);
                line.push(':');
                push_canonical(line, member);
                line.push(',');
            }
            line.push('}');
        }
    }
}
