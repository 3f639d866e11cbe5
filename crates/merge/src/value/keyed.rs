//! Values found by what tells them from each other.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;

use super::{Node, Value};

/// Up to here, looking at each takes less time than to make an index.
pub(super) const FEW: usize = 16;

/// The children of a container, each with a name.
#[derive(Debug, Default)]
pub(crate) struct Keyed<'d, 'a> {
    pub(crate) nodes: &'d [Node<'a>],
    names: Names<'d, 'a>,
    index: OnceCell<HashMap<&'d str, usize>>,
}

#[derive(Debug, Default)]
enum Names<'d, 'a> {
    /// Keys of an object.
    #[default]
    Keys,
    /// What elements of an array have in the field that tells them from each other.
    Fields(Vec<&'d Node<'a>>),
    /// Names that were found elsewhere, one for each.
    Given(&'d [String]),
}

impl<'d, 'a> Keyed<'d, 'a> {
    /// Members of an object, by key.
    pub(crate) fn members(nodes: &'d [Node<'a>]) -> Self {
        Self { nodes, names: Names::Keys, index: OnceCell::new() }
    }

    /// Elements of an array, by a field; none unless all have it, and each another value in it.
    pub(crate) fn elements(nodes: &'d [Node<'a>], field: &str) -> Option<Self> {
        let names = nodes.iter().map(|node| name_in(node, field)).collect::<Option<Vec<_>>>()?;
        let keyed = Self { nodes, names: Names::Fields(names), index: OnceCell::new() };
        (!keyed.has_twice()).then_some(keyed)
    }

    /// Elements of an array, each with a name that no other one has.
    pub(crate) fn given(nodes: &'d [Node<'a>], names: &'d [String]) -> Self {
        Self { nodes, names: Names::Given(names), index: OnceCell::new() }
    }

    /// What one is called.
    pub(crate) fn name(&self, at: usize) -> &'d str {
        match &self.names {
            Names::Keys => self.nodes[at].key,
            Names::Fields(fields) => match &fields[at].value {
                Value::String(text) | Value::Literal(text) => text,
                Value::Array(_) | Value::Object(_) => "",
            },
            Names::Given(names) => &names[at],
        }
    }

    /// Where the one of this name is, which may well be at `hint`.
    pub(crate) fn find(&self, name: &str, hint: usize) -> Option<usize> {
        if hint < self.nodes.len() && self.name(hint) == name {
            return Some(hint);
        }
        if self.nodes.len() <= FEW {
            return (0..self.nodes.len()).find(|at| self.name(*at) == name);
        }
        self.index().get(name).copied()
    }

    /// The one of this name.
    pub(crate) fn get(&self, name: &str, hint: usize) -> Option<&'d Node<'a>> {
        self.find(name, hint).map(|at| &self.nodes[at])
    }

    pub(crate) fn has_twice(&self) -> bool {
        let length = self.nodes.len();
        // Names are often in order, and nothing has to be remembered then.
        if (1..length).all(|at| is_before(self.name(at - 1), self.name(at))) {
            return false;
        }
        if length <= FEW {
            return (1..length).any(|at| (0..at).any(|before| self.name(before) == self.name(at)));
        }
        self.index().len() != length
    }

    fn index(&self) -> &HashMap<&'d str, usize> {
        self.index.get_or_init(|| (0..self.nodes.len()).map(|at| (self.name(at), at)).collect())
    }
}

/// Which of two names comes first: numbers by size, then everything else.
pub(super) fn is_before(one: &str, other: &str) -> bool {
    let rank = |name: &str| {
        let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { (0, name.len()) } else { (1, 0) }
    };
    (rank(one), one) < (rank(other), other)
}

/// What an element has in a field, if that can be a name.
fn name_in<'d, 'a>(node: &'d Node<'a>, field: &str) -> Option<&'d Node<'a>> {
    let Value::Object(members) = &node.value else { return None };
    let found = members.iter().find(|member| member.key == field)?;
    match found.value {
        Value::Literal(_) | Value::String(_) => Some(found),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// A name as it is shown in a path.
pub(crate) fn shown(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-$/@".contains(&byte) || !byte.is_ascii();
    if !name.is_empty() && name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("{name:?}"))
}
