//! Objects (chunks of file content, and nodes of trees) that are not committed, but can be read like those of the
//! store.
//!
//! With them, the tree that a commit would produce can be read and compared without the commit: objects are looked up
//! here before the store is queried. A large number of them is in bulk packs, files in the directory of the store,
//! which are deleted when the objects are dropped.

use std::collections::HashMap;
use std::sync::Arc;

use crate::batch::Batch;
use crate::error::{Result, StoreError};
use crate::gc_guards::Guard;
use crate::new_objects::{BulkPack, NewObjects};
use crate::pack::Location;
use crate::record::{self, Kind};
use crate::store::{Inner, ObjectSource, Store};

/// Objects that were collected in a batch for a commit, but will never be committed.
pub(crate) struct UncommittedObjects {
    /// Encoded records of the objects in memory.
    buffer: Vec<u8>,
    locations: HashMap<(Kind, [u8; 32]), ObjectLocation>,
    /// Packs with the objects that were too many for memory. They are locked, so that garbage collection does not
    /// remove them, and deleted on drop.
    bulk: Vec<BulkPack>,
    store: Arc<Inner>,
    /// Batch with the content of files that were added to a virtual tree; `None` if there is none.
    content_batch: Option<Arc<Batch>>,
    /// Protects stored objects that these objects refer to from garbage collection.
    _guard: Arc<Guard>,
}

enum ObjectLocation {
    Memory { offset: usize, len: usize },
    Pack(Location),
}

impl UncommittedObjects {
    pub(crate) fn new(
        store: &Store,
        objects: NewObjects,
        content_batch: Option<Arc<Batch>>,
        guard: Arc<Guard>,
    ) -> Self {
        let NewObjects { buffer, objects, bulk } = objects;
        let in_memory = objects.iter().map(|object| {
            let location =
                ObjectLocation::Memory { offset: object.offset as usize, len: object.len as usize };
            ((object.kind, object.id), location)
        });
        let in_packs = bulk.iter().flat_map(|pack| {
            let location = |object| ObjectLocation::Pack(pack.location(object));
            pack.objects.iter().map(move |object| ((object.kind, object.id), location(object)))
        });
        let locations = in_packs.chain(in_memory).collect();
        Self { buffer, locations, bulk, store: Arc::clone(&store.inner), content_batch, _guard: guard }
    }
}

impl ObjectSource for UncommittedObjects {
    fn read(&self, kind: Kind, id: &[u8; 32]) -> Result<Option<Vec<u8>>> {
        match self.locations.get(&(kind, *id)) {
            Some(ObjectLocation::Memory { offset, len }) => {
                let record = record::open(&self.buffer[*offset..offset + len]);
                record.map(Some).map_err(|source| StoreError::Undecodable {
                    what: "a record that is not committed".to_owned(),
                    source,
                })
            }
            Some(ObjectLocation::Pack(location)) => self.store.packs.read(*location, kind, id),
            None => self.content_batch.as_ref().map_or(Ok(None), |batch| batch.read_object(kind, id)),
        }
    }
}

impl Store {
    /// Returns a handle that also reads these uncommitted objects.
    pub(crate) fn with_uncommitted(&self, uncommitted: UncommittedObjects) -> Self {
        self.with_object_source(Arc::new(uncommitted))
    }
}

impl Drop for UncommittedObjects {
    fn drop(&mut self) {
        for pack in &self.bulk {
            // Garbage collection removes a pack that could not be deleted here.
            drop(std::fs::remove_file(self.store.packs.path(pack.number)));
        }
    }
}
