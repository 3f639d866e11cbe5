//! Memory of the tables of all exports together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::entry::Entry;

/// Memory that each table may have, in bytes, whatever others use.
const TABLE_MIN: usize = 1024 * 1024;

/// Memory of a file without its names, in bytes: its places in the maps, which may be less than half full, and in the
/// clock.
const FILE_COST: usize = 352;

/// Memory of a name without its characters, in bytes: its allocation, and its place in the list of other names.
const NAME_COST: usize = 64;

/// Memory of the tables of all exports together.
#[derive(Debug)]
pub(crate) struct TableBudget {
    /// Maximum in bytes.
    max: usize,
    /// Memory that each table may have, in bytes.
    table_min: usize,
    used: AtomicUsize,
    tables: AtomicUsize,
}

impl TableBudget {
    pub(crate) fn new(max: usize) -> Self {
        Self::with_table_min(max, TABLE_MIN)
    }

    pub(super) fn with_table_min(max: usize, table_min: usize) -> Self {
        Self { max, table_min, used: AtomicUsize::new(0), tables: AtomicUsize::new(0) }
    }

    /// Memory that each table may have, whatever others use: an equal share, or the minimum if that is more.
    fn share(&self) -> usize {
        self.table_min.max(self.max / self.tables.load(Ordering::Relaxed).max(1))
    }
}

/// Memory of one table.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<TableBudget>,
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

    pub(super) fn charge(&mut self, entry: &Entry) {
        let cost = cost(entry);
        self.used += cost;
        self.budget.used.fetch_add(cost, Ordering::Relaxed);
    }

    pub(super) fn release(&mut self, entry: &Entry) {
        let cost = cost(entry);
        self.used -= cost;
        self.budget.used.fetch_sub(cost, Ordering::Relaxed);
    }

    /// Returns true if all tables together use more than the maximum, and this one more than its share.
    ///
    /// A table may take its share although others use all of the budget: they give it back when they add files, and
    /// with the next [`Table::shrink`](super::Table::shrink).
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

/// Returns the memory of a file in a table, in bytes.
fn cost(entry: &Entry) -> usize {
    let names = entry.locations().map(|location| NAME_COST + location.name.to_bytes().len());
    FILE_COST + names.sum::<usize>()
}
