//! Egress of sandboxes, in a test network.

use std::net::{SocketAddrV4, TcpListener};
use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::Signal;
use workspace_host::HostErrorKind;
use workspace_host::network::{Egress, Uplink};
use workspace_test_support::network::{
    self, BULK_SIZE, DNS_SERVER, HOST, INTERNET, TestNetwork, processes, serve_local_address,
};
use workspace_test_support::{ordinary_user, requires, runs_as_root, wait_until};

use crate::guest::{Fixture, Sandbox};
use crate::launcher::signal;

/// First argument of this program when it is started again in a network of its own, and there as another user.
const IN_NETWORK: &str = "in-test-network";
const AS_ORDINARY_USER: &str = "in-test-network-as-ordinary-user";
const PASTA: &str = "pasta";
const SLIRP: &str = "slirp4netns";
const ROOT: &str = "root";
const ORDINARY: &str = "ordinary_user";
/// Tests that change the network of the host.
const NEEDS_ROOT: [&str; 1] = ["an_address_that_the_host_gets_later_is_denied"];
const NETWORK_DAEMON: &str = "network-daemon";
/// Names of the uplink processes; `pasta` has several.
const PROGRAMS: [&str; 3] = ["pasta", "passt", "slirp4netns"];
/// Lets the ordinary user of the test host open the device, as on most hosts.
const OPEN_TUN: &str = "mknod \"$1\" c 10 200 && chmod 0666 \"$1\" && mount --bind \"$1\" /dev/net/tun";

/// Puts a `pasta` first in the path that claims to be recent: no test closes one half of a connection early.
const PRETEND: &str = r#"
mount -t tmpfs -o mode=0755 tmpfs /opt
printf '#!/bin/bash\ncase $1 in --help) echo --map-host-loopback ;; *) exec -a pasta /usr/bin/passt "$@" ;; esac\n' >/opt/pasta
chmod 0755 /opt/pasta"#;
const HIDE: &str = "mount --bind /dev/null /usr/bin/pasta && mount -t tmpfs -o mode=0755 tmpfs /opt";

/// Returns every test for both uplinks, as root and as an ordinary user, each in a network of its own.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = crate::trials![the_unavailable_reason_names_the_missing_program_or_device];
    for uplink in [PASTA, SLIRP] {
        for user in [ROOT, ORDINARY] {
            for test in suite() {
                let name = test.name().to_owned();
                if user == ORDINARY && NEEDS_ROOT.contains(&name.as_str()) {
                    continue;
                }
                trials.push(Trial::test(format!("egress::{uplink}::{user}::{name}"), move || {
                    in_test_network(uplink, user, &name)
                }));
            }
        }
    }
    trials
}

fn the_unavailable_reason_names_the_missing_program_or_device() {
    let opened = std::fs::File::options().read(true).write(true).open("/dev/net/tun");
    let lacks = workspace_host::network::unavailable_reason();
    match (opened, Path::new("/usr/bin/slirp4netns").exists()) {
        (Ok(_), true) => assert_eq!(lacks, None),
        (Err(_), true) => assert!(lacks.as_ref().unwrap().contains("/dev/net/tun"), "{lacks:?}"),
        _ => {}
    }
}

fn in_test_network(uplink: &str, user: &str, test: &str) -> Result<(), Failed> {
    // As root, the tests run as an ordinary user as well.
    if !runs_as_root("can make a test network") {
        return Ok(());
    }
    let is_installed = |program: &str| Path::new("/usr/bin").join(program).exists();
    if !requires(
        ["pasta", "slirp4netns", "ip"].into_iter().all(is_installed),
        "passt, slirp4netns and iproute2",
    ) {
        return Ok(());
    }
    let status = network::in_own_network(&[IN_NETWORK, uplink, user, test])?;
    if status.success() { Ok(()) } else { Err(Failed::from("see above")) }
}

