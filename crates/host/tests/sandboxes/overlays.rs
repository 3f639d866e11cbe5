//! Overlays. Root mounts them in its own namespaces, an ordinary user in those of a holder.
//!
//! [`Mounted`] has the layers of one overlay, and mounts it in the namespaces of the holder of its `Fixture`
//! (`guest.rs`). The layers are empty at first.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use libtest_mimic::Trial;
use rustix::fs::{Mode, OFlags, XattrFlags, mkdirat, openat};
use rustix::io::Errno;
use workspace_host::NamespaceHolder;
use workspace_host::disk_usage::measure;
use workspace_host::open_as_holder::HolderFiles;
use workspace_host::overlay::{self, Overlay, Upper, Xattrs};
use workspace_test_support::{skip, wait_until};

use crate::guest::Fixture;

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        only_the_upper_directory_changes,
        overlays_of_many_layers_are_mounted,
        too_many_layers_are_rejected,
        long_and_unusual_paths_work,
        a_mount_point_is_used_once,
        of_two_concurrent_mounts_one_succeeds,
        mounts_are_listed_and_unmounted,
        an_abandoned_overlay_is_unmounted_at_once,
        a_failed_mount_is_explained,
        readers_see_no_gap_during_a_replacement,
        replacing_nothing_mounts,
        processes_keep_the_replaced_overlay,
        a_mount_outlives_its_server,
        after_a_kill_at_any_time_the_next_server_can_mount,
        the_probe_finds_overlays_and_leaves_nothing,
        the_probe_names_missing_features_of_a_filesystem,
        the_root_of_an_overlay_is_opened_in_any_namespace,
        unreadable_files_are_opened,
        unreadable_directories_are_measured,
        opening_neither_follows_symlinks_nor_blocks,
        unreadable_trees_are_removed,
        deep_trees_are_removed,
        mounts_and_symlink_targets_are_not_removed,
        a_command_runs_in_the_namespaces_and_outlives_its_parent,
        forged_attributes_are_data,
    ]
}

const SELF_EXEC_ARG: &str = "overlays";

/// Runs a task that is to be killed, if this process was started for that.
pub(crate) fn run() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [word, task, home] = words.as_slice() else { return None };
    if word != SELF_EXEC_ARG {
        return None;
    }
    let home = Path::new(home);
    if task == "forge" {
        forge(home);
        return Some(ExitCode::SUCCESS);
    }
    let holder = NamespaceHolder::find_or_start(home).unwrap();
    let layers = Layers::of(home);
    match task.as_str() {
        "mount" => overlay::mount(&holder, &layers.overlay()).unwrap(),
        "over and over" => loop {
            overlay::replace(&holder, &layers.overlay()).unwrap();
            overlay::probe(&holder, home).unwrap();
            overlay::unmount(&holder, &layers.at).unwrap();
        },
        "remove" => overlay::remove_tree(&holder, &home.join("large")).unwrap(),
        _ => {
            let script = "sleep 0.2; echo outlived > $0/outlived";
            let mut command = overlay::command(&holder, OsStr::new("sh"));
            // The process outlives this one, so it is not waited for.
            drop(command.args(["-c", script]).arg(home).spawn().unwrap());
        }
    }
    Some(ExitCode::SUCCESS)
}

/// Starts a process that runs a task of [`run`] for a home.
fn start(task: &str, home: &Fixture) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([SELF_EXEC_ARG, task]).arg(home.path("")).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Directories of one overlay.
pub(crate) struct Layers {
    /// Lower directories, uppermost first.
    pub(crate) lower: Vec<PathBuf>,
    /// Upper directory, with the changes.
    pub(crate) upper: PathBuf,
    work: PathBuf,
    /// Mount point.
    pub(crate) at: PathBuf,
}

impl Layers {
    /// Returns the paths in a directory, with one lower layer. Creates nothing.
    fn of(directory: &Path) -> Self {
        let path = |name: &str| directory.join(name);
        Self { lower: vec![path("lower")], upper: path("upper"), work: path("work"), at: path("at") }
    }

