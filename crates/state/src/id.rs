//! Identifiers: hashes of content and ids of records.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Error of parsing an id.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{text}` is not a {what}: expected {expected}")]
pub struct ParseIdError {
    /// Type of the id, such as `chunk id`.
    what: &'static str,
    /// Description of a valid id.
    expected: &'static str,
    text: String,
}

/// Hasher for keys that are, or contain, a BLAKE3 hash. The first eight bytes of the hash are uniformly distributed,
/// and need no further hashing. Other fields of the key are mixed in.
#[derive(Default, Clone, Copy)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut word = [0; 8];
        let len = bytes.len().min(8);
        word[..len].copy_from_slice(&bytes[..len]);
        self.0 = self.0.rotate_left(5) ^ u64::from_le_bytes(word);
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = self.0.rotate_left(5) ^ number as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Builder of [`IdHasher`]s, for maps and sets whose keys are or contain an id.
pub(crate) type IdHashBuilder = BuildHasherDefault<IdHasher>;

macro_rules! hash_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// Returns the id of `content`.
            pub fn of(content: &[u8]) -> Self {
                Self(*blake3::hash(content).as_bytes())
            }

            /// Returns the bytes of the hash.
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// Wraps a hash that was computed before.
            pub fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_hex(text).map(Self).ok_or_else(|| ParseIdError {
                    what: $what,
                    expected: "64 hexadecimal digits",
                    text: text.to_owned(),
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hash_id!(
    /// Id of a chunk (a piece of file content): the BLAKE3 hash of its bytes.
    ChunkId,
    "chunk id"
);
hash_id!(
    /// Id of a node (a file, directory or symlink): the BLAKE3 hash of its canonical encoding.
    NodeId,
    "node id"
);
hash_id!(
    /// Id of a tree: the same bytes as the id of the directory node at its root.
    TreeId,
    "tree id"
);

impl TreeId {
    /// Returns the id of the directory node at the root of this tree.
    pub fn root(self) -> NodeId {
        NodeId(self.0)
    }
}

impl From<NodeId> for TreeId {
    fn from(node: NodeId) -> Self {
        Self(node.0)
    }
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = (pair[0] as char).to_digit(16)?;
        let low = (pair[1] as char).to_digit(16)?;
        *byte = (high * 16 + low) as u8;
    }
    Some(bytes)
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Generates a new id; later ids sort after earlier ones.
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }

            /// Returns the sixteen bytes of the id.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// Wraps an id read from storage.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                Uuid::try_parse(text).map(Self).map_err(|_| ParseIdError {
                    what: $what,
                    expected: "a UUID",
                    text: text.to_owned(),
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

uuid_id!(
    /// Id of a snapshot (UUIDv7: later ids sort after earlier ones).
    SnapshotId,
    "snapshot id"
);
uuid_id!(
    /// Id of an episode, a step of a search (UUIDv7).
    EpisodeId,
    "episode id"
);
uuid_id!(
    /// Id of a pin, a record that keeps the content of a snapshot while it is in use (UUIDv7).
    PinId,
    "pin id"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_ids_round_trip_through_text() {
        let id = ChunkId::of(b"hello");
        assert_eq!(id.to_string().parse::<ChunkId>().unwrap(), id);
        assert!("xyz".parse::<ChunkId>().is_err());
        assert!("é".repeat(32).parse::<ChunkId>().is_err());
    }

    #[test]
    fn the_hash_of_known_bytes_never_changes() {
        assert_eq!(
            ChunkId::of(b"").to_string(),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
    }
}
