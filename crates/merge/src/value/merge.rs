//! Three-way merge of values.
//!
//! | our and their value | result |
//! |---|---|
//! | equal | that value |
//! | one equals the base | the other one |
//! | both objects | member by member |
//! | both arrays | element by element, see [`arrays`](super::arrays) |
//! | one removed and one changed, anything else | a conflict |
//!
//! The result records the side of each part, so that the part can be written with the source text of that side.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::named_children::{NamedChildren, display_name, sorts_before};
use super::{Document, SyntaxNode, Value, arrays};
use crate::conflict::ValueConflict;
use crate::file::Side;

/// The three versions of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Documents<'d> {
    pub(crate) base: Option<&'d Document<'d>>,
    pub(crate) ours: &'d Document<'d>,
    pub(crate) theirs: &'d Document<'d>,
}

impl<'d> Documents<'d> {
    /// Returns the text of the base; empty if there is no base.
    pub(crate) fn base_text(self) -> &'d [u8] {
        self.base.map_or(&[], |base| base.text.as_bytes())
    }

    /// Returns the versions with the sides swapped.
    pub(crate) fn swap_sides(self) -> Self {
        Self { base: self.base, ours: self.theirs, theirs: self.ours }
    }

    /// Returns the document of a side.
    pub(crate) fn of(self, side: Side) -> &'d Document<'d> {
        match side {
            Side::Ours => self.ours,
            Side::Theirs => self.theirs,
        }
    }
}

/// Merged value.
#[derive(Debug)]
pub(crate) enum MergedValue<'d> {
    /// Value of one side, unchanged.
    Whole(Side, &'d SyntaxNode<'d>),
    /// Object or array with merged children. The side is the template: the result keeps its text and order. The node
    /// is from that side.
    Parts(Side, &'d SyntaxNode<'d>, Vec<Part<'d>>),
}

/// Child of a merged container.
#[derive(Debug)]
pub(crate) struct Part<'d> {
    /// Index of the child in the template, in ascending order; `None` for a [`MergedValue::Whole`] that is inserted
    /// from the other side.
    pub(crate) template_index: Option<usize>,
    pub(crate) value: MergedValue<'d>,
}

impl<'d> MergedValue<'d> {
    /// Returns the node of a whole value, or of the template side.
    pub(crate) fn node(&self) -> &'d SyntaxNode<'d> {
        match self {
            Self::Whole(_, node) | Self::Parts(_, node, _) => node,
        }
    }

    /// Returns the side of a whole value, or the template side.
    pub(crate) fn side(&self) -> Side {
        match self {
            Self::Whole(side, _) | Self::Parts(side, _, _) => *side,
        }
    }

    /// Returns true if a node has the same value.
    pub(crate) fn equals(&self, other: &SyntaxNode<'_>) -> bool {
        self.equals_except(other, &[])
    }

    /// Returns true if a node has the same value. The content of the arrays `except` may differ.
    pub(crate) fn equals_except(&self, other: &SyntaxNode<'_>, except: &[&SyntaxNode<'_>]) -> bool {
        let (node, parts) = match self {
            Self::Whole(_, node) => return *node == other,
            Self::Parts(_, node, parts) => (node, parts),
        };
        if except.iter().any(|array| std::ptr::eq(*array, *node)) {
            return matches!(other.value, Value::Array(_));
        }
        let children = other.children();
        if parts.len() != children.len() {
            return false;
        }
        match (&node.value, &other.value) {
            (Value::Array(_), Value::Array(_)) => {
                parts.iter().zip(children).all(|(part, child)| part.value.equals_except(child, except))
            }
            (Value::Object(_), Value::Object(_)) => {
                let by_key = NamedChildren::by_key(children);
                parts.iter().enumerate().all(|(index, part)| {
                    let key = &part.value.node().key;
                    // `index` is the position that is tried first.
                    by_key.get(key, index).is_some_and(|child| part.value.equals_except(child, except))
                })
            }
            _ => false,
        }
    }
}

/// Result of merging two documents.
#[derive(Debug)]
pub(crate) struct ValueMerge<'d> {
    /// Merged value, with conflicts resolved in favour of one side; `None` if that side removed the root.
    pub(crate) merged: Option<MergedValue<'d>>,
    /// All conflicts, also those about adjacent elements.
    pub(crate) conflicts: Vec<ValueConflict>,
    /// Arrays in which both sides changed adjacent elements. If there are no other conflicts, a merge of
    /// lines may still succeed, since an element can span many lines.
    pub(crate) adjacent_conflicts: Vec<&'d SyntaxNode<'d>>,
}

impl ValueMerge<'_> {
    /// Returns true if there are no conflicts, or all of them concern adjacent elements of arrays.
    pub(crate) fn has_only_adjacent_conflicts(&self) -> bool {
        self.adjacent_conflicts.len() == self.conflicts.len()
    }
}

/// Generated names of the cells of a notebook: one for each element of the top-level array `cells`. Elements with equal
/// names are versions of the same cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CellNames<'d> {
    pub(crate) base: &'d [String],
    pub(crate) ours: &'d [String],
    pub(crate) theirs: &'d [String],
    /// Display names of cells in the paths of conflicts, by generated name.
    pub(crate) labels: &'d HashMap<String, String>,
}

