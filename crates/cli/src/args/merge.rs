//! Merges of files.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// Merge what two sides made of a file
///
/// Takes the arguments of `git merge-file` (but for --object-id and --diff-algorithm) and ends as it does, so that it can be git's
/// merge driver. OURS is overwritten with the result unless -p is given. Text is merged line by line, with the same result as
/// git's; JSON, YAML and TOML value by value where lines do not do, keeping comments and layout; logs by appending what both sides
/// appended. The type is told by the name of OURS, or by --path.
///
/// The exit status is 0 if everything was merged, the number of conflicts (at most 127) if there are some, 128 if the file is
/// no text, 129 if the command line makes no sense, and 255 if the merge failed.
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
    /// One side; gets the result
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) ours: PathBuf,
    /// Common ancestor of both sides
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) base: PathBuf,
    /// The other side
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) theirs: PathBuf,
    /// Print the result, and leave OURS alone; with --json it is the field `content`
    #[arg(short = 'p', long)]
    pub(crate) stdout: bool,
    /// Say nothing of conflicts
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
    pub(crate) kind: FileType,
    /// The path that tells the type of the file, if its name does not
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Settle conflicts for OURS
    #[arg(long = "ours", group = "favor")]
    pub(crate) ours_wins: bool,
    /// Settle conflicts for THEIRS
    #[arg(long = "theirs", group = "favor")]
    pub(crate) theirs_wins: bool,
    /// Settle conflicts of lines by keeping both sides
    #[arg(long, group = "favor")]
    pub(crate) union: bool,
    #[command(flatten)]
    pub(crate) rules: MergeRules,
    /// Labels of markers: of OURS, the base and THEIRS, in this order
    #[arg(short = 'L', value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Length of markers in characters
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) marker_size: u16,
}

/// Merge rules by path.
#[derive(Debug, Args)]
pub(crate) struct MergeRules {
    /// A JSON file with rules: which files are merged by which strategy, and what becomes of conflicts
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) policy: Option<PathBuf>,
    /// Side that ranks higher, for rules that go by priority
    #[arg(long, value_enum, value_name = "SIDE")]
    pub(crate) priority: Option<MergeSide>,
}

/// Side of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MergeSide {
    /// The side that is merged into
    Ours,
    /// The side that is merged
    Theirs,
}

/// Style of conflict markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConflictStyle {
    /// Both sides
    Merge,
    /// Both sides and the base
    Diff3,
    /// Like diff3, without lines that both sides begin or end with
    Zdiff3,
}

/// Merge strategy of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileType {
    /// By its name, then by what is in it
    Auto,
    /// Line by line
    Text,
    /// Value by value
    Json,
    /// Cell by cell, results chosen: Jupyter notebooks
    Notebook,
    /// Value by value
    Yaml,
    /// Value by value
    Toml,
    /// JSON in which nothing conflicts
    Crdt,
    /// Lines that both sides appended
    Log,
    /// One or the other
    Binary,
}
