//! Memory budgets per owner: for responses that are complete in memory until they have been sent, for uploads until they
//! are snapshots, and for transfers to and from sandboxes.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use workspace_sandbox::{MemoryGuard, TransferMemory};
use workspace_state::MemoryBudget;

use crate::keyed_semaphores::KeyedSemaphores;

/// Budget for the responses of one owner in bytes.
const RESPONSE_BYTES_MAX: usize = 128 << 20;
/// Budget for the uploads of one owner in bytes: names, attributes and extents of files. Enough for one archive with the
/// maximum number of files.
pub(crate) const UPLOAD_BYTES_MAX: usize = 768 << 20;
/// Budget for the queues between clients and sandboxes of one owner in bytes: 128 transfers of files, or 2,048 connections
/// to ports.
const TRANSFER_BYTES_MAX: usize = 256 << 20;
/// Bytes per permit of a semaphore.
const PERMIT_BYTES: usize = 4 << 10;

/// Memory budget per owner.
#[derive(Debug)]
pub(crate) struct OwnerMemory(KeyedSemaphores);

impl OwnerMemory {
    /// Creates the budgets for responses.
    pub(crate) fn for_responses() -> Self {
        Self::new(RESPONSE_BYTES_MAX)
    }

    /// Creates the budgets for uploads.
    pub(crate) fn for_uploads() -> Self {
        Self::new(UPLOAD_BYTES_MAX)
    }

    /// Creates the budgets for transfers.
    pub(crate) fn for_transfers() -> Self {
        Self::new(TRANSFER_BYTES_MAX)
    }

    /// Creates a budget of `bytes` for each owner.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(KeyedSemaphores::new(bytes / PERMIT_BYTES))
    }

    /// Creates an empty reservation for a response or an upload.
    pub(crate) fn reserve(&self, owner: &str) -> MemoryReservation {
        MemoryReservation { budget: self.0.semaphore(owner), permit: None, bytes: 0 }
    }
}

impl TransferMemory for OwnerMemory {
    fn reserve_transfer(&self, owner: &str, bytes: usize) -> Option<MemoryGuard> {
        let mut reservation = self.reserve(owner);
        reservation.grow_by(bytes).then(|| -> MemoryGuard { Box::new(reservation) })
    }
}

/// Memory of one response, upload or transfer. It is released on drop.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    budget: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl MemoryReservation {
    /// Adds the size that further output has in a JSON response, and counts it in `size`. Returns false if the budget
    /// of the owner is used up.
    pub(crate) fn grow_by_json_size(&mut self, size: &mut JsonSize, data: &[u8]) -> bool {
        self.grow_by(size.add(data))
    }

    /// Adds `bytes`. Returns false if the budget of the owner is used up.
    pub(crate) fn grow_by(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let held = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = self.bytes.div_ceil(PERMIT_BYTES).saturating_sub(held);
        let Ok(permit) =
            Arc::clone(&self.budget).try_acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX))
        else {
            return false;
        };
        match &mut self.permit {
            Some(all) => all.merge(permit),
            none => *none = Some(permit),
        }
        true
    }
}

/// Memory reservation of an upload, shared by the threads of the import.
#[derive(Debug)]
pub(crate) struct ImportMemory(Mutex<MemoryReservation>);

impl From<MemoryReservation> for ImportMemory {
    fn from(reservation: MemoryReservation) -> Self {
        Self(Mutex::new(reservation))
    }
}

impl MemoryBudget for ImportMemory {
    fn take(&self, bytes: u64) -> bool {
        let mut reservation = self.0.lock();
        usize::try_from(bytes).is_ok_and(|bytes| reservation.grow_by(bytes))
    }
}

/// Estimate of the size that the output of one stream of a command has in a JSON response, made piece by piece. Output
/// that is not UTF-8 is sent twice: as text, and all of it in base64.
#[derive(Debug, Default)]
pub(crate) struct JsonSize {
    /// Number of bytes of output so far.
    len: usize,
    /// Set if there was a byte that is not ASCII, so that the output may not be UTF-8.
    may_need_base64: bool,
}

impl JsonSize {
    /// Adds output. Returns the maximum number of bytes by which the response grows.
    fn add(&mut self, data: &[u8]) -> usize {
        let before = self.base64_size();
        self.len += data.len();
        self.may_need_base64 |= !data.is_ascii();
        data.iter().map(text_size).sum::<usize>() + self.base64_size() - before
    }

    fn base64_size(&self) -> usize {
        if self.may_need_base64 { self.len.div_ceil(3) * 4 } else { 0 }
    }
}

/// Returns the maximum size of a byte in the text of a JSON response. An invalid byte becomes a replacement character,
/// which has three.
fn text_size(byte: &u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        0x80.. => 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_one_owners_responses_is_bounded_and_released() {
        let memory = OwnerMemory::for_responses();
        let (mut first, mut second) = (memory.reserve("a"), memory.reserve("a"));
        let piece = vec![0; 1 << 20];
        let mut size = JsonSize::default();
        let taken = (0..1000).take_while(|_| first.grow_by_json_size(&mut size, &piece)).count();
        assert_eq!(taken, RESPONSE_BYTES_MAX / (6 << 20), "a NUL has six bytes in JSON");
        assert!(!second.grow_by(8 << 20), "there is little left");
        assert!(memory.reserve("b").grow_by(1 << 20), "another owner has its own");
        drop(first);
        assert!(memory.reserve("a").grow_by(8 << 20));
    }

    #[test]
    fn output_in_json_is_not_larger_than_its_estimate() {
        let ascii = &[b'x'; 1_000][..];
        let outputs: [&[&[u8]]; 5] = [
            &[ascii, ascii],
            &[ascii, b"\xff", ascii],
            &[b"\xc3", b"\xa9 is split", ascii],
            &[b"\0\x1b[1m\"\\\n\x7f", "\u{e9}\u{6f22}".as_bytes()],
            &[&[0xff; 100], &[0]],
        ];
        for pieces in outputs {
            let mut size = JsonSize::default();
            let estimate: usize = pieces.iter().map(|piece| size.add(piece)).sum();
            let bytes = pieces.concat();
            let text = serde_json::to_string(&String::from_utf8_lossy(&bytes)).unwrap().len() - 2;
            let base64 = if std::str::from_utf8(&bytes).is_ok() { 0 } else { bytes.len().div_ceil(3) * 4 };
            assert!(estimate >= text + base64, "{estimate} for {text} + {base64}");
        }
    }

    #[test]
    fn memory_of_one_owners_transfers_is_bounded_and_released() {
        let memory = OwnerMemory::for_transfers();
        let transfer = |owner| memory.reserve_transfer(owner, 2 << 20);
        let mut transfers: Vec<MemoryGuard> = std::iter::from_fn(|| transfer("a")).take(1_000).collect();
        assert_eq!(transfers.len(), TRANSFER_BYTES_MAX >> 21);
        assert!(transfer("b").is_some(), "another owner has its own");
        transfers.pop();
        assert!(transfer("a").is_some());
        assert!(memory.reserve_transfer("a", 4 << 20).is_none());
    }
}
