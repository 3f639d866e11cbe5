//! The same program, started again as a process with one thread.
//!
//! A server has many threads and must not fork; namespaces can only be entered by a process with one. So the
//! program starts itself with a word that says what to do, and what to do it with as JSON on its input.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Doing as _, HostError, Result};
use crate::{attach, holder, launch, probe};

/// The first argument of such a start.
const WORD: &str = "internal-host";

/// To be called first in `main`: does what this process was started for, if that is something of this crate's.
pub fn entry() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != WORD {
        return None;
    }
    let task = words.next();
    if !end_with_parent(words.next().as_deref()) {
        return Some(ExitCode::FAILURE);
    }
    let answer = match task.as_deref() {
        Some("launch") => read().and_then(|order| launch::run(&order)).map(|made| write(&made)),
        Some("hold") => read::<PathBuf>().and_then(|path| holder::run(&path)).map(|held| write(&held)),
        Some("attach") => read().and_then(|order| attach::run(&order)).map(|()| write(&())),
        Some("probe") => read().and_then(|holder| probe::run(&holder)).map(|can| write(&can)),
        _ => Err(HostError::Helper("unknown task".to_owned())),
    };
    match answer {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprint!("{error}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Lets this process end with the one that started it; false if that has ended already. A launcher that went on
/// would start a sandbox of which the next server has found nothing.
fn end_with_parent(parent: Option<&str>) -> bool {
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let now = rustix::process::getppid().map(|pid| pid.to_string());
    now.as_deref() == parent
}

fn read<T: DeserializeOwned>() -> Result<T> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).doing("read what to do")?;
    serde_json::from_str(&text).map_err(|error| HostError::Helper(format!("unreadable order: {error}")))
}

fn write(answer: &impl Serialize) {
    // Whoever asked may be gone; then there is nobody to tell.
    drop(serde_json::to_writer(std::io::stdout(), answer));
}

/// Starts this program again for `task`, which gets `order`; what it answers.
pub(crate) fn ask<A: DeserializeOwned>(
    task: &str,
    order: &impl Serialize,
    prepare: impl FnOnce(&mut Command),
) -> Result<A> {
    let text = serde_json::to_vec(order).map_err(|error| HostError::Helper(error.to_string()))?;
    let mut command = Command::new("/proc/self/exe");
    let parent = std::process::id().to_string();
    command.args([WORD, task, &parent]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    prepare(&mut command);
    let mut child = command.spawn().doing("start this program again")?;
    // Whatever comes of this, the helper must be waited for; how it ended says more.
    let told = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&text));
    let output = child.wait_with_output().doing("wait for a helper")?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let complaint = if complaint.is_empty() { output.status.to_string() } else { complaint };
        return Err(HostError::Helper(complaint));
    }
    told.doing("tell a helper what to do")?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| HostError::Helper(format!("unreadable answer: {error}")))
}
