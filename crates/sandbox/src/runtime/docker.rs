//! The docker runtime: containers of a Docker daemon.
//!
//! The guest agent is mounted into a container of any image that has `/bin/sh`, and is its first process. It
//! receives its start parameters over a socket (`handover.rs`), so there are no secrets in the arguments and
//! the environment of the container, which all clients of the daemon can read.
//!
//! Containers are identified by labels. One of them identifies the server, because several servers may use the same
//! daemon.

mod agent_address;
mod container;
mod image;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use bollard::errors::Error;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, InspectNetworkOptions,
    ListContainersOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
    StatsOptionsBuilder, WaitContainerOptionsBuilder,
};
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt as _;
use workspace_agent_protocol::start_parameters::StartParameters;
use workspace_host::NamespaceHolder;
use workspace_host::freeze;
use workspace_host::network::RESOLV_CONF;

use super::actions::{FIND_PROCESSES, SWAP};
use super::container_access::{self, Container, local_process};
use super::egress::{HandoverError, hand_over};
use super::guest::{AgentTransport, User, is_safe_name};
use super::{
    Egress, Frozen, ProcessScope, ResourceUsage, Runtime, RuntimeError, SandboxSpec, StartResult, Template,
    WorkspaceProcess, pause_record,
};
use crate::guest::handover::Handover;
use crate::sandbox_dir::{SandboxDir, tail};

const NAME: &str = "docker";
const FREEZE: &str = "freeze a sandbox";
const THAW: &str = "thaw a sandbox";
/// Number of attempts to pause a container.
const PAUSE_ATTEMPTS: u32 = 5;
/// Number of attempts to unpause a container.
const UNPAUSE_ATTEMPTS: u32 = 40;
/// Interval between attempts to pause or unpause a container.
const PAUSE_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Number of consecutive reports that a container is not paused before this is trusted.
const RUNNING_REPORTS_MIN: u32 = 3;
/// Label with the id of the sandbox.
const SANDBOX_LABEL: &str = "workspace.sandbox";
/// Label that is the same for all containers of a server ([`Docker::server_label`]).
const SERVER_LABEL: &str = "workspace.server";
/// Timeout for a started guest agent to connect to its handover socket, and to get its network and its parameters.
const AGENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for the daemon to remove a container.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between checks whether a container is removed, and between waits for its exit that the daemon ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between attempts to reach a daemon that does not respond.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Runs sandboxes as containers of a Docker daemon.
#[derive(Debug)]
pub struct Docker {
    client: bollard::Docker,
    /// Docker network of sandboxes with egress.
    network: Option<String>,
    /// Path of the guest agent's program, as the daemon sees it.
    agent: PathBuf,
    /// Value of [`SERVER_LABEL`]: a hash of the path of the sandboxes directory, which is this server's own.
    server_label: String,
}

/// Isolation features: each is true if the daemon supports it.
struct DaemonFeatures {
    cpu: bool,
    memory: bool,
    processes: bool,
    seccomp: bool,
}

impl DaemonFeatures {
    fn missing(&self) -> Vec<String> {
        let features = [
            ("CPU limit", self.cpu),
            ("memory limit", self.memory),
            ("limit on processes", self.processes),
            ("seccomp filter", self.seccomp),
        ];
        let missing = features.into_iter().filter(|(_, is_supported)| !is_supported);
        missing
            .map(|(name, _)| format!("no {name}: the Docker daemon does not support it on this host"))
            .collect()
    }
}

