//! Resource limits of a sandbox, limits that are not enforced, and resource usage.

use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

const PAGE: u64 = 4096;
/// Size of a System V message queue, in bytes, unless it is changed by root.
const MESSAGE_QUEUE: u64 = 16 << 10;
/// Maximum number of message queues of the kernel.
const MESSAGE_QUEUES_MAX: u64 = 32_768;

/// Returns limits of System V shared memory and message queues for a sandbox with this memory limit, by their
/// names below `kernel` in `/proc/sys`: `shmall` in pages, and `msgmni` as a number of queues. Like files in a tmpfs,
/// shared memory and queues outlive their processes.
pub fn system_v_ipc_limits(memory: u64) -> [(&'static str, u64); 2] {
    let queues = memory / 64 / MESSAGE_QUEUE;
    [("shmall", (memory / 8 / PAGE).max(1)), ("msgmni", queues.clamp(1, MESSAGE_QUEUES_MAX))]
}

/// Resource limits of a sandbox. `None` is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// CPU time, in thousandths of a processor.
    pub cpu_millis: Option<u32>,
    /// Memory, tmpfs files included.
    pub memory_bytes: Option<u64>,
    /// Processes and threads, the guest agent included.
    pub processes: Option<u32>,
}

/// Resource that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Number of processes.
    Processes,
}

impl Limit {
    pub(crate) const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Processes];

    /// Returns the name of the cgroup controller.
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

/// Requested limit that is not enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnenforcedLimit {
    /// The limit.
    pub limit: Limit,
    /// Cause.
    pub reason: String,
}

impl UnenforcedLimit {
    pub(crate) fn is_memory(&self) -> bool {
        self.limit == Limit::Memory
    }

    pub(crate) fn is_processes(&self) -> bool {
        self.limit == Limit::Processes
    }
}

impl Limits {
    /// Returns limits of all resources, for probing.
    pub(crate) fn all_set() -> Self {
        Self { cpu_millis: Some(1000), memory_bytes: Some(1 << 30), processes: Some(100) }
    }

    /// Returns whether a limit is requested for this resource.
    pub(crate) fn asks_for(&self, limit: Limit) -> bool {
        match limit {
            Limit::Cpu => self.cpu_millis.is_some(),
            Limit::Memory => self.memory_bytes.is_some(),
            Limit::Processes => self.processes.is_some(),
        }
    }
}

/// Resource usage of a sandbox. `None` if it is not measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// CPU time since the start.
    pub cpu: Option<Duration>,
    /// Memory in use, without inactive file cache.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Traffic since the start; `None` also without a network.
    pub network: Option<NetworkBytes>,
}

/// Bytes that a sandbox received and sent over all its network interfaces except loopback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkBytes {
    /// Received bytes.
    pub received: u64,
    /// Sent bytes.
    pub sent: u64,
}

/// Isolation and limits that the host supports for sandboxes. An error is the reason why one is not supported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSupport {
    /// Namespaces, without which there are no sandboxes.
    pub namespaces: Result<(), String>,
    /// CPU limits.
    pub cpu: Result<(), String>,
    /// Memory limits.
    pub memory: Result<(), String>,
    /// Limits of the number of processes.
    pub processes: Result<(), String>,
}

impl HostSupport {
    /// Returns the limits that cannot be enforced.
    pub fn missing(&self) -> Vec<UnenforcedLimit> {
        let all =
            [(Limit::Cpu, &self.cpu), (Limit::Memory, &self.memory), (Limit::Processes, &self.processes)];
        let missing = |(limit, support): (Limit, &Result<(), String>)| {
            Some(UnenforcedLimit { limit, reason: support.as_ref().err()?.clone() })
        };
        all.into_iter().filter_map(missing).collect()
    }

    pub(crate) fn new(namespaces: Result<(), String>, missing: &[UnenforcedLimit]) -> Self {
        let support = |limit| match missing.iter().find(|missing| missing.limit == limit) {
            Some(missing) => Err(missing.reason.clone()),
            None => Ok(()),
        };
        Self {
            namespaces,
            cpu: support(Limit::Cpu),
            memory: support(Limit::Memory),
            processes: support(Limit::Processes),
        }
    }
}

/// Returns whether the kernel counts the processes of a user per user namespace, as since Linux 5.14. Before,
/// all processes of the user on the host would count.
pub(crate) fn has_per_namespace_process_limit() -> bool {
    crate::host_status::kernel_version() >= (5, 14)
}

/// Limits a resource of this process and its descendants. A lower hard limit stays in force.
pub(crate) fn limit(resource: Resource, max: u64) -> io::Result<()> {
    let max = getrlimit(resource).maximum.map_or(max, |hard_limit| hard_limit.min(max));
    Ok(setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) })?)
}

/// Maximum number of open files of a process in a sandbox.
const OPEN_FILES: u64 = 65_536;
/// Maximum number of pending signals of all processes of a sandbox.
#[cfg(target_os = "linux")]
const PENDING_SIGNALS: u64 = 4_096;

