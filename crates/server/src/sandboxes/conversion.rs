//! Conversions between the types of the API and those of the sandbox service.

use std::str::FromStr;
use std::time::Duration;

use workspace_api::error_codes;
use workspace_api::pauses::{self, PauseMode};
use workspace_api::sandboxes;
use workspace_api::sandboxes::{
    CpuStats, CreateSandbox, DiskStats, FollowChoice, LogsQuery, MemoryStats, NetworkChoice, NetworkStats,
    ResourceLimits, Resources, RevertedChanges, RootChoice, Sandbox, SandboxStats, SetTimeout, TraceChoice,
};
use workspace_catalog::{PauseStep, owner_behind_agent};
use workspace_nfs::{ClientList, ParseClientListError};
use workspace_sandbox::runtime::{AllowError, Network};
use workspace_sandbox::{
    Expiry, Lineage, Materialize, NewSandbox, OnEnd, OnTimeout, ResourceRequest, RootMode, SandboxInfo,
    Stats, Trace,
};

use crate::caller::Caller;
use crate::error::ApiError;
use crate::nfs::server::Nfs;
use crate::projects::ProjectFiles;
use crate::settings::{Cpus, Size};
use crate::time;

/// Template that every runtime has built in.
const BUILT_IN_TEMPLATE: &str = "base";
const LOG_LINES_DEFAULT: usize = 100;
const LOG_LINES_MAX: usize = 10_000;

/// Origin of the parameters that the creation of a sandbox may fail because of. Failures with parameters of the server
/// count for its readiness (`readiness/sandboxes.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterOrigin {
    /// Only defaults of the server: built-in template, empty workspace, default limits.
    Server,
    /// The caller chose a template, a snapshot, a project, limits, or a method of making the workspace. Each of these
    /// may cause the failure, such as files that do not fit on the disk.
    Caller,
}

impl ParameterOrigin {
    pub(super) fn from_request(request: &CreateSandbox) -> Self {
        let is_default = request.template == BUILT_IN_TEMPLATE
            && request.snapshot.is_none()
            && request.project.is_none()
            && request.provider.is_none()
            && request.materialize.is_none()
            && request.resources == Resources::default();
        if is_default { Self::Server } else { Self::Caller }
    }
}

/// Parses a request for a sandbox of the key `created_by`. Fails with `INVALID_REQUEST` and the name of the field.
pub(super) fn new_sandbox(
    request: CreateSandbox,
    created_by: &str,
    files: Option<ProjectFiles>,
) -> Result<NewSandbox, ApiError> {
    let follow = match request.follow {
        Some(FollowChoice::Head) => files.as_ref().map(|files| files.anchor.clone()),
        Some(FollowChoice::Rebase) | None => None,
    };
    let rebases = request.follow == Some(FollowChoice::Rebase);
    let read_only = files.as_ref().is_some_and(|files| files.is_read_only);
    if rebases && read_only {
        let message = "follow: the agent may change nothing, so there is nothing to rebase: use `head`";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "follow"));
    }
    let project_base = files.map(|files| files.base);
    let (created_by, project, agent) = (Some(created_by.to_owned()), request.project, request.agent);
    Ok(NewSandbox {
        lineage: Lineage {
            forked_from: None,
            created_by,
            project,
            agent,
            project_base: project_base.clone(),
            former_bases: Vec::new(),
        },
        trace: match request.trace {
            TraceChoice::Off => Trace::Off,
            TraceChoice::Command => Trace::Command,
        },
        template: request.template,
        name: request.name,
        unique_name: request.unique_name,
        envs: request.envs,
        timeout: request.timeout_seconds.map(Duration::from_secs),
        on_timeout: match request.on_timeout {
            pauses::OnTimeout::Delete => OnTimeout::Delete,
            pauses::OnTimeout::Pause => OnTimeout::Pause,
        },
        on_end: request.on_end.map(end_choice).unwrap_or_default(),
        resources: resource_request(&request.resources)?,
        network: network(request.network, request.egress_allow)?,
        outside_clients: request.nfs_allowed_ips.as_deref().map(nfs_clients).transpose()?,
        labels: request.labels,
        snapshot: match project_base {
            Some(base) => Some(base.snapshot),
            None => request.snapshot.map(|text| parse("snapshot", &text)).transpose()?,
        },
        provider: request.provider.map(|text| parse("provider", &text)).transpose()?,
        materialize: request.materialize.map_or(Ok(Materialize::Auto), |text| parse("materialize", &text))?,
        root: match request.root {
            RootChoice::Discarded => RootMode::Discarded,
            RootChoice::Kept => RootMode::Kept,
        },
        template_build: false,
        read_only,
        follow,
        rebases,
    })
}

