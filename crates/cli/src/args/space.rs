//! The store itself: its space and its health.

use clap::Args;
use workspace_state::Timestamp;

use crate::time;

/// Remove what nothing refers to
///
/// Without a rule, all snapshots stay and only unreachable content goes. With rules, first the snapshots that no rule
/// keeps are removed; what references point to always stays. Others may go on working meanwhile: what they still
/// use is left for a later collection, and so is for a minute what an interrupted command left behind.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace gc --dry-run
  workspace gc
  workspace gc --keep-last 20 --keep-since 30d --keep-labelled")]
pub(crate) struct Gc {
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep the N newest snapshots
    #[arg(long, value_name = "N")]
    pub(crate) keep_last: Option<usize>,
    /// Keep snapshots made at or after TIME: a date, a time, or an age such as 36h, 7d or 2w
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) keep_since: Option<Timestamp>,
    /// Keep snapshots that have labels
    #[arg(long)]
    pub(crate) keep_labelled: bool,
}

fn since(text: &str) -> Result<Timestamp, String> {
    time::parse(text, &time::now()).ok_or_else(|| format!("expected {}", time::FORMS))
}

/// Read everything in the store and check it
///
/// Every damaged path is printed with its snapshot, and the exit status is then 3. With `--repair`, first what the new index
/// holds is printed, and what is still damaged could not be repaired.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace verify
  workspace verify --repair")]
pub(crate) struct Verify {
    /// First build the index anew from the packs; nothing else may use the store meanwhile
    #[arg(long)]
    pub(crate) repair: bool,
}
