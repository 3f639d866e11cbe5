//! A sandbox that exhausts a resource harms neither the server nor other sandboxes.
//!
//! The assertions depend on the limits that the machine can enforce: `notApplied` of a sandbox lists the others.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use workspace_test_support::skip;

use super::test_server::{TIMEOUT, TestServer, names, runs_slow_tests, wait_until, wait_until_within};

/// Server with a greedy sandbox and its neighbour.
struct Fixture {
    server: TestServer,
    greedy: String,
    neighbour: String,
}

/// Process outside of sandboxes, killed on drop.
struct OutsideProcess(std::process::Child);

impl OutsideProcess {
    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for OutsideProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Fixture {
    fn new(resources: &Value) -> Self {
        Self::with(resources, &[])
    }

    fn with(resources: &Value, variables: &[(&str, &str)]) -> Self {
        let server = TestServer::with(variables);
        let neighbour = server.create();
        let greedy = server.create_with(json!({ "resources": resources }));
        Self { server, greedy, neighbour }
    }

    /// Returns true if the machine can enforce this limit.
    fn can_limit(&self, what: &str) -> bool {
        let sandbox = self.server.sandbox(&self.greedy);
        let missing = sandbox["notApplied"].as_array().unwrap();
        let limited = !missing.iter().any(|one| one.as_str().unwrap().contains(what));
        if !limited {
            skip(format_args!("a part of it: this machine has no limit of {what}"));
        }
        limited
    }

    /// Runs a perl program outside, with the path of the guest socket of the greedy sandbox.
    fn perl(&self, program: &str) -> OutsideProcess {
        let place = self.server.path().join("sandboxes").join(&self.greedy);
        let mut command = std::process::Command::new("perl");
        command.args(["-e", program]).arg(place.join("sockets/agent.sock"));
        OutsideProcess(command.spawn().unwrap())
    }

    /// Checks that the neighbour works; `bench/tenants` measures how fast.
    #[track_caller]
    fn assert_neighbour_works(&self) {
        let began = Instant::now();
        assert_eq!(self.server.run(&self.neighbour, "true")["exitCode"], 0);
        assert_eq!(self.server.get("/health").status, 200);
        assert!(began.elapsed() < TIMEOUT, "the neighbour waited {:?}", began.elapsed());
    }

    /// Starts a command in the greedy sandbox, and checks the neighbour while it runs.
    fn run_beside_neighbour(&self, command: &str, rounds: u32) -> String {
        let id = self.server.start_background(&self.greedy, json!({"command": command, "timeout": 0}));
        for _ in 0..rounds {
            self.assert_neighbour_works();
            std::thread::sleep(Duration::from_millis(200));
        }
        id
    }

    /// Deletes the greedy sandbox, and checks that nothing of it is left.
    fn delete_greedy(&self) {
        let guest = self.server.guest_process(&self.greedy);
        let began = Instant::now();
        self.server.delete(&self.greedy);
        assert!(began.elapsed() < TIMEOUT, "deleting took {:?}", began.elapsed());
        assert!(!guest.is_some_and(|guest| guest.is_running()));
        wait_until("its files are gone", || {
            self.server.sandbox_directories() == std::slice::from_ref(&self.neighbour)
        });
        wait_until("the other is gone", || self.server.workspaces() == std::slice::from_ref(&self.neighbour));
        if rustix::process::geteuid().is_root() {
            assert!(!workspace_host::cgroup::ids().unwrap().contains(&self.greedy));
        }
        self.assert_neighbour_works();
    }
}

#[test]
fn a_fork_bomb_does_not_harm_others() {
    let fixture = Fixture::new(&json!({"processes": 64, "cpu": "0.5"}));
    if fixture.can_limit("processes") {
        fixture.run_beside_neighbour("bomb() { bomb | bomb & }; bomb; sleep 1000", 5);
        let stats = fixture.server.get(&format!("/api/v1/sandboxes/{}/stats", fixture.greedy)).json();
        assert!(stats["processes"].as_u64().unwrap() <= 64, "{stats}");
    }
    fixture.delete_greedy();
}

#[test]
fn a_command_out_of_memory_is_killed_and_the_sandbox_keeps_running() {
    let fixture = Fixture::new(&json!({"memory": "64m"}));
    if fixture.can_limit("memory") {
        let eater = fixture.run_beside_neighbour("head -c 400m /dev/zero | tail -c 400m | wc -c", 2);
        wait_until_within(Duration::from_secs(20), "it ends", || {
            fixture.server.sandbox(&fixture.greedy)["state"] != "running"
                || fixture.server.command(&fixture.greedy, &eater)["state"] != "running"
        });
        // Files in memory (tmpfs) count, too.
        if fixture.server.sandbox(&fixture.greedy)["state"] == "running" {
            fixture.server.run(&fixture.greedy, "head -c 400m /dev/zero > /tmp/file; rm -f /tmp/file");
        }
    }
    fixture.delete_greedy();
}

#[test]
fn a_workspace_above_its_limit_stops_the_sandbox_with_a_reason() {
    let fixture = Fixture::new(&json!({"disk": "8m"}));
    fixture.run_beside_neighbour("head -c 64m /dev/zero > file; sleep 1000", 2);
    wait_until("it is stopped", || fixture.server.sandbox(&fixture.greedy)["state"] == "stopped");
    let sandbox = fixture.server.sandbox(&fixture.greedy);
    assert!(sandbox["stateReason"].as_str().unwrap().contains("bytes"), "{sandbox}");
    let path = format!("/api/v1/sandboxes/{}/process/run", fixture.greedy);
    assert_eq!(fixture.server.post(&path, &json!({"command": "true"})).error(), "SANDBOX_NOT_RUNNING");
    fixture.delete_greedy();
}

#[test]
fn many_small_files_and_deep_directories_are_removed() {
    let fixture = Fixture::new(&json!({"disk": "1g"}));
    let fill = "for a in $(seq 20); do mkdir d$a; (cd d$a; seq 500 | xargs touch); done; \
                i=0; while [ $i -lt 300 ]; do mkdir deep && cd deep || exit; i=$((i+1)); done; chmod 0 .";
    fixture.run_beside_neighbour(fill, 3);
    fixture.delete_greedy();
}

#[test]
fn open_files_of_a_sandbox_do_not_harm_others() {
    let fixture = Fixture::new(&json!({}));
    let open = "perl -e 'my @f; while (open(my $f, \"<\", \"/dev/null\")) { push @f, $f } print scalar(@f), \"\\n\"; sleep 1000'";
    fixture.run_beside_neighbour(open, 3);
    fixture.delete_greedy();
}

/// Command that creates up to 5,000 pipes until they get smaller than the default, and keeps them.
const TAKE_PIPES: &str = "perl -e 'my @kept; for (1..5000) { pipe(my $r, my $w) or last; push @kept, $r, $w; \
                          last if fcntl($r, 1032, 0) < 65536 } open(my $f, q(>), q(taken)); print $f qq(x); close $f; sleep 1000'";

#[test]
fn kernel_quotas_per_user_are_not_shared_between_sandboxes() {
    use workspace_host::{LazyMount, NamespaceHolder, dedicated_uids};
    let fixture = Fixture::new(&json!({}));
    let ready = fixture.server.get("/ready").body;
    let can = rustix::process::geteuid().is_root()
        && dedicated_uids::probe(&NamespaceHolder::None, fixture.server.path(), LazyMount::Used).is_ok();
    assert_eq!(!ready.contains("no dedicated UIDs"), can, "{ready}");
    let users = [&fixture.greedy, &fixture.neighbour].map(|id| {
        let pid = fixture.server.guest_process(id).unwrap().pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find(|line| line.starts_with("Uid:")).unwrap().to_owned()
    });
    assert_eq!(users[0] != users[1], can, "{users:?}");
    let most = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").unwrap();
    if !can || !(1024..=65_536).contains(&most.trim().parse::<u64>().unwrap()) {
        return;
    }
    fixture.server.start_background(&fixture.greedy, json!({"command": TAKE_PIPES, "timeout": 0}));
    wait_until("all pages are taken", || {
        fixture.server.output_of(&fixture.greedy, "cat taken 2>/dev/null; true") == "x"
    });
    let size = "perl -e 'pipe(my $r, my $w); print fcntl($r, 1032, 0)'";
    assert!(fixture.server.output_of(&fixture.greedy, size).parse::<u64>().unwrap() < 65_536);
    assert_eq!(fixture.server.output_of(&fixture.neighbour, size), "65536");
}

#[test]
fn the_kept_output_is_bounded() {
    let fixture = Fixture::with(&json!({"cpu": "0.5"}), &[("OUTPUT_KEEP", "1m")]);
    let before = fixture.server.resident_bytes();
    fixture.run_beside_neighbour("yes", 4);
    fixture.run_beside_neighbour("cat /dev/urandom >&2", 4);
    let output = fixture.server.path().join("sandboxes").join(&fixture.greedy).join("output");
    let size: u64 = names(&output)
        .iter()
        .filter_map(|name| std::fs::metadata(output.join(name)).ok())
        .map(|file| file.len())
        .sum();
    assert!(size < 8 << 20, "{size} bytes are kept of two commands");
    let grown = fixture.server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "the server grew by {} MiB", grown >> 20);
    fixture.delete_greedy();
}

