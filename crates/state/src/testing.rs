//! Support for tests and fuzz targets: trees that the public API would reject, damaged stores, and the decoders of all
//! stored formats with samples. Only with the feature `failpoints`.

use std::collections::BTreeMap;

use crate::archive::{ArchiveError, ArchiveLimits};
use crate::child_objects::for_each_child;
use crate::codec::{Decoded, Write};
use crate::commit_options::{Expect, NewSnapshot};
use crate::directory::stat_record;
use crate::episode;
use crate::error::Result;
use crate::id::{ChunkId, EpisodeId, NodeId, PinId, SnapshotId, TreeId};
use crate::index::Index;
use crate::log_record::{Change, CheckpointOrigin, CheckpointRecord, CommitRecord, LogPosition};
use crate::log_state::LogState;
use crate::node::{Extent, FileNode, NodeRef, SymlinkNode, TAG_DIRECTORY, TAG_TIMES, Xattrs};
use crate::pack::Location;
use crate::page::{DirectoryWriter, EncodedList, EntryTime, ListHeader, NodeSink};
use crate::pin::Pin;
use crate::record::{self, Compression, Kind};
use crate::snapshot::{Snapshot, SnapshotRoot, Timestamp};
use crate::store::Store;
use crate::unsettled_cache::Row;
use crate::virtual_tree::{commit_snapshot, file_node_ref, symlink_node_ref};

/// Reads an archive to its end with the checks of an import, and discards the content. Small limits keep tests fast.
pub fn read_archive(bytes: &[u8]) -> std::result::Result<(), ArchiveError> {
    let limits = ArchiveLimits { bytes: 1 << 30, entries: 10_000, metadata: 16 << 20 };
    crate::archive::read_through(bytes, limits)
}

/// Sets the header checksum of every block of an archive, so that a mutated archive is not rejected only because of its
/// checksums.
pub fn fix_checksums(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(512) {
        if block.iter().any(|byte| *byte != 0) {
            let mut header = tar::Header::from_byte_slice(block).clone();
            header.set_cksum();
            block.copy_from_slice(header.as_bytes());
        }
    }
}

/// An entry of a [`RawTree`].
#[derive(Debug, Clone)]
pub enum RawEntry {
    /// A file with this content.
    File(Vec<u8>),
    /// A symlink with this target.
    Symlink(Vec<u8>),
    /// A directory with the content of this tree and without modification times.
    Directory(TreeId),
}

/// A tree of one directory whose names are not validated.
#[derive(Debug, Clone, Default)]
pub struct RawTree {
    entries: Vec<(Vec<u8>, RawEntry)>,
}

impl RawTree {
    /// Creates a tree without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an entry.
    #[must_use]
    pub fn with(mut self, name: &[u8], entry: RawEntry) -> Self {
        self.entries.push((name.to_vec(), entry));
        self
    }

    /// Commits the tree as a snapshot.
    pub fn commit(&self, store: &Store) -> Result<Snapshot> {
        let batch = store.batch()?;
        // The encoding of directories is described in `node.rs` and `page.rs`.
        let mut directory = vec![TAG_DIRECTORY, 0];
        directory.extend_from_slice(&0o755u16.to_le_bytes());
        let mut times = vec![TAG_TIMES, 0];
        for list in [&mut directory, &mut times] {
            list.push(0);
            list.varint(self.entries.len() as u64);
        }
        for (name, entry) in &self.entries {
            let node_ref = match entry {
                RawEntry::File(content) => {
                    let chunk = batch.put_chunk(content)?;
                    let extents = vec![Extent::Data { len: content.len() as u64, chunk }];
                    let node = FileNode { mode: 0o644, xattrs: Xattrs::new(), extents };
                    file_node_ref(&node.encode(), |node| batch.put_node(node))?
                }
                RawEntry::Symlink(target) => {
                    let node = SymlinkNode { target: target.clone() };
                    symlink_node_ref(&node.encode(), |node| batch.put_node(node))?
                }
                RawEntry::Directory(tree) => NodeRef::Directory(tree.root()).encode(),
            };
            directory.blob(name);
            directory.extend_from_slice(&node_ref);
            times.extend_from_slice(&EntryTime::Unknown.encode());
        }
        let (tree, times) = (batch.put_node(&directory)?, batch.put_node(&times)?);
        let new = NewSnapshot::with_message("raw");
        commit_snapshot(store, batch.finish()?, tree.into(), times, Vec::new(), new)
    }
}

