//! Stopping everything in a sandbox for a moment, so that its files can be read as they are at that moment.
//!
//! Where the sandbox has a group that the kernel can freeze, that does it, **with the guest agent**: nothing can begin
//! while it lasts, what a group holds is frozen as a whole, and the agent's connection merely pauses, for far less
//! time than a server waits for a silent guest. Groups below the sandbox's, one for the agent and one for the rest,
//! would let it go on, but every command would have to be moved into its group from outside, which takes the kernel
//! 6 to 15 ms each time.
//!
//! Where there is no such group, processes are stopped by signals, all but the agent (`signals.rs`). Whoever wants
//! the moment to last must not have the agent start anything meanwhile.
//!
//! Before anything is stopped a note says what is about to be; whoever finds it later can let everything go on from
//! the note alone. What the note says is made for this, by this server, and out of reach of what runs inside.

pub(crate) mod freezer;
mod record;
mod signals;

use std::path::Path;
use std::time::Duration;

use crate::error::{HostError, Result};
use crate::process::Process;
use crate::resources::cgroup;
pub use crate::resources::frozen::{Frozen, Way};
use record::{Held, Note, Noted};

/// How long it may take until everything has stopped.
const LIMIT: Duration = Duration::from_secs(5);

/// Stops everything in the sandbox of that id, whose first process this is. What was stopped already stays so when
/// [`thaw`] lets the rest go on. When this fails, everything goes on. Fails with [`HostError::Thawed`] when somebody
/// thaws before everything has stopped.
///
/// There must be nothing at `note`: a sandbox is frozen once at a time.
pub fn freeze(id: &str, process: &Process, note: &Path) -> Result<Frozen> {
    if let Some(frozen) = freeze_group(id, process, note)? {
        return Ok(frozen);
    }
    let mut noted = Note::make(note, &Noted::Signals(process.clone()))?;
    let stopped = signals::stop(process, &mut noted, LIMIT).map_err(|error| give_up(error, note))?;
    Ok(Frozen { way: Way::Signals, processes: Some(stopped) })
}

/// The same by its group or not at all; none if it has no group that can be frozen.
pub fn freeze_group(id: &str, process: &Process, note: &Path) -> Result<Option<Frozen>> {
    let Some(freezer) = cgroup::freezer(id, process)? else { return Ok(None) };
    let mut noted = Note::make(note, &Noted::Group(freezer.clone()))?;
    let frozen = freezer::freeze(&freezer, &mut noted, LIMIT).map_err(|error| give_up(error, note))?;
    Ok(Some(Frozen { way: Way::Cgroup, processes: Some(frozen) }))
}

/// Lets everything go on that could not be stopped in whole. Somebody who thawed meanwhile has done that, and a note
/// that is there now is another's.
fn give_up(error: HostError, note: &Path) -> HostError {
    if matches!(error, HostError::Thawed) {
        return error;
    }
    match thaw(note) {
        Ok(()) => error,
        Err(more) => error.followed_by(more),
    }
}

/// Lets everything go on that is noted there as stopped, in whole or in part, and removes the note. Without a note
/// nothing is stopped. A freeze that is under way stops nothing more and fails with [`HostError::Thawed`].
pub fn thaw(note: &Path) -> Result<()> {
    let Some(mut held) = Held::take(note)? else { return Ok(()) };
    match held.read()? {
        None => {}
        Some((Noted::Group(freezer), _)) => freezer::thaw(&freezer)?,
        Some((Noted::Signals(process), stopped)) => signals::go_on(&process, &stopped)?,
    }
    held.remove()
}