impl Docker {
    /// Unpauses a container, if it is paused.
    ///
    /// The daemon updates the state of a container from containerd events, so the state may be stale for a
    /// moment. The daemon then rejects the call, and it is retried.
    async fn unpause(&self, id: &str) -> Result<(), RuntimeError> {
        let mut attempts_left = UNPAUSE_ATTEMPTS;
        let mut running_reports = 0;
        loop {
            attempts_left -= 1;
            let found = self.find(id).await.map_err(|error| failed(THAW, &error))?;
            let Some(found) = found else { return Ok(()) };
            if found.state.and_then(|state| state.paused).unwrap_or(false) {
                running_reports = 0;
                match self.client.unpause_container(id).await {
                    Ok(()) => return Ok(()),
                    Err(error) if attempts_left == 0 => return Err(failed(THAW, &error)),
                    Err(_) => {}
                }
            } else {
                running_reports += 1;
                if running_reports == RUNNING_REPORTS_MIN || attempts_left == 0 {
                    return Ok(());
                }
            }
            sleep(PAUSE_RETRY_INTERVAL).await;
        }
    }

    /// Connects to the daemon at `host` (`unix:///…` or `tcp://…`), for the server whose sandboxes are in
    /// `sandboxes`. Sandboxes with egress are in `network`; if it is `None`, egress is not available.
    pub async fn connect(
        host: &str,
        network: Option<&str>,
        agent: &Path,
        sandboxes: &Path,
    ) -> Result<Self, RuntimeError> {
        let unavailable = |reason: String| RuntimeError::Unavailable { runtime: NAME, reason };
        if !agent.is_file() {
            return Err(unavailable(format!("the guest agent {} does not exist", agent.display())));
        }
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| unavailable(error.to_string()));
        let server_label = blake3::hash(absolute(sandboxes)?.as_os_str().as_encoded_bytes());
        let client = bollard::Docker::connect_with_host(host);
        let client = client.map_err(|error| unavailable(format!("{host}: {error}")))?;
        let pinged = client.ping().await;
        pinged.map_err(|error| {
            unavailable(format!("no daemon responds at {host} ({error}); start one, or set DOCKER_HOST"))
        })?;
        Ok(Self {
            client,
            network: network.map(str::to_owned),
            agent: absolute(agent)?,
            server_label: server_label.to_hex()[..16].to_owned(),
        })
    }

    /// Finds the container of a sandbox of this server. Ignores containers of other servers.
    async fn find(&self, id: &str) -> Result<Option<ContainerInspectResponse>, Error> {
        if !is_safe_name(id) {
            return Ok(None);
        }
        match self.client.inspect_container(id, None::<InspectContainerOptions>).await {
            Ok(found) => {
                let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
                let server = labels.and_then(|labels| labels.get(SERVER_LABEL));
                let is_own = server == Some(&self.server_label);
                Ok(is_own.then_some(found))
            }
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the Docker network of a sandbox: `none` without egress.
    async fn network(&self, spec: &SandboxSpec<'_>) -> Result<String, RuntimeError> {
        if spec.egress.is_none() {
            return Ok("none".to_owned());
        }
        let Some(network) = &self.network else {
            let reason = "this server has no network for sandboxes; set DOCKER_NETWORK";
            return Err(RuntimeError::Network(reason.to_owned()));
        };
        let found = self.client.inspect_network(network, None::<InspectNetworkOptions>).await;
        found.map_err(|error| {
            RuntimeError::Network(format!(
                "the network `{network}` (DOCKER_NETWORK) cannot be used: {error}; \
                 create it with `docker network create {network}`"
            ))
        })?;
        Ok(network.clone())
    }

    async fn features(&self) -> Result<DaemonFeatures, RuntimeError> {
        let info =
            self.client.info().await.map_err(|error| failed("query the features of the daemon", &error))?;
        let security = info.security_options.unwrap_or_default();
        Ok(DaemonFeatures {
            cpu: info.cpu_cfs_quota.unwrap_or(false),
            memory: info.memory_limit.unwrap_or(false),
            processes: info.pids_limit.unwrap_or(false),
            seccomp: security.iter().any(|one| one.contains("seccomp")),
        })
    }

    async fn run(&self, spec: &SandboxSpec<'_>, features: &DaemonFeatures) -> Result<(), RuntimeError> {
        let user = User::of_sandboxes();
        user.take_ownership(spec)
            .map_err(|error| failed("change the owner of the directories of a sandbox", &error))?;
        let handover = Handover::open(spec.dir);
        let handover = handover.map_err(|error| failed("listen for the guest agent", &error))?;
        let image = self.find_or_pull_image(spec.template, spec.progress).await?;
        let network = self.network(spec).await?;
        let (agent, server_label, seccomp) =
            (self.agent.as_path(), self.server_label.as_str(), features.seccomp);
        let tcp_parameters = self.tcp_agent_parameters(spec, &network).await?;
        let transport = if tcp_parameters.is_some() { AgentTransport::Tcp } else { AgentTransport::Socket };
        let parts = container::Parts {
            guest_agent: agent,
            image,
            network: network.clone(),
            server_label,
            user,
            seccomp,
            transport,
        };
        let options = CreateContainerOptionsBuilder::new().name(spec.id).build();
        if spec.egress.is_some() {
            let written = write_readable(&container::resolv_conf(spec), RESOLV_CONF);
            written.map_err(|error| failed("write a sandbox's resolv.conf", &error))?;
        }
        let created = self.client.create_container(Some(options), parts.container(spec)).await;
        created.map_err(|error| failed("create a container", &error))?;
        let started = self.client.start_container(spec.id, None::<StartContainerOptions>).await;
        started.map_err(|error| failed("start a container", &error))?;
        let egress = match spec.egress {
            Some(egress) => {
                Some(self.egress_over_link(spec.id, &network, egress, tcp_parameters.as_ref()).await?)
            }
            None => None,
        };
        // A guest agent that connects over the Unix socket needs only its token.
        let parameters =
            tcp_parameters.map_or_else(|| spec.token.to_vec(), |parameters| parameters.to_bytes());
        let reason = tokio::select! {
            // Waits for the guest agent, sets up its network, and then sends the parameters.
            sent = timeout(AGENT_TIMEOUT, hand_over(handover, &parameters, egress)) => match sent {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(HandoverError::Network(error))) => return Err(error),
                Ok(Err(HandoverError::Io(error))) => error.to_string(),
                Err(_) => format!("the guest agent did not connect within {} s", AGENT_TIMEOUT.as_secs()),
            },
            exited = self.wait_for_exit(spec.id, spec.dir) => {
                exited?;
                "the guest agent exited immediately".to_owned()
            }
        };
        let log = self.agent_log(spec.id, spec.dir).await;
        let separator = if log.is_empty() { "" } else { ": " };
        Err(failed("start the guest agent", &format!("{reason}{separator}{log}")))
    }

    /// Completes `egress` for a container: the uplink is the container's interface in the Docker network `network`,
    /// and if its guest agent connects over TCP, it may reach the addresses of the server.
    async fn egress_over_link(
        &self,
        id: &str,
        network: &str,
        egress: &Egress,
        tcp_parameters: Option<&StartParameters>,
    ) -> Result<Egress, RuntimeError> {
        let found = self.find(id).await.map_err(|error| failed("find a container", &error))?;
        let uplink = found.as_ref().and_then(|found| container::uplink(found, network)).ok_or_else(|| {
            let reason = format!("the network `{network}` (DOCKER_NETWORK) has no IPv4 gateway");
            RuntimeError::Network(reason)
        })?;
        let addresses = tcp_parameters.into_iter().flat_map(|parameters| &parameters.addresses);
        // Allowed, although the addresses of the host are denied. IPv6 addresses do not parse as `SocketAddrV4` and are
        // left out: sandboxes with egress have only IPv4.
        let except = addresses.filter_map(|address| address.parse().ok()).collect();
        Ok(Egress { uplink, except, ..egress.clone() })
    }

    /// Returns the container of a running sandbox. `action` is for error messages.
    async fn container(
        &self,
        id: &str,
        dir: &SandboxDir,
        action: &'static str,
    ) -> Result<Container, RuntimeError> {
        if !self.can_swap_workspace() {
            return Err(failed(action, &"only root can enter the mount namespaces of containers"));
        }
        let found = self.find(id).await.map_err(|error| failed(action, &error))?;
        let pid = found.filter(is_running).and_then(|found| found.state?.pid);
        let pid = pid.ok_or_else(|| failed(action, &"the sandbox is not running"))?;
        let process = i32::try_from(pid).map_or(Ok(None), |pid| local_process(pid, dir));
        let process = process.map_err(|error| failed(action, &error))?;
        let process = process.ok_or_else(|| failed(action, &"the Docker daemon is not on this machine"))?;
        Ok(Container::new(process, dir, Box::new(failed)))
    }

    /// Waits until a container is removed.
    async fn wait_for_removal(&self, id: &str) -> Result<(), RuntimeError> {
        let removed = async {
            while self.find(id).await?.is_some() {
                sleep(POLL_INTERVAL).await;
            }
            Ok::<_, Error>(())
        };
        let removed = timeout(REMOVAL_TIMEOUT, removed).await;
        let removed =
            removed.map_err(|_| failed("remove a container", &"the daemon did not remove it in time"))?;
        removed.map_err(|error| failed("remove a container", &error))
    }
}

