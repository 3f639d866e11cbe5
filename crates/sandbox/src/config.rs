//! Parameters of a new sandbox, and their validation.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use workspace_state::SnapshotId;
use workspace_workspace::{Materialize, ProviderKind};

use crate::error::{Result, SandboxError};
use crate::lineage::{ConflictingHead, HeadVersion, Lineage, ProjectBase};
use crate::root::mode::RootMode;
use crate::runtime::{AllowRule, Limits, Network};
use crate::settings::{Resources, Settings};
use crate::text::check_text;

const NAME_MAX: usize = 128;
const LABELS_MAX: usize = 64;
const LABEL_MAX: usize = 256;
const ALLOW_RULES_MAX: usize = 256;
const ENVS_MAX: usize = 1_024;
const ENVS_BYTES_MAX: usize = 128 << 10;
/// Minimum limits with which a sandbox can run.
const CPU_MILLIS_MIN: u64 = 10;
const MEMORY_MIN: u64 = 8 << 20;
const DISK_MIN: u64 = 1 << 20;
const PROCESSES_MIN: u32 = 4;

/// Treatment of a sandbox whose lifetime is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// Deletes the sandbox.
    #[default]
    Delete,
    /// Pauses the sandbox to disk.
    Pause,
}

/// Treatment of changes in a sandbox of a project that are not completed when the sandbox is deleted or expires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnEnd {
    /// Completes them: they are merged into the project.
    #[default]
    Complete,
    /// Discards them.
    Discard,
}

/// Parameters of a new sandbox.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewSandbox {
    /// Name of the template of its root filesystem.
    pub template: String,
    /// Name chosen by the user.
    pub name: Option<String>,
    /// True if the request is rejected when the owner has a sandbox with this name.
    pub unique_name: bool,
    /// Environment variables of every command in it.
    pub envs: BTreeMap<String, String>,
    /// Lifetime; `None` for the default.
    pub timeout: Option<Duration>,
    /// Treatment when its lifetime is over.
    pub on_timeout: OnTimeout,
    /// Treatment of its uncompleted changes when it is deleted or expires. Has no effect without a project.
    pub on_end: OnEnd,
    /// Resource limits.
    pub resources: ResourceRequest,
    /// Network access.
    pub network: Network,
    /// Addresses and networks of clients that may use its workspace from outside, over NFS; `None` for no restriction.
    pub outside_clients: Option<Vec<String>>,
    /// Labels, by which lists can be filtered.
    pub labels: BTreeMap<String, String>,
    /// Snapshot of its workspace; `None` for an empty workspace.
    pub snapshot: Option<SnapshotId>,
    /// Provider of its workspace; `None` for the one of the settings.
    pub provider: Option<ProviderKind>,
    /// Way of providing the files of the snapshot: all written to disk before the start, or loaded on first read.
    pub materialize: Materialize,
    /// Treatment of changes to its root filesystem.
    pub root: RootMode,
    /// Sandbox that it was forked from, key that created it, project, agent, and the bases of its workspace.
    pub lineage: Lineage,
    /// Automatic snapshots.
    pub trace: Trace,
    /// True if it runs a step of a template build, and ends with the server.
    pub template_build: bool,
    /// True for a workspace without an upper directory, where overlays are available.
    pub read_only: bool,
    /// Name of the anchor (a mount) whose head (the present files of a project) its workspace shows: all sandboxes with
    /// this name see the same files. The project and the agent are in `lineage`. `None` if it does not follow.
    pub follow: Option<String>,
    /// True if the server rebases the workspace onto each new head of the project when the sandbox is idle.
    pub rebases: bool,
}

/// Automatic snapshots of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trace {
    /// No automatic snapshots.
    #[default]
    Off,
    /// A snapshot after each command that changed files of the workspace.
    Command,
}

impl Trace {
    fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

/// Requested resource limits; `None` for the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceRequest {
    /// Thousandths of a processor.
    pub cpu_millis: Option<u32>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes in the workspace.
    pub disk: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u32>,
}

