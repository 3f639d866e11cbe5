//! Steps 2 and 3 of a garbage collection, in transactions of bounded size.

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
    /// Condemns dead objects, unless they became live since they were marked.
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
            // Moves the rows of small commits into the object tables, from which objects are condemned.
            self.index.settle(&mut txn)?;
            let Some(mut state) = self.index.log_state(&txn)? else { return Ok(()) };
            // Only commits add snapshots and pins.
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
            // Operations that began after the last batch may rely on objects of this batch, so each batch has
            // its own epoch.
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

    /// Sorts dead objects so that batches of them can be condemned: each after all dead objects that refer to
    /// it.
    fn parents_first(&self, dead: DeadObjects, cancel: &Cancel) -> Result<DeadObjects> {
        let (nodes, chunks): (DeadObjects, DeadObjects) =
            dead.into_iter().partition(|((kind, _), _)| *kind == Kind::Node);
        // Within one batch the order does not matter.
        let mut ordered = if nodes.len() > BATCH_SIZE { self.sort_nodes(&nodes, cancel)? } else { nodes };
        ordered.extend(chunks);
        Ok(ordered)
    }

    fn sort_nodes(&self, nodes: &[(ObjectId, Location)], cancel: &Cancel) -> Result<DeadObjects> {
        let numbers: HashMap<ObjectId, u32, IdHashBuilder> =
            nodes.iter().zip(0..).map(|((object, _), number)| (*object, number)).collect();
        let children = |((_, id), location): &(ObjectId, Location)| -> Result<Vec<u32>> {
            cancel.check()?;
            let references = match self.children_at(id, *location) {
                // No operation can rely on objects below a damaged dead node.
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

    /// Deletes condemned objects that no operation relies on. Returns the size of the remaining ones
    /// in bytes.
    pub(super) fn delete_condemned(&self, cancel: &Cancel) -> Result<u64> {
        let oldest_epoch = GcGuards::oldest_epoch(&self.path.join("lock"))?.unwrap_or(u64::MAX);
        let mut waiting_bytes = 0;
        // Sorts before every key: keys begin with a kind.
        let mut last_key = vec![0];
        loop {
            cancel.check()?;
            let deletable = self.deletable(oldest_epoch, &last_key, &mut waiting_bytes)?;
            let Some(last) = deletable.last() else { return Ok(waiting_bytes) };
            last_key.clone_from(last);
            // A smaller batch has reached the last row. Rows after it must not be counted again.
            let is_last = deletable.len() < BATCH_SIZE;
            self.mark_index_dirty()?;
            let mut txn = self.index.write()?;
            for key in deletable {
                self.index.condemned.delete(&mut txn, &key)?;
            }
            self.index.commit(txn)?;
            failpoint::hit("gc-deleted-batch").context("collect", &self.path)?;
            if is_last {
                return Ok(waiting_bytes);
            }
        }
    }

    /// Returns the keys of a batch of deletable condemned objects, after `last_key`. Adds the bytes of
    /// skipped objects to `waiting_bytes`.
    fn deletable(&self, oldest_epoch: u64, last_key: &[u8], waiting_bytes: &mut u64) -> Result<Vec<Vec<u8>>> {
        let txn = self.index.read()?;
        let mut deletable = Vec::new();
        let after_last = (Bound::Excluded(last_key), Bound::<&[u8]>::Unbounded);
        for row in self.index.condemned.range(&txn, &after_last)? {
            let (key, value) = row?;
            // A row is a location (12 bytes) and the epoch of the condemnation (8 bytes).
            let epoch =
                value.get(12..20).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
            if epoch > oldest_epoch {
                *waiting_bytes += Location::decode(value).map_or(0, |location| u64::from(location.len));
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

/// Sorts nodes, given as the children of each, so that each comes after all its parents.
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
        // The first can be deleted; the guard protects the second, which comes after it.
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