/// Maximum number of addresses and networks in a list of NFS clients.
const NFS_CLIENTS_MAX: usize = 64;

/// Returns the treatment of changes at the end of a sandbox.
pub(super) fn end_choice(choice: sandboxes::OnEnd) -> OnEnd {
    match choice {
        sandboxes::OnEnd::Complete => OnEnd::Complete,
        sandboxes::OnEnd::Discard => OnEnd::Discard,
    }
}

/// Checks a list of NFS clients. Returns it with the addresses and networks as they are compared.
fn nfs_clients(list: &[String]) -> Result<Vec<String>, ApiError> {
    const FIELD: &str = "nfsAllowedIps";
    let wrong = |message: String| {
        ApiError::new(error_codes::INVALID_REQUEST, format!("{FIELD}: {message}")).detail("field", FIELD)
    };
    if list.is_empty() || list.len() > NFS_CLIENTS_MAX {
        return Err(wrong(format!("has 1 to {NFS_CLIENTS_MAX} addresses or networks")));
    }
    if let Some(several) = list.iter().find(|item| item.contains([',', '*']) || item.trim().is_empty()) {
        return Err(wrong(format!(
            "`{several}` is not one address or network; leave out {FIELD} to allow all"
        )));
    }
    let clients: ClientList =
        list.join(",").parse().map_err(|error: ParseClientListError| wrong(error.to_string()))?;
    Ok(clients.to_string().split(',').map(str::to_owned).collect())
}

fn network(choice: NetworkChoice, allow: Option<Vec<String>>) -> Result<Network, ApiError> {
    let wrong = |message: String| {
        ApiError::new(error_codes::INVALID_REQUEST, format!("egressAllow: {message}"))
            .detail("field", "egressAllow")
    };
    match (choice, allow) {
        (NetworkChoice::None, None) => Ok(Network::None),
        (NetworkChoice::None, Some(_)) => Err(wrong(
            "only the network `egress` has a list; set `network` to `egress` (`--network egress`)".to_owned(),
        )),
        (NetworkChoice::Egress, allow) => {
            let parse = |list: Vec<String>| list.iter().map(|entry| entry.parse()).collect();
            let parsed: Result<_, AllowError> = allow.map(parse).transpose();
            Ok(Network::Egress { allow: parsed.map_err(|error| wrong(error.to_string()))? })
        }
    }
}

fn parse<T: FromStr<Err: std::fmt::Display>>(field: &'static str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error: T::Err| {
        ApiError::new(error_codes::INVALID_REQUEST, format!("{field}: {error}")).detail("field", field)
    })
}

fn resource_request(resources: &Resources) -> Result<ResourceRequest, ApiError> {
    let wrong = |field: &str, text: &str, allowed: &str| {
        let message = format!("resources.{field}: `{text}` is not {allowed}");
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", format!("resources.{field}"))
    };
    let size = |field: &str, text: &Option<String>| match text {
        Some(text) => {
            let parsed = Size::parse(text).map(|size| Some(size.0));
            parsed.ok_or_else(|| wrong(field, text, "a size such as `512m` or `2g`"))
        }
        None => Ok(None),
    };
    let cpu_millis = match &resources.cpu {
        Some(text) => {
            let parsed = Cpus::parse(text).map(|cpus| cpus.0);
            Some(parsed.ok_or_else(|| wrong("cpu", text, "a number of cores such as `0.5` or `2`"))?)
        }
        None => None,
    };
    let (memory, disk) = (size("memory", &resources.memory)?, size("disk", &resources.disk)?);
    Ok(ResourceRequest { cpu_millis, memory, disk, processes: resources.processes })
}

