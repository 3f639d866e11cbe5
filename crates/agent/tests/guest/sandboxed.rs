//! Tests of the agent in a sandbox of the embedded runtime: its abilities and its isolation. [`TestServer`] is the
//! server of the agent; [`sh`] runs a shell command in the sandbox.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use workspace_agent_protocol::output::Stream;
use workspace_agent_protocol::v1::RunCommandRequest;
use workspace_host::NamespaceHolder;
use workspace_host::Process;
use workspace_host::launch::{Launch, Template, launch};
use workspace_host::limits::Limits;

use crate::server::{Guest, TestServer};

/// Returns the tests of this module.
pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        commands_run_unprivileged_in_the_workspace,
        workspace_files_are_shared_with_the_host,
        workspace_is_attached_to_a_running_guest,
        host_files_and_processes_are_hidden,
        privileges_cannot_be_regained,
        network_is_isolated,
        dangerous_syscalls_are_rejected,
        agent_memory_and_descriptors_are_protected,
        supervisor_memory_and_descriptors_are_protected,
        commands_cannot_change_limits_or_scheduling_of_the_agent,
        commands_can_change_their_own_limits_and_scheduling,
        killing_the_agent_kills_all_processes,
    ]
}

/// Returns the path of the agent: that of `WORKSPACE_TEST_AGENT`, by default the one that cargo has built.
fn agent_program() -> PathBuf {
    let configured = std::env::var_os("WORKSPACE_TEST_AGENT").map(PathBuf::from);
    configured.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_workspace-agent")))
}

/// Returns an id that is unique on the machine.
fn id(home: &Path) -> String {
    let name = home.file_name().unwrap().to_string_lossy();
    format!("sbx-{}", name.trim_start_matches('.'))
}

/// Starts a sandbox with an empty workspace, and a server to which its agent connects.
fn in_sandbox() -> TestServer {
    in_sandbox_with(|workspace| Some(workspace))
}

