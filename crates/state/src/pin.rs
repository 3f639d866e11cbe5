//! Pin records. A pin keeps a tree alive even if no snapshot refers to it.

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
    /// Tree that is kept alive.
    pub tree: TreeId,
    /// Times of that tree.
    pub times: NodeId,
    /// Text that says who holds the pin, for example `lazy mount on PATH`; chosen by the caller.
    pub holder: String,
    /// True if the pin ends with its process.
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

/// Returns the objects that an encoded pin keeps alive.
pub(crate) fn roots(record: &[u8]) -> Vec<ObjectId> {
    Pin::decode(PinId::from_bytes([0; 16]), record).map_or_else(
        |_| Vec::new(),
        |pin| vec![(Kind::Node, *pin.tree.as_bytes()), (Kind::Node, *pin.times.as_bytes())],
    )
}
