//! The state engine: content-addressed snapshots of file trees.
//!
//! A [`Store`] keeps chunks, nodes and snapshots in one directory, opened by any number of processes at
//! once, as an ordinary user. On it:
//!
//! - a [`VirtualTree`] is a mutable tree in memory over a snapshot: restore and clone take constant time,
//!   commit costs what changed. This is what a search steps on.
//! - [`snapshot_directory`] and [`checkout`] bring real directories in and out.
//! - a [`Tree`] reads a snapshot; [`diff`] compares two, and [`insight`] says what a difference means.
//! - [`Store::collect_garbage`], [`Store::verify`], references, pins and episodes do what their names say.
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
//! // Fork: both go their own way from here.
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

mod archive;
mod batch;
mod byte_lock;
mod cache;
mod cancel;
mod change;
mod checkpoint;
mod chunker;
mod codec;
mod commit;
mod content;
mod counts;
mod diff;
mod directory;
mod episode;
mod error;
mod failpoint;
mod format;
mod gc;
mod history;
mod id;
mod index;
mod insight;
mod lock_holder;
mod log;
mod log_records;
mod loss;
mod mark;
mod node;
mod notice;
mod pack;
mod page;
mod patch;
mod pending;
mod pin;
pub mod platform;
mod pool;
mod presence;
mod progress;
mod quote;
mod recent;
mod record;
mod records;
mod recovery;
mod reference;
mod references_of;
mod reserve;
mod retention;
mod rewrite;
mod session;
mod snapshot;
mod store;
#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub mod testing;
mod tree;
mod verify;
mod virtual_tree;
mod waiting;
mod walk_limits;

pub use archive::{
    ArchiveError, ArchiveLimits, ExtractOptions, ExtractProfile, ExtractReport, Extractor, ImportOptions,
    ImportReport, LimitKind, ListedFile, MemoryBudget, SkippedMember, export_tar, import_tar, list_tar,
};
pub use cancel::{Cancel, CancelOnDrop, CancelReader, Cancelled};
pub use change::{Durability, Expect};
pub use codec::DecodeError;
pub use counts::IndexCounts;
pub use diff::{Beside, Difference, DifferenceKind, Subtree, diff, diff_beside};
pub use directory::{
    CheckoutOptions, CheckoutReport, DirectoryError, DirectoryPreview, Looks, Reading, SkipReason, Skipped,
    SkippedEntries, SnapshotOptions, SnapshotReport, WriteLimit, apply_changes, checkout, escape_attributes,
    ignored_paths, materialize, note_snapshot, open_plain, preview_directory, preview_directory_with,
    snapshot_directory, snapshot_directory_with, unescape_attributes, user_attributes,
};
pub use episode::{Episode, EpisodeLink, EpisodeSummary};
pub use error::{Result, StoreError};
pub use format::FORMAT;
pub use gc::{GcOptions, GcReport};
pub use history::{History, Resolved};
pub use id::{ChunkId, EpisodeId, NodeId, ParseIdError, PinId, SnapshotId, TreeId};
pub use insight::{
    ChangeCode, ContentCode, EntryCode, EntryInsight, EntrySummary, INSIGHT_VERSION, InsightDiff,
    LINE_DIFF_MAX, RiskCode, RiskNote, SecretPattern, Totals, TreePath, insight,
};
pub use loss::{Loss, LostReference, LostSnapshot, RebuildReport};
pub use node::{Extent, FileNode, NodeKind, SymlinkNode, Xattrs};
pub use notice::{Notice, set_notice_handler};
pub use patch::{Patch, PatchBody, PatchSection, PatchSections, unified_diff};
pub use pin::{Pin, ProcessPin};
pub use progress::{Progress, Quiet};
pub use quote::{quote_path, shorten_path, unquote_path};
pub use reference::check_reference_name;
pub use retention::{Retention, RetentionPlan};
pub use snapshot::{NewSnapshot, Snapshot, Timestamp};
pub use store::Store;
pub use tree::{BadPath, DEPTH_MAX, DirectoryNode, Entry, Node, Tree};
pub use verify::{Damage, VerifyReport};
pub use virtual_tree::{Attributes, FileAt, SameFile, Stat, Taken, TreeError, VirtualEntry, VirtualTree};
pub use walk_limits::{LimitExceeded, WalkLimits, WalkUsage, xattrs_size};
