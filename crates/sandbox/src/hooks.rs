//! Hooks for services that use the files of workspaces from outside, such as exports over a network.

use std::collections::HashSet;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

/// Error that a hook returned. Its text is for the log.
pub type HookFailure = Box<dyn std::error::Error + Send + Sync>;

/// Cause of the removal of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RemovalCause {
    /// A request deleted the sandbox.
    Deleted,
    /// The lifetime of the sandbox is over.
    Expired,
    /// The disk was full, and the sandbox had been stopped for that.
    DiskFull,
    /// The sandbox could not be created. [`WorkspaceHooks::created`] may have failed, or was not called.
    CreationFailed,
}

/// Answer to the question whether the files of a workspace may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retain {
    /// The service has stopped using the files.
    Release,
    /// The service keeps the files. They stay when the sandbox is gone, as long as
    /// [`WorkspaceHooks::retained`] names them, and count towards no quota of sandboxes.
    Keep,
}

/// Workspace in a call of the [`WorkspaceHooks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookedWorkspace<'a> {
    /// Id of the workspace, which is also that of its sandbox.
    pub id: &'a str,
    /// Owner of the sandbox.
    pub owner: &'a str,
    /// True if the sandbox may not change the workspace.
    pub is_read_only: bool,
    /// True if the workspace shows the head of a project, whichever that is at the moment. Then the root directory that
    /// the hooks get shows one head only.
    pub follows_head: bool,
    /// Addresses and networks of the clients that may use it from outside; `None` for no restriction.
    pub outside_clients: Option<&'a [String]>,
}

/// Root directory of a workspace in a call of the [`WorkspaceHooks`].
#[derive(Debug)]
pub struct WorkspaceRoot {
    /// The directory, open for reading. Files below it can be opened with the permissions of this process, also where
    /// the workspace is mounted in other namespaces. The descriptor keeps the mount of an overlay.
    pub directory: OwnedFd,
    /// Revision of the directory. A restore or resume changes it; it stays the same over restarts of the server.
    pub revision: String,
}

/// Hooks of a service that uses the files of workspaces from outside their sandboxes.
///
/// They are called from the start of the sandbox service on, even before that has returned. Each call is dropped
/// after [`Settings::hook_timeout`](crate::Settings). A workspace has the id of its sandbox.
///
/// For every change of files, the service that uses them holds
/// [`Service::shared_access`](crate::Service::shared_access). It must not wait for that access in a hook.
#[async_trait]
pub trait WorkspaceHooks: Send + Sync + Debug {
    /// Called before the sandbox of a new workspace starts. An error, or a timeout, fails the creation.
    async fn created(&self, workspace: HookedWorkspace<'_>, root: WorkspaceRoot) -> Result<(), HookFailure>;

    /// Called when the workspace of an existing sandbox can be used again: a server has found it after its start, a
    /// resume has created it anew, or its removal was given up. May be called again for the same one.
    async fn recovered(&self, workspace: HookedWorkspace<'_>, root: WorkspaceRoot);

    /// Called when the processes of a sandbox have ended, before anything is deleted. After an error, or a
    /// timeout, nothing is deleted, and the call is repeated later. It may also be repeated after an
    /// answer, if the removal was interrupted.
    async fn before_removal(&self, id: &str, cause: RemovalCause) -> Result<Retain, HookFailure>;

    /// Called when a workspace was replaced by a restore, or is about to be removed because its sandbox is paused on
    /// disk, or when it is not known whether a restore has replaced it, while no writer has access to it. The former
    /// root must not be used any more. `root` is `None` if there is no new one, or it cannot be opened, for example
    /// because the process that holds its mount has died.
    async fn replaced(&self, id: &str, root: Option<WorkspaceRoot>);

    /// Returns those of the `ids`, which are workspaces without a sandbox, whose files the service keeps since it
    /// answered [`Retain::Keep`]. All others are removed. After an error, or a timeout, none is removed.
    async fn retained(&self, ids: &[String]) -> Result<HashSet<String>, HookFailure>;
}

/// Failure of a call to one of the [`WorkspaceHooks`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// The call took too long.
    #[error("a service that uses the workspace did not answer within {0:?}")]
    TimedOut(Duration),
    /// The call failed.
    #[error("a service that uses the workspace failed: {0}")]
    Failed(#[source] HookFailure),
}

/// Waits for a call, with a timeout.
pub(crate) async fn within<T>(
    max_wait: Duration,
    call: impl Future<Output = Result<T, HookFailure>>,
) -> Result<T, HookError> {
    match timeout(max_wait, call).await {
        Ok(answer) => answer.map_err(HookError::Failed),
        Err(_) => Err(HookError::TimedOut(max_wait)),
    }
}
