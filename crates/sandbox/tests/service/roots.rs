//! Kept root filesystems: commit, fork and restore of everything outside `/workspace`.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, and `sh` runs a shell command
//! in a sandbox and returns its result.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use workspace_catalog::State;
use workspace_sandbox::template::ImportOptions;
use workspace_sandbox::{
    Fork, IfInUse, KeptWorkspace, Materialize, NewCommit, NewSandbox, PauseMode, ReclaimPolicy, ResetMode,
    RootMode, RunRequest, SandboxError, SandboxInfo, Scope, Service, Size, TerminalRequest, Workspaces,
};
use workspace_state::{Attributes, Cancel, NewSnapshot, Snapshot, SnapshotId, Tree, VirtualTree};
use workspace_test_support::runs_as_root;

use crate::home::{TIMEOUT, TestHome, alice, base, creator, read, request, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::oci_only::unpack;
use crate::pauses::{pause, resume};
use crate::trials;

const TEMPLATE: &str = "mini:1";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for kind in RuntimeKind::available()
        .into_iter()
        .filter(|kind| matches!(kind, RuntimeKind::Docker | RuntimeKind::Oci))
    {
        trials.push(Trial::test(format!("{}::a_root_cannot_be_kept", kind.name()), move || {
            crate::home::run(kind, |home| Box::pin(a_root_cannot_be_kept(home)));
            Ok(())
        }));
    }
    let all = trials![
        root_survives_commit_fork_and_restore,
        root_survives_a_pause_to_disk,
        snapshot_with_a_root_can_be_used_without_it,
        snapshot_without_a_root_restores_the_workspace_only,
        root_of_another_template_is_refused,
        template_of_the_machine_has_no_kept_root,
        discarded_root_is_read_only,
        owners_of_files_survive,
        hostile_root_starts_again,
        commands_run_as_other_users,
        users_need_a_kept_root,
        unforced_restore_of_a_root_ends_no_command,
        kept_root_counts_for_the_disk_limit,
        removed_sandbox_leaves_no_root,
        next_server_continues_with_a_kept_root,
        interrupted_restore_of_a_root_is_finished_or_undone,
        interrupted_restore_to_the_same_snapshot_is_finished_or_undone,
        root_does_not_need_its_template_once_it_is_in_a_snapshot,
        root_shares_no_rights_with_the_machine,
    ];
    trials.extend(all.into_iter().filter(|trial| trial.name().starts_with("embedded::")));
    trials
}

/// Imports a template with a shell.
pub(crate) async fn import(service: &Service, name: &str) {
    let made = tempfile::tempdir().unwrap();
    unpack(made.path());
    for applet in [
        "mkdir", "rm", "ln", "mv", "id", "chown", "stat", "env", "sleep", "dd", "chmod", "kill", "whoami",
        "mkfifo", "tty",
    ] {
        std::os::unix::fs::symlink("busybox", made.path().join("bin").join(applet)).unwrap();
    }
    std::fs::write(
        made.path().join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nweb:x:33:33:web:/var/www:/bin/sh\n",
    )
    .unwrap();
    std::fs::write(made.path().join("etc/group"), "root:x:0:\nweb:x:33:\nlogs:x:4:web\n").unwrap();
    import_directory(service, name, made.path()).await;
}

async fn import_directory(service: &Service, name: &str, directory: &Path) {
    let mut archive = service.receive_template().unwrap();
    let packed = Command::new("tar").arg("-C").arg(directory).args(["-c", "."]).output().unwrap();
    std::io::Write::write_all(&mut archive, &packed.stdout).unwrap();
    std::io::Seek::rewind(&mut archive).unwrap();
    let options = ImportOptions { max_bytes: 1 << 30, cancel: Cancel::new() };
    service.import_template(name, archive, options).await.unwrap();
}

/// Returns a sandbox with a kept root filesystem: snapshots have it, too.
fn kept() -> NewSandbox {
    NewSandbox { template: TEMPLATE.to_owned(), root: RootMode::Kept, ..base() }
}

fn kept_from(snapshot: SnapshotId) -> NewSandbox {
    NewSandbox { snapshot: Some(snapshot), ..kept() }
}