/// Runs a test in its network, if this process was started for that.
pub(crate) fn run() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [IN_NETWORK, uplink, user, test] => {
            let prepare = if *uplink == PASTA { PRETEND } else { HIDE };
            assert!(Command::new("sh").args(["-c", prepare]).status().unwrap().success());
            let _network = TestNetwork::start();
            Some(if *user == ORDINARY { as_ordinary_user(test) } else { run_test(test) })
        }
        [AS_ORDINARY_USER, test] => Some(run_test(test)),
        _ => None,
    }
}

fn run_test(name: &str) -> ExitCode {
    let arguments = Arguments { filter: Some(name.to_owned()), exact: true, ..Arguments::default() };
    libtest_mimic::run(&arguments, suite()).exit_code()
}

fn suite() -> Vec<Trial> {
    crate::trials![
        without_an_allow_list_everything_but_the_host_is_reachable,
        with_an_allow_list_only_its_entries_are_reachable,
        bulk_data_and_packets_arrive_unchanged,
        allowed_names_resolve_and_their_addresses_are_reachable,
        no_name_leads_to_the_host_or_to_denied_ranges,
        denied_connections_fail_at_once,
        ignoring_routes_does_not_bypass_the_policy,
        the_network_cannot_be_changed_from_inside,
        a_port_of_the_host_can_be_allowed,
        the_network_daemon_has_only_the_capability_net_admin,
        without_its_network_daemon_a_sandbox_reaches_nothing,
        the_network_ends_with_the_sandbox,
        a_sandbox_without_its_network_does_not_start,
        an_address_that_the_host_gets_later_is_denied,
    ]
}

fn as_ordinary_user(test: &str) -> ExitCode {
    let home = tempfile::tempdir().unwrap();
    let tun = home.path().join("tun");
    let opened = Command::new("sh").args(["-c", OPEN_TUN, "sh"]).arg(tun).status().unwrap();
    assert!(opened.success());
    let mut command = ordinary_user::command(&std::env::current_exe().unwrap());
    let status = command.args([AS_ORDINARY_USER, test]).status().unwrap();
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn egress(allow: Option<&[&str]>) -> Egress {
    Egress {
        allow: allow.map(|list| list.iter().map(|text| text.parse().unwrap()).collect()),
        deny: vec!["169.254.0.0/16".parse().unwrap()],
        except: Vec::new(),
        dns: Some(DNS_SERVER.parse().unwrap()),
        uplink: Uplink::UserMode,
    }
}

/// Returns what a sandbox reads from a port: the address there, or nothing.
#[track_caller]
fn get(sandbox: &Sandbox<'_>, host: &str, port: u16) -> String {
    let script = format!("timeout 5 bash -c 'exec 3<>/dev/tcp/{host}/{port} && cat <&3' 2>/dev/null");
    sandbox.sh(&script).trim().to_owned()
}

/// Returns the PID of the only network daemon, once those of ended sandboxes are gone.
#[track_caller]
fn network_daemon() -> i32 {
    let (mut daemons, mut programs) = (Vec::new(), Vec::new());
    wait_until("there is one daemon and one uplink", || {
        (daemons, programs) = (processes(&[NETWORK_DAEMON]), processes(&PROGRAMS));
        (daemons.len(), programs.len()) == (1, 1)
    });
    daemons[0]
}

/// Returns a port of the host that listens on all of its addresses.
fn port_of_machine() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    serve_local_address(listener);
    port
}

fn without_an_allow_list_everything_but_the_host_is_reachable() {
    let (home, egress) = (Fixture::new(), egress(None));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    for address in &INTERNET[..3] {
        assert_eq!(get(&sandbox, address, 80), *address);
    }
    let port = port_of_machine();
    for address in HOST.iter().chain(&["127.0.0.1", "127.1.2.3", "0.0.0.0", "192.88.99.1", "192.88.99.2"]) {
        assert_eq!(get(&sandbox, address, port), "", "{address}");
    }
    assert_eq!(get(&sandbox, INTERNET[3], 80), "", "denied by the settings");
    assert_eq!(get(&sandbox, "other.test", 80), INTERNET[2]);
    assert_eq!(sandbox.sh("cat /etc/resolv.conf"), "nameserver 127.0.0.1\n");
}

