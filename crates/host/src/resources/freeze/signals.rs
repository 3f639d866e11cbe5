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

use super::record::{Note, One};
use crate::error::{Doing as _, HostError, Result};
use crate::helper::error::HostErrorKind;
use crate::process::{Process, Status, stat, status};

/// How long is waited for one to stop before others are seen to.
const MOMENT: Duration = Duration::from_millis(2);
/// Between two looks.
const LOOK: Duration = Duration::from_micros(50);
/// So often it is looked whether somebody was missed.
const LOOKS: usize = 20;
/// Of so many all are asked for children; of more those who take in what others leave behind.
const FEW: usize = 50;

/// Stops everything below a process; how many that are.
pub(super) fn stop(root: &Process, note: &mut Note, limit: Duration) -> Result<usize> {
    let deadline = Instant::now() + limit;
    let mut stopper = Stopper { note, ours: HashSet::new() };
    let mut found = Found::default();
    let mut last = None;
    while Instant::now() < deadline {
        if !root.is_running() {
            return Err(HostError::sandbox_ended());
        }
        if !found.look(root.pid(), deadline).doing("look for the sandbox's processes")? {
            break;
        }
        let look = stopper.stop_all(&found, root.pid())?;
        match &look {
            Some(stopped) if look == last && found.is_all(root.pid()) => return Ok(stopped.len()),
            _ => last = look,
        }
    }
    let text = format!("the sandbox's processes could not all be stopped within {} s", limit.as_secs());
    Err(HostError::of_kind(HostErrorKind::TimedOut, text))
}

struct Stopper<'a> {
    note: &'a mut Note,
    /// Those that were stopped here.
    ours: HashSet<One>,
}

