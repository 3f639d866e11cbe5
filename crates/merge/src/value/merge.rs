//! Three values into one.
//!
//! | ours and theirs | then |
//! |---|---|
//! | equal | taken |
//! | one as in the base | the other one |
//! | both objects | member by member |
//! | both arrays | element by element, see [`arrays`](super::arrays) |
//! | one removed, one changed; anything else | a conflict |
//!
//! What comes out says from which side each part is taken, so that it can be written with the words of that side.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::keyed::{Keyed, is_before, shown};
use super::{Document, Node, Value, arrays};
use crate::conflict::ValueConflict;
use crate::file::Side;

/// Three versions of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Documents<'d> {
    pub(crate) base: Option<&'d Document<'d>>,
    pub(crate) ours: &'d Document<'d>,
    pub(crate) theirs: &'d Document<'d>,
}

impl<'d> Documents<'d> {
    /// The text of the base; empty if there is none.
    pub(crate) fn base_text(self) -> &'d [u8] {
        self.base.map_or(&[], |base| base.text.as_bytes())
    }

    /// With the sides exchanged.
    pub(crate) fn mirrored(self) -> Self {
        Self { base: self.base, ours: self.theirs, theirs: self.ours }
    }

    /// The document of a side.
    pub(crate) fn of(self, side: Side) -> &'d Document<'d> {
        match side {
            Side::Ours => self.ours,
            Side::Theirs => self.theirs,
        }
    }
}

/// A value that was merged.
#[derive(Debug)]
pub(crate) enum Merged<'d> {
    /// As a side has it.
    Whole(Side, &'d Node<'d>),
    /// As a side has it, but with other parts.
    Parts(Side, &'d Node<'d>, Vec<Part<'d>>),
}

/// A member or an element.
#[derive(Debug)]
pub(crate) struct Part<'d> {
    /// Where the side that leads has it, ascending; none if it is put in from the other side, and then it is a whole.
    pub(crate) slot: Option<usize>,
    pub(crate) value: Merged<'d>,
}

impl<'d> Merged<'d> {
    /// The container or value that leads.
    pub(crate) fn node(&self) -> &'d Node<'d> {
        match self {
            Self::Whole(_, node) | Self::Parts(_, node, _) => node,
        }
    }

    pub(crate) fn side(&self) -> Side {
        match self {
            Self::Whole(side, _) | Self::Parts(side, _, _) => *side,
        }
    }

    /// Whether a value says the same.
    pub(crate) fn is(&self, other: &Node<'_>) -> bool {
        self.is_but(other, &[])
    }

    /// Whether a value says the same, apart from some arrays that may be any.
    pub(crate) fn is_but(&self, other: &Node<'_>, unsure: &[&Node<'_>]) -> bool {
        let (node, parts) = match self {
            Self::Whole(_, node) => return *node == other,
            Self::Parts(_, node, parts) => (node, parts),
        };
        if unsure.iter().any(|unsure| std::ptr::eq(*unsure, *node)) {
            return matches!(other.value, Value::Array(_));
        }
        let children = other.children();
        if parts.len() != children.len() {
            return false;
        }
        match (&node.value, &other.value) {
            (Value::Array(_), Value::Array(_)) => {
                parts.iter().zip(children).all(|(part, child)| part.value.is_but(child, unsure))
            }
            (Value::Object(_), Value::Object(_)) => {
                let found = Keyed::members(children);
                parts.iter().enumerate().all(|(at, part)| {
                    let key = &part.value.node().key;
                    found.get(key, at).is_some_and(|child| part.value.is_but(child, unsure))
                })
            }
            _ => false,
        }
    }
}

/// What became of three values.
#[derive(Debug)]
pub(crate) struct ValueMerge<'d> {
    /// With conflicts settled for a side; none if nothing is left.
    pub(crate) merged: Option<Merged<'d>>,
    pub(crate) conflicts: Vec<ValueConflict>,
    /// Arrays in which both sides changed elements side by side. As long as there are no other conflicts, lines may tell
    /// more, since an element can have many.
    pub(crate) unsure: Vec<&'d Node<'d>>,
}

impl ValueMerge<'_> {
    /// Whether all conflicts are about the order of elements.
    pub(crate) fn is_unsure(&self) -> bool {
        self.unsure.len() == self.conflicts.len()
    }
}

