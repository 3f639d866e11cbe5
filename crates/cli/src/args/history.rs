//! Snapshots as records: made, listed, shown, removed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::reference;

/// Take a snapshot of a directory and print its id
///
/// Only what changed since the last snapshot of this directory is read. What `.workspaceignore` files name, in the
/// syntax of `.gitignore`, is left out, and so is the store itself where the directory contains it. Sockets, devices and fifos are named on stderr and skipped. A file that keeps
/// changing while it is read, or that may not be read, is left out, named on stderr, and makes the exit status 3.
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
    /// The directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) record: Record,
    /// Parent snapshot, instead of the one NAME points to; may be repeated
    #[arg(long = "parent", value_name = "ID")]
    pub(crate) parents: Vec<String>,
    /// Do not wait for the disk: survives a killed process, not a crash of the machine
    #[arg(long)]
    pub(crate) buffered: bool,
    /// Take everything, whatever .workspaceignore files say
    #[arg(long)]
    pub(crate) no_ignore: bool,
}

/// Metadata of a new snapshot.
#[derive(Debug, Args)]
pub(crate) struct Record {
    /// Why it was made
    #[arg(short, long, value_name = "MSG", default_value = "", hide_default_value = true)]
    pub(crate) message: String,
    /// Move this reference to it, making it if need be; refused when someone else moves it meanwhile
    #[arg(long = "ref", value_name = "NAME", value_parser = reference::name)]
    pub(crate) reference: Option<String>,
    /// Author [default: USER, LOGNAME, or the name of the user in /etc/passwd]
    #[arg(long, value_name = "A")]
    pub(crate) author: Option<String>,
    /// A label; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
}

impl Record {
    /// Returns true if any metadata is given.
    pub(crate) fn says_something(&self) -> bool {
        !self.message.is_empty()
            || self.reference.is_some()
            || self.author.is_some()
            || !self.labels.is_empty()
    }
}

pub(super) fn label(text: &str) -> Result<(String, String), String> {
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
  workspace --json log | jq -r .id")]
pub(crate) struct Log {
    /// Only what NAME points to and all before it; an id works too
    #[arg(long = "ref", value_name = "NAME")]
    pub(crate) reference: Option<String>,
    /// At most N
    #[arg(short = 'n', long = "limit", value_name = "N")]
    pub(crate) limit: Option<usize>,
}

/// Show everything about a snapshot
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace show main
  workspace show main~2
  workspace --json show 0199a")]
pub(crate) struct Show {
    /// The snapshot
    #[arg(value_name = "ID")]
    pub(crate) snapshot: String,
}

/// Remove snapshots and references
///
/// Content that nothing else has is freed by the next `workspace gc`. A snapshot that a reference points to is
/// only removed together with the reference. Episodes that name a removed snapshot stay; stderr says how many they are.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace rm 0199a 0199b
  workspace rm --ref experiment
  workspace rm --ref experiment 0199a")]
pub(crate) struct Rm {
    /// The snapshots; none need be given with --ref
    #[arg(value_name = "ID")]
    pub(crate) snapshots: Vec<String>,
    /// Remove this reference; may be repeated
    #[arg(long = "ref", id = "references", value_name = "NAME")]
    pub(crate) references: Vec<String>,
}