impl Stopper<'_> {
    /// Stops those below `root` that run; all of them, if none did.
    fn stop_all(&mut self, found: &Found, root: i32) -> Result<Option<HashSet<One>>> {
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
        Ok(all_stopped.then_some(stopped))
    }

    /// Stops one, and waits a moment until it has stopped.
    fn stop(&mut self, one: One) -> Result<State> {
        let first = self.ours.insert(one);
        let is_there = self.note.step(|note| {
            if first {
                note.add(one)?;
            }
            send(one, Signal::STOP)
        })?;
        if !is_there {
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

/// The processes there are, at one look.
#[derive(Default)]
struct Found {
    all: HashMap<i32, Status>,
    children: HashMap<i32, Vec<i32>>,
    /// Those that are not the sandbox's, and never will be: they are not looked at again. Their numbers do not come again
    /// in so short a time.
    others: HashSet<i32>,
}

impl Found {
    /// Looks for all that are there; whether that was over before the deadline.
    fn look(&mut self, root: i32, deadline: Instant) -> io::Result<bool> {
        self.all.clear();
        if self.look_below(root) {
            return Ok(true);
        }
        self.look_everywhere(root, deadline)
    }

    /// Whether nobody was missed: who begins another and ends at once, over and over, is seen among the children of those
    /// who take in what others leave behind, sooner or later.
    fn is_all(&self, root: i32) -> bool {
        let few = self.all.len() <= FEW;
        let takers: Vec<i32> =
            if few { self.all.keys().copied().collect() } else { self.children(root).to_vec() };
        (0..LOOKS).all(|_| {
            takers.iter().chain([&root]).all(|pid| {
                let now = children(*pid).unwrap_or_default();
                now.iter().all(|child| self.all.contains_key(child))
            })
        })
    }

    /// The same by all processes of the machine, where the kernel does not tell of children. Looks again as long as
    /// somebody ended before it was seen whose he was.
    fn look_everywhere(&mut self, root: i32, deadline: Instant) -> io::Result<bool> {
        while Instant::now() < deadline {
            let mut settled = true;
            for entry in fs::read_dir("/proc")? {
                let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
                let Some(pid) = number.filter(|pid| !self.is_known(*pid)) else { continue };
                settled &= self.add(pid);
            }
            if self.find_parents() && settled {
                self.sort(root);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Asks the kernel for everybody's children, from the sandbox's first process on: nobody else is looked at, however
    /// many others come and go. It may miss some while they come and go; what has stopped does not. Whether this kernel
    /// tells.
    fn look_below(&mut self, root: i32) -> bool {
        self.children.clear();
        let mut open = vec![root];
        while let Some(pid) = open.pop() {
            let Some(children) = children(pid) else {
                // One that has ended has none; the first tells whether there is an answer at all.
                if pid == root {
                    return false;
                }
                continue;
            };
            let there: Vec<i32> = children.into_iter().filter(|child| self.add(*child)).collect();
            open.extend(&there);
            self.children.insert(pid, there);
        }
        true
    }

    /// Adds a process; whether it was still there.
    fn add(&mut self, pid: i32) -> bool {
        match Pid::from_raw(pid).map(status) {
            Some(Ok(status)) => {
                self.all.insert(pid, status);
                true
            }
            _ => false,
        }
    }

    /// Sees to those whose parent was not found; whether there were none. He may have come while others were being
    /// looked at, or have ended, so that they have another. One that is there and cannot be seen is nobody's here.
    fn find_parents(&mut self) -> bool {
        let lost = |(pid, status): (&i32, &Status)| {
            let known = status.parent == 0 || self.is_known(status.parent);
            (!known).then_some((*pid, status.parent))
        };
        let lost: Vec<(i32, i32)> = self.all.iter().filter_map(lost).collect();
        for (pid, parent) in &lost {
            if self.add(*parent) {
                continue;
            }
            self.all.remove(pid);
            let again = Pid::from_raw(*pid).map(status);
            if again.is_some_and(|status| status.is_ok_and(|status| status.parent == *parent)) {
                self.others.insert(*pid);
            }
        }
        lost.is_empty()
    }

    /// Tells the sandbox's from others, and notes whose children they are.
    fn sort(&mut self, root: i32) {
        let others: Vec<i32> = self.all.keys().copied().filter(|pid| self.is_other(*pid, root)).collect();
        self.others.extend(others);
        self.children.clear();
        for (pid, status) in &self.all {
            self.children.entry(status.parent).or_default().push(*pid);
        }
    }

    fn is_known(&self, pid: i32) -> bool {
        self.all.contains_key(&pid) || self.others.contains(&pid)
    }

    /// Whether a process is known not to be below `root`.
    fn is_other(&self, pid: i32, root: i32) -> bool {
        let mut above = pid;
        // No more steps than there are processes: numbers that came again could lead in a circle.
        for _ in 0..=self.all.len() {
            match self.all.get(&above) {
                _ if above == root => return false,
                _ if above == 0 || self.others.contains(&above) => return true,
                Some(status) => above = status.parent,
                None => return false,
            }
        }
        false
    }

    fn children(&self, pid: i32) -> &[i32] {
        self.children.get(&pid).map_or(&[], Vec::as_slice)
    }
}

/// The children of a process, of all of its threads; none if it is not there, or the kernel does not tell.
fn children(pid: i32) -> Option<Vec<i32>> {
    let mut all = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(text) => all.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<i32>().ok())),
            // That thread has ended.
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            Err(_) => return None,
        }
    }
    Some(all)
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
        let mut found = Found::default();
        let here = std::process::id() as i32;
        // The second time without those that have nothing to do with it.
        for _ in 0..2 {
            found.all.clear();
            assert!(found.look_everywhere(here, Instant::now() + Duration::from_secs(5)).unwrap());
            assert!(found.children(here).contains(&pid) && !found.others.contains(&pid));
        }
        assert!(found.others.contains(&1) && !found.all.contains_key(&1));
        let mut below = Found::default();
        // Not every kernel tells of children.
        if below.look_below(here) {
            assert!(below.children(here).contains(&pid) && below.all.contains_key(&pid));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state(pid), State::Ended);
        assert!(!send(one, Signal::CONT).unwrap());
    }
}