    /// Creates empty layers in a directory.
    fn make(directory: &Path) -> Self {
        let layers = Self::of(directory);
        for path in layers.lower.iter().chain([&layers.upper, &layers.work, &layers.at]) {
            fs::create_dir_all(path).unwrap();
        }
        layers
    }

    /// Returns the parameters of the overlay of these layers, without an id mapping.
    pub(crate) fn overlay(&self) -> Overlay<'_> {
        Overlay {
            lower: &self.lower,
            upper: Some(Upper { directory: &self.upper, work: &self.work }),
            mount_point: &self.at,
            idmap_uid: None,
        }
    }

    /// Creates the directory `path`, and adds it as a layer below all others. Returns it.
    pub(crate) fn add(&mut self, path: PathBuf) -> &Path {
        fs::create_dir_all(&path).unwrap();
        self.lower.push(path);
        self.lower.last().unwrap()
    }
}

/// Fixture with layers, whose overlay is unmounted at the end.
pub(crate) struct Mounted {
    /// Directories of the server, and the holder in whose namespaces the overlay is mounted.
    pub(crate) home: Fixture,
    /// Layers of the overlay.
    pub(crate) layers: Layers,
}

impl Mounted {
    /// Creates empty layers in a new fixture. Nothing is mounted yet.
    pub(crate) fn new() -> Self {
        let home = Fixture::new();
        let layers = Layers::make(&home.path(""));
        Self { home, layers }
    }

    /// Returns the uppermost lower directory.
    fn lower(&self) -> &Path {
        &self.layers.lower[0]
    }

    /// Mounts the overlay of the layers at [`Layers::at`].
    #[track_caller]
    pub(crate) fn mount(&self) {
        overlay::mount(&self.home.holder, &self.layers.overlay()).unwrap();
    }

    /// Unmounts the overlay. Returns false if none is mounted.
    pub(crate) fn unmount(&self) -> bool {
        overlay::unmount(&self.home.holder, &self.layers.at).unwrap()
    }

    /// Runs a shell script in the mount point of the overlay (also `$1`), in the namespaces of the holder. Returns its
    /// output and errors.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> String {
        let mut command = overlay::command(&self.home.holder, OsStr::new("sh"));
        command.args(["-c", &format!("exec 2>&1; cd \"$1\" && {{ {script}\n}}"), "sh"]).arg(&self.layers.at);
        let output = command.stderr(Stdio::inherit()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = overlay::unmount(&self.home.holder, &self.layers.at);
        let _ = overlay::remove_tree(&self.home.holder, &self.layers.work);
    }
}

fn only_the_upper_directory_changes() {
    let mounted = Mounted::new();
    for name in ["stays", "goes", "changes", "d/x"] {
        let path = mounted.lower().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "old").unwrap();
    }
    mounted.mount();
    let said = mounted.sh("rm goes; echo new > changes; rm -r d; mkdir d; ls; cat stays changes; ls d");
    assert_eq!(said, "changes\nd\nstays\noldnew\n");
    let upper = &mounted.layers.upper;
    let whiteout = fs::symlink_metadata(upper.join("goes")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    assert_eq!(fs::read_to_string(upper.join("changes")).unwrap(), "new\n");
    assert!(!upper.join("stays").exists());
    assert_eq!(fs::read_to_string(mounted.lower().join("changes")).unwrap(), "old");
    let xattrs = overlay::xattrs(&mounted.home.holder);
    assert_eq!(xattrs == Xattrs::Trusted, rustix::process::geteuid().is_root());
    assert_eq!(attribute(&upper.join("d"), &format!("{}opaque", xattrs.prefix())).as_deref(), Some("y"));
    let options = mounted.sh("grep \" $1 \" /proc/self/mountinfo");
    assert!(options.contains("nosuid,nodev") && !options.contains("shared:"), "{options}");
}

