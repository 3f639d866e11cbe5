//! Objects that are not part of the store, read as if they were.
//!
//! What a tree would hold if it were committed can be compared and read like any other tree, and nothing is written
//! for it: the objects that only it has are looked up here before the store is asked.

use std::collections::HashMap;
use std::sync::Arc;

use crate::batch::{Batch, BulkPack, Contents};
use crate::error::{Result, StoreError};
use crate::pack::Location;
use crate::record::{self, Kind};
use crate::session::Guard;
use crate::store::{Inner, Store};

/// What a batch collected that will never be committed.
pub(crate) struct Pending {
    buffer: Vec<u8>,
    places: HashMap<(Kind, [u8; 32]), Place>,
    /// Open and locked, so that nobody takes the packs away. They go with this.
    bulk: Vec<BulkPack>,
    store: Arc<Inner>,
    /// Content that was streamed in before.
    staged: Option<Arc<Batch>>,
    /// What the objects refer to in the store stays there.
    _guard: Arc<Guard>,
}

enum Place {
    Memory { offset: usize, len: usize },
    Pack(Location),
}

impl Pending {
    pub(crate) fn new(
        store: &Store,
        contents: Contents,
        staged: Option<Arc<Batch>>,
        guard: Arc<Guard>,
    ) -> Self {
        let Contents { buffer, objects, bulk } = contents;
        let in_memory = objects.iter().map(|object| {
            let place = Place::Memory { offset: object.offset as usize, len: object.len as usize };
            ((object.kind, object.id), place)
        });
        let in_packs = bulk.iter().flat_map(|pack| {
            let place = |object| Place::Pack(pack.location(object));
            pack.objects.iter().map(move |object| ((object.kind, object.id), place(object)))
        });
        let places = in_packs.chain(in_memory).collect();
        Self { buffer, places, bulk, store: Arc::clone(&store.inner), staged, _guard: guard }
    }

    /// The content of an object, if it is one of these.
    pub(crate) fn read(&self, kind: Kind, id: &[u8; 32]) -> Result<Option<Vec<u8>>> {
        match self.places.get(&(kind, *id)) {
            Some(Place::Memory { offset, len }) => {
                let record = record::open(&self.buffer[*offset..offset + len]);
                record.map(Some).map_err(|source| StoreError::Undecodable {
                    what: "a record that is not committed".to_owned(),
                    source,
                })
            }
            Some(Place::Pack(location)) => self.store.packs.read(*location, kind, id),
            None => self.staged.as_ref().map_or(Ok(None), |staged| staged.read_own(kind, id)),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        for pack in &self.bulk {
            // One that stays goes with the next collection.
            drop(std::fs::remove_file(self.store.packs.path(pack.number)));
        }
    }
}
