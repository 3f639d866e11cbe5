//! Attempts to escape from a sandbox. All must fail.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::State;
use workspace_sandbox::{NewSandbox, ReclaimPolicy, ResourceRequest, SandboxInfo, Service};

use crate::attempts::{ATTEMPT_ARG, contains_token};
use crate::home::{TIMEOUT, TestHome, alice, base, create, creator, sh};
use crate::kind::RuntimeKind;
use crate::{docker, trials};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![
        host_files_are_inaccessible,
        agent_process_cannot_be_inspected,
        signals_do_not_leave_the_sandbox,
        nothing_can_be_mounted_or_unmounted,
        new_namespaces_give_no_privileges,
        devices_are_inaccessible,
        keyrings_are_inaccessible,
        host_network_is_unreachable,
        kernel_settings_cannot_be_written,
        setuid_programs_gain_no_privileges,
        server_does_not_follow_links_in_the_workspace,
        token_is_not_visible_inside_the_sandbox,
        the_servers_socket_cannot_be_replaced,
        dangerous_system_calls_are_refused,
    ];
    // Attempts that cannot succeed anywhere would prove nothing.
    trials.push(Trial::test("attempts_succeed_where_nothing_is_in_their_way", || {
        attempts_succeed_outside();
        Ok(())
    }));
    trials
}

/// Copies this program into a workspace, where [`attempt`] starts it.
pub(crate) fn copy_this_program(home: &TestHome, info: &SandboxInfo) {
    let program = home.workspace(info).join("attempt");
    // Copied by another process: a child that another test forks meanwhile would keep the copy open for
    // writing, and executing it would fail with ETXTBSY.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success());
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs attempts of the kind `what` inside, with further arguments; all of them must fail.
pub(crate) async fn attempt(service: &Service, info: &SandboxInfo, what: &str, arguments: &[&str]) {
    let arguments = arguments.join(" ");
    // Without a shell in between: its parent is the supervisor.
    let ran = sh(service, info, &format!("exec ./attempt {ATTEMPT_ARG} {what} {arguments}")).await;
    let gained: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with("GAINED")).collect();
    assert_eq!(gained, [""; 0]);
    assert!(ran.stdout.contains("refused") && ran.stdout.ends_with("done\n"), "{ran:?}");
}

async fn attempt_in_new_sandbox(home: &TestHome, what: &str) {
    let service = home.start().await;
    let info = create(&service).await;
    copy_this_program(home, &info);
    attempt(&service, &info, what, &[]).await;
}

async fn host_files_are_inaccessible(home: &TestHome) {
    let service = home.start().await;
    let (info, neighbour) = (create(&service).await, create(&service).await);
    copy_this_program(home, &info);
    let path = |name: &str| home.path().join(name).to_string_lossy().into_owned();
    let dir = |name: &str| path(&format!("sandboxes/{}/{name}", neighbour.sandbox.id));
    std::fs::write(home.path().join("secret"), "x").unwrap();
    let named = [
        path(""),
        path("secret"),
        path("catalog.db"),
        path("sandboxes"),
        path("workspaces"),
        home.workspace(&neighbour).to_string_lossy().into_owned(),
        dir("output"),
        dir("agent.log"),
        dir("sockets/agent.sock"),
    ];
    attempt(&service, &info, "files", &named.each_ref().map(String::as_str)).await;
}

async fn agent_process_cannot_be_inspected(home: &TestHome) {
    attempt_in_new_sandbox(home, "first-process").await;
}

async fn signals_do_not_leave_the_sandbox(home: &TestHome) {
    let service = home.start().await;
    let (info, neighbour) = (create(&service).await, create(&service).await);
    copy_this_program(home, &info);
    let mut outside = Command::new("sleep").arg("100").spawn().unwrap();
    // Killing all processes kills the supervisor, too.
    let ran = sh(&service, &info, &format!("./attempt {ATTEMPT_ARG} kill-all")).await;
    assert!(ran.exit.exit_code != 0 || ran.exit.failure_reason.is_some(), "{ran:?}");
    assert_eq!(sh(&service, &info, "echo handles").await.stdout, "handles\n");
    assert_eq!(sh(&service, &neighbour, "echo handles").await.stdout, "handles\n");
    assert!(outside.try_wait().unwrap().is_none());
    outside.kill().unwrap();
    outside.wait().unwrap();
}

async fn nothing_can_be_mounted_or_unmounted(home: &TestHome) {
    attempt_in_new_sandbox(home, "mounts").await;
}

async fn new_namespaces_give_no_privileges(home: &TestHome) {
    attempt_in_new_sandbox(home, "namespaces").await;
}

async fn devices_are_inaccessible(home: &TestHome) {
    attempt_in_new_sandbox(home, "devices").await;
}

async fn keyrings_are_inaccessible(home: &TestHome) {
    attempt_in_new_sandbox(home, "keyrings").await;
}

/// Listeners of the host: on its loopback, on all its addresses, and on an abstract name.
struct Listening {
    _tcp: TcpListener,
    _abstract: UnixListener,
    /// Addresses and names to connect to.
    named: Vec<String>,
}