/// Commits a snapshot with the tree of `inner` below `levels` directories named `d`. The result may be deeper than the
/// public API allows.
pub fn commit_nested(store: &Store, inner: &Snapshot, levels: usize) -> Result<Snapshot> {
    let batch = store.batch()?;
    let (mut tree, mut times) = (inner.tree.root(), inner.times);
    for _ in 0..levels {
        let mut writer = DirectoryWriter::new(&batch, 1);
        writer.push(b"d", &NodeRef::Directory(tree).encode(), &EntryTime::Directory(times).encode())?;
        (tree, times) = writer.finish(&ListHeader::Directory { mode: 0o755, xattrs: Xattrs::new() }, None)?;
    }
    let new = NewSnapshot::with_message("nested");
    commit_snapshot(store, batch.finish()?, tree.into(), times, Vec::new(), new)
}

/// Function that decodes bytes and encodes the result again. Returns `None` if the bytes cannot be decoded.
pub type Reencode = fn(&[u8]) -> Option<Vec<u8>>;

/// Replaces the state of the log in the index of a closed store by one that cannot be decoded, as after another
/// version of this program has written it.
pub fn make_log_state_unreadable(store: &std::path::Path) -> Result<()> {
    let index = Index::open(&store.join("index"))?;
    let mut txn = index.write()?;
    index.meta.put(&mut txn, b"log", b"another version")?;
    index.commit(txn)
}

/// Holds the write lock of the index of a store while `work` runs.
pub fn hold_write_lock(store: &Store, work: impl FnOnce()) -> Result<()> {
    let _txn = store.inner.index.write()?;
    work();
    Ok(())
}

/// Returns a snapshot's record as it is stored in the index.
pub fn snapshot_row(snapshot: &Snapshot) -> Vec<u8> {
    snapshot.encode()
}

/// Replaces or deletes the row `key` of a table in the index of a closed store, to simulate corruption.
pub fn change_row(store: &std::path::Path, table: &str, key: &[u8], row: Option<&[u8]>) -> Result<()> {
    let index = Index::open(&store.join("index"))?;
    let mut txn = index.write()?;
    // Snapshots of small commits are not in the table of snapshots yet.
    index.settle(&mut txn)?;
    let table = match table {
        "snapshots" => &index.snapshots,
        "references" => &index.references,
        "episodes" => &index.episodes,
        "pins" => &index.pins,
        "trees" => &index.trees,
        "packs" => &index.packs,
        other => panic!("there is no table `{other}`"),
    };
    match row {
        Some(row) => table.put(&mut txn, key, row)?,
        None => assert!(table.delete(&mut txn, key)?, "there is no such row"),
    }
    index.commit(txn)
}

/// All stored formats by name. Every value must have exactly one encoding, so that equal values have equal hashes.
pub const FORMATS: &[(&str, Reencode)] = &[
    ("record", reencode_record),
    ("page", reencode_page),
    ("file_node", |bytes| Some(FileNode::decode(bytes).ok()?.encode())),
    ("symlink_node", |bytes| Some(SymlinkNode::decode(bytes).ok()?.encode())),
    ("commit_record", |bytes| Some(CommitRecord::decode(bytes).ok()?.encode())),
    ("checkpoint_record", |bytes| Some(CheckpointRecord::decode(bytes).ok()?.encode())),
    ("snapshot_record", |bytes| Some(Snapshot::decode(bytes).ok()?.encode())),
    ("stat_record", stat_record::reencode),
    ("pin", |bytes| Some(Pin::decode(PinId::from_bytes([0; 16]), bytes).ok()?.encode())),
    ("log_state", |bytes| Some(LogState::decode(bytes).ok()?.encode())),
    ("unsettled_row", |bytes| Some(Row::decode(bytes).ok()?.encode())),
    ("episode", reencode_episode),
];

