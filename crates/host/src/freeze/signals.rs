//! Stopping by signals, for whoever has no group that can be frozen.
//!
//! Every process below the guest agent is stopped, parents before children: what is stopped makes no others, and no
//! parent runs that could see its child stopped. They go on in the opposite order, for the same reason: by the time
//! a shell runs again its children do, and it has never seen them otherwise.
//!
//! A process may begin others, lose its parent, or end while all are being looked for; so they are looked for again
//! until two looks in a row find the same ones and none of them runs. What is found is known by its number and by
//! when it began, never by a name.
//!
//! A process that waits in the kernel and cannot be interrupted is not stopped yet, and nothing below it is touched
//! before it is: it may wait for a child to become another program (`vfork`), and would wait for good.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::LIMIT;
use super::note::{Note, One};
use crate::error::{Doing as _, HostError, Result};
use crate::process::{Process, Status, stat, status};

/// How long is waited for one to stop before others are seen to.
const MOMENT: Duration = Duration::from_millis(2);
/// Between two looks.
const LOOK: Duration = Duration::from_micros(50);

/// Stops everything below a process; how many that are.
pub(super) fn stop(root: &Process, note: &mut Note) -> Result<usize> {
    let deadline = Instant::now() + LIMIT;
    let mut stopper = Stopper { note, ours: HashSet::new() };
    let mut last = None;
    while Instant::now() < deadline {
        if !root.is_running() {
            return Err(HostError::Helper("the sandbox has ended".to_owned()));
        }
        let found = Found::until(deadline).doing("look for the sandbox's processes")?;
        let Some(found) = found else { break };
        let look = stopper.stop_all(&found, root.pid())?;
        match &look {
            Some(same) if look == last => return Ok(same.stopped.len()),
            _ => last = look,
        }
    }
    let text = format!("the sandbox's processes could not all be stopped within {} s", LIMIT.as_secs());
    Err(HostError::Helper(text))
}

/// What a look found when nothing ran.
#[derive(PartialEq, Eq)]
struct Look {
    stopped: HashSet<One>,
    /// Parents that were not found, of anybody on the machine. Whoever lost his while all were being looked at, and so
    /// was not seen to be the sandbox's, has another at the next look.
    missing: HashSet<i32>,
}

struct Stopper<'a> {
    note: &'a mut Note,
    /// Those that were stopped here.
    ours: HashSet<One>,
}

impl Stopper<'_> {
    /// Stops those below `root` that run; all of them, if none did.
    fn stop_all(&mut self, found: &Found, root: i32) -> Result<Option<Look>> {
        let mut all_stopped = true;
        let mut stopped = HashSet::new();
        let mut open: Vec<i32> = found.children(root).to_vec();
        while let Some(pid) = open.pop() {
            let one = One { pid, started: found.all[&pid].started };
            let mut state = state(pid);
            if state == State::Runs {
                all_stopped = false;
                state = self.stop(one)?;
            }
            match state {
                State::Stopped => {
                    stopped.insert(one);
                    open.extend(found.children(pid));
                }
                State::Runs => {}
                // What it left behind has another parent now.
                State::Ended => all_stopped &= found.all[&pid].ended,
            }
        }
        Ok(all_stopped.then(|| Look { stopped, missing: found.missing() }))
    }

    /// Stops one, and waits a moment until it has stopped.
    fn stop(&mut self, one: One) -> Result<State> {
        if self.ours.insert(one) {
            self.note.add(one)?;
        }
        if !send(one, Signal::STOP)? {
            return Ok(State::Ended);
        }
        let deadline = Instant::now() + MOMENT;
        loop {
            let state = state(one.pid);
            if state != State::Runs || Instant::now() > deadline {
                return Ok(state);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Lets those go on that were stopped, in this order, below a process that may have ended.
pub(super) fn go_on(root: &Process, stopped: &[One]) -> Result<()> {
    if !root.is_running() {
        return Ok(());
    }
    // Whether it has stopped or not: this takes back a signal that is on its way.
    stopped.iter().rev().try_for_each(|one| send(*one, Signal::CONT).map(drop))
}

/// Sends a signal to a process; whether it is still there.
fn send(one: One, signal: Signal) -> Result<bool> {
    let Some(pid) = Pid::from_raw(one.pid) else { return Ok(false) };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH | Errno::INVAL) => return Ok(false),
        process => process.doing("look at a process of the sandbox")?,
    };
    // Looked at after it was opened: the number may have become another's before.
    if !status(pid).is_ok_and(|status| status.started == one.started) {
        return Ok(false);
    }
    match pidfd_send_signal(&process, signal) {
        Err(Errno::SRCH) => Ok(false),
        sent => sent.doing("send a signal to a process of the sandbox").map(|()| true),
    }
}

/// All processes there are, at one look.
struct Found {
    all: HashMap<i32, Status>,
    children: HashMap<i32, Vec<i32>>,
}

impl Found {
    /// All that are there when this returns, beside those that were there before. Looks again as long as somebody came
    /// meanwhile, or ended before it was seen whose he was; none if that goes on until the deadline.
    fn until(deadline: Instant) -> io::Result<Option<Self>> {
        let mut found = Self { all: HashMap::new(), children: HashMap::new() };
        while Instant::now() < deadline {
            let mut settled = true;
            for entry in fs::read_dir("/proc")? {
                let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
                let Some(pid) = number.filter(|pid| !found.all.contains_key(pid)) else { continue };
                settled = false;
                let Some(Ok(status)) = Pid::from_raw(pid).map(status) else { continue };
                found.children.entry(status.parent).or_default().push(pid);
                found.all.insert(pid, status);
            }
            if settled {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn children(&self, pid: i32) -> &[i32] {
        self.children.get(&pid).map_or(&[], Vec::as_slice)
    }

    fn missing(&self) -> HashSet<i32> {
        self.children.keys().copied().filter(|parent| !self.all.contains_key(parent)).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Stopped,
    Ended,
}

/// What a process does, by all of its threads: the first may have ended while others run, and some may run on for
/// a while after others stopped.
fn state(pid: i32) -> State {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return State::Ended };
    let mut whole = State::Ended;
    for thread in threads.flatten() {
        // One that is not there any more tells nothing.
        let stat = stat(&thread.path()).unwrap_or_default();
        match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
            None | Some('Z' | 'X') => {}
            // By a signal, or for whoever traces it, who is stopped himself.
            Some('T' | 't') => whole = State::Stopped,
            Some(_) => return State::Runs,
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stopped_is_seen_to_be() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!(state(pid), State::Runs);
        let started = status(Pid::from_raw(pid).unwrap()).unwrap().started;
        let (one, another) = (One { pid, started }, One { pid, started: started + 1 });
        assert!(!send(another, Signal::KILL).unwrap());
        assert!(send(one, Signal::STOP).unwrap());
        while state(pid) == State::Runs {
            std::thread::sleep(LOOK);
        }
        assert_eq!(state(pid), State::Stopped);
        let found = Found::until(Instant::now() + LIMIT).unwrap().unwrap();
        assert!(found.children(std::process::id() as i32).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state(pid), State::Ended);
        assert!(!send(one, Signal::CONT).unwrap());
    }
}
