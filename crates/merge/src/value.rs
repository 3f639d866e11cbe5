//! Syntax tree for JSON, YAML and TOML, in which each value has its span (byte range) in the source text.
//!
//! All three formats share one merge ([`merge`]). Literals (numbers, booleans, nulls and dates) are compared as source
//! text: `1` and `1.0` differ, and numbers of any size are supported.

mod arrays;
pub(crate) mod merge;
mod named_children;

use std::ops::Range;

pub(crate) use self::arrays::canonical;
pub(crate) use self::named_children::NamedChildren;

/// Maximum depth of nested values in a document that is parsed. It bounds the recursion of all functions on the tree.
pub(crate) const MAX_DEPTH: usize = 200;

/// Parsed document.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    pub(crate) root: SyntaxNode<'a>,
    /// Source texts of all comments, as slices of `text`.
    pub(crate) comments: Vec<&'a str>,
}

impl<'a> Document<'a> {
    /// Returns the source text of a span; empty if the span is out of range.
    pub(crate) fn source_text(&self, span: &Range<usize>) -> &'a str {
        self.text.get(span.clone()).unwrap_or_default()
    }
}

/// Value with its position. Children, and strings that are not slices of the source text, are allocated in an arena,
/// which is faster than separate allocations.
#[derive(Debug, Clone)]
pub(crate) struct SyntaxNode<'a> {
    /// Key of an object's member; empty for other values.
    pub(crate) key: &'a str,
    /// Byte offset at which the value begins together with its key or, in a YAML sequence, its dash.
    pub(crate) item_start: usize,
    /// Byte range of the value itself.
    pub(crate) span: Range<usize>,
    pub(crate) value: Value<'a>,
}

/// Kind and content of a value.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    /// Source text of a number, boolean, null or date, on a single line.
    Literal(&'a str),
    /// Content of a string, without quotes and escapes.
    String(&'a str),
    /// Elements in order.
    Array(&'a [SyntaxNode<'a>]),
    /// Members in source order, without duplicate keys.
    Object(&'a [SyntaxNode<'a>]),
}

impl<'a> SyntaxNode<'a> {
    /// Returns the elements or members; empty for scalars.
    pub(crate) fn children(&self) -> &'a [SyntaxNode<'a>] {
        match &self.value {
            Value::Array(nodes) | Value::Object(nodes) => nodes,
            Value::Literal(_) | Value::String(_) => &[],
        }
    }

    /// Returns the byte range of the value together with its key or dash.
    pub(crate) fn item(&self) -> Range<usize> {
        self.item_start..self.span.end
    }
}

/// Compares values, not keys and positions. The order of an object's members is not significant.
impl PartialEq for SyntaxNode<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::Literal(one), Value::Literal(other)) => one == other,
            (Value::String(one), Value::String(other)) => one == other,
            (Value::Array(one), Value::Array(other)) => one == other,
            (Value::Object(one), Value::Object(other)) => {
                let by_key = NamedChildren::by_key(other);
                let same = |(index, node): (usize, &SyntaxNode<'_>)| {
                    by_key.find(node.key, index).is_some_and(|index| *node == other[index])
                };
                one.len() == other.len() && one.iter().enumerate().all(same)
            }
            _ => false,
        }
    }
}

/// Returns true if two members have the same key.
pub(crate) fn has_duplicate_key(members: &[SyntaxNode<'_>]) -> bool {
    if members.len() > named_children::LINEAR_SEARCH_MAX {
        return NamedChildren::by_key(members).has_duplicates();
    }
    let repeats_key = |(index, node): (usize, &SyntaxNode<'_>)| {
        members[..index].iter().any(|before| before.key == node.key)
    };
    members.iter().enumerate().any(repeats_key)
}