/// Returns the re-encoder of a format.
pub fn format(name: &str) -> Reencode {
    let (_, reencode) = FORMATS.iter().find(|(other, _)| *other == name).expect("a known format");
    *reencode
}

/// Re-encodes a record. A compressed record has many encodings and is returned unchanged.
fn reencode_record(bytes: &[u8]) -> Option<Vec<u8>> {
    let raw = record::open(bytes).ok()?;
    if bytes[1] != 0 {
        return Some(bytes.to_vec());
    }
    let kind = [Kind::Chunk, Kind::Node, Kind::Commit, Kind::Checkpoint][usize::from(bytes[0]) - 1];
    let mut out = Vec::new();
    record::append(&mut out, kind, blake3::hash(&raw).as_bytes(), &raw, Compression::None).ok()?;
    Some(out)
}

fn reencode_page(bytes: &[u8]) -> Option<Vec<u8>> {
    let page = EncodedList::decode(bytes.to_vec()).ok()?;
    // Items of times have no names.
    let named = matches!(page.header, ListHeader::Directory { .. } | ListHeader::Page);
    let checked = "checked when the page was decoded";
    let mut out = Vec::new();
    page.header.encode_to(&mut out);
    out.push(page.level);
    out.varint(page.len() as u64);
    for index in 0..page.len() {
        if named {
            out.blob(page.name(index));
        }
        if page.level > 0 {
            let child = page.child(index).expect(checked);
            out.varint(child.entries);
            out.extend_from_slice(child.id.as_bytes());
        } else if named {
            out.extend_from_slice(&page.node_ref(index).expect(checked).encode());
        } else {
            out.extend_from_slice(&page.time(index).expect(checked).encode());
        }
    }
    // `EncodedList::decode` does not decode inline nodes, but `for_each_child` does. It may fail, but must not panic.
    drop(for_each_child(bytes.to_vec(), &mut |_| {}));
    Some(out)
}

/// Checks that an episode does not change when it is encoded and decoded. JSON has many encodings of one value, so the
/// bytes are returned unchanged.
fn reencode_episode(bytes: &[u8]) -> Option<Vec<u8>> {
    let episode = episode::decode(bytes).ok()?;
    let written = serde_json::to_vec(&episode).ok()?;
    let again: Decoded<episode::Episode> = episode::decode(&written);
    assert_eq!(again.as_ref(), Ok(&episode), "an episode changes when it is stored");
    Some(bytes.to_vec())
}

/// Returns encoded samples of a format.
pub fn samples(format: &str) -> Vec<Vec<u8>> {
    match format {
        "record" => records(),
        "page" => pages(),
        "file_node" => files().iter().map(FileNode::encode).collect(),
        "symlink_node" => [&b"/"[..], b"../up", &[b'x'; 4095]]
            .map(|target| SymlinkNode { target: target.to_vec() }.encode())
            .into(),
        "commit_record" => {
            let with_root = vec![Change::PutSnapshot(snapshot_with_root())];
            [Vec::new(), changes(), with_root].map(|changes| commit(changes).encode()).into()
        }
        "checkpoint_record" => checkpoints().iter().map(CheckpointRecord::encode).collect(),
        "snapshot_record" => {
            snapshots().iter().chain([&snapshot_with_root()]).map(Snapshot::encode).collect()
        }
        "stat_record" => stat_record::samples(),
        "pin" => [true, false].map(|ends_with_process| pin(ends_with_process).encode()).into(),
        "log_state" => {
            vec![LogState::default().encode(), LogState { sequence: 7, pack: 2, ..log_state() }.encode()]
        }
        "unsettled_row" => {
            let with_root = Row { objects: Vec::new(), snapshots: vec![snapshot_with_root()] };
            unsettled_rows().iter().chain([&with_root]).map(Row::encode).collect()
        }
        "episode" => episodes(),
        other => panic!("there is no format `{other}`"),
    }
}

