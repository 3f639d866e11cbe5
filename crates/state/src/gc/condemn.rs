//! Steps 2 and 3 of a garbage collection (see `gc.rs`), in transactions of bounded size.
//!
//! Step 2 condemns unreachable objects: it moves their index rows to the table of condemned objects, so that commits do
//! not reuse them. Each transaction of step 2 begins a new *epoch* and records it in its rows. Running operations hold
//! guards with the epoch in which they began (`gc_guards.rs`). Step 3 deletes a condemned object when all guards are of
//! its epoch or a later one.

use std::collections::HashMap;
use std::ops::Bound;

use rayon::prelude::*;

use crate::cancel::Cancel;
use crate::child_objects::ObjectId;
use crate::error::{IoContext, Result};
use crate::failpoint;
use crate::gc_guards::GcGuards;
use crate::id::IdHashBuilder;
use crate::index::condemned_key;
use crate::pack::Location;
use crate::pool;
use crate::record::Kind;
use crate::store::Inner;

use super::{BATCH_SIZE, DeadObjects, LiveObjects, MarkedRoots, Marking, UnsettledObjects, short_id};

impl Inner {
    /// Condemns the unreachable objects `dead`, except objects that became reachable after marking. `live` has the
    /// objects that marking reached, and `seen` the snapshots and pins from which it started.
    pub(super) fn condemn(
        &self,
        dead: DeadObjects,
        mut live: LiveObjects,
        mut seen: MarkedRoots,
        cancel: &Cancel,
    ) -> Result<()> {
        if dead.is_empty() {
            return Ok(());
        }
        let mut marked_sequence = None;
        for batch in self.parents_first(dead, cancel)?.chunks_mut(BATCH_SIZE) {
            cancel.check()?;
            self.mark_index_dirty()?;
            let mut txn = self.index.write()?;
            // Objects are condemned from the object tables, so the unsettled rows (one row for each small commit) are
            // moved to these tables first.
            self.index.settle(&mut txn)?;
            let Some(mut state) = self.index.log_state(&txn)? else { return Ok(()) };
            // Marks objects of new snapshots and pins. Only commits add these.
            if marked_sequence != Some(state.sequence) {
                let roots = self.roots(&txn, &mut seen, &mut Vec::new())?;
                self.mark(
                    (&txn, &UnsettledObjects::default()),
                    roots,
                    &mut live,
                    Marking::SingleThreaded,
                    cancel,
                )?;
                marked_sequence = Some(state.sequence);
            }
            // Operations that began after the last batch may rely on objects of this batch, so each batch needs its own
            // epoch.
            state.epoch += 1;
            batch.sort_unstable_by_key(|(object, _)| *object);
            for (object, location) in &*batch {
                let (kind, id) = object;
                if live.contains_key(&short_id(object)) || !self.index.objects(*kind).delete(&mut txn, id)? {
                    continue;
                }
                let mut row = location.encode().to_vec();
                row.extend_from_slice(&state.epoch.to_le_bytes());
                self.index.condemned.put(&mut txn, &condemned_key(*kind, id), &row)?;
            }
            self.index.put_log_state(&mut txn, &state)?;
            self.index.commit(txn)?;
            failpoint::hit("gc-condemned-batch").context("collect", &self.path)?;
        }
        Ok(())
    }

    /// Sorts dead objects so that they can be condemned in batches: each object comes after all dead objects that refer
    /// to it, or in the same batch.
    fn parents_first(&self, dead: DeadObjects, cancel: &Cancel) -> Result<DeadObjects> {
        let (nodes, chunks): (DeadObjects, DeadObjects) =
            dead.into_iter().partition(|((kind, _), _)| *kind == Kind::Node);
        // The order within one batch does not matter.
        let mut ordered = if nodes.len() > BATCH_SIZE { self.sort_nodes(&nodes, cancel)? } else { nodes };
        ordered.extend(chunks);
        Ok(ordered)
    }

    /// Sorts nodes so that each node comes after its parents.
    fn sort_nodes(&self, nodes: &[(ObjectId, Location)], cancel: &Cancel) -> Result<DeadObjects> {
        let numbers: HashMap<ObjectId, u32, IdHashBuilder> =
            nodes.iter().zip(0..).map(|((object, _), number)| (*object, number)).collect();
        let children = |((_, id), location): &(ObjectId, Location)| -> Result<Vec<u32>> {
            cancel.check()?;
            let references = match self.children_at(id, *location) {
                // No operation can rely on objects below a damaged dead node, so their order does not matter.
                Err(error) if error.is_corruption() => Vec::new(),
                references => references?,
            };
            let mut children: Vec<u32> =
                references.iter().filter_map(|object| numbers.get(object).copied()).collect();
            children.sort_unstable();
            children.dedup();
            Ok(children)
        };
        let children: Vec<Vec<u32>> = pool::run(|| nodes.par_iter().map(children).collect::<Result<_>>())?;
        Ok(topological_order(&children).into_iter().map(|number| nodes[number as usize]).collect())
    }

