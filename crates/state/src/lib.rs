//! The state engine: content-addressed snapshots of file trees.
//!
//! A [`Store`] is a directory with snapshots and their objects: chunks (pieces of file content) and nodes (files,
//! directories and symlinks). Each object is named by the hash of its content, so equal content is stored once. Any
//! number of processes can open a store at once, as an ordinary user. On it:
//!
//! - a [`VirtualTree`] is a mutable tree in memory over a snapshot. Restore and clone take constant time; the cost of
//!   a commit depends on the changes. It is made for searches: programs that try many actions from saved states.
//! - [`snapshot_directory`] stores a directory of the file system as a snapshot; [`checkout`] writes a snapshot into
//!   a directory.
//! - a [`Tree`] reads a snapshot; [`diff`] compares two, and [`insight`] assesses the differences.
//! - references are names of snapshots, pins keep the content of a snapshot while it is in use, and episodes record
//!   the steps of a search.
//! - [`Store::collect_garbage`] frees space, and [`Store::verify`] looks for damage.
//!
//! ```
//! use workspace_state::{Expect, NewSnapshot, Store, Tree, diff};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let store = Store::open_or_create(directory.path().join("store"))?;
//!
//! let mut tree = store.empty_tree()?;
//! tree.write("src/main.rs", "fn main() {}\n")?;
//! let first = tree.commit(NewSnapshot::with_message("start"))?;
//!
//! // Fork: changes of one tree do not affect the other.
//! let mut fork = tree.clone();
//! fork.write("src/lib.rs", "pub fn answer() -> u8 { 42 }\n")?;
//! let second = fork.commit(NewSnapshot {
//!     references: vec![("best".to_owned(), Expect::Absent)],
//!     ..NewSnapshot::with_message("add a library")
//! })?;
//! assert!(!tree.exists("src/lib.rs")?);
//!
//! let before = Tree::of_snapshot(&store, &first)?;
//! let after = Tree::of_snapshot(&store, &second)?;
//! let differences = diff(&before, &after)?;
//! assert_eq!(differences[0].path, b"src/lib.rs");
//! assert_eq!(store.reference("best")?, Some(second.id));
//!
//! // Back to the start, in constant time.
//! let again = store.restore(&first.id)?;
//! assert_eq!(again.read("src/main.rs")?, b"fn main() {}\n");
//! # Ok(())
//! # }
//! ```
//!
//! Further reading: `store.rs` documents the layout on disk, `commit.rs` the commit protocol, `page.rs` and
//! `node.rs` the format of trees, `gc.rs` garbage collection.

mod access_lock;
mod archive;
mod batch;
mod byte_lock;
mod cache;
mod cancel;
mod checkpoint;
mod child_objects;
mod chunker;
mod codec;
mod commit;
mod commit_options;
mod commit_queue;
mod content;
mod counts;
mod damage;
mod diff;
mod directory;
mod entry;
mod episode;
mod episode_store;
mod error;
mod file_ops;
mod format;
mod gc;
mod gc_guards;
mod history;
mod id;
mod index;
mod index_trust;
mod insight;
mod limit;
mod lock_holder;
mod lock_wait;
mod log;
mod log_record;
mod log_scan;
mod log_state;
mod new_objects;
mod new_root;
mod node;
mod notice;
mod old_index;
mod pack;
mod page;
mod patch;
mod pending;
mod pin;
mod pin_store;
pub mod platform;
mod pool;
mod progress;
mod quote;
mod rebuild_report;
mod record;
mod recovery;
mod reference;
mod reference_targets;
mod reserve;
mod retention;
mod rewrite;
mod row_digests;
mod snapshot;
mod store;
#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub mod testing;
mod tree;
mod tree_path;
mod uncommitted_objects;
mod unsettled_cache;
mod unsettled_rows;
mod verify;
mod virtual_tree;
mod walk_limits;

use workspace_failpoint as failpoint;

pub use archive::{
    ArchiveError, ArchiveLimits, ExtractOptions, ExtractProfile, ExtractReport, Extractor, ImportOptions,
    ImportReport, LimitKind, ListedFile, MemberPaths, MemoryBudget, SkippedMember, TarExport, TarMember,
    TarMemberKind, TarReader, TarWriteError, TarWriter, export_tar, import_tar, list_tar,
};
pub use cancel::{Cancel, CancelOnDrop, CancelReader, Cancelled};
pub use codec::DecodeError;
pub use commit_options::{Durability, Expect, NewSnapshot};
pub use counts::IndexCounts;
pub use damage::Damage;
pub use diff::{Difference, DifferenceKind, SideDiff, Subtree, ThreeWayDiff, diff, diff_both};
pub use directory::{
    CheckoutOptions, CheckoutReport, DirectoryError, DirectoryPreview, DirectoryReader, EditCheck, OwnerIds,
    SkipReason, SkippedCollector, SkippedEntry, SnapshotOptions, SnapshotReport, StatFingerprint, WriteLimit,
    apply_changes, checkout, escape_xattrs, ignored_paths, materialize, open_for_reading, owned_by,
    preview_directory, preview_directory_with_reader, record_as_checkout, snapshot_directory,
    snapshot_directory_with_reader, undo_checkout, unescape_xattrs, user_xattrs,
};
pub use entry::{DirectoryNode, Entry, Node};
pub use episode::{Episode, EpisodeLink, EpisodeSummary};
pub use error::{Result, StoreError};
pub use format::FORMAT;
pub use gc::{GcOptions, GcReport};
pub use history::{History, Resolution};
pub use id::{ChunkId, EpisodeId, NodeId, ParseIdError, PinId, SnapshotId, TreeId};
pub use insight::{
    ChangeCode, ContentCode, EntryCode, EntryInsight, EntrySummary, INSIGHT_VERSION, InsightDiff,
    LINE_DIFF_MAX, RiskCode, RiskNote, SecretPattern, Totals, TreePath, insight,
};
pub use limit::{LimitExceeded, WalkLimits};
pub use new_root::NewRoot;
pub use node::{Extent, FileNode, NodeKind, SymlinkNode, Xattrs};
pub use notice::{Notice, set_notice_handler};
pub use patch::{Patch, PatchBody, PatchSection, PatchSections, unified_diff};
pub use pending::WORKSPACE_LABEL;
pub use pin::Pin;
pub use pin_store::ProcessPin;
pub use progress::{NoProgress, Progress};
pub use quote::{quote_path, shorten_path, unquote_path};
pub use rebuild_report::{Loss, LostReference, LostSnapshot, RebuildReport};
pub use reference::check_reference_name;
pub use retention::{Retention, RetentionPlan};
pub use snapshot::{Snapshot, SnapshotRoot, Timestamp};
pub use store::Store;
pub use tree::Tree;
pub use tree_path::{BadPath, DEPTH_MAX};
pub use verify::VerifyReport;
pub use virtual_tree::{
    AddOutcome, Attributes, FileToAdd, LinkedFile, Stat, TreeError, VirtualEntry, VirtualTree,
};
pub use walk_limits::{WalkUsage, xattrs_size};
