//! Commands on snapshots as records: create, list, show, remove.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::reference;
use super::server::ServerInsteadOfStore;

/// Take a snapshot of a directory and print its id
///
/// Only files that changed since the last snapshot of this directory are read. Files that `.workspaceignore` names, in
/// the syntax of `.gitignore`, are excluded, and so is the store if it is in the directory. Sockets, devices and fifos
/// are skipped and listed on stderr. A file that cannot be read, or that keeps changing during the read, is skipped and
/// listed on stderr as well; the exit status is then 3.
#[derive(Debug, Args)]
#[command(
    name = "snapshot",
    after_help = "\
Examples:
  workspace snapshot project -m \"first version\" --ref main
  workspace snapshot project --label keep=yes --label run=42
  id=$(workspace snapshot project --buffered)"
)]
pub(crate) struct SnapshotArgs {
    /// Directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) metadata: SnapshotMetadata,
    /// Parent snapshot [default: the snapshot that --ref points to]; may be repeated
    #[arg(long = "parent", value_name = "SNAPSHOT")]
    pub(crate) parents: Vec<String>,
    /// Do not sync to disk: the snapshot survives a killed process, but not a crash of the machine
    #[arg(long)]
    pub(crate) buffered: bool,
    /// Do not read .workspaceignore files
    #[arg(long)]
    pub(crate) no_ignore: bool,
}

/// Metadata of a new snapshot.
#[derive(Debug, Args)]
pub(crate) struct SnapshotMetadata {
    /// Message
    #[arg(short, long, value_name = "MSG", default_value = "", hide_default_value = true)]
    pub(crate) message: String,
    /// Move this reference to the snapshot, or create it; fails if another process moves it at the same time
    #[arg(long = "ref", value_name = "NAME", value_parser = reference::name)]
    pub(crate) reference: Option<String>,
    /// Author [default: USER, LOGNAME, or the name of the user in /etc/passwd]
    #[arg(long, value_name = "A")]
    pub(crate) author: Option<String>,
    /// Label; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = key_value)]
    pub(crate) labels: Vec<(String, String)>,
}

impl SnapshotMetadata {
    /// Returns true if any metadata is given.
    pub(crate) fn is_given(&self) -> bool {
        !self.message.is_empty()
            || self.reference.is_some()
            || self.author.is_some()
            || !self.labels.is_empty()
    }
}

/// Parses `KEY=VALUE`: a label or an environment variable.
pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// List snapshots, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace log
  workspace log --ref main -n 10
  workspace --json log | jq -r .id
  workspace log -n 10 --server https://workspace.example.com")]
pub(crate) struct Log {
    /// Only the snapshot that NAME points to and its ancestors; an id works, too. Needs the store
    #[arg(long = "ref", value_name = "NAME", conflicts_with = "server")]
    pub(crate) reference: Option<String>,
    /// Maximum number of snapshots
    #[arg(short = 'n', long = "limit", value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) server: ServerInsteadOfStore,
}

/// Show the details of a snapshot
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace show main
  workspace show main~2
  workspace --json show 0199a")]
pub(crate) struct Show {
    /// Snapshot: its id, a prefix of it, or a reference
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
}

/// Remove snapshots and references
///
/// The next `workspace gc` frees content that no other snapshot has. A snapshot that a reference points to can only be
/// removed together with the reference. Episodes of a removed snapshot stay; stderr says how many there are.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace rm 0199a 0199b
  workspace rm --ref experiment
  workspace rm --ref experiment 0199a
  workspace rm 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0 --server https://workspace.example.com")]
pub(crate) struct Rm {
    /// Snapshots: for each its id, a prefix of it, or a reference; with --server, full ids or references; optional with
    /// --ref
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshots: Vec<String>,
    /// Remove this reference; may be repeated
    #[arg(long = "ref", value_name = "NAME")]
    pub(crate) references: Vec<String>,
    #[command(flatten)]
    pub(crate) server: ServerInsteadOfStore,
}
