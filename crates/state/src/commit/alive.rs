//! Keeps objects alive that a commit refers to while a garbage collection condemns objects.
//!
//! A collection condemns unreachable objects before it deletes them: it moves their index rows from the tables of live
//! objects to a table of condemned ones (see `gc.rs`). Commits do not reuse condemned objects, but operations that
//! began earlier may. The bytes are still there, so the commit of such an operation can revive them.

use std::collections::HashSet;

use heed::RwTxn;

use crate::child_objects::{ObjectId, for_each_child};
use crate::commit_queue::CommitRequest;
use crate::error::{Result, StoreError};
use crate::id::{IdHashBuilder, NodeId};
use crate::index::condemned_key;
use crate::log::LogAppend;
use crate::log_record::Change;
use crate::new_objects::NewObjects;
use crate::pack::Location;
use crate::record::{self, Kind};
use crate::store::Inner;

use super::missing;

impl Inner {
    /// Makes sure that all objects that a request refers to are live: the root nodes of its snapshots and pins, and the
    /// children of its new nodes. (A pin keeps the objects of a snapshot while a process uses it.) Revives condemned
    /// objects, and fails if an object is missing. If no object is condemned, the children need no check. `append` has
    /// the bytes that this group commit appends to the log (the sequence of all commits), and `log_offset` is the
    /// offset in the log at which the objects of the request begin.
    pub(super) fn keep_alive(
        &self,
        txn: &mut RwTxn<'_>,
        append: &LogAppend,
        log_offset: u64,
        request: &CommitRequest,
    ) -> Result<()> {
        let mut roots: Vec<ObjectId> = Vec::new();
        for change in &request.changes {
            match change {
                Change::PutSnapshot(snapshot) => {
                    roots.extend(snapshot.nodes().map(|node| (Kind::Node, node)));
                }
                Change::PutPin { record, .. } => roots.extend(crate::pin::roots(record)),
                _ => {}
            }
        }
        if !self.index.condemned.is_empty(txn)? {
            let buffer = &append.bytes[(log_offset - append.start) as usize..];
            self.for_each_child_of_new_nodes(buffer, &request.objects, &mut |object| roots.push(object))?;
        }
        // New objects of a small commit are in an unsettled row (one index row for the whole commit, see
        // `unsettled_rows.rs`). `revive` searches only the tables, so it would report them as missing.
        let new: HashSet<ObjectId, IdHashBuilder> =
            request.objects.objects.iter().map(|object| (object.kind, object.id)).collect();
        for root in roots.into_iter().filter(|root| !new.contains(root)) {
            self.revive(txn, root)?;
        }
        Ok(())
    }

    /// Calls `visit` for every object that a new node of the request refers to directly. The new nodes are in `buffer`,
    /// the part of the log that begins with the objects of the request, and in the bulk packs (files of their own for
    /// the objects of a large commit).
    fn for_each_child_of_new_nodes(
        &self,
        buffer: &[u8],
        objects: &NewObjects,
        visit: &mut impl FnMut(ObjectId),
    ) -> Result<()> {
        let undecodable = |source| StoreError::Undecodable { what: "a new node".to_owned(), source };
        for object in objects.objects.iter().filter(|object| object.kind == Kind::Node) {
            let offset = object.offset as usize;
            let node = record::open(&buffer[offset..offset + object.len as usize]).map_err(undecodable)?;
            for_each_child(node, visit).map_err(undecodable)?;
        }
        for pack in &objects.bulk {
            for object in pack.objects.iter().filter(|object| object.kind == Kind::Node) {
                let node = self.packs.read(pack.location(object), Kind::Node, &object.id)?;
                for_each_child(node.unwrap_or_default(), visit).map_err(undecodable)?;
            }
        }
        Ok(())
    }

    /// Makes a condemned object live again, with all objects below it. Does nothing for a live object.
    pub(crate) fn revive(&self, txn: &mut RwTxn<'_>, root: ObjectId) -> Result<()> {
        let mut queue = vec![root];
        while let Some((kind, id)) = queue.pop() {
            // All objects below a live object are live too, because a collection condemns nodes before their children.
            if self.index.find_live(txn, kind, &id)?.is_some() {
                continue;
            }
            let key = condemned_key(kind, &id);
            let Some(location) = self.index.condemned.get(txn, &key)?.and_then(Location::decode) else {
                return Err(missing(kind, id));
            };
            if kind == Kind::Node {
                let node = self.packs.read(location, kind, &id)?.ok_or_else(|| missing(kind, id))?;
                for_each_child(node, &mut |object| queue.push(object)).map_err(|source| {
                    StoreError::Undecodable { what: format!("node {}", NodeId::from_bytes(id)), source }
                })?;
            }
            self.index.condemned.delete(txn, &key)?;
            self.index.objects(kind).put(txn, &id, &location.encode())?;
        }
        Ok(())
    }
}
