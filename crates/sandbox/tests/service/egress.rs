//! Egress of sandboxes on every runtime, in network namespaces of the tests.
//!
//! `TestNetwork` (crate `test-support`) is a simulated host with an internet: [`HOST`] and [`INTERNET`] are their
//! addresses, and a DNS server resolves a few names to them. Each address of the internet replies on TCP port 80 with
//! itself. `TestHome::start_with` starts the service, and `sh` runs a shell command in a sandbox.

use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::geteuid;
use workspace_sandbox::runtime::{Network, NetworkBytes, RuntimeError};
use workspace_sandbox::{NewSandbox, ReclaimPolicy, SandboxError, SandboxInfo, Service, Settings};
use workspace_test_support::network::{
    self, DNS_SERVER, HOST, INTERNET, TestNetwork, processes, serve_local_address,
};
use workspace_test_support::requires;

use crate::escape::{attempt, copy_this_program};
use crate::home::{TestHome, alice, base, create, creator, run as run_on, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::{docker, trials};

/// First argument of this program when it is started again in a network of its own.
const IN_NETWORK: &str = "in-test-network";
/// Name of the process that controls the network of a sandbox.
const NETWORK_DAEMON: &str = "network-daemon";
/// Names of uplink processes; `pasta` has several.
const PROGRAMS: [&str; 3] = ["pasta", "passt", "slirp4netns"];

/// Returns the tests; those of the suite have a network of their own each.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![empty_allow_list_is_refused];
    if geteuid().is_root() {
        trials.extend(suite().into_iter().map(|test| {
            let name = test.name().to_owned();
            Trial::test(format!("egress::{name}"), move || in_test_network(&name))
        }));
    }
    trials
}

/// Runs a test of the suite in a new process with a network namespace of its own.
fn in_test_network(test: &str) -> Result<(), Failed> {
    let is_installed = |program: &str| Path::new("/usr/bin").join(program).exists();
    if !requires(
        ["slirp4netns", "ip", "busybox"].into_iter().all(is_installed),
        "slirp4netns, iproute2 and busybox",
    ) {
        return Ok(());
    }
    let status = network::in_own_network(&[IN_NETWORK, test])?;
    if status.success() { Ok(()) } else { Err(Failed::from("see above")) }
}

/// Runs a test in its network, if this process was started for that.
pub(crate) fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != IN_NETWORK {
        return None;
    }
    let name = arguments.next()?;
    let _network = TestNetwork::start();
    if name.starts_with("docker::") {
        docker::start_own();
        docker::run(&["network", "create", docker::NETWORK]);
    }
    let arguments = Arguments { filter: Some(name), exact: true, ..Arguments::default() };
    let conclusion = libtest_mimic::run(&arguments, suite());
    docker::end();
    Some(conclusion.exit_code())
}

/// Returns the tests that need a test network.
fn suite() -> Vec<Trial> {
    let mut trials = trials![
        egress_policy_allows_and_denies,
        resolved_names_open_the_egress_policy,
        a_network_survives_the_server_and_ends_with_its_sandbox,
        sandboxes_do_not_reach_each_other,
        egress_does_not_help_to_escape,
        missing_uplink_program_is_reported_with_a_hint,
    ];
    if RuntimeKind::available().contains(&RuntimeKind::Docker) {
        trials.push(Trial::test("docker::missing_network_is_refused", || {
            run_on(RuntimeKind::Docker, |home| Box::pin(missing_network_is_refused(home)));
            Ok(())
        }));
    }
    trials
}

/// Sets the DNS server of the test network, for [`TestHome::start_with`].
fn settings(settings: &mut Settings) {
    settings.egress_dns = Some(DNS_SERVER.parse().unwrap());
}

/// Returns a sandbox with egress to the listed destinations; `None` allows all that are not denied.
fn with_egress(allow: Option<&[&str]>) -> NewSandbox {
    let allow = allow.map(|list| list.iter().map(|text| text.parse().unwrap()).collect());
    NewSandbox { network: Network::Egress { allow }, ..base() }
}

