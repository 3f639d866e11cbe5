//! What runs below a process, and how to end all of it.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Everything that runs here, with its parent.
fn parents() -> Vec<(Pid, Pid)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let running = numbers.filter_map(Pid::from_raw);
    running.filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

/// Nothing for one that has ended.
pub(crate) fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, parentheses too.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    Pid::from_raw(fields.next()?.parse().ok()?)
}

/// A process that came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    /// The command whose supervisor it is below.
    pub(crate) command: String,
}

/// Everything below the supervisors of commands, with the command that it came of.
pub(crate) fn owned(supervisors: &HashMap<Pid, String>) -> Vec<Owned> {
    let parents: HashMap<Pid, Pid> = parents().into_iter().collect();
    let supervisor = |pid: Pid| {
        let above = std::iter::successors(parents.get(&pid), |pid| parents.get(pid));
        // Parents were not all read at the same moment, so they might go round.
        above.take(parents.len()).find_map(|pid| supervisors.get(pid))
    };
    let all = parents.iter().filter_map(|(pid, parent)| {
        let command = supervisor(*pid)?.clone();
        Some(Owned { pid: *pid, parent: *parent, command })
    });
    let mut all: Vec<Owned> = all.collect();
    all.sort_by_key(|process| process.pid.as_raw_nonzero());
    all
}

/// The arguments of a process, separated by spaces, at most `most` bytes of them; its name where it has none.
pub(crate) fn arguments(pid: Pid, most: usize) -> String {
    let mut bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if bytes.is_empty() {
        bytes = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    }
    bytes.truncate(most);
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    text.trim_end().chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

/// Everything below `root`, itself not counted.
pub(crate) fn below(root: Pid) -> HashSet<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for (pid, parent) in parents() {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = HashSet::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(&below);
        open.extend(below);
    }
    found
}

/// Sends a signal to everything below `root`; whether there was something.
pub(crate) fn signal(root: Pid, signal: Signal) -> bool {
    let below = below(root);
    for pid in &below {
        send(*pid, signal);
    }
    !below.is_empty()
}

/// Kills everything below `root`; whether there was something. What is stopped first cannot make others while it
/// is being looked for.
pub(crate) fn kill(root: Pid) -> bool {
    let mut stopped = HashSet::new();
    loop {
        let new: Vec<Pid> = below(root).into_iter().filter(|pid| stopped.insert(*pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            send(pid, Signal::STOP);
        }
    }
    for pid in &stopped {
        send(*pid, Signal::KILL);
    }
    !stopped.is_empty()
}

pub(crate) fn send(pid: Pid, signal: Signal) {
    // It may have ended meanwhile.
    let _ = kill_process(pid, signal);
}
