//! What the requests and answers about sandboxes look like.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workspace_sandbox::runtime::{AllowError, Network};
use workspace_sandbox::{Materialize, NewSandbox, ResourceRequest, Stats, View};

use crate::code;
use crate::error::ApiError;
use crate::settings::{Cpus, Size};
use crate::time;

/// The template that every runtime has without anybody bringing one.
const OWN_TEMPLATE: &str = "base";

/// A sandbox to be made.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateSandbox {
    /// What its root filesystem is made from.
    #[schema(example = "base", min_length = 1, max_length = 255)]
    pub(crate) template: String,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    name: Option<String>,
    /// What every command in it finds in its environment.
    #[serde(default)]
    envs: BTreeMap<String, String>,
    /// Refuse the request with `SANDBOX_NAME_TAKEN` if the owner has a sandbox of that name.
    #[serde(default, alias = "uniqueName", skip_serializing_if = "std::ops::Not::not")]
    unique_name: bool,
    /// Seconds until it ends by itself.
    #[serde(default, alias = "timeoutSeconds", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    timeout_seconds: Option<u64>,
    /// What it may use.
    #[serde(default)]
    resources: Resources,
    /// What it may reach: nothing, or what the machine can reach.
    #[serde(default)]
    network: NetworkChoice,
    /// All that it may reach with the network `egress`: host names (`example.com` itself, `*.example.com` for all below
    /// it) and ranges of IPv4 addresses. Without it, everything but the machine and what the server denies.
    #[serde(default, alias = "egressAllow", skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["pypi.org", "*.pythonhosted.org", "10.1.0.0/16"]), min_items = 1, max_items = 256)]
    egress_allow: Option<Vec<String>>,
    /// What lists can be narrowed by.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// The snapshot that `/workspace` begins with; it is empty without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<String>,
    /// How the workspace is made: `overlay`, `clone` or `copy`; as the server chose when not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// When the files of the snapshot are written for it: `full` before the sandbox runs, `lazy` never (they are loaded as
    /// they are read), `auto` the one or the other, and in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    materialize: Option<String>,
}

impl CreateSandbox {
    /// Returns whose choices decide if the sandbox can be made.
    pub(crate) fn choices(&self) -> Choices {
        let usual = self.template == OWN_TEMPLATE
            && self.snapshot.is_none()
            && self.resources == Resources::default();
        if usual { Choices::OfServer } else { Choices::OfCaller }
    }
}

/// Choices that decide if a sandbox can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choices {
    /// The server's alone: the template that every runtime has, an empty workspace and the usual limits.
    OfServer,
    /// Also the caller's: a template, a snapshot or limits that may be in the way.
    OfCaller,
}

/// What a sandbox may reach.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NetworkChoice {
    /// Nothing but itself.
    #[default]
    None,
    /// What the machine can reach, but not the machine.
    Egress,
}

impl NetworkChoice {
    fn parse(self, allow: Option<Vec<String>>) -> Result<Network, ApiError> {
        let wrong = |message: String| {
            ApiError::new(code::INVALID_REQUEST, format!("egress_allow: {message}"))
                .detail("field", "egress_allow")
        };
        match (self, allow) {
            (Self::None, None) => Ok(Network::None),
            (Self::None, Some(_)) => Err(wrong("is for the network `egress` alone".to_owned())),
            (Self::Egress, allow) => {
                let parse = |list: Vec<String>| list.iter().map(|entry| entry.parse()).collect();
                let parsed: Result<_, AllowError> = allow.map(parse).transpose();
                Ok(Network::Egress { allow: parsed.map_err(|error| wrong(error.to_string()))? })
            }
        }
    }
}

/// What a sandbox may use; the server's default for what is not said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resources {
    /// Processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0.5")]
    cpu: Option<String>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "512m")]
    memory: Option<String>,
    /// What may be in its workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10g")]
    disk: Option<String>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    processes: Option<u32>,
}

impl TryFrom<CreateSandbox> for NewSandbox {
    type Error = ApiError;

    fn try_from(order: CreateSandbox) -> Result<Self, ApiError> {
        Ok(Self {
            template: order.template,
            name: order.name,
            unique_name: order.unique_name,
            envs: order.envs,
            timeout: order.timeout_seconds.map(Duration::from_secs),
            resources: order.resources.parse()?,
            network: order.network.parse(order.egress_allow)?,
            labels: order.labels,
            snapshot: order.snapshot.map(|text| parsed("snapshot", &text)).transpose()?,
            provider: order.provider.map(|text| parsed("provider", &text)).transpose()?,
            materialize: order
                .materialize
                .map_or(Ok(Materialize::Auto), |text| parsed("materialize", &text))?,
        })
    }
}

/// What a field means, or why it means nothing.
fn parsed<T: FromStr<Err: std::fmt::Display>>(field: &'static str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error: T::Err| {
        ApiError::new(code::INVALID_REQUEST, format!("{field}: {error}")).detail("field", field)
    })
}

