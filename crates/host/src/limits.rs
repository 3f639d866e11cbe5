//! How much a sandbox may use, what of that could not be seen to, and what it does use.

use std::fmt;
use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

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
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(5), Some(14))
}

/// Limits a resource of this process and all that come of it; to less, if it may not have as much.
pub(crate) fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}