fn with_an_allow_list_only_its_entries_are_reachable() {
    let allow = ["198.51.100.0/24", "169.254.169.254", "10.0.0.0/8"];
    let (home, egress) = (Fixture::new(), egress(Some(&allow)));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    for address in [INTERNET[0], INTERNET[1], INTERNET[3]] {
        assert_eq!(get(&sandbox, address, 80), address);
    }
    assert_eq!(get(&sandbox, "10.77.0.2", 80), "10.77.0.2", "in the machine's network, and not the machine");
    let port = port_of_machine();
    for address in HOST {
        assert_eq!(get(&sandbox, address, port), "", "{address}");
    }
    assert_eq!(get(&sandbox, INTERNET[2], 80), "");
    assert_eq!(get(&sandbox, "one.example.com", 80), "", "no names are on the list");
}

fn bulk_data_and_packets_arrive_unchanged() {
    let (home, egress) = (Fixture::new(), egress(Some(&["198.51.100.10", "10.77.0.2"])));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    let much = format!(
        "cd /workspace; head -c {BULK_SIZE} /dev/urandom >much
        timeout 20 bash -c 'exec 3<>/dev/tcp/{0}/81; cat much >&3; head -c {BULK_SIZE} <&3 | cmp - much && echo same'",
        INTERNET[0]
    );
    assert_eq!(sandbox.sh(&much), "same\n");
    for length in [1, 1_400, 8_000] {
        let packet = format!(
            "head -c {length} /workspace/much >/tmp/packet
            timeout 5 bash -c 'exec 3<>/dev/udp/10.77.0.2/82; cat /tmp/packet >&3
            head -c {length} <&3 | cmp - /tmp/packet && echo same'"
        );
        assert_eq!(sandbox.sh(&packet), "same\n", "{length}");
    }
}

fn allowed_names_resolve_and_their_addresses_are_reachable() {
    let allow = ["one.example.com", "*.example.org"];
    let (home, egress) = (Fixture::new(), egress(Some(&allow)));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    for address in &INTERNET[..3] {
        assert_eq!(get(&sandbox, address, 80), "", "no name was resolved yet");
    }
    assert_eq!(get(&sandbox, "ONE.example.com", 80), INTERNET[0]);
    assert_eq!(get(&sandbox, INTERNET[0], 80), INTERNET[0]);
    assert_eq!(get(&sandbox, INTERNET[1], 80), "", "the address belongs to another name");
    assert_eq!(get(&sandbox, "deep.two.example.org", 80), INTERNET[1]);
    for name in ["other.test", "example.org", "x.one.example.com", "nobody.example.org"] {
        assert_eq!(get(&sandbox, name, 80), "", "{name}");
        assert_eq!(sandbox.sh(&format!("getent ahosts {name}; echo $?")), "2\n", "{name}");
    }
    assert_eq!(sandbox.sh("getent ahostsv6 one.example.com; echo $?"), "2\n", "no IPv6");
    // More than fits in a packet, so that the query is repeated over TCP.
    let many = sandbox.sh("getent ahostsv4 many.example.org | grep -c STREAM");
    assert_eq!(many, "101\n");
    assert_eq!(get(&sandbox, INTERNET[2], 80), INTERNET[2]);
}

fn no_name_leads_to_the_host_or_to_denied_ranges() {
    let (home, egress) = (Fixture::new(), egress(Some(&["*.example.org"])));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    let port = port_of_machine();
    assert_eq!(get(&sandbox, "machine.example.org", port), "");
    assert_eq!(get(&sandbox, "loopback.example.org", port), "");
    assert_eq!(get(&sandbox, "metadata.example.org", 80), "");
    let found = sandbox.sh("getent ahostsv4 machine.example.org");
    assert!(found.contains(HOST[1]), "the name is known all the same: {found}");
}

