//! Freezing a sandbox, so that its files can be read at one moment.
//!
//! If the sandbox has a cgroup that can be frozen, the whole cgroup is frozen, **with the guest agent**: no
//! process can start meanwhile, and the agent's connection merely pauses, for far less time than the server
//! waits for a silent agent. Nested cgroups, one for the agent and one for the rest, would let the agent run,
//! but then every command would have to be moved into its cgroup from outside, which takes the kernel 6 to 15
//! ms each time.
//!
//! Otherwise all processes but the agent are stopped by signals (`signals.rs`). The caller must not have the
//! agent start anything meanwhile.
//!
//! Before a process is stopped, it is recorded in a file (`record.rs`), from which alone all processes can be
//! resumed. Processes of the sandbox cannot access the record.

pub(crate) mod freezer;
mod record;
mod signals;

use std::path::Path;
use std::time::Duration;

use crate::error::{HostError, Result};
use crate::process::Process;
use crate::resources::cgroup;
pub use crate::resources::frozen::{FreezeMethod, Frozen};
use record::{LockedRecord, RecordWriter, RecordedMethod};

/// Time in which all processes must have stopped.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);

/// Freezes the sandbox with this id and first process. Processes that were stopped before stay stopped after
/// [`thaw`]. On failure everything is resumed. Fails with [`HostError::Thawed`] if the sandbox is thawed
/// before all processes have stopped.
///
/// There must be no file at `record`: a sandbox is frozen once at a time.
pub fn freeze(id: &str, process: &Process, record: &Path) -> Result<Frozen> {
    if let Some(frozen) = freeze_cgroup(id, process, record)? {
        return Ok(frozen);
    }
    let mut writer = RecordWriter::create(record, &RecordedMethod::Signals(process.clone()))?;
    let stopped = signals::stop(process, &mut writer, FREEZE_TIMEOUT).map_err(|error| undo(error, record))?;
    Ok(Frozen { method: FreezeMethod::Signals, processes: Some(stopped) })
}

/// Freezes a sandbox by its cgroup. Returns `None` if it has none that can be frozen.
pub fn freeze_cgroup(id: &str, process: &Process, record: &Path) -> Result<Option<Frozen>> {
    let Some(freezer) = cgroup::freezer(id, process)? else { return Ok(None) };
    let mut writer = RecordWriter::create(record, &RecordedMethod::Group(freezer.clone()))?;
    let frozen =
        freezer::freeze(&freezer, &mut writer, FREEZE_TIMEOUT).map_err(|error| undo(error, record))?;
    Ok(Some(Frozen { method: FreezeMethod::Cgroup, processes: Some(frozen) }))
}

/// Resumes all processes after a failed freeze. If the sandbox was concurrently thawed, they already run, and
/// a record that exists now belongs to another freeze.
fn undo(error: HostError, record: &Path) -> HostError {
    if matches!(error, HostError::Thawed) {
        return error;
    }
    match thaw(record) {
        Ok(()) => error,
        Err(thaw_error) => error.followed_by(thaw_error),
    }
}

/// Resumes all recorded processes, and removes the record. Does nothing without a record. A freeze in
/// progress stops no further process, and fails with [`HostError::Thawed`].
pub fn thaw(record: &Path) -> Result<()> {
    let Some(mut locked) = LockedRecord::lock(record)? else { return Ok(()) };
    match locked.read()? {
        None => {}
        Some((RecordedMethod::Group(freezer), _)) => freezer::thaw(&freezer)?,
        Some((RecordedMethod::Signals(process), stopped)) => signals::resume(&process, &stopped)?,
    }
    locked.remove()
}
