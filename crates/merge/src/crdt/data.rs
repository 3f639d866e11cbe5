//! JSON by itself, without the text it came from.

use std::collections::BTreeMap;

use bumpalo::Bump;

use super::schema::Schema;
use crate::json::{self, Letters};
use crate::policy::Crdt;
use crate::value::{Node, Value};

/// Longer numbers are no counters.
const DIGITS_MAX: usize = 30;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Data {
    /// A number, true, false or null, as written.
    Literal(String),
    String(String),
    Array(Vec<Data>),
    Object(BTreeMap<String, Data>),
}

impl Data {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let arena = Bump::new();
        let document = json::parse(std::str::from_utf8(text).ok()?, &arena)?;
        Some(Self::of(&document.root))
    }

    fn of(node: &Node<'_>) -> Self {
        match &node.value {
            Value::Literal(text) => Self::Literal((*text).to_owned()),
            Value::String(text) => Self::String((*text).to_owned()),
            Value::Array(nodes) => Self::Array(nodes.iter().map(Self::of).collect()),
            Value::Object(nodes) => {
                Self::Object(nodes.iter().map(|node| (node.key.to_owned(), Self::of(node))).collect())
            }
        }
    }

    pub(super) fn null() -> Self {
        Self::Literal("null".to_owned())
    }

    /// What two values have in common at least.
    pub(super) fn emptied_like(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Object(_), Self::Object(_)) => Self::Object(BTreeMap::new()),
            (Self::Array(_), Self::Array(_)) => Self::Array(Vec::new()),
            _ => Self::null(),
        }
    }

    /// As a whole number.
    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Self::Literal(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// As the value of a counter: a whole number of at most [`DIGITS_MAX`] digits, so that sums of many are in range.
    pub(super) fn counter(&self) -> Option<i128> {
        match self {
            Self::Literal(text) if text.len() <= DIGITS_MAX => text.parse().ok(),
            _ => None,
        }
    }

    /// How many values it is made of, itself included.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Literal(_) | Self::String(_) => 1,
            Self::Array(all) => 1 + all.iter().map(Self::count).sum::<usize>(),
            Self::Object(all) => 1 + all.values().map(Self::count).sum::<usize>(),
        }
    }

    /// The same with every counter at 0, to tell what else differs.
    pub(super) fn without_counts(&self, schema: &Schema, path: &mut Vec<String>) -> Self {
        let mut below = |key: &str, value: &Self| {
            path.push(key.to_owned());
            let value = value.without_counts(schema, path);
            path.pop();
            value
        };
        match self {
            Self::Array(all) => Self::Array(all.iter().map(|value| below("*", value)).collect()),
            Self::Object(all) => {
                Self::Object(all.iter().map(|(key, value)| (key.clone(), below(key, value))).collect())
            }
            Self::Literal(_) if self.counter().is_some() && schema.kind(path) == Crdt::Counter => {
                Self::Literal("0".to_owned())
            }
            Self::Literal(_) | Self::String(_) => self.clone(),
        }
    }

    /// In the one form in which it is written.
    pub(super) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out.push('\n');
        out
    }

    /// On one line, to be told from others by.
    pub(super) fn to_name(&self) -> String {
        match self {
            Self::Literal(text) => text.clone(),
            Self::String(text) => quoted(text),
            Self::Array(all) => format!("[{}]", all.iter().map(Self::to_name).collect::<Vec<_>>().join(",")),
            Self::Object(all) => {
                let member = |(key, value): (&String, &Self)| format!("{}:{}", quoted(key), value.to_name());
                format!("{{{}}}", all.iter().map(member).collect::<Vec<_>>().join(","))
            }
        }
    }

    fn write(&self, out: &mut String, depth: usize) {
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        };
        match self {
            Self::Literal(text) => out.push_str(text),
            Self::String(text) => json::push_quoted(out, text, Letters::All),
            Self::Array(all) if all.is_empty() => out.push_str("[]"),
            Self::Object(all) if all.is_empty() => out.push_str("{}"),
            Self::Array(all) => {
                for (number, value) in all.iter().enumerate() {
                    out.push(if number == 0 { '[' } else { ',' });
                    line(out, depth + 1);
                    value.write(out, depth + 1);
                }
                line(out, depth);
                out.push(']');
            }
            Self::Object(all) => {
                for (number, (key, value)) in all.iter().enumerate() {
                    out.push(if number == 0 { '{' } else { ',' });
                    line(out, depth + 1);
                    json::push_quoted(out, key, Letters::All);
                    out.push_str(": ");
                    value.write(out, depth + 1);
                }
                line(out, depth);
                out.push('}');
            }
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    json::push_quoted(&mut out, text, Letters::All);
    out
}