async fn create(service: &Service, new: NewSandbox) -> SandboxInfo {
    service.create(creator(), new).await.unwrap()
}

async fn start_with_template(home: &TestHome) -> Service {
    let service = home.start().await;
    import(&service, TEMPLATE).await;
    service
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a command as root, or as the only user where there is no other.
async fn as_root(service: &Service, info: &SandboxInfo, command: &str) -> String {
    let user = is_root().then(|| "root".to_owned());
    let handle =
        service.run(&alice(), &info.sandbox.id, RunRequest { user, ..request(command) }).await.unwrap();
    let ran = read(&handle, 0).await;
    assert_eq!((ran.stderr.as_str(), &ran.exit.failure_reason), ("", &None), "{command}: {ran:?}");
    ran.stdout
}

async fn commit(service: &Service, info: &SandboxInfo) -> Snapshot {
    let taken = service.commit(&alice(), &info.sandbox.id, NewCommit::default()).await.unwrap();
    taken.committed.snapshot
}

/// Returns the root filesystem in a snapshot.
fn root_tree(service: &Service, snapshot: &Snapshot) -> VirtualTree {
    let root = snapshot.root.as_ref().unwrap();
    VirtualTree::over(&Tree::open(service.workspaces().store(), root.tree, Some(root.times)).unwrap())
        .unwrap()
}

async fn root_survives_commit_fork_and_restore(home: &TestHome) {
    let service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    assert_eq!(info.config.root, RootMode::Kept);
    let write = "mkdir -p /usr/local /root /var/lib && for f in /usr/local/a /root/a /etc/a /home/sandbox/a /var/lib/a a \
        /tmp/a /run/a; do echo one > $f; done; rm /etc/os-release";
    as_root(&service, &info, write).await;
    let first = commit(&service, &info).await;
    assert_eq!(first.root.as_ref().unwrap().template, TEMPLATE);
    let list = "cat /usr/local/a /root/a /etc/a /home/sandbox/a /var/lib/a /workspace/a; ls /etc/os-release /tmp/a /run/a 2>&1";
    let gone = |paths: &[&str]| -> String {
        paths.iter().map(|path| format!("ls: {path}: No such file or directory\n")).collect()
    };
    let expected = "one\n".repeat(6) + &gone(&["/etc/os-release", "/tmp/a", "/run/a"]);
    // A sandbox from the snapshot, and a fork.
    let second = create(&service, kept_from(first.id)).await;
    assert_eq!(as_root(&service, &second, list).await, expected);
    as_root(&service, &info, "echo two > /usr/local/a; rm /root/a; echo new > /etc/b; mkdir /opt").await;
    let fork = Fork { count: 1, ..Fork::default() };
    let forked = service.fork(&alice(), &info.sandbox.id, creator(), fork).await.unwrap();
    assert_eq!(forked.infos[0].config.root, RootMode::Kept);
    let changed = "cat /usr/local/a /etc/a /etc/b; ls -d /root/a /opt 2>&1";
    let of_fork = "two\none\nnew\nls: /root/a: No such file or directory\n/opt\n";
    assert_eq!(as_root(&service, &forked.infos[0], changed).await, of_fork);
    // A restore ends all processes and starts again.
    let running = service.run(&alice(), &info.sandbox.id, request("sleep 1000")).await.unwrap();
    let restored =
        service.restore(&alice(), &info.sandbox.id, first.id, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(restored.info.config.snapshot, Some(first.id));
    let ended = read(&running, 0).await;
    assert_eq!(ended.exit.failure_reason.as_deref(), Some("the sandbox was restored"));
    assert_eq!(as_root(&service, &info, list).await, expected);
    // Nothing changed, so a commit has the same trees.
    let again = commit(&service, &info).await;
    assert_eq!(again.tree, first.tree);
    let [before, after] = [&first, &again].map(|snapshot| snapshot.root.as_ref().unwrap().tree);
    assert_eq!(before, after);
    // The restored sandbox goes on as before.
    as_root(&service, &info, "echo three > /usr/local/a").await;
    let last = commit(&service, &info).await;
    assert_eq!(root_tree(&service, &last).read("usr/local/a").unwrap(), b"three\n");
    assert_eq!(root_tree(&service, &last).read("etc/a").unwrap(), b"one\n");
}

async fn root_survives_a_pause_to_disk(home: &TestHome) {
    let service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    let id = info.sandbox.id.as_str();
    let root = home.path().join("roots").join(id);
    for round in ["one", "two"] {
        as_root(
            &service,
            &info,
            &format!("echo {round} >> /etc/a; echo {round} >> a; echo {round} > /tmp/a"),
        )
        .await;
        pause(&service, id, PauseMode::Disk).await;
        wait_until("only the snapshot has it", async || !root.exists()).await;
        resume(&service, id).await;
        assert!(root.exists());
        assert_eq!(sh(&service, &info, "ls /tmp").await.stdout, "");
    }
    assert_eq!(as_root(&service, &info, "cat /etc/a a").await, "one\ntwo\none\ntwo\n");
    assert_eq!(service.get(&alice(), id).await.unwrap().config.root, RootMode::Kept);
}

async fn snapshot_with_a_root_can_be_used_without_it(home: &TestHome) {
    let service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    as_root(&service, &info, "echo root > /etc/a; echo workspace > a").await;
    let snapshot = commit(&service, &info).await;
    for template in ["base", TEMPLATE] {
        let new = NewSandbox { template: template.to_owned(), snapshot: Some(snapshot.id), ..base() };
        let other = create(&service, new).await;
        let ran = sh(&service, &other, "cat a; cat /etc/a").await;
        assert_eq!(ran.stdout, "workspace\n", "{ran:?}");
        assert!(ran.stderr.contains("No such file"), "{ran:?}");
        let committed = commit(&service, &other).await;
        assert_eq!((committed.tree, committed.root), (snapshot.tree, None));
        // A sandbox without a kept root ignores the root of a snapshot.
        service.restore(&alice(), &other.sandbox.id, snapshot.id, IfInUse::Fail).await.unwrap();
        assert_eq!(sh(&service, &other, "cat a").await.stdout, "workspace\n");
    }
}

async fn snapshot_without_a_root_restores_the_workspace_only(home: &TestHome) {
    let service = start_with_template(home).await;
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("a", "from snapshot\n").unwrap();
    let plain = tree.commit(NewSnapshot::default()).unwrap();
    let info = create(&service, kept_from(plain.id)).await;
    as_root(&service, &info, "echo root > /etc/a; echo changed > a").await;
    // Processes outside the workspace continue.
    let outside = RunRequest { cwd: Some("/".to_owned()), ..request("sleep 1000") };
    let running = service.run(&alice(), &info.sandbox.id, outside).await.unwrap();
    service.restore(&alice(), &info.sandbox.id, plain.id, IfInUse::Fail).await.unwrap();
    assert_eq!(as_root(&service, &info, "cat a /etc/a").await, "from snapshot\nroot\n");
    service.kill(&alice(), &info.sandbox.id, &running.id, 9).await.unwrap();
    assert_eq!(read(&running, 0).await.exit.exit_code, 137, "it was still running");
}

async fn root_of_another_template_is_refused(home: &TestHome) {
    let service = start_with_template(home).await;
    import(&service, "other").await;
    let info = create(&service, kept()).await;
    let snapshot = commit(&service, &info).await;
    let other = NewSandbox { template: "other".to_owned(), ..kept() };
    let refused =
        service.create(creator(), NewSandbox { snapshot: Some(snapshot.id), ..other.clone() }).await;
    assert!(matches!(refused, Err(SandboxError::RootUnavailable { .. })), "{refused:?}");
    let other = create(&service, other).await;
    let refused = service.restore(&alice(), &other.sandbox.id, snapshot.id, IfInUse::KillProcesses).await;
    assert!(matches!(refused, Err(SandboxError::RootUnavailable { .. })), "{refused:?}");
    assert_eq!(sh(&service, &other, "echo alive").await.stdout, "alive\n");
}

async fn template_of_the_machine_has_no_kept_root(home: &TestHome) {
    a_root_cannot_be_kept(home).await;
}

async fn a_root_cannot_be_kept(home: &TestHome) {
    let service = home.start().await;
    let refused = service.create(creator(), NewSandbox { root: RootMode::Kept, ..base() }).await;
    assert!(matches!(refused, Err(SandboxError::RootUnavailable { .. })), "{refused:?}");
    assert_eq!(service.list(&alice(), workspace_catalog::Filter::default()).await.unwrap().1, 0);
}

async fn discarded_root_is_read_only(home: &TestHome) {
    let service = start_with_template(home).await;
    let info = create(&service, NewSandbox { root: RootMode::Discarded, ..kept() }).await;
    let ran = sh(&service, &info, "touch /etc/a /usr/a ~/a a").await;
    assert_eq!(ran.stderr.matches("Read-only file system").count(), 1, "{ran:?}");
    assert_eq!(commit(&service, &info).await.root, None);
}

async fn owners_of_files_survive(home: &TestHome) {
    if !runs_as_root("has sandboxes with several users") {
        return;
    }
    let service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    let script = "mkdir -p /srv/web && echo x > /srv/web/file && chown 33:4 /srv/web /srv/web/file && chmod 4750 \
        /srv/web/file && echo y > /srv/mine && chown 1000:1000 /srv/mine; echo z > /srv/last && chown 65534:65534 /srv/last";
    as_root(&service, &info, script).await;
    let list =
        "stat -c '%u:%g %a' /srv/web /srv/web/file /srv/mine /srv/last /srv /home/sandbox /bin/busybox /";
    let expected =
        "33:4 755\n33:4 4750\n1000:1000 644\n65534:65534 644\n0:0 755\n1000:1000 755\n0:0 755\n0:0 755\n";
    assert_eq!(as_root(&service, &info, list).await, expected);
    let snapshot = commit(&service, &info).await;
    let second = create(&service, kept_from(snapshot.id)).await;
    assert_eq!(as_root(&service, &second, list).await, expected);
    // A file whose owner alone changes.
    as_root(&service, &second, "chown 0:33 /srv/mine").await;
    let snapshot = commit(&service, &second).await;
    let third = create(&service, kept_from(snapshot.id)).await;
    assert_eq!(as_root(&service, &third, "stat -c '%u:%g' /srv/mine").await, "0:33\n");
    assert_eq!(sh(&service, &third, "cat /srv/web/file").await.stdout, "", "others have no rights");
    // Set-user-ID programs have no effect.
    as_root(&service, &third, "chmod 4755 /bin/busybox").await;
    assert_eq!(sh(&service, &third, "id -u").await.stdout, "1000\n");
}

/// Replaces everything that is mounted or written at a start.
async fn hostile_root_starts_again(home: &TestHome) {
    let service = start_with_template(home).await;
    let outside = home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("hosts"), "outside").unwrap();
    let mut tree = {
        let info = create(&service, kept()).await;
        root_tree(&service, &commit(&service, &info).await)
    };
    let target = |tree: &mut VirtualTree, path: &str, to: &str| {
        if tree.exists(path).unwrap() {
            tree.remove(path).unwrap();
        }
        tree.symlink(path, to).unwrap();
    };
    let outside_path = outside.to_str().unwrap();
    for (path, to) in [
        ("tmp", outside_path),
        ("proc", "/"),
        ("sys", "../../../.."),
        ("workspace", "/etc"),
        ("run", "/proc/1/root"),
        ("etc/resolv.conf", "/proc/self/mem"),
        ("etc/hosts", &format!("{outside_path}/hosts")),
    ] {
        target(&mut tree, path, to);
    }
    tree.remove("dev").unwrap();
    tree.write("dev", "a file").unwrap();
    tree.remove("etc/hostname").unwrap();
    tree.mkdir("etc/hostname").unwrap();
    tree.put_directory("", Attributes { mode: 0o000, ..Attributes::default() }).unwrap();
    let root = tree.into_root(TEMPLATE).unwrap();
    let new = NewSnapshot { root: Some(root), ..NewSnapshot::default() };
    let hostile = service.workspaces().store().empty_tree().unwrap().commit(new).unwrap();
    let info = create(&service, kept_from(hostile.id)).await;
    let ran = sh(
        &service,
        &info,
        "cat /etc/hosts; ls -d /etc/hostname; echo x > /tmp/x; echo y > /workspace/y; id -u",
    )
    .await;
    assert!(ran.stdout.starts_with("127.0.0.1 localhost"), "{ran:?}");
    assert!(ran.stdout.ends_with("/etc/hostname\n1000\n"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(outside.join("hosts")).unwrap(), "outside");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    // `/etc` itself may be missing, or be a link.
    for to in [None, Some("/workspace")] {
        let mut tree = root_tree(&service, &commit(&service, &info).await);
        tree.remove("etc").unwrap();
        if let Some(to) = to {
            tree.symlink("etc", to).unwrap();
        }
        let new = NewSnapshot { root: Some(tree.into_root(TEMPLATE).unwrap()), ..NewSnapshot::default() };
        let hostile = service.workspaces().store().empty_tree().unwrap().commit(new).unwrap();
        let info = create(&service, kept_from(hostile.id)).await;
        assert_eq!(sh(&service, &info, "echo alive").await.stdout, "alive\n");
        assert_eq!(sh(&service, &info, "ls /workspace").await.stdout, "");
    }
}

async fn commands_run_as_other_users(home: &TestHome) {
    if !runs_as_root("has sandboxes with several users") {
        return;
    }
    let service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    let run = async |user: &str, command: &str| {
        let run = RunRequest { user: Some(user.to_owned()), ..request(command) };
        read(&service.run(&alice(), &info.sandbox.id, run).await.unwrap(), 0).await
    };
    let show = "id -u; id -g; id -G; echo $HOME $USER";
    assert_eq!(run("root", show).await.stdout, "0\n0\n0\n/root root\n");
    assert_eq!(run("0", "echo $USER").await.stdout, "root\n");
    assert_eq!(run("root", "mv /etc/passwd /etc/kept; mkfifo /etc/passwd").await.exit.exit_code, 0);
    assert!(run("0", "mv /etc/kept /etc/passwd && echo repaired").await.stdout.contains("repaired"));
    assert_eq!(run("web", show).await.stdout, "33\n33\n33 4\n/var/www web\n");
    assert_eq!(run("4321", show).await.stdout, "4321\n0\n0\n/ 4321\n");
    for own in ["sandbox", "1000"] {
        assert_eq!(run(own, show).await.stdout, "1000\n1000\n1000\n/home/sandbox sandbox\n");
    }
    let unknown = RunRequest { user: Some("nobody-here".to_owned()), ..request("true") };
    let unknown = service.run(&alice(), &info.sandbox.id, unknown).await.unwrap().wait().await.unwrap();
    assert!(unknown.failure_reason.as_ref().unwrap().contains("no user `nobody-here`"), "{unknown:?}");
    // Only root has capabilities, and no more than it needs.
    let capabilities = "while read a b; do case $a in Cap*) echo $a $b;; NoNewPrivs:) echo $a $b;; esac; done < /proc/self/status";
    let none = "0000000000000000";
    for user in ["sandbox", "web"] {
        let shown = run(user, capabilities).await.stdout;
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(shown.contains(&format!("{set}: {none}\n")), "{user}: {shown}");
        }
        assert!(shown.contains("NoNewPrivs: 1\n"), "{shown}");
    }
    let of_root = run("root", capabilities).await.stdout;
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID and SETUID.
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert!(of_root.contains(&format!("{set}: 00000000000000fb\n")), "{of_root}");
    }
    assert!(of_root.contains("NoNewPrivs: 1\n"), "{of_root}");
    // Commands of root are ended like others.
    let sleeping = RunRequest { user: Some("root".to_owned()), ..request("sleep 1000 & sleep 1000") };
    let sleeping = service.run(&alice(), &info.sandbox.id, sleeping).await.unwrap();
    wait_until("it runs", async || service.processes(&alice(), &info.sandbox.id).await.unwrap().len() >= 2)
        .await;
    service.kill(&alice(), &info.sandbox.id, &sleeping.id, 9).await.unwrap();
    assert_eq!(read(&sleeping, 0).await.exit.exit_code, 137);
    wait_until("all ended", async || service.processes(&alice(), &info.sandbox.id).await.unwrap().is_empty())
        .await;
    let terminal = TerminalRequest {
        size: Size { cols: 80, rows: 24 },
        shell: None,
        command: Some("id -u; stat -c '%u %a' $(tty); tty > /workspace/tty; until [ -e /workspace/end ]; do sleep 0.01; done".to_owned()),
        cwd: None,
        envs: [].into(),
        user: Some("root".to_owned()),
    };
    let terminal = service.open_terminal(&alice(), &info.sandbox.id, terminal).await.unwrap();
    // Another user could type into the terminal of root.
    let other = run("sandbox", "until [ -s tty ]; do sleep 0.01; done; : < $(cat tty)").await;
    assert!(other.stderr.contains("Permission denied"), "{other:?}");
    assert_eq!(run("root", ": < $(cat tty)").await.exit.exit_code, 0);
    run("sandbox", "touch end").await;
    let output = read(&terminal, 0).await.stdout;
    assert!(output.starts_with("0\r\n0 600\r\n"), "{output}");
}

