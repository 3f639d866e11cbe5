//! Snapshots: immutable records of a tree with parents, author, message and time.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Timespec, Timestamps};
use serde::{Deserialize, Serialize};

use crate::codec::{DecodeError, Decoded, Reader, Write};
use crate::id::{NodeId, SnapshotId, TreeId};

/// A point in time: nanoseconds since the Unix epoch, negative before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the current time.
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// Returns this time as access time and modification time of a file, for `utimensat`.
    pub(crate) fn file_times(self) -> Timestamps {
        let time = Timespec {
            tv_sec: self.0.div_euclid(1_000_000_000),
            tv_nsec: self.0.rem_euclid(1_000_000_000) as _,
        };
        Timestamps { last_access: time, last_modification: time }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(nanos(after)),
            Err(before) => Self(-nanos(before.duration())),
        }
    }
}

/// A snapshot: an immutable record of a tree. Garbage collection keeps the objects of all snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Unique id.
    pub id: SnapshotId,
    /// Tree with all files.
    pub tree: TreeId,
    /// Root of a second tree of the same shape, with modification times and link labels. A link label is a number that
    /// all hard links to one file have in common.
    pub times: NodeId,
    /// Snapshots that this one was derived from.
    pub parents: Vec<SnapshotId>,
    /// Author, free text.
    pub author: String,
    /// Message, free text.
    pub message: String,
    /// Creation time.
    pub time: Timestamp,
    /// Labels: texts by name, for the caller. Retention rules can keep snapshots with labels.
    pub labels: BTreeMap<String, String>,
    /// Root filesystem of the sandbox in which the snapshot was made; `None` if the snapshot has only the files of a
    /// directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<Box<SnapshotRoot>>,
}

/// Root filesystem of a sandbox as a part of a snapshot: a tree of its own, beside the tree of its working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotRoot {
    /// Tree with all files. Extended attributes name the owner of a file, unless it is user 0.
    pub tree: TreeId,
    /// Root of the second tree, as in [`Snapshot::times`].
    pub times: NodeId,
    /// Name of the template, the root filesystem from which the sandbox was started.
    pub template: String,
}

/// Byte after the labels of an encoded snapshot if a root filesystem follows. Records of format 1 end with the labels.
const ROOT_TAG: u8 = 1;

impl Snapshot {
    /// Returns the ids of the root nodes of all trees of the snapshot.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = [u8; 32]> + '_ {
        let of_root = self.root.iter().flat_map(|root| [*root.tree.as_bytes(), *root.times.as_bytes()]);
        [*self.tree.as_bytes(), *self.times.as_bytes()].into_iter().chain(of_root)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160 + self.message.len());
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(self.tree.as_bytes());
        out.extend_from_slice(self.times.as_bytes());
        out.varint(self.parents.len() as u64);
        for parent in &self.parents {
            out.extend_from_slice(parent.as_bytes());
        }
        out.blob(self.author.as_bytes());
        out.blob(self.message.as_bytes());
        out.zigzag(self.time.0);
        out.varint(self.labels.len() as u64);
        for (key, value) in &self.labels {
            out.blob(key.as_bytes());
            out.blob(value.as_bytes());
        }
        if let Some(root) = &self.root {
            out.push(ROOT_TAG);
            out.extend_from_slice(root.tree.as_bytes());
            out.extend_from_slice(root.times.as_bytes());
            out.blob(root.template.as_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let id = SnapshotId::from_bytes(reader.array()?);
        let tree = TreeId::from_bytes(reader.array()?);
        let times = NodeId::from_bytes(reader.array()?);
        let parents = reader.item_count(16)?;
        let parents =
            (0..parents).map(|_| reader.array().map(SnapshotId::from_bytes)).collect::<Decoded<_>>()?;
        let author = reader.text()?;
        let message = reader.text()?;
        let time = Timestamp(reader.zigzag()?);
        let mut labels = BTreeMap::new();
        for _ in 0..reader.item_count(2)? {
            let key = reader.text()?;
            if labels.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(DecodeError("labels are not sorted"));
            }
            labels.insert(key, reader.text()?);
        }
        let root = if reader.is_empty() { None } else { Some(Box::new(SnapshotRoot::decode(&mut reader)?)) };
        reader.expect_end()?;
        Ok(Self { id, tree, times, parents, author, message, time, labels, root })
    }
}

impl SnapshotRoot {
    fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        if reader.u8()? != ROOT_TAG {
            return Err(DecodeError("unknown part of a snapshot"));
        }
        Ok(Self {
            tree: TreeId::from_bytes(reader.array()?),
            times: NodeId::from_bytes(reader.array()?),
            template: reader.text()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let snapshot = Snapshot {
            id: SnapshotId::generate(),
            tree: TreeId::of(b"tree"),
            times: NodeId::of(b"times"),
            parents: vec![SnapshotId::generate(), SnapshotId::generate()],
            author: "ada".to_owned(),
            message: "line\nline".to_owned(),
            time: Timestamp(-5),
            labels: BTreeMap::from([("keep".to_owned(), "yes".to_owned())]),
            root: None,
        };
        let bytes = snapshot.encode();
        assert_eq!(Snapshot::decode(&bytes).unwrap(), snapshot);
        assert!(Snapshot::decode(&bytes[..bytes.len() - 1]).is_err());
        let root = SnapshotRoot {
            tree: TreeId::of(b"root"),
            times: NodeId::of(b"then"),
            template: "a:1".to_owned(),
        };
        let with_root = Snapshot { root: Some(Box::new(root)), ..snapshot };
        let bytes_with_root = with_root.encode();
        assert!(bytes_with_root.starts_with(&bytes), "a record without a root is as in format 1");
        assert_eq!(Snapshot::decode(&bytes_with_root).unwrap(), with_root);
        for len in bytes.len() + 1..bytes_with_root.len() {
            assert!(Snapshot::decode(&bytes_with_root[..len]).is_err());
        }
    }
}