fn records() -> Vec<Vec<u8>> {
    let text = b"the same words again and again, ".repeat(20);
    let mut all = Vec::new();
    for (kind, raw, compression) in [
        (Kind::Chunk, &b""[..], Compression::None),
        (Kind::Chunk, &text, Compression::Thorough),
        (Kind::Node, &b"node"[..], Compression::None),
        (Kind::Commit, &b"commit"[..], Compression::None),
        (Kind::Checkpoint, &b"checkpoint"[..], Compression::Fast),
    ] {
        let mut out = Vec::new();
        record::append(&mut out, kind, blake3::hash(raw).as_bytes(), raw, compression).expect("small enough");
        all.push(out);
    }
    all
}

fn chunk() -> ChunkId {
    ChunkId::of(b"chunk")
}

fn files() -> Vec<FileNode> {
    let data = Extent::Data { len: 300, chunk: chunk() };
    let xattrs = Xattrs::from([(b"user.a".to_vec(), Vec::new()), (b"user.b".to_vec(), vec![0, 255])]);
    vec![
        FileNode::default(),
        FileNode { mode: 0o644, xattrs: Xattrs::new(), extents: vec![data] },
        FileNode { mode: 0o4755, xattrs, extents: vec![data, Extent::Hole { len: 1 << 40 }, data, data] },
    ]
}

fn pages() -> Vec<Vec<u8>> {
    let id = NodeId::of(b"node");
    let inline = files()[1].encode();
    let link = SymlinkNode { target: b"target".to_vec() }.encode();
    let list = |header: &ListHeader, level: u8, items: &[Vec<u8>]| {
        let mut out = Vec::new();
        header.encode_to(&mut out);
        out.push(level);
        out.varint(items.len() as u64);
        out.extend(items.concat());
        out
    };
    let entry = |name: &[u8], node_ref: NodeRef<'_>| {
        let mut out = Vec::new();
        out.blob(name);
        out.extend(node_ref.encode());
        out
    };
    let child = |name: Option<&[u8]>| {
        let mut out = Vec::new();
        if let Some(name) = name {
            out.blob(name);
        }
        out.varint(200);
        out.extend_from_slice(id.as_bytes());
        out
    };
    let entries = [
        entry(b"a", NodeRef::Directory(id)),
        entry(b"b", NodeRef::File(id)),
        entry(b"c", NodeRef::Symlink(id)),
        entry(b"d", NodeRef::InlineFile(&inline)),
        entry(b"e\xff", NodeRef::InlineSymlink(&link)),
    ];
    let time = Timestamp(-1_500_000_000);
    let times = [
        EntryTime::Unknown.encode(),
        EntryTime::Directory(id).encode(),
        EntryTime::Modified { time, link_label: None }.encode(),
        EntryTime::Modified { time: Timestamp(i64::MAX), link_label: Some(7) }.encode(),
    ];
    let xattrs = Xattrs::from([(b"user.x".to_vec(), b"y".to_vec())]);
    vec![
        list(&ListHeader::Directory { mode: 0o755, xattrs: Xattrs::new() }, 0, &[]),
        list(&ListHeader::Directory { mode: 0o2770, xattrs }, 0, &entries),
        list(&ListHeader::Page, 0, &entries),
        list(&ListHeader::Page, 1, &[child(Some(b"m")), child(Some(b"z"))]),
        list(&ListHeader::Times(Some(time)), 0, &times),
        list(&ListHeader::Times(None), 2, &[child(None)]),
        list(&ListHeader::TimesPage, 0, &times),
    ]
}

fn snapshots() -> Vec<Snapshot> {
    let id = SnapshotId::from_bytes([7; 16]);
    let small = Snapshot {
        id,
        tree: TreeId::of(b"tree"),
        times: NodeId::of(b"times"),
        parents: Vec::new(),
        author: String::new(),
        message: String::new(),
        time: Timestamp(0),
        labels: BTreeMap::new(),
        root: None,
    };
    let labels = BTreeMap::from([("a".to_owned(), String::new()), ("ü".to_owned(), "1".to_owned())]);
    let large = Snapshot {
        parents: vec![id, id],
        author: "ada".to_owned(),
        message: "line\nline".to_owned(),
        time: Timestamp(i64::MIN),
        labels,
        ..small.clone()
    };
    vec![small, large]
}

