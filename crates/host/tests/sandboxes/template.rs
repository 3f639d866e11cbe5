//! Sandboxes with a root filesystem from a directory, the template.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox, and `Sandbox::sh` runs a shell command in it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Trial;
use workspace_host::launch::Template;

use crate::guest::{Fixture, Sandbox};

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        a_directory_becomes_the_root,
        a_template_is_not_modified,
        a_sandbox_over_a_template_has_its_workspace_its_user_and_protected_mounts,
        a_user_of_the_template_is_kept,
        symlinks_of_the_template_redirect_nothing,
        a_missing_template_is_reported,
    ]
}

/// Creates the directory `template` in a home: a root filesystem with busybox, the libraries of this program, which is
/// the guest, and a few files that the tests read. Returns its path.
pub(crate) fn template(home: &Fixture) -> PathBuf {
    let root = home.path("template");
    for name in ["bin", "etc", "usr/lib", "srv"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let busybox = Command::new("sh").args(["-c", "command -v busybox"]).output().unwrap();
    let busybox = String::from_utf8(busybox.stdout).unwrap();
    fs::copy(busybox.trim(), root.join("bin/busybox")).unwrap();
    for name in
        ["sh", "cat", "ls", "id", "touch", "mount", "umount", "find", "echo", "hostname", "whoami", "grep"]
    {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    for library in libraries_of(&std::env::current_exe().unwrap()) {
        let to = root.join(library.strip_prefix("/").unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&library, to).unwrap();
    }
    fs::write(root.join("srv/greeting"), "hello\n").unwrap();
    fs::write(root.join("etc/hosts"), "10.0.0.1 elsewhere\n").unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh").unwrap();
    open(&root);
    root
}

/// Returns the shared libraries that a program loads.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.split_ascii_whitespace().filter(|word| word.starts_with('/'));
    words.map(PathBuf::from).collect()
}

/// Lets all users list the directory of the root filesystem and open what is in it.
fn open(root: &Path) {
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Launches a sandbox whose root filesystem is the directory `root`.
fn over<'a>(home: &'a Fixture, root: &Path) -> Sandbox<'a> {
    home.launch(|launch| launch.template = Template::Directory(root.to_owned()))
}

fn a_directory_becomes_the_root() {
    let home = Fixture::new();
    let sandbox = over(&home, &template(&home));
    assert_eq!(sandbox.sh("cat /srv/greeting"), "hello\n");
    assert_eq!(
        sandbox.sh("ls /bin/perl /usr/bin /usr/share"),
        "ls: /bin/perl: No such file or directory\nls: /usr/bin: No such file or directory\nls: /usr/share: No such file or directory\n"
    );
    assert_eq!(sandbox.sh("id -u; whoami; hostname"), format!("1000\nsandbox\n{}\n", home.id()));
}

fn a_template_is_not_modified() {
    let home = Fixture::new();
    let root = template(&home);
    // The directory above may be private.
    fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o700)).unwrap();
    let sandbox = over(&home, &root);
    // The sandbox has its mounts when it runs the first command.
    let (_, before) = (sandbox.sh("true"), listing(&root));
    for path in ["/x", "/etc/x", "/srv/greeting", "/srv/x", "/bin/sh", "/usr/x", "/workspace/../y"] {
        assert!(sandbox.sh(&format!("echo x > {path}")).contains("Read-only"), "{path}");
    }
    assert_eq!(
        sandbox.sh("for d in /tmp /home/sandbox /dev/shm /var/tmp; do touch $d/x || echo $d; done"),
        ""
    );
    assert_eq!(listing(&root), before);
    assert!(!before.contains("workspace"), "{before}");
}

/// Returns path, kind, mode, size and time of each file in a directory.
fn listing(root: &Path) -> String {
    let output = Command::new("find").arg(root).args(["-printf", "%P %y %m %s %T@\n"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn a_sandbox_over_a_template_has_its_workspace_its_user_and_protected_mounts() {
    let home = Fixture::new();
    let sandbox = over(&home, &template(&home));
    fs::write(home.path("workspace/file"), "mine\n").unwrap();
    assert_eq!(sandbox.sh("cat /workspace/file"), "mine\n");
    assert_eq!(sandbox.sh("cat /etc/hosts | grep -c elsewhere; ls /run"), "0\n");
    assert_eq!(
        sandbox.sh("cat /etc/passwd"),
        "root:x:0:0::/:/bin/sh\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n"
    );
    assert_eq!(
        sandbox.sh(
            "cat /proc/kcore /proc/keys /proc/timer_list 2>/dev/null; ls /sys/firmware; echo x >/dev/null"
        ),
        ""
    );
    assert!(sandbox.sh("echo 1 > /proc/sysrq-trigger").contains("can't create"));
    for line in sandbox.sh("cat /proc/self/mounts").lines() {
        let is_device = line.contains(" /dev/") || line.contains(" /proc/");
        assert!(line.contains("nosuid") && (line.contains("nodev") || is_device), "{line}");
    }
}

fn a_user_of_the_template_is_kept() {
    let home = Fixture::new();
    let root = template(&home);
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n")
        .unwrap();
    assert_eq!(over(&home, &root).sh("whoami"), "node\n");
}

fn symlinks_of_the_template_redirect_nothing() {
    let home = Fixture::new();
    let root = template(&home);
    let outside = home.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(outside.join("passwd"), "spy:x:1000:1000:::\n").unwrap();
    fs::remove_dir_all(root.join("etc")).unwrap();
    for name in ["etc", "dev", "proc", "sys", "tmp", "run", "workspace", "home", "var"] {
        symlink(&outside, root.join(name)).unwrap();
    }
    let sandbox = over(&home, &root);
    assert_eq!(sandbox.sh("whoami; ls -d /proc/self /dev/null"), "sandbox\n/dev/null\n/proc/self\n");
    let there: Vec<_> = fs::read_dir(&outside).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(there, ["passwd"]);
}

fn a_missing_template_is_reported() {
    let home = Fixture::new();
    let path = home.path("nothing");
    let error = home.try_launch(|launch| launch.template = Template::Directory(path)).unwrap_err();
    assert!(error.to_string().contains("nothing: No such file"), "{error}");
    assert!(!home.guest_ran());
}