/// Returns an extended attribute of a file, of a symlink itself; `None` if it cannot be read.
pub(crate) fn attribute(path: &Path, name: &str) -> Option<String> {
    let mut value = [0; 1024];
    let length = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

/// Returns whether the kernel takes layers one by one and can mount beneath another mount.
fn is_new_kernel() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let new = (numbers.next(), numbers.next()) >= (Some(6), Some(7));
    if !new {
        skip(format_args!("a part of it: Linux {release} is older than 6.7"));
    }
    new
}

fn overlays_of_many_layers_are_mounted() {
    let counts = if is_new_kernel() { &[1, 10, 64, 300][..] } else { &[1, 10, 64, 150] };
    for &count in counts {
        let mut mounted = Mounted::new();
        for number in 1..count {
            let layer = mounted.layers.add(mounted.home.path(&format!("layer{number}")));
            fs::write(layer.join(number.to_string()), "").unwrap();
            fs::write(layer.join("all"), number.to_string()).unwrap();
        }
        mounted.mount();
        let said = mounted.sh("ls | wc -l; test ! -e all || cat all");
        let expected = if count == 1 { "0\n".to_owned() } else { format!("{count}\n1") };
        assert_eq!(said, expected);
    }
}

fn too_many_layers_are_rejected() {
    let mut mounted = Mounted::new();
    mounted.layers.lower = vec![mounted.home.path("lower"); overlay::LAYERS_MAX + 1];
    let error = overlay::mount(&mounted.home.holder, &mounted.layers.overlay()).unwrap_err();
    assert!(error.to_string().contains("501 layers are too many; the kernel supports 500"), "{error}");
    mounted.layers.lower.clear();
    let error = overlay::mount(&mounted.home.holder, &mounted.layers.overlay()).unwrap_err();
    assert!(error.to_string().contains("no lower layer"), "{error}");
}

fn long_and_unusual_paths_work() {
    let long = ["x".repeat(200), "y".repeat(200), "z".repeat(200)].join("/");
    for name in [long.as_str(), "a b", "a:b", "a,b", r"a\b", r"a\:b,c=d  ", "ä\n\t'\"", "upperdir=x"] {
        let mut mounted = Mounted::new();
        let directory = mounted.home.path(name);
        mounted.layers = Layers::make(&directory);
        mounted.layers.add(directory.join("other"));
        fs::write(mounted.lower().join("x"), "seen").unwrap();
        mounted.mount();
        assert_eq!(mounted.sh("cat x; echo y > y"), "seen", "{name}");
        assert_eq!(fs::read_to_string(mounted.layers.upper.join("y")).unwrap(), "y\n");
        let found = overlay::mounted(&mounted.home.holder, &mounted.home.path("")).unwrap();
        assert_eq!(found, [mounted.layers.at.canonicalize().unwrap()]);
        assert!(mounted.unmount());
    }
}

fn a_mount_point_is_used_once() {
    let mounted = Mounted::new();
    mounted.mount();
    let error = overlay::mount(&mounted.home.holder, &mounted.layers.overlay()).unwrap_err();
    assert_eq!(error.os_error(), Some(Errno::BUSY.raw_os_error()), "{error}");
    assert!(error.to_string().contains("already a mount point"), "{error}");
}