/// Names of the elements of the array `cells` at the top of three documents, one for each element: equal names stand for one
/// cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cells<'d> {
    pub(crate) base: &'d [String],
    pub(crate) ours: &'d [String],
    pub(crate) theirs: &'d [String],
    /// Names as they are shown in paths.
    pub(crate) labels: &'d HashMap<String, String>,
}

impl<'d> Cells<'d> {
    /// With the sides exchanged.
    pub(crate) fn mirrored(self) -> Self {
        Self { ours: self.theirs, theirs: self.ours, ..self }
    }

    /// A name as it is shown.
    pub(crate) fn label(self, name: &'d str) -> &'d str {
        self.labels.get(name).map_or(name, String::as_str)
    }
}

/// Merges documents; conflicts are settled for a side, and told.
pub(crate) fn merge<'d>(documents: Documents<'d>, keys: &[String], settle: Side) -> ValueMerge<'d> {
    merge_cells(documents, keys, settle, None)
}

/// As [`merge`], with elements of the array `cells` told from each other by names that are given.
pub(crate) fn merge_cells<'d>(
    documents: Documents<'d>,
    keys: &[String],
    settle: Side,
    cells: Option<Cells<'d>>,
) -> ValueMerge<'d> {
    let mut merger = Merger {
        documents,
        keys,
        settle,
        cells,
        path: Vec::new(),
        conflicts: Vec::new(),
        unsure: Vec::new(),
    };
    let base = documents.base.map(|base| &base.root);
    let merged = merger.values(base, Some(&documents.ours.root), Some(&documents.theirs.root));
    ValueMerge { merged, conflicts: merger.conflicts, unsure: merger.unsure }
}

