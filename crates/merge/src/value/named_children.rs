//! Lookup of children of a container by name: members of an object by key, and elements of an array by a key field or
//! by generated names.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;

use super::{SyntaxNode, Value};

/// Maximum number of children for a linear search. Up to this number, it is faster than building an index.
pub(super) const LINEAR_SEARCH_MAX: usize = 16;

/// Children of a container by name. Names are unique, except that [`Self::by_key`] does not check that: see
/// [`Self::has_duplicates`]. If several children have a name, a lookup returns any of them.
#[derive(Debug, Default)]
pub(crate) struct NamedChildren<'d, 'a> {
    pub(crate) nodes: &'d [SyntaxNode<'a>],
    names: Names<'d, 'a>,
    /// Index of each child by name, built when a lookup needs it.
    index: OnceCell<HashMap<&'d str, usize>>,
}

/// Source of the names of children.
#[derive(Debug, Default)]
enum Names<'d, 'a> {
    /// Keys of an object's members.
    #[default]
    Keys,
    /// Value of the key field of each array element.
    Fields(Vec<&'d SyntaxNode<'a>>),
    /// Names from the caller, one for each child.
    External(&'d [String]),
}

impl<'d, 'a> NamedChildren<'d, 'a> {
    /// Creates a lookup of members by key.
    pub(crate) fn by_key(nodes: &'d [SyntaxNode<'a>]) -> Self {
        Self { nodes, names: Names::Keys, index: OnceCell::new() }
    }

    /// Creates a lookup of array elements by a field; `None` unless all elements have the field with a
    /// unique scalar value.
    pub(crate) fn by_field(nodes: &'d [SyntaxNode<'a>], field: &str) -> Option<Self> {
        let names = nodes.iter().map(|node| scalar_field(node, field)).collect::<Option<Vec<_>>>()?;
        let named = Self { nodes, names: Names::Fields(names), index: OnceCell::new() };
        (!named.has_duplicates()).then_some(named)
    }

    /// Creates a lookup by `names`: one for each child, and all unique.
    pub(crate) fn with_names(nodes: &'d [SyntaxNode<'a>], names: &'d [String]) -> Self {
        Self { nodes, names: Names::External(names), index: OnceCell::new() }
    }

    /// Returns the name of the child at an index.
    pub(crate) fn name(&self, index: usize) -> &'d str {
        match &self.names {
            Names::Keys => self.nodes[index].key,
            Names::Fields(fields) => match &fields[index].value {
                Value::String(text) | Value::Literal(text) => text,
                Value::Array(_) | Value::Object(_) => "",
            },
            Names::External(names) => &names[index],
        }
    }

    /// Returns the index of the child with this name. The index `hint` is tried first.
    pub(crate) fn find(&self, name: &str, hint: usize) -> Option<usize> {
        if hint < self.nodes.len() && self.name(hint) == name {
            return Some(hint);
        }
        if self.nodes.len() <= LINEAR_SEARCH_MAX {
            return (0..self.nodes.len()).find(|index| self.name(*index) == name);
        }
        self.index().get(name).copied()
    }

    /// Returns the child with this name. The index `hint` is tried first.
    pub(crate) fn get(&self, name: &str, hint: usize) -> Option<&'d SyntaxNode<'a>> {
        self.find(name, hint).map(|index| &self.nodes[index])
    }

    /// Returns true if several children have the same name.
    pub(crate) fn has_duplicates(&self) -> bool {
        let length = self.nodes.len();
        // Sorted names, which are common, need no index.
        if (1..length).all(|index| sorts_before(self.name(index - 1), self.name(index))) {
            return false;
        }
        if length <= LINEAR_SEARCH_MAX {
            return (1..length).any(|index| (0..index).any(|before| self.name(before) == self.name(index)));
        }
        self.index().len() != length
    }

    fn index(&self) -> &HashMap<&'d str, usize> {
        self.index.get_or_init(|| (0..self.nodes.len()).map(|index| (self.name(index), index)).collect())
    }
}

/// Returns true if the name `a` sorts before `b`. Names that consist of digits come first, ordered by length and then
/// as text: that is the order of their values if they have no leading zeros. All other names are ordered as text.
pub(super) fn sorts_before(a: &str, b: &str) -> bool {
    let rank = |name: &str| {
        let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { (0, name.len()) } else { (1, 0) }
    };
    (rank(a), a) < (rank(b), b)
}

/// Returns the value of a field of an array element; `None` if the element is not an object, does not have the field,
/// or the value is not a scalar.
fn scalar_field<'d, 'a>(node: &'d SyntaxNode<'a>, field: &str) -> Option<&'d SyntaxNode<'a>> {
    let Value::Object(members) = &node.value else { return None };
    let member = members.iter().find(|member| member.key == field)?;
    match member.value {
        Value::Literal(_) | Value::String(_) => Some(member),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// Formats a name for the path of a value, in quotes if it is empty or has special characters.
pub(crate) fn display_name(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-$/@".contains(&byte) || !byte.is_ascii();
    if !name.is_empty() && name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("{name:?}"))
}
