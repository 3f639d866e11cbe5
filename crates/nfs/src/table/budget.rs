//! Memory of the tables of file handles, for all exports together. When it is used up, tables above their share evict
//! files.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::entry::Entry;

/// Minimum share of a table in bytes, even if all tables together use more than the maximum then.
const TABLE_MIN: usize = 1024 * 1024;

/// Estimated memory of a file without its names, in bytes: its slots in the maps, which may be less than half full, and
/// in the queue for eviction.
const FILE_COST: usize = 352;

/// Estimated memory of a name without its characters, in bytes: its allocation, and its slot in the list of locations.
const NAME_COST: usize = 64;

/// Memory of the tables of all exports together.
#[derive(Debug)]
pub(crate) struct TableBudget {
    /// Maximum in bytes.
    max: usize,
    /// Minimum share of a table in bytes.
    table_min: usize,
    /// Memory that all tables use, in bytes.
    used: AtomicUsize,
    /// Number of tables.
    tables: AtomicUsize,
}

impl TableBudget {
    pub(crate) fn new(max: usize) -> Self {
        Self::with_table_min(max, TABLE_MIN)
    }

    pub(super) fn with_table_min(max: usize, table_min: usize) -> Self {
        Self { max, table_min, used: AtomicUsize::new(0), tables: AtomicUsize::new(0) }
    }

    /// Returns the share of a table in bytes, which it may use even if the others use all of the budget: an equal part
    /// of the maximum, or the minimum if that is more.
    fn share(&self) -> usize {
        self.table_min.max(self.max / self.tables.load(Ordering::Relaxed).max(1))
    }
}

/// Memory of one table, which counts towards the budget of all.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<TableBudget>,
    /// Memory that the table uses, in bytes.
    used: usize,
}

impl Account {
    pub(super) fn new(budget: &Arc<TableBudget>) -> Self {
        budget.tables.fetch_add(1, Ordering::Relaxed);
        Self { budget: Arc::clone(budget), used: 0 }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Adds the memory of a file.
    pub(super) fn charge(&mut self, entry: &Entry) {
        let cost = cost(entry);
        self.used += cost;
        self.budget.used.fetch_add(cost, Ordering::Relaxed);
    }

    /// Subtracts the memory of a file.
    pub(super) fn release(&mut self, entry: &Entry) {
        let cost = cost(entry);
        self.used -= cost;
        self.budget.used.fetch_sub(cost, Ordering::Relaxed);
    }

    /// Returns true if all tables together use more than the maximum, and this one more than its share.
    ///
    /// So a table below its share may grow even if the others use all of the budget. The others evict files when they
    /// add one, and in the next [`Table::shrink`](super::Table::shrink).
    pub(super) fn is_exceeded(&self) -> bool {
        self.budget.used.load(Ordering::Relaxed) > self.budget.max && self.used > self.budget.share()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.used, Ordering::Relaxed);
        self.budget.tables.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the estimated memory of a file in a table, in bytes.
fn cost(entry: &Entry) -> usize {
    let names = entry.locations().map(|location| NAME_COST + location.name.to_bytes().len());
    FILE_COST + names.sum::<usize>()
}
