//! Three-way merge: many agents' changes into one tree, nothing lost.
//!
//! Pure functions over bytes and trees: nothing here opens a file or starts a process.
//!
//! - [`merge_file`] merges three versions of a file by a [`Strategy`], chosen by a rule of a [`Policy`] or by the type of
//!   the file. What cannot be merged is a [`Conflict`]: data, not markers in a file. [`choices`] tells what would become of it.
//! - JSON, YAML and TOML are merged value by value, and written as they were: [`ValueConflict`] tells where both sides
//!   changed the same value.
//! - [`merge_trees`] merges whole trees, and tells what could not be merged as [`TreeConflict`]s.
//! - [`TextMerge`] merges lines as git does, and renders conflicts with markers for those who want them.
//!
//! ```
//! use workspace_merge::{FileRule, Input, Strategies, Versions, merge_file};
//!
//! let versions = Versions {
//!     base: Some(b"one\ntwo\nthree\n"),
//!     ours: b"ONE\ntwo\nthree\n",
//!     theirs: b"one\ntwo\nTHREE\n",
//! };
//! let input = Input::new("notes.txt", versions);
//! let merged = merge_file(&Strategies::default(), &FileRule::default(), &input)?;
//! assert_eq!(merged.merged.content, b"ONE\ntwo\nTHREE\n");
//! assert!(merged.conflict.is_none());
//! # Ok::<(), workspace_merge::UnknownStrategy>(())
//! ```

mod choices;
mod comments;
mod conflict;
mod crdt;
mod file;
mod json;
mod kinds;
mod layout;
mod merge;
mod notebook;
mod policy;
mod simple;
mod strategy;
mod structured;
mod text;
mod text_strategy;
mod toml;
mod tree;
mod value;
mod yaml;

pub use choices::{Choice, Chosen, choices};
pub use conflict::{Conflict, Place, ValueConflict};
pub use file::{Author, Histories, Input, Merged, Outcome, Side, Versions};
pub use merge::{Decided, FileMerge, in_conflict, merge_file};
pub use policy::{BadPattern, Crdt, FileRule, OnConflict, PathRule, Policy};
pub use strategy::{Strategies, Strategy, UnknownStrategy};
pub use text::{Effort, Favor, Labels, Region, Style, TextMerge, TooHard};
pub use tree::{
    ConflictClass, HistorySource, MergedFile, RenameOptions, TreeConflict, TreeMerge, TreeMergeError,
    TreeOptions, TreeVersion, merge_trees, tree_choices,
};
