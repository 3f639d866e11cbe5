//! Removing a sandbox.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use workspace_catalog::{Change, EventKind, Sandbox, State};
use workspace_state::{Cancel, NewSnapshot, SnapshotId};
use workspace_workspace::WorkspaceError;

use crate::clock::now;
use crate::command::running::End;
use crate::disk::usage::release;
use crate::error::{Result, SandboxError, without_host_paths};
use crate::guest::handle::SandboxHandle;
use crate::scope::Scope;
use crate::service::{Service, event, not_running};

/// Reasons why a sandbox is stopping whose workspace outlives it: as it is, and as a snapshot.
const KEPT: &str = "kept";
const KEPT_AS_SNAPSHOT: &str = "kept as a snapshot";

/// What stays of a sandbox that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Nothing,
    /// Its workspace, here.
    Directory(PathBuf),
    /// What its workspace held.
    Snapshot(SnapshotId),
}

/// Longest time until a delete is answered. It goes on after that.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(180);

/// The kind of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// With its workspace.
    All,
    /// The workspace stays: as a directory where it is one.
    KeepWorkspace,
    /// The workspace stays as a snapshot of its owner's.
    KeepSnapshot,
    /// With its workspace, unless it was extended meanwhile.
    Expired,
}

impl Removal {
    /// Directories that are kept count for nobody and are never collected, so only those who see everything make some.
    fn keeping(scope: &Scope) -> Self {
        match scope {
            Scope::All => Self::KeepWorkspace,
            Scope::Owner(_) => Self::KeepSnapshot,
        }
    }

    /// The removal of a sandbox that is stopping, by the reason that was noted for it.
    pub(crate) fn of_stopping(reason: Option<&str>) -> Self {
        match reason {
            Some(KEPT) => Self::KeepWorkspace,
            Some(KEPT_AS_SNAPSHOT) => Self::KeepSnapshot,
            _ => Self::All,
        }
    }

    /// The reason that is recorded for a workspace that outlives its sandbox.
    fn reason(self) -> Option<&'static str> {
        match self {
            Self::KeepWorkspace => Some(KEPT),
            Self::KeepSnapshot => Some(KEPT_AS_SNAPSHOT),
            Self::All | Self::Expired => None,
        }
    }

    fn keeps_workspace(self) -> bool {
        self.reason().is_some()
    }

    /// Whether a sandbox as it is now is to be removed.
    fn covers(self, sandbox: &Sandbox) -> bool {
        self != Self::Expired || sandbox.expires_at <= now()
    }
}

impl Service {
    /// Ends everything in a sandbox and forgets it. Its workspace goes too, unless it is to be kept: then this
    /// tells where. An owner keeps a snapshot of it, those who see everything the directory where it is one. Answers when nothing runs any more and nobody finds it; its files are removed behind that. Goes on
    /// when nobody waits for it any more.
    pub async fn remove(&self, scope: &Scope, id: &str, keep_workspace: bool) -> Result<Kept> {
        let sandbox = self.find_here(scope, id).await?;
        self.remove_found(scope, &sandbox.id, keep_workspace).await
    }

    /// Looks for several sandboxes, in their order: an error for those that are not there, and for those that another server looks
    /// after. One that is named twice is not there the second time.
    pub async fn find_many(&self, scope: &Scope, ids: Vec<String>) -> Result<Vec<(String, Result<()>)>> {
        let mut seen = HashSet::new();
        // An id that cannot be, is not.
        let names = ids.iter().filter(|id| !id.contains('\0') && seen.insert(id.as_str()));
        let names: Vec<String> = names.cloned().collect();
        let mut nodes = self.0.catalog.sandboxes().nodes(scope.owner(), &names).await?;
        let found = |id: String| {
            let found = match nodes.remove(&id) {
                None => Err(SandboxError::NotFound { id: id.clone() }),
                Some(node) if node != self.0.settings.node => {
                    Err(SandboxError::Elsewhere { id: id.clone(), node })
                }
                Some(_) => Ok(()),
            };
            (id, found)
        };
        Ok(ids.into_iter().map(found).collect())
    }

