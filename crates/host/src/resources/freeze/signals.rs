//! Freezing with `SIGSTOP`, for sandboxes without a cgroup that can be frozen.
//!
//! Every descendant of the guest agent is stopped, parents before children: a stopped process cannot fork,
//! and no running parent sees its child stopped. They are resumed in the opposite order for the same reason:
//! by the time a shell runs again, its children do.
//!
//! A process may fork, lose its parent, or exit during the scan; so scans are repeated until two in a row
//! find the same processes and all of them are stopped. Processes are identified by PID and start time, never
//! by name.
//!
//! A process in uninterruptible sleep is not stopped yet, and nothing below it is touched before it is: it
//! may wait for a child to call `exec` (`vfork`), and would wait for ever.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::record::{RecordWriter, StoppedProcess};
use crate::error::{Context as _, HostError, Result};
use crate::helper::error::HostErrorKind;
use crate::process::{Process, Status, stat, status};

/// Time to wait for one process to stop before others are stopped.
const STOP_TIMEOUT: Duration = Duration::from_millis(2);
/// Interval of checking the state of a process.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// Number of checks for missed processes after a scan.
const RESCANS: usize = 20;
/// Maximum number of processes for which all are checked for new children; with more, only the direct
/// children of the agent are: the supervisors of commands, which adopt orphans.
const FULL_RESCAN_MAX: usize = 50;

/// Stops all descendants of a process. Returns their number.
pub(super) fn stop(root: &Process, record: &mut RecordWriter, timeout: Duration) -> Result<usize> {
    let deadline = Instant::now() + timeout;
    let mut stopper = Stopper { record, stopped_by_us: HashSet::new() };
    let mut tree = ProcessTree::default();
    let mut previous = None;
    while Instant::now() < deadline {
        if !root.is_running() {
            return Err(HostError::sandbox_ended());
        }
        if !tree.scan(root.pid(), deadline).context("list the processes of the sandbox")? {
            break;
        }
        let current = stopper.stop_running(&tree, root.pid())?;
        match &current {
            Some(stopped) if current == previous && tree.is_complete(root.pid()) => return Ok(stopped.len()),
            _ => previous = current,
        }
    }
    let text = format!("the sandbox's processes could not all be stopped within {} s", timeout.as_secs());
    Err(HostError::of_kind(HostErrorKind::TimedOut, text))
}

struct Stopper<'a> {
    /// Record of the stopped processes, for a thaw by another server.
    record: &'a mut RecordWriter,
    /// Processes that were stopped by this freeze.
    stopped_by_us: HashSet<StoppedProcess>,
}