/// Connects from a sandbox to a port, and returns the reply without white space around it. Most ports of these tests
/// reply with the address that the connection arrived at. An empty text means that nothing was received.
async fn get(service: &Service, info: &SandboxInfo, host: &str, port: u16) -> String {
    let command = format!("busybox timeout 5 busybox nc {host} {port} </dev/null");
    sh(service, info, &command).await.stdout.trim().to_owned()
}

/// Listens on a new port on all addresses of the host, and replies to each connection with the address that it arrived
/// at. Returns the port.
fn listen_on_all_addresses() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    serve_local_address(listener);
    port
}

async fn egress_policy_allows_and_denies(home: &TestHome) {
    let service = home.start_with(settings).await;
    let (all, port) =
        (service.create(creator(), with_egress(None)).await.unwrap(), listen_on_all_addresses());
    // Of the addresses of the internet, the first three are not denied. The last is 169.254.169.254, where clouds serve
    // metadata, which `Settings::egress_deny` has by default.
    for address in &INTERNET[..3] {
        assert_eq!(get(&service, &all, address, 80).await, *address);
    }
    assert_eq!(get(&service, &all, INTERNET[3], 80).await, "", "denied by the settings");
    let some = service.create(creator(), with_egress(Some(&["198.51.100.10", "10.0.0.0/8"]))).await.unwrap();
    assert_eq!(get(&service, &some, INTERNET[0], 80).await, INTERNET[0]);
    assert_eq!(get(&service, &some, INTERNET[1], 80).await, "");
    let gateway = if home.kind == RuntimeKind::Docker { bridge() } else { None };
    for info in [&all, &some] {
        for address in HOST.into_iter().chain(["127.0.0.1", "0.0.0.0"]).chain(gateway.as_deref()) {
            assert_eq!(get(&service, info, address, port).await, "", "{address}");
        }
    }
    let none = create(&service).await;
    assert_eq!(get(&service, &none, INTERNET[0], 80).await, "");
    if home.kind == RuntimeKind::Embedded {
        let counted = traffic(&service, &all).await;
        assert!(counted.is_some_and(|bytes| bytes.received > 0 && bytes.sent > 0), "{counted:?}");
        let counted = traffic(&service, &none).await.unwrap_or_default();
        assert_eq!(counted, NetworkBytes::default());
    }
}

/// Returns the number of bytes of a sandbox over its network; `None` if the runtime does not count them.
async fn traffic(service: &Service, info: &SandboxInfo) -> Option<NetworkBytes> {
    service.stats(&alice(), &info.sandbox.id).await.unwrap().usage.network
}

/// Returns the address of the host in the network of containers; `None` if it has none.
fn bridge() -> Option<String> {
    let found = docker::run(&[
        "network",
        "inspect",
        "--format",
        "{{(index .IPAM.Config 0).Gateway}}",
        docker::NETWORK,
    ]);
    Some(found.trim().to_owned()).filter(|address| !address.is_empty())
}

async fn resolved_names_open_the_egress_policy(home: &TestHome) {
    let service = home.start_with(settings).await;
    let info =
        service.create(creator(), with_egress(Some(&["one.example.com", "*.example.org"]))).await.unwrap();
    assert_eq!(get(&service, &info, INTERNET[0], 80).await, "", "no name was asked for yet");
    assert_eq!(get(&service, &info, "one.example.com", 80).await, INTERNET[0]);
    assert_eq!(get(&service, &info, "two.example.org", 80).await, INTERNET[1]);
    // The DNS server of the tests has all three names. The first is not allowed. The others match `*.example.org`, but
    // their addresses are denied: `INTERNET[3]`, and one of the host.
    for (name, port) in
        [("other.test", 80), ("metadata.example.org", 80), ("machine.example.org", listen_on_all_addresses())]
    {
        assert_eq!(get(&service, &info, name, port).await, "", "{name}");
    }
}

