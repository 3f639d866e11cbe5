//! Workspaces that the NFS server of the kernel exports, with a program in place of `exportfs` that records what the
//! kernel would export. The server has a mount namespace of its own, in which `/etc` and `/proc/fs/nfsd` are other
//! directories.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use workspace_test_support::{runs_as_root, skip};

use super::test_server::{TestServer, server_program, wait_until};
use crate::support::KEY;

/// Line of another program in the file of exports.
const FOREIGN: &str = "/srv/other *(ro) # not of the server";

/// Directory in which the control files of the kernel's server are mounted.
const NFSD: &str = "/proc/fs/nfsd";

/// Script that replaces the directories, and starts the program in its arguments. `$0` is the directory of the test.
const MOUNTS: &str = r#"set -e
mount -t tmpfs none "$0/mounts"
mkdir "$0/mounts/upper" "$0/mounts/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$0/mounts/upper,workdir=$0/mounts/work" none /etc
mkdir -p /etc/exports.d
mount --bind "$0/exports.d" /etc/exports.d
mount --bind "$0/nfsd" /proc/fs/nfsd
exec "$@"
"#;

/// Returns false, and records that the test is skipped, if this process cannot replace the directories.
#[track_caller]
fn can_run() -> bool {
    if !runs_as_root("manages the kernel's NFS server") {
        return false;
    }
    let has_directory = Path::new(NFSD).is_dir();
    if !has_directory {
        skip("needs a kernel with the directory /proc/fs/nfsd");
    }
    has_directory
}

/// Directories of a machine with an NFS server.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["mounts", "exports.d", "nfsd", "bin"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let this = Self(directory);
        fs::write(this.path("nfsd/threads"), "8\n").unwrap();
        fs::write(this.path("exports.d/workspace.exports"), FOREIGN).unwrap();
        let script = format!(
            "#!/bin/sh\n[ \"$*\" = -ra ] || exit 2\ncp /etc/exports.d/workspace.exports '{0}.new'\nmv '{0}.new' '{0}'\n",
            this.path("exported").display()
        );
        let program = this.path("bin/exportfs");
        fs::write(&program, script).unwrap();
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        this
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// Returns a command that starts a program with the directories of this machine.
    fn launcher(&self) -> Vec<String> {
        let directory = self.0.path().display().to_string();
        ["unshare", "-m", "--propagation", "private", "sh", "-c", MOUNTS, &directory]
            .map(str::to_owned)
            .to_vec()
    }

    fn server(&self) -> TestServer {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        let variables = [
            ("NFS_MODE", "system"),
            ("NFS_ALLOWED_IPS", "10.0.0.0/8,192.0.2.7"),
            ("NFS_ADVERTISE", "nfs.example.org"),
            ("PATH", &path),
        ];
        TestServer::launched_by(self.launcher(), &variables)
    }

    /// Returns the lines of the server that the kernel knows.
    fn exported(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("exported")).unwrap_or_default();
        assert!(text.ends_with(FOREIGN), "{text}");
        text.lines().filter(|line| *line != FOREIGN).map(str::to_owned).collect()
    }

    /// Returns the ids of the sandboxes whose workspaces the kernel exports.
    fn exported_ids(&self) -> Vec<String> {
        self.exported().iter().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
    }
}

#[test]
fn the_kernel_exports_the_workspaces_of_sandboxes() {
    if !can_run() {
        return;
    }
    let machine = Machine::new();
    let mut server = machine.server();
    assert_eq!(machine.exported().len(), 0);
    let id = server.create();
    let lines = machine.exported();
    assert_eq!(machine.exported_ids(), std::slice::from_ref(&id));
    let nfs = server.sandbox(&id)["nfs"].clone();
    let path = nfs["path"].as_str().unwrap();
    assert_eq!((&nfs["host"], &nfs["port"]), (&json!("nfs.example.org"), &json!(2049)));
    assert_eq!(nfs["mountCommand"], format!("mount -t nfs -o vers=3,tcp nfs.example.org:{path} /mnt"));
    assert_eq!(nfs["mountCommandV4"], format!("mount -t nfs4 nfs.example.org:{path} /mnt"));
    let owner = fs::metadata(path).unwrap();
    for client in ["10.0.0.0/8", "192.0.2.7"] {
        let user = format!("all_squash,anonuid={},anongid={},", owner.uid(), owner.gid());
        assert!(lines[0].starts_with(&format!("{path} ")) && lines[0].contains(&user), "{}", lines[0]);
        assert!(lines[0].contains(&format!(" {client}(rw,")), "{}", lines[0]);
    }
    assert!(owner.uid() != 0 && !lines[0].contains("no_root_squash"), "{}", lines[0]);
    // What the kernel writes for a client is in the sandbox, and in its commits.
    fs::write(format!("{path}/made"), "outside\n").unwrap();
    chown(format!("{path}/made"), Some(owner.uid()), Some(owner.gid())).unwrap();
    assert_eq!(server.output_of(&id, "test -O made && cat made"), "outside\n");
    let committed = server.post(&format!("/api/v1/sandboxes/{id}/commit"), &json!({}));
    assert_eq!(committed.status, 201, "{}", committed.body);
    let listed = server.get("/api/v1/nfs/exports").json();
    assert_eq!((&listed["mode"], &listed["items"][0]["nfs"]), (&json!("system"), &nfs));
    assert_eq!(listed["items"][0]["clients"], "10.0.0.0/8,192.0.2.7/32");
    assert_eq!(server.get("/api/v1/stats").json()["nfs"]["mode"], "system");
    // The kernel goes on to serve clients while the server is away.
    server.kill();
    assert_eq!(machine.exported(), lines);
    server.start();
    assert_eq!(machine.exported(), lines);
    assert_eq!(server.sandbox(&id)["nfs"], nfs);
    server.delete(&id);
    assert_eq!(machine.exported().len(), 0);
}

