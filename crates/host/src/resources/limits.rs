//! How much a sandbox may use, what of that could not be seen to, and what it does use.

use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

const PAGE: u64 = 4096;
/// Bytes of a System V message queue, unless somebody with rights changes it.
const MESSAGE_QUEUE: u64 = 16 << 10;
/// Message queues that the kernel can number.
const MESSAGE_QUEUES_MAX: u64 = 32_768;

/// Bounds of System V shared memory and messages in a sandbox with this much memory, by their names below `kernel` in
/// `/proc/sys`. Both stay when their processes are killed, as files in memory do.
pub fn system_v_bounds(memory: u64) -> [(&'static str, u64); 2] {
    let queues = memory / 64 / MESSAGE_QUEUE;
    [("shmall", (memory / 8 / PAGE).max(1)), ("msgmni", queues.clamp(1, MESSAGE_QUEUES_MAX))]
}

/// How much a sandbox may use; none is as much as there is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Thousandths of a processor.
    pub cpu_millis: Option<u32>,
    /// Memory, files in memory included.
    pub memory_bytes: Option<u64>,
    /// Processes and threads, the guest agent included.
    pub processes: Option<u32>,
}

/// What can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Time of processors.
    Cpu,
    /// Memory.
    Memory,
    /// The number of processes.
    Processes,
}

impl Limit {
    pub(crate) const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Processes];

    /// The kernel's part that sees to it.
    pub(crate) fn controller(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Processes => "pids",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Processes => "processes",
        })
    }
}

/// A limit that was asked for and is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Which.
    pub limit: Limit,
    /// Why not.
    pub reason: String,
}

impl Missing {
    pub(crate) fn is_memory(&self) -> bool {
        self.limit == Limit::Memory
    }

    pub(crate) fn is_processes(&self) -> bool {
        self.limit == Limit::Processes
    }
}

impl Limits {
    /// Everything limited, to find out what can be.
    pub(crate) fn some_of_all() -> Self {
        Self { cpu_millis: Some(1000), memory_bytes: Some(1 << 30), processes: Some(100) }
    }

    pub(crate) fn asks_for(&self, limit: Limit) -> bool {
        match limit {
            Limit::Cpu => self.cpu_millis.is_some(),
            Limit::Memory => self.memory_bytes.is_some(),
            Limit::Processes => self.processes.is_some(),
        }
    }
}

/// What a sandbox uses, as far as it is counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Time of processors since it began.
    pub cpu: Option<Duration>,
    /// Memory in use, without what is only kept in case it is read again.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
}

/// What can be had for sandboxes here; where something cannot, why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// User namespaces and those in them, without which there are no sandboxes.
    pub namespaces: Result<(), String>,
    /// Limits of processor time.
    pub cpu: Result<(), String>,
    /// Limits of memory.
    pub memory: Result<(), String>,
    /// Limits of the number of processes.
    pub processes: Result<(), String>,
}

impl Capabilities {
    /// Limits that cannot be had.
    pub fn missing(&self) -> Vec<Missing> {
        let all =
            [(Limit::Cpu, &self.cpu), (Limit::Memory, &self.memory), (Limit::Processes, &self.processes)];
        let missing = |(limit, had): (Limit, &Result<(), String>)| {
            Some(Missing { limit, reason: had.as_ref().err()?.clone() })
        };
        all.into_iter().filter_map(missing).collect()
    }

    pub(crate) fn new(namespaces: Result<(), String>, missing: &[Missing]) -> Self {
        let of = |limit| match missing.iter().find(|missing| missing.limit == limit) {
            Some(missing) => Err(missing.reason.clone()),
            None => Ok(()),
        };
        Self { namespaces, cpu: of(Limit::Cpu), memory: of(Limit::Memory), processes: of(Limit::Processes) }
    }
}

/// Whether the kernel counts the processes of a user in each user namespace by themselves, since 5.14. Before, all
/// that the user runs elsewhere would count too.
pub(crate) fn processes_are_counted_inside() -> bool {
    crate::machine::kernel() >= (5, 14)
}

/// Limits a resource of this process and all that come of it; to less, if it may not have as much.
pub(crate) fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// So many files a process of a sandbox may have open at most.
const OPEN_FILES: u64 = 65_536;
/// So many signals may wait for all processes of a sandbox.
#[cfg(target_os = "linux")]
const PENDING_SIGNALS: u64 = 4_096;

