//! Hooks for services that use the files of workspaces from outside, such as exports over a network.

use std::collections::HashSet;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

/// Error of a [`WorkspaceUser`]. Its text is for the log.
pub type UserError = Box<dyn std::error::Error + Send + Sync>;

/// Cause of the removal of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RemovalCause {
    /// A request deleted the sandbox.
    Deleted,
    /// The lifetime of the sandbox is over.
    Expired,
    /// The disk was full, and the sandbox had been stopped for that.
    DiskFull,
    /// The sandbox could not be created. [`WorkspaceUser::created`] may have failed, or was not called.
    CreationFailed,
}

/// Answer to the question whether the files of a workspace may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retain {
    /// The user has stopped using the files.
    Release,
    /// The user keeps the files. They stay when the sandbox is gone, as long as
    /// [`WorkspaceUser::retained`] names them, and count for no quota of sandboxes.
    Keep,
}

/// A service that uses the files of workspaces from outside their sandboxes.
///
/// It is called from the start of the sandbox service on, even before that has returned. Each call is dropped
/// after [`Settings::hook_timeout`](crate::Settings). A workspace has the id of its sandbox.
///
/// For every change of files the user holds [`Service::shared_access`](crate::Service::shared_access). It must
/// not wait for that in a call.
#[async_trait]
pub trait WorkspaceUser: Send + Sync + Debug {
    /// Called before the sandbox of a new workspace starts. An error, or a timeout, fails the creation.
    ///
    /// `root` is the root of the workspace, open for reading. Files below it can be opened with the
    /// permissions of this process, also where the workspace is mounted in other namespaces. An open
    /// descriptor keeps the mount of an overlay.
    async fn created(&self, id: &str, owner: &str, root: OwnedFd) -> Result<(), UserError>;

    /// Called when the processes of a sandbox have ended, before anything is deleted. After an error, or a
    /// timeout, nothing is deleted, and the question is repeated later. It may also be repeated after an
    /// answer, if the removal was interrupted.
    async fn before_removal(&self, id: &str, cause: RemovalCause) -> Result<Retain, UserError>;

    /// Called when a workspace was replaced by a restore or a resume, or is about to be removed because its
    /// sandbox is paused on disk, while nobody else has access to it. The former root must not be used any
    /// more. `root` is `None` if there is no new one, or it cannot be opened, for example because the process
    /// that holds its mount has died.
    async fn replaced(&self, id: &str, root: Option<OwnedFd>);

    /// Returns those of the `ids`, which are workspaces without a sandbox, whose files the user keeps since it
    /// answered [`Retain::Keep`]. All others are removed. After an error, or a timeout, none is removed.
    async fn retained(&self, ids: &[String]) -> Result<HashSet<String>, UserError>;
}

/// Failure of a call of a [`WorkspaceUser`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// The call took too long.
    #[error("a user of the workspace did not answer within {0:?}")]
    TimedOut(Duration),
    /// The call failed.
    #[error("a user of the workspace failed: {0}")]
    Failed(#[source] UserError),
}

/// Waits for a call, with a timeout.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, UserError>>,
) -> Result<T, HookError> {
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(HookError::Failed),
        Err(_) => Err(HookError::TimedOut(limit)),
    }
}
