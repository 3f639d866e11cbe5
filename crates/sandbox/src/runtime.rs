//! Runtimes, which run sandboxes.
//!
//! A runtime starts the guest agent of a sandbox in isolation, finds it after a restart of the server, and
//! kills it with all its descendants. It identifies sandboxes by id and stores its state where it outlives
//! the server. All runtimes pass the same tests.

mod actions;
mod built_in_templates;
mod container_access;
mod docker;
mod egress;
mod guest;
mod pause_record;
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
pub use workspace_host::freeze::{self, Frozen};
pub use workspace_host::limits::{Limits, NetworkBytes, ResourceUsage};
pub use workspace_host::network::{AllowError, AllowRule, Egress, Uplink, parse_cidr};
pub use workspace_host::workspace_processes::{ProcessScope, WorkspaceProcess, WorkspaceUse};
pub use workspace_host::{LazyMount, NamespaceHolder};
pub use workspace_state::OwnerIds;

use crate::guest::endpoint::ServerEndpoint;
use crate::sandbox_dir::SandboxDir;
use crate::template::Templates;

/// Parameters of a sandbox that a runtime starts.
#[derive(Debug)]
pub struct SandboxSpec<'a> {
    /// Id of the sandbox, also its host name.
    pub id: &'a str,
    /// Template of its root filesystem.
    pub template: &'a str,
    /// Directory that becomes `/workspace`; `None` for a sandbox of the warm pool.
    pub workspace: Option<&'a Path>,
    /// Directory of the anchor whose head becomes `/workspace`, in place of `workspace`; `None` if it does not follow.
    /// Only for runtimes that can follow ([`Runtime::check_following`]).
    pub anchor: Option<&'a Path>,
    /// Mount point of its kept root filesystem, in place of the template; `None` if it is discarded.
    pub root: Option<&'a Path>,
    /// Directory of its socket, output and state files.
    pub dir: &'a SandboxDir,
    /// Token with which the guest agent authenticates.
    pub token: &'a [u8],
    /// Resource limits.
    pub limits: &'a Limits,
    /// Receives progress messages if the start is slow.
    pub progress: &'a watch::Sender<String>,
    /// Egress policy; `None` for no network.
    pub egress: Option<&'a Egress>,
    /// Address of the server for a guest agent that connects over a network; if it is `None`, the agent connects
    /// to the socket in `dir`.
    pub endpoint: Option<&'a ServerEndpoint>,
}

/// Network access of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// No network.
    #[default]
    None,
    /// Access to everything that the host can reach, except the host itself.
    Egress {
        /// Allowed destinations; `None` for all.
        allow: Option<Vec<AllowRule>>,
    },
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
    /// Bytes on disk, if it is present.
    pub size: Option<u64>,
    /// Time of its import, in milliseconds since 1970.
    pub created_at: Option<i64>,
    /// True if it is on this machine, so that it need not be fetched.
    pub present: bool,
    /// Shell command that fetches it: into the container engine of the server, or from any machine by an import. `None`
    /// if it is present.
    pub fetch_command: Option<String>,
}

