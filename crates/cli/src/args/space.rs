//! Commands on the store as a whole.

use clap::Args;
use workspace_state::Timestamp;

use super::process::time_or_age;

/// Free content that no snapshot uses
///
/// Without --keep options all snapshots stay. With them, snapshots that no option keeps are removed first; snapshots
/// that a reference points to always stay. Other processes may use the store at the same time: content that they still
/// need is left for a later collection. Content that an interrupted command left behind is kept for a minute.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace gc --dry-run
  workspace gc
  workspace gc --keep-last 20 --keep-since 30d --keep-labelled")]
pub(crate) struct Gc {
    /// Only print what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep the N newest snapshots
    #[arg(long, value_name = "N")]
    pub(crate) keep_last: Option<usize>,
    /// Keep snapshots from TIME on: a date, a time, or an age such as 36h, 7d or 2w
    #[arg(long, value_name = "TIME", value_parser = time_or_age)]
    pub(crate) keep_since: Option<Timestamp>,
    /// Keep snapshots that have labels
    #[arg(long)]
    pub(crate) keep_labelled: bool,
}

/// Check all content of the store
///
/// Prints every damaged path with its snapshot; the exit status is then 3. With --repair, prints the content of the new
/// index first; damage that is listed after it could not be repaired.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace verify
  workspace verify --repair")]
pub(crate) struct Verify {
    /// Rebuild the index from the packs first; no other process may use the store at the same time
    #[arg(long)]
    pub(crate) repair: bool,
}