/// The number of files that this process might have open before it raised the limit.
static USUAL: OnceLock<Option<u64>> = OnceLock::new();

/// Lets this process have as many files open as it may. Also as many descriptors may then be on their way to other
/// processes: the kernel counts those of all processes of a user together, and compares with the limit of who sends.
pub fn raise_open_files() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    USUAL.get_or_init(|| current);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Lets a program that is about to be started have as many files open as this process might in the beginning: many programs
/// take the limit for the number of descriptors to look after.
pub fn usual_open_files(command: &mut Command) -> &mut Command {
    let Some(usual) = USUAL.get().copied() else { return command };
    let limit = move || {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        Ok(setrlimit(Resource::Nofile, Rlimit { current: usual, maximum })?)
    };
    // SAFETY: what runs between fork and exec is two system calls.
    unsafe { command.pre_exec(limit) }
}

/// Limits open files of a sandbox. One that runs as the server's own user gets half of what the server may have:
/// however many descriptors it keeps on their way, the server can still send some to its helpers. The machine's superuser
/// may always send.
pub(crate) fn limit_open_files(shares_user: bool) -> io::Result<()> {
    let most = getrlimit(Resource::Nofile).maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES * 2));
    limit(Resource::Nofile, if shares_user { most / 2 } else { OPEN_FILES })
}

/// Limits pending signals. A user namespace that this process makes later has the same bound for all in it.
#[cfg(target_os = "linux")]
pub(crate) fn limit_pending_signals() -> io::Result<()> {
    limit(Resource::Sigpending, PENDING_SIGNALS)
}

/// Tells in one line which limits are not kept, why, what is done instead, and the way out. None if all are kept.
pub fn told(missing: &[Missing]) -> Option<String> {
    let names: Vec<String> = missing.iter().map(|one| one.limit.to_string()).collect();
    let (last, others) = names.split_last()?;
    let names = if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) };
    let mut reasons: Vec<&str> = missing.iter().map(|one| one.reason.as_str()).collect();
    reasons.dedup();
    let mut line = format!("no limit of {names} for the sandbox as a whole: {}", reasons.join("; "));
    if missing.iter().any(Missing::is_memory) {
        line += "; each process may have as much memory as was asked for (RLIMIT_DATA)";
    }
    if reasons.contains(&NOT_ALLOWED) {
        line += "; ";
        line += way_out(std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists());
    }
    Some(line)
}

/// Why a user who is not the superuser has no groups in most places.
pub(crate) const NOT_ALLOWED: &str = "this user may not make cgroups";

/// The way to limits for an ordinary user; the first version of cgroups cannot safely be given to one.
fn way_out(second_version: bool) -> &'static str {
    if second_version {
        "start the server with `systemd-run --user --scope -p Delegate=yes workspace-server` to have them"
    } else {
        "boot with `systemd.unified_cgroup_hierarchy=1` and start the server with \
         `systemd-run --user --scope -p Delegate=yes workspace-server`, or start it as root, to have them"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_have_the_limit_of_open_files_from_before() {
        let before = getrlimit(Resource::Nofile);
        raise_open_files().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        // Another test may have raised it before.
        let usual = USUAL.get().copied().unwrap();
        let output = usual_open_files(Command::new("sh").args(["-c", "ulimit -Sn"])).output().unwrap();
        let expected = usual.map_or("unlimited".to_owned(), |usual| usual.to_string());
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), expected);
    }

    #[test]
    fn one_line_tells_all_limits_that_are_not_kept() {
        let missing = |limit, reason: &str| Missing { limit, reason: reason.to_owned() };
        assert_eq!(told(&[]), None);
        let both = [missing(Limit::Cpu, NOT_ALLOWED), missing(Limit::Memory, NOT_ALLOWED)];
        let line = told(&both).unwrap();
        let expected = "no limit of cpu and memory for the sandbox as a whole: this user may not make cgroups; each \
                        process may have as much memory as was asked for (RLIMIT_DATA); ";
        assert!(line.starts_with(expected) && line.contains("-p Delegate=yes workspace-server`"), "{line}");
        let line = told(&[missing(Limit::Cpu, "no cgroup has the controller cpu")]).unwrap();
        assert_eq!(line, "no limit of cpu for the sandbox as a whole: no cgroup has the controller cpu");
    }
}
