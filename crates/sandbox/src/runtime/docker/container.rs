//! Configuration and usage of a sandbox's container.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerStatsResponse, HealthConfig, HostConfig,
    HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount, MountType, ResourcesUlimits,
};
use ipnet::Ipv4Net;
use workspace_host::launch::{SOCKETS, WORKSPACE};
use workspace_host::seccomp_profile;

use super::{SANDBOX_LABEL, SERVER_LABEL};
use crate::runtime::guest::{AGENT, AgentTransport, ENVIRONMENT, IN_MEMORY, User, arguments, shared_memory};
use crate::runtime::{NetworkBytes, ResourceUsage, SandboxSpec, Uplink};

/// Size of the log of a guest agent: enough to explain why it did not start.
const LOG_BYTES: &str = "64k";

/// Name of the network interface of a container that is in one network.
const LINK: &str = "eth0";

/// Parts of a container's configuration that [`SandboxSpec`] does not have.
pub(super) struct Parts<'a> {
    /// Path of the guest agent's program on the host.
    pub(super) guest_agent: &'a Path,
    pub(super) image: String,
    pub(super) network: String,
    /// Value of [`SERVER_LABEL`].
    pub(super) server_label: &'a str,
    pub(super) user: User,
    /// True if the daemon supports seccomp.
    pub(super) seccomp: bool,
    /// Transport between guest agent and server.
    pub(super) transport: AgentTransport,
}

impl Parts<'_> {
    pub(super) fn container(&self, spec: &SandboxSpec<'_>) -> ContainerCreateBody {
        let labels = [(SANDBOX_LABEL, spec.id), (SERVER_LABEL, self.server_label)];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        ContainerCreateBody {
            hostname: Some(spec.id.to_owned()),
            user: Some(format!("{}:{}", self.user.uid, self.user.gid)),
            env: Some(ENVIRONMENT.map(str::to_owned).into()),
            image: Some(self.image.clone()),
            entrypoint: Some(vec![AGENT.to_owned()]),
            cmd: Some(arguments(spec.id, self.transport)),
            working_dir: Some("/".to_owned()),
            // A health check of the image would run beside the guest agent.
            healthcheck: Some(HealthConfig {
                test: Some(vec!["NONE".to_owned()]),
                ..HealthConfig::default()
            }),
            labels: Some(labels.into()),
            host_config: Some(self.host(spec)),
            ..ContainerCreateBody::default()
        }
    }

    fn host(&self, spec: &SandboxSpec<'_>) -> HostConfig {
        let limits = spec.limits;
        let memory = limits.memory_bytes.map(signed);
        let log = [("max-size", LOG_BYTES), ("max-file", "1")];
        HostConfig {
            readonly_rootfs: Some(true),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(self.security()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            ipc_mode: Some("private".to_owned()),
            network_mode: Some(self.network.clone()),
            nano_cpus: limits.cpu_millis.map(|millis| i64::from(millis) * 1_000_000),
            memory,
            // Memory and swap together: no swap.
            memory_swap: memory,
            pids_limit: limits.processes.map(i64::from),
            // The limit on open files is left to the daemon, which may not be allowed to raise it.
            ulimits: Some(vec![ulimit("core", 0)]),
            shm_size: shared_memory(spec).map(signed),
            tmpfs: Some(self.tmpfs(spec)),
            mounts: Some(self.mounts(spec)),
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".to_owned()),
                config: Some(log.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            }),
            ..HostConfig::default()
        }
    }

    fn mounts(&self, spec: &SandboxSpec<'_>) -> Vec<Mount> {
        let workspace = spec.workspace.map(|workspace| writable_mount(workspace, WORKSPACE));
        let others =
            [read_only_mount(&spec.dir.sockets(), SOCKETS), read_only_mount(self.guest_agent, AGENT)];
        let nameserver = spec.egress.map(|_| read_only_mount(&resolv_conf(spec), "/etc/resolv.conf"));
        workspace.into_iter().chain(others).chain(nameserver).collect()
    }

    /// Returns the security options. The seccomp profile is the same in all runtimes: the daemon's own may
    /// be older, or disabled.
    fn security(&self) -> Vec<String> {
        let seccomp = self.seccomp.then(|| format!("seccomp={}", seccomp_profile()));
        std::iter::once("no-new-privileges:true".to_owned()).chain(seccomp).collect()
    }

    /// Returns the directories in memory, with their mount options.
    fn tmpfs(&self, spec: &SandboxSpec<'_>) -> HashMap<String, String> {
        let options =
            IN_MEMORY.iter().map(|one| (one.path.to_owned(), one.options(self.user, spec).join(",")));
        options.collect()
    }
}

/// Returns the path of the `resolv.conf` on the host.
pub(super) fn resolv_conf(spec: &SandboxSpec<'_>) -> PathBuf {
    spec.dir.root().join("resolv.conf")
}

/// Returns the uplink of a container in a network; `None` if the network has no gateway.
pub(super) fn uplink(container: &ContainerInspectResponse, network: &str) -> Option<Uplink> {
    let networks = container.network_settings.as_ref()?.networks.as_ref()?;
    let endpoint = networks.get(network)?;
    let address = endpoint.ip_address.as_ref()?.parse().ok()?;
    let gateway = endpoint.gateway.as_ref()?.parse().ok()?;
    let network = Ipv4Net::new(address, u8::try_from(endpoint.ip_prefix_len?).ok()?).ok()?.trunc();
    Some(Uplink::Link { name: LINK.to_owned(), address, gateway, network })
}

fn read_only_mount(from: &Path, to: &str) -> Mount {
    Mount { read_only: Some(true), ..writable_mount(from, to) }
}

fn writable_mount(from: &Path, to: &str) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(from.to_string_lossy().into_owned()),
        target: Some(to.to_owned()),
        read_only: Some(false),
        ..Mount::default()
    }
}

fn ulimit(name: &str, max: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(max), hard: Some(max) }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts the usage that the daemon reports.
pub(super) fn usage(stats: &ContainerStatsResponse) -> ResourceUsage {
    let cpu = stats.cpu_stats.as_ref().and_then(|cpu| cpu.cpu_usage.as_ref()?.total_usage);
    let memory = stats.memory_stats.as_ref().and_then(|memory| {
        let inactive_files = memory.stats.as_ref().and_then(|stats| {
            // In cgroup v1, and in cgroup v2.
            stats.get("total_inactive_file").or_else(|| stats.get("inactive_file")).copied()
        });
        Some(memory.usage?.saturating_sub(inactive_files.unwrap_or_default()))
    });
    let processes = stats.pids_stats.as_ref().and_then(|pids| pids.current);
    let networks = stats.networks.as_ref().filter(|networks| !networks.is_empty());
    let network = networks.map(|networks| NetworkBytes {
        received: networks.values().filter_map(|network| network.rx_bytes).sum(),
        sent: networks.values().filter_map(|network| network.tx_bytes).sum(),
    });
    ResourceUsage { cpu: cpu.map(Duration::from_nanos), memory_bytes: memory, processes, network }
}
