//! A sandbox takes all it can get: it suffers, the server and its neighbour do not.
//!
//! What is asserted follows what the machine can enforce: `notApplied` of a sandbox says what it cannot.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::house::{House, PATIENCE, full, names, soon, within};

/// A greedy sandbox and its neighbour.
struct Street {
    house: House,
    greedy: String,
    neighbour: String,
}

/// A process beside the server that ends with the test.
struct Outside(std::process::Child);

impl Outside {
    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Street {
    fn new(resources: &Value) -> Self {
        Self::with(resources, &[])
    }

    fn with(resources: &Value, variables: &[(&str, &str)]) -> Self {
        let house = House::with(variables);
        let neighbour = house.create();
        let greedy = house.create_with(json!({ "resources": resources }));
        Self { house, greedy, neighbour }
    }

    /// Whether the machine limits this.
    fn limits(&self, what: &str) -> bool {
        let sandbox = self.house.sandbox(&self.greedy);
        let missing = sandbox["notApplied"].as_array().unwrap();
        let limited = !missing.iter().any(|one| one.as_str().unwrap().contains(what));
        if !limited {
            eprintln!("not asserted, because this machine has no limit of {what}");
        }
        limited
    }

    /// Runs a program of perl outside, with the socket of the greedy one's guest; it ends with what is returned.
    fn perl(&self, program: &str) -> Outside {
        let place = self.house.path().join("sandboxes").join(&self.greedy);
        let mut command = std::process::Command::new("perl");
        command.args(["-e", program]).arg(place.join("sockets/agent.sock"));
        Outside(command.spawn().unwrap())
    }

    /// The neighbour does its work; `bench/tenants` measures how soon.
    #[track_caller]
    fn assert_calm(&self) {
        let began = Instant::now();
        assert_eq!(self.house.run(&self.neighbour, "true")["exitCode"], 0);
        assert_eq!(self.house.get("/health").status, 200);
        assert!(began.elapsed() < PATIENCE, "the neighbour waited {:?}", began.elapsed());
    }

    /// Starts something, and looks at the neighbour while it runs.
    fn bear(&self, command: &str, rounds: u32) -> String {
        let id = self.house.begin(&self.greedy, json!({"command": command, "timeout": 0}));
        for _ in 0..rounds {
            self.assert_calm();
            std::thread::sleep(Duration::from_millis(200));
        }
        id
    }

    /// Everything goes away.
    fn clear(&self) {
        let guest = self.house.guest(&self.greedy);
        let began = Instant::now();
        self.house.delete(&self.greedy);
        assert!(began.elapsed() < PATIENCE, "deleting took {:?}", began.elapsed());
        assert!(!guest.is_some_and(|guest| guest.is_running()));
        soon("its files are gone", || self.house.places() == std::slice::from_ref(&self.neighbour));
        soon("the other is gone", || self.house.workspaces() == std::slice::from_ref(&self.neighbour));
        if rustix::process::geteuid().is_root() {
            assert!(!workspace_host::cgroup::ids().unwrap().contains(&self.greedy));
        }
        self.assert_calm();
    }
}

#[test]
fn a_fork_bomb_stays_where_it_is() {
    let street = Street::new(&json!({"processes": 64, "cpu": "0.5"}));
    if street.limits("processes") {
        street.bear("bomb() { bomb | bomb & }; bomb; sleep 1000", 5);
        let stats = street.house.get(&format!("/api/v1/sandboxes/{}/stats", street.greedy)).json();
        assert!(stats["processes"].as_u64().unwrap() <= 64, "{stats}");
    }
    street.clear();
}

#[test]
fn a_command_that_eats_memory_ends_and_the_sandbox_goes_on() {
    let street = Street::new(&json!({"memory": "64m"}));
    if street.limits("memory") {
        let eater = street.bear("head -c 400m /dev/zero | tail -c 400m | wc -c", 2);
        within(Duration::from_secs(20), "it ends", || {
            street.house.sandbox(&street.greedy)["state"] != "running"
                || street.house.command(&street.greedy, &eater)["state"] != "running"
        });
        // Files in memory count too, and leave room for processes.
        if street.house.sandbox(&street.greedy)["state"] == "running" {
            street.house.run(&street.greedy, "head -c 400m /dev/zero > /tmp/file; rm -f /tmp/file");
        }
    }
    street.clear();
}

#[test]
fn a_workspace_beyond_its_limit_stops_the_sandbox_and_says_why() {
    let street = Street::new(&json!({"disk": "8m"}));
    street.bear("head -c 64m /dev/zero > file; sleep 1000", 2);
    soon("it is stopped", || street.house.sandbox(&street.greedy)["state"] == "stopped");
    let sandbox = street.house.sandbox(&street.greedy);
    assert!(sandbox["stateReason"].as_str().unwrap().contains("bytes"), "{sandbox}");
    let path = format!("/api/v1/sandboxes/{}/process/run", street.greedy);
    assert_eq!(street.house.post(&path, &json!({"command": "true"})).error(), "SANDBOX_NOT_RUNNING");
    street.clear();
}

#[test]
fn many_small_files_and_deep_directories_are_cleared_away() {
    let street = Street::new(&json!({"disk": "1g"}));
    let fill = "for a in $(seq 20); do mkdir d$a; (cd d$a; seq 500 | xargs touch); done; \
                i=0; while [ $i -lt 300 ]; do mkdir deep && cd deep || exit; i=$((i+1)); done; chmod 0 .";
    street.bear(fill, 3);
    street.clear();
}

#[test]
fn open_files_are_the_sandboxes_own() {
    let street = Street::new(&json!({}));
    let open = "perl -e 'my @f; while (open(my $f, \"<\", \"/dev/null\")) { push @f, $f } print scalar(@f), \"\\n\"; sleep 1000'";
    street.bear(open, 3);
    street.clear();
}

/// Makes pipes until they are smaller than usual, 5,000 at most, and keeps them.
const TAKE_PIPES: &str = "perl -e 'my @kept; for (1..5000) { pipe(my $r, my $w) or last; push @kept, $r, $w; \
                          last if fcntl($r, 1032, 0) < 65536 } open(my $f, q(>), q(taken)); print $f qq(x); close $f; sleep 1000'";

#[test]
fn what_the_kernel_counts_for_a_user_is_left_for_the_neighbour() {
    use workspace_host::{Holder, own_users};
    let street = Street::new(&json!({}));
    let ready = street.house.get("/ready").body;
    let can = rustix::process::geteuid().is_root()
        && own_users::probe(&Holder::Machine, street.house.path(), true).is_ok();
    assert_eq!(!ready.contains("no user ids of their own"), can, "{ready}");
    let users = [&street.greedy, &street.neighbour].map(|id| {
        let pid = street.house.guest(id).unwrap().pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find(|line| line.starts_with("Uid:")).unwrap().to_owned()
    });
    assert_eq!(users[0] != users[1], can, "{users:?}");
    let most = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").unwrap();
    if !can || !(1024..=65_536).contains(&most.trim().parse::<u64>().unwrap()) {
        return;
    }
    street.house.begin(&street.greedy, json!({"command": TAKE_PIPES, "timeout": 0}));
    soon("all pages are taken", || street.house.out(&street.greedy, "cat taken 2>/dev/null; true") == "x");
    let size = "perl -e 'pipe(my $r, my $w); print fcntl($r, 1032, 0)'";
    assert!(street.house.out(&street.greedy, size).parse::<u64>().unwrap() < 65_536);
    assert_eq!(street.house.out(&street.neighbour, size), "65536");
}

#[test]
fn a_flood_of_output_is_kept_in_bounds() {
    let street = Street::with(&json!({"cpu": "0.5"}), &[("OUTPUT_KEEP", "1m")]);
    let before = street.house.resident();
    street.bear("yes", 4);
    street.bear("cat /dev/urandom >&2", 4);
    let output = street.house.path().join("sandboxes").join(&street.greedy).join("output");
    let size: u64 = names(&output)
        .iter()
        .filter_map(|name| std::fs::metadata(output.join(name)).ok())
        .map(|file| file.len())
        .sum();
    assert!(size < 8 << 20, "{size} bytes are kept of two commands");
    let grown = street.house.resident().saturating_sub(before);
    assert!(grown < 64 << 20, "the server grew by {} MiB", grown >> 20);
    street.clear();
}

#[test]
fn thousands_of_short_commands_leave_nothing_behind() {
    let street = Street::with(&json!({}), &[("COMMANDS_KEPT", "100")]);
    let count = if full() { 10_000 } else { 2_000 };
    let run = |n: u64| {
        for _ in 0..n {
            assert_eq!(street.house.run(&street.greedy, "true")["exitCode"], 0);
        }
    };
    run(100);
    let (before, began) = (street.house.resident(), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| run(count / 4));
        }
        scope.spawn(|| {
            for _ in 0..20 {
                street.assert_calm();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
    });
    eprintln!("{count} commands took {:?}", began.elapsed());
    let grown = street.house.resident().saturating_sub(before);
    assert!(grown < 64 << 20, "the server grew by {} MiB", grown >> 20);
    let output = street.house.path().join("sandboxes").join(&street.greedy).join("output");
    soon("old output is gone", || names(&output).len() <= 120);
    let processes = street.house.out(&street.greedy, "ls -d /proc/[0-9]* | wc -l");
    assert!(processes.trim().parse::<u32>().unwrap() < 10, "{processes}");
    street.clear();
}

#[test]
fn many_terminals_opened_and_closed_leave_nothing_behind() {
    let street = Street::with(&json!({}), &[("COMMANDS_KEPT", "100")]);
    let count = if full() { 1_000 } else { 150 };
    let path = format!("/api/v1/sandboxes/{}/pty", street.greedy);
    let size = json!({"cols": 80, "rows": 24, "shell": "/bin/sh"});
    for _ in 0..count {
        let mut pty = Value::Null;
        soon("there is room for a terminal", || {
            let answer = street.house.post(&path, &size);
            pty = answer.json()["id"].clone();
            answer.status == 201
        });
        let closed = street.house.call("DELETE", &format!("{path}/{}", pty.as_str().unwrap())).send();
        assert_eq!(closed.status, 204, "{}", closed.body);
    }
    soon("all have ended", || {
        let processes = street.house.out(&street.greedy, "ls -d /proc/[0-9]* | wc -l");
        processes.trim().parse::<u32>().unwrap() < 10
    });
    street.assert_calm();
    street.clear();
}

/// Connects to a guest's socket again and again, silent or with garbage. Code in a sandbox of the embedded runtime cannot
/// reach it, in a container it can; so this is done from outside.
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
fn a_sandbox_that_floods_its_own_socket_harms_itself_alone() {
    let street = Street::new(&json!({"cpu": "0.5"}));
    let before = street.house.resident();
    assert_eq!(street.house.out(&street.greedy, "find / -name agent.sock 2>/dev/null; true"), "");
    let mut flood = street.perl(FLOOD);
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(200));
        street.assert_calm();
    }
    assert!(flood.is_running(), "the flood ended by itself");
    // The line that the guest has stays.
    assert_eq!(street.house.out(&street.greedy, "echo usable"), "usable\n");
    let grown = street.house.resident().saturating_sub(before);
    assert!(grown < 64 << 20, "the server grew by {} MiB", grown >> 20);
    street.clear();
}

#[test]
fn silent_connections_to_its_socket_do_not_lock_a_guest_out() {
    let mut street = Street::new(&json!({}));
    // Twenty connections that say nothing, made anew when they are closed.
    let _hold = street.perl(
        "use Socket; my ($p) = @ARGV; while (1) { my @s; for (1..20) { socket(my $s, PF_UNIX, SOCK_STREAM, 0); \
         connect($s, pack_sockaddr_un($p)); push @s, $s } sysread($s[0], my $b, 1); \
         select(undef, undef, undef, 0.01) }",
    );
    std::thread::sleep(Duration::from_millis(500));
    street.house.restart();
    soon("its guest is back", || street.house.sandbox(&street.greedy)["agentConnected"] == true);
    assert_eq!(street.house.out(&street.greedy, "echo usable"), "usable\n");
    street.clear();
}
