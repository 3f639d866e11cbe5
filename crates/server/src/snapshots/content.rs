//! Content of a file in a snapshot, piece by piece.
//!
//! A file may have millions of extents. All of them are in memory only while the store reads them, under a permit of the
//! owner. Between pieces at most [`EXTENTS_MAX`] are buffered, so a slow client does not use much memory.

use std::collections::VecDeque;

use axum::body::Bytes;
use workspace_state::{Cancel, ChunkId, Extent, FileNode, Node, Snapshot, Store, StoreError};

use super::body::{PIECE_SIZE, Pieces};
use super::tree::{find_entry, not_a_file, open_tree};
use super::work_limits::{WorkLimits, WorkPermit};
use crate::error::ApiError;

/// Maximum number of extents in memory between pieces: 192 KiB, for about 256 MiB of a file without holes.
const EXTENTS_MAX: usize = 4_096;

/// File in a snapshot, by its path. It does not protect the file from garbage collection, because a slow client must
/// not delay the removal of snapshots.
struct FileSource {
    store: Store,
    snapshot: Snapshot,
    path: Vec<u8>,
}

impl FileSource {
    fn file(&self) -> Result<FileNode, ApiError> {
        let tree = open_tree(&self.store, &self.snapshot)?;
        match find_entry(&tree, &self.path)?.node {
            Node::File(file) => Ok(file),
            other => Err(not_a_file(&self.path, &other)),
        }
    }

    fn chunk(&self, id: &ChunkId) -> Result<Vec<u8>, StoreError> {
        let snapshot = self.snapshot.id;
        self.store.read_chunk(id).map_err(|error| match (&error, self.store.find_snapshot(&snapshot)) {
            // The snapshot was removed and collected while the client was reading.
            (StoreError::MissingChunk(_), Ok(None)) => StoreError::UnknownSnapshot(snapshot),
            _ => error,
        })
    }
}

/// Range of a file. Each chunk is read once.
pub(super) struct Content {
    source: FileSource,
    size: u64,
    tag: String,
    /// Next extents, the current one first.
    extents: VecDeque<Extent>,
    /// Offset in the first of `extents`.
    extent_offset: u64,
    /// Offset in the file.
    position: u64,
    remaining: u64,
}

impl Content {
    /// Opens a whole file. Blocks, for long if the file has many extents.
    pub(super) fn open(store: &Store, snapshot: Snapshot, path: Vec<u8>) -> Result<Self, ApiError> {
        let source = FileSource { store: store.clone(), snapshot, path };
        let file = source.file()?;
        let (extents, extent_offset) = extents_from(&file, 0);
        let size = file.size();
        Ok(Self {
            source,
            size,
            tag: entity_tag(&file),
            extents,
            extent_offset,
            position: 0,
            remaining: size,
        })
    }

    /// Returns the size of the whole file in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the entity tag of the whole file.
    pub(super) fn tag(&self) -> &str {
        &self.tag
    }

    /// Limits a whole file to `len` bytes from the offset `from`.
    pub(super) fn narrow(self, from: u64, len: u64) -> Self {
        // The offset may be beyond the first extents, which `current` then skips.
        Self { extent_offset: from, position: from, remaining: len, ..self }
    }

    /// Returns the current extent and the offset in it. Reads the next extents if none is buffered.
    fn current(&mut self) -> Result<(Extent, u64), ApiError> {
        loop {
            match self.extents.front() {
                Some(extent) if self.extent_offset < extent.len() => {
                    return Ok((*extent, self.extent_offset));
                }
                Some(extent) => {
                    self.extent_offset -= extent.len();
                    self.extents.pop_front();
                }
                None => {
                    (self.extents, self.extent_offset) = extents_from(&self.source.file()?, self.position);
                    if self.extents.is_empty() {
                        return Err(too_short());
                    }
                }
            }
        }
    }

    /// Appends the rest of the current extent; of a hole, at most a piece.
    fn append(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let (extent, extent_offset) = self.current()?;
        let rest = (extent.len() - extent_offset).min(self.remaining);
        let added = match extent {
            Extent::Data { chunk, .. } => {
                let chunk = self.source.chunk(&chunk)?;
                let from = usize::try_from(extent_offset).map_err(|_| too_short())?;
                let len = usize::try_from(rest).map_err(|_| too_short())?;
                let part = chunk.get(from..).and_then(|chunk| chunk.get(..len));
                out.extend_from_slice(part.ok_or_else(too_short)?);
                rest
            }
            Extent::Hole { .. } => {
                let len = rest.min(PIECE_SIZE as u64);
                out.resize(out.len() + len as usize, 0);
                len
            }
        };
        self.extent_offset += added;
        self.position += added;
        self.remaining -= added;
        Ok(())
    }
}

impl Pieces for Content {
    fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        let mut piece = Vec::new();
        while piece.len() < PIECE_SIZE && self.remaining > 0 {
            self.append(&mut piece)?;
        }
        Ok((!piece.is_empty()).then(|| piece.into()))
    }

    fn cancel(&self) -> &Cancel {
        self.source.store.cancel_flag()
    }

    async fn permit(limits: &WorkLimits, owner: &str) -> WorkPermit {
        limits.read(owner).await
    }
}

fn too_short() -> ApiError {
    StoreError::Refused("a file is shorter than its recorded size".to_owned()).into()
}

/// Returns the extents from `position` on, at most [`EXTENTS_MAX`], and the offset of `position` in the first.
fn extents_from(file: &FileNode, position: u64) -> (VecDeque<Extent>, u64) {
    let mut extent_offset = position;
    let first = file.extents.iter().position(|extent| match extent_offset.checked_sub(extent.len()) {
        Some(rest) => {
            extent_offset = rest;
            false
        }
        None => true,
    });
    let rest = first.map_or(&[][..], |first| &file.extents[first..]);
    (rest.iter().take(EXTENTS_MAX).copied().collect(), extent_offset)
}

