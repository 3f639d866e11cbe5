//! The groups of processes by which the kernel limits and counts what a sandbox uses.
//!
//! A sandbox has a group of its id in every hierarchy that is of use. Putting a process into a group from outside
//! costs a grace period of the kernel, 6 to 15 ms; so in the second version the process is made in its group, and
//! in the first it enters by itself, thread by thread, of which it has one: neither has to wait.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{Doing as _, HostError, Result};
use crate::process::Process;
use crate::resources::freeze::freezer::Freezer;
use crate::resources::hierarchy::{self, Hierarchy, Version, words};
use crate::resources::limits::{Limit, Limits, Missing, NOT_ALLOWED, Usage};

/// The time over which use of processors is counted, in microseconds.
const PERIOD: u64 = 100_000;
/// The controller that stops what is in a group, in the first version; in the second every group can.
const FREEZER: &str = "freezer";
/// How long what was killed may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The groups of one sandbox, for its first process to enter.
#[derive(Default)]
pub(crate) struct Groups {
    /// In the second version: where a process can be made.
    second: Option<File>,
    /// In the first: what a thread writes to in order to enter.
    first: Vec<File>,
}

impl Groups {
    /// The group in which to make the process.
    pub(crate) fn to_be_made_in(&self) -> Option<BorrowedFd<'_>> {
        self.second.as_ref().map(File::as_fd)
    }

    /// Takes this process, which has one thread, into the others.
    pub(crate) fn enter(&self) -> Result<()> {
        let mut files = self.first.iter();
        files.try_for_each(|mut file| file.write_all(b"0")).doing("enter the sandbox's groups")
    }
}

/// Makes the groups of a sandbox, with these limits; what could not be limited.
pub(crate) fn make(id: &str, limits: &Limits) -> Result<(Groups, Vec<Missing>)> {
    let name = checked(id)?;
    let mut made = Groups::default();
    let (mut limited, mut failed) = (Vec::new(), Vec::new());
    for hierarchy in hierarchy::all().doing("look for cgroups")? {
        match make_in(&hierarchy, name) {
            Ok(group) => {
                made.open(&hierarchy, &group)?;
                limited.extend(limit_in(&hierarchy, &group, limits));
            }
            Err(error) => failed.push((hierarchy, error)),
        }
    }
    let asked = Limit::ALL.into_iter().filter(|limit| limits.asks_for(*limit));
    let missing = asked.filter_map(|limit| {
        let done = limited.iter().find(|(one, _)| *one == limit);
        let reason = match done {
            Some((_, Ok(()))) => return None,
            Some((_, Err(error))) => error.to_string(),
            None => why_not(limit, &failed),
        };
        Some(Missing { limit, reason })
    });
    Ok((made, missing.collect()))
}

/// Why no group sees to a limit. Only the hierarchy that would have seen to it tells.
fn why_not(limit: Limit, failed: &[(Hierarchy, io::Error)]) -> String {
    let controller = limit.controller();
    let of_first = failed.iter().find(|(one, _)| one.is_first_with(controller));
    let of_second = || failed.iter().find(|(one, _)| one.version == Version::Two);
    match of_first.or_else(of_second) {
        Some((_, error)) if error.kind() == io::ErrorKind::PermissionDenied => NOT_ALLOWED.to_owned(),
        Some((_, error)) => error.to_string(),
        None => format!("no cgroup has the controller {controller}"),
    }
}

/// An id becomes the name of a directory.
fn checked(id: &str) -> Result<&str> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !id.is_empty() && id.chars().all(harmless) {
        Ok(id)
    } else {
        Err(HostError::other(format!("`{id}` cannot be the id of a sandbox")))
    }
}

fn make_in(hierarchy: &Hierarchy, name: &str) -> io::Result<PathBuf> {
    let group = hierarchy.place()?.join(name);
    hierarchy::make(&group)?;
    Ok(group)
}

impl Groups {
    fn open(&mut self, hierarchy: &Hierarchy, group: &Path) -> Result<()> {
        let opened = match hierarchy.version {
            Version::One => {
                File::options().write(true).open(group.join("tasks")).map(|file| self.first.push(file))
            }
            Version::Two => File::open(group).map(|file| self.second = Some(file)),
        };
        opened.doing(format!("open {}", group.display()))
    }
}

type Limited = (Limit, io::Result<()>);

/// Sets the limits that this hierarchy sees to.
fn limit_in(hierarchy: &Hierarchy, group: &Path, limits: &Limits) -> Vec<Limited> {
    let seen_to = |limit: &Limit| hierarchy.has(limit.controller(), group) && limits.asks_for(*limit);
    let set = |limit| {
        let (file, value) = setting(hierarchy.version, limit, limits);
        let path = group.join(file);
        let named = |error| io::Error::other(format!("{}: {error}", path.display()));
        (limit, fs::write(&path, value).map_err(named))
    };
    let limited = Limit::ALL.into_iter().filter(seen_to).map(set).collect();
    if hierarchy.has(Limit::Memory.controller(), group) {
        no_swap(hierarchy.version, group, limits);
    }
    limited
}

