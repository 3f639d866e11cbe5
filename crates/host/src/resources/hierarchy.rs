//! Cgroup hierarchies.
//!
//! Version 2 has one hierarchy, in which a cgroup with processes cannot delegate controllers to child
//! cgroups. In version 1 every controller has its own hierarchy, or several share one. Both versions may
//! be mounted; each controller is in one of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::resources::limits::Limit;

/// Name of the cgroup of all sandboxes. Each sandbox has a child cgroup in it.
const SANDBOXES_CGROUP: &str = "workspace";
/// Name of the cgroup that the server's processes are moved to. In version 2, a cgroup with controllers for
/// its children cannot have processes.
const SERVER_CGROUP: &str = "workspace-server";
/// Number of attempts to move all processes out of a cgroup. They may fork new ones.
const MOVE_ATTEMPTS: u32 = 20;
/// Maximum age of the result of [`recent`].
const RECENT_AGE_MAX: Duration = Duration::from_secs(1);
/// Controllers of version 1 that are used to limit, measure and freeze sandboxes.
const USED_CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "memory", "pids", "freezer"];

/// Version of the cgroup interface. Serialized in the record of a frozen sandbox (`freeze/record.rs`), which servers of
/// other versions read, so these names stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Version {
    #[serde(rename = "One")]
    V1,
    #[serde(rename = "Two")]
    V2,
}

/// Mounted cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hierarchy {
    pub(crate) version: Version,
    /// Used controllers of version 1. In version 2 each cgroup lists its own.
    controllers: Vec<String>,
    mount_point: PathBuf,
    /// Directory of the cgroup of this process.
    own_cgroup: PathBuf,
}

/// Returns all hierarchies that are mounted and used.
pub(crate) fn all() -> io::Result<Vec<Hierarchy>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let own_cgroups = fs::read_to_string("/proc/self/cgroup")?;
    Ok(parse(&mounts, &own_cgroups))
}

/// Returns the hierarchies as of at most [`RECENT_AGE_MAX`] ago. They change only when an administrator mounts one
/// or moves the server. Reading them takes 0.6 ms with 500 mounts, and would be most of the cost of measuring a
/// sandbox.
pub(crate) fn recent() -> io::Result<Arc<[Hierarchy]>> {
    static RECENT: Mutex<Option<(Instant, Arc<[Hierarchy]>)>> = Mutex::new(None);
    let mut recent = RECENT.lock();
    if let Some((_, hierarchies)) = recent.as_ref().filter(|(read_at, _)| read_at.elapsed() < RECENT_AGE_MAX)
    {
        return Ok(Arc::clone(hierarchies));
    }
    let hierarchies: Arc<[Hierarchy]> = all()?.into();
    *recent = Some((Instant::now(), Arc::clone(&hierarchies)));
    Ok(hierarchies)
}

/// Parses `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn parse(mounts: &str, own_cgroups: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for hierarchy in mounts.lines().filter_map(|line| parse_mount(line, own_cgroups)) {
        // A hierarchy may be mounted several times.
        let is_same = |other: &Hierarchy| {
            other.version == hierarchy.version && other.controllers == hierarchy.controllers
        };
        if !found.iter().any(is_same) {
            found.push(hierarchy);
        }
    }
    found
}

/// Parses a line of `/proc/self/mountinfo`. Returns `None` if it is no hierarchy that is used.
fn parse_mount(line: &str, own_cgroups: &str) -> Option<Hierarchy> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, mount_point) = (before.next()?, PathBuf::from(before.next()?));
    let mut after = after.split(' ');
    let (fs_type, options) = (after.next()?, after.nth(1)?);
    let (version, controllers) = match fs_type {
        "cgroup" => (Version::V1, used_controllers(options)),
        "cgroup2" => (Version::V2, Vec::new()),
        _ => return None,
    };
    if version == Version::V1 && controllers.is_empty() {
        return None;
    }
    let own_path = own_cgroups.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        let is_same = match version {
            Version::V1 => used_controllers(names) == controllers,
            Version::V2 => names.is_empty(),
        };
        is_same.then_some(path)
    })?;
    let relative = Path::new(own_path).strip_prefix(root).unwrap_or(Path::new(""));
    Some(Hierarchy { version, controllers, own_cgroup: mount_point.join(relative), mount_point })
}

