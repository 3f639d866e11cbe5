//! Syntax tree for JSON, YAML and TOML, in which each value has its span in the source text.
//!
//! One merge works for all three formats ([`merge`]). Literals are compared as source text: `1`, `1.0` and
//! `1.00` differ, and no number is too large.

mod arrays;
mod keyed;
pub(crate) mod merge;

use std::ops::Range;

pub(crate) use self::arrays::canonical;
use self::keyed::Keyed;

/// Limit for nested values. It bounds the recursion of everything that walks the tree.
pub(crate) const MAX_DEPTH: usize = 200;

/// Parsed source text.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    pub(crate) root: Node<'a>,
    /// All comments, as written.
    pub(crate) comments: Vec<&'a str>,
}

impl<'a> Document<'a> {
    /// Returns the source text of a span; empty if the span is out of range.
    pub(crate) fn written(&self, span: &Range<usize>) -> &'a str {
        self.text.get(span.clone()).unwrap_or_default()
    }
}

/// A value and its position. Children and strings are allocated in an arena, which is faster than one
/// allocation each.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    /// Key of an object's member; empty for other values.
    pub(crate) key: &'a str,
    /// Byte offset at which the value begins, including its key or a YAML dash.
    pub(crate) start: usize,
    /// Byte range of the value itself.
    pub(crate) span: Range<usize>,
    pub(crate) value: Value<'a>,
}

/// Kind and content of a value.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    /// A number, boolean, null or date, as written on a single line.
    Literal(&'a str),
    String(&'a str),
    Array(&'a [Node<'a>]),
    /// Members in source order, without duplicate keys.
    Object(&'a [Node<'a>]),
}

impl<'a> Node<'a> {
    /// Returns elements or members; empty for scalars.
    pub(crate) fn children(&self) -> &'a [Node<'a>] {
        match &self.value {
            Value::Array(nodes) | Value::Object(nodes) => nodes,
            Value::Literal(_) | Value::String(_) => &[],
        }
    }

    /// Returns the byte range of the value together with its key.
    pub(crate) fn item(&self) -> Range<usize> {
        self.start..self.span.end
    }
}

/// Compares values; the order of an object's members is not significant.
impl PartialEq for Node<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::Literal(one), Value::Literal(other)) => one == other,
            (Value::String(one), Value::String(other)) => one == other,
            (Value::Array(one), Value::Array(other)) => one == other,
            (Value::Object(one), Value::Object(other)) => {
                let found = Keyed::members(other);
                let same = |(at, node): (usize, &Node<'_>)| {
                    found.find(node.key, at).is_some_and(|at| *node == other[at])
                };
                one.len() == other.len() && one.iter().enumerate().all(same)
            }
            _ => false,
        }
    }
}

/// Returns whether two members have the same key.
pub(crate) fn has_duplicate_key(members: &[Node<'_>]) -> bool {
    if members.len() > keyed::LINEAR_SEARCH_MAX {
        return Keyed::members(members).has_duplicates();
    }
    let is_before =
        |(at, node): (usize, &Node<'_>)| members[..at].iter().any(|before| before.key == node.key);
    members.iter().enumerate().any(is_before)
}