fn setting(version: Version, limit: Limit, limits: &Limits) -> (&'static str, String) {
    // The kernel takes no less than a thousandth of a second.
    let quota = (u64::from(limits.cpu_millis.unwrap_or_default()) * PERIOD / 1000).max(1000);
    let memory = limits.memory_bytes.unwrap_or_default();
    let processes = limits.processes.unwrap_or_default();
    match (version, limit) {
        (Version::One, Limit::Cpu) => ("cpu.cfs_quota_us", quota.to_string()),
        (Version::Two, Limit::Cpu) => ("cpu.max", format!("{quota} {PERIOD}")),
        (Version::One, Limit::Memory) => ("memory.limit_in_bytes", memory.to_string()),
        (Version::Two, Limit::Memory) => ("memory.max", memory.to_string()),
        (_, Limit::Processes) => ("pids.max", processes.to_string()),
    }
}

/// Memory that is swapped out counts as well. Where swap is not counted at all, there is nothing to write to.
fn no_swap(version: Version, group: &Path, limits: &Limits) {
    let Some(memory) = limits.memory_bytes else { return };
    let _ = match version {
        Version::One => fs::write(group.join("memory.memsw.limit_in_bytes"), memory.to_string()),
        Version::Two => fs::write(group.join("memory.swap.max"), "0"),
    };
}

/// The groups of a sandbox that are there.
fn groups(id: &str) -> Result<Vec<PathBuf>> {
    let name = checked(id)?;
    let places = hierarchy::all().doing("look for cgroups")?;
    let groups = places.iter().flat_map(Hierarchy::places).map(|place| place.join(name));
    Ok(groups.filter(|group| group.is_dir()).collect())
}

/// The group by which a sandbox can be frozen, with this process in it; none if there is none, or whoever this is may
/// not.
pub(crate) fn freezer(id: &str, process: &Process) -> Result<Option<Freezer>> {
    let name = checked(id)?;
    let pid = process.pid().to_string();
    for hierarchy in hierarchy::all().doing("look for cgroups")? {
        if hierarchy.version == Version::One && !hierarchy.is_first_with(FREEZER) {
            continue;
        }
        let groups = hierarchy.places().into_iter().map(|place| place.join(name));
        // Of several by that name one is the sandbox's.
        let own = |group: &PathBuf| words(&group.join("cgroup.procs")).contains(&pid);
        let found = groups.filter(own).find_map(|group| Freezer::of(group, hierarchy.version));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The ids of all sandboxes that have groups, whether anything runs in them or not.
pub fn ids() -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for place in hierarchy::all().doing("look for cgroups")?.iter().flat_map(Hierarchy::places) {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.path().is_dir());
        ids.extend(directories.filter_map(|entry| entry.file_name().into_string().ok()));
    }
    ids.sort();
    ids.dedup();
    Ok(ids)
}

/// What a sandbox uses, as far as it is counted here.
pub fn usage(id: &str) -> Result<Usage> {
    let mut usage = Usage::default();
    for group in groups(id)? {
        let number = |file: &str| words(&group.join(file)).first().and_then(|word| word.parse::<u64>().ok());
        let line = |file: &str, name: &str| {
            let words = words(&group.join(file));
            words.chunks_exact(2).find(|pair| pair[0] == name).and_then(|pair| pair[1].parse::<u64>().ok())
        };
        let cpu = number("cpuacct.usage").map(Duration::from_nanos);
        let cpu = cpu.or_else(|| line("cpu.stat", "usage_usec").map(Duration::from_micros));
        let memory = number("memory.usage_in_bytes").or_else(|| number("memory.current"));
        let idle =
            line("memory.stat", "total_inactive_file").or_else(|| line("memory.stat", "inactive_file"));
        let memory = memory.map(|memory| memory.saturating_sub(idle.unwrap_or_default()));
        usage.cpu = usage.cpu.or(cpu);
        usage.memory_bytes = usage.memory_bytes.or(memory);
        usage.processes = usage.processes.or_else(|| number("pids.current"));
    }
    Ok(usage)
}

/// Removes the groups of a sandbox, in which nothing may be.
pub(crate) fn remove_empty(id: &str) -> Result<()> {
    let mut groups = groups(id)?.into_iter();
    groups
        .try_for_each(|group| fs::remove_dir(&group).doing(format!("remove the former {}", group.display())))
}

/// Kills everything in the groups of a sandbox and removes them. There may be none.
pub fn remove(id: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let groups = groups(id)?;
    for group in &groups {
        loop {
            match fs::remove_dir(group) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                    kill_all(group);
                    thaw(&groups);
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).doing(format!("remove {}", group.display()));
                }
                _ => break,
            }
        }
    }
    Ok(())
}

/// In the first version what is frozen does not even end when it is killed. Of a sandbox's groups one has this file.
fn thaw(groups: &[PathBuf]) {
    for group in groups {
        let _ = fs::write(group.join("freezer.state"), "THAWED");
    }
}

fn kill_all(group: &Path) {
    // What can be killed by one word cannot make others meanwhile.
    if fs::write(group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for pid in words(&group.join("cgroup.procs")) {
        let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) else { continue };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // The number may have become another's before it was opened.
        if words(&group.join("cgroup.procs")).contains(&pid.to_string()) {
            // It may have ended meanwhile.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}