/// Soft limit of open files before this process raised it.
static ORIGINAL_LIMIT: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit of open files to the hard limit. It also limits file descriptors in flight over
/// sockets: the kernel counts those of all processes of a user, and compares with the limit of the sender.
pub fn raise_open_files_limit() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    ORIGINAL_LIMIT.get_or_init(|| current);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Gives a program that is about to be started the original limit of open files: many programs iterate over
/// all descriptors up to the limit.
pub fn reset_open_files_limit(command: &mut Command) -> &mut Command {
    let Some(original) = ORIGINAL_LIMIT.get().copied() else { return command };
    let limit = move || {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        Ok(setrlimit(Resource::Nofile, Rlimit { current: original, maximum })?)
    };
    // SAFETY: between fork and exec only two system calls are made.
    unsafe { command.pre_exec(limit) }
}

/// User of the host that a sandbox runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxUser {
    /// The ordinary user who started the sandbox.
    Starter,
    /// Another user than that of the process that started the sandbox, or root of the host.
    OtherOrRoot,
}

/// Limits open files of a sandbox. One that runs as the user of the process that started it gets half of that process's
/// limit: however many descriptors it keeps in flight, the process can still send some to its helpers. Root of the
/// host may always send.
pub(crate) fn limit_open_files(user: SandboxUser) -> io::Result<()> {
    let max = getrlimit(Resource::Nofile).maximum.map_or(OPEN_FILES, |max| max.min(OPEN_FILES * 2));
    let max = match user {
        SandboxUser::Starter => max / 2,
        SandboxUser::OtherOrRoot => OPEN_FILES,
    };
    limit(Resource::Nofile, max)
}

/// Limits pending signals. User namespaces that this process creates later inherit the limit for all
/// processes in them.
#[cfg(target_os = "linux")]
pub(crate) fn limit_pending_signals() -> io::Result<()> {
    limit(Resource::Sigpending, PENDING_SIGNALS)
}

/// Describes in one line the limits that are not enforced, with reason, substitute and remedy. Returns `None`
/// if all are enforced.
pub fn describe_missing(missing: &[UnenforcedLimit]) -> Option<String> {
    let names: Vec<String> = missing.iter().map(|missing| missing.limit.to_string()).collect();
    let (last, others) = names.split_last()?;
    let names = if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) };
    let mut reasons: Vec<&str> = missing.iter().map(|missing| missing.reason.as_str()).collect();
    reasons.dedup();
    let mut line = format!("no limit on {names} for the sandbox as a whole: {}", reasons.join("; "));
    if missing.iter().any(UnenforcedLimit::is_memory) {
        line += "; each process may use the requested memory (RLIMIT_DATA)";
    }
    if reasons.contains(&NOT_ALLOWED) {
        line += "; ";
        line += hint(std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists());
    }
    Some(line)
}

/// Reason why an ordinary user usually has no cgroups.
pub(crate) const NOT_ALLOWED: &str = "this user may not create cgroups";

/// Returns the remedy for an ordinary user. Cgroups of version 1 cannot safely be delegated.
fn hint(has_v2: bool) -> &'static str {
    if has_v2 {
        "to get them, start the server with `systemd-run --user --scope -p Delegate=yes workspace-server`"
    } else {
        "to get them, boot with `systemd.unified_cgroup_hierarchy=1` and start the server with \
         `systemd-run --user --scope -p Delegate=yes workspace-server`, or start it as root"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn started_programs_get_the_original_open_files_limit() {
        let before = getrlimit(Resource::Nofile);
        raise_open_files_limit().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        // Another test may have raised it before.
        let original = ORIGINAL_LIMIT.get().copied().unwrap();
        let output = reset_open_files_limit(Command::new("sh").args(["-c", "ulimit -Sn"])).output().unwrap();
        let expected = original.map_or("unlimited".to_owned(), |original| original.to_string());
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), expected);
    }

    #[test]
    fn one_line_describes_all_missing_limits() {
        let missing = |limit, reason: &str| UnenforcedLimit { limit, reason: reason.to_owned() };
        assert_eq!(describe_missing(&[]), None);
        let both = [missing(Limit::Cpu, NOT_ALLOWED), missing(Limit::Memory, NOT_ALLOWED)];
        let line = describe_missing(&both).unwrap();
        let expected = "no limit on cpu and memory for the sandbox as a whole: this user may not create cgroups; each \
                        process may use the requested memory (RLIMIT_DATA); ";
        assert!(line.starts_with(expected) && line.contains("-p Delegate=yes workspace-server`"), "{line}");
        let line = describe_missing(&[missing(Limit::Cpu, "no cgroup has the controller cpu")]).unwrap();
        assert_eq!(line, "no limit on cpu for the sandbox as a whole: no cgroup has the controller cpu");
    }
}
