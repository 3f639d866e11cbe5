//! The agent in a sandbox of the embedded runtime: what it can do there, and what nobody there can.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use workspace_agent_protocol::output::Stream;
use workspace_agent_protocol::v1::RunCommandRequest;
use workspace_host::Holder;
use workspace_host::Process;
use workspace_host::launch::{Launch, Template, launch};
use workspace_host::limits::Limits;

use crate::server::{Bench, Guest};

/// An ordinary user's id, of whom nothing on the machine is.
const ORDINARY: u32 = 61_234;

/// These tests; the superuser's run the others as somebody without rights once more.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = crate::trials![
        a_command_runs_as_nobody_special_in_its_workspace,
        what_is_written_to_the_workspace_is_there_outside,
        a_workspace_can_be_attached_to_a_guest_that_waits_for_one,
        nothing_of_the_machine_is_seen,
        rights_cannot_be_regained,
        there_is_no_network_but_its_own,
        system_calls_are_refused_that_nobody_inside_needs,
        the_agent_cannot_be_looked_into,
        commands_cannot_change_limits_or_scheduling_of_the_agent,
        commands_set_their_own_limits_and_scheduling,
        the_end_of_the_agent_is_the_end_of_all,
    ];
    if rustix::process::geteuid().is_root() {
        trials.push(Trial::test("all_of_it_as_an_ordinary_user", as_ordinary_user));
    }
    trials
}

/// The same tests as somebody without rights.
fn as_ordinary_user() -> Result<(), Failed> {
    let home = tempfile::tempdir()?;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777))?;
    let copy = |from: &Path, name: &str| -> std::io::Result<PathBuf> {
        let to = home.path().join(name);
        std::fs::copy(from, &to)?;
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755))?;
        Ok(to)
    };
    let tests = copy(&std::env::current_exe()?, "tests")?;
    let agent = copy(&agent_program(), "workspace-agent")?;
    let mut command = Command::new("setpriv");
    let id = ORDINARY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(tests);
    // Whose descriptors are open only the superuser may see.
    command.args(["--skip", "many_short_commands_leave_nothing_open"]);
    command.args(["--skip", "what_was_forgotten_and_runs_on_can_still_be_killed"]);
    let output = command.env("TMPDIR", home.path()).env("WORKSPACE_TEST_AGENT", agent).output()?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Failed::from(format!("{out}\n{err}")))
}

fn agent_program() -> PathBuf {
    let told = std::env::var_os("WORKSPACE_TEST_AGENT").map(PathBuf::from);
    told.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_workspace-agent")))
}

/// Every sandbox of the machine has its own.
fn id(home: &Path) -> String {
    let name = home.file_name().unwrap().to_string_lossy();
    format!("sbx-{}", name.trim_start_matches('.'))
}

/// A sandbox, and a server that its agent has dialled.
fn in_sandbox() -> Bench {
    in_sandbox_with(|workspace| Some(workspace))
}