impl Listening {
    fn start(home: &std::path::Path) -> Self {
        let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let mut named = vec![format!("127.0.0.1:{port}")];
        // The local address of a packet to another network; nothing is sent.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            named.push(format!("{}:{port}", socket.local_addr().unwrap().ip()));
        }
        let name = home.file_name().unwrap().to_string_lossy().into_owned();
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        named.push(name);
        Self { _tcp: tcp, _abstract: listener, named }
    }

    fn named(&self) -> Vec<&str> {
        self.named.iter().map(String::as_str).collect()
    }
}

async fn host_network_is_unreachable(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    copy_this_program(home, &info);
    let listening = Listening::start(home.path());
    attempt(&service, &info, "network", &listening.named()).await;
}

async fn kernel_settings_cannot_be_written(home: &TestHome) {
    attempt_in_new_sandbox(home, "settings").await;
}

async fn setuid_programs_gain_no_privileges(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    copy_this_program(home, &info);
    attempt(&service, &info, "rights", &[]).await;
    let program = home.workspace(&info).join("attempt");
    if rustix::process::geteuid().is_root() {
        chown(&program, Some(0), Some(0)).unwrap();
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).unwrap();
    attempt(&service, &info, "rights", &[]).await;
    let own = "for program in /bin/su-busybox /usr/bin/su /usr/bin/mount; do
        [ -x $program ] && $program id -u; done 2>/dev/null";
    assert!(!sh(&service, &info, own).await.stdout.lines().any(|id| id == "0"));
}

async fn server_does_not_follow_links_in_the_workspace(home: &TestHome) {
    let service = home.start_with(|settings| settings.disk_interval = Duration::from_millis(50)).await;
    let resources = ResourceRequest { disk: Some(4 << 20), ..ResourceRequest::default() };
    let info = service.create(creator(), NewSandbox { resources, ..base() }).await.unwrap();
    let outside = home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), vec![1; 16 << 20]).unwrap();
    std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o500)).unwrap();
    let to = outside.display();
    let links = format!(
        "mkdir -p deep/closed && ln -s {to} directory && ln -s {to}/precious file && ln -s / root &&
         ln -s {to} deep/closed/directory && ln -s /etc/shadow shadow && ln -s ../../.. up && chmod 0 deep/closed deep;
         ln /etc/passwd hard; ln /run/workspace/agent.sock hard.sock; cat file shadow; echo done"
    );
    let ran = sh(&service, &info, &links).await;
    assert_eq!(ran.stdout, "done\n", "{ran:?}");
    // Targets of links do not count.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let state = service.get(&alice(), &info.sandbox.id).await.unwrap().sandbox.state;
    assert_eq!(state, State::Running);
    // Neither a removal nor the change of permissions before it follows them.
    symlink(&outside, home.workspace(&info).join("of-the-server")).unwrap();
    service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(!home.workspace(&info).exists());
    assert_eq!(std::fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o500);
    assert_eq!(std::fs::metadata(outside.join("precious")).unwrap().len(), 16 << 20);
    std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o700)).unwrap();
}

async fn token_is_not_visible_inside_the_sandbox(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    assert_no_token(home, &service, &info).await;
}

/// Asserts that the token is not visible inside.
pub(crate) async fn assert_no_token(home: &TestHome, service: &Service, info: &SandboxInfo) {
    copy_this_program(home, info);
    let hash = info.sandbox.token_hash.as_str();
    attempt(service, info, "token", &[hash]).await;
    // Nor is it visible outside, in the state of the runtime or the directory of the sandbox.
    let hash = blake3::Hash::from_hex(hash).unwrap();
    if home.kind == RuntimeKind::Docker {
        assert!(!contains_token(docker::run(&["inspect", &info.sandbox.id]).as_bytes(), &hash));
    }
    let dir = home.path().join("sandboxes").join(&info.sandbox.id);
    assert!(!dir.join("sockets/start.sock").exists());
    for name in ["process", "agent.log", "bundle/config.json"] {
        assert!(!contains_token(&std::fs::read(dir.join(name)).unwrap_or_default(), &hash), "{name}");
    }
}

async fn the_servers_socket_cannot_be_replaced(home: &TestHome) {
    attempt_in_new_sandbox(home, "socket").await;
}

async fn dangerous_system_calls_are_refused(home: &TestHome) {
    attempt_in_new_sandbox(home, "calls").await;
}

fn attempts_succeed_outside() {
    let outside = |what: &str, arguments: &[&str]| {
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program).args([ATTEMPT_ARG, what]).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let home = tempfile::tempdir().unwrap();
    let (secret, socket) = (home.path().join("secret"), home.path().join("agent.sock"));
    std::fs::write(&secret, "x").unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    let named = [secret.to_str().unwrap(), socket.to_str().unwrap()];
    let output = outside("files", &named);
    for gained in [format!("GAINED read {}", named[0]), format!("GAINED dial {}", named[1])] {
        assert!(output.contains(&gained), "{gained}: {output}");
    }
    let listening = Listening::start(home.path());
    let output = outside("network", &listening.named());
    assert_eq!(output.matches("GAINED dial").count(), listening.named.len(), "{output}");
    let token = [7; 32];
    let planted = home.path().join("planted");
    for text in [format!("x{}", String::from_utf8_lossy(&token)), "07".repeat(32)] {
        std::fs::write(&planted, text).unwrap();
        let output = outside("token", &[&blake3::hash(&token).to_hex(), home.path().to_str().unwrap()]);
        assert!(output.contains(&format!("GAINED the token in {}", planted.display())), "{output}");
    }
}