    /// Removes those of several sandboxes that were found, some of an owner's at a time; what became of each, in the same order.
    pub async fn remove_many(
        &self,
        scope: &Scope,
        found: Vec<(String, Result<()>)>,
        keep_workspace: bool,
    ) -> Vec<(String, Result<Kept>)> {
        let remove = |id: String| {
            let (service, scope) = (self.clone(), scope.clone());
            tokio::spawn(async move {
                let _turn = service.0.batch_removals.acquire(scope.owner().unwrap_or_default()).await;
                service.remove_found(&scope, &id, keep_workspace).await
            })
        };
        let removals = found.into_iter().map(|(id, found)| (id.clone(), found.map(|()| remove(id))));
        let mut done = Vec::new();
        for (id, removal) in removals.collect::<Vec<_>>() {
            let removed = match removal {
                Ok(removal) => removal.await.unwrap_or_else(|error| Err(lost(error))),
                Err(error) => Err(error),
            };
            done.push((id, removed));
        }
        done
    }

    /// Removes a sandbox that the scope covers and that this server looks after.
    async fn remove_found(&self, scope: &Scope, id: &str, keep_workspace: bool) -> Result<Kept> {
        let removal = if keep_workspace { Removal::keeping(scope) } else { Removal::All };
        if removal == Removal::KeepSnapshot {
            // Before anything is ended for it.
            self.must_have_snapshot_room(scope, 1).await?;
        }
        self.remove_in_time(id, removal).await
    }

    pub(crate) async fn remove_in_time(&self, id: &str, removal: Removal) -> Result<Kept> {
        let (service, name) = (self.clone(), id.to_owned());
        let removing = tokio::spawn(async move { service.remove_now(&name, removal).await });
        let removed = timeout(ANSWER_TIMEOUT, removing).await;
        let late = |_| SandboxError::Busy { id: id.to_owned(), seconds: ANSWER_TIMEOUT.as_secs() };
        removed.map_err(late)?.unwrap_or_else(|error| Err(lost(error)))
    }

    /// Every step may be done twice: whoever is killed in between, the next start does it again.
    pub(crate) async fn remove_now(&self, id: &str, removal: Removal) -> Result<Kept> {
        // Before the lock: whoever waits for it is refused by this state.
        self.set_stopping(id, removal).await?;
        let _operation = self.0.operations.lock(id).await;
        let sandbox = self.current(id).await?;
        if !removal.covers(&sandbox) {
            return Err(not_running(&sandbox));
        }
        let handle = self.handle(id);
        // From here on its guest is not missed.
        self.remove_handle(id);
        let dir = self.dir(id);
        self.end(id, &dir).await?;
        let reason = "the sandbox was removed";
        end_waiting(handle.as_ref(), reason);
        if !removal.keeps_workspace() {
            self.forget_row(&sandbox).await?;
            let bytes = handle
                .as_ref()
                .map_or_else(|| self.0.full_disk.known_usage(id), |handle| handle.usage.bytes());
            self.remove_files_behind(id, &sandbox.owner, bytes).await;
            return Ok(Kept::Nothing);
        }
        let kept = match self.keep_workspace(id, &sandbox.owner, removal).await {
            // Nothing of it is lost: it can be removed again, or committed when what is in the way is gone.
            Err(error) => {
                self.lose_commands(id, handle.as_ref(), reason).await;
                self.stay(id, &error).await;
                return Err(error);
            }
            Ok(kept) => kept,
        };
        self.remove_dir(id).await?;
        self.forget_row(&sandbox).await?;
        Ok(kept)
    }

    /// Notes that a sandbox is being removed. One that has stopped stays so.
    async fn set_stopping(&self, id: &str, removal: Removal) -> Result<()> {
        let stopping = |sandbox: &Sandbox| {
            let goes = removal.covers(sandbox) && sandbox.state.can_become(State::Stopping);
            goes.then(|| Change {
                state: Some(State::Stopping),
                state_reason: removal.reason().map(str::to_owned),
                ..Change::default()
            })
        };
        let sandbox = match self.change(id, stopping, &[]).await {
            // What it leaves is what fills the disk, perhaps; whoever removes it wants none of it.
            Err(SandboxError::Catalog(error)) if error.is_full() && !removal.keeps_workspace() => {
                let _operation = self.0.operations.lock(id).await;
                self.end(id, &self.dir(id)).await?;
                self.remove_workspace(id).await?;
                self.change(id, stopping, &[]).await?
            }
            changed => changed?,
        };
        if removal.covers(&sandbox) { Ok(()) } else { Err(not_running(&sandbox)) }
    }

