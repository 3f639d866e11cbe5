//! Exchange with other tools.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::history::Record;
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
    /// The snapshot
    #[arg(value_name = "ID")]
    pub(crate) snapshot: String,
}

/// Make a snapshot from a tar archive and print its id
///
/// Owners are not kept. Devices, sockets and fifos are named on stderr and skipped. An archive whose names lead
/// outside of it is refused as a whole.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace import main.tar -m \"from the archive\" --ref main
  zstd -dc main.tar.zst | workspace import")]
pub(crate) struct Import {
    /// The archive, uncompressed [default: stdin]
    #[arg(value_name = "TAR", value_hint = ValueHint::FilePath)]
    pub(crate) archive: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) record: Record,
    /// Keep set-uid and set-gid bits, which are dropped otherwise
    #[arg(long)]
    pub(crate) keep_set_id: bool,
}

/// Make snapshots from the history of a git repository
///
/// Every commit becomes a snapshot with the same author, message, time and parents, and its id in the label `git.commit`.
/// Commits that were imported before are used as they are. Prints the snapshot of each REV. Needs the program `git`.
/// Submodules are named on stderr and skipped.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace import-git ../repository
  workspace import-git ../repository main --ref main
  workspace import-git ../repository v1.0 v2.0")]
pub(crate) struct ImportGit {
    /// The repository, a directory; clone one that is elsewhere first
    #[arg(value_name = "REPO", value_hint = ValueHint::DirPath)]
    pub(crate) repository: PathBuf,
    /// Revisions to import, with all their history
    #[arg(value_name = "REV", default_value = "HEAD")]
    pub(crate) revisions: Vec<String>,
    /// Move this reference to the snapshot of REV, of which there is one then
    #[arg(long = "ref", value_name = "NAME", value_parser = reference::name)]
    pub(crate) reference: Option<String>,
}