#[test]
fn thousands_of_short_commands_leak_nothing() {
    let fixture = Fixture::with(&json!({}), &[("COMMANDS_KEPT", "100")]);
    let count = if runs_slow_tests() { 10_000 } else { 2_000 };
    let run = |n: u64| {
        for _ in 0..n {
            assert_eq!(fixture.server.run(&fixture.greedy, "true")["exitCode"], 0);
        }
    };
    run(100);
    let (before, began) = (fixture.server.resident_bytes(), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| run(count / 4));
        }
        scope.spawn(|| {
            for _ in 0..20 {
                fixture.assert_neighbour_works();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
    });
    eprintln!("{count} commands took {:?}", began.elapsed());
    let grown = fixture.server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "the server grew by {} MiB", grown >> 20);
    let output = fixture.server.path().join("sandboxes").join(&fixture.greedy).join("output");
    wait_until("old output is gone", || names(&output).len() <= 120);
    let processes = fixture.server.output_of(&fixture.greedy, "ls -d /proc/[0-9]* | wc -l");
    assert!(processes.trim().parse::<u32>().unwrap() < 10, "{processes}");
    fixture.delete_greedy();
}

#[test]
fn many_terminals_leak_nothing() {
    let fixture = Fixture::with(&json!({}), &[("COMMANDS_KEPT", "100")]);
    let count = if runs_slow_tests() { 1_000 } else { 150 };
    let path = format!("/api/v1/sandboxes/{}/pty", fixture.greedy);
    let size = json!({"cols": 80, "rows": 24, "shell": "/bin/sh"});
    for _ in 0..count {
        let mut pty = Value::Null;
        wait_until("there is room for a terminal", || {
            let answer = fixture.server.post(&path, &size);
            pty = answer.json()["id"].clone();
            answer.status == 201
        });
        let closed = fixture.server.call("DELETE", &format!("{path}/{}", pty.as_str().unwrap())).send();
        assert_eq!(closed.status, 204, "{}", closed.body);
    }
    wait_until("all have ended", || {
        let processes = fixture.server.output_of(&fixture.greedy, "ls -d /proc/[0-9]* | wc -l");
        processes.trim().parse::<u32>().unwrap() < 10
    });
    fixture.assert_neighbour_works();
    fixture.delete_greedy();
}