async fn users_need_a_kept_root(home: &TestHome) {
    let service = start_with_template(home).await;
    let discarded = create(&service, NewSandbox { root: RootMode::Discarded, ..kept() }).await;
    let mut infos = vec![discarded];
    if !is_root() {
        infos.push(create(&service, kept()).await);
    }
    for info in infos {
        for (user, is_invalid) in [("root", false), ("0", false), ("a:b", true), ("", true), ("a\n", true)] {
            let run = RunRequest { user: Some(user.to_owned()), ..request("true") };
            match service.run(&alice(), &info.sandbox.id, run).await.unwrap_err() {
                SandboxError::UserUnavailable { .. } => assert!(!is_invalid, "{user}"),
                SandboxError::Invalid { field: "user", .. } => assert!(is_invalid, "{user}"),
                other => panic!("{other}"),
            }
        }
        let own = RunRequest { user: Some("sandbox".to_owned()), ..request("id -u") };
        let own = service.run(&alice(), &info.sandbox.id, own).await.unwrap();
        assert_eq!(read(&own, 0).await.stdout, "1000\n");
    }
}

async fn unforced_restore_of_a_root_ends_no_command(home: &TestHome) {
    let service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    let snapshot = commit(&service, &info).await;
    let running = service.run(&alice(), &info.sandbox.id, request("sleep 1000")).await.unwrap();
    let refused = service.restore(&alice(), &info.sandbox.id, snapshot.id, IfInUse::Fail).await;
    assert!(matches!(refused, Err(SandboxError::RootUsed { count: 1, .. })), "{refused:?}");
    service.kill(&alice(), &info.sandbox.id, &running.id, 9).await.unwrap();
    assert_eq!(read(&running, 0).await.exit.exit_code, 137, "it was still running");
    wait_until("nothing runs", async || {
        service.restore(&alice(), &info.sandbox.id, snapshot.id, IfInUse::Fail).await.is_ok()
    })
    .await;
    assert_eq!(sh(&service, &info, "echo alive").await.stdout, "alive\n");
}

