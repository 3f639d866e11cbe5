//! Merge of arrays: by a key field if all elements have one, else as a sequence.

use super::keyed::Keyed;
use super::merge::{Merged, Merger, Part, Step, ThreeWay};
use super::{Node, Value};
use crate::file::Side;
use crate::quote::{Escaping, push_quoted};
use crate::text::{Chunk, ChunkKind, DiffLimits, TextMerge};

pub(super) fn merge<'d>(
    merger: &mut Merger<'d, '_>,
    base: Option<&'d Node<'d>>,
    ours: &'d Node<'d>,
    theirs: &'d Node<'d>,
) -> Merged<'d> {
    let elements = match base.map(|base| &base.value) {
        Some(Value::Array(elements)) => *elements,
        _ => &[],
    };
    if let Some(cells) = merger.current_cells() {
        let three = ThreeWay {
            base: Keyed::given(elements, cells.base),
            ours: Keyed::given(ours.children(), cells.ours),
            theirs: Keyed::given(theirs.children(), cells.theirs),
        };
        return by_names(merger, base, ours, theirs, &three, |name| Step::Cell(cells.label(name)));
    }
    match by_field(merger.keys, elements, ours, theirs) {
        Some((field, three)) => {
            by_names(merger, base, ours, theirs, &three, |name| Step::Element { field, name })
        }
        None => by_sequence(merger, base, elements, ours, theirs),
    }
}

/// Matches elements by the first field whose value is present and unique in all three versions.
fn by_field<'d>(
    keys: &[String],
    base: &'d [Node<'d>],
    ours: &'d Node<'d>,
    theirs: &'d Node<'d>,
) -> Option<(&'d str, ThreeWay<'d>)> {
    keys.iter().find_map(|key| {
        let three = ThreeWay {
            base: Keyed::elements(base, key)?,
            ours: Keyed::elements(ours.children(), key)?,
            theirs: Keyed::elements(theirs.children(), key)?,
        };
        let first = ours.children().first().or(theirs.children().first())?;
        let field = first.children().iter().find(|member| member.key == *key)?;
        Some((field.key, three))
    })
}

fn by_names<'d>(
    merger: &mut Merger<'d, '_>,
    base: Option<&'d Node<'d>>,
    ours: &'d Node<'d>,
    theirs: &'d Node<'d>,
    three: &ThreeWay<'d>,
    step: impl Fn(&'d str) -> Step<'d>,
) -> Merged<'d> {
    let order = |side: &Keyed<'d, 'd>| -> Vec<&'d str> {
        let names = (0..side.nodes.len()).map(|at| (at, side.name(at)));
        let everywhere = |(at, name): &(usize, &'d str)| {
            [&three.base, &three.ours, &three.theirs].iter().all(|side| side.find(name, *at).is_some())
        };
        names.filter(everywhere).map(|(_, name)| name).collect()
    };
    let [in_base, in_ours, in_theirs] = [&three.base, &three.ours, &three.theirs].map(order);
    let lead = if ours.children().is_empty() {
        Side::Theirs
    } else if in_ours == in_theirs || in_theirs == in_base {
        Side::Ours
    } else if in_ours == in_base {
        Side::Theirs
    } else {
        // Both sides reordered the elements.
        merger.conflict(base, Some(ours), Some(theirs));
        merger.settle
    };
    let parts = merger.merge_named(three, lead, step);
    Merged::Parts(lead, if lead == Side::Ours { ours } else { theirs }, parts)
}

