//! Runtimes, which run sandboxes.
//!
//! A runtime starts the guest agent of a sandbox in isolation, finds it again after a restart of the server,
//! and ends it with everything that it started. Sandboxes are identified by their id: state of a runtime is
//! kept where it outlives the server. All runtimes pass the same tests.

mod actions;
mod built_in_templates;
mod container_access;
mod docker;
mod egress;
mod guest;
mod pause_note;
mod unavailable;

#[cfg(target_os = "linux")]
mod embedded;
#[cfg(target_os = "linux")]
mod oci;
#[cfg(target_os = "linux")]
mod process_end;

#[cfg(not(target_os = "linux"))]
mod unsupported;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

pub use docker::Docker;
#[cfg(target_os = "linux")]
pub use embedded::Embedded;
#[cfg(target_os = "linux")]
pub use oci::Oci;
pub use unavailable::Unavailable;
#[cfg(not(target_os = "linux"))]
pub use unsupported::{Embedded, Oci};
pub use workspace_host::NamespaceHolder;
pub use workspace_host::freeze::{self, Frozen};
pub use workspace_host::limits::{Limits, Usage};
pub use workspace_host::network::{AllowError, AllowRule, Egress, Uplink, parse_cidr};
pub use workspace_host::workspace_processes::{ProcessScope, WorkspaceProcess, WorkspaceUse};

use crate::guest::endpoint::ServerEndpoint;
use crate::sandbox_dir::SandboxDir;
use crate::template::Templates;

/// Parameters of the start of a sandbox.
#[derive(Debug)]
pub struct Start<'a> {
    /// Id of the sandbox, also its host name.
    pub id: &'a str,
    /// Template of its root filesystem.
    pub template: &'a str,
    /// Directory that becomes `/workspace`; `None` for a sandbox of the warm pool.
    pub workspace: Option<&'a Path>,
    /// Directory of its socket, output and state files.
    pub dir: &'a SandboxDir,
    /// Token with which the guest agent authenticates.
    pub token: &'a [u8],
    /// Resource limits.
    pub limits: &'a Limits,
    /// Receives messages on progress, where a start takes long.
    pub progress: &'a watch::Sender<String>,
    /// Egress policy; `None` for no network.
    pub egress: Option<&'a Egress>,
    /// Address of the server for an agent that connects over a network; without it the agent connects to the
    /// socket in `dir`.
    pub endpoint: Option<&'a ServerEndpoint>,
}

/// Network access of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// No network.
    #[default]
    None,
    /// Access to everything that the machine can reach, except the machine itself.
    Egress {
        /// Allowed destinations; `None` for all.
        allow: Option<Vec<AllowRule>>,
    },
}

/// Use of the lazy mount, which serves the files of snapshots before they are written, under workspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LazyMount {
    /// Some workspaces have the lazy mount as their lowest layer.
    Used,
    /// No workspace has it.
    Unused,
}

/// Result of [`Runtime::start`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartResult {
    /// Requested limits and isolation that could not be applied, with reasons.
    pub not_applied: Vec<String>,
}

/// Template of a root filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Unique name.
    pub name: String,
    /// Description for people.
    pub description: String,
    /// Bytes on disk, if it is there.
    pub size: Option<u64>,
    /// Time of its import, in milliseconds since 1970.
    pub created_at: Option<i64>,
    /// True if it can be used at once.
    pub present: bool,
    /// Command that fetches it, if it is not present.
    pub fetch: Option<String>,
}

