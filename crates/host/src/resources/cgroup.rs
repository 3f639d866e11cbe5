//! Cgroups of a sandbox, which limit and measure its resources.
//!
//! A sandbox has a cgroup named after its id in every hierarchy that is used. Moving a process into a cgroup
//! from outside costs an RCU grace period of the kernel, 6 to 15 ms. So with version 2 the process is created in
//! its cgroup, and with version 1 it enters by itself, while it has one thread; neither waits.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{Context as _, HostError, Result};
use crate::process::Process;
use crate::resources::freeze::freezer::Freezer;
use crate::resources::hierarchy::{self, Hierarchy, Version, read_words};
use crate::resources::limits::{Limit, Limits, NOT_ALLOWED, ResourceUsage, UnenforcedLimit};

/// Period of the CPU quota, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
/// Controller of version 1 that freezes processes. With version 2 every cgroup can be frozen.
const FREEZER: &str = "freezer";
/// Timeout for killed processes to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Cgroups of one sandbox, open for its first process to enter.
#[derive(Default)]
pub(crate) struct Cgroups {
    /// Version 2: directory in which the process is created.
    v2: Option<File>,
    /// Version 1: `tasks` files, to which a thread writes in order to enter.
    v1: Vec<File>,
}

impl Cgroups {
    /// Returns the cgroup in which to create the process.
    pub(crate) fn v2_fd(&self) -> Option<BorrowedFd<'_>> {
        self.v2.as_ref().map(File::as_fd)
    }

    /// Moves this process, which must have one thread, into the cgroups of version 1.
    pub(crate) fn enter(&self) -> Result<()> {
        let mut files = self.v1.iter();
        files.try_for_each(|mut file| file.write_all(b"0")).context("enter the cgroups of the sandbox")
    }
}

/// Creates the cgroups of a sandbox with these limits. Also returns the limits that could not be set.
pub(crate) fn create(id: &str, limits: &Limits) -> Result<(Cgroups, Vec<UnenforcedLimit>)> {
    create_all(&hierarchy::all().context("read the cgroup hierarchies")?, id, limits)
}

/// Creates cgroups like [`create`], in these hierarchies.
pub(crate) fn create_all(
    hierarchies: &[Hierarchy],
    id: &str,
    limits: &Limits,
) -> Result<(Cgroups, Vec<UnenforcedLimit>)> {
    let name = check_id(id)?;
    let mut cgroups = Cgroups::default();
    let (mut results, mut failed) = (Vec::new(), Vec::new());
    for hierarchy in hierarchies {
        match create_in(hierarchy, name) {
            Ok(group) => {
                cgroups.open(hierarchy, &group)?;
                results.extend(limit_in(hierarchy, &group, limits));
            }
            Err(error) => failed.push((hierarchy, error)),
        }
    }
    let requested = Limit::ALL.into_iter().filter(|limit| limits.asks_for(*limit));
    let missing = requested.filter_map(|limit| {
        let result = results.iter().find(|(other, _)| *other == limit);
        let reason = match result {
            Some((_, Ok(()))) => return None,
            Some((_, Err(error))) => error.to_string(),
            None => missing_reason(limit, &failed),
        };
        Some(UnenforcedLimit { limit, reason })
    });
    Ok((cgroups, missing.collect()))
}

/// Returns why a limit is not set, from the hierarchy that has its controller.
fn missing_reason(limit: Limit, failed: &[(&Hierarchy, io::Error)]) -> String {
    let controller = limit.controller();
    let in_v1 = failed.iter().find(|(hierarchy, _)| hierarchy.is_v1_with(controller));
    let in_v2 = || failed.iter().find(|(hierarchy, _)| hierarchy.version == Version::V2);
    match in_v1.or_else(in_v2) {
        Some((_, error)) if error.kind() == io::ErrorKind::PermissionDenied => NOT_ALLOWED.to_owned(),
        Some((_, error)) => error.to_string(),
        None => format!("no cgroup has the controller {controller}"),
    }
}