/// Merges elements as a text merge does lines, except that changes to adjacent elements do not conflict.
fn by_sequence<'d>(
    merger: &mut Merger<'d, '_>,
    base: Option<&'d Node<'d>>,
    elements: &'d [Node<'d>],
    ours: &'d Node<'d>,
    theirs: &'d Node<'d>,
) -> Merged<'d> {
    let [in_base, in_ours, in_theirs] = [elements, ours.children(), theirs.children()].map(lines);
    let merged = TextMerge::new(&in_base, &in_ours, &in_theirs, DiffLimits::default());
    let Ok(text) = merged else {
        merger.conflict(base, Some(ours), Some(theirs));
        return Merged::Whole(merger.settle, if merger.settle == Side::Ours { ours } else { theirs });
    };
    let (picks, is_clean) = picks(&text, [elements, ours.children(), theirs.children()], merger.settle);
    // If nothing of ours is left, theirs is the template: its text shows how elements are formatted.
    let lead = if picks.iter().all(|(side, _)| *side == Side::Theirs) { Side::Theirs } else { Side::Ours };
    let node = |side: Side| if side == Side::Ours { ours } else { theirs };
    let parts = picks.into_iter().map(|(side, at)| Part {
        slot: (side == lead).then_some(at),
        value: Merged::Whole(side, &node(side).children()[at]),
    });
    if !is_clean {
        merger.sequence_conflict(base, ours, theirs, node(lead));
    }
    Merged::Parts(lead, node(lead), parts.collect())
}

/// Returns the elements of the result as pairs of side and index, and whether there was no conflict.
fn picks(text: &TextMerge<'_>, three: [&[Node<'_>]; 3], settle: Side) -> (Vec<(Side, usize)>, bool) {
    let ours = three[1].len();
    let (mut picks, mut done, mut is_clean) = (Vec::with_capacity(ours), 0, true);
    for chunk in text.chunks() {
        picks.extend((done..chunk.ours.start).map(|at| (Side::Ours, at)));
        done = chunk.ours.end;
        if chunk.kind == ChunkKind::Conflict {
            if let Some(each) = one_by_one(chunk, three) {
                picks.extend(each);
                continue;
            }
            is_clean = false;
        }
        match (chunk.kind, settle) {
            (ChunkKind::Ours | ChunkKind::Both, _) | (ChunkKind::Conflict, Side::Ours) => {
                picks.extend(chunk.ours.clone().map(|at| (Side::Ours, at)));
            }
            (ChunkKind::Theirs, _) | (ChunkKind::Conflict, Side::Theirs) => {
                picks.extend(chunk.theirs.clone().map(|at| (Side::Theirs, at)));
            }
        }
    }
    picks.extend((done..ours).map(|at| (Side::Ours, at)));
    (picks, is_clean)
}

/// Resolves a chunk of adjacent elements of which each was changed by one side at most, and none was added or
/// removed. Adjacent lines would conflict here.
fn one_by_one(chunk: &Chunk, [base, ours, theirs]: [&[Node<'_>]; 3]) -> Option<Vec<(Side, usize)>> {
    let length = chunk.base.len();
    if chunk.ours.len() != length || chunk.theirs.len() != length {
        return None;
    }
    let pick = |at: usize| {
        let (was, our, their) = (chunk.base.start + at, chunk.ours.start + at, chunk.theirs.start + at);
        if base[was] == theirs[their] {
            Some((Side::Ours, our))
        } else {
            (base[was] == ours[our]).then_some((Side::Theirs, their))
        }
    };
    (0..length).map(pick).collect()
}

/// Returns one line per element; equal elements give equal lines.
fn lines(elements: &[Node<'_>]) -> Vec<u8> {
    let mut lines = String::new();
    for element in elements {
        push(&mut lines, element);
        lines.push('\n');
    }
    lines.into_bytes()
}

/// Returns a value on one line; equal values give equal lines.
pub(crate) fn canonical(node: &Node<'_>) -> String {
    let mut line = String::new();
    push(&mut line, node);
    line
}

fn push(line: &mut String, node: &Node<'_>) {
    match &node.value {
        Value::Literal(text) => line.push_str(text),
        Value::String(text) => push_quoted(line, text, Escaping::Minimal),
        Value::Array(elements) => {
            line.push('[');
            for element in *elements {
                push(line, element);
                line.push(',');
            }
            line.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<&Node<'_>> = members.iter().collect();
            members.sort_by(|one, other| one.key.cmp(other.key));
            line.push('{');
            for member in members {
                push_quoted(line, member.key, Escaping::Minimal);
                line.push(':');
                push(line, member);
                line.push(',');
            }
            line.push('}');
        }
    }
}
