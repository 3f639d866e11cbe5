//! Where the kernel lets processes be put into groups.
//!
//! In the second version of cgroups there is one hierarchy, and a group with processes in it cannot hand controllers
//! on to groups below. In the first every controller has a hierarchy of its own, or several share one. Both may be
//! there; each controller is in one of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::resources::limits::Limit;

/// What the groups of sandboxes are in.
const GROUPS: &str = "workspace";
/// The group in which the server's own processes make room, where no processes may be beside groups.
const SERVER: &str = "workspace-server";
/// How often room is made in a group before it is given up: processes come while others are moved.
const ATTEMPTS: u32 = 20;
/// Controllers of the first version that are of use: to limit, to count and to stop.
const USED: [&str; 5] = ["cpu", "cpuacct", "memory", "pids", "freezer"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Version {
    One,
    Two,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) version: Version,
    /// Those of the first version; of the second each group says which it has.
    controllers: Vec<String>,
    top: PathBuf,
    /// The group of this process.
    own: PathBuf,
}

/// All that are mounted and of use.
pub(crate) fn all() -> io::Result<Vec<Hierarchy>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let own = fs::read_to_string("/proc/self/cgroup")?;
    Ok(parse(&mounts, &own))
}

fn parse(mounts: &str, own: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for hierarchy in mounts.lines().filter_map(|line| parse_mount(line, own)) {
        // Mounted in several places, it is still one.
        let known =
            |one: &Hierarchy| one.version == hierarchy.version && one.controllers == hierarchy.controllers;
        if !found.iter().any(known) {
            found.push(hierarchy);
        }
    }
    found
}

fn parse_mount(line: &str, own: &str) -> Option<Hierarchy> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, top) = (before.next()?, PathBuf::from(before.next()?));
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let (version, controllers) = match kind {
        "cgroup" => (Version::One, used(options)),
        "cgroup2" => (Version::Two, Vec::new()),
        _ => return None,
    };
    if version == Version::One && controllers.is_empty() {
        return None;
    }
    let own = own.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        let same = match version {
            Version::One => used(names) == controllers,
            Version::Two => names.is_empty(),
        };
        same.then_some(path)
    })?;
    let own = Path::new(own);
    let below = own.strip_prefix(root).unwrap_or(Path::new(""));
    Some(Hierarchy { version, controllers, own: top.join(below), top })
}

fn used(names: &str) -> Vec<String> {
    let mut used: Vec<String> =
        names.split(',').filter(|name| USED.contains(name)).map(str::to_owned).collect();
    used.sort();
    used
}

impl Hierarchy {
    /// Where groups of sandboxes may lie: where to make them first.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        self.parents().into_iter().map(|parent| parent.join(GROUPS)).collect()
    }

    fn parents(&self) -> Vec<PathBuf> {
        if self.version == Version::One {
            return vec![self.top.clone()];
        }
        // A former start may have moved the server.
        let own = if self.own.ends_with(SERVER) { self.own.parent().unwrap_or(&self.own) } else { &self.own };
        let mut parents = vec![own.to_owned()];
        let above = own.parent().filter(|above| above.starts_with(&self.top));
        for parent in above.into_iter().chain([self.top.as_path()]) {
            if !parents.iter().any(|known| known == parent) {
                parents.push(parent.to_owned());
            }
        }
        parents
    }

    /// Whether it is of the first version and has this controller.
    pub(crate) fn is_first_with(&self, controller: &str) -> bool {
        self.version == Version::One && self.controllers.iter().any(|name| name == controller)
    }

    /// Whether a group here is limited by this controller.
    pub(crate) fn has(&self, controller: &str, group: &Path) -> bool {
        match self.version {
            Version::One => self.is_first_with(controller),
            Version::Two => words(&group.join("cgroup.controllers")).iter().any(|name| name == controller),
        }
    }

    /// A place for groups of sandboxes, made ready.
    pub(crate) fn place(&self) -> io::Result<PathBuf> {
        let mut first = None;
        let mut parents = self.parents();
        // Where most can be limited.
        parents.sort_by_key(|parent| std::cmp::Reverse(to_hand_on(parent).len()));
        for parent in parents {
            let place = parent.join(GROUPS);
            match self.prepare(&parent, &place) {
                Ok(()) => return Ok(place),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound)))
    }

    fn prepare(&self, parent: &Path, place: &Path) -> io::Result<()> {
        if self.version == Version::One {
            return make(place);
        }
        let wanted = to_hand_on(parent);
        if wanted.is_empty() {
            return Err(io::Error::other(format!("no controllers in {}", parent.display())));
        }
        hand_on(parent, &wanted)?;
        make(place)?;
        hand_on(place, &wanted)
    }
}

