//! What runs sandboxes.
//!
//! A runtime starts the guest agent of a sandbox in isolation, finds it again after the server was restarted, and
//! ends it with everything it started. Sandboxes go by their id: what a runtime must remember it keeps where it
//! outlives the server. All runtimes are held to the same tests.

mod built_in;
mod docker;
mod egress;
mod guest;
mod outside;
mod paused;
mod unavailable;

#[cfg(target_os = "linux")]
mod embedded;
#[cfg(target_os = "linux")]
mod oci;
#[cfg(target_os = "linux")]
mod watched;

#[cfg(not(target_os = "linux"))]
mod elsewhere;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

pub use docker::Docker;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Embedded, Oci};
#[cfg(target_os = "linux")]
pub use embedded::Embedded;
#[cfg(target_os = "linux")]
pub use oci::Oci;
pub use unavailable::Unavailable;
pub use workspace_host::Holder;
pub use workspace_host::freeze::{self, Frozen};
pub use workspace_host::limits::{Limits, Usage};
pub use workspace_host::network::{Allow, AllowError, Cidr, Egress, Uplink};
pub use workspace_host::workspace_users::{User as WorkspaceUser, Users as WorkspaceUsers, Why};

use crate::guest::tcp::Reach;
use crate::sandbox_dir::SandboxDir;
use crate::template::Templates;

/// What to start.
#[derive(Debug)]
pub struct Start<'a> {
    /// The sandbox's id, also its host name.
    pub id: &'a str,
    /// What its root filesystem is made from.
    pub template: &'a str,
    /// The directory that becomes `/workspace`; none for one that is started before anybody wants it.
    pub workspace: Option<&'a Path>,
    /// Where its socket, its output and its notes are.
    pub dir: &'a SandboxDir,
    /// With which the guest agent proves for whom it speaks.
    pub token: &'a [u8],
    /// What it may use.
    pub limits: &'a Limits,
    /// Told what is being done, where that takes long.
    pub progress: &'a watch::Sender<String>,
    /// What it may reach; none for nothing but itself.
    pub egress: Option<&'a Egress>,
    /// How its guest agent reaches the server over a network, if it is to; else it dials the socket in its place.
    pub reach: Option<&'a Reach>,
}

/// What somebody wants a sandbox to reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// Nothing but itself.
    #[default]
    None,
    /// What the machine can reach, but not the machine itself.
    Egress {
        /// All that it may reach; none for everything.
        allow: Option<Vec<Allow>>,
    },
}

/// What came of a start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Started {
    /// What was asked for and could not be applied, and why.
    pub missing: Vec<String>,
}

/// What a sandbox's root filesystem can be made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Names it.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Bytes on disk, if it is there.
    pub size: Option<u64>,
    /// When it came here, in milliseconds since 1970.
    pub created_at: Option<i64>,
    /// Whether it can be used at once.
    pub present: bool,
    /// The command that brings it here, if it is not.
    pub fetch: Option<String>,
}

/// Why a runtime did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// This runtime cannot be used here at all.
    #[error("the {runtime} runtime is not usable here: {reason}")]
    Unavailable {
        /// Which.
        runtime: &'static str,
        /// Why, and the way out.
        reason: String,
    },
    /// It cannot be isolated or limited as was asked for.
    #[error("{0}")]
    Isolation(String),
    /// There is no such network here.
    #[error("{0}")]
    Network(String),
    /// There is no such template.
    #[error("there is no template `{name}`{hint}")]
    NoTemplate {
        /// Its name.
        name: String,
        /// How to get it, if that is known.
        hint: String,
    },
    /// The template is one that everybody knows, and not here.
    #[error("template `{name}` is not on this machine{reason}; to get it: {fetch}")]
    TemplateAway {
        /// Its name.
        name: String,
        /// What was tried, if anything was.
        reason: String,
        /// The command that brings it here.
        fetch: String,
    },
    /// Something else failed.
    #[error("the {runtime} runtime cannot {action}: {reason}")]
    Failed {
        /// Which.
        runtime: &'static str,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        reason: String,
    },
}

/// Runs sandboxes.
#[async_trait]
pub trait Runtime: Send + Sync + std::fmt::Debug {
    /// Names it in settings and answers.
    fn name(&self) -> &'static str;

    /// What it cannot do here, and why; empty if nothing is missing.
    async fn lacks(&self) -> Result<Vec<String>, RuntimeError>;

    /// Limits and isolation that every sandbox would miss here, and why: what a strict server refuses to do without.
    async fn unmet(&self) -> Result<Vec<String>, RuntimeError> {
        self.lacks().await
    }