/// Returns the entity tag of the content. Equal content has equal extents, because chunk boundaries depend on the content.
fn entity_tag(file: &FileNode) -> String {
    let mut hasher = blake3::Hasher::new();
    for extent in &file.extents {
        hasher.update(&extent.len().to_le_bytes());
        match extent {
            Extent::Data { chunk, .. } => hasher.update(&[1]).update(chunk.as_bytes()),
            Extent::Hole { .. } => hasher.update(&[0]),
        };
    }
    format!("\"{}\"", hasher.finalize().to_hex())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::Poll;

    use axum::body::to_bytes;
    use workspace_api::error_codes;
    use workspace_state::{Attributes, GcOptions, NewSnapshot, NoProgress, VirtualTree};

    use super::super::body;
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        (directory, store)
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut noise = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        noise
    }

    fn snapshot_with(store: &Store, content: Vec<u8>) -> Snapshot {
        let mut tree = store.empty_tree().unwrap();
        tree.write("file", content).unwrap();
        tree.commit(NewSnapshot::default()).unwrap()
    }

    fn opened(store: &Store, snapshot: &Snapshot) -> Content {
        Content::open(store, snapshot.clone(), b"file".to_vec()).unwrap()
    }

    fn read(mut content: Content) -> Vec<u8> {
        let pieces = std::iter::from_fn(|| content.next_piece().unwrap());
        pieces.flatten().collect()
    }

    #[test]
    fn every_range_of_a_file_with_holes_has_the_right_bytes() {
        let (_directory, store) = store();
        let noise = noise(700_000);
        let whole = [&noise[..], &vec![0; 1_500_000], &noise[..300_000], &vec![0; 600_000]].concat();
        let snapshot = snapshot_with(&store, whole.clone());
        let extents = opened(&store, &snapshot).extents;
        assert!(extents.len() > 3 && extents.iter().any(|it| matches!(it, Extent::Hole { .. })));
        let size = whole.len() as u64;
        for from in [0, 1, 65_536, 699_999, 700_000, 1_000_000, 2_200_000, 2_499_999, size - 1] {
            for len in [1, 2, 300_000, 1_000_000, size] {
                let len = len.min(size - from);
                let found = read(opened(&store, &snapshot).narrow(from, len));
                assert!(found == whole[from as usize..(from + len) as usize], "{from} {len}");
            }
        }
    }

    /// Creates a file of `count` extents, alternately 3 bytes and a hole of one byte.
    fn write_extents(tree: &mut VirtualTree, store: &Store, count: usize) -> Vec<u8> {
        let words = snapshot_with(store, b"abc".to_vec());
        let chunk = opened(store, &words).extents[0];
        let extents: Vec<_> =
            (0..count).map(|at| if at % 2 == 0 { chunk } else { Extent::Hole { len: 1 } }).collect();
        tree.put_extents("file", &extents, Attributes { mode: 0o644, ..Attributes::default() }).unwrap();
        b"abc\0".repeat(count / 2)
    }

    #[test]
    fn the_number_of_extents_in_memory_is_bounded() {
        let (_directory, store) = store();
        let mut tree = store.empty_tree().unwrap();
        let whole = write_extents(&mut tree, &store, 5 * EXTENTS_MAX / 2);
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        let mut content = opened(&store, &snapshot);
        assert_eq!(content.extents.len(), EXTENTS_MAX);
        assert!(content.extents.capacity() < 2 * EXTENTS_MAX);
        let mut found = Vec::new();
        while let Some(piece) = content.next_piece().unwrap() {
            assert!(content.extents.capacity() < 2 * EXTENTS_MAX);
            found.extend_from_slice(&piece);
        }
        assert!(found == whole);
        for from in [0, 1, 2 * EXTENTS_MAX, 2 * EXTENTS_MAX - 1, 4 * EXTENTS_MAX + 2, whole.len() - 1] {
            let len = 9_000.min(whole.len() - from);
            let found = read(opened(&store, &snapshot).narrow(from as u64, len as u64));
            assert!(found == whole[from..from + len], "{from}");
        }
    }

    #[test]
    fn a_reader_does_not_delay_garbage_collection() {
        let (_directory, store) = store();
        let snapshot = snapshot_with(&store, noise(3 << 20));
        let mut content = opened(&store, &snapshot);
        content.next_piece().unwrap().unwrap();

        store.remove_snapshots(&[snapshot.id]).unwrap();
        let report = store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
        assert!(report.dead_bytes > 2 << 20, "{report:?}");
        assert_eq!(report.condemned_bytes, 0, "nothing waits for the reader");
        let error = content.next_piece().unwrap_err();
        assert_eq!(error.code(), error_codes::SNAPSHOT_NOT_FOUND, "{error:?}");
    }

    async fn is_pending(future: &mut Pin<&mut impl Future>) -> bool {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn a_piece_waits_for_a_permit_of_its_owner_and_releases_it() {
        let (_directory, store) = store();
        let whole = noise(3 << 20);
        let content = opened(&store, &snapshot_with(&store, whole.clone()));
        let limits = Arc::new(WorkLimits::for_tests());
        let other = limits.read("alice").await;
        let mut answer = pin!(body::stream(content, &limits, "alice"));
        assert!(is_pending(&mut answer).await);
        drop(other);
        let body = answer.await.unwrap();
        // The client has taken nothing yet.
        drop(limits.read("alice").await);
        assert!(to_bytes(body, 4 << 20).await.unwrap() == whole);
    }
}