fn used_controllers(names: &str) -> Vec<String> {
    let mut used: Vec<String> =
        names.split(',').filter(|name| USED_CONTROLLERS.contains(name)).map(str::to_owned).collect();
    used.sort();
    used
}

impl Hierarchy {
    /// Returns the paths that the cgroup of all sandboxes may have, preferred ones first. An earlier server may have
    /// used another path than this one.
    pub(crate) fn sandboxes_cgroups(&self) -> Vec<PathBuf> {
        self.candidate_parents().into_iter().map(|parent| parent.join(SANDBOXES_CGROUP)).collect()
    }

    /// Returns the cgroups that may be the parent of the cgroup of all sandboxes, preferred ones first.
    fn candidate_parents(&self) -> Vec<PathBuf> {
        if self.version == Version::V1 {
            return vec![self.mount_point.clone()];
        }
        // An earlier start may have moved the server into a child cgroup.
        let cgroup = if self.own_cgroup.ends_with(SERVER_CGROUP) {
            self.own_cgroup.parent().unwrap_or(&self.own_cgroup)
        } else {
            &self.own_cgroup
        };
        let mut parents = vec![cgroup.to_owned()];
        let own_parent = cgroup.parent().filter(|path| path.starts_with(&self.mount_point));
        for parent in own_parent.into_iter().chain([self.mount_point.as_path()]) {
            if !parents.iter().any(|known| known == parent) {
                parents.push(parent.to_owned());
            }
        }
        parents
    }

    /// Returns whether the hierarchy has version 1 and this controller.
    pub(crate) fn is_v1_with(&self, controller: &str) -> bool {
        self.version == Version::V1 && self.controllers.iter().any(|name| name == controller)
    }

    /// Returns whether a cgroup of this hierarchy has this controller.
    pub(crate) fn has(&self, controller: &str, group: &Path) -> bool {
        match self.version {
            Version::V1 => self.is_v1_with(controller),
            Version::V2 => {
                read_words(&group.join("cgroup.controllers")).iter().any(|name| name == controller)
            }
        }
    }

    /// Prepares the cgroup of all sandboxes, and returns its directory.
    pub(crate) fn prepare_sandboxes_cgroup(&self) -> io::Result<PathBuf> {
        let mut first_error = None;
        let mut parents = self.candidate_parents();
        // Those with the most controllers first.
        parents.sort_by_key(|parent| std::cmp::Reverse(delegable_controllers(parent).len()));
        for parent in parents {
            let sandboxes = parent.join(SANDBOXES_CGROUP);
            match self.prepare(&parent, &sandboxes) {
                Ok(()) => return Ok(sandboxes),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound)))
    }

    /// Creates the cgroup of all sandboxes in `parent`. With version 2, delegates the controllers to it and its
    /// children.
    fn prepare(&self, parent: &Path, sandboxes: &Path) -> io::Result<()> {
        if self.version == Version::V1 {
            return create(sandboxes);
        }
        let controllers = delegable_controllers(parent);
        if controllers.is_empty() {
            return Err(io::Error::other(format!("no controllers in {}", parent.display())));
        }
        delegate(parent, &controllers)?;
        create(sandboxes)?;
        delegate(sandboxes, &controllers)
    }
}

/// Returns the controllers of a cgroup that are to be delegated to its children.
fn delegable_controllers(group: &Path) -> Vec<&'static str> {
    let available = read_words(&group.join("cgroup.controllers"));
    let needed = Limit::ALL.map(Limit::controller).into_iter();
    needed.filter(|name| available.iter().any(|other| other == name)).collect()
}

/// Creates a cgroup, unless it exists.
pub(crate) fn create(group: &Path) -> io::Result<()> {
    let add_path = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", group.display()));
    match fs::create_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(add_path(error)),
        _ => Ok(()),
    }
}