impl<'d> CellNames<'d> {
    /// Returns the names with the sides swapped.
    pub(crate) fn swap_sides(self) -> Self {
        Self { ours: self.theirs, theirs: self.ours, ..self }
    }

    /// Returns the display name of the cell with a generated name.
    pub(crate) fn label(self, name: &'d str) -> &'d str {
        self.labels.get(name).map_or(name, String::as_str)
    }
}

/// Merges documents. Conflicts are reported, and resolved in favour of the side `favored`. `keys` are the
/// fields that identify array elements.
pub(crate) fn merge<'d>(documents: Documents<'d>, keys: &[String], favored: Side) -> ValueMerge<'d> {
    merge_cells(documents, keys, favored, None)
}

/// Merges documents like [`merge`]. `cells` are the names of the cells of a notebook; `None` for other documents.
pub(crate) fn merge_cells<'d>(
    documents: Documents<'d>,
    keys: &[String],
    favored: Side,
    cells: Option<CellNames<'d>>,
) -> ValueMerge<'d> {
    let mut merger = ValueMerger {
        documents,
        keys,
        favored,
        cells,
        path: Vec::new(),
        conflicts: Vec::new(),
        adjacent_conflicts: Vec::new(),
    };
    let base = documents.base.map(|base| &base.root);
    let merged = merger.merge_values(base, Some(&documents.ours.root), Some(&documents.theirs.root));
    ValueMerge { merged, conflicts: merger.conflicts, adjacent_conflicts: merger.adjacent_conflicts }
}