/// The same, with or without its workspace.
fn in_sandbox_with(choose: impl Fn(&Path) -> Option<&Path>) -> Bench {
    Bench::start_as(|home, token| {
        let directory = |name: &str| -> PathBuf {
            let path = home.join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let workspace = directory("workspace");
        std::fs::set_permissions(&workspace, std::fs::Permissions::from_mode(0o777)).unwrap();
        let holder = Holder::find_or_start(home).unwrap();
        let launched = launch(&Launch {
            holder: &holder,
            id: &id(home),
            user: None,
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
        Box::new(Sandbox { id: id(home), process: launched.unwrap().process, holder })
    })
}

struct Sandbox {
    id: String,
    process: Process,
    holder: Holder,
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
        self.holder.end();
    }
}

/// What a command prints, stderr too, and how it ends.
#[track_caller]
fn sh(bench: &Bench, text: &str) -> (i32, String) {
    let request = RunCommandRequest { command: format!("exec 2>&1; {text}"), ..RunCommandRequest::default() };
    let ended = bench.run(request);
    (ended.exit_code, String::from_utf8_lossy(&ended.of(Stream::Stdout)).into_owned())
}

#[track_caller]
fn assert_prints(bench: &Bench, text: &str, expected: &str) {
    assert_eq!(sh(bench, text), (0, expected.to_owned()), "{text}");
}

#[track_caller]
fn assert_fails(bench: &Bench, text: &str) {
    let (code, out) = sh(bench, text);
    assert_ne!(code, 0, "`{text}` worked: {out}");
}

fn a_command_runs_as_nobody_special_in_its_workspace() {
    let bench = &in_sandbox();
    let id = id(bench.home());
    assert_prints(
        bench,
        "id -u; id -g; pwd; hostname; cat /proc/sys/kernel/hostname",
        &format!("1000\n1000\n/workspace\n{id}\n{id}\n"),
    );
    assert_prints(
        bench,
        "echo a | tr a b; test -w /tmp -a -w /home/sandbox && echo writable",
        "b\nwritable\n",
    );
    assert_prints(bench, "echo $HOME; whoami", "/home/sandbox\nsandbox\n");
    assert_eq!(sh(bench, "exit 5").0, 5);
}

fn what_is_written_to_the_workspace_is_there_outside() {
    let bench = &in_sandbox();
    assert_prints(bench, "mkdir -p a/b && echo hello > a/b/c && cat a/b/c", "hello\n");
    let outside = std::fs::read_to_string(bench.home().join("workspace/a/b/c")).unwrap();
    assert_eq!(outside, "hello\n");
    std::fs::write(bench.home().join("workspace/from-outside"), "good morning\n").unwrap();
    assert_prints(bench, "cat /workspace/from-outside", "good morning\n");
}

fn a_workspace_can_be_attached_to_a_guest_that_waits_for_one() {
    let bench = &in_sandbox_with(|_| None);
    let workspace = bench.home().join("workspace");
    std::fs::write(workspace.join("greeting"), "hello\n").unwrap();
    let holder = Holder::find_or_start(bench.home()).unwrap();
    let process = Process::read(&bench.home().join("process")).unwrap().unwrap();
    workspace_host::attach(&holder, &process, &workspace).unwrap();
    assert_prints(
        bench,
        "pwd; cat greeting; echo done > answer; umount /workspace 2>/dev/null || true",
        "/workspace\nhello\n",
    );
    assert_eq!(std::fs::read_to_string(workspace.join("answer")).unwrap(), "done\n");
}

fn nothing_of_the_machine_is_seen() {
    let bench = &in_sandbox();
    assert_prints(
        bench,
        "ls /root /var/lib /var/log /etc/shadow /etc/ssh /boot /media 2>/dev/null | wc -l",
        "0\n",
    );
    assert_prints(bench, "ls /home", "sandbox\n");
    // The agent has the server's socket by a descriptor; nobody else can reach it.
    assert_prints(bench, "ls -A /run; find / -name agent.sock 2>/dev/null; true", "");
    assert_fails(bench, "ls /proc/1/fd/24/");
    // Its own processes only: the agent is the first.
    assert_prints(
        bench,
        "cat /proc/1/comm; ls -d /proc/[0-9]* | wc -l | awk '{ print ($1 < 12) }'",
        "workspace-agent\n1\n",
    );
    for path in ["/usr/x", "/etc/x", "/x", "/proc/sys/kernel/hostname", "/sys/x", "/dev/x"] {
        assert_fails(bench, &format!("echo x > {path}"));
    }
    assert_prints(bench, "cat /proc/kcore /proc/keys /proc/timer_list 2>/dev/null; ls /sys/firmware", "");
    let (_, mounts) = sh(bench, "cat /proc/self/mounts");
    for line in mounts.lines() {
        let options = line.split(' ').nth(3).unwrap();
        assert!(options.contains("nosuid"), "{line}");
        // The harmless devices, and /dev/null over what is hidden.
        let is_device = line.contains(" /dev/") || line.contains(" /proc/");
        assert!(options.contains("nodev") || is_device, "{line}");
    }
}

fn rights_cannot_be_regained() {
    let bench = &in_sandbox();
    let (_, status) = sh(bench, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
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
        assert_fails(bench, attempt);
    }
}

fn there_is_no_network_but_its_own() {
    let bench = &in_sandbox();
    assert_prints(bench, "ls /sys/class/net", "lo\n");
    assert_prints(
        bench,
        "perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0) or die; bind(S,sockaddr_in(0,INADDR_LOOPBACK)) or die; listen(S,1) or die; print qq(listens\\n)'",
        "listens\n",
    );
    for (family, kind, protocol) in
        [("PF_INET", "SOCK_RAW", 1), ("17", "SOCK_RAW", 0), ("40", "SOCK_STREAM", 0)]
    {
        assert_fails(bench, &format!("perl -MSocket -e 'socket(S,{family},{kind},{protocol}) or exit 1'"));
    }
    // A server of the machine's cannot be reached.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_fails(
        bench,
        &format!(
            "perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0) or die; connect(S,sockaddr_in({port},INADDR_LOOPBACK)) or exit 1'"
        ),
    );
}

fn system_calls_are_refused_that_nobody_inside_needs() {
    let bench = &in_sandbox();
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
        assert_eq!(sh(bench, &call), (0, libc::EPERM.to_string()), "{name}");
    }
    for missing in [libc::SYS_clone3, 1000] {
        let call = format!("perl -e '$! = 0; syscall({missing}, 0, 0); print $!+0'");
        assert_prints(bench, &call, &libc::ENOSYS.to_string());
    }
}

