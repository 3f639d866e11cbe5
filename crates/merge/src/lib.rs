//! Three-way merge of files and trees.
//!
//! Files are merged as bytes, without access to a file system. Trees are read from their store: the storage of the
//! crate `workspace_state`, in which all objects are named by their hashes.
//!
//! - [`merge_file`] merges three versions of a file by a [`Strategy`], the merge algorithm for a type of files. The
//!   [`FileSettings`] name the strategy; otherwise the type of the file selects it. Changes that cannot be merged are
//!   returned as a [`Conflict`], not as markers in the file. [`choices`] lists the possible resolutions.
//! - JSON, YAML and TOML are merged value by value and keep their formatting: a [`ValueConflict`] names each
//!   value that both sides changed.
//! - [`merge_trees`] merges whole trees and reports conflicts as [`TreeConflict`]s. [`PathRules`] select the
//!   [`FileSettings`] for each path, or look them up in a [`SettingsSource`] of the caller.
//! - [`TextMerge`] merges lines as git does, and can render conflicts with markers. [`conflict_sides`] returns the two
//!   files between which such markers show the conflicts of a strategy that does not merge lines.
//! - [`Histories`] are the states that a strategy stores with versions of a file, such as the operations of a CRDT. For
//!   trees, a [`HistorySource`] looks them up.
//!
//! Of the private modules, `layout` writes merged documents with the formatting of their sources, `quote` quotes JSON
//! strings, and `unparsed_strategies` has the strategies that do not parse the file.
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
//! let result = merge_file(&Strategies::default(), &FileSettings::default(), &input)?;
//! assert_eq!(result.merged.content, b"ONE\ntwo\nTHREE\n");
//! assert!(result.conflict.is_none());
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