/// Program that connects to the socket of a guest repeatedly, silently or with garbage. It runs outside, because code in an
/// embedded sandbox cannot reach the socket; code in a container can.
const FLOOD: &str = r#"
use Socket;
my ($path) = @ARGV;
my @open;
while (1) {
    socket(my $s, PF_UNIX, SOCK_STREAM, 0) or (sleep(1), next);
    fcntl($s, 4, 2048);
    if (connect($s, pack_sockaddr_un($path))) { syswrite($s, join("", map { chr(rand(256)) } 1..4096)) if rand() < 0.5 }
    push @open, $s;
    @open = () if @open > 500;
    select(undef, undef, undef, 0.001);
}
"#;

#[test]
fn a_sandbox_that_floods_its_socket_harms_only_itself() {
    let fixture = Fixture::new(&json!({"cpu": "0.5"}));
    let before = fixture.server.resident_bytes();
    assert_eq!(fixture.server.output_of(&fixture.greedy, "find / -name agent.sock 2>/dev/null; true"), "");
    let mut flood = fixture.perl(FLOOD);
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(200));
        fixture.assert_neighbour_works();
    }
    assert!(flood.is_running(), "the flood ended by itself");
    // The connection of the guest agent is not affected.
    assert_eq!(fixture.server.output_of(&fixture.greedy, "echo usable"), "usable\n");
    let grown = fixture.server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "the server grew by {} MiB", grown >> 20);
    fixture.delete_greedy();
}

#[test]
fn silent_connections_to_its_socket_do_not_lock_a_guest_out() {
    let mut fixture = Fixture::new(&json!({}));
    // Twenty silent connections, reopened when they are closed.
    let _hold = fixture.perl(
        "use Socket; my ($p) = @ARGV; while (1) { my @s; for (1..20) { socket(my $s, PF_UNIX, SOCK_STREAM, 0); \
         connect($s, pack_sockaddr_un($p)); push @s, $s } sysread($s[0], my $b, 1); \
         select(undef, undef, undef, 0.01) }",
    );
    std::thread::sleep(Duration::from_millis(500));
    fixture.server.restart();
    wait_until("its guest is back", || fixture.server.sandbox(&fixture.greedy)["agentConnected"] == true);
    assert_eq!(fixture.server.output_of(&fixture.greedy, "echo usable"), "usable\n");
    fixture.delete_greedy();
}