fn denied_connections_fail_at_once() {
    let (home, egress) = (Fixture::new(), egress(Some(&["198.51.100.10"])));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    let began = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(get(&sandbox, INTERNET[2], 80), "");
        assert_eq!(get(&sandbox, "other.test", 80), "");
    }
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
}

/// Every program may bind to a link, set the link of a message, and disable routing.
const PAST_ROUTES: &str = r#"
import socket, struct, sys
def tcp(option, value, address):
    s = socket.socket(); s.settimeout(0.3)
    s.setsockopt(*option, value)
    s.connect(address); print("reached", address, s.recv(100))
def udp(address, flags):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.3)
    link = struct.pack("iII", socket.if_nametoindex("eth0"), 0, 0)
    s.sendmsg([b"x"], [(socket.IPPROTO_IP, 8, link)], flags, address)
    print("reached", address, s.recv(100))
for host in sys.argv[2:]:
    address = (host, int(sys.argv[1]))
    for attempt in [
        lambda: tcp((socket.SOL_SOCKET, 25), b"eth0\0", address),
        lambda: tcp((socket.SOL_SOCKET, socket.SO_DONTROUTE), 1, address),
        lambda: tcp((socket.IPPROTO_IP, 50), socket.htonl(socket.if_nametoindex("eth0")), address),
        lambda: udp(address, 0),
        lambda: udp(address, socket.MSG_DONTROUTE),
    ]:
        try: attempt()
        except OSError as error: pass
print("done")
"#;

fn ignoring_routes_does_not_bypass_the_policy() {
    let (home, egress) = (Fixture::new(), egress(Some(&["198.51.100.10"])));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    let port = port_of_machine();
    let answering = std::net::UdpSocket::bind(("0.0.0.0", port)).unwrap();
    std::thread::spawn(move || {
        while let Ok((_, from)) = answering.recv_from(&mut [0; 9]) {
            let _ = answering.send_to(b"here", from);
        }
    });
    std::fs::write(home.path("workspace/past.py"), PAST_ROUTES).unwrap();
    let hosts = [HOST[0], HOST[1], "127.0.0.1", "192.88.99.1", "192.88.99.2", "224.0.0.1", "255.255.255.255"];
    let of_machine = sandbox.sh(&format!("python3 /workspace/past.py {port} {}", hosts.join(" ")));
    assert_eq!(of_machine, "done\n");
    let of_internet = sandbox.sh(&format!("python3 /workspace/past.py 80 {} {}", INTERNET[2], INTERNET[3]));
    assert_eq!(of_internet, "done\n");
    let allowed = sandbox.sh(&format!("python3 /workspace/past.py 80 {}", INTERNET[0]));
    assert!(allowed.contains("reached"), "the attempts are real: {allowed}");
}

fn the_network_cannot_be_changed_from_inside() {
    let (home, egress) = (Fixture::new(), egress(Some(&["198.51.100.10"])));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    for change in [
        "route add 203.0.113.5 via 192.88.99.1 dev eth0 onlink",
        "route del unreachable 127.0.0.0/8",
        "addr add 10.9.9.9/8 dev eth0",
        "neigh add 203.0.113.5 lladdr 02:00:00:00:00:01 dev eth0",
        "link set eth0 down",
    ] {
        let said = sandbox.sh(&format!("ip {change}; echo $?"));
        assert!(said.contains("not permitted") && said.ends_with("2\n"), "{change}: {said}");
    }
    let addresses = sandbox.sh("ip -6 -br addr show dev eth0");
    assert_eq!(addresses, "", "no IPv6");
    assert_eq!(get(&sandbox, INTERNET[0], 80), INTERNET[0]);
}