/// Converts a sandbox for a caller.
pub(crate) fn sandbox_to_api(nfs: &Nfs, caller: &Caller, info: SandboxInfo) -> Result<Sandbox, ApiError> {
    let nfs = if caller.may_mount() { nfs.export_of(&info.sandbox.id) } else { None };
    let SandboxInfo { sandbox, config, agent_connected, sequence } = info;
    // For an agent, a sequence counts only the changes that it can see. This one would reveal the number of all.
    let sequence = sequence.filter(|_| owner_behind_agent(&sandbox.owner).is_none());
    let on_end = config.project_changes_at_end().map(|choice| match choice {
        OnEnd::Complete => sandboxes::OnEnd::Complete,
        OnEnd::Discard => sandboxes::OnEnd::Discard,
    });
    Ok(Sandbox {
        nfs,
        on_end,
        keep: keep(&sandbox),
        state: sandbox.visible_state().as_str().to_owned(),
        id: sandbox.id,
        name: sandbox.name,
        owner: sandbox.owner,
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
        root: match config.root {
            RootMode::Discarded => RootChoice::Discarded,
            RootMode::Kept => RootChoice::Kept,
        },
        forked_from: config.lineage.forked_from,
        created_by: config.lineage.created_by,
        project: config.lineage.project,
        agent: config.lineage.agent,
        sequence,
        follow: match (config.follows, config.rebases) {
            (true, _) => Some(FollowChoice::Head),
            (false, true) => Some(FollowChoice::Rebase),
            (false, false) => None,
        },
        base_moved: config.base_moved.is_some(),
        reverted: config.lineage.project_base.and_then(|base| base.reverted).map(reverted_to_api),
        read_only: config.read_only,
        trace: match config.trace {
            Trace::Off => TraceChoice::Off,
            Trace::Command => TraceChoice::Command,
        },
        not_applied: config.not_applied,
        agent_connected,
        created_at: time::format_millis(sandbox.created_at)?,
        expires_at: time::format_millis(sandbox.expires_at)?,
        on_timeout: match config.on_timeout {
            OnTimeout::Delete => pauses::OnTimeout::Delete,
            OnTimeout::Pause => pauses::OnTimeout::Pause,
        },
    })
}

fn reverted_to_api(reverted: workspace_sandbox::RevertedChanges) -> RevertedChanges {
    let workspace_sandbox::RevertedChanges { completion, count, paths, kept_count, kept } = reverted;
    RevertedChanges { completion, count, paths, kept_count, kept }
}

/// Returns the part of a paused sandbox that is kept; `None` if the sandbox is not paused.
fn keep(sandbox: &workspace_catalog::Sandbox) -> Option<PauseMode> {
    let on_disk = sandbox.pause == Some(PauseStep::Disk);
    sandbox.is_paused().then_some(if on_disk { PauseMode::Disk } else { PauseMode::Memory })
}

fn cpus(millis: u32) -> String {
    (f64::from(millis) / 1_000.0).to_string()
}

/// Validates a range of logs. Returns the number of lines, and the earliest and latest time in milliseconds since 1970.
pub(super) fn check_logs(query: &LogsQuery) -> Result<(usize, Option<i64>, Option<i64>), ApiError> {
    let tail = query.tail.unwrap_or(LOG_LINES_DEFAULT);
    if !(1..=LOG_LINES_MAX).contains(&tail) {
        let message = "tail must be between 1 and 10000";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "tail"));
    }
    Ok((tail, parse_time("since", query.since.as_deref())?, parse_time("until", query.until.as_deref())?))
}

/// Parses a request for an expiry. Fails with `INVALID_REQUEST` unless it has exactly one time.
pub(super) fn expiry(request: &SetTimeout) -> Result<Expiry, ApiError> {
    let expires_at = parse_time("expiresAt", request.expires_at.as_deref())?;
    match (expires_at, request.timeout_seconds) {
        (Some(time), None) => Ok(Expiry::At(time)),
        (None, Some(seconds)) => Ok(Expiry::After(seconds)),
        _ => {
            let message = "exactly one of `expiresAt` and `timeoutSeconds` is required";
            Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "expiresAt"))
        }
    }
}

/// Parses an optional time. Fails with `INVALID_REQUEST` and the name of the field.
pub(super) fn parse_time(field: &str, text: Option<&str>) -> Result<Option<i64>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    time::parse(text).map(Some).ok_or_else(|| {
        let message = format!("{field}: `{text}` is not a time such as `2026-01-31T10:00:00Z`");
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", field)
    })
}

pub(super) fn stats_to_api(sandbox_id: String, stats: &Stats) -> Result<SandboxStats, ApiError> {
    let memory = stats.usage.memory_bytes.unwrap_or_default();
    let limit = stats.limits.memory_bytes.unwrap_or_default();
    let percent = if limit == 0 { 0.0 } else { memory as f64 * 100.0 / limit as f64 };
    let network = stats.usage.network.unwrap_or_default();
    Ok(SandboxStats {
        sandbox_id,
        cpu: CpuStats { usage: stats.cpu_percent, limit: cpus(stats.limits.cpu_millis.unwrap_or_default()) },
        memory: MemoryStats { usage: memory, limit, percent },
        disk: DiskStats {
            usage: stats.disk,
            measured_at: time::format_millis(stats.disk_time)?,
            output: stats.output,
            limit: stats.disk_limit,
        },
        network: NetworkStats { rx_bytes: network.received, tx_bytes: network.sent },
        processes: stats.usage.processes.unwrap_or_default(),
        updated_at: time::format_millis(stats.time)?,
    })
}
