//! Memory that is bounded for each owner: of answers that are held as a whole, from the first byte until the last was sent, and of
//! archives until they are snapshots.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use workspace_state::MemoryBudget;

use crate::per_owner::PerOwner;

/// Bytes that the answers of one owner may have together.
const ANSWERS: usize = 128 << 20;
/// Bytes of names, attributes and the places of content that the archives of one owner may have together while they come.
/// Enough for one with as many files as an archive may have.
pub(crate) const UPLOADS: usize = 768 << 20;
/// Bytes per permit.
const UNIT: usize = 4 << 10;

/// Memory budget per owner.
#[derive(Debug)]
pub(crate) struct OwnerMemory(PerOwner);

impl OwnerMemory {
    /// Creates the budget of responses.
    pub(crate) fn of_answers() -> Self {
        Self::new(ANSWERS)
    }

    /// Creates the budget of uploads.
    pub(crate) fn of_uploads() -> Self {
        Self::new(UPLOADS)
    }

    /// Creates a budget of `bytes` for each owner.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(PerOwner::new(bytes / UNIT))
    }

    /// Starts to account a response or an upload.
    pub(crate) fn begin(&self, owner: &str) -> Held {
        Held { left: self.0.of(owner), permit: None, bytes: 0 }
    }
}

/// Memory that one answer or archive holds.
#[derive(Debug)]
pub(crate) struct Held {
    left: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Held {
    /// Takes the memory that these bytes need in JSON. `false` when the owner has taken all there is.
    pub(crate) fn grow(&mut self, data: &[u8]) -> bool {
        self.grow_by(json_size(data))
    }

    /// Reserves `bytes`. Returns false if the owner's budget is used up.
    pub(crate) fn grow_by(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let has = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = self.bytes.div_ceil(UNIT).saturating_sub(has);
        let Ok(permit) =
            Arc::clone(&self.left).try_acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX))
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

/// The memory of an archive, as an import takes it.
#[derive(Debug)]
pub(crate) struct HeldByImport(Mutex<Held>);

impl From<Held> for HeldByImport {
    fn from(held: Held) -> Self {
        Self(Mutex::new(held))
    }
}

impl MemoryBudget for HeldByImport {
    fn take(&self, bytes: u64) -> bool {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        usize::try_from(bytes).is_ok_and(|bytes| held.grow_by(bytes))
    }
}

/// Estimates the size of these bytes in JSON. A byte that is not UTF-8 takes three as replacement character,
/// and one and a third in base64.
fn json_size(data: &[u8]) -> usize {
    let of = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        0x80.. => 5,
        _ => 1,
    };
    data.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_one_owners_responses_is_bounded_and_released() {
        let memory = OwnerMemory::of_answers();
        let (mut first, mut second) = (memory.begin("a"), memory.begin("a"));
        let piece = vec![0; 1 << 20];
        let taken = (0..1000).take_while(|_| first.grow(&piece)).count();
        assert_eq!(taken, ANSWERS / (6 << 20), "a NUL has six bytes in JSON");
        assert!(!second.grow(&[b'x'; 8 << 20]), "there is little left");
        assert!(memory.begin("b").grow(&piece), "another owner has its own");
        drop(first);
        assert!(memory.begin("a").grow(&[b'x'; 8 << 20]));
    }
}
