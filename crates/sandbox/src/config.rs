//! What a sandbox is asked for with, checked.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use workspace_state::SnapshotId;
use workspace_workspace::{Kind, Materialize};

use crate::error::{Result, SandboxError};
use crate::runtime::{Allow, Limits, Network};
use crate::settings::{Resources, Settings};

const NAME_MAX: usize = 128;
const LABELS_MAX: usize = 64;
const LABEL_MAX: usize = 256;
const ALLOWED_MAX: usize = 256;
const ENVS_MAX: usize = 1_024;
const ENVS_BYTES: usize = 128 << 10;
/// As little as anything runs in.
const MEMORY_MIN: u64 = 8 << 20;
const DISK_MIN: u64 = 1 << 20;
const PROCESSES_MIN: u32 = 4;

/// A sandbox that somebody wants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewSandbox {
    /// What its root filesystem is made from.
    pub template: String,
    /// What people call it.
    pub name: Option<String>,
    /// Whether to refuse it when its owner has a sandbox of that name.
    pub unique_name: bool,
    /// What every command in it finds in its environment.
    pub envs: BTreeMap<String, String>,
    /// How long it lives.
    pub timeout: Option<Duration>,
    /// What it may use.
    pub resources: ResourceRequest,
    /// What it may reach.
    pub network: Network,
    /// What lists can be narrowed by.
    pub labels: BTreeMap<String, String>,
    /// What its workspace is made from; an empty one, when not said.
    pub snapshot: Option<SnapshotId>,
    /// How its workspace is made, if not as the settings say.
    pub provider: Option<Kind>,
    /// When the files of the snapshot are written for it.
    pub materialize: Materialize,
}

/// What a sandbox may use; the default for what is not said.
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

/// What the catalog keeps of it beside its own columns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// What every command in it finds in its environment.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// What it may use.
    #[serde(default)]
    pub limits: Limits,
    /// Bytes in the workspace.
    #[serde(default)]
    pub disk: Option<u64>,
    /// All that it may reach of what it could; none for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_allow: Option<Vec<Allow>>,
    /// What was asked for and could not be applied, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// What its workspace was made from, or restored to last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// How its workspace was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Kind>,
}

fn invalid(field: &'static str, message: impl Into<String>) -> SandboxError {
    SandboxError::Invalid { field, message: message.into() }
}

impl NewSandbox {
    /// What the catalog will keep, and how long the sandbox lives.
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
        let timeout = self.timeout.unwrap_or(settings.timeout.min(settings.lifetime));
        if timeout.is_zero() || timeout > settings.lifetime {
            let most = settings.lifetime.as_secs();
            let message = format!("1 to {most} seconds are allowed; MAX_SANDBOX_LIFETIME raises the limit");
            return Err(invalid("timeout_seconds", message));
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
            missing: Vec::new(),
            snapshot: self.snapshot,
            provider: None,
        };
        Ok((config, timeout))
    }
}

impl ResourceRequest {
    fn check(&self, default: &Resources, max: &Resources) -> Result<Resources> {
        let wanted = Resources {
            cpu_millis: self.cpu_millis.unwrap_or(default.cpu_millis),
            memory: self.memory.unwrap_or(default.memory),
            disk: self.disk.unwrap_or(default.disk),
            processes: self.processes.unwrap_or(default.processes),
        };
        let within = |field, value: u64, (least, most): (u64, u64), unit: &str, setting: &str| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let raise = if value > most { format!("; {setting} raises the limit") } else { String::new() };
            Err(invalid(field, format!("{least} to {most}{unit} are allowed{raise}")))
        };
        let (cpu, most) = (u64::from(wanted.cpu_millis), u64::from(max.cpu_millis));
        within("resources.cpu", cpu, (10, most), " thousandths of a processor", "MAX_CPU")?;
        within("resources.memory", wanted.memory, (MEMORY_MIN, max.memory), " bytes", "MAX_MEMORY")?;
        within("resources.disk", wanted.disk, (DISK_MIN, max.disk), " bytes", "MAX_DISK")?;
        let (processes, most) = (u64::from(wanted.processes), u64::from(max.processes));
        within("resources.processes", processes, (PROCESSES_MIN.into(), most), "", "MAX_PROCESSES")?;
        Ok(wanted)
    }
}

/// The allow list of a network, if it has one.
fn check_network(network: &Network) -> Result<Option<Vec<Allow>>> {
    let Network::Egress { allow: Some(allow) } = network else { return Ok(None) };
    if allow.is_empty() || allow.len() > ALLOWED_MAX {
        let message = format!("1 to {ALLOWED_MAX} entries are allowed; without the list everything is");
        return Err(invalid("egress_allow", message));
    }
    Ok(Some(allow.clone()))
}

fn check_text(field: &'static str, text: &str, longest: usize) -> Result<()> {
    if text.is_empty() || text.len() > longest || text.chars().any(char::is_control) {
        return Err(invalid(field, format!("1 to {longest} bytes without control characters are allowed")));
    }
    Ok(())
}

pub(crate) fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    if labels.len() > LABELS_MAX {
        return Err(invalid("labels", format!("{LABELS_MAX} are allowed")));
    }
    for (name, value) in labels {
        check_text("labels", name, LABEL_MAX)?;
        if !value.is_empty() {
            check_text("labels", value, LABEL_MAX)?;
        }
    }
    Ok(())
}

/// Variables that a program can be given.
pub(crate) fn check_envs(envs: &BTreeMap<String, String>) -> Result<()> {
    let size: usize = envs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if envs.len() > ENVS_MAX || size > ENVS_BYTES {
        return Err(invalid(
            "envs",
            format!("{ENVS_MAX} variables of {ENVS_BYTES} bytes in all are allowed"),
        ));
    }
    for (name, value) in envs {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(invalid("envs", "a variable has a name without `=`, and neither has a NUL"));
        }
    }
    Ok(())
}

/// A directory inside, which commands are run in.
pub(crate) fn check_cwd(cwd: &str) -> Result<()> {
    if !cwd.starts_with('/') || cwd.contains('\0') || cwd.len() > 4_095 {
        return Err(invalid("cwd", "an absolute path of at most 4095 bytes is allowed"));
    }
    Ok(())
}