impl Resources {
    fn parse(&self) -> Result<ResourceRequest, ApiError> {
        let wrong = |field: &str, text: &str, allowed: &str| {
            let message = format!("resources.{field}: `{text}` is not {allowed}");
            ApiError::new(code::INVALID_REQUEST, message).detail("field", format!("resources.{field}"))
        };
        let size = |field: &str, text: &Option<String>| match text {
            Some(text) => {
                let parsed = Size::parse(text).map(|size| Some(size.0));
                parsed.ok_or_else(|| wrong(field, text, "a size such as `512m` or `2g`"))
            }
            None => Ok(None),
        };
        let cpu_millis = match &self.cpu {
            Some(text) => {
                let parsed = Cpus::parse(text).map(|cpus| cpus.0);
                Some(
                    parsed
                        .ok_or_else(|| wrong("cpu", text, "a number of processors such as `0.5` or `2`"))?,
                )
            }
            None => None,
        };
        let (memory, disk) = (size("memory", &self.memory)?, size("disk", &self.disk)?);
        Ok(ResourceRequest { cpu_millis, memory, disk, processes: self.processes })
    }
}

/// A sandbox.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    /// Names it.
    #[schema(example = "sbx-0190c2f1a5c07cc0a1b2c3d4e5f60718")]
    id: String,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Whose it is.
    owner: String,
    /// What it is doing: starting, running, stopping, stopped or error.
    state: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    state_reason: Option<String>,
    /// What its root filesystem is made from.
    template: String,
    /// What runs it.
    runtime: String,
    /// What it may reach.
    network: String,
    /// All that it may reach of that; everything if there is no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    egress_allow: Option<Vec<String>>,
    /// What lists can be narrowed by.
    labels: BTreeMap<String, String>,
    /// What it may use.
    resources: ResourceLimits,
    /// The snapshot that its workspace was made from, or restored to last.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    /// How its workspace was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// What was asked for and could not be applied on this machine, and why.
    not_applied: Vec<String>,
    /// Whether its guest agent is there.
    agent_connected: bool,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
    /// When it ends by itself.
    #[schema(format = DateTime)]
    expires_at: String,
}

/// What a sandbox may use.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ResourceLimits {
    /// Processors.
    cpu: String,
    /// Bytes of memory.
    memory: u64,
    /// Bytes in its workspace.
    disk: u64,
    /// Processes and threads.
    processes: u32,
}

impl TryFrom<View> for Sandbox {
    type Error = ApiError;

    fn try_from(view: View) -> Result<Self, ApiError> {
        let View { sandbox, config, agent_connected } = view;
        Ok(Self {
            id: sandbox.id,
            name: sandbox.name,
            owner: sandbox.owner,
            state: sandbox.state.as_str().to_owned(),
            state_reason: sandbox.state_reason,
            template: sandbox.template,
            runtime: sandbox.runtime,
            network: sandbox.network,
            egress_allow: config.egress_allow.map(|list| list.iter().map(ToString::to_string).collect()),
            labels: sandbox.labels,
            resources: ResourceLimits {
                cpu: cpus(config.limits.cpu_millis.unwrap_or_default()),
                memory: config.limits.memory_bytes.unwrap_or_default(),
                disk: config.disk.unwrap_or_default(),
                processes: config.limits.processes.unwrap_or_default(),
            },
            snapshot: config.snapshot.map(|id| id.to_string()),
            provider: config.provider.map(|kind| kind.to_string()),
            not_applied: config.missing,
            agent_connected,
            created_at: time::time(sandbox.created_at)?,
            expires_at: time::time(sandbox.expires_at)?,
        })
    }
}

fn cpus(millis: u32) -> String {
    (f64::from(millis) / 1_000.0).to_string()
}

/// Which sandboxes to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Which page, from 1. Pages shift when sandboxes are made or removed meanwhile; `cursor` does not.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub(crate) page: Option<u32>,
    /// `next` of the page before, instead of `page`.
    pub(crate) cursor: Option<String>,
    /// How long a page is.
    #[param(minimum = 1, maximum = 100)]
    pub(crate) limit: Option<u32>,
    /// In which state.
    pub(crate) state: Option<String>,
    /// What their names begin with.
    #[serde(alias = "namePrefix")]
    pub(crate) name_prefix: Option<String>,
    /// Labels that they have: `name=value,name=value`.
    pub(crate) labels: Option<String>,
}

/// A page of sandboxes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxList {
    /// Newest first.
    pub(crate) items: Vec<Sandbox>,
    /// How many there are in all.
    pub(crate) total: u64,
    /// Which page.
    pub(crate) page: u32,
    /// How long a page is.
    pub(crate) limit: u32,
    /// The `cursor` of the next page; none on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// What is to change.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patch {
    /// All labels that it will have.
    pub(crate) labels: BTreeMap<String, String>,
}

