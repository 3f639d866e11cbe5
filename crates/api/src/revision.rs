//! Revision of a project: a sequence, or the id of the snapshot that a change made.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// State of a project in its history: sequence, or id of the snapshot. In a query, digits alone are a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revision {
    /// Number of changes of the head; 0 is the empty project.
    Sequence(u64),
    /// Id of a snapshot that was the head.
    Snapshot(String),
}

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequence(sequence) => sequence.fmt(formatter),
            Self::Snapshot(id) => id.fmt(formatter),
        }
    }
}

impl From<&str> for Revision {
    fn from(text: &str) -> Self {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(sequence) if is_number => Self::Sequence(sequence),
            _ => Self::Snapshot(text.to_owned()),
        }
    }
}

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Sequence(sequence) => serializer.serialize_u64(*sequence),
            Self::Snapshot(id) => serializer.serialize_str(id),
        }
    }
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parser;

        impl Visitor<'_> for Parser {
            type Value = Revision;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a sequence, or the id of a snapshot")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Revision, E> {
                Ok(Revision::Sequence(value))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Revision, E> {
                Ok(value.into())
            }
        }

        deserializer.deserialize_any(Parser)
    }
}

impl PartialSchema for Revision {
    fn schema() -> RefOr<Schema> {
        let sequence = ObjectBuilder::new().schema_type(SchemaType::new(Type::Integer)).minimum(Some(0));
        let snapshot = ObjectBuilder::new().schema_type(SchemaType::new(Type::String));
        let either = OneOfBuilder::new().item(sequence).item(snapshot);
        either.description(Some("Sequence of a project, or id of the snapshot that a change made.")).into()
    }
}

impl ToSchema for Revision {
    fn name() -> std::borrow::Cow<'static, str> {
        "Revision".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_sequence_and_other_text_is_a_snapshot() {
        assert_eq!(Revision::from("17"), Revision::Sequence(17));
        for text in ["", "-1", "+1", "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718", "99999999999999999999999"] {
            assert_eq!(Revision::from(text), Revision::Snapshot(text.to_owned()));
        }
        for revision in [Revision::Sequence(3), Revision::Snapshot("a".to_owned())] {
            let json = serde_json::to_string(&revision).unwrap();
            assert_eq!(serde_json::from_str::<Revision>(&json).unwrap(), revision);
        }
        assert!(serde_json::from_str::<Revision>("-1").is_err());
    }
}