/// Starts a sandbox with the workspace that `choose` returns for an empty directory, or without one for `None`.
fn in_sandbox_with(choose: impl Fn(&Path) -> Option<&Path>) -> TestServer {
    TestServer::start_as(|home, token| {
        let directory = |name: &str| -> PathBuf {
            let path = home.join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let workspace = directory("workspace");
        std::fs::set_permissions(&workspace, std::fs::Permissions::from_mode(0o777)).unwrap();
        let holder = NamespaceHolder::find_or_start(home).unwrap();
        let launched = launch(&Launch {
            holder: &holder,
            id: &id(home),
            dedicated_uid: None,
            agent: &agent_program(),
            template: Template::Base,
            workspace: choose(&workspace),
            sockets: &directory("sockets"),
            output: &directory("output"),
            log: &home.join("agent.log"),
            process_file: &home.join("process"),
            limits: Limits::default(),
            egress: None,
            token,
        });
        let launched = launched.unwrap_or_else(|error| {
            holder.kill();
            panic!("{error}")
        });
        Box::new(Sandbox { id: id(home), process: launched.process, holder })
    })
}

/// Running sandbox, which is killed on drop.
struct Sandbox {
    id: String,
    process: Process,
    holder: NamespaceHolder,
}

impl Guest for Sandbox {
    fn pid(&self) -> u32 {
        self.process.pid() as u32
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.process.kill();
        let _ = workspace_host::cgroup::remove(&self.id);
        self.holder.kill();
    }
}

/// Runs a command. Returns its exit code and output, including stderr.
#[track_caller]
fn sh(server: &TestServer, text: &str) -> (i32, String) {
    let request = RunCommandRequest { command: format!("exec 2>&1; {text}"), ..RunCommandRequest::default() };
    let result = server.run(request);
    (result.exit_code, String::from_utf8_lossy(&result.output(Stream::Stdout)).into_owned())
}

/// Checks that a command succeeds with this output.
#[track_caller]
fn assert_prints(server: &TestServer, text: &str, expected: &str) {
    assert_eq!(sh(server, text), (0, expected.to_owned()), "{text}");
}

/// Checks that a command fails.
#[track_caller]
fn assert_fails(server: &TestServer, text: &str) {
    let (code, out) = sh(server, text);
    assert_ne!(code, 0, "`{text}` worked: {out}");
}

fn commands_run_unprivileged_in_the_workspace() {
    let server = &in_sandbox();
    let id = id(server.home());
    assert_prints(
        server,
        "id -u; id -g; pwd; hostname; cat /proc/sys/kernel/hostname",
        &format!("1000\n1000\n/workspace\n{id}\n{id}\n"),
    );
    assert_prints(
        server,
        "echo a | tr a b; test -w /tmp -a -w /home/sandbox && echo writable",
        "b\nwritable\n",
    );
    assert_prints(server, "echo $HOME; whoami", "/home/sandbox\nsandbox\n");
    assert_eq!(sh(server, "exit 5").0, 5);
}

fn workspace_files_are_shared_with_the_host() {
    let server = &in_sandbox();
    assert_prints(server, "mkdir -p a/b && echo hello > a/b/c && cat a/b/c", "hello\n");
    let outside = std::fs::read_to_string(server.home().join("workspace/a/b/c")).unwrap();
    assert_eq!(outside, "hello\n");
    std::fs::write(server.home().join("workspace/from-outside"), "good morning\n").unwrap();
    assert_prints(server, "cat /workspace/from-outside", "good morning\n");
}

fn workspace_is_attached_to_a_running_guest() {
    let server = &in_sandbox_with(|_| None);
    let workspace = server.home().join("workspace");
    std::fs::write(workspace.join("greeting"), "hello\n").unwrap();
    let holder = NamespaceHolder::find_or_start(server.home()).unwrap();
    let process = Process::read(&server.home().join("process")).unwrap().unwrap();
    workspace_host::attach_workspace(&holder, &process, &workspace).unwrap();
    assert_prints(
        server,
        "pwd; cat greeting; echo done > answer; umount /workspace 2>/dev/null || true",
        "/workspace\nhello\n",
    );
    assert_eq!(std::fs::read_to_string(workspace.join("answer")).unwrap(), "done\n");
}

fn host_files_and_processes_are_hidden() {
    let server = &in_sandbox();
    assert_prints(
        server,
        "ls /root /var/lib /var/log /etc/shadow /etc/ssh /boot /media 2>/dev/null | wc -l",
        "0\n",
    );
    assert_prints(server, "ls /home", "sandbox\n");
    // The agent has the server's socket as a file descriptor; nothing else can reach it.
    assert_prints(server, "ls -A /run; find / -name agent.sock 2>/dev/null; true", "");
    let socket_directory_fd = 24;
    assert_fails(server, &format!("ls /proc/1/fd/{socket_directory_fd}/"));
    // Only processes of the sandbox are visible; the agent is PID 1.
    assert_prints(
        server,
        "cat /proc/1/comm; ls -d /proc/[0-9]* | wc -l | awk '{ print ($1 < 12) }'",
        "workspace-agent\n1\n",
    );
    for path in ["/usr/x", "/etc/x", "/x", "/proc/sys/kernel/hostname", "/sys/x", "/dev/x"] {
        assert_fails(server, &format!("echo x > {path}"));
    }
    assert_prints(server, "cat /proc/kcore /proc/keys /proc/timer_list 2>/dev/null; ls /sys/firmware", "");
    let (_, mounts) = sh(server, "cat /proc/self/mounts");
    for line in mounts.lines() {
        let options = line.split(' ').nth(3).unwrap();
        assert!(options.contains("nosuid"), "{line}");
        // Harmless devices, and /dev/null over hidden files.
        let is_device = line.contains(" /dev/") || line.contains(" /proc/");
        assert!(options.contains("nodev") || is_device, "{line}");
    }
}

fn privileges_cannot_be_regained() {
    let server = &in_sandbox();
    let (_, status) = sh(server, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
    for line in status.lines() {
        let (name, value) = line.split_once(":\t").unwrap();
        match name {
            "NoNewPrivs" => assert_eq!(value, "1"),
            "Seccomp" => assert_eq!(value, "2"),
            _ => assert_eq!(value, "0000000000000000", "{name}"),
        }
    }
    for attempt in [
        "unshare -U true",
        "unshare -r true",
        "unshare -m true",
        "mount -t tmpfs none /tmp",
        "mount --bind / /tmp",
        "umount /workspace",
        "mknod /tmp/sda b 8 0",
        "chroot / true",
        "chown 0 /tmp",
        "hostname other",
        "nsenter -t 1 -m true",
        "nsenter -t 1 -U true",
        "su -c true",
        "cat /dev/mem",
        "kill -9 1 && sleep 1 && kill -0 1 && false",
        "echo 1 > /proc/sysrq-trigger",
        "echo -1000 > /proc/self/oom_score_adj",
    ] {
        assert_fails(server, attempt);
    }
}

fn network_is_isolated() {
    let server = &in_sandbox();
    assert_prints(server, "ls /sys/class/net", "lo\n");
    assert_prints(
        server,
        "perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0) or die; bind(S,sockaddr_in(0,INADDR_LOOPBACK)) or die; listen(S,1) or die; print qq(listens\\n)'",
        "listens\n",
    );
    for (family, kind, protocol) in
        [("PF_INET", "SOCK_RAW", 1), ("17", "SOCK_RAW", 0), ("40", "SOCK_STREAM", 0)]
    {
        assert_fails(server, &format!("perl -MSocket -e 'socket(S,{family},{kind},{protocol}) or exit 1'"));
    }
    // A server on the host cannot be reached.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_fails(
        server,
        &format!(
            "perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0) or die; connect(S,sockaddr_in({port},INADDR_LOOPBACK)) or exit 1'"
        ),
    );
}

fn dangerous_syscalls_are_rejected() {
    let server = &in_sandbox();
    for (name, number, arguments) in [
        ("unshare", libc::SYS_unshare, "0"),
        ("setns", libc::SYS_setns, "0, 0"),
        ("bpf", libc::SYS_bpf, "0, 0, 0"),
        ("add_key", libc::SYS_add_key, "0, 0, 0, 0, 0"),
        ("keyctl", libc::SYS_keyctl, "0, -3, 1"),
        ("perf_event_open", libc::SYS_perf_event_open, "0, 0, 0, 0, 0"),
        ("io_uring_setup", libc::SYS_io_uring_setup, "1, 0"),
        ("userfaultfd", libc::SYS_userfaultfd, "0"),
        ("kexec_load", libc::SYS_kexec_load, "0, 0, 0, 0"),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, "0, 0, 0"),
        ("clone with a user namespace", libc::SYS_clone, "0x10000000, 0, 0, 0, 0"),
    ] {
        let call = format!("perl -e '$! = 0; syscall({number}, {arguments}); print $!+0'");
        assert_eq!(sh(server, &call), (0, libc::EPERM.to_string()), "{name}");
    }
    for missing in [libc::SYS_clone3, 1000] {
        let call = format!("perl -e '$! = 0; syscall({missing}, 0, 0); print $!+0'");
        assert_prints(server, &call, &libc::ENOSYS.to_string());
    }
}