/// Error of a runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain most fields")]
pub enum RuntimeError {
    /// The runtime cannot be used on this machine.
    #[error("the {runtime} runtime is not usable here: {reason}")]
    Unavailable {
        runtime: &'static str,
        /// Reason, and how to solve it.
        reason: String,
    },
    /// A sandbox cannot be isolated or limited as requested.
    #[error("{0}")]
    Isolation(String),
    /// The network cannot be provided.
    #[error("{0}")]
    Network(String),
    /// There is no such template.
    #[error("there is no template `{name}`{hint}")]
    NoTemplate {
        name: String,
        /// Hint how to get it, or empty.
        hint: String,
    },
    /// A built-in template is not on this machine.
    #[error("template `{name}` is not on this machine{reason}; to get it: {fetch}")]
    TemplateAway {
        name: String,
        /// Reason of a failed attempt to fetch it, or empty.
        reason: String,
        /// Command that fetches it.
        fetch: String,
    },
    /// Something else failed.
    #[error("the {runtime} runtime cannot {action}: {reason}")]
    Failed {
        runtime: &'static str,
        /// Action that failed, as an infinitive.
        action: &'static str,
        reason: String,
    },
}

/// A program or daemon that runs sandboxes.
#[async_trait]
pub trait Runtime: Send + Sync + std::fmt::Debug {
    /// Returns the name in settings and responses.
    fn name(&self) -> &'static str;

    /// Lists features that are missing on this machine, with reasons; empty if nothing is missing.
    async fn missing_features(&self) -> Result<Vec<String>, RuntimeError>;

    /// Lists limits and isolation that every sandbox would miss here, with reasons: a strict server refuses
    /// to run without them.
    async fn unmet_requirements(&self) -> Result<Vec<String>, RuntimeError> {
        self.missing_features().await
    }