/// Checks an id, which becomes the name of a directory.
fn check_id(id: &str) -> Result<&str> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !id.is_empty() && id.chars().all(harmless) {
        Ok(id)
    } else {
        Err(HostError::other(format!("`{id}` is not a valid sandbox id")))
    }
}

fn create_in(hierarchy: &Hierarchy, name: &str) -> io::Result<PathBuf> {
    let group = hierarchy.prepare_sandboxes_cgroup()?.join(name);
    hierarchy::create(&group)?;
    Ok(group)
}

impl Cgroups {
    fn open(&mut self, hierarchy: &Hierarchy, group: &Path) -> Result<()> {
        let opened = match hierarchy.version {
            Version::V1 => {
                File::options().write(true).open(group.join("tasks")).map(|file| self.v1.push(file))
            }
            Version::V2 => File::open(group).map(|file| self.v2 = Some(file)),
        };
        opened.context(format!("open {}", group.display()))
    }
}

/// Limit, and the result of setting it.
type LimitResult = (Limit, io::Result<()>);

/// Sets the limits for which this hierarchy has controllers.
fn limit_in(hierarchy: &Hierarchy, group: &Path, limits: &Limits) -> Vec<LimitResult> {
    let is_set_here = |limit: &Limit| hierarchy.has(limit.controller(), group) && limits.asks_for(*limit);
    let set = |limit| {
        let (file, value) = setting(hierarchy.version, limit, limits);
        let path = group.join(file);
        let add_path = |error| io::Error::other(format!("{}: {error}", path.display()));
        (limit, fs::write(&path, value).map_err(add_path))
    };
    let results = Limit::ALL.into_iter().filter(is_set_here).map(set).collect();
    if hierarchy.has(Limit::Memory.controller(), group) {
        limit_swap(hierarchy.version, group, limits);
    }
    results
}

/// Returns the file of a limit and the value to write.
fn setting(version: Version, limit: Limit, limits: &Limits) -> (&'static str, String) {
    // The kernel accepts no less than a millisecond.
    let quota = (u64::from(limits.cpu_millis.unwrap_or_default()) * CPU_PERIOD_US / 1000).max(1000);
    let memory = limits.memory_bytes.unwrap_or_default();
    let processes = limits.processes.unwrap_or_default();
    match (version, limit) {
        (Version::V1, Limit::Cpu) => ("cpu.cfs_quota_us", quota.to_string()),
        (Version::V2, Limit::Cpu) => ("cpu.max", format!("{quota} {CPU_PERIOD_US}")),
        (Version::V1, Limit::Memory) => ("memory.limit_in_bytes", memory.to_string()),
        (Version::V2, Limit::Memory) => ("memory.max", memory.to_string()),
        (_, Limit::Processes) => ("pids.max", processes.to_string()),
    }
}

/// Makes the memory limit apply to swapped memory. Fails silently if the kernel does not account for swap.
fn limit_swap(version: Version, group: &Path, limits: &Limits) {
    let Some(memory) = limits.memory_bytes else { return };
    let _ = match version {
        Version::V1 => fs::write(group.join("memory.memsw.limit_in_bytes"), memory.to_string()),
        Version::V2 => fs::write(group.join("memory.swap.max"), "0"),
    };
}

/// Returns the existing cgroups of a sandbox.
fn groups(id: &str) -> Result<Vec<PathBuf>> {
    groups_in(&hierarchy::recent().context("read the cgroup hierarchies")?, id)
}

fn groups_in(hierarchies: &[Hierarchy], id: &str) -> Result<Vec<PathBuf>> {
    let name = check_id(id)?;
    let parents = hierarchies.iter().flat_map(Hierarchy::sandboxes_cgroups);
    let groups = parents.map(|parent| parent.join(name));
    Ok(groups.filter(|group| group.is_dir()).collect())
}