async fn kept_root_counts_for_the_disk_limit(home: &TestHome) {
    let service =
        home.start_with(|settings| settings.disk_interval = std::time::Duration::from_millis(50)).await;
    import(&service, TEMPLATE).await;
    let disk = Some(8 << 20);
    let resources = workspace_sandbox::ResourceRequest { disk, ..kept().resources };
    let info = create(&service, NewSandbox { resources, ..kept() }).await;
    let fill = "dd if=/dev/zero of=/home/sandbox/large bs=1M count=32; sleep 1000";
    service.run(&alice(), &info.sandbox.id, request(fill)).await.unwrap();
    // Where quotas work, the write fails; otherwise the sandbox is stopped.
    wait_until("the limit is enforced", async || {
        let info = service.get(&alice(), &info.sandbox.id).await.unwrap();
        let used = service.stats(&alice(), &info.sandbox.id).await.map(|stats| stats.disk);
        info.sandbox.state == State::Stopped || used.is_ok_and(|used| used > 7 << 20)
    })
    .await;
}

async fn removed_sandbox_leaves_no_root(home: &TestHome) {
    let service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    as_root(&service, &info, "echo x > /etc/x; echo y > y").await;
    let root = home.path().join("roots").join(&info.sandbox.id);
    assert!(root.exists());
    // An admin keeps it as a snapshot, because a directory would not have the root.
    let removed = service.remove(&Scope::All, &info.sandbox.id, ReclaimPolicy::Keep).await.unwrap().kept;
    let KeptWorkspace::Snapshot(snapshot) = removed else { panic!("{removed:?}") };
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(!root.exists());
    let second = create(&service, kept_from(snapshot)).await;
    assert_eq!(sh(&service, &second, "cat /etc/x y").await.stdout, "x\ny\n");
    service.remove(&alice(), &second.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(!home.path().join("roots").join(&second.sandbox.id).exists());
    assert!(service.workspaces().store().pins().unwrap().is_empty());
    // The files of the template are removed with it, the snapshot stays.
    service.remove_template(TEMPLATE).await.unwrap();
    assert!(service.workspaces().store().references_with_prefix("template-").unwrap().is_empty());
    let left: Vec<_> = service.workspaces().store().snapshots().unwrap().iter().map(|one| one.id).collect();
    assert_eq!(left, [snapshot]);
}

async fn next_server_continues_with_a_kept_root(home: &TestHome) {
    let service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    as_root(&service, &info, "echo x > /etc/x").await;
    let orphan = create(&service, kept()).await;
    service.close().await;
    drop(service);
    // A root without a sandbox is removed.
    home.sql(&format!("DELETE FROM sandboxes WHERE id = '{}'", orphan.sandbox.id)).await;
    let service = home.start().await;
    wait_until("the orphan is gone", async || !home.path().join("roots").join(&orphan.sandbox.id).exists())
        .await;
    assert_eq!(as_root(&service, &info, "cat /etc/x; echo y > /etc/y").await, "x\n");
    let snapshot = commit(&service, &info).await;
    assert_eq!(root_tree(&service, &snapshot).read("etc/y").unwrap(), b"y\n");
    service.restore(&alice(), &info.sandbox.id, snapshot.id, IfInUse::KillProcesses).await.unwrap();
    assert_eq!(as_root(&service, &info, "cat /etc/x /etc/y").await, "x\ny\n");
}

/// A server that was killed after the reset of the root, and one that was killed after both resets.
async fn interrupted_restore_of_a_root_is_finished_or_undone(home: &TestHome) {
    let mut service = start_with_template(home).await;
    for is_workspace_reset in [false, true] {
        let info = create(&service, kept()).await;
        let id = info.sandbox.id.clone();
        as_root(&service, &info, "echo one > /etc/a; echo one > a").await;
        let snapshot = commit(&service, &info).await;
        as_root(&service, &info, "echo two > /etc/a; echo two > a").await;
        // Earlier versions of the server stored no marker with the root.
        let no_marker = None;
        service = interrupt_restore(home, service, &id, &snapshot, (no_marker, is_workspace_reset)).await;
        let found = check_interrupted_restore(&service, &id, is_workspace_reset).await;
        let restored = found.config.snapshot == Some(snapshot.id);
        assert_eq!(restored, is_workspace_reset);
    }
}

/// The base of the workspace is the snapshot before the restore, too, so it does not tell if the workspace was reset.
async fn interrupted_restore_to_the_same_snapshot_is_finished_or_undone(home: &TestHome) {
    let mut service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    as_root(&service, &info, "echo one > /etc/a; echo one > a").await;
    let snapshot = commit(&service, &info).await;
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    for is_workspace_reset in [false, true] {
        let info = create(&service, kept_from(snapshot.id)).await;
        let id = info.sandbox.id.clone();
        as_root(&service, &info, "echo two > /etc/a; echo two > a").await;
        let pin = service.workspaces().record(&id).unwrap().current.pin.unwrap();
        let marker = Some(pin.to_string());
        service = interrupt_restore(home, service, &id, &snapshot, (marker, is_workspace_reset)).await;
        check_interrupted_restore(&service, &id, is_workspace_reset).await;
    }
}

/// Resets the root of a sandbox, and its workspace if requested, as a restore does whose server is killed then. Returns
/// the next server.
async fn interrupt_restore(
    home: &TestHome,
    service: Service,
    id: &str,
    snapshot: &Snapshot,
    (marker, is_workspace_reset): (Option<String>, bool),
) -> Service {
    service.close().await;
    let process = home.process(id);
    process.signal(rustix::process::Signal::KILL);
    wait_until("its processes exited", async || !process.is_running()).await;
    let reset = |workspaces: &Workspaces| {
        workspaces.reset(id, Some(snapshot.id), Materialize::Full, ResetMode::MayMove).unwrap();
    };
    let roots = service.roots().unwrap();
    match marker {
        Some(marker) => {
            let never = Cancel::new();
            let roots = roots.cancellable(&never);
            roots.reset_with_info(id, snapshot.id, marker, ResetMode::MayMove).unwrap();
        }
        None => reset(roots),
    }
    if is_workspace_reset {
        reset(service.workspaces());
    }
    drop(service);
    home.start().await
}

/// Checks that root and workspace have the content of the snapshot (`one`) if both were reset, and else that of before
/// (`two`).
async fn check_interrupted_restore(service: &Service, id: &str, is_workspace_reset: bool) -> SandboxInfo {
    let found = service.get(&alice(), id).await.unwrap();
    assert_eq!(found.sandbox.state, State::Stopped, "{:?}", found.sandbox.state_reason);
    let content = commit(service, &found).await;
    let expected: &[u8] = if is_workspace_reset { b"one\n" } else { b"two\n" };
    assert_eq!(root_tree(service, &content).read("etc/a").unwrap(), expected);
    assert_eq!(service.workspaces().store().restore(&content.id).unwrap().read("a").unwrap(), expected);
    found
}

async fn root_does_not_need_its_template_once_it_is_in_a_snapshot(home: &TestHome) {
    let service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    as_root(&service, &info, "echo x > /etc/x").await;
    let snapshot = commit(&service, &info).await;
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    service.remove_template(TEMPLATE).await.unwrap();
    service.collect().await.unwrap();
    let refused = service.create(creator(), kept()).await;
    assert!(matches!(refused, Err(SandboxError::NoTemplate { .. })), "{refused:?}");
    let info = create(&service, kept_from(snapshot.id)).await;
    assert_eq!(sh(&service, &info, "cat /etc/x").await.stdout, "x\n");
}

/// The root of a sandbox is root of its user namespace only.
async fn root_shares_no_rights_with_the_machine(home: &TestHome) {
    let service = start_with_template(home).await;
    let info = create(&service, kept()).await;
    let attempts = "mkdir /mnt 2>/dev/null; for c in 'mount -t tmpfs x /mnt' 'chroot / true' 'hostname x' 'mknod /dev/x c 1 3' \
        'mknod /y b 8 0' 'unshare -m true'; do /bin/busybox $c 2>/dev/null && echo \"$c\"; done; \
        ( echo 1 > /proc/sys/kernel/hostname ) 2>/dev/null && echo sysctl; cat /proc/1/environ 2>/dev/null && echo environ; \
        /bin/busybox readlink /proc/1/exe && echo exe; /bin/busybox readlink /proc/1/fd/0 && echo fd; kill -9 1; echo end";
    assert_eq!(as_root(&service, &info, attempts).await, "end\n");
    assert_eq!(sh(&service, &info, "echo alive").await.stdout, "alive\n");
    if is_root() {
        let map = as_root(&service, &info, "cat /proc/self/uid_map").await;
        assert!(map.split_whitespace().nth(1).is_some_and(|id| id != "0"), "{map}");
    }
}