fn of_two_concurrent_mounts_one_succeeds() {
    let mounted = Mounted::new();
    for _ in 0..10 {
        let mount = || overlay::mount(&mounted.home.holder, &mounted.layers.overlay()).is_ok();
        let done: Vec<bool> = std::thread::scope(|scope| {
            let both = [scope.spawn(mount), scope.spawn(mount)];
            both.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(done.iter().filter(|done| **done).count(), 1);
        assert!(mounted.unmount());
    }
}

fn mounts_are_listed_and_unmounted() {
    let mounted = Mounted::new();
    let holder = &mounted.home.holder;
    let found = || overlay::mounted(holder, &mounted.home.path("")).unwrap();
    assert!(found().is_empty());
    assert!(!mounted.unmount());
    mounted.mount();
    assert_eq!(found(), std::slice::from_ref(&mounted.layers.at));
    // Neither itself nor its neighbours.
    assert!(overlay::mounted(holder, &mounted.layers.at).unwrap().is_empty());
    assert!(overlay::mounted(holder, &mounted.home.path("none")).unwrap().is_empty());
    mounted.sh("mount -t tmpfs none . && mount -t tmpfs none $1");
    assert_eq!(found(), std::slice::from_ref(&mounted.layers.at));
    assert!(mounted.unmount());
    assert!(found().is_empty());
    assert!(!mounted.unmount());
    assert!(!overlay::unmount(holder, &mounted.home.path("none")).unwrap());
}

fn an_abandoned_overlay_is_unmounted_at_once() {
    let mounted = Mounted::new();
    let holder = &mounted.home.holder;
    let abandon = || overlay::abandon(holder, &mounted.layers.at).unwrap();
    assert!(!abandon());
    mounted.mount();
    mounted.sh("echo y > y; mount -t tmpfs none .");
    assert!(abandon());
    assert!(overlay::mounted(holder, &mounted.home.path("")).unwrap().is_empty());
    assert_eq!(fs::read_to_string(mounted.layers.upper.join("y")).unwrap(), "y\n");
    overlay::remove_tree(holder, &mounted.layers.upper).unwrap();
    assert!(!abandon());
    assert!(!overlay::abandon(holder, &mounted.home.path("none")).unwrap());
}

fn a_failed_mount_is_explained() {
    let mut mounted = Mounted::new();
    let refused = |mounted: &Mounted| {
        overlay::mount(&mounted.home.holder, &mounted.layers.overlay()).unwrap_err().to_string()
    };
    mounted.layers.lower.push(mounted.home.path("none"));
    let error = refused(&mounted);
    let explained = error.contains("none is not an accessible directory");
    assert!(explained || !is_new_kernel() && error.contains("none: No such file"), "{error}");
    mounted.layers.lower.pop();
    mounted.layers.work = PathBuf::from("/dev/shm");
    let error = refused(&mounted);
    assert!(error.contains("upper and work directory are on different filesystems"), "{error}");
    mounted.layers = Layers::of(&mounted.home.path(""));
    mounted.layers.at = mounted.home.path("none");
    let error = overlay::mount(&mounted.home.holder, &mounted.layers.overlay()).unwrap_err();
    assert_eq!(error.os_error(), Some(Errno::NOENT.raw_os_error()), "{error}");
}

/// Returns two sets of layers for one mount point, whose files say which it is.
fn two_for_one_mount_point(mounted: &Mounted) -> [Layers; 2] {
    ["one", "two"].map(|name| {
        let directory = mounted.home.path(name);
        let mut layers = Layers::make(&directory);
        layers.at.clone_from(&mounted.layers.at);
        fs::create_dir(directory.join("lower/d")).unwrap();
        fs::write(directory.join("lower/d/file"), format!("{name}\n")).unwrap();
        layers
    })
}

fn readers_see_no_gap_during_a_replacement() {
    let mounted = Mounted::new();
    let both = two_for_one_mount_point(&mounted);
    let holder = &mounted.home.holder;
    overlay::mount(holder, &both[0].overlay()).unwrap();
    let script = "n=0; while ! test -e $2/stop; do n=$((n+1)); read word < $1/d/file || echo missing; \
                  case $word in one|two) ;; *) echo \"$word\";; esac; done; echo read";
    let mut command = overlay::command(holder, OsStr::new("sh"));
    command.args(["-c", script, "sh"]).args([&mounted.layers.at, &mounted.home.path("")]);
    let reader = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    for number in 1..200 {
        overlay::replace(holder, &both[number % 2].overlay()).unwrap();
    }
    fs::write(mounted.home.path("stop"), "").unwrap();
    let output = reader.wait_with_output().unwrap();
    if is_new_kernel() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.is_empty(), "{}", said.lines().next().unwrap_or_default());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "read\n");
    }
    assert_eq!(mounted.sh("cat d/file; grep -c \" $1 \" /proc/self/mountinfo"), "two\n1\n");
}