/// A step of a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'d> {
    Key(&'d str),
    Element {
        field: &'d str,
        name: &'d str,
    },
    /// A cell of a notebook, as it is shown.
    Cell(&'d str),
}

pub(super) struct Merger<'d, 'r> {
    documents: Documents<'d>,
    /// Fields that tell elements from each other.
    pub(super) keys: &'r [String],
    pub(super) settle: Side,
    cells: Option<Cells<'d>>,
    path: Vec<Step<'d>>,
    conflicts: Vec<ValueConflict>,
    unsure: Vec<&'d Node<'d>>,
}

/// A value that need not be there.
type Maybe<'d> = Option<&'d Node<'d>>;

impl<'d> Merger<'d, '_> {
    /// Names for the elements of the array that is being merged, if somebody gave them.
    pub(super) fn cells_here(&self) -> Option<Cells<'d>> {
        self.cells.filter(|_| matches!(self.path[..], [Step::Key("cells")]))
    }

    fn values(&mut self, base: Maybe<'d>, ours: Maybe<'d>, theirs: Maybe<'d>) -> Option<Merged<'d>> {
        if ours == theirs || base == theirs {
            return ours.map(|node| Merged::Whole(Side::Ours, node));
        }
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            // Also where ours has changed nothing: it may be written in another way, with other comments.
            match (&ours.value, &theirs.value) {
                (Value::Object(_), Value::Object(_)) => return Some(self.objects(base, ours, theirs)),
                (Value::Array(_), Value::Array(_)) => return Some(arrays::merge(self, base, ours, theirs)),
                _ => {}
            }
        }
        if base == ours {
            return theirs.map(|node| Merged::Whole(Side::Theirs, node));
        }
        self.conflict(base, ours, theirs);
        let settled = match self.settle {
            Side::Ours => ours,
            Side::Theirs => theirs,
        };
        settled.map(|node| Merged::Whole(self.settle, node))
    }

    fn objects(&mut self, base: Maybe<'d>, ours: &'d Node<'d>, theirs: &'d Node<'d>) -> Merged<'d> {
        let base = match base.map(|base| &base.value) {
            Some(Value::Object(members)) => *members,
            _ => &[],
        };
        let three = Three {
            base: Keyed::members(base),
            ours: Keyed::members(ours.children()),
            theirs: Keyed::members(theirs.children()),
        };
        // There is nothing to learn from an empty object about how members are written.
        let lead = if ours.children().is_empty() { Side::Theirs } else { Side::Ours };
        let parts = self.named(&three, lead, Step::Key);
        Merged::Parts(lead, if lead == Side::Ours { ours } else { theirs }, parts)
    }

    /// Merges what has the same name, in the order of the side that leads. What only the other side has comes after what
    /// is before it there. Where both sides put something in one place, names tell what comes first: who merges in another
    /// order gets the same.
    pub(super) fn named(
        &mut self,
        three: &Three<'d>,
        lead: Side,
        step: impl Fn(&'d str) -> Step<'d>,
    ) -> Vec<Part<'d>> {
        let (leads, other) = match lead {
            Side::Ours => (&three.ours, &three.theirs),
            Side::Theirs => (&three.theirs, &three.ours),
        };
        let mut put_in = self.put_in(three, leads, other, &step).into_iter().peekable();
        let mut parts = Vec::with_capacity(leads.nodes.len());
        for at in 0..leads.nodes.len() {
            let name = leads.name(at);
            let Some(value) = self.of_name(three, name, at, &step) else { continue };
            let is_anchor = || other.find(name, at).is_some();
            while let Some(put) =
                put_in.next_if(|put| put.before <= at && (is_anchor() || is_before(put.name, name)))
            {
                parts.push(put.part);
            }
            parts.push(Part { slot: Some(at), value });
        }
        parts.extend(put_in.map(|put| put.part));
        parts
    }

    /// What only the other side has, each with the place of the side that leads before which it comes.
    fn put_in(
        &mut self,
        three: &Three<'d>,
        leads: &Keyed<'d, 'd>,
        other: &Keyed<'d, 'd>,
        step: &impl Fn(&'d str) -> Step<'d>,
    ) -> Vec<PutIn<'d>> {
        let (mut put_in, mut before) = (Vec::new(), 0);
        for at in 0..other.nodes.len() {
            let name = other.name(at);
            if let Some(found) = leads.find(name, at) {
                before = found + 1;
            } else if let Some(value) = self.of_name(three, name, at, step) {
                put_in.push(PutIn { before, name, part: Part { slot: None, value } });
            }
        }
        // Stable: of those that come to one place, the order stays.
        put_in.sort_by_key(|put| put.before);
        put_in
    }

    fn of_name(
        &mut self,
        three: &Three<'d>,
        name: &'d str,
        hint: usize,
        step: &impl Fn(&'d str) -> Step<'d>,
    ) -> Option<Merged<'d>> {
        self.path.push(step(name));
        let [base, ours, theirs] =
            [&three.base, &three.ours, &three.theirs].map(|keyed| keyed.get(name, hint));
        let merged = self.values(base, ours, theirs);
        self.path.pop();
        merged
    }

    /// Tells of elements changed side by side in an array here, of which one version leads.
    pub(super) fn conflict_of_sequence(
        &mut self,
        base: Maybe<'d>,
        ours: &'d Node<'d>,
        theirs: &'d Node<'d>,
        lead: &'d Node<'d>,
    ) {
        self.conflict(base, Some(ours), Some(theirs));
        self.unsure.push(lead);
    }

    /// Tells of a conflict here.
    pub(super) fn conflict(&mut self, base: Maybe<'d>, ours: Maybe<'d>, theirs: Maybe<'d>) {
        let Documents { base: base_document, ours: our_document, theirs: their_document } = self.documents;
        let written = |document: &Document<'_>, node: Maybe<'_>| {
            node.map(|node| document.written(&node.span).to_owned())
        };
        self.conflicts.push(ValueConflict {
            path: shown_path(&self.path),
            base: base_document.and_then(|document| written(document, base)),
            ours: written(our_document, ours),
            theirs: written(their_document, theirs),
        });
    }
}

/// What only the side has that does not lead.
struct PutIn<'d> {
    /// The place of the side that leads before which it comes, unless that is put in as well.
    before: usize,
    name: &'d str,
    part: Part<'d>,
}

/// What has names, in three versions.
#[derive(Debug)]
pub(super) struct Three<'d> {
    pub(super) base: Keyed<'d, 'd>,
    pub(super) ours: Keyed<'d, 'd>,
    pub(super) theirs: Keyed<'d, 'd>,
}

fn shown_path(path: &[Step<'_>]) -> String {
    let mut shown_path = String::new();
    for step in path {
        // Writing to a string does not fail.
        let _ = match step {
            Step::Key(key) if shown_path.is_empty() => write!(shown_path, "{}", shown(key)),
            Step::Key(key) => write!(shown_path, ".{}", shown(key)),
            Step::Element { field, name } => write!(shown_path, "[{}={}]", shown(field), shown(name)),
            Step::Cell(label) => write!(shown_path, "[{label}]"),
        };
    }
    shown_path
}
