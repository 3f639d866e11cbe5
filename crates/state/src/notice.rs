//! Notices for users about events in a store.

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use crate::rebuild_report::RebuildReport;

/// Event in a store that users should know about, and that is not the result of a function.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// The index of the store (its LMDB database) was unusable, and was rebuilt when the store was opened.
    Rebuilt {
        /// Directory of the store.
        store: &'a Path,
        /// Result of the rebuild.
        report: &'a RebuildReport,
    },
    /// A thread has waited a second or longer for a lock of the store.
    Waiting {
        /// Directory of the store.
        store: &'a Path,
        /// Purpose of the wait, such as `to open it`.
        purpose: &'static str,
        /// PID of the process that holds the lock; `None` if it is not known.
        holder: Option<u32>,
    },
}

type Handler = fn(&Notice<'_>);

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// Sets the function that receives every notice of every store in this process. Only the first call has an
/// effect.
pub fn set_notice_handler(handler: fn(&Notice<'_>)) {
    HANDLER.get_or_init(|| handler);
}

pub(crate) fn send(notice: &Notice<'_>) {
    if let Some(handler) = HANDLER.get() {
        handler(notice);
    }
}

impl fmt::Display for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rebuilt { store, report } => {
                let index = &report.index;
                write!(
                    f,
                    "the index of {} was rebuilt from the packs: {} snapshots, {} references, {} episodes",
                    store.display(),
                    index.snapshots,
                    index.references,
                    index.episodes
                )?;
                for problem in report.problems() {
                    write!(f, "; {problem}")?;
                }
                Ok(())
            }
            Self::Waiting { store, purpose, holder } => {
                write!(f, "waiting for {} {purpose}: ", store.display())?;
                match holder {
                    Some(pid) if *pid == std::process::id() => f.write_str("this process is busy with it"),
                    Some(pid) => write!(f, "process {pid} holds its lock"),
                    None => f.write_str("another process holds its lock"),
                }
            }
        }
    }
}