fn agent_memory_and_descriptors_are_protected() {
    let server = &in_sandbox();
    for path in ["mem", "environ", "fd/0", "root/etc/passwd", "cwd/etc/passwd", "maps"] {
        assert_fails(server, &format!("cat /proc/1/{path}"));
    }
    assert_fails(server, "ls /proc/1/fd/");
    let (_, all) = sh(server, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; env; ls -l /proc/self/fd");
    assert!(!all.contains(&server.token_text()), "{all}");
    assert!(!all.contains("/output"), "a descriptor of the output directory was inherited: {all}");
}

/// A supervisor has a copy of the agent's memory, data of the commands that it ran before, and the socket on which it
/// receives its next program (descriptor 5).
fn supervisor_memory_and_descriptors_are_protected() {
    let server = &in_sandbox();
    for path in ["mem", "environ", "fd/5", "root/etc/passwd", "cwd/etc/passwd", "maps"] {
        assert_fails(server, &format!("cat /proc/$PPID/{path}"));
    }
    for attempt in ["ls /proc/$PPID/fd/", "echo 500 > /proc/$PPID/oom_score_adj"] {
        assert_fails(server, attempt);
    }
}

/// Returns the error number of a system call in a command; 0 for success. Structures are variables, because
/// perl lets a call write to them.
fn error_of(server: &TestServer, call: libc::c_long, arguments: &str) -> i32 {
    let text = format!(
        "perl -e 'my $none = pack(q(QQ), 0, 0); my $some = pack(q(QQ), 64, 64); my $cpu = pack(q(Q), 1); \
         my $param = pack(q(L), 0); my $attr = pack(q(LLQlLQQQ), 48, 5, 0, 0, 0, 0, 0, 0); \
         print syscall({call}, {arguments}) < 0 ? $!+0 : 0'"
    );
    let (code, out) = sh(server, &text);
    assert_eq!(code, 0, "{out}");
    out.parse().unwrap()
}

fn commands_cannot_change_limits_or_scheduling_of_the_agent() {
    let server = &in_sandbox();
    for (name, call, arguments) in [
        ("prlimit64 of processes", libc::SYS_prlimit64, "1, 6, $none, 0"),
        ("prlimit64 of files", libc::SYS_prlimit64, "1 | 1 << 32, 7, $none, 0"),
        ("sched_setaffinity", libc::SYS_sched_setaffinity, "1, 8, $cpu"),
        ("sched_setscheduler", libc::SYS_sched_setscheduler, "1, 5, $param"),
        ("sched_setparam", libc::SYS_sched_setparam, "1, $param"),
        ("sched_setattr", libc::SYS_sched_setattr, "1, $attr, 0"),
        ("setpriority of the process", libc::SYS_setpriority, "0, 1, 19"),
        ("setpriority of the group", libc::SYS_setpriority, "1, 1, 19"),
        ("setpriority of the user", libc::SYS_setpriority, "2, 0, 19"),
        ("ioprio_set of the process", libc::SYS_ioprio_set, "1, 1, 3 << 13"),
        ("ioprio_set of the group", libc::SYS_ioprio_set, "2, 1, 3 << 13"),
        ("ioprio_set of the user", libc::SYS_ioprio_set, "3, 1000, 3 << 13"),
    ] {
        assert_eq!(error_of(server, call, arguments), libc::EPERM, "{name}");
        assert_prints(server, "echo lives", "lives\n");
    }
    assert_eq!(error_of(server, libc::SYS_prlimit64, "1, 7, 0, $none"), 0, "limits can be read");
}

fn commands_can_change_their_own_limits_and_scheduling() {
    let server = &in_sandbox();
    for (name, call, arguments) in [
        ("prlimit64 of itself", libc::SYS_prlimit64, "0, 7, $some, 0"),
        ("prlimit64 by PID", libc::SYS_prlimit64, "$$ + 0, 7, $some, 0"),
        ("sched_setaffinity of itself", libc::SYS_sched_setaffinity, "0, 8, $cpu"),
        // As thread libraries do for threads.
        ("sched_setaffinity by PID", libc::SYS_sched_setaffinity, "$$ + 0, 8, $cpu"),
        ("setpriority of itself", libc::SYS_setpriority, "0, 0, 5"),
        ("setpriority of its group", libc::SYS_setpriority, "1, 0, 5"),
        ("ioprio_set by PID", libc::SYS_ioprio_set, "1, $$ + 0, 3 << 13"),
    ] {
        assert_eq!(error_of(server, call, arguments), 0, "{name}");
    }
}

fn killing_the_agent_kills_all_processes() {
    let server = &in_sandbox();
    let mark = format!("7{}", std::process::id());
    server.begin(RunCommandRequest {
        command: format!("setsid sleep {mark} & sleep {mark}"),
        ..RunCommandRequest::default()
    });
    let lines = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line).starts_with(&format!("sleep\0{mark}"))).count()
    };
    let soon = |count: usize| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while lines() != count {
            assert!(std::time::Instant::now() < deadline, "{} processes", lines());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    soon(2);
    server.kill_guest();
    soon(0);
}