    /// Removes a sandbox of which nothing runs from the catalog. From here on nobody finds it.
    async fn forget_row(&self, sandbox: &Sandbox) -> Result<()> {
        let id = sandbox.id.as_str();
        let deleted = || [event(EventKind::SandboxDeleted, sandbox, &Change::default())];
        match self.0.catalog.sandboxes().delete(id, &deleted()).await {
            // Its files may be what fills the disk.
            Err(error) if error.is_full() => {
                self.remove_files(id).await?;
                self.0.catalog.sandboxes().delete(id, &deleted()).await?;
            }
            done => drop(done?),
        }
        Ok(())
    }

    /// Leaves a sandbox of which nothing runs any more, because what it holds could not be kept.
    async fn stay(&self, id: &str, error: &SandboxError) {
        tracing::error!(sandbox = id, %error, "failed to keep the workspace of a deleted sandbox");
        let reason = without_host_paths(&format!("what it holds could not be kept: {error}"));
        let stopped = |sandbox: &Sandbox| {
            sandbox.state.can_become(State::Stopped).then(|| Change {
                state: Some(State::Stopped),
                state_reason: Some(reason.clone()),
                ..Change::default()
            })
        };
        if let Err(error) = self.change(id, stopped, &[EventKind::SandboxError]).await {
            tracing::error!(sandbox = id, %error, "that a sandbox has stopped could not be written down");
        }
    }

    /// Keeps what a workspace holds: as a directory, or as a snapshot if that is wanted or it is spread over layers.
    async fn keep_workspace(&self, id: &str, owner: &str, removal: Removal) -> Result<Kept> {
        if removal != Removal::KeepSnapshot
            && let Some(path) = self.keep_directory(id).await?
        {
            return Ok(Kept::Directory(path));
        }
        let message = format!("what sandbox {id} left");
        let stored = Arc::default();
        let new = NewSnapshot {
            author: owner.to_owned(),
            stored: Some(Arc::clone(&stored)),
            ..NewSnapshot::with_message(message)
        };
        let committed = match self.commit_still(id, new, &Cancel::new()).await {
            // Whoever began to remove it has kept it.
            Err(SandboxError::Workspace(WorkspaceError::NotFound { .. })) => return Ok(Kept::Nothing),
            committed => committed?,
        };
        self.note_snapshot(owner, &committed.snapshot, id, &stored).await?;
        self.remove_workspace(id).await?;
        Ok(Kept::Snapshot(committed.snapshot.id))
    }

    /// Moves a workspace that is one directory to where those that are kept lie. None if it is not one.
    async fn keep_directory(&self, id: &str) -> Result<Option<PathBuf>> {
        let id = id.to_owned();
        self.on_workspaces(move |workspaces| {
            release(&workspaces.directory_of(&id));
            workspaces.keep(&id)
        })
        .await
    }
}

fn lost(error: tokio::task::JoinError) -> SandboxError {
    SandboxError::Io { action: "remove a sandbox".to_owned(), source: std::io::Error::other(error) }
}

/// Tells whoever waits for a command of a sandbox that it ended.
fn end_waiting(handle: Option<&Arc<SandboxHandle>>, reason: &str) {
    let end = End { exit_code: -1, timed_out: false, failed: Some(reason.to_owned()) };
    for running in handle.map(|handle| handle.commands.running("")).unwrap_or_default() {
        running.advance(0, Some(&end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_is_finished_as_it_was_begun() {
        let owner = Scope::Owner("alice".to_owned());
        assert_eq!(Removal::keeping(&owner), Removal::KeepSnapshot);
        assert_eq!(Removal::keeping(&Scope::All), Removal::KeepWorkspace);
        for removal in [Removal::All, Removal::KeepWorkspace, Removal::KeepSnapshot] {
            assert_eq!(Removal::of_stopping(removal.reason()), removal);
        }
        assert_eq!(Removal::of_stopping(Some("its time is over")), Removal::All);
    }
}
