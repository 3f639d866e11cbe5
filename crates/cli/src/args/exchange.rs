//! Commands that exchange snapshots with other tools.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::history::SnapshotMetadata;
use super::reference;
use super::server::ServerInsteadOfStore;

/// Write a snapshot as a tar archive to stdout
///
/// The archive (pax) keeps times, user extended attributes, hard links and holes. With PATH, it has only that
/// directory, with names relative to it, or that file or symlink.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace export main > main.tar
  workspace export main | tar -x -C copy
  workspace export main | zstd > main.tar.zst
  workspace export main src -o src.tar
  workspace export 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0 -o x.tar --server http://127.0.0.1:8080")]
pub(crate) struct Export {
    /// Snapshot; with --server, its full id or a reference
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Path in the snapshot [default: its root]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) path: OsString,
    /// Write the archive to this file instead; an existing file is replaced when the archive is complete
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerInsteadOfStore,
}

/// Create a snapshot from a tar archive and print its id
///
/// File owners are not kept. Devices, sockets and fifos are skipped and listed on stderr. An archive with a path that
/// leads outside of the archive is refused.
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
/// Every commit becomes a snapshot with the same author, message, time and parents. The label `git.commit` is the id of
/// the commit. Commits that were imported before are not imported again. Prints the snapshot of each REV. Submodules
/// are skipped and listed on stderr. This needs the program `git`.
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