async fn a_network_survives_the_server_and_ends_with_its_sandbox(home: &TestHome) {
    wait_until("those of others are gone", async || processes(&[NETWORK_DAEMON]).is_empty()).await;
    let service = home.start_with(settings).await;
    let info = service.create(creator(), with_egress(Some(&["*.example.org"]))).await.unwrap();
    assert_eq!(info.config.egress_allow.as_ref().unwrap()[0].to_string(), "*.example.org");
    service.close().await;
    drop(service);
    let service = home.start_with(settings).await;
    let id = &info.sandbox.id;
    wait_until("the guest is back", async || service.get(&alice(), id).await.unwrap().agent_connected).await;
    assert_eq!(get(&service, &info, "two.example.org", 80).await, INTERNET[1]);
    assert_eq!(processes(&[NETWORK_DAEMON]).len(), 1);
    service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
    wait_until("daemon and uplink end", async || {
        processes(&[NETWORK_DAEMON]).is_empty() && processes(&PROGRAMS).is_empty()
    })
    .await;
}

async fn sandboxes_do_not_reach_each_other(home: &TestHome) {
    let service = home.start_with(settings).await;
    let info = service.create(creator(), with_egress(None)).await.unwrap();
    let other = service.create(creator(), with_egress(None)).await.unwrap();
    let own = "busybox ip -4 -o addr show eth0 | busybox awk '{print $4}' | busybox cut -d/ -f1";
    let address = sh(&service, &other, own).await.stdout.trim().to_owned();
    let listen = "busybox nc -l -p 7000 -e busybox echo other >/dev/null 2>&1 &";
    sh(&service, &other, listen).await;
    assert_eq!(get(&service, &other, "127.0.0.1", 7000).await, "other");
    sh(&service, &other, listen).await;
    assert_ne!(address, "");
    assert_eq!(get(&service, &info, &address, 7000).await, "");
}

async fn egress_does_not_help_to_escape(home: &TestHome) {
    let service = home.start_with(settings).await;
    let info = service.create(creator(), with_egress(None)).await.unwrap();
    copy_this_program(home, &info);
    // Kinds of attempts that need no arguments (`attempts.rs`).
    let kinds = ["first-process", "mounts", "namespaces", "devices", "keyrings", "settings", "rights"];
    let no_arguments: &[&str] = &[];
    for kind in kinds {
        attempt(&service, &info, kind, no_arguments).await;
    }
}

async fn missing_uplink_program_is_reported_with_a_hint(home: &TestHome) {
    if home.kind == RuntimeKind::Docker {
        return;
    }
    let service = home.start_with(settings).await;
    for program in ["pasta", "slirp4netns"] {
        sh_outside(&format!("mount --bind /dev/null /usr/bin/{program}"));
    }
    let (refused, lacks) = (
        service.create(creator(), with_egress(None)).await.unwrap_err(),
        service.runtime().missing_features().await.unwrap(),
    );
    for program in ["pasta", "slirp4netns"] {
        sh_outside(&format!("umount /usr/bin/{program}"));
    }
    assert!(matches!(refused, SandboxError::Runtime(RuntimeError::Network(_))), "{refused}");
    assert!(refused.to_string().contains("the package passt has pasta"), "{refused}");
    assert!(lacks.iter().any(|lack| lack.starts_with("no network `egress`: ")), "{lacks:?}");
    assert_eq!(std::fs::read_dir(home.path().join("sandboxes")).unwrap().count(), 0);
}

/// Runs a shell script on the host. Panics if it fails.
fn sh_outside(script: &str) {
    assert!(std::process::Command::new("sh").args(["-c", script]).status().unwrap().success());
}

async fn missing_network_is_refused(home: &TestHome) {
    docker::run(&["network", "rm", docker::NETWORK]);
    let service = home.start_with(settings).await;
    let refused = service.create(creator(), with_egress(None)).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Runtime(RuntimeError::Network(_))), "{refused}");
    assert_eq!(service.runtime().known_ids().await.unwrap(), [""; 0]);
}

async fn empty_allow_list_is_refused(home: &TestHome) {
    let service = home.start().await;
    let refused = service.create(creator(), with_egress(Some(&[]))).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Invalid { field: "egressAllow", .. }), "{refused}");
}