    /// Starts a sandbox. If the server is killed meanwhile, [`Runtime::known_ids`] lists the sandbox, or
    /// nothing is left of it.
    async fn start(&self, start: &Start<'_>) -> Result<StartResult, RuntimeError>;

    /// Returns true if a sandbox can be started without a workspace, which [`Runtime::attach`] adds later.
    fn supports_warm_pool(&self) -> bool {
        false
    }

    /// Attaches a workspace to a sandbox that was started without one.
    async fn attach(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        let _ = (id, dir, workspace);
        let reason = "its sandboxes are started with their workspace".to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: "attach a workspace", reason })
    }

    /// Returns the holder of the namespaces in which overlays are mounted that this runtime can give to
    /// sandboxes; an error with the reason if it cannot see such mounts.
    async fn mount_holder(&self) -> Result<NamespaceHolder, String> {
        Err(format!("the {} runtime cannot see mounts of this server", self.name()))
    }

    /// Returns the user and group of files in a workspace; `None` for those of the server.
    fn owner(&self) -> Option<(u32, u32)> {
        None
    }

    /// Checks whether sandboxes with workspaces in `workspaces` can have dedicated UIDs, and finds those in
    /// use. Called before anything is started; `sandboxes` contains the directories of running sandboxes.
    async fn find_dedicated_uids(
        &self,
        workspaces: &Path,
        sandboxes: &Path,
        lazy: LazyMount,
    ) -> Result<(), RuntimeError> {
        let _ = (workspaces, sandboxes, lazy);
        Ok(())
    }

    /// Returns the dedicated UID that a sandbox has or will have, to which its workspace is id-mapped; `None`
    /// if sandboxes share a UID.
    async fn user(&self, id: &str, dir: &SandboxDir) -> Result<Option<u32>, RuntimeError> {
        let _ = (id, dir);
        Ok(None)
    }

    /// Returns true if a quota of the workspace applies to all users inside. It does not apply to a process
    /// that owns files outside a user namespace.
    fn supports_quotas(&self) -> bool {
        false
    }

    /// Returns true if the first process of a sandbox runs.
    async fn is_running(&self, id: &str, dir: &SandboxDir) -> Result<bool, RuntimeError>;

    /// Lists requested limits and isolation that are not applied to a running sandbox, also if another server
    /// started it.
    async fn not_applied(&self, id: &str, dir: &SandboxDir) -> Result<Vec<String>, RuntimeError> {
        let _ = (id, dir);
        Ok(Vec::new())
    }

    /// Waits until the first process has ended, or there is none.
    async fn wait_for_end(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError>;

    /// Ends everything in a sandbox and removes its state. A sandbox that does not exist is no error.
    async fn end(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError>;

    /// Freezes everything in a sandbox, so that its files do not change until [`Runtime::thaw`]. Before that
    /// it is noted in its directory ([`SandboxDir::frozen`]). If it fails, everything keeps running. A caller
    /// that drops the future has to thaw.
    ///
    /// The guest agent may be frozen as well, or not: no requests are sent to it meanwhile.
    async fn freeze(&self, id: &str, dir: &SandboxDir) -> Result<Frozen, RuntimeError> {
        let _ = (id, dir);
        let reason = "not supported".to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: "freeze a sandbox", reason })
    }

    /// Thaws everything that is noted as frozen: called for every sandbox with a note, also if a server was
    /// killed before everything was frozen. Does nothing without a note.
    async fn thaw(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        let _ = (id, dir);
        Ok(())
    }

    /// Returns true if a process holds the namespaces in which sandboxes are made.
    fn has_holder(&self) -> bool {
        false
    }

    /// Ends that process, and waits until it is gone. The next start creates another one.
    async fn release_holder(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Returns true if the workspace of a running sandbox can be replaced.
    fn can_swap_workspace(&self) -> bool {
        false
    }

    /// Lists the processes that have their working directory below the workspace, or a file open or mapped in
    /// it. With `end`, terminates the processes in this scope, including new ones: with SIGTERM, and after
    /// this time with SIGKILL. Returns the terminated processes. Frozen processes do not exit, so a frozen
    /// sandbox is an error.
    async fn workspace_processes(
        &self,
        id: &str,
        dir: &SandboxDir,
        end: Option<(ProcessScope, Duration)>,
    ) -> Result<Vec<WorkspaceProcess>, RuntimeError> {
        let _ = (id, dir, end);
        let reason = actions::NO_MOUNT_ACCESS.to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: actions::FIND_PROCESSES, reason })
    }

    /// Returns the disk usage, in bytes, of deleted files of the workspace that are still open; 0 if the
    /// processes of the sandbox cannot be inspected.
    async fn deleted_bytes(&self, id: &str, dir: &SandboxDir) -> Result<u64, RuntimeError> {
        let _ = (id, dir);
        Ok(0)
    }

    /// Replaces the workspace of a running sandbox with another directory, and makes the sandbox user its
    /// owner. Processes whose working directory is the root of the workspace are moved to the new one; other
    /// processes that use the old one keep it.
    async fn swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        let _ = (id, dir, workspace);
        let reason = actions::NO_MOUNT_ACCESS.to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: actions::SWAP, reason })
    }

    /// Finishes or reverts a swap with an unknown outcome: its helper may have died or timed out. Returns
    /// whether `workspace` is now the workspace of the sandbox.
    async fn settle_swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<bool, RuntimeError> {
        let _ = (id, dir, workspace);
        let reason = actions::NO_MOUNT_ACCESS.to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: actions::SWAP, reason })
    }

    /// Returns the end of the guest agent's log, for an error message.
    async fn agent_log(&self, id: &str, dir: &SandboxDir) -> String {
        let _ = id;
        std::fs::read_to_string(dir.log()).unwrap_or_default()
    }

    /// Measures the resource usage of a sandbox.
    async fn usage(&self, id: &str) -> Result<Usage, RuntimeError>;

    /// Returns the ids of sandboxes that this runtime has state of outside their directories.
    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError>;

    /// Lists the templates that sandboxes can be made from.
    async fn templates(&self) -> Result<Vec<Template>, RuntimeError>;

    /// Returns the environment variables of a template, if the runtime does not set them itself.
    async fn variables(&self, template: &str) -> Result<BTreeMap<String, String>, RuntimeError> {
        let _ = template;
        Ok(BTreeMap::new())
    }

    /// Returns the templates that can be imported and removed; `None` if the runtime takes no imports.
    fn imported_templates(&self) -> Option<&Templates> {
        None
    }
}

/// Runs blocking work of a runtime. `failed` wraps an error of the work, or of its thread.
async fn blocking<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
    failed: impl Fn(&dyn std::fmt::Display) -> RuntimeError,
) -> Result<T, RuntimeError>
where
    T: Send + 'static,
    E: std::fmt::Display + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}
