//! The state engine.

mod archive;
mod batch;
mod cache;
mod change;
mod checkpoint;
mod chunker;
mod codec;
mod commit;
mod content;
mod diff;
mod directory;
mod episode;
mod error;
mod failpoint;
mod gc;
mod history;
mod id;
mod index;
mod insight;
mod node;
mod pack;
mod page;
mod patch;
mod pin;
mod pool;
mod progress;
mod quote;
mod record;
mod recovery;
mod reference;
mod references_of;
mod retention;
mod rewrite;
mod session;
mod snapshot;
mod store;
mod tree;
mod verify;
mod virtual_tree;

pub use archive::{ArchiveError, ImportOptions, ImportReport, SkippedMember, export_tar, import_tar};
pub use change::{Durability, Expect};
pub use codec::DecodeError;
pub use diff::{Difference, DifferenceKind, diff};
pub use directory::{
    CheckoutOptions, CheckoutReport, DirectoryError, SkipReason, Skipped, SnapshotOptions, SnapshotReport,
    checkout, snapshot_directory,
};
pub use episode::Episode;
pub use error::{Result, StoreError};
pub use gc::{GcOptions, GcReport};
pub use history::{History, Resolved};
pub use id::{ChunkId, EpisodeId, NodeId, ParseIdError, PinId, SnapshotId, TreeId};
pub use insight::{
    ChangeCode, ContentCode, EntryCode, EntryInsight, EntrySummary, INSIGHT_VERSION, InsightDiff,
    LINE_DIFF_MAX, RiskCode, RiskNote, SecretPattern, Totals, TreePath, insight,
};
pub use node::{Extent, FileNode, NodeKind, SymlinkNode, Xattrs};
pub use patch::{Patch, PatchBody, PatchSection, unified_diff};
pub use pin::{Pin, ProcessPin};
pub use progress::{Progress, Quiet};
pub use quote::{quote_path, unquote_path};
pub use retention::{Retention, RetentionPlan};
pub use snapshot::{NewSnapshot, Snapshot, Timestamp};
pub use store::{FORMAT, Store};
pub use tree::{BadPath, DirectoryNode, Entry, Node, Tree};
pub use verify::{Damage, VerifyReport};
pub use virtual_tree::{Attributes, Stat, TreeError, VirtualEntry, VirtualTree};
