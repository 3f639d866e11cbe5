//! The content of snapshots: listed, read, compared, brought to disk.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::history::Record;
use super::merge::MergeRules;

/// List a directory of a snapshot
///
/// Names of directories end in `/`. A name that a terminal could not show is quoted, with escapes; PATH may be given so too,
/// in single quotes for the shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace ls main
  workspace ls main src -l
  workspace ls main -R
  workspace ls main '\"one\\ntwo\"/'")]
pub(crate) struct Ls {
    /// The snapshot
    #[arg(value_name = "ID")]
    pub(crate) snapshot: String,
    /// A path inside it [default: its root]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) path: OsString,
    /// Also mode, size, time and where symlinks point
    #[arg(short, long)]
    pub(crate) long: bool,
    /// List all entries below, too, by path
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// Print a file of a snapshot
///
/// PATH may be given in the quotes in which `workspace ls` prints it, in single quotes for the shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace cat main src/main.rs
  workspace cat 0199a image.png > image.png")]
pub(crate) struct Cat {
    /// The snapshot
    #[arg(value_name = "ID")]
    pub(crate) snapshot: String,
    /// The file's path inside it
    pub(crate) path: OsString,
}

/// Show what differs between two snapshots or directories
///
/// Each side is a snapshot or, where no snapshot has that name, a directory; `./NAME` is always a directory. Of a directory,
/// what a snapshot would take is compared. Files with the same content under another name count as renamed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace diff 0199a main
  workspace diff main~1 main
  workspace diff main project --patch
  workspace diff main ./main --stat
  workspace diff main project --no-ignore
  workspace --json diff 0199a main --insight")]
pub(crate) struct Diff {
    /// The older side
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) a: OsString,
    /// The newer side
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) b: OsString,
    /// The lines that differ, as a patch
    #[arg(short, long, group = "form")]
    pub(crate) patch: bool,
    /// Lines added and removed in each file
    #[arg(long, group = "form")]
    pub(crate) stat: bool,
    /// The insight diff: sizes, lines and risks of each change
    #[arg(long, group = "form")]
    pub(crate) insight: bool,
    /// Take everything in a directory, whatever .workspaceignore files say
    #[arg(long)]
    pub(crate) no_ignore: bool,
}

/// Merge snapshots or directories that come from one
///
/// Prints the id of the merged tree, then what could not be merged. BASE, OURS and THEIRS are snapshots or, where no snapshot has
/// that name, directories; `./NAME` is always a directory. Several THEIRS are merged one after another. Lines are merged as git merges
/// them, documents by value; renames of files and directories are followed. A file in conflict stays as OURS has it, and where two
/// things want one name, that of THEIRS is put beside it as `NAME~theirs`. Nothing is changed, unless --commit makes the result a
/// snapshot. With --json, each conflict tells what it would become by each rule and by other strategies.
///
/// The exit status is 0 if everything was merged, 1 if there are conflicts, 129 if the command line makes no
/// sense, and 255 if the merge failed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace merge-tree main~1 main agent
  workspace merge-tree main project ./copy
  workspace merge-tree base main agent --commit -m \"merge agent\" --ref main
  workspace merge-tree base main agent-1 agent-2 agent-3 --policy rules.json
  workspace --json merge-tree base main agent")]
pub(crate) struct MergeTree {
    /// Common ancestor
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) base: OsString,
    /// The side that is merged into
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) ours: OsString,
    /// The sides that are merged
    #[arg(value_hint = ValueHint::DirPath, required = true)]
    pub(crate) theirs: Vec<OsString>,
    #[command(flatten)]
    pub(crate) rules: MergeRules,
    /// Make the result a snapshot, conflicts or not, and print its id as well
    #[arg(long)]
    pub(crate) commit: bool,
    #[command(flatten)]
    pub(crate) record: Record,
    /// Take everything in a directory, whatever .workspaceignore files say
    #[arg(long)]
    pub(crate) no_ignore: bool,
}

/// Make a directory what a snapshot holds
///
/// A directory that was checked out or snapshotted before is brought from one snapshot to the other by writing only what
/// differs. Local edits in the way are refused unless forced; elsewhere they stay, and so do files that neither snapshot
/// knows. An interrupted checkout goes on when it is run again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace checkout main copy
  workspace checkout 0199a copy --force")]
pub(crate) struct Checkout {
    /// The snapshot
    #[arg(value_name = "ID")]
    pub(crate) snapshot: String,
    /// The directory; made if it is not there
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Overwrite local edits and what is in the way; other files that neither snapshot knows stay
    #[arg(long)]
    pub(crate) force: bool,
    /// Keep set-uid and set-gid bits, which are dropped otherwise
    #[arg(long)]
    pub(crate) keep_set_id: bool,
    /// Return only when everything is on disk
    #[arg(long)]
    pub(crate) sync: bool,
}

/// Mount the lazy view: every snapshot as a read-only directory DIR/ID
///
/// What is read is loaded as it is read. References and short ids work as names in DIR too, except references with a
/// slash (`runs/42`), whose snapshots are there by id. The view is served by a process of its own that ends with
/// `workspace umount`; its messages are in lazy-view.log in the store.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mkdir view && workspace mount view
  grep -r pattern view/main/
  workspace umount view")]
pub(crate) struct Mount {
    /// The mount point, a directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Serve it from this process, until it is unmounted
    #[arg(long)]
    pub(crate) foreground: bool,
}

/// Unmount the lazy view, also one whose process has died
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  workspace umount view\n  workspace umount view --lazy")]
pub(crate) struct Umount {
    /// The mount point
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Take it out of sight even while it is used; who uses it can go on
    #[arg(long)]
    pub(crate) lazy: bool,
}