/// Returns the cgroup by which a sandbox can be frozen and that contains `process`. `None` if there is none,
/// or this user may not freeze it.
pub(crate) fn freezer(id: &str, process: &Process) -> Result<Option<Freezer>> {
    let name = check_id(id)?;
    let pid = process.pid().to_string();
    for hierarchy in hierarchy::recent().context("read the cgroup hierarchies")?.iter() {
        if hierarchy.version == Version::V1 && !hierarchy.is_v1_with(FREEZER) {
            continue;
        }
        let groups = hierarchy.sandboxes_cgroups().into_iter().map(|parent| parent.join(name));
        // Several parents may have a cgroup of that name. The one with the process belongs to the sandbox.
        let contains_process = |group: &PathBuf| read_words(&group.join("cgroup.procs")).contains(&pid);
        let found = groups.filter(contains_process).find_map(|group| Freezer::of(group, hierarchy.version));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Returns the ids of all sandboxes that have cgroups, with or without processes.
pub fn ids() -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for parent in
        hierarchy::all().context("read the cgroup hierarchies")?.iter().flat_map(Hierarchy::sandboxes_cgroups)
    {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.path().is_dir());
        ids.extend(directories.filter_map(|entry| entry.file_name().into_string().ok()));
    }
    ids.sort();
    ids.dedup();
    Ok(ids)
}

/// Returns the resources that a sandbox uses, as far as they are measured. Cgroups do not measure traffic
/// (`network::traffic`).
pub fn usage(id: &str) -> Result<ResourceUsage> {
    let mut usage = ResourceUsage::default();
    let hierarchies = hierarchy::recent().context("read the cgroup hierarchies")?;
    for group in groups_in(&hierarchies, id)? {
        let number =
            |file: &str| read_words(&group.join(file)).first().and_then(|word| word.parse::<u64>().ok());
        let field = |file: &str, name: &str| {
            let words = read_words(&group.join(file));
            words.chunks_exact(2).find(|pair| pair[0] == name).and_then(|pair| pair[1].parse::<u64>().ok())
        };
        let cpu = number("cpuacct.usage").map(Duration::from_nanos);
        let cpu = cpu.or_else(|| field("cpu.stat", "usage_usec").map(Duration::from_micros));
        let memory = number("memory.usage_in_bytes").or_else(|| number("memory.current"));
        let inactive_cache =
            field("memory.stat", "total_inactive_file").or_else(|| field("memory.stat", "inactive_file"));
        let memory = memory.map(|memory| memory.saturating_sub(inactive_cache.unwrap_or_default()));
        usage.cpu = usage.cpu.or(cpu);
        usage.memory_bytes = usage.memory_bytes.or(memory);
        usage.processes = usage.processes.or_else(|| number("pids.current"));
    }
    Ok(usage)
}

/// Removes the cgroups of a sandbox, which must be empty.
pub(crate) fn remove_empty(id: &str) -> Result<()> {
    let mut groups = groups(id)?.into_iter();
    groups.try_for_each(|group| {
        fs::remove_dir(&group).context(format!("remove the leftover cgroup {}", group.display()))
    })
}

/// Removes the cgroups of a sandbox, and kills all processes in them. Succeeds if there are none.
pub fn remove(id: &str) -> Result<()> {
    let deadline = Instant::now() + KILL_TIMEOUT;
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
                    return Err(error).context(format!("remove {}", group.display()));
                }
                _ => break,
            }
        }
    }
    Ok(())
}

/// Thaws the processes: with version 1 a frozen process does not exit when it is killed. Only the cgroup
/// with the freezer controller has this file.
fn thaw(groups: &[PathBuf]) {
    for group in groups {
        let _ = fs::write(group.join("freezer.state"), "THAWED");
    }
}

fn kill_all(group: &Path) {
    // Killing the whole cgroup at once leaves no time to fork.
    if fs::write(group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for pid in read_words(&group.join("cgroup.procs")) {
        let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) else { continue };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // The PID may have been reused before it was opened.
        if read_words(&group.join("cgroup.procs")).contains(&pid.to_string()) {
            // It may have exited.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}
