//! JSON values for the CRDT strategy. Unlike syntax nodes, they own their content and have no position in a text.

use std::collections::BTreeMap;

use bumpalo::Bump;

use super::schema::Schema;
use crate::file_settings::CrdtType;
use crate::json;
use crate::quote::{Escaping, push_quoted};
use crate::value::{SyntaxNode, Value};

/// Maximum number of digits, including the sign, of a counter. Longer numbers are registers (single values).
const DIGITS_MAX: usize = 30;

/// JSON value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum JsonValue {
    /// Source text of a number, boolean or null.
    Literal(String),
    /// Content of a string, without quotes and escapes.
    String(String),
    Array(Vec<JsonValue>),
    Object(BTreeMap<String, JsonValue>),
}

impl JsonValue {
    /// Parses a JSON file; `None` if it is invalid.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let arena = Bump::new();
        let document = json::parse(std::str::from_utf8(text).ok()?, &arena)?;
        Some(Self::of(&document.root))
    }

    /// Copies the value of a syntax node.
    fn of(node: &SyntaxNode<'_>) -> Self {
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

    /// Returns the base to assume for two versions without a base: an empty object or array if both are objects or both
    /// are arrays, or else null.
    pub(super) fn assumed_base(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Object(_), Self::Object(_)) => Self::Object(BTreeMap::new()),
            (Self::Array(_), Self::Array(_)) => Self::Array(Vec::new()),
            _ => Self::null(),
        }
    }

    /// Returns the value as an integer; `None` if it is not an integer, or does not fit in 64 bits.
    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Self::Literal(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Returns the value as the total of a counter; `None` if it is not an integer of at most [`DIGITS_MAX`]
    /// characters. With this limit, sums of many totals do not overflow.
    pub(super) fn counter(&self) -> Option<i128> {
        match self {
            Self::Literal(text) if text.len() <= DIGITS_MAX => text.parse().ok(),
            _ => None,
        }
    }

    /// Counts all values, including itself.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Literal(_) | Self::String(_) => 1,
            Self::Array(elements) => 1 + elements.iter().map(Self::count).sum::<usize>(),
            Self::Object(members) => 1 + members.values().map(Self::count).sum::<usize>(),
        }
    }

    /// Returns the value with all counters set to 0, so that comparisons ignore them. `path` is the path of the value
    /// in the schema.
    pub(super) fn with_counters_at_zero(&self, schema: &Schema, path: &mut Vec<String>) -> Self {
        let mut child_at_zero = |key: &str, value: &Self| {
            path.push(key.to_owned());
            let value = value.with_counters_at_zero(schema, path);
            path.pop();
            value
        };
        match self {
            Self::Array(elements) => {
                Self::Array(elements.iter().map(|value| child_at_zero("*", value)).collect())
            }
            Self::Object(members) => Self::Object(
                members.iter().map(|(key, value)| (key.clone(), child_at_zero(key, value))).collect(),
            ),
            Self::Literal(_) if self.counter().is_some() && schema.kind(path) == CrdtType::Counter => {
                Self::Literal("0".to_owned())
            }
            Self::Literal(_) | Self::String(_) => self.clone(),
        }
    }

    /// Returns the canonical text: sorted keys, indented by two spaces.
    pub(super) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out.push('\n');
        out
    }

    /// Returns the canonical text on one line, which is the key of a value in a set.
    pub(super) fn to_set_key(&self) -> String {
        match self {
            Self::Literal(text) => text.clone(),
            Self::String(text) => quoted(text),
            Self::Array(elements) => {
                format!("[{}]", elements.iter().map(Self::to_set_key).collect::<Vec<_>>().join(","))
            }
            Self::Object(members) => {
                let member =
                    |(key, value): (&String, &Self)| format!("{}:{}", quoted(key), value.to_set_key());
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
            }
        }
    }

    /// Appends the canonical text. `depth` is the number of enclosing arrays and objects.
    fn write(&self, out: &mut String, depth: usize) {
        let start_line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        };
        match self {
            Self::Literal(text) => out.push_str(text),
            Self::String(text) => push_quoted(out, text, Escaping::Minimal),
            Self::Array(elements) if elements.is_empty() => out.push_str("[]"),
            Self::Object(members) if members.is_empty() => out.push_str("{}"),
            Self::Array(elements) => {
                for (number, value) in elements.iter().enumerate() {
                    out.push(if number == 0 { '[' } else { ',' });
                    start_line(out, depth + 1);
                    value.write(out, depth + 1);
                }
                start_line(out, depth);
                out.push(']');
            }
            Self::Object(members) => {
                for (number, (key, value)) in members.iter().enumerate() {
                    out.push(if number == 0 { '{' } else { ',' });
                    start_line(out, depth + 1);
                    push_quoted(out, key, Escaping::Minimal);
                    out.push_str(": ");
                    value.write(out, depth + 1);
                }
                start_line(out, depth);
                out.push('}');
            }
        }
    }
}

/// Returns a string as JSON.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_quoted(&mut out, text, Escaping::Minimal);
    out
}
