//! Three-way merge of files and trees.
//!
//! Files are merged as bytes, without access to a file system. Trees are read from their store.
//!
//! - [`merge_file`] merges three versions of a file by a [`Strategy`], named by a [`FileSettings`] or else
//!   chosen by the type of the file. Changes that cannot be merged are returned as a [`Conflict`], not as markers in
//!   the file. [`choices`] lists the possible resolutions.
//! - JSON, YAML and TOML are merged value by value and keep their formatting: a [`ValueConflict`] names each
//!   value that both sides changed.
//! - [`merge_trees`] merges whole trees and reports conflicts as [`TreeConflict`]s. [`PathRules`] have a
//!   [`FileSettings`] for each path.
//! - [`TextMerge`] merges lines as git does, and can render conflicts with markers.
//!
//! ```
//! use workspace_merge::{FileSettings, Input, Strategies, Versions, merge_file};
//!
//! let versions = Versions {
//!     base: Some(b"one\ntwo\nthree\n"),
//!     ours: b"ONE\ntwo\nthree\n",
//!     theirs: b"one\ntwo\nTHREE\n",
//! };
//! let input = Input::new("notes.txt", versions);
//! let merged = merge_file(&Strategies::default(), &FileSettings::default(), &input)?;
//! assert_eq!(merged.merged.content, b"ONE\ntwo\nTHREE\n");
//! assert!(merged.conflict.is_none());
//! # Ok::<(), workspace_merge::UnknownStrategy>(())
//! ```

mod choices;
mod comments;
mod conflict;
mod crdt;
mod file;
mod file_settings;
mod file_type;
mod json;
mod layout;
mod merge;
mod notebook;
mod path_rules;
mod quote;
mod registry;
mod strategy;
mod structured;
mod text;
mod text_strategy;
mod toml;
mod tree;
mod unchanged_side;
mod unparsed_strategies;
mod value;
mod yaml;

pub use choices::{Choice, ChoiceResult, choices};
pub use conflict::{Conflict, ConflictLocation, ValueConflict};
pub use file::{Author, Histories, Input, MergedContent, Outcome, Side, Versions};
pub use file_settings::{CrdtType, FileSettings, OnConflict};
pub use merge::{Decision, FileMerge, conflict_sides, merge_file};
pub use path_rules::{InvalidPattern, PathRule, PathRules, SettingsSource};
pub use registry::{Strategies, UnknownStrategy};
pub use strategy::Strategy;
pub use text::{ConflictMarkers, DiffLimitExceeded, DiffLimits, Favor, LineConflict, Style, TextMerge};
pub use tree::{
    ConflictClass, HistorySource, MergedFile, RenameCandidate, RenameOptions, TreeConflict, TreeMerge,
    TreeMergeError, TreeOptions, TreeVersion, merge_trees, pair_similar_files, tree_choices,
};