fn a_port_of_the_host_can_be_allowed() {
    let (home, port, other) = (Fixture::new(), port_of_machine(), port_of_machine());
    let except = vec![SocketAddrV4::new(HOST[0].parse().unwrap(), port)];
    let egress = Egress { except, ..egress(Some(&["198.51.100.10"])) };
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    assert_eq!(get(&sandbox, HOST[0], port), HOST[0]);
    assert_eq!(get(&sandbox, HOST[0], other), "");
    assert_eq!(get(&sandbox, HOST[1], port), "");
    assert_eq!(get(&sandbox, INTERNET[0], 80), INTERNET[0]);
}

fn without_its_network_daemon_a_sandbox_reaches_nothing() {
    let (home, egress) = (Fixture::new(), egress(None));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    assert_eq!(get(&sandbox, INTERNET[0], 80), INTERNET[0]);
    let daemon = network_daemon();
    signal(daemon, Signal::KILL);
    wait_until("the uplink ends with its daemon", || processes(&PROGRAMS).is_empty());
    assert_eq!(get(&sandbox, INTERNET[0], 80), "");
    assert_eq!(get(&sandbox, HOST[0], port_of_machine()), "");
    assert!(sandbox.process.is_running());
}

fn the_network_daemon_has_only_the_capability_net_admin() {
    let (home, egress) = (Fixture::new(), egress(None));
    let _sandbox = home.launch(|launch| launch.egress = Some(&egress));
    let status = std::fs::read_to_string(format!("/proc/{}/status", network_daemon())).unwrap();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    for set in ["CapPrm:", "CapEff:"] {
        assert_eq!(field(set), "0000000000001000", "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    let users = field("Uid:");
    assert!(!users.split_whitespace().any(|user| user == "0"), "{users}");
}

fn the_network_ends_with_the_sandbox() {
    let (home, egress) = (Fixture::new(), egress(None));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    network_daemon();
    drop(sandbox);
    wait_until("daemon and uplink end", || {
        processes(&[NETWORK_DAEMON]).is_empty() && processes(&PROGRAMS).is_empty()
    });
}

fn a_sandbox_without_its_network_does_not_start() {
    let home = Fixture::new();
    let uplink = Uplink::Link {
        name: "nothing".to_owned(),
        address: "10.1.1.2".parse().unwrap(),
        gateway: "10.1.1.1".parse().unwrap(),
        network: "10.1.1.0/24".parse().unwrap(),
    };
    let egress = Egress { uplink, ..egress(None) };
    let error = home.try_launch(|launch| launch.egress = Some(&egress)).unwrap_err();
    assert!(
        error.kind() == HostErrorKind::Network && error.to_string().contains("there is no link `nothing`"),
        "{error}"
    );
    assert!(!home.guest_ran());
    wait_until("no network daemon is left", || processes(&[NETWORK_DAEMON]).is_empty());
}

fn an_address_that_the_host_gets_later_is_denied() {
    let (home, egress) = (Fixture::new(), egress(Some(&["203.0.113.0/24", "*.example.org"])));
    let sandbox = home.launch(|launch| launch.egress = Some(&egress));
    assert_eq!(get(&sandbox, INTERNET[2], 80), INTERNET[2]);
    assert_eq!(get(&sandbox, "two.example.org", 80), INTERNET[1]);
    let port = port_of_machine();
    for address in [INTERNET[2], INTERNET[1]] {
        let added = Command::new("ip").args(["addr", "add", &format!("{address}/32"), "dev", "lo"]).status();
        assert!(added.unwrap().success());
        wait_until("the address is denied", || get(&sandbox, address, port).is_empty());
        assert_eq!(get(&sandbox, address, 80), "");
        let removed =
            Command::new("ip").args(["addr", "del", &format!("{address}/32"), "dev", "lo"]).status();
        assert!(removed.unwrap().success());
    }
}
