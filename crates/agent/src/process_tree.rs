//! Process trees: finding and killing all descendants of a process.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Returns the PID and parent PID of every process.
fn parents() -> Vec<(Pid, Pid)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

/// Returns the parent PID of a process; `None` if it has exited.
pub(crate) fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, including parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    Pid::from_raw(fields.next()?.parse().ok()?)
}

/// Process of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandProcess {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    /// Id of the command whose supervisor is an ancestor of the process.
    pub(crate) command: String,
}

/// Returns all descendants of the supervisors, with their commands, sorted by PID.
pub(crate) fn command_processes(supervisors: &HashMap<Pid, String>) -> Vec<CommandProcess> {
    let parents: HashMap<Pid, Pid> = parents().into_iter().collect();
    let supervisor = |pid: Pid| {
        let ancestors = std::iter::successors(parents.get(&pid), |pid| parents.get(pid));
        // The parents were not read atomically, so there may be cycles.
        ancestors.take(parents.len()).find_map(|pid| supervisors.get(pid))
    };
    let all = parents.iter().filter_map(|(pid, parent)| {
        let command = supervisor(*pid)?.clone();
        Some(CommandProcess { pid: *pid, parent: *parent, command })
    });
    let mut all: Vec<CommandProcess> = all.collect();
    all.sort_by_key(|process| process.pid.as_raw_nonzero());
    all
}

/// Returns the arguments of a process, separated by spaces and truncated to `max_len` bytes, or its name if
/// it has no arguments.
pub(crate) fn arguments(pid: Pid, max_len: usize) -> String {
    let mut bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if bytes.is_empty() {
        bytes = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    }
    bytes.truncate(max_len);
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    text.trim_end().chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// Returns all descendants of `root`, excluding `root`.
pub(crate) fn descendants(root: Pid) -> HashSet<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for (pid, parent) in parents() {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = HashSet::new();
    let mut queue = vec![root];
    while let Some(pid) = queue.pop() {
        let direct = children.remove(&pid).unwrap_or_default();
        found.extend(&direct);
        queue.extend(direct);
    }
    found
}

/// Sends a signal to all descendants of `root`. Returns false if there were none.
pub(crate) fn signal_descendants(root: Pid, signal: Signal) -> bool {
    let found = descendants(root);
    for pid in &found {
        signal_process(*pid, signal);
    }
    !found.is_empty()
}

/// Kills all descendants of `root`. Returns false if there were none. They are stopped first, so that they
/// cannot fork in the meantime.
pub(crate) fn kill_descendants(root: Pid) -> bool {
    let mut stopped = HashSet::new();
    loop {
        let new: Vec<Pid> = descendants(root).into_iter().filter(|pid| stopped.insert(*pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            signal_process(pid, Signal::STOP);
        }
    }
    for pid in &stopped {
        signal_process(*pid, Signal::KILL);
    }
    !stopped.is_empty()
}

/// Sends a signal to one process.
pub(crate) fn signal_process(pid: Pid, signal: Signal) {
    // The process may have exited.
    let _ = kill_process(pid, signal);
}
