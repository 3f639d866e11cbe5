//! Commands that exchange snapshots with other tools.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::history::SnapshotMetadata;
use super::reference;

/// Write a snapshot as a tar archive to stdout
///
/// The archive (pax) keeps times, user extended attributes, hard links and holes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace export main > main.tar
  workspace export main | tar -x -C copy
  workspace export main | zstd > main.tar.zst")]
pub(crate) struct Export {
    /// Snapshot
    #[arg(value_name = "ID")]
    pub(crate) snapshot: String,
}

/// Create a snapshot from a tar archive and print its id
///
/// File owners are not kept. Devices, sockets and fifos are skipped and listed on stderr. An archive with a path that leads
/// outside of the archive is refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace import main.tar -m \"from the archive\" --ref main
  zstd -dc main.tar.zst | workspace import")]
pub(crate) struct Import {
    /// Uncompressed archive [default: stdin]
    #[arg(value_name = "TAR", value_hint = ValueHint::FilePath)]
    pub(crate) archive: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) metadata: SnapshotMetadata,
    /// Keep set-uid and set-gid bits, which are dropped by default
    #[arg(long)]
    pub(crate) keep_set_id: bool,
}

/// Create snapshots from the history of a git repository
///
/// Every commit becomes a snapshot with the same author, message, time and parents. The label `git.commit` is the id of the
/// commit. Commits that were imported before are not imported again. Prints the snapshot of each REV. Submodules are skipped
/// and listed on stderr. This needs the program `git`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace import-git ../repository
  workspace import-git ../repository main --ref main
  workspace import-git ../repository v1.0 v2.0")]
pub(crate) struct ImportGit {
    /// Directory of the repository; clone a remote repository first
    #[arg(value_name = "REPO", value_hint = ValueHint::DirPath)]
    pub(crate) repository: PathBuf,
    /// Revisions to import with their history
    #[arg(value_name = "REV", default_value = "HEAD")]
    pub(crate) revisions: Vec<String>,
    /// Move this reference to the snapshot of REV; needs a single REV
    #[arg(long = "ref", value_name = "NAME", value_parser = reference::name)]
    pub(crate) reference: Option<String>,
}