/// Step of the path of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'d> {
    /// Member of an object.
    Key(&'d str),
    /// Element of an array, by its key field.
    Element {
        field: &'d str,
        /// Value of the field.
        name: &'d str,
    },
    /// Cell of a notebook, by its display name.
    Cell(&'d str),
}

/// State of a merge of documents.
pub(super) struct ValueMerger<'d, 'r> {
    /// Documents of the three versions.
    documents: Documents<'d>,
    /// Fields that identify array elements, in order of precedence.
    pub(super) keys: &'r [String],
    /// Side in favour of which conflicts are resolved.
    pub(super) favored: Side,
    /// Names of the cells; `None` if the documents are not notebooks.
    cells: Option<CellNames<'d>>,
    /// Path of the current value.
    path: Vec<Step<'d>>,
    conflicts: Vec<ValueConflict>,
    /// See [`ValueMerge::adjacent_conflicts`].
    adjacent_conflicts: Vec<&'d SyntaxNode<'d>>,
}

/// Value that may be absent in a version.
type OptionalNode<'d> = Option<&'d SyntaxNode<'d>>;

impl<'d> ValueMerger<'d, '_> {
    /// Returns the names of the elements of the current array; `None` if it is not the `cells` of a notebook.
    pub(super) fn notebook_cell_names(&self) -> Option<CellNames<'d>> {
        self.cells.filter(|_| matches!(self.path[..], [Step::Key("cells")]))
    }

    fn merge_values(
        &mut self,
        base: OptionalNode<'d>,
        ours: OptionalNode<'d>,
        theirs: OptionalNode<'d>,
    ) -> Option<MergedValue<'d>> {
        if ours == theirs || base == theirs {
            return ours.map(|node| MergedValue::Whole(Side::Ours, node));
        }
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            // Containers are merged even if our side did not change the value: our text may have other formatting and
            // comments.
            match (&ours.value, &theirs.value) {
                (Value::Object(_), Value::Object(_)) => return Some(self.merge_objects(base, ours, theirs)),
                (Value::Array(_), Value::Array(_)) => return Some(arrays::merge(self, base, ours, theirs)),
                _ => {}
            }
        }
        if base == ours {
            return theirs.map(|node| MergedValue::Whole(Side::Theirs, node));
        }
        self.add_conflict(base, ours, theirs);
        let resolved = match self.favored {
            Side::Ours => ours,
            Side::Theirs => theirs,
        };
        resolved.map(|node| MergedValue::Whole(self.favored, node))
    }

    fn merge_objects(
        &mut self,
        base: OptionalNode<'d>,
        ours: &'d SyntaxNode<'d>,
        theirs: &'d SyntaxNode<'d>,
    ) -> MergedValue<'d> {
        let base = match base.map(|base| &base.value) {
            Some(Value::Object(members)) => *members,
            _ => &[],
        };
        let versions = ChildVersions {
            base: NamedChildren::by_key(base),
            ours: NamedChildren::by_key(ours.children()),
            theirs: NamedChildren::by_key(theirs.children()),
        };
        // An empty object does not show how its members are formatted.
        let template = if ours.children().is_empty() { Side::Theirs } else { Side::Ours };
        let parts = self.merge_named(&versions, template, Step::Key);
        MergedValue::Parts(template, if template == Side::Ours { ours } else { theirs }, parts)
    }

    /// Merges children of the same name in the order of the template. Children that only the other side has
    /// are inserted after their predecessor. If both sides insert at the same position, the children are sorted
    /// by name, so that the result does not depend on which side is ours.
    pub(super) fn merge_named(
        &mut self,
        versions: &ChildVersions<'d>,
        template: Side,
        step: impl Fn(&'d str) -> Step<'d>,
    ) -> Vec<Part<'d>> {
        let (template_children, other) = match template {
            Side::Ours => (&versions.ours, &versions.theirs),
            Side::Theirs => (&versions.theirs, &versions.ours),
        };
        let mut insertions =
            self.insertions(versions, template_children, other, &step).into_iter().peekable();
        let mut parts = Vec::with_capacity(template_children.nodes.len());
        for index in 0..template_children.nodes.len() {
            let name = template_children.name(index);
            let Some(value) = self.merge_name(versions, name, index, &step) else { continue };
            // Insertions come before a child that both sides have. A child that only the template has is itself an
            // insertion, maybe at the same position. Then the names decide the order.
            let is_in_both = || other.find(name, index).is_some();
            while let Some(insertion) = insertions.next_if(|insertion| {
                insertion.before <= index && (is_in_both() || sorts_before(insertion.name, name))
            }) {
                parts.push(insertion.part);
            }
            parts.push(Part { template_index: Some(index), value });
        }
        parts.extend(insertions.map(|insertion| insertion.part));
        parts
    }

    /// Returns the children that only the other side has, each with its position in the template.
    fn insertions(
        &mut self,
        versions: &ChildVersions<'d>,
        template_children: &NamedChildren<'d, 'd>,
        other: &NamedChildren<'d, 'd>,
        step: &impl Fn(&'d str) -> Step<'d>,
    ) -> Vec<Insertion<'d>> {
        let (mut insertions, mut before) = (Vec::new(), 0);
        for index in 0..other.nodes.len() {
            let name = other.name(index);
            if let Some(template_index) = template_children.find(name, index) {
                before = template_index + 1;
            } else if let Some(value) = self.merge_name(versions, name, index, step) {
                insertions.push(Insertion { before, name, part: Part { template_index: None, value } });
            }
        }
        // The sort is stable: children for the same position keep their order.
        insertions.sort_by_key(|insertion| insertion.before);
        insertions
    }

    /// Merges the children with one name. `hint` is the index that is tried first in each version.
    fn merge_name(
        &mut self,
        versions: &ChildVersions<'d>,
        name: &'d str,
        hint: usize,
        step: &impl Fn(&'d str) -> Step<'d>,
    ) -> Option<MergedValue<'d>> {
        self.path.push(step(name));
        let [base, ours, theirs] =
            [&versions.base, &versions.ours, &versions.theirs].map(|named| named.get(name, hint));
        let merged = self.merge_values(base, ours, theirs);
        self.path.pop();
        merged
    }

    /// Records a conflict about adjacent elements of the current array, which a merge of lines may resolve. `template`
    /// is the array whose text the result keeps.
    pub(super) fn add_adjacent_conflict(
        &mut self,
        base: OptionalNode<'d>,
        ours: &'d SyntaxNode<'d>,
        theirs: &'d SyntaxNode<'d>,
        template: &'d SyntaxNode<'d>,
    ) {
        self.add_conflict(base, Some(ours), Some(theirs));
        self.adjacent_conflicts.push(template);
    }

    /// Records a conflict at the current path.
    pub(super) fn add_conflict(
        &mut self,
        base: OptionalNode<'d>,
        ours: OptionalNode<'d>,
        theirs: OptionalNode<'d>,
    ) {
        let Documents { base: base_document, ours: our_document, theirs: their_document } = self.documents;
        let source_of = |document: &Document<'_>, node: OptionalNode<'_>| {
            node.map(|node| document.source_text(&node.span).to_owned())
        };
        self.conflicts.push(ValueConflict {
            path: display_path(&self.path),
            base: base_document.and_then(|document| source_of(document, base)),
            ours: source_of(our_document, ours),
            theirs: source_of(their_document, theirs),
        });
    }
}

/// Child that only the other side has, to be inserted into the template.
struct Insertion<'d> {
    /// Index in the template before which the child is inserted.
    before: usize,
    name: &'d str,
    /// Child to insert.
    part: Part<'d>,
}

/// Children of a container in the three versions.
#[derive(Debug)]
pub(super) struct ChildVersions<'d> {
    pub(super) base: NamedChildren<'d, 'd>,
    pub(super) ours: NamedChildren<'d, 'd>,
    pub(super) theirs: NamedChildren<'d, 'd>,
}

/// Formats a path for [`ValueConflict::path`].
fn display_path(path: &[Step<'_>]) -> String {
    let mut display_path = String::new();
    for step in path {
        // Writing to a string does not fail.
        let _ = match step {
            Step::Key(key) if display_path.is_empty() => write!(display_path, "{}", display_name(key)),
            Step::Key(key) => write!(display_path, ".{}", display_name(key)),
            Step::Element { field, name } => {
                write!(display_path, "[{}={}]", display_name(field), display_name(name))
            }
            Step::Cell(label) => write!(display_path, "[{label}]"),
        };
    }
    display_path
}
