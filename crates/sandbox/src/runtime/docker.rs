//! The docker runtime: containers of a Docker daemon.
//!
//! The guest agent is mounted into a container of any image that has `/bin/sh`, and is its first process. Its
//! data comes over a socket (`handover.rs`), so neither the container's arguments nor its environment, which
//! all clients of the daemon can read, hold a secret.
//!
//! Containers are found again by labels. One of them names the server, because two servers may use the same
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

use super::actions::{SWAP, USERS};
use super::container_access::{self, Container, first_process};
use super::egress::{HandoverError, hand_over};
use super::guest::{AgentTransport, User, is_safe_name};
use super::{
    Egress, Frozen, ProcessScope, Runtime, RuntimeError, Start, StartResult, Template, Usage,
    WorkspaceProcess, pause_note,
};
use crate::guest::handover::Handover;
use crate::sandbox_dir::SandboxDir;

const NAME: &str = "docker";
const FREEZE: &str = "freeze a sandbox";
const THAW: &str = "thaw a sandbox";
/// Attempts to pause a container, and the pause between them.
const PAUSE_ATTEMPTS: (u32, Duration) = (5, Duration::from_millis(50));
/// Attempts to unpause a container, and the pause between them.
const UNPAUSE_ATTEMPTS: (u32, Duration) = (40, Duration::from_millis(50));
/// Consecutive reports that a container is not paused before the state is trusted.
const RUNNING_ANSWERS: u32 = 3;
/// Label with the id of the sandbox.
const SANDBOX: &str = "workspace.sandbox";
/// Label with the id of the server.
const SERVER: &str = "workspace.server";
/// Time limit for a started agent to connect for its data.
const AGENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which a pending change is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which a daemon that does not answer is polled.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Runs sandboxes as containers of a Docker daemon.
#[derive(Debug)]
pub struct Docker {
    client: bollard::Docker,
    /// Network of sandboxes with egress.
    network: Option<String>,
    /// Path of the guest agent's program, as the daemon sees it.
    agent: PathBuf,
    /// Id of this server.
    server: String,
    /// Images of the template `base`; the first that is present is used, and the last is pulled.
    base: Vec<String>,
}

/// Features of a daemon.
struct DaemonFeatures {
    cpu: bool,
    memory: bool,
    processes: bool,
    seccomp: bool,
}

impl DaemonFeatures {
    fn missing(&self) -> Vec<String> {
        let parts = [
            ("limit of cpu", self.cpu),
            ("limit of memory", self.memory),
            ("limit of processes", self.processes),
            ("list of system calls", self.seccomp),
        ];
        let lacks = parts.into_iter().filter(|(_, had)| !had);
        lacks.map(|(part, _)| format!("no {part}: the Docker daemon cannot have one here")).collect()
    }
}

impl Docker {
    /// Unpauses a container, if it is paused.
    ///
    /// The daemon learns from events of containerd whether a container is paused, so its state may be
    /// outdated for a moment. It then refuses, and both calls are retried.
    async fn unpause(&self, id: &str) -> Result<(), RuntimeError> {
        let (mut left, pause) = UNPAUSE_ATTEMPTS;
        let mut running_answers = 0;
        loop {
            left -= 1;
            let found = self.find(id).await.map_err(|error| failed(THAW, &error))?;
            let Some(found) = found else { return Ok(()) };
            if found.state.and_then(|state| state.paused).unwrap_or(false) {
                running_answers = 0;
                match self.client.unpause_container(id).await {
                    Ok(()) => return Ok(()),
                    Err(error) if left == 0 => return Err(failed(THAW, &error)),
                    Err(_) => {}
                }
            } else {
                running_answers += 1;
                if running_answers == RUNNING_ANSWERS || left == 0 {
                    return Ok(());
                }
            }
            sleep(pause).await;
        }
    }

