//! Documents as values, each of which knows where it is written.
//!
//! JSON, YAML and TOML are read into the same tree, so that there is one merge for all of them ([`merge`]).
//! Whatever is neither a string nor a container is compared as it is written: `1`, `1.0` and `1.00` differ, and no number
//! is too large.

mod arrays;
mod keyed;
pub(crate) mod merge;

use std::ops::Range;

pub(crate) use self::arrays::canonical;
use self::keyed::Keyed;

/// Values may be nested this deep. All that walks them may call itself, therefore.
pub(crate) const DEPTH: usize = 200;

/// A text and what it says.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    pub(crate) root: Node<'a>,
    /// All comments, as written.
    pub(crate) comments: Vec<&'a str>,
}

impl<'a> Document<'a> {
    /// What is written in some place.
    pub(crate) fn written(&self, span: &Range<usize>) -> &'a str {
        self.text.get(span.clone()).unwrap_or_default()
    }
}

/// A value in its place. What it refers to is in an arena, which is quicker than to have each part on its own.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    /// Of a member of an object; empty elsewhere.
    pub(crate) key: &'a str,
    /// Where it begins, with its key or whatever else stands before it as a part of it.
    pub(crate) start: usize,
    /// Where the value itself is.
    pub(crate) span: Range<usize>,
    pub(crate) value: Value<'a>,
}

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    /// A number, true, false, null, a date: as written, on one line.
    Literal(&'a str),
    String(&'a str),
    Array(&'a [Node<'a>]),
    /// In the order in which it is written; no key is there twice.
    Object(&'a [Node<'a>]),
}

impl<'a> Node<'a> {
    /// Elements or members.
    pub(crate) fn children(&self) -> &'a [Node<'a>] {
        match &self.value {
            Value::Array(nodes) | Value::Object(nodes) => nodes,
            Value::Literal(_) | Value::String(_) => &[],
        }
    }

    /// With its key.
    pub(crate) fn item(&self) -> Range<usize> {
        self.start..self.span.end
    }
}

/// Whether they say the same; the order of members says nothing.
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

/// Whether a key is there twice.
pub(crate) fn has_twice(members: &[Node<'_>]) -> bool {
    if members.len() > keyed::FEW {
        return Keyed::members(members).has_twice();
    }
    let is_before =
        |(at, node): (usize, &Node<'_>)| members[..at].iter().any(|before| before.key == node.key);
    members.iter().enumerate().any(is_before)
}
