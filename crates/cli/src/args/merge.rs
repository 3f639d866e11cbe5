//! Merges of files.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// Merge two versions of a file that have a common ancestor
///
/// The result overwrites OURS unless you give -p. Arguments are those of `git merge-file` (without --object-id and
/// --diff-algorithm), and so is the exit status, except 128 for a file that is not text; so it can be git's merge
/// driver. Text is merged by lines, with the same result as git's. Where lines conflict, JSON, YAML and TOML are merged
/// by value, and comments and layout are kept. Logs get the lines that both sides appended. The file type follows from
/// the name of OURS, or from --path.
///
/// The exit status is 0 if there are no conflicts, else their number (at most 127); 128 if the file is not text, 129
/// for a usage error and 255 if the merge failed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace merge-file mine.json base.json yours.json
  workspace merge-file -p --style zdiff3 mine.txt base.txt yours.txt
  workspace merge-file --ours -p mine.toml base.toml yours.toml
  workspace merge-file --policy rules.json --path config/app.json mine base yours
  git config merge.workspace.driver \\
    'workspace merge-file --path %P -L %X -L %S -L %Y --marker-size %L %A %O %B'")]
pub(crate) struct MergeFile {
    /// Our version; overwritten with the result
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) ours: PathBuf,
    /// Common ancestor
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) base: PathBuf,
    /// Their version
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) theirs: PathBuf,
    /// Print the result instead of overwriting OURS; with --json it is the field `content`
    #[arg(short = 'p', long)]
    pub(crate) stdout: bool,
    /// Do not print conflicts
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Style of conflict markers
    #[arg(long, value_enum, default_value_t = ConflictStyle::Merge)]
    pub(crate) style: ConflictStyle,
    /// The same as --style diff3
    #[arg(long, conflicts_with = "style")]
    pub(crate) diff3: bool,
    /// The same as --style zdiff3
    #[arg(long, conflicts_with_all = ["style", "diff3"])]
    pub(crate) zdiff3: bool,
    /// Merge strategy
    #[arg(long = "type", value_enum, value_name = "TYPE", default_value_t = FileType::Auto)]
    pub(crate) file_type: FileType,
    /// Path that determines the file type, instead of the name of OURS
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Resolve conflicts with OURS
    #[arg(long = "ours", group = "favor")]
    pub(crate) ours_wins: bool,
    /// Resolve conflicts with THEIRS
    #[arg(long = "theirs", group = "favor")]
    pub(crate) theirs_wins: bool,
    /// Resolve conflicts of lines by keeping both sides
    #[arg(long, group = "favor")]
    pub(crate) union: bool,
    #[command(flatten)]
    pub(crate) rules: MergeRules,
    /// Label for conflict markers: the first for OURS, the second for BASE, the third for THEIRS
    #[arg(short = 'L', value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Length of conflict markers in characters
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) marker_size: u16,
}

/// Merge rules by path.
#[derive(Debug, Args)]
pub(crate) struct MergeRules {
    /// JSON file with merge rules: the strategy for each path, and the resolution of conflicts (docs/merge.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) policy: Option<PathBuf>,
    /// Side that wins conflicts under rules with `"onConflict": "priority"`; by default the later version wins
    #[arg(long, value_enum, value_name = "SIDE")]
    pub(crate) priority: Option<MergeSide>,
}

/// Side of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MergeSide {
    /// Side that is merged into
    Ours,
    /// Side that is merged
    Theirs,
}

/// Style of conflict markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConflictStyle {
    /// Both sides
    Merge,
    /// Both sides and the base
    Diff3,
    /// Like diff3, without common lines at the start and end of a conflict
    Zdiff3,
}

/// Merge strategy of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileType {
    /// By file name, then by content
    Auto,
    /// Merge by lines
    Text,
    /// Merge by value
    Json,
    /// Merge Jupyter notebooks by cell; outputs are taken from one side
    Notebook,
    /// Merge by value
    Yaml,
    /// Merge by value
    Toml,
    /// Merge a JSON document as a CRDT, which never conflicts
    Crdt,
    /// Append the lines that both sides appended
    Log,
    /// Take one side as a whole
    Binary,
}