/// Error of a runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain most fields")]
pub enum RuntimeError {
    /// The runtime cannot be used on this host.
    #[error("the {runtime} runtime is not usable here: {reason}")]
    Unavailable {
        runtime: &'static str,
        /// Reason and remedy.
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
    /// A built-in template has not been fetched.
    #[error("template `{name}` is not on this machine{reason}; to get it: {fetch_command}")]
    TemplateNotPresent {
        name: String,
        /// Reason of a failed attempt to fetch it, or empty.
        reason: String,
        /// Command that fetches it.
        fetch_command: String,
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

    /// Lists features that are missing on this host, with reasons.
    async fn missing_features(&self) -> Result<Vec<String>, RuntimeError>;

    /// Lists limits and isolation features that no sandbox can have on this host, with reasons. A server with
    /// strict isolation does not run without them.
    async fn unmet_requirements(&self) -> Result<Vec<String>, RuntimeError> {
        self.missing_features().await
    }

    /// Starts a sandbox. If the server is killed during this, either [`Runtime::known_ids`] lists the sandbox
    /// or nothing is left of it.
    async fn start(&self, spec: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError>;

    /// Returns whether a sandbox can be started without a workspace, to be attached by [`Runtime::attach`].
    fn supports_warm_pool(&self) -> bool {
        false
    }

    /// Attaches a workspace to a sandbox that was started without one.
    async fn attach(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        let _ = (id, dir, workspace);
        let reason = "its sandboxes are started with their workspace".to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: "attach a workspace", reason })
    }

    /// Returns why sandboxes cannot follow the head of a project; `Ok` if they can.
    fn check_following(&self) -> Result<(), String> {
        Err(format!("the {} runtime cannot replace the files of a running sandbox", self.name()))
    }

    /// Makes a running sandbox follow an anchor. Does nothing if it does already.
    async fn attach_follower(&self, id: &str, dir: &SandboxDir, anchor: &Path) -> Result<(), RuntimeError> {
        let _ = (id, dir, anchor);
        let reason = actions::NO_MOUNT_ACCESS.to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: actions::FOLLOW, reason })
    }

    /// Returns the holder of the namespaces in which overlays must be mounted so that this runtime sees them.
    /// The error is the reason why it cannot see any.
    async fn mount_holder(&self) -> Result<NamespaceHolder, String> {
        Err(format!("the {} runtime cannot see mounts of this server", self.name()))
    }

    /// Returns the user and group of files in a workspace; `None` for those of the server.
    fn file_owner(&self) -> Option<(u32, u32)> {
        None
    }

    /// Probes whether sandboxes with workspaces in `workspaces` can have dedicated UIDs, and records those that
    /// running sandboxes have. Called before anything is started; `sandboxes` contains the directories of
    /// running sandboxes.
    async fn probe_dedicated_uids(
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
    async fn dedicated_uid(&self, id: &str, dir: &SandboxDir) -> Result<Option<u32>, RuntimeError> {
        let _ = (id, dir);
        Ok(None)
    }

    /// Returns the ids that own files in kept root filesystems; `None` if only the user of the server does. The
    /// error is the reason why roots cannot be kept.
    fn kept_root_ids(&self) -> Result<Option<OwnerIds>, String> {
        Err(format!("the {} runtime cannot keep root filesystems", self.name()))
    }

    /// Returns whether a quota of the workspace applies to all users in the sandbox.
    fn supports_quotas(&self) -> bool {
        false
    }

    /// Returns whether the first process of a sandbox is running.
    async fn is_running(&self, id: &str, dir: &SandboxDir) -> Result<bool, RuntimeError>;

    /// Describes the requested limits and isolation features that are not applied to a running sandbox, even if an
    /// earlier server started it.
    async fn not_applied(&self, id: &str, dir: &SandboxDir) -> Result<Vec<String>, RuntimeError> {
        let _ = (id, dir);
        Ok(Vec::new())
    }

    /// Waits until the first process of a sandbox has exited. Returns immediately if there is none.
    async fn wait_for_exit(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError>;

    /// Kills all processes of a sandbox and removes its state. Succeeds if the sandbox does not exist.
    async fn kill(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError>;

    /// Freezes all processes of a sandbox, so that its files do not change until [`Runtime::thaw`]. This is
    /// first recorded in its directory ([`SandboxDir::freeze_record`]). On failure, all processes keep running. A
    /// caller that drops the future must thaw the sandbox.
    ///
    /// The guest agent may be frozen as well, so no requests are sent to it.
    async fn freeze(&self, id: &str, dir: &SandboxDir) -> Result<Frozen, RuntimeError> {
        let _ = (id, dir);
        let reason = "not supported".to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: "freeze a sandbox", reason })
    }

    /// Thaws a sandbox with a freeze record, even if the server was killed before all processes were frozen.
    /// Does nothing without a record.
    async fn thaw(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        let _ = (id, dir);
        Ok(())
    }

    /// Returns whether the runtime uses a namespace holder process, which [`Runtime::release_holder`] ends.
    fn has_holder(&self) -> bool {
        false
    }

    /// Kills the namespace holder, and waits until it has exited. The next start creates another one.
    async fn release_holder(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Returns true if [`Runtime::swap`] can replace the workspace of a running sandbox with another directory.
    /// Otherwise its files can still be replaced in place, unless the workspace is an overlay.
    fn can_swap_workspace(&self) -> bool {
        false
    }

    /// Lists the processes that have their working directory below the workspace, or a file open or mapped in it. With
    /// `terminate`, a scope and a grace period, terminates the processes in that scope, including new ones: with
    /// SIGTERM, and after the grace period with SIGKILL. Returns the terminated processes. Frozen processes do not
    /// exit, so a frozen sandbox is an error.
    async fn workspace_processes(
        &self,
        id: &str,
        dir: &SandboxDir,
        terminate: Option<(ProcessScope, Duration)>,
    ) -> Result<Vec<WorkspaceProcess>, RuntimeError> {
        let _ = (id, dir, terminate);
        let reason = actions::NO_MOUNT_ACCESS.to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: actions::FIND_PROCESSES, reason })
    }

    /// Returns the disk usage, in bytes, of deleted files of the workspace that are still open; 0 if the
    /// processes of the sandbox cannot be inspected.
    async fn deleted_open_bytes(&self, id: &str, dir: &SandboxDir) -> Result<u64, RuntimeError> {
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

    /// Finishes or reverts a swap with an unknown outcome: its helper may have died or timed out. Returns true if
    /// `workspace`, the new or the old directory, is the workspace of the sandbox now.
    async fn settle_swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<bool, RuntimeError> {
        let _ = (id, dir, workspace);
        let reason = actions::NO_MOUNT_ACCESS.to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: actions::SWAP, reason })
    }

    /// Returns the end of the guest agent's log, for an error message.
    async fn agent_log(&self, id: &str, dir: &SandboxDir) -> String {
        let _ = id;
        dir.log_tail()
    }

    /// Measures the resource usage of a sandbox. It is called every few seconds for each running sandbox, so it starts
    /// no process. A value that cannot be measured is `None`.
    async fn usage(&self, id: &str, dir: &SandboxDir) -> Result<ResourceUsage, RuntimeError>;

    /// Returns the ids of sandboxes for which this runtime has state outside their directories.
    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError>;

    /// Lists the templates from which sandboxes can be created.
    async fn templates(&self) -> Result<Vec<Template>, RuntimeError>;

    /// Returns the environment variables of a template, if the runtime does not set them itself.
    async fn variables(&self, template: &str) -> Result<BTreeMap<String, String>, RuntimeError> {
        let _ = template;
        Ok(BTreeMap::new())
    }

    /// Returns the imported templates; `None` if the runtime does not support imports.
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
        Ok(result) => result.map_err(|error| failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}