fn replacing_nothing_mounts() {
    let mounted = Mounted::new();
    let [one, two] = two_for_one_mount_point(&mounted);
    overlay::replace(&mounted.home.holder, &one.overlay()).unwrap();
    assert_eq!(mounted.sh("cat d/file"), "one\n");
    overlay::replace(&mounted.home.holder, &two.overlay()).unwrap();
    assert_eq!(mounted.sh("cat d/file"), "two\n");
    let missing = Overlay {
        upper: Some(Upper { directory: &mounted.home.path("none"), work: &one.work }),
        ..one.overlay()
    };
    assert!(overlay::replace(&mounted.home.holder, &missing).is_err());
    assert_eq!(mounted.sh("cat d/file"), "two\n", "a failed mount replaces nothing");
}

fn processes_keep_the_replaced_overlay() {
    let mounted = Mounted::new();
    let [one, two] = two_for_one_mount_point(&mounted);
    let holder = &mounted.home.holder;
    overlay::mount(holder, &one.overlay()).unwrap();
    let mut command = overlay::command(holder, OsStr::new("sh"));
    let script = "cd $1; echo inside > $2/inside; until test -e $2/replaced; do sleep 0.01; done; \
                  cat d/file $1/d/file; echo kept > kept";
    command.args(["-c", script, "sh"]).args([&mounted.layers.at, &mounted.home.path("")]);
    let inside = command.stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the process is inside", || mounted.home.path("inside").exists());
    overlay::replace(holder, &two.overlay()).unwrap();
    fs::write(mounted.home.path("replaced"), "").unwrap();
    let output = inside.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n");
    assert!(one.upper.join("kept").exists());
}

fn a_mount_outlives_its_server() {
    let mounted = Mounted::new();
    fs::write(mounted.lower().join("x"), "still there").unwrap();
    assert!(start("mount", &mounted.home).wait().unwrap().success());
    assert_eq!(mounted.sh("cat x"), "still there");
    assert!(mounted.unmount());
}

fn after_a_kill_at_any_time_the_next_server_can_mount() {
    let mounted = Mounted::new();
    for round in 0..15 {
        let mut server = start("over and over", &mounted.home);
        std::thread::sleep(Duration::from_millis(20 + 7 * round));
        server.kill().unwrap();
        server.wait().unwrap();
        overlay::probe(&mounted.home.holder, &mounted.home.path("")).unwrap();
        mounted.unmount();
        mounted.mount();
        assert_eq!(mounted.sh("ls"), "");
    }
    assert!(mounted.unmount());
    assert!(overlay::mounted(&mounted.home.holder, &mounted.home.path("")).unwrap().is_empty());
    assert!(!mounted.home.path("overlay-probe").exists());
    for directory in 0..50 {
        let directory = mounted.home.path(&format!("large/{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..50 {
            fs::write(directory.join(file.to_string()), "").unwrap();
        }
    }
    let mut server = start("remove", &mounted.home);
    std::thread::sleep(Duration::from_millis(10));
    server.kill().unwrap();
    server.wait().unwrap();
    overlay::remove_tree(&mounted.home.holder, &mounted.home.path("large")).unwrap();
    assert!(!mounted.home.path("large").exists());
}

fn the_probe_finds_overlays_and_leaves_nothing() {
    let home = Fixture::new();
    let names = || fs::read_dir(home.path("")).unwrap().count();
    let before = names();
    let probe = || overlay::probe(&home.holder, &home.path("")).unwrap();
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(probe))));
    assert_eq!(names(), before);
    assert!(overlay::mounted(&home.holder, &home.path("")).unwrap().is_empty());
    let error = overlay::probe(&home.holder, &home.path("none")).unwrap_err().to_string();
    assert!(error.contains("none cannot be a layer of an overlay: cannot create"), "{error}");
}