    /// Starts a sandbox. Whoever is killed while it does so leaves one that [`Runtime::known`] tells of, or none.
    async fn start(&self, order: &Start<'_>) -> Result<Started, RuntimeError>;

    /// Whether a sandbox can be started without a workspace, which [`Runtime::attach`] brings later.
    fn starts_ahead(&self) -> bool {
        false
    }

    /// Gives a sandbox that was started without a workspace this one.
    async fn attach(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        let _ = (id, dir, workspace);
        let reason = "its sandboxes are started with their workspace".to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: "attach a workspace", reason })
    }

    /// In whose namespaces overlays are mounted that this runtime can give to sandboxes; why there are none, if it
    /// cannot see such mounts.
    async fn mounts(&self) -> Result<Holder, String> {
        Err(format!("the {} runtime cannot see mounts of this server's own", self.name()))
    }

    /// Whom files of a workspace belong to; whoever runs this server, when not said.
    fn owner(&self) -> Option<(u32, u32)> {
        None
    }

    /// Finds out whether each sandbox can have a user of the machine of its own, over workspaces in `workspaces`, with a `lazy`
    /// view under some. To be called before anything is started; `sandboxes` holds the places of those that run.
    async fn find_own_users(
        &self,
        workspaces: &Path,
        sandboxes: &Path,
        lazy: bool,
    ) -> Result<(), RuntimeError> {
        let _ = (workspaces, sandboxes, lazy);
        Ok(())
    }

    /// The user of the machine that a sandbox has for itself, or is going to have, and to whom its workspace is to be
    /// shown; none where sandboxes share one.
    async fn user(&self, id: &str, dir: &SandboxDir) -> Result<Option<u32>, RuntimeError> {
        let _ = (id, dir);
        Ok(None)
    }

    /// Whether a quota of the workspace holds everybody inside. It does not hold whoever owns files outside a user
    /// namespace.
    fn keeps_quotas(&self) -> bool {
        false
    }

    /// Whether its first process runs.
    async fn is_running(&self, id: &str, dir: &SandboxDir) -> Result<bool, RuntimeError>;

    /// What was asked for and is not applied to one that runs, also if another server started it.
    async fn missing(&self, id: &str, dir: &SandboxDir) -> Result<Vec<String>, RuntimeError> {
        let _ = (id, dir);
        Ok(Vec::new())
    }

    /// Waits until its first process has ended, or there is none.
    async fn ended(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError>;

    /// Ends everything in it and removes what the runtime made. What is not there is gone.
    async fn end(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError>;

    /// Stops everything in it for a moment, so that its files stay as they are until [`Runtime::thaw`]. Before anything
    /// is stopped, that is noted in its place ([`SandboxDir::frozen`]). When this fails, everything goes on. Whoever drops
    /// it while it is under way has to thaw.
    ///
    /// The guest agent may be stopped as well, and may not be: nothing is to be asked of it meanwhile.
    async fn freeze(&self, id: &str, dir: &SandboxDir) -> Result<Frozen, RuntimeError> {
        let _ = (id, dir);
        let reason = "it has no way to".to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: "freeze a sandbox", reason })
    }

    /// Lets everything go on that is noted as stopped, whoever stopped it: to be called for every sandbox whose note is
    /// found, also if a server was killed before everything had stopped. Where nothing is noted, nothing is done.
    async fn thaw(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        let _ = (id, dir);
        Ok(())
    }

    /// Whether a process keeps the namespaces in which sandboxes are made.
    fn has_holder(&self) -> bool {
        false
    }

    /// Ends that process, and returns when it is gone. Whoever makes the next sandbox starts another one.
    async fn rest(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Whether the workspace of a running sandbox can be replaced.
    fn swaps(&self) -> bool {
        false
    }

    /// The processes inside that have their working directory below the workspace, or something open or mapped in it.
    /// If they are to `end`, or all that are in the workspace, they are asked to and killed after that time, and so is
    /// whoever comes meanwhile; those that were ended. What is frozen does not end, so that is refused.
    async fn workspace_users(
        &self,
        id: &str,
        dir: &SandboxDir,
        end: Option<(WorkspaceUsers, Duration)>,
    ) -> Result<Vec<WorkspaceUser>, RuntimeError> {
        let _ = (id, dir, end);
        let reason = outside::CANNOT.to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: outside::USERS, reason })
    }

    /// How many bytes of a sandbox's workspace are in files that have no name any more and are still open. Nobody can
    /// tell where the sandbox's processes cannot be looked at.
    async fn deleted(&self, id: &str, dir: &SandboxDir) -> Result<u64, RuntimeError> {
        let _ = (id, dir);
        Ok(0)
    }

    /// Replaces the workspace of a running sandbox by another directory, which is given to its user. Processes whose working
    /// directory is the workspace itself go along; whoever uses the old one in another way stays with it.
    async fn swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        let _ = (id, dir, workspace);
        let reason = outside::CANNOT.to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: outside::SWAP, reason })
    }

    /// Returns whether `workspace` is the workspace of a running sandbox, after a swap whose outcome is not known: whoever did
    /// it may have died, or not have answered.
    async fn settle_swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<bool, RuntimeError> {
        let _ = (id, dir, workspace);
        let reason = outside::CANNOT.to_owned();
        Err(RuntimeError::Failed { runtime: self.name(), action: outside::SWAP, reason })
    }

    /// What its guest agent said last, to be put behind an error.
    async fn agent_log(&self, id: &str, dir: &SandboxDir) -> String {
        let _ = id;
        std::fs::read_to_string(dir.log()).unwrap_or_default()
    }

    /// What it uses.
    async fn usage(&self, id: &str) -> Result<Usage, RuntimeError>;

    /// The ids of sandboxes that left something with this runtime which their places do not tell of.
    async fn known(&self) -> Result<Vec<String>, RuntimeError>;

    /// What sandboxes can be made from.
    async fn templates(&self) -> Result<Vec<Template>, RuntimeError>;

    /// Variables that the programs of a template expect, if the runtime does not see to it itself.
    async fn variables(&self, template: &str) -> Result<BTreeMap<String, String>, RuntimeError> {
        let _ = template;
        Ok(BTreeMap::new())
    }

    /// Where this runtime keeps templates that can be imported and removed; none if others bring them.
    fn imported(&self) -> Option<&Templates> {
        None
    }
}