/// How to end a sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeleteQuery {
    /// Keeps its workspace: as a snapshot, or with an admin key as a directory where it is one.
    #[serde(default, alias = "keepWorkspace")]
    pub(crate) keep_workspace: bool,
}

/// A sandbox that is gone, whose workspace is kept.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deleted {
    /// The sandbox.
    pub(crate) id: String,
    /// Where its workspace is now, on the server, if it is kept as a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workspace_path: Option<String>,
    /// Snapshot of its workspace, if it is kept as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<String>,
}

/// Sandboxes to end.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchDelete {
    /// Which.
    #[schema(min_items = 1, max_items = 50)]
    pub(crate) ids: Vec<String>,
    /// Whether their workspaces stay.
    #[serde(default, alias = "keepWorkspace")]
    pub(crate) keep_workspace: bool,
}

/// What became of them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchDeleted {
    /// Those that are gone.
    pub(crate) succeeded: Vec<String>,
    /// Those that are not.
    pub(crate) failed: Vec<Failure>,
}

/// One that is not gone.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Failure {
    /// Which.
    pub(crate) id: String,
    /// Why.
    pub(crate) error: String,
}

/// How much longer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    /// Seconds.
    #[schema(minimum = 1, maximum = 3600)]
    pub(crate) seconds: u64,
}

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogsQuery {
    /// So many at most.
    #[param(minimum = 1, maximum = 10000)]
    tail: Option<usize>,
    /// Not before this moment, RFC 3339.
    since: Option<String>,
    /// Not after this moment, RFC 3339.
    until: Option<String>,
}

impl LogsQuery {
    pub(crate) fn check(&self) -> Result<(usize, Option<i64>, Option<i64>), ApiError> {
        let tail = self.tail.unwrap_or(100);
        if !(1..=10_000).contains(&tail) {
            let message = "tail: 1 to 10000 lines are allowed";
            return Err(ApiError::new(code::INVALID_REQUEST, message).detail("field", "tail"));
        }
        let moment = |field: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => time::parse(text).map(Some).ok_or_else(|| {
                let message = format!("{field}: `{text}` is no time such as `2026-01-31T10:00:00Z`");
                ApiError::new(code::INVALID_REQUEST, message).detail("field", field)
            }),
        };
        Ok((tail, moment("since", &self.since)?, moment("until", &self.until)?))
    }
}

/// What commands printed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Logs {
    /// The lines.
    pub(crate) logs: String,
    /// Whether there were more.
    pub(crate) truncated: bool,
}

/// What a sandbox uses.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxStats {
    sandbox_id: String,
    cpu: CpuStats,
    memory: MemoryStats,
    disk: DiskStats,
    network: NetworkStats,
    /// Processes and threads.
    processes: u64,
    /// When this was found.
    #[schema(format = DateTime)]
    updated_at: String,
}

/// Processors.
#[derive(Debug, Serialize, ToSchema)]
struct CpuStats {
    /// Percent of one processor.
    usage: f64,
    /// Processors that it may use.
    limit: String,
}

/// Memory.
#[derive(Debug, Serialize, ToSchema)]
struct MemoryStats {
    /// Bytes.
    usage: u64,
    /// Bytes that it may use.
    limit: u64,
    /// Percent of what it may use.
    percent: f64,
}

/// The workspace, and the output that is kept of commands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DiskStats {
    /// Bytes. Where no project quota counts them, a file or directory counts as 4096 at least.
    usage: u64,
    /// When the workspace was measured: every few seconds while the sandbox runs, less often the more files it has.
    #[schema(format = DateTime)]
    measured_at: String,
    /// Bytes of output among those.
    output: u64,
    /// Bytes that it may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

/// What went over the network.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NetworkStats {
    /// Bytes received.
    rx_bytes: u64,
    /// Bytes sent.
    tx_bytes: u64,
}

impl SandboxStats {
    pub(crate) fn new(sandbox_id: String, stats: &Stats) -> Result<Self, ApiError> {
        let memory = stats.usage.memory_bytes.unwrap_or_default();
        let limit = stats.limits.memory_bytes.unwrap_or_default();
        let percent = if limit == 0 { 0.0 } else { memory as f64 * 100.0 / limit as f64 };
        Ok(Self {
            sandbox_id,
            cpu: CpuStats {
                usage: stats.cpu_percent,
                limit: cpus(stats.limits.cpu_millis.unwrap_or_default()),
            },
            memory: MemoryStats { usage: memory, limit, percent },
            disk: DiskStats {
                usage: stats.disk,
                measured_at: time::time(stats.disk_time)?,
                output: stats.output,
                limit: stats.disk_limit,
            },
            network: NetworkStats { rx_bytes: 0, tx_bytes: 0 },
            processes: stats.usage.processes.unwrap_or_default(),
            updated_at: time::time(stats.time)?,
        })
    }
}