/// Delegates controllers to child cgroups.
fn delegate(group: &Path, controllers: &[&str]) -> io::Result<()> {
    let file = group.join("cgroup.subtree_control");
    let delegated = read_words(&file);
    let missing: Vec<String> = controllers
        .iter()
        .filter(|name| !delegated.iter().any(|other| other == *name))
        .map(|name| format!("+{name}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let add_path = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    for _ in 0..MOVE_ATTEMPTS {
        match fs::write(&file, missing.join(" ")) {
            // There are processes in the cgroup.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => move_server_out(group)?,
            written => return written.map_err(add_path),
        }
    }
    fs::write(&file, missing.join(" ")).map_err(add_path)
}

/// Moves the processes of the server into a child cgroup. Fails if the cgroup has processes of other
/// programs.
fn move_server_out(group: &Path) -> io::Result<()> {
    let own_program = fs::read_link("/proc/self/exe")?;
    let processes = read_words(&group.join("cgroup.procs"));
    let is_other = |pid: &String| match fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(program) => program != own_program,
        // The process has exited.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    if processes.iter().any(is_other) {
        let text = format!("other programs run in {}; run the server in its own cgroup", group.display());
        return Err(io::Error::other(text));
    }
    let server = group.join(SERVER_CGROUP);
    create(&server)?;
    processes.iter().try_for_each(|pid| move_process(&server, pid))
}

/// Moves a process into a cgroup, unless it has exited.
fn move_process(group: &Path, pid: &str) -> io::Result<()> {
    match fs::write(group.join("cgroup.procs"), pid) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        moved => moved,
    }
}

/// Returns the whitespace-separated words of a file; none if it cannot be read.
pub(crate) fn read_words(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_hierarchies_are_found_once_each() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      33 31 0:30 /docker/1 /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      34 31 0:30 / /mnt/memory rw,relatime - cgroup cgroup rw,memory\n\
                      35 31 0:31 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n";
        let own = "4:cpuacct,cpu:/\n3:memory:/docker/1/a\n2:name=systemd:/\n0::/\n";
        let found = parse(mounts, own);
        let cgroups: Vec<_> = found.iter().flat_map(Hierarchy::sandboxes_cgroups).collect();
        let expected = ["/sys/fs/cgroup/cpu,cpuacct/workspace", "/sys/fs/cgroup/memory/workspace"];
        assert_eq!(cgroups, expected.map(PathBuf::from));
        assert!(found[0].has("cpu", Path::new("")) && !found[0].has("memory", Path::new("")));
    }

    #[test]
    fn v2_prefers_the_own_cgroup() {
        let mounts = "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let expected = ["/a/b/workspace", "/a/workspace", "/workspace"];
        let expected = expected.map(|path| PathBuf::from(format!("/sys/fs/cgroup{path}")));
        for own in ["0::/a/b\n", "0::/a/b/workspace-server\n"] {
            assert_eq!(parse(mounts, own)[0].sandboxes_cgroups(), expected);
        }
        assert_eq!(parse(mounts, "0::/\n")[0].sandboxes_cgroups(), expected[2..]);
    }

    fn v2_hierarchy(root: &Path, controllers: &str) -> Hierarchy {
        fs::write(root.join("cgroup.controllers"), controllers).unwrap();
        Hierarchy {
            version: Version::V2,
            controllers: Vec::new(),
            mount_point: root.to_owned(),
            own_cgroup: root.to_owned(),
        }
    }

    #[test]
    fn controllers_are_delegated_to_sandboxes() {
        let top = tempfile::tempdir().unwrap();
        let hierarchy = v2_hierarchy(top.path(), "cpuset cpu memory pids");
        let sandboxes = hierarchy.prepare_sandboxes_cgroup().unwrap();
        for group in [top.path(), &sandboxes] {
            let control = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap();
            assert_eq!(control, "+cpu +memory +pids");
        }
    }

    #[test]
    fn the_parent_with_most_controllers_is_chosen() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("a");
        fs::create_dir(&own).unwrap();
        let hierarchy = Hierarchy { own_cgroup: own.clone(), ..v2_hierarchy(top.path(), "cpu memory pids") };
        for (controllers, parent) in [("memory pids", top.path()), ("cpu memory pids io", &own)] {
            fs::write(own.join("cgroup.controllers"), controllers).unwrap();
            assert_eq!(hierarchy.prepare_sandboxes_cgroup().unwrap(), parent.join(SANDBOXES_CGROUP));
        }
    }

    #[test]
    fn without_controllers_there_is_no_cgroup_of_sandboxes() {
        let top = tempfile::tempdir().unwrap();
        let error = v2_hierarchy(top.path(), "hugetlb").prepare_sandboxes_cgroup().unwrap_err();
        assert!(error.to_string().starts_with("no controllers"), "{error}");
        assert!(!top.path().join(SANDBOXES_CGROUP).exists());
    }
}