fn the_agent_cannot_be_looked_into() {
    let bench = &in_sandbox();
    for path in ["mem", "environ", "fd/0", "root/etc/passwd", "cwd/etc/passwd", "maps"] {
        assert_fails(bench, &format!("cat /proc/1/{path}"));
    }
    assert_fails(bench, "ls /proc/1/fd/");
    let (_, all) = sh(bench, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; env; ls -l /proc/self/fd");
    assert!(!all.contains(&bench.token_text()), "{all}");
    assert!(!all.contains("/output"), "a descriptor of the output directory came along: {all}");
}

/// The error of a system call that a command makes; 0 for none. Structures for it are variables, because perl lets a call
/// write to them.
fn error_of(bench: &Bench, call: libc::c_long, arguments: &str) -> i32 {
    let text = format!(
        "perl -e 'my $none = pack(q(QQ), 0, 0); my $some = pack(q(QQ), 64, 64); my $cpu = pack(q(Q), 1); \
         my $param = pack(q(L), 0); my $attr = pack(q(LLQlLQQQ), 48, 5, 0, 0, 0, 0, 0, 0); \
         print syscall({call}, {arguments}) < 0 ? $!+0 : 0'"
    );
    let (code, out) = sh(bench, &text);
    assert_eq!(code, 0, "{out}");
    out.parse().unwrap()
}

fn commands_cannot_change_limits_or_scheduling_of_the_agent() {
    let bench = &in_sandbox();
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
        assert_eq!(error_of(bench, call, arguments), libc::EPERM, "{name}");
        assert_prints(bench, "echo lives", "lives\n");
    }
    assert_eq!(error_of(bench, libc::SYS_prlimit64, "1, 7, 0, $none"), 0, "limits can be read");
}

fn commands_set_their_own_limits_and_scheduling() {
    let bench = &in_sandbox();
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
        assert_eq!(error_of(bench, call, arguments), 0, "{name}");
    }
}

fn the_end_of_the_agent_is_the_end_of_all() {
    let bench = &in_sandbox();
    let mark = format!("7{}", std::process::id());
    bench.begin(RunCommandRequest {
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
    bench.end_guest();
    soon(0);
}