    /// Connects to the daemon at `host` (`unix:///…` or `tcp://…`), for the server whose sandboxes are in
    /// `sandboxes`. Sandboxes with egress are in `network`; without one, none may have egress.
    pub async fn connect(
        host: &str,
        network: Option<&str>,
        agent: &Path,
        sandboxes: &Path,
    ) -> Result<Self, RuntimeError> {
        let unavailable = |reason: String| RuntimeError::Unavailable { runtime: NAME, reason };
        if !agent.is_file() {
            return Err(unavailable(format!("the guest agent {} is not there", agent.display())));
        }
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| unavailable(error.to_string()));
        let server = blake3::hash(absolute(sandboxes)?.as_os_str().as_encoded_bytes());
        let client = bollard::Docker::connect_with_host(host);
        let client = client.map_err(|error| unavailable(format!("{host}: {error}")))?;
        let answered = client.ping().await;
        answered.map_err(|error| {
            unavailable(format!("no daemon answers at {host} ({error}); start one, or set DOCKER_HOST"))
        })?;
        Ok(Self {
            client,
            network: network.map(str::to_owned),
            agent: absolute(agent)?,
            server: server.to_hex()[..16].to_owned(),
            base: image::BASE.map(str::to_owned).into(),
        })
    }

    /// Sets another image for the template `base`.
    #[must_use]
    pub fn with_base(mut self, image: &str) -> Self {
        self.base = vec![image.to_owned()];
        self
    }

    /// Finds the container of a sandbox of this server. A container of another server with that name does not
    /// count.
    async fn find(&self, id: &str) -> Result<Option<ContainerInspectResponse>, Error> {
        if !is_safe_name(id) {
            return Ok(None);
        }
        match self.client.inspect_container(id, None::<InspectContainerOptions>).await {
            Ok(found) => {
                let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
                let server = labels.and_then(|labels| labels.get(SERVER));
                let ours = server == Some(&self.server);
                Ok(ours.then_some(found))
            }
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the network of a sandbox.
    async fn network(&self, start: &Start<'_>) -> Result<String, RuntimeError> {
        if start.egress.is_none() {
            return Ok("none".to_owned());
        }
        let Some(network) = &self.network else {
            let reason = "this server has no network for sandboxes: DOCKER_NETWORK names one";
            return Err(RuntimeError::Network(reason.to_owned()));
        };
        let found = self.client.inspect_network(network, None::<InspectNetworkOptions>).await;
        found.map_err(|error| {
            RuntimeError::Network(format!(
                "the network `{network}` (DOCKER_NETWORK) cannot be used: {error}; \
                 `docker network create {network}` makes it"
            ))
        })?;
        Ok(network.clone())
    }

    async fn features(&self) -> Result<DaemonFeatures, RuntimeError> {
        let info = self.client.info().await.map_err(|error| failed("ask the daemon what it can", &error))?;
        let security = info.security_options.unwrap_or_default();
        Ok(DaemonFeatures {
            cpu: info.cpu_cfs_quota.unwrap_or(false),
            memory: info.memory_limit.unwrap_or(false),
            processes: info.pids_limit.unwrap_or(false),
            seccomp: security.iter().any(|one| one.contains("seccomp")),
        })
    }

    async fn run(&self, start: &Start<'_>, features: &DaemonFeatures) -> Result<(), RuntimeError> {
        let user = User::of_sandboxes();
        user.take_ownership(start).map_err(|error| failed("give a sandbox its directories", &error))?;
        let handover = Handover::open(start.dir);
        let handover = handover.map_err(|error| failed("listen for the guest agent", &error))?;
        let image = self.image(start.template, start.progress).await?;
        let network = self.network(start).await?;
        let (agent, server, seccomp) = (self.agent.as_path(), self.server.as_str(), features.seccomp);
        let remote = self.agent_address(start, &network).await?;
        let transport = if remote.is_some() { AgentTransport::Tcp } else { AgentTransport::Socket };
        let part = network.clone();
        let parts = container::Parts { agent, image, network: part, server, user, seccomp, transport };
        let options = CreateContainerOptionsBuilder::new().name(start.id).build();
        if start.egress.is_some() {
            let written = write_readable(&container::resolv_conf(start), RESOLV_CONF);
            written.map_err(|error| failed("write a sandbox's resolv.conf", &error))?;
        }
        let made = self.client.create_container(Some(options), parts.container(start)).await;
        made.map_err(|error| failed("make a container", &error))?;
        let started = self.client.start_container(start.id, None::<StartContainerOptions>).await;
        started.map_err(|error| failed("start a container", &error))?;
        let egress = match start.egress {
            Some(egress) => Some(self.egress_over_link(start.id, &network, egress, remote.as_ref()).await?),
            None => None,
        };
        let given = remote.map_or_else(|| start.token.to_vec(), |remote| remote.to_bytes());
        let reason = tokio::select! {
            given = timeout(AGENT_TIMEOUT, hand_over(handover, &given, egress)) => match given {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(HandoverError::Network(error))) => return Err(error),
                Ok(Err(HandoverError::Io(error))) => error.to_string(),
                Err(_) => format!("the guest agent did not come within {} s", AGENT_TIMEOUT.as_secs()),
            },
            ended = self.wait_for_end(start.id, start.dir) => {
                ended?;
                "the guest agent ended at once".to_owned()
            }
        };
        let log = self.agent_log(start.id, start.dir).await;
        let between = if log.is_empty() { "" } else { ": " };
        Err(failed("start the guest agent", &format!("{reason}{between}{log}")))
    }

    /// Runs a container with a policy on its link to a network, and to the server's port if its agent
    /// connects to that.
    async fn egress_over_link(
        &self,
        id: &str,
        network: &str,
        egress: &Egress,
        remote: Option<&StartParameters>,
    ) -> Result<Egress, RuntimeError> {
        let found = self.find(id).await.map_err(|error| failed("find a container", &error))?;
        let uplink = found.as_ref().and_then(|found| container::uplink(found, network)).ok_or_else(|| {
            let reason = format!("the network `{network}` (DOCKER_NETWORK) has no IPv4 gateway");
            RuntimeError::Network(reason)
        })?;
        let dialled = remote.into_iter().flat_map(|remote| &remote.addresses);
        let except = dialled.filter_map(|address| address.parse().ok()).collect();
        Ok(Egress { uplink, except, ..egress.clone() })
    }

    /// Returns the container of a running sandbox, for an action on it.
    async fn container(
        &self,
        id: &str,
        dir: &SandboxDir,
        action: &'static str,
    ) -> Result<Container, RuntimeError> {
        if !self.can_swap_workspace() {
            return Err(failed(action, &"only the superuser can reach the mounts of containers"));
        }
        let found = self.find(id).await.map_err(|error| failed(action, &error))?;
        let pid = found.filter(is_running).and_then(|found| found.state?.pid);
        let pid = pid.ok_or_else(|| failed(action, &"the sandbox is gone"))?;
        let first = i32::try_from(pid).map_or(Ok(None), |pid| first_process(pid, dir));
        let first = first.map_err(|error| failed(action, &error))?;
        let first = first.ok_or_else(|| failed(action, &"the Docker daemon is not on this machine"))?;
        Ok(Container::new(first, dir, Box::new(failed)))
    }

    /// Waits until a container that is being removed is gone.
    async fn wait_for_removal(&self, id: &str) -> Result<(), RuntimeError> {
        let gone = async {
            while self.find(id).await?.is_some() {
                sleep(POLL_INTERVAL).await;
            }
            Ok::<_, Error>(())
        };
        let gone = timeout(AGENT_TIMEOUT, gone).await;
        let gone = gone.map_err(|_| failed("remove a container", &"the daemon takes too long"))?;
        gone.map_err(|error| failed("remove a container", &error))
    }
}

