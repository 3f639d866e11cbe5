//! Memory of transfers: queues between clients and I/O workers, counted for the owner of the sandbox.
//!
//! A channel reserves the size of both its queues when it is opened: a frozen sandbox or a client that does not read
//! can fill them at any time. So an owner cannot fill the memory of the server by stalled transfers in many sandboxes.

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::{Result, SandboxError};

/// Reserved memory. Dropping it releases the memory.
pub type MemoryGuard = Box<dyn Debug + Send + Sync>;

/// Budget for the memory of transfers, by owner.
pub trait TransferMemory: Debug + Send + Sync {
    /// Reserves memory of an owner. `None` if its budget is used up.
    fn reserve_transfer(&self, owner: &str, bytes: usize) -> Option<MemoryGuard>;
}

/// Reserved memory that is released when a channel and all its queued messages are gone; `None` if it is not limited.
pub(crate) type SharedReservation = Option<Arc<MemoryGuard>>;

/// Budget of the owner of a sandbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnerBudget<'a> {
    /// Memory for transfers of all owners; `None` if it is not limited.
    memory: Option<&'a dyn TransferMemory>,
    owner: &'a str,
}

impl<'a> OwnerBudget<'a> {
    /// Returns the budget of an owner; without `memory`, it has no limit.
    pub(crate) fn new(memory: Option<&'a dyn TransferMemory>, owner: &'a str) -> Self {
        Self { memory, owner }
    }

    /// Reserves memory. Fails if the owner has too many transfers.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<SharedReservation> {
        let Some(memory) = self.memory else { return Ok(None) };
        let reserved = memory.reserve_transfer(self.owner, bytes);
        reserved.map(|guard| Some(Arc::new(guard))).ok_or(SandboxError::TransferMemory)
    }
}