/// Configuration of a sandbox that the catalog keeps as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Environment variables of every command in it.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Resource limits.
    #[serde(default)]
    pub limits: Limits,
    /// Disk limit of the workspace, in bytes.
    #[serde(default)]
    pub disk: Option<u64>,
    /// Allowed destinations of egress; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_allow: Option<Vec<AllowRule>>,
    /// Addresses and networks of clients that may use its workspace from outside, over NFS; `None` for no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_clients: Option<Vec<String>>,
    /// Requested limits and isolation that could not be applied, with reasons.
    #[serde(default, rename = "missing", skip_serializing_if = "Vec::is_empty")]
    pub not_applied: Vec<String>,
    /// Snapshot from which its workspace was created, or by which a restore or a rebase last replaced its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// Provider of its workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderKind>,
    /// Treatment of changes to its root filesystem.
    #[serde(default, skip_serializing_if = "RootMode::is_discarded")]
    pub root: RootMode,
    /// Treatment when its lifetime is over.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_timeout: OnTimeout,
    /// Treatment of its uncompleted changes when it is deleted or expires.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_end: OnEnd,
    /// Time of the last resume, in milliseconds since 1970, from which the maximum lifetime counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<i64>,
    /// Sandbox that it was forked from, key that created it, project, agent, and the bases of its workspace.
    #[serde(default, skip_serializing_if = "Lineage::is_empty")]
    pub lineage: Lineage,
    /// Automatic snapshots.
    #[serde(default, skip_serializing_if = "Trace::is_off")]
    pub trace: Trace,
    /// True if it runs a step of a template build, and ends with the server.
    #[serde(default, skip_serializing_if = "is_default")]
    pub template_build: bool,
    /// True if its workspace has no upper directory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// True if its workspace shows the present head of its project.
    #[serde(default, skip_serializing_if = "is_default")]
    pub follows: bool,
    /// True if the server rebases its workspace onto each new head of its project.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rebases: bool,
    /// Newest head for which an event `sandbox.base_moved` or `sandbox.rebase_conflicted` was recorded since the base
    /// was replaced last; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_moved: Option<HeadVersion>,
    /// Last head that the changes of the workspace conflicted with, and the last completion at that time; `None` if
    /// there was none since the base was replaced last.
    #[serde(default, rename = "conflicted", skip_serializing_if = "Option::is_none")]
    pub conflicting_head: Option<ConflictingHead>,
}

impl Config {
    /// Returns the configuration after a rebase, or a restore to files with another base.
    pub(crate) fn with_base(mut self, base: ProjectBase) -> Self {
        self.lineage.set_base(base);
        (self.base_moved, self.conflicting_head) = (None, None);
        self
    }
}

impl Config {
    /// Returns the treatment of uncompleted changes when the sandbox ends; `None` if they are merged into no project.
    pub fn project_changes_at_end(&self) -> Option<OnEnd> {
        self.completion_base().map(|_| self.on_end)
    }