#[async_trait]
impl Runtime for Docker {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns the machine for root, whose mounts the daemon can see.
    async fn mount_holder(&self) -> Result<NamespaceHolder, String> {
        if rustix::process::geteuid().is_root() {
            return Ok(NamespaceHolder::Machine);
        }
        Err("the Docker daemon cannot see what an ordinary user mounts".to_owned())
    }

    fn owner(&self) -> Option<(u32, u32)> {
        let User { uid, gid } = User::of_sandboxes();
        rustix::process::geteuid().is_root().then_some((uid, gid))
    }

    async fn missing_features(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(self.features().await?.missing())
    }

    async fn start(&self, start: &Start<'_>) -> Result<StartResult, RuntimeError> {
        let features = self.features().await?;
        self.run(start, &features).await?;
        Ok(StartResult { not_applied: features.missing() })
    }

    async fn not_applied(&self, _id: &str, _dir: &SandboxDir) -> Result<Vec<String>, RuntimeError> {
        self.missing_features().await
    }

    async fn is_running(&self, id: &str, _dir: &SandboxDir) -> Result<bool, RuntimeError> {
        let found = self.find(id).await.map_err(|error| failed("find a container", &error))?;
        Ok(found.is_some_and(|found| is_running(&found)))
    }

    /// Waits with retries: containers may keep running while the daemon does not answer.
    async fn wait_for_end(&self, id: &str, _dir: &SandboxDir) -> Result<(), RuntimeError> {
        loop {
            match self.find(id).await {
                Ok(Some(found)) if is_running(&found) => {}
                Ok(_) => return Ok(()),
                Err(error) => {
                    tracing::warn!(sandbox = id, %error, "the Docker daemon does not answer");
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
            return Err(failed(FREEZE, &"the sandbox is gone"));
        }
        pause_note::write(dir).map_err(|error| failed(FREEZE, &error))?;
        let (mut left, pause) = PAUSE_ATTEMPTS;
        while let Err(error) = self.client.pause_container(id).await {
            left -= 1;
            // The OCI runtime gives up soon if processes are slow to stop, and the daemon may not have
            // learned yet that the container was unpaused the last time.
            if left == 0 || !self.is_running(id, dir).await? {
                self.thaw(id, dir).await?;
                return Err(failed(FREEZE, &error));
            }
            sleep(pause).await;
        }
        Ok(Frozen { method: freeze::FreezeMethod::Cgroup, processes: None })
    }

    async fn thaw(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        if !dir.frozen().exists() {
            return Ok(());
        }
        self.unpause(id).await?;
        pause_note::remove(dir).map_err(|error| failed(THAW, &error))
    }

    /// Returns true for root. Whether the daemon is on this machine is checked at each swap.
    fn can_swap_workspace(&self) -> bool {
        container_access::may_enter()
    }

    async fn workspace_users(
        &self,
        id: &str,
        dir: &SandboxDir,
        end: Option<(ProcessScope, Duration)>,
    ) -> Result<Vec<WorkspaceProcess>, RuntimeError> {
        self.container(id, dir, USERS).await?.workspace_users(end).await
    }

    async fn deleted_bytes(&self, id: &str, dir: &SandboxDir) -> Result<u64, RuntimeError> {
        self.container(id, dir, USERS).await?.deleted_bytes().await
    }

    async fn swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        self.container(id, dir, SWAP).await?.swap(workspace).await
    }

    async fn settle_swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<bool, RuntimeError> {
        self.container(id, dir, SWAP).await?.settle_swap(workspace).await
    }

    async fn end(&self, id: &str, _dir: &SandboxDir) -> Result<(), RuntimeError> {
        let found = self.find(id).await.map_err(|error| failed("find a container", &error))?;
        if found.is_none() {
            return Ok(());
        }
        // Volumes that the image asks for are the container's own.
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match self.client.remove_container(id, Some(options)).await {
            // It is being removed already.
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
        log.trim().to_owned()
    }

    async fn usage(&self, id: &str) -> Result<Usage, RuntimeError> {
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let mut stats = self.client.stats(id, Some(options));
        match stats.next().await {
            Some(Ok(stats)) => Ok(container::usage(&stats)),
            Some(Err(error)) if !is_not_found(&error) => Err(failed("count what a sandbox uses", &error)),
            _ => Ok(Usage::default()),
        }
    }

    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError> {
        let filters = [("label".to_owned(), vec![format!("{SERVER}={}", self.server)])];
        let filters = std::collections::HashMap::from(filters);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found = self.client.list_containers(Some(options)).await;
        let found = found.map_err(|error| failed("list containers", &error))?;
        let ids = found.into_iter().filter_map(|container| container.labels?.remove(SANDBOX));
        Ok(ids.collect())
    }

    async fn templates(&self) -> Result<Vec<Template>, RuntimeError> {
        self.list_templates().await
    }
}

/// Writes a file that all users inside may read, independent of the umask of this process.
fn write_readable(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

fn is_running(container: &ContainerInspectResponse) -> bool {
    container.state.as_ref().and_then(|state| state.running).unwrap_or(false)
}

/// Returns true if the daemon reports that there is no such container.
fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

fn failed(action: &'static str, error: &dyn std::fmt::Display) -> RuntimeError {
    RuntimeError::Failed { runtime: NAME, action, reason: error.to_string() }
}
