//! Pins: records that protect the tree of a snapshot from garbage collection, even if the snapshot is removed. A mount
//! or a workspace (a writable directory made from a snapshot) pins the snapshot that it uses.

use crate::child_objects::ObjectId;
use crate::codec::{DecodeError, Decoded, Reader, Write};
use crate::id::{NodeId, PinId, SnapshotId, TreeId};
use crate::record::Kind;

/// A pin as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Unique id.
    pub id: PinId,
    /// Snapshot that was pinned.
    pub snapshot: SnapshotId,
    /// Tree that is protected.
    pub tree: TreeId,
    /// Root of the second tree with the modification times of that tree. It is protected too.
    pub times: NodeId,
    /// Text that names the holder of the pin, for example `lazy mount on PATH`; chosen by the caller.
    pub holder: String,
    /// True if the pin ends with the process that made it.
    pub ends_with_process: bool,
}

impl Pin {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(112 + self.holder.len());
        out.extend_from_slice(self.snapshot.as_bytes());
        out.extend_from_slice(self.tree.as_bytes());
        out.extend_from_slice(self.times.as_bytes());
        out.push(u8::from(self.ends_with_process));
        out.blob(self.holder.as_bytes());
        out
    }

    pub(crate) fn decode(id: PinId, bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let pin = Self {
            id,
            snapshot: SnapshotId::from_bytes(reader.array()?),
            tree: TreeId::from_bytes(reader.array()?),
            times: NodeId::from_bytes(reader.array()?),
            ends_with_process: match reader.u8()? {
                0 => false,
                1 => true,
                _ => return Err(DecodeError("neither of a process nor without one")),
            },
            holder: reader.text()?,
        };
        reader.expect_end()?;
        Ok(pin)
    }
}

/// Returns the root nodes that an encoded pin protects, with everything below them; none if it cannot be decoded.
pub(crate) fn roots(record: &[u8]) -> Vec<ObjectId> {
    Pin::decode(PinId::from_bytes([0; 16]), record).map_or_else(
        |_| Vec::new(),
        |pin| vec![(Kind::Node, *pin.tree.as_bytes()), (Kind::Node, *pin.times.as_bytes())],
    )
}