/// The controllers of a group that are of use to groups below.
fn to_hand_on(group: &Path) -> Vec<&'static str> {
    let there = words(&group.join("cgroup.controllers"));
    let wanted = Limit::ALL.map(Limit::controller).into_iter();
    wanted.filter(|name| there.iter().any(|it| it == name)).collect()
}

/// Makes a group that may be there already.
pub(crate) fn make(group: &Path) -> io::Result<()> {
    let name = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", group.display()));
    match fs::create_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(name(error)),
        _ => Ok(()),
    }
}

/// Lets groups below have these controllers.
fn hand_on(group: &Path, controllers: &[&str]) -> io::Result<()> {
    let file = group.join("cgroup.subtree_control");
    let has = words(&file);
    let lacks: Vec<String> = controllers
        .iter()
        .filter(|name| !has.iter().any(|it| it == *name))
        .map(|name| format!("+{name}"))
        .collect();
    if lacks.is_empty() {
        return Ok(());
    }
    let name = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    for _ in 0..ATTEMPTS {
        match fs::write(&file, lacks.join(" ")) {
            // Processes are in the way.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => make_room(group)?,
            other => return other.map_err(name),
        }
    }
    fs::write(&file, lacks.join(" ")).map_err(name)
}

/// Moves the server's processes into a group of their own. Other programs are left where they are.
fn make_room(group: &Path) -> io::Result<()> {
    let this = fs::read_link("/proc/self/exe")?;
    let processes = words(&group.join("cgroup.procs"));
    let is_other = |pid: &String| match fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(program) => program != this,
        // It has ended.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    if processes.iter().any(is_other) {
        let text = format!("other programs run in {}: give the server a group of its own", group.display());
        return Err(io::Error::other(text));
    }
    let server = group.join(SERVER);
    make(&server)?;
    processes.iter().try_for_each(|pid| move_to(&server, pid))
}

/// Puts a process, which may have ended, into a group.
fn move_to(group: &Path, pid: &str) -> io::Result<()> {
    match fs::write(group.join("cgroup.procs"), pid) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        moved => moved,
    }
}

/// The words of a file; none where there is none.
pub(crate) fn words(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_the_first_version_are_found_once_each() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      33 31 0:30 /docker/1 /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      34 31 0:30 / /mnt/memory rw,relatime - cgroup cgroup rw,memory\n\
                      35 31 0:31 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n";
        let own = "4:cpuacct,cpu:/\n3:memory:/docker/1/a\n2:name=systemd:/\n0::/\n";
        let found = parse(mounts, own);
        let places: Vec<_> = found.iter().flat_map(Hierarchy::places).collect();
        let expected = ["/sys/fs/cgroup/cpu,cpuacct/workspace", "/sys/fs/cgroup/memory/workspace"];
        assert_eq!(places, expected.map(PathBuf::from));
        assert!(found[0].has("cpu", Path::new("")) && !found[0].has("memory", Path::new("")));
    }

    #[test]
    fn in_the_second_version_the_own_group_comes_first() {
        let mounts = "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let expected = ["/a/b/workspace", "/a/workspace", "/workspace"];
        let expected = expected.map(|path| PathBuf::from(format!("/sys/fs/cgroup{path}")));
        for own in ["0::/a/b\n", "0::/a/b/workspace-server\n"] {
            assert_eq!(parse(mounts, own)[0].places(), expected);
        }
        assert_eq!(parse(mounts, "0::/\n")[0].places(), expected[2..]);
    }

    fn second(top: &Path, controllers: &str) -> Hierarchy {
        fs::write(top.join("cgroup.controllers"), controllers).unwrap();
        Hierarchy { version: Version::Two, controllers: Vec::new(), top: top.to_owned(), own: top.to_owned() }
    }

    #[test]
    fn controllers_are_handed_on_to_the_groups_of_sandboxes() {
        let top = tempfile::tempdir().unwrap();
        let place = second(top.path(), "cpuset cpu memory pids").place().unwrap();
        for group in [top.path(), &place] {
            let control = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap();
            assert_eq!(control, "+cpu +memory +pids");
        }
    }

    #[test]
    fn a_place_is_where_most_can_be_limited() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("a");
        fs::create_dir(&own).unwrap();
        let hierarchy = Hierarchy { own: own.clone(), ..second(top.path(), "cpu memory pids") };
        for (controllers, parent) in [("memory pids", top.path()), ("cpu memory pids io", &own)] {
            fs::write(own.join("cgroup.controllers"), controllers).unwrap();
            assert_eq!(hierarchy.place().unwrap(), parent.join(GROUPS));
        }
    }

    #[test]
    fn without_controllers_there_is_no_place() {
        let top = tempfile::tempdir().unwrap();
        let error = second(top.path(), "hugetlb").place().unwrap_err();
        assert!(error.to_string().starts_with("no controllers"), "{error}");
        assert!(!top.path().join(GROUPS).exists());
    }
}