    /// Deletes the index rows of condemned objects that no running operation may use. Returns the total size of the
    /// remaining condemned objects in bytes.
    pub(super) fn delete_condemned(&self, cancel: &Cancel) -> Result<u64> {
        let oldest_epoch = GcGuards::oldest_epoch(&self.path.join("lock"))?.unwrap_or(u64::MAX);
        let mut remaining_bytes = 0;
        // Keys begin with the kind of the object, so this is less than any key.
        let mut last_key = vec![0];
        loop {
            cancel.check()?;
            let deletable = self.deletable(oldest_epoch, &last_key, &mut remaining_bytes)?;
            let Some(last) = deletable.last() else { return Ok(remaining_bytes) };
            last_key.clone_from(last);
            // A batch that is not full includes the last row. Another call would count the skipped rows after it again.
            let is_last = deletable.len() < BATCH_SIZE;
            self.mark_index_dirty()?;
            let mut txn = self.index.write()?;
            for key in deletable {
                self.index.condemned.delete(&mut txn, &key)?;
            }
            self.index.commit(txn)?;
            failpoint::hit("gc-deleted-batch").context("collect", &self.path)?;
            if is_last {
                return Ok(remaining_bytes);
            }
        }
    }

    /// Returns the keys of the next condemned objects after `last_key` whose epoch is at most `oldest_epoch`, at most
    /// one batch. Adds the size of other objects on the way to `remaining_bytes`.
    fn deletable(
        &self,
        oldest_epoch: u64,
        last_key: &[u8],
        remaining_bytes: &mut u64,
    ) -> Result<Vec<Vec<u8>>> {
        let txn = self.index.read()?;
        let mut deletable = Vec::new();
        let after_last = (Bound::Excluded(last_key), Bound::<&[u8]>::Unbounded);
        for row in self.index.condemned.range(&txn, &after_last)? {
            let (key, value) = row?;
            // A row is a location (12 bytes) and the epoch of the condemnation (8 bytes).
            let epoch =
                value.get(12..20).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
            if epoch > oldest_epoch {
                *remaining_bytes += Location::decode(value).map_or(0, |location| u64::from(location.len));
                continue;
            }
            deletable.push(key.to_vec());
            if deletable.len() == BATCH_SIZE {
                break;
            }
        }
        Ok(deletable)
    }
}

/// Sorts nodes so that each node comes after all its parents. `children` has the children of each node, as indexes.
fn topological_order(children: &[Vec<u32>]) -> Vec<u32> {
    let mut unplaced_parents = vec![0u32; children.len()];
    for child in children.iter().flatten() {
        unplaced_parents[*child as usize] += 1;
    }
    let mut order: Vec<u32> =
        (0..children.len() as u32).filter(|node| unplaced_parents[*node as usize] == 0).collect();
    let mut next = 0;
    while let Some(node) = order.get(next).copied() {
        next += 1;
        for child in &children[node as usize] {
            let count = &mut unplaced_parents[*child as usize];
            *count -= 1;
            if *count == 0 {
                order.push(*child);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn remaining_condemned_objects_are_counted_once() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let inner = &store.inner;
        let epoch = inner.gc_epoch().unwrap();
        let guard = store.guard().unwrap();
        let mut txn = inner.index.write().unwrap();
        // The first object can be deleted. The guard protects the second one, whose key is greater.
        for (id, condemned) in [([1; 32], epoch), ([2; 32], epoch + 1)] {
            let mut row = Location { pack: 1, offset: 0, len: 100 }.encode().to_vec();
            row.extend_from_slice(&condemned.to_le_bytes());
            inner.index.condemned.put(&mut txn, &condemned_key(Kind::Chunk, &id), &row).unwrap();
        }
        inner.index.commit(txn).unwrap();
        assert_eq!(inner.delete_condemned(&Cancel::new()).unwrap(), 100);
        drop(guard);
        assert_eq!(inner.delete_condemned(&Cancel::new()).unwrap(), 0);
    }
}