impl Stopper<'_> {
    /// Stops the descendants of `root` that run. Returns all of them if none did.
    fn stop_running(&mut self, tree: &ProcessTree, root: i32) -> Result<Option<HashSet<StoppedProcess>>> {
        let mut all_stopped = true;
        let mut stopped = HashSet::new();
        let mut pending: Vec<i32> = tree.children(root).to_vec();
        while let Some(pid) = pending.pop() {
            let process = StoppedProcess { pid, start_time: tree.all[&pid].start_time };
            let mut state = state(pid);
            if state == State::Running {
                all_stopped = false;
                state = self.stop(process)?;
            }
            match state {
                State::Stopped => {
                    stopped.insert(process);
                    pending.extend(tree.children(pid));
                }
                State::Running => {}
                // Its children have another parent now.
                State::Exited => all_stopped &= tree.all[&pid].has_exited,
            }
        }
        Ok(all_stopped.then_some(stopped))
    }

    /// Stops a process, and waits until it has stopped or the timeout is over.
    fn stop(&mut self, process: StoppedProcess) -> Result<State> {
        let is_new = self.stopped_by_us.insert(process);
        // A step fails if the sandbox was thawed meanwhile. The process is recorded before it is stopped, so that a
        // thaw resumes it even if this program is killed.
        let exists = self.record.step(|record| {
            if is_new {
                record.add(process)?;
            }
            send(process, Signal::STOP)
        })?;
        if !exists {
            return Ok(State::Exited);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            let state = state(process.pid);
            if state != State::Running || Instant::now() > deadline {
                return Ok(state);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Resumes processes that were stopped, in reverse order, if `root` still runs.
pub(super) fn resume(root: &Process, stopped: &[StoppedProcess]) -> Result<()> {
    if !root.is_running() {
        return Ok(());
    }
    // Also if it has not stopped yet: this cancels a pending `SIGSTOP`.
    stopped.iter().rev().try_for_each(|process| send(*process, Signal::CONT).map(drop))
}

/// Sends a signal to a process. Returns whether it still exists.
fn send(process: StoppedProcess, signal: Signal) -> Result<bool> {
    let Some(pid) = Pid::from_raw(process.pid) else { return Ok(false) };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH | Errno::INVAL) => return Ok(false),
        pidfd => pidfd.context("inspect a process of the sandbox")?,
    };
    // Checked after opening, because the PID may have been reused before.
    if !status(pid).is_ok_and(|status| status.start_time == process.start_time) {
        return Ok(false);
    }
    match pidfd_send_signal(&pidfd, signal) {
        Err(Errno::SRCH) => Ok(false),
        sent => sent.context("send a signal to a process of the sandbox").map(|()| true),
    }
}

/// Processes found by a scan.
#[derive(Default)]
struct ProcessTree {
    /// Found processes by PID.
    all: HashMap<i32, Status>,
    /// PIDs of the children of each process.
    children: HashMap<i32, Vec<i32>>,
    /// PIDs outside the sandbox, which are not looked at again. They are not reused within this short time.
    others: HashSet<i32>,
}

impl ProcessTree {
    /// Scans all processes. Returns whether it was done before the deadline.
    fn scan(&mut self, root: i32, deadline: Instant) -> io::Result<bool> {
        self.all.clear();
        if self.scan_below(root) {
            return Ok(true);
        }
        self.scan_all(root, deadline)
    }

    /// Returns false if repeated reads of the lists of children show a process that the scan has missed. With more
    /// than [`FULL_RESCAN_MAX`] processes, only the lists of `root` and its children are read: a process that keeps
    /// forking and exiting is most likely seen among the children of the processes that adopt orphans.
    fn is_complete(&self, root: i32) -> bool {
        let is_full = self.all.len() <= FULL_RESCAN_MAX;
        let checked: Vec<i32> =
            if is_full { self.all.keys().copied().collect() } else { self.children(root).to_vec() };
        (0..RESCANS).all(|_| {
            checked.iter().chain([&root]).all(|pid| {
                let now = children(*pid).unwrap_or_default();
                now.iter().all(|child| self.all.contains_key(child))
            })
        })
    }

    /// Scans all processes of the host, where the kernel does not list children. Repeats the scan as long as
    /// a process exited before its parent was known.
    fn scan_all(&mut self, root: i32, deadline: Instant) -> io::Result<bool> {
        while Instant::now() < deadline {
            let mut all_existed = true;
            for entry in fs::read_dir("/proc")? {
                let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
                let Some(pid) = number.filter(|pid| !self.is_known(*pid)) else { continue };
                all_existed &= self.add(pid);
            }
            if self.resolve_parents() && all_existed {
                self.classify(root);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Scans the descendants of `root` by the kernel's lists of children. It may miss processes that are
    /// being forked, but none that has stopped. Returns false if the kernel has no such lists.
    fn scan_below(&mut self, root: i32) -> bool {
        self.children.clear();
        let mut pending = vec![root];
        while let Some(pid) = pending.pop() {
            let Some(children) = children(pid) else {
                // A process that has exited has no list. If the root has none, the kernel does not support
                // them.
                if pid == root {
                    return false;
                }
                continue;
            };
            let existing: Vec<i32> = children.into_iter().filter(|child| self.add(*child)).collect();
            pending.extend(&existing);
            self.children.insert(pid, existing);
        }
        true
    }

    /// Adds a process. Returns whether it still existed.
    fn add(&mut self, pid: i32) -> bool {
        match Pid::from_raw(pid).map(status) {
            Some(Ok(status)) => {
                self.all.insert(pid, status);
                true
            }
            _ => false,
        }
    }

    /// Adds parents that the scan has missed. Returns whether there were none. A missed parent may be new, or
    /// may have exited, so that its children have another parent. Processes whose parent is not visible do
    /// not belong to the sandbox.
    fn resolve_parents(&mut self) -> bool {
        let without_parent = |(pid, status): (&i32, &Status)| {
            let known = status.parent == 0 || self.is_known(status.parent);
            (!known).then_some((*pid, status.parent))
        };
        let without_parent: Vec<(i32, i32)> = self.all.iter().filter_map(without_parent).collect();
        for (pid, parent) in &without_parent {
            if self.add(*parent) {
                continue;
            }
            self.all.remove(pid);
            let again = Pid::from_raw(*pid).map(status);
            if again.is_some_and(|status| status.is_ok_and(|status| status.parent == *parent)) {
                self.others.insert(*pid);
            }
        }
        without_parent.is_empty()
    }

    /// Separates the processes of the sandbox from others, and fills in their children.
    fn classify(&mut self, root: i32) {
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

    /// Returns whether a process is known not to be a descendant of `root`.
    fn is_other(&self, pid: i32, root: i32) -> bool {
        let mut ancestor = pid;
        // Bounded by the number of processes: reused PIDs could form a cycle.
        for _ in 0..=self.all.len() {
            match self.all.get(&ancestor) {
                _ if ancestor == root => return false,
                _ if ancestor == 0 || self.others.contains(&ancestor) => return true,
                Some(status) => ancestor = status.parent,
                None => return false,
            }
        }
        false
    }

    fn children(&self, pid: i32) -> &[i32] {
        self.children.get(&pid).map_or(&[], Vec::as_slice)
    }
}

/// Returns the children of all threads of a process. `None` if it does not exist, or the kernel has no such
/// list.
fn children(pid: i32) -> Option<Vec<i32>> {
    let mut all = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(text) => all.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<i32>().ok())),
            // The thread has exited.
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            Err(_) => return None,
        }
    }
    Some(all)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Stopped,
    Exited,
}

/// Returns the state of a process, from all of its threads: the first may have exited while others run, and
/// some may still run after others have stopped.
fn state(pid: i32) -> State {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return State::Exited };
    let mut state = State::Exited;
    for thread in threads.flatten() {
        // A thread that has exited has no state.
        let stat = stat(&thread.path()).unwrap_or_default();
        match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
            None | Some('Z' | 'X') => {}
            // Stopped by a signal, or by a tracer that is stopped itself.
            Some('T' | 't') => state = State::Stopped,
            Some(_) => return State::Running,
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_found_and_resumed() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!(state(pid), State::Running);
        let start_time = status(Pid::from_raw(pid).unwrap()).unwrap().start_time;
        let (one, another) =
            (StoppedProcess { pid, start_time }, StoppedProcess { pid, start_time: start_time + 1 });
        assert!(!send(another, Signal::KILL).unwrap());
        assert!(send(one, Signal::STOP).unwrap());
        while state(pid) == State::Running {
            std::thread::sleep(POLL_INTERVAL);
        }
        assert_eq!(state(pid), State::Stopped);
        let mut found = ProcessTree::default();
        let here = std::process::id() as i32;
        // The second time without unrelated processes.
        for _ in 0..2 {
            found.all.clear();
            assert!(found.scan_all(here, Instant::now() + Duration::from_secs(5)).unwrap());
            assert!(found.children(here).contains(&pid) && !found.others.contains(&pid));
        }
        assert!(found.others.contains(&1) && !found.all.contains_key(&1));
        let mut below = ProcessTree::default();
        // Not every kernel has lists of children.
        if below.scan_below(here) {
            assert!(below.children(here).contains(&pid) && below.all.contains_key(&pid));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state(pid), State::Exited);
        assert!(!send(one, Signal::CONT).unwrap());
    }
}