    /// Returns the base that completions of the sandbox are compared with before they are merged into its project;
    /// `None` without a project, with a read-only workspace, and for a follower.
    pub(crate) fn completion_base(&self) -> Option<&ProjectBase> {
        self.lineage.project_base.as_ref().filter(|_| !self.read_only && !self.follows)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn invalid(field: &'static str, message: impl Into<String>) -> SandboxError {
    SandboxError::Invalid { field, message: message.into() }
}

impl NewSandbox {
    /// Validates the parameters. Returns the configuration for the catalog, and the lifetime.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(Config, Duration)> {
        if self.template.is_empty() {
            return Err(invalid("template", "name one, such as `base`"));
        }
        if let Some(name) = &self.name {
            check_text("name", name, NAME_MAX)?;
        } else if self.unique_name {
            return Err(invalid("uniqueName", "give the sandbox a name, or leave out uniqueName"));
        }
        check_labels(&self.labels)?;
        check_envs(&self.envs)?;
        self.lineage.check()?;
        if self.follow.is_some() && self.on_timeout == OnTimeout::Pause {
            let message = "a sandbox that follows the head has no files to keep: use `delete`";
            return Err(invalid("onTimeout", message));
        }
        if self.follow.is_some() && !self.trace.is_off() {
            let message = "commands of a sandbox that follows the head change no files: leave it out";
            return Err(invalid("trace", message));
        }
        let timeout = self.timeout.unwrap_or(settings.default_lifetime.min(settings.max_lifetime));
        if timeout.is_zero() {
            return Err(invalid("timeoutSeconds", "must be at least 1 second"));
        }
        if timeout > settings.max_lifetime {
            let limit = settings.max_lifetime.as_secs();
            return Err(SandboxError::Lifetime { limit, left: limit });
        }
        let resources = self.resources.check(&settings.default_resources, &settings.max_resources)?;
        let limits = Limits {
            cpu_millis: Some(resources.cpu_millis),
            memory_bytes: Some(resources.memory),
            processes: Some(resources.processes),
        };
        let config = Config {
            envs: self.envs.clone(),
            limits,
            disk: Some(resources.disk),
            egress_allow: check_network(&self.network)?,
            outside_clients: self.outside_clients.clone(),
            // Known once the sandbox is started.
            not_applied: Vec::new(),
            snapshot: self.snapshot,
            // Known once its workspace is created.
            provider: None,
            root: self.root,
            on_timeout: self.on_timeout,
            on_end: self.on_end,
            resumed_at: None,
            lineage: self.lineage.clone(),
            trace: self.trace,
            template_build: self.template_build,
            // Known once its workspace is created.
            read_only: false,
            follows: self.follow.is_some(),
            rebases: self.rebases,
            base_moved: None,
            conflicting_head: None,
        };
        Ok((config, timeout))
    }
}

impl ResourceRequest {
    fn check(&self, default: &Resources, max: &Resources) -> Result<Resources> {
        let resources = Resources {
            cpu_millis: self.cpu_millis.unwrap_or(default.cpu_millis),
            memory: self.memory.unwrap_or(default.memory),
            disk: self.disk.unwrap_or(default.disk),
            processes: self.processes.unwrap_or(default.processes),
        };
        let within = |field, value: u64, (min, max): (u64, u64), unit: &str, setting: &str| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            let raise = if value > max { format!("; {setting} raises the limit") } else { String::new() };
            Err(invalid(field, format!("must be between {min} and {max}{unit}{raise}")))
        };
        let (cpu, max_cpu) = (u64::from(resources.cpu_millis), u64::from(max.cpu_millis));
        within("resources.cpu", cpu, (CPU_MILLIS_MIN, max_cpu), " thousandths of a processor", "MAX_CPU")?;
        within("resources.memory", resources.memory, (MEMORY_MIN, max.memory), " bytes", "MAX_MEMORY")?;
        within("resources.disk", resources.disk, (DISK_MIN, max.disk), " bytes", "MAX_DISK")?;
        let (processes, max_processes) = (u64::from(resources.processes), u64::from(max.processes));
        within("resources.processes", processes, (PROCESSES_MIN.into(), max_processes), "", "MAX_PROCESSES")?;
        Ok(resources)
    }
}

/// Validates the allow list of a network, and returns it; `None` if there is none.
fn check_network(network: &Network) -> Result<Option<Vec<AllowRule>>> {
    let Network::Egress { allow: Some(allow) } = network else { return Ok(None) };
    if allow.is_empty() || allow.len() > ALLOW_RULES_MAX {
        let message = format!(
            "must have between 1 and {ALLOW_RULES_MAX} entries; without the list, everything is allowed"
        );
        return Err(invalid("egressAllow", message));
    }
    Ok(Some(allow.clone()))
}

pub(crate) fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    if labels.len() > LABELS_MAX {
        return Err(invalid("labels", format!("must have at most {LABELS_MAX} entries")));
    }
    for (name, value) in labels {
        check_text("labels", name, LABEL_MAX)?;
        if !value.is_empty() {
            check_text("labels", value, LABEL_MAX)?;
        }
    }
    Ok(())
}

/// Validates environment variables.
pub(crate) fn check_envs(envs: &BTreeMap<String, String>) -> Result<()> {
    let size: usize = envs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if envs.len() > ENVS_MAX || size > ENVS_BYTES_MAX {
        return Err(invalid(
            "envs",
            format!("must have at most {ENVS_MAX} variables of {ENVS_BYTES_MAX} bytes in total"),
        ));
    }
    for (name, value) in envs {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let message = "names must be non-empty and without `=`, names and values without NUL";
            return Err(invalid("envs", message));
        }
    }
    Ok(())
}

/// Validates a working directory inside the sandbox.
pub(crate) fn check_cwd(cwd: &str) -> Result<()> {
    if !cwd.starts_with('/') || cwd.contains('\0') || cwd.len() > 4_095 {
        return Err(invalid("cwd", "must be an absolute path of at most 4095 bytes"));
    }
    Ok(())
}