/// Returns a snapshot with a root filesystem, which only stores of format 2 have.
fn snapshot_with_root() -> Snapshot {
    let root = SnapshotRoot {
        tree: TreeId::of(b"root"),
        times: NodeId::of(b"times of the root"),
        template: "debian:12".to_owned(),
    };
    Snapshot { root: Some(Box::new(root)), ..snapshots().swap_remove(1) }
}

fn pin(ends_with_process: bool) -> Pin {
    Pin {
        id: PinId::from_bytes([0; 16]),
        snapshot: SnapshotId::from_bytes([7; 16]),
        tree: TreeId::of(b"tree"),
        times: NodeId::of(b"times"),
        holder: "a mount".to_owned(),
        ends_with_process,
    }
}

fn changes() -> Vec<Change> {
    let (snapshot, episode) = (SnapshotId::from_bytes([7; 16]), EpisodeId::from_bytes([8; 16]));
    let (name, expect) = ("main".to_owned(), Expect::Anything);
    let mut changes: Vec<Change> = snapshots().into_iter().map(Change::PutSnapshot).collect();
    changes.extend([
        Change::RemoveSnapshot(snapshot),
        Change::SetReference { name: name.clone(), expect, to: snapshot },
        Change::RemoveReference { name, expect },
        Change::PutEpisode { id: episode, parent: None, record: b"{}".to_vec() },
        Change::RemoveEpisode { id: episode, parent: Some(episode) },
        Change::PutPin { id: PinId::from_bytes([9; 16]), record: pin(true).encode() },
        Change::RemovePin(PinId::from_bytes([9; 16])),
    ]);
    changes
}

fn commit(changes: Vec<Change>) -> CommitRecord {
    let durable = LogPosition { pack: 3, offset: 4096 };
    CommitRecord { sequence: 12, previous: [5; 32], synced: true, durable, packs: vec![4, 5], changes }
}

fn checkpoints() -> Vec<CheckpointRecord> {
    let whole = CheckpointRecord {
        sequence: 3,
        last_commit_id: [5; 32],
        is_first: true,
        is_last: true,
        origin: CheckpointOrigin::Rebuild,
        part_number: None,
        changes: changes(),
    };
    let part = CheckpointRecord {
        is_first: false,
        is_last: false,
        origin: CheckpointOrigin::GarbageCollection,
        changes: Vec::new(),
        ..whole.clone()
    };
    let numbered = CheckpointRecord { is_last: true, part_number: Some(300), ..part.clone() };
    vec![part, whole, numbered]
}

fn log_state() -> LogState {
    LogState {
        sequence: 1,
        last_commit_id: [5; 32],
        pack: 1,
        end: 4096,
        next_pack: 3,
        epoch: 2,
        settled_up_to: 1,
        unsettled_count: 0,
    }
}

fn unsettled_rows() -> Vec<Row> {
    let location = Location { pack: 2, offset: 4096, len: 77 };
    let objects = vec![((Kind::Chunk, [3; 32]), location), ((Kind::Node, [4; 32]), location)];
    vec![
        Row::default(),
        Row { objects: objects.clone(), snapshots: Vec::new() },
        Row { objects, snapshots: snapshots() },
    ]
}

fn episodes() -> Vec<Vec<u8>> {
    let small = episode::Episode {
        id: EpisodeId::from_bytes([8; 16]),
        snapshot: SnapshotId::from_bytes([7; 16]),
        parent: None,
        action: "start".to_owned(),
        reward: 0.25,
        visits: 1,
        insight: None,
        data: serde_json::Value::Null,
        time: Timestamp(5),
    };
    let large = episode::Episode {
        parent: Some(small.id),
        insight: Some(serde_json::json!({"files": [1, 2.5, null, "x"]})),
        data: serde_json::json!([[[{}]], "\u{0}", -1e300]),
        ..small.clone()
    };
    [small, large].iter().map(|episode| serde_json::to_vec(episode).expect("plain data")).collect()
}
