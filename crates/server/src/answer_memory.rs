//! The memory of answers that are held as a whole: bounded for each owner, from the first byte until the last was sent.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::per_owner::PerOwner;

/// Bytes that the answers of one owner may have together.
const PER_OWNER: usize = 128 << 20;
/// One permit stands for so many bytes.
const UNIT: usize = 4 << 10;

/// The memory of every owner's answers.
#[derive(Debug)]
pub(crate) struct AnswerMemory(PerOwner);

impl Default for AnswerMemory {
    fn default() -> Self {
        Self(PerOwner::new(PER_OWNER / UNIT))
    }
}

impl AnswerMemory {
    /// An answer that has no bytes yet.
    pub(crate) fn begin(&self, owner: &str) -> Held {
        Held { left: self.0.of(owner), permit: None, bytes: 0 }
    }
}

/// The memory that one answer holds.
#[derive(Debug)]
pub(crate) struct Held {
    left: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Held {
    /// Takes the memory that these bytes need in JSON. `false` when the owner's answers have taken all there is.
    pub(crate) fn grow(&mut self, data: &[u8]) -> bool {
        self.grow_by(json_size(data))
    }

    /// The same for so many bytes.
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

/// About how many bytes of JSON these bytes become. One that is not UTF-8 has three as the character that stands for it, and
/// one and a third as base64.
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
    fn what_the_answers_of_one_owner_hold_is_bounded_and_given_back() {
        let memory = AnswerMemory::default();
        let (mut first, mut second) = (memory.begin("a"), memory.begin("a"));
        let piece = vec![0; 1 << 20];
        let taken = (0..1000).take_while(|_| first.grow(&piece)).count();
        assert_eq!(taken, PER_OWNER / (6 << 20), "a NUL has six bytes in JSON");
        assert!(!second.grow(&[b'x'; 8 << 20]), "there is little left");
        assert!(memory.begin("b").grow(&piece), "another owner has its own");
        drop(first);
        assert!(memory.begin("a").grow(&[b'x'; 8 << 20]));
    }
}