#[async_trait]
impl Runtime for Docker {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns the namespaces of the host if the server runs as root. The daemon cannot see other mounts.
    async fn mount_holder(&self) -> Result<NamespaceHolder, String> {
        if rustix::process::geteuid().is_root() {
            return Ok(NamespaceHolder::None);
        }
        Err("the Docker daemon cannot see the mounts of an unprivileged user".to_owned())
    }

    fn file_owner(&self) -> Option<(u32, u32)> {
        let User { uid, gid } = User::of_sandboxes();
        rustix::process::geteuid().is_root().then_some((uid, gid))
    }

    async fn missing_features(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(self.features().await?.missing())
    }

    async fn start(&self, spec: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        let features = self.features().await?;
        self.run(spec, &features).await?;
        Ok(StartResult { not_applied: features.missing() })
    }

    async fn not_applied(&self, _id: &str, _dir: &SandboxDir) -> Result<Vec<String>, RuntimeError> {
        self.missing_features().await
    }

    async fn is_running(&self, id: &str, _dir: &SandboxDir) -> Result<bool, RuntimeError> {
        let found = self.find(id).await.map_err(|error| failed("find a container", &error))?;
        Ok(found.is_some_and(|found| is_running(&found)))
    }

    /// Retries on errors: containers may keep running while the daemon does not respond.
    async fn wait_for_exit(&self, id: &str, _dir: &SandboxDir) -> Result<(), RuntimeError> {
        loop {
            match self.find(id).await {
                Ok(Some(found)) if is_running(&found) => {}
                Ok(_) => return Ok(()),
                Err(error) => {
                    tracing::warn!(sandbox = id, %error, "Docker daemon did not respond");
                    sleep(RETRY_INTERVAL).await;
                    continue;
                }
            }
            let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
            let mut wait = self.client.wait_container(id, Some(options));
            if let Some(Ok(_) | Err(Error::DockerContainerWaitError { .. })) = wait.next().await {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn freeze(&self, id: &str, dir: &SandboxDir) -> Result<Frozen, RuntimeError> {
        if !self.is_running(id, dir).await? {
            return Err(failed(FREEZE, &"the sandbox is not running"));
        }
        pause_record::write(dir).map_err(|error| failed(FREEZE, &error))?;
        let mut attempts_left = PAUSE_ATTEMPTS;
        while let Err(error) = self.client.pause_container(id).await {
            attempts_left -= 1;
            // The OCI runtime has a short timeout for processes to freeze, and the daemon may not know yet
            // that the container was unpaused.
            if attempts_left == 0 || !self.is_running(id, dir).await? {
                self.thaw(id, dir).await?;
                return Err(failed(FREEZE, &error));
            }
            sleep(PAUSE_RETRY_INTERVAL).await;
        }
        Ok(Frozen { method: freeze::FreezeMethod::Cgroup, processes: None })
    }

    async fn thaw(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        if !dir.freeze_record().exists() {
            return Ok(());
        }
        self.unpause(id).await?;
        pause_record::remove(dir).map_err(|error| failed(THAW, &error))
    }

    // The OCI runtime passes these calls to `Container` in the same words: a trait cannot have defaults for them,
    // because a sandbox of the embedded runtime is no container, and one more layer would hide four lines.
    /// Returns true for root. Each swap checks that the daemon is on this host.
    fn can_swap_workspace(&self) -> bool {
        container_access::can_enter()
    }

    async fn workspace_processes(
        &self,
        id: &str,
        dir: &SandboxDir,
        terminate: Option<(ProcessScope, Duration)>,
    ) -> Result<Vec<WorkspaceProcess>, RuntimeError> {
        self.container(id, dir, FIND_PROCESSES).await?.workspace_processes(terminate).await
    }

    async fn deleted_open_bytes(&self, id: &str, dir: &SandboxDir) -> Result<u64, RuntimeError> {
        self.container(id, dir, FIND_PROCESSES).await?.deleted_open_bytes().await
    }

    async fn swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        self.container(id, dir, SWAP).await?.swap(workspace).await
    }

    async fn settle_swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<bool, RuntimeError> {
        self.container(id, dir, SWAP).await?.settle_swap(workspace).await
    }

    async fn kill(&self, id: &str, _dir: &SandboxDir) -> Result<(), RuntimeError> {
        let found = self.find(id).await.map_err(|error| failed("find a container", &error))?;
        if found.is_none() {
            return Ok(());
        }
        // Also removes the anonymous volumes that the image declares.
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match self.client.remove_container(id, Some(options)).await {
            // It is already being removed.
            Err(Error::DockerResponseServerError { status_code: 409, .. }) => self.wait_for_removal(id).await,
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(failed("remove a container", &error)),
            Ok(()) => self.wait_for_removal(id).await,
        }
    }

    async fn agent_log(&self, id: &str, _dir: &SandboxDir) -> String {
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail("20").build();
        let mut lines = self.client.logs(id, Some(options));
        let mut log = String::new();
        while let Some(Ok(line)) = lines.next().await {
            log.push_str(&line.to_string());
        }
        tail(&log).to_owned()
    }

    async fn usage(&self, id: &str, _dir: &SandboxDir) -> Result<ResourceUsage, RuntimeError> {
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let mut stats = self.client.stats(id, Some(options));
        match stats.next().await {
            Some(Ok(stats)) => Ok(container::usage(&stats)),
            Some(Err(error)) if !is_not_found(&error) => {
                Err(failed("measure the resource usage of a sandbox", &error))
            }
            _ => Ok(ResourceUsage::default()),
        }
    }

    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError> {
        let filters = [("label".to_owned(), vec![format!("{SERVER_LABEL}={}", self.server_label)])];
        let filters = std::collections::HashMap::from(filters);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found = self.client.list_containers(Some(options)).await;
        let found = found.map_err(|error| failed("list containers", &error))?;
        let ids = found.into_iter().filter_map(|container| container.labels?.remove(SANDBOX_LABEL));
        Ok(ids.collect())
    }

    async fn templates(&self) -> Result<Vec<Template>, RuntimeError> {
        self.list_templates().await
    }
}

/// Writes a file that all users in the container can read, regardless of the umask of this process.
fn write_readable(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

fn is_running(container: &ContainerInspectResponse) -> bool {
    container.state.as_ref().and_then(|state| state.running).unwrap_or(false)
}

/// Returns whether the daemon responded with status 404.
fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

fn failed(action: &'static str, error: &dyn std::fmt::Display) -> RuntimeError {
    RuntimeError::Failed { runtime: NAME, action, reason: error.to_string() }
}
