//! Parsed Jupyter notebooks, and the values in them that a run writes.

use std::borrow::Cow;
use std::collections::HashMap;

use bumpalo::Bump;

use crate::json;
use crate::value::{Document, SyntaxNode, Value};

/// Maximum number of cells. Notebooks with more cells are merged as JSON.
pub(super) const CELLS_MAX: usize = 10_000;

/// Members of a cell that are written when the cell runs: its results.
pub(super) const RESULTS: [&str; 2] = ["outputs", "execution_count"];

/// Members of a cell's metadata that are written when the cell runs: mostly timestamps of JupyterLab, its extensions,
/// Colab and papermill.
pub(super) const RESULT_METADATA: [&str; 5] =
    ["execution", "ExecuteTime", "executionInfo", "outputId", "papermill"];

/// Members of the notebook's metadata that are written by the program that runs it.
pub(super) const ENVIRONMENT: [&str; 4] = ["kernelspec", "language_info", "widgets", "papermill"];

/// Parsed notebook of format version 4.
#[derive(Debug)]
pub(super) struct Notebook<'a> {
    pub(super) document: Document<'a>,
    pub(super) cells: Vec<Cell<'a>>,
    /// Set if several cells have the same id.
    pub(super) has_duplicate_ids: bool,
}

/// Cell of a notebook.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    /// Cell in the document.
    pub(super) node: &'a SyntaxNode<'a>,
    /// Type: `code`, `markdown` or `raw`.
    pub(super) kind: &'a str,
    /// Id of the cell; `None` if it has no id, or the id does not identify the cell, because another cell has the
    /// same id or the ids are positions ([`Notebook::has_positional_ids`]).
    pub(super) id: Option<&'a str>,
    /// Source of the cell: code or text.
    pub(super) source: Cow<'a, str>,
    /// Hash of type and source.
    pub(super) hash: ContentHash,
}

/// Hash of a cell's type and source.
pub(super) type ContentHash = [u8; 16];

impl<'a> Notebook<'a> {
    /// Parses a notebook; `None` if it is not valid JSON, has comments, is not of format 4, has more than
    /// [`CELLS_MAX`] cells, or has cells without type or source.
    pub(super) fn read(text: &'a str, arena: &'a Bump) -> Option<Self> {
        let document = json::parse(text, arena)?;
        if !document.comments.is_empty() {
            return None;
        }
        let format = member(&document.root, "nbformat")?;
        if !matches!(format.value, Value::Literal("4")) {
            return None;
        }
        let Value::Array(nodes) = member(&document.root, "cells")?.value else { return None };
        if nodes.len() > CELLS_MAX {
            return None;
        }
        let mut cells = nodes.iter().map(Cell::read).collect::<Option<Vec<_>>>()?;
        let has_duplicate_ids = clear_duplicate_ids(&mut cells);
        Some(Self { document, cells, has_duplicate_ids })
    }

    /// Returns true if the ids of all cells end in their positions. Some tools that strip outputs write such ids. Then
    /// inserting a cell changes the ids of all cells after it.
    pub(super) fn has_positional_ids(&self) -> bool {
        let number = |cell: &Cell<'_>| {
            let id = cell.id?;
            let digits = id.bytes().rev().take_while(u8::is_ascii_digit).count();
            id[id.len() - digits..].parse::<usize>().ok()
        };
        let counts_from = |first: usize| {
            self.cells.iter().enumerate().all(|(index, cell)| number(cell) == Some(first + index))
        };
        self.cells.len() > 1 && (counts_from(0) || counts_from(1))
    }

    /// Clears the ids of all cells.
    pub(super) fn clear_ids(&mut self) {
        for cell in &mut self.cells {
            cell.id = None;
        }
    }
}

/// Clears the ids that several cells have. Returns true if there were any.
fn clear_duplicate_ids(cells: &mut [Cell<'_>]) -> bool {
    let mut counts = HashMap::new();
    for id in cells.iter().filter_map(|cell| cell.id) {
        *counts.entry(id).or_insert(0_usize) += 1;
    }
    for cell in cells {
        cell.id = cell.id.filter(|id| counts.get(id) == Some(&1));
    }
    counts.values().any(|count| *count > 1)
}

impl<'a> Cell<'a> {
    /// Reads a cell; `None` if it has no type or source.
    fn read(node: &'a SyntaxNode<'a>) -> Option<Self> {
        let kind = string(member(node, "cell_type")?)?;
        let source = text(member(node, "source")?)?;
        let id = member(node, "id").and_then(string);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(kind.len() as u64).to_le_bytes());
        hasher.update(kind.as_bytes());
        hasher.update(source.as_bytes());
        let mut hash = ContentHash::default();
        hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Some(Self { node, kind, id, source, hash })
    }

    /// Iterates over the members that a run writes into the cell; `None` for absent members.
    pub(super) fn results(&self) -> impl Iterator<Item = Option<&'a SyntaxNode<'a>>> {
        let (node, metadata) = (self.node, member(self.node, "metadata"));
        let of_metadata = move |key: &&str| metadata.and_then(|metadata| member(metadata, key));
        let results = RESULTS.iter().map(move |key| member(node, key));
        results.chain(RESULT_METADATA.iter().map(of_metadata))
    }

    /// Returns true if two cells differ at most in their results and ids.
    pub(super) fn equals_except_results(&self, other: &Self) -> bool {
        let skipped = |key: &str| RESULTS.contains(&key) || ["source", "metadata", "id"].contains(&key);
        let metadata = |cell: &Self| member(cell.node, "metadata");
        self.source == other.source
            && equal_except(Some(self.node), Some(other.node), &skipped)
            && equal_except(metadata(self), metadata(other), &|key| RESULT_METADATA.contains(&key))
    }
}

/// Returns true if two objects have the same members, ignoring some. An absent object equals an empty one.
fn equal_except(
    one: Option<&SyntaxNode<'_>>,
    other: Option<&SyntaxNode<'_>>,
    is_skipped: &dyn Fn(&str) -> bool,
) -> bool {
    match (members_except(one, is_skipped), members_except(other, is_skipped)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// Returns the members of an object by key, without the skipped ones; `None` if the node is not an object. An absent
/// node has no members.
fn members_except<'n, 'a>(
    node: Option<&'n SyntaxNode<'a>>,
    is_skipped: &dyn Fn(&str) -> bool,
) -> Option<HashMap<&'a str, &'n SyntaxNode<'a>>> {
    let Some(node) = node else { return Some(HashMap::new()) };
    let Value::Object(members) = node.value else { return None };
    Some(members.iter().filter(|node| !is_skipped(node.key)).map(|node| (node.key, node)).collect())
}

/// Returns a member; `None` if it is absent, or the node is not an object.
pub(super) fn member<'a>(node: &SyntaxNode<'a>, key: &str) -> Option<&'a SyntaxNode<'a>> {
    let Value::Object(members) = node.value else { return None };
    members.iter().find(|member| member.key == key)
}

/// Returns the content of a string; `None` for other values.
fn string<'a>(node: &SyntaxNode<'a>) -> Option<&'a str> {
    match node.value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Returns a text that is stored as a string or as an array of lines; `None` for other values.
fn text<'a>(node: &SyntaxNode<'a>) -> Option<Cow<'a, str>> {
    match node.value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Array(lines) => lines.iter().map(string).collect::<Option<String>>().map(Cow::Owned),
        _ => None,
    }
}