#[test]
fn sandboxes_that_are_created_at_once_are_all_exported() {
    const COUNT: usize = 6;
    if !can_run() {
        return;
    }
    let machine = Machine::new();
    let server = machine.server();
    let mut ids: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..COUNT).map(|_| scope.spawn(|| server.create())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    ids.sort();
    assert_eq!(machine.exported_ids(), ids);
    std::thread::scope(|scope| ids.iter().for_each(|id| drop(scope.spawn(|| server.delete(id)))));
    assert_eq!(machine.exported().len(), 0);
}

#[test]
fn a_workspace_that_is_replaced_or_paused_is_exported_as_it_is_then() {
    if !can_run() {
        return;
    }
    let machine = Machine::new();
    let server = machine.server();
    let id = server.create();
    let first = machine.exported();
    server.run(&id, "echo first > file");
    let committed = server.post(&format!("/api/v1/sandboxes/{id}/commit"), &json!({})).json();
    let snapshot = committed["snapshot"].get("id").unwrap_or(&committed["snapshot"]).clone();
    server.run(&id, "echo second > file");
    let body = json!({ "snapshot": snapshot });
    let restored = server.post(&format!("/api/v1/sandboxes/{id}/restore"), &body);
    assert_eq!(restored.status, 200, "{}", restored.body);
    let second = machine.exported();
    assert_ne!(first, second, "handles of the former files are stale");
    let path = server.sandbox(&id)["nfs"]["path"].as_str().unwrap().to_owned();
    assert_eq!(fs::read_to_string(format!("{path}/file")).unwrap(), "first\n");
    let pause = server.post(&format!("/api/v1/sandboxes/{id}/pause"), &json!({ "keep": "disk" }));
    assert_eq!(pause.status, 200, "{}", pause.body);
    assert_eq!(machine.exported().len(), 0);
    assert_eq!(server.sandbox(&id)["nfs"], Value::Null);
    let resumed = server.post(&format!("/api/v1/sandboxes/{id}/resume"), &json!({}));
    assert_eq!(resumed.status, 200, "{}", resumed.body);
    assert_eq!(machine.exported_ids(), [id]);
}

#[test]
fn an_export_that_fails_leaves_the_sandbox_without_nfs() {
    if !can_run() {
        return;
    }
    let machine = Machine::new();
    let server = machine.server();
    fs::remove_file(machine.path("bin/exportfs")).unwrap();
    let id = server.create();
    assert_eq!(server.sandbox(&id)["nfs"], Value::Null);
    wait_until("the failure is logged", || server.log().contains("failed to export a workspace over NFS"));
    // It may still be exported, so its files are not deleted yet.
    assert!(server.call("DELETE", &format!("/api/v1/sandboxes/{id}")).send().status >= 500);
}

#[test]
fn a_server_that_lacks_something_does_not_start_and_says_what() {
    if !can_run() {
        return;
    }
    let machine = Machine::new();
    let fails = |variables: &[(&str, &str)]| {
        let data = tempfile::tempdir().unwrap();
        let launcher = machine.launcher();
        let mut command = Command::new(&launcher[0]);
        command.args(&launcher[1..]).arg(server_program()).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("DATA_DIR", data.path()).env("API_PORT", "0").env("API_KEY", KEY);
        command.env("NFS_MODE", "system").env("NFS_ALLOWED_IPS", "10.0.0.0/8").env("POOL_SIZE", "0");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let path = format!("{}:/usr/bin:/bin", machine.path("bin").display());
    let open = fails(&[("NFS_ALLOWED_IPS", "*")]);
    assert!(open.contains("no secrets in paths") && open.contains("hint: set NFS_ALLOWED_IPS"), "{open}");
    let overlay = fails(&[("WORKSPACE_PROVIDER", "overlay")]);
    assert!(overlay.contains("hint: set WORKSPACE_PROVIDER to auto, clone or copy"), "{overlay}");
    fs::write(machine.path("nfsd/threads"), "0\n").unwrap();
    let stopped = fails(&[("PATH", &path)]);
    assert!(
        stopped.contains("does not run") && stopped.contains("systemctl enable --now nfs-server"),
        "{stopped}"
    );
}