fn the_probe_names_missing_features_of_a_filesystem() {
    let mounted = Mounted::new();
    mounted.mount();
    let refused = || overlay::probe(&mounted.home.holder, &mounted.layers.at).unwrap_err().to_string();
    let error = refused();
    assert!(error.contains("is on another overlay"), "{error}");
    assert_eq!(mounted.sh("ls"), "", "the probe leaves nothing");
    mounted.unmount();
    assert_eq!(mounted.sh("mount -t ramfs none \"$1\""), "");
    let error = refused();
    assert!(error.contains("is on ramfs"), "{error}");
}

/// Reads a file below an open directory, in this process.
fn read_below(directory: &impl AsFd, name: &str) -> Result<String, Errno> {
    let file = openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(std::io::read_to_string(fs::File::from(file)).unwrap())
}

fn the_root_of_an_overlay_is_opened_in_any_namespace() {
    let mounted = Mounted::new();
    let (holder, at) = (&mounted.home.holder, &mounted.layers.at);
    let error = overlay::open_root(holder, at).unwrap_err();
    assert!(error.to_string().contains("nothing is mounted at"), "{error}");
    fs::write(mounted.lower().join("lower"), "below").unwrap();
    mounted.mount();
    mounted.sh("echo above > upper; chmod 0 .");
    let root = overlay::open_root(holder, at).unwrap();
    assert!(rustix::io::fcntl_getfd(&root).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    mounted.sh("chmod 755 .");
    assert!(mounted.unmount());
    // The descriptor keeps the overlay.
    for (name, content) in [("lower", "below"), ("upper", "above\n")] {
        assert_eq!(read_below(&root, name).unwrap(), content);
    }
    let error = overlay::open_root(holder, &mounted.home.path("none")).unwrap_err();
    assert_eq!(error.os_error(), Some(Errno::NOENT.raw_os_error()), "{error}");
    let link = mounted.home.path("link");
    symlink(mounted.home.path(""), &link).unwrap();
    overlay::open_root(holder, &link).unwrap_err();
}

fn unreadable_files_are_opened() {
    let home = Fixture::new();
    let files = HolderFiles::of(&home.holder);
    let closed = home.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("file"), "secret").unwrap();
    for path in [closed.join("file"), closed.clone()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let directory = fs::File::open(home.path("")).unwrap();
    let open = |directory: &fs::File, name: &str, flags| {
        let name = CString::new(name).unwrap();
        files.open(directory.as_fd(), &name, flags).map(fs::File::from)
    };
    let closed = open(&directory, "closed", OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
    let file = open(&closed, "file", OFlags::RDONLY).unwrap();
    assert_eq!(std::io::read_to_string(file).unwrap(), "secret");
    let error = open(&closed, "none", OFlags::RDONLY).unwrap_err();
    assert_eq!(error.os_error(), Some(Errno::NOENT.raw_os_error()), "{error}");
    assert!(rustix::io::fcntl_getfd(&closed).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
}

fn unreadable_directories_are_measured() {
    let home = Fixture::new();
    let closed = home.path("closed");
    fs::create_dir_all(closed.join("inner")).unwrap();
    fs::write(closed.join("inner/file"), vec![1; 1 << 20]).unwrap();
    let open = measure(&home.holder, &home.path(""));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(measure(&home.holder, &home.path("")), open);
    // It can be listed but not entered.
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o400)).unwrap();
    assert_eq!(measure(&home.holder, &home.path("")), open);
    assert!(open.bytes >= 1 << 20, "{open:?}");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
}

fn opening_neither_follows_symlinks_nor_blocks() {
    let home = Fixture::new();
    let files = HolderFiles::of(&home.holder);
    symlink("/etc/passwd", home.path("link")).unwrap();
    let pipe = Command::new("mkfifo").arg(home.path("pipe")).status().unwrap();
    assert!(pipe.success());
    let directory = fs::File::open(home.path("")).unwrap();
    let open = |name: &str, flags| {
        let name = CString::new(name).unwrap();
        files.open(directory.as_fd(), &name, flags).map_err(|error| error.os_error())
    };
    let number = |errno: Errno| Some(Some(errno.raw_os_error()));
    assert_eq!(open("link", OFlags::RDONLY).err(), number(Errno::LOOP));
    assert_eq!(open("..", OFlags::RDONLY).err(), number(Errno::INVAL));
    assert_eq!(open("output/../log", OFlags::RDONLY).err(), number(Errno::INVAL));
    assert_eq!(open("new", OFlags::WRONLY | OFlags::CREATE).err(), number(Errno::INVAL));
    assert!(!home.path("new").exists());
    assert!(open("pipe", OFlags::RDONLY).is_ok());
}

fn unreadable_trees_are_removed() {
    let mounted = Mounted::new();
    fs::write(mounted.lower().join("x"), "").unwrap();
    mounted.mount();
    mounted.sh(
        "rm x; mkdir -p a/b/c; touch a/b/c/file; ln -s /etc a/link; mkfifo a/pipe; chmod 000 a/b/c a/b a",
    );
    assert!(mounted.unmount());
    for path in
        [&mounted.layers.upper, &mounted.layers.work, &mounted.layers.at, &mounted.home.path("none/x")]
    {
        overlay::remove_tree(&mounted.home.holder, path).unwrap();
        assert!(fs::symlink_metadata(path).is_err(), "{}", path.display());
    }
    assert!(Path::new("/etc").exists());
    symlink(mounted.lower(), &mounted.layers.upper).unwrap();
    overlay::remove_tree(&mounted.home.holder, &mounted.layers.upper).unwrap();
    assert!(mounted.lower().exists(), "a link goes, and not what it leads to");
}

fn deep_trees_are_removed() {
    let home = Fixture::new();
    for name in ["deep/workspace-removal-1/x", "deep/workspace-removal-3"] {
        fs::create_dir_all(home.path(name)).unwrap();
    }
    fs::write(home.path("deep/workspace-removal-2"), "").unwrap();
    let mut directory = fs::File::open(home.path("deep")).unwrap();
    for _ in 0..3000 {
        mkdirat(&directory, "d", Mode::RWXU).unwrap();
        directory = openat(&directory, "d", OFlags::DIRECTORY, Mode::empty()).unwrap().into();
    }
    overlay::remove_tree(&home.holder, &home.path("deep")).unwrap();
    assert!(!home.path("deep").exists());
}

fn mounts_and_symlink_targets_are_not_removed() {
    let mounted = Mounted::new();
    fs::write(mounted.lower().join("x"), "kept").unwrap();
    fs::create_dir(mounted.home.path("tree")).unwrap();
    let tree = Layers { at: mounted.home.path("tree/at"), ..Layers::of(&mounted.home.path("")) };
    fs::create_dir(&tree.at).unwrap();
    overlay::mount(&mounted.home.holder, &tree.overlay()).unwrap();
    for path in [mounted.home.path("tree"), tree.at.clone()] {
        let error = overlay::remove_tree(&mounted.home.holder, &path).unwrap_err();
        assert_eq!(error.os_error(), Some(Errno::BUSY.raw_os_error()), "{error}");
    }
    assert!(overlay::unmount(&mounted.home.holder, &tree.at).unwrap());
    assert!(mounted.lower().join("x").exists() && !mounted.layers.upper.join("x").exists());
}

fn a_command_runs_in_the_namespaces_and_outlives_its_parent() {
    let mounted = Mounted::new();
    assert!(start("outlive", &mounted.home).wait().unwrap().success());
    wait_until("it outlives its parent", || mounted.home.path("outlived").exists());
    fs::write(mounted.lower().join("x"), "").unwrap();
    mounted.mount();
    assert_eq!(mounted.sh("ls; id -u"), "x\n0\n");
    let status = overlay::command(&mounted.home.holder, OsStr::new("false")).status().unwrap();
    assert_eq!(status.code(), Some(1));
    if let NamespaceHolder::Process(process) = &mounted.home.holder {
        mounted.home.holder.kill();
        wait_until("the holder ends", || !process.is_running());
        let output = overlay::command(&mounted.home.holder, OsStr::new("true")).output().unwrap();
        assert!(!output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "the namespace holder has exited\n");
    }
}

/// An attribute that is set through the mount never becomes metadata of the overlay: it is rejected, or
/// stored under an escaped name.
fn forged_attributes_are_data() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.lower().join("d")).unwrap();
    fs::write(mounted.lower().join("d/seen"), "").unwrap();
    mounted.mount();
    let own = overlay::xattrs(&mounted.home.holder).prefix();
    mounted.sh("mkdir n; touch f");
    let mut command = overlay::command(&mounted.home.holder, std::env::current_exe().unwrap().as_os_str());
    let output = command.args([SELF_EXEC_ARG, "forge"]).arg(&mounted.layers.at).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let mut stored = String::new();
    // Files without an attribute may not be in the upper directory.
    for path in ["f", "n", "d"].into_iter().filter(|path| mounted.layers.upper.join(path).exists()) {
        for name in attributes(&mounted.layers.upper.join(path)) {
            stored += &format!("{path} {name}\n");
        }
    }
    // Since Linux 6.7 names of overlay metadata are stored escaped; before, they are rejected.
    let set = |name: &str| said.contains(&format!("{own}{name} set true"));
    let kept = |name: &str| stored.contains(&format!("{own}overlay.{name}\n"));
    for name in ["opaque", "redirect", "metacopy", "whiteout", "overlay.opaque"] {
        assert_eq!(set(name), kept(name), "{name}\n{said}\n{stored}");
    }
    let own_notes = ["origin", "impure", "uuid", "nlink"].map(|name| format!("{own}{name}"));
    // With redirects the kernel makes every new directory opaque.
    let opaque = attribute(&mounted.layers.upper.join("n"), &format!("{own}opaque"));
    assert_ne!(opaque.as_deref(), Some("x"));
    for line in stored.lines().filter(|line| *line != format!("n {own}opaque")) {
        let name = line.split_once(' ').unwrap().1;
        let ours = name.starts_with(own) && !name.starts_with(&format!("{own}overlay."));
        assert!(!ours || own_notes.iter().any(|note| note == name), "{line}");
    }
    assert_eq!(mounted.sh("ls d; cat f; ls n"), "seen\n");
    assert!(mounted.unmount());
    mounted.mount();
    assert_eq!(mounted.sh("ls d; cat f; ls n"), "seen\n", "attributes have no effect after a remount either");
}

/// Sets attributes with names of overlay metadata, and prints the outcome of each.
fn forge(at: &Path) {
    let forged = [
        ("f", "whiteout", "y"),
        ("n", "whiteouts", "y"),
        ("d", "opaque", "y"),
        ("n", "opaque", "x"),
        ("d", "redirect", "/n"),
        ("f", "metacopy", ""),
        ("f", "overlay.opaque", "y"),
    ];
    for (path, name, value) in forged {
        for prefix in ["user.overlay.", "trusted.overlay."] {
            let (path, name) = (at.join(path), format!("{prefix}{name}"));
            let set = rustix::fs::setxattr(&path, name.as_str(), value.as_bytes(), XattrFlags::empty());
            match set {
                Ok(()) => println!("{name} set {}", attribute(&path, &name).as_deref() == Some(value)),
                Err(errno) => println!("{name} {errno:?}"),
            }
        }
    }
}

/// Returns the names of the extended attributes of a file that this process may see.
pub(crate) fn attributes(path: &Path) -> Vec<String> {
    let mut names = [0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}
