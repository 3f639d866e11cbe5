//! Commands on the content of snapshots: list, print, compare, merge, check out, mount.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::history::SnapshotMetadata;
use super::merge::MergeRules;
use super::server::WhyServer;

/// List a directory of a snapshot
///
/// Names of directories end in `/`. Names with special characters are printed in double quotes, with escapes. PATH may
/// be written that way, too; put single quotes around it for the shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace ls main
  workspace ls main src -l
  workspace ls main -R
  workspace ls main '\"one\\ntwo\"/'")]
pub(crate) struct Ls {
    /// Snapshot: its id, a prefix of it, or a reference
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Path in the snapshot [default: its root]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) path: OsString,
    /// Also print mode, size, modification time and targets of symlinks
    #[arg(short, long)]
    pub(crate) long: bool,
    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// Print a file of a snapshot
///
/// PATH may be quoted as `workspace ls` prints it; put single quotes around it for the shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace cat main src/main.rs
  workspace cat 0199a image.png > image.png")]
pub(crate) struct Cat {
    /// Snapshot: its id, a prefix of it, or a reference
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Path of the file in the snapshot
    pub(crate) path: OsString,
}

/// Show the differences between two snapshots or directories
///
/// A name is first looked up as a snapshot, then as a directory; `./NAME` is always a directory. Files that
/// `.workspaceignore` names are not compared. A file that only has a new name is listed as renamed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace diff 0199a main
  workspace diff main~1 main
  workspace diff main project --patch
  workspace diff main ./main --stat
  workspace diff main project --no-ignore
  workspace --json diff 0199a main --insight
  workspace diff 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0 main --why")]
pub(crate) struct Diff {
    /// Old side: a snapshot or a directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) a: OsString,
    /// New side: a snapshot or a directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) b: OsString,
    /// Print a patch
    #[arg(short, long, group = "form")]
    pub(crate) patch: bool,
    /// Print the number of added and removed lines of each file
    #[arg(long, group = "form")]
    pub(crate) stat: bool,
    /// Print the insight diff: size, lines and risks of each change
    #[arg(long, group = "form")]
    pub(crate) insight: bool,
    /// Print the commands and notes that caused each change, for two snapshots of a server: full ids or references
    #[arg(long, group = "form")]
    pub(crate) why: bool,
    /// Do not read .workspaceignore files in directories
    #[arg(long, conflicts_with = "why")]
    pub(crate) no_ignore: bool,
    #[command(flatten)]
    pub(crate) server: WhyServer,
}

/// Merge snapshots or directories that have a common ancestor
///
/// Prints the id of the merged tree, then the conflicts. The sides are not changed; --commit stores the result as a
/// snapshot. A name is first looked up as a snapshot, then as a directory; `./NAME` is always a directory. Several
/// THEIRS are merged one after the other.
///
/// Text is merged by lines as in git, structured documents by value. Renames of files and directories are followed. A
/// file with a conflict keeps the content of OURS. If OURS and THEIRS have different entries of the same name, the
/// entry of THEIRS is called `NAME~theirs`. With --json, each conflict lists the result of every rule and strategy that
/// could resolve it.
///
/// The exit status is 0 if there are no conflicts, 1 if there are, 129 for a usage error and 255 if the merge failed.
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
    /// Side that the others are merged into
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) ours: OsString,
    /// Sides to merge into OURS
    #[arg(value_hint = ValueHint::DirPath, required = true)]
    pub(crate) theirs: Vec<OsString>,
    #[command(flatten)]
    pub(crate) rules: MergeRules,
    /// Store the result as a snapshot, even if there are conflicts, and print its id
    #[arg(long)]
    pub(crate) commit: bool,
    #[command(flatten)]
    pub(crate) metadata: SnapshotMetadata,
    /// Do not read .workspaceignore files in directories
    #[arg(long)]
    pub(crate) no_ignore: bool,
}

/// Write a snapshot to a directory
///
/// If the directory was checked out or snapshotted before, only the differences between the two snapshots are written.
/// Files that are in neither snapshot are not changed. The checkout is refused if it would overwrite local edits,
/// unless you give --force. If a checkout is interrupted, run it again to finish it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace checkout main copy
  workspace checkout 0199a copy --force")]
pub(crate) struct Checkout {
    /// Snapshot: its id, a prefix of it, or a reference
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Directory; created if it does not exist
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Overwrite local edits and other entries in the way
    #[arg(long)]
    pub(crate) force: bool,
    /// Keep set-uid and set-gid bits, which are dropped by default
    #[arg(long)]
    pub(crate) keep_set_id: bool,
    /// Sync all files to disk before the command ends
    #[arg(long)]
    pub(crate) sync: bool,
}

/// Mount all snapshots of the store as read-only directories DIR/ID
///
/// This is a lazy mount: files are loaded on first read. References and short ids are names in DIR, too, except
/// references with a slash such as `runs/42`. A process in the background serves the mount until `workspace umount`;
/// its log is lazy-mount.log in the store.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mkdir mnt && workspace mount mnt
  grep -r pattern mnt/main/
  workspace umount mnt")]
pub(crate) struct Mount {
    /// Mount point, a directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Serve the mount in this process until it is unmounted
    #[arg(long)]
    pub(crate) foreground: bool,
}

/// Unmount a lazy mount, even if its process has died
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  workspace umount mnt\n  workspace umount mnt --lazy")]
pub(crate) struct Umount {
    /// Mount point
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Detach the mount point now, even if it is busy; processes that use it keep it until they end
    #[arg(long)]
    pub(crate) lazy: bool,
}
