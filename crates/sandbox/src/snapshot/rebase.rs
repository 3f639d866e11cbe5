//! Rebase: the files of a workspace are replaced by those of a merge with a newer head of its project. The head is the
//! snapshot of the project's present files.
//!
//! The caller merges. This module freezes the sandbox, makes a snapshot of its files for the merge, replaces the files
//! by the result as a restore does, and records the new base with them. If the server is killed, the workspace has
//! either the former files with the former base, or the new ones with the new base.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use workspace_catalog::{Change, EventKind, NewEvent, Sandbox, SnapshotOrigin};
use workspace_state::{Cancel, Durability, NewSnapshot, Snapshot, SnapshotId};
use workspace_workspace::{CancellableWorkspaces, ProviderKind, Writers};

use super::bases::event_of_base;
use super::operations::{FreezeTime, IfInUse, check_writable};
use super::replacement::Replaced;
use crate::config::{Config, NewSandbox};
use crate::error::{Result, SandboxError};
use crate::failpoint;
use crate::guest::handle::SandboxHandle;
use crate::lifecycle::operation_lock::OperationLockGuard;
use crate::lifecycle::quiet_work::QuietMoment;
use crate::lineage::{ConflictingHead, HeadVersion, ProjectBase};
use crate::runtime::WorkspaceProcess;
use crate::scope::Scope;
use crate::service::{SandboxInfo, Service, config_of, event};

/// Message of the snapshots of a rebase.
const MESSAGE: &str = "rebase";

/// Files of a frozen sandbox that are merged with a head.
#[derive(Debug)]
pub struct RebaseFiles {
    /// Base of the workspace.
    pub base: ProjectBase,
    /// Snapshot of the files of the workspace.
    pub theirs: SnapshotId,
    /// Description of the snapshot with the result.
    pub new: NewSnapshot,
}

/// Decision of the caller of a rebase. `C` is its report.
#[derive(Debug)]
pub enum RebaseDecision<C> {
    /// The workspace gets other files.
    Replace(Box<MergedFiles<C>>),
    /// The workspace stays as it is. The report says why.
    Keep(C),
}

/// Files by which a rebase replaces those of a workspace.
#[derive(Debug)]
pub struct MergedFiles<C> {
    /// The new files, on disk.
    pub snapshot: Snapshot,
    /// Base of the new files.
    pub base: ProjectBase,
    /// True if the snapshot of the former files is to be kept for the owner of the sandbox.
    pub keeps_former: bool,
    /// Report of the caller.
    pub report: C,
}

/// Sandbox that was rebased.
#[derive(Debug, Clone)]
pub struct RebaseResult {
    /// The sandbox after the rebase.
    pub info: SandboxInfo,
    /// Snapshot of the new files.
    pub snapshot: SnapshotId,
    /// Snapshot of the former files, if it was kept.
    pub former: Option<SnapshotId>,
    /// Processes that were killed.
    pub killed: Vec<WorkspaceProcess>,
    /// Freeze of the sandbox during the operation.
    pub freeze: FreezeTime,
}

/// Outcome of [`Service::rebase`].
#[derive(Debug)]
pub enum Rebase<C> {
    /// The workspace has other files.
    Done(Box<RebaseResult>, C),
    /// The workspace is as it was.
    Kept(C),
}

/// Outcome of [`Service::rebase_if_quiet`].
#[derive(Debug)]
pub enum QuietRebase<C> {
    /// It was quiet, and the caller decided.
    Rebased(Rebase<C>),
    /// Files may be changing, or the base is another one. Try again later.
    NotQuiet,
}

/// Sandbox whose files are replaced.
#[derive(Clone, Copy)]
struct Target<'a> {
    sandbox: &'a Sandbox,
    handle: &'a SandboxHandle,
    base: &'a ProjectBase,
    /// Quiet moment that must last until the freeze; `None` if the sandbox need not be quiet.
    quiet: Option<&'a QuietMoment>,
}

/// Replacement of the files of a frozen sandbox.
enum Attempt<C> {
    Done(Box<ReplacedFiles<C>>),
    Kept(C),
}

struct ReplacedFiles<C> {
    /// Snapshot of the former files.
    theirs: Snapshot,
    /// Number of bytes by which the snapshots made the store larger.
    bytes: Arc<AtomicU64>,
    /// Files of the workspace after the rebase.
    new: MergedFiles<C>,
}

impl Service {
    /// Rebases the workspace of a running sandbox. `merge` decides, while the sandbox is frozen, which files replace
    /// those of the workspace. `head` has most of these files: its layers are written before the freeze.
    pub async fn rebase<C, F>(
        &self,
        scope: &Scope,
        id: &str,
        head: SnapshotId,
        if_in_use: IfInUse,
        merge: impl Fn(RebaseFiles) -> F + Send + Sync + 'static,
    ) -> Result<Rebase<C>>
    where
        C: Send + 'static,
        F: Future<Output = RebaseDecision<C>> + Send,
    {
        let sandbox = self.find_on_this_server(scope, id).await?;
        self.check_rebase(&sandbox)?;
        self.check_snapshot_quota(&Scope::Owner(sandbox.owner), 2).await?;
        self.find_running(scope, id).await?;
        let id = id.to_owned();
        self.cancellable(|service, cancel| async move {
            service.rebase_inner(&id, head, if_in_use, &merge, &cancel).await
        })
        .await
    }

    /// Returns the base of a sandbox whose workspace can be rebased. The error says why it cannot.
    pub async fn rebasable(&self, scope: &Scope, id: &str) -> Result<ProjectBase> {
        self.check_rebase(&self.find_on_this_server(scope, id).await?)
    }

    fn check_rebase(&self, sandbox: &Sandbox) -> Result<ProjectBase> {
        check_writable(sandbox, "it always shows the head of its project, so it needs no rebase")?;
        let config = config_of(sandbox)?;
        let base = config.lineage.project_base;
        let base = base.ok_or_else(|| SandboxError::NoProject { id: sandbox.id.clone() })?;
        if config.read_only {
            let hint = "its agent could change nothing when it was created; create another sandbox, which has the \
                        newest files";
            return Err(SandboxError::ReadOnly { id: sandbox.id.clone(), hint });
        }
        self.replaceable_handle(sandbox)?;
        self.check_rebasing(config.provider)?;
        Ok(base)
    }

    /// Fails if a new sandbox is to be rebased by the server, and that is not possible here.
    pub(crate) fn check_new_rebasing(&self, new: &NewSandbox) -> Result<()> {
        match new.rebases {
            true => {
                self.check_rebasing(Some(new.provider.unwrap_or(self.0.workspaces.provider_selection().kind)))
            }
            false => Ok(()),
        }
    }

    fn check_rebasing(&self, provider: Option<ProviderKind>) -> Result<()> {
        if self.0.runtime.can_swap_workspace() || provider != Some(ProviderKind::Overlay) {
            return Ok(());
        }
        let reason = format!(
            "the runtime `{}` cannot replace an overlay below its processes; create sandboxes with the provider `copy`, \
             or complete this one and create another",
            self.0.runtime.name()
        );
        Err(SandboxError::RebaseUnavailable { reason })
    }

    async fn rebase_inner<C, F>(
        &self,
        id: &str,
        head: SnapshotId,
        if_in_use: IfInUse,
        merge: &impl Fn(RebaseFiles) -> F,
        cancel: &Cancel,
    ) -> Result<Rebase<C>>
    where
        F: Future<Output = RebaseDecision<C>>,
    {
        let operation = self.lock_operation(id, cancel).await?;
        let sandbox = &self.with_recorded_base(self.read_row(id).await?).await?;
        let base = self.check_rebase(sandbox)?;
        let handle = self.replaceable_handle(sandbox)?;
        let target = Target { sandbox, handle: &handle, base: &base, quiet: None };
        self.replace_by_decision(target, head, if_in_use, &operation, merge, cancel).await
    }

    /// Replaces the files of a sandbox like [`Self::rebase`], if it is quiet, and has the base `known`. Waits for no
    /// other operation on the sandbox.
    pub async fn rebase_if_quiet<C, F>(
        &self,
        id: &str,
        known: &ProjectBase,
        merge: impl Fn(RebaseFiles) -> F + Send + Sync + 'static,
    ) -> Result<QuietRebase<C>>
    where
        C: Send + 'static,
        F: Future<Output = RebaseDecision<C>> + Send,
    {
        let (id, known) = (id.to_owned(), known.clone());
        let rebased = self.cancellable(|service, cancel| async move {
            service.rebase_quiet(&id, &known, &merge, &cancel).await
        });
        match rebased.await {
            // A client or a process has come in between.
            Err(
                SandboxError::WorkspaceBusy { .. }
                | SandboxError::WorkspaceUsed { .. }
                | SandboxError::Busy { .. },
            ) => Ok(QuietRebase::NotQuiet),
            rebased => rebased,
        }
    }

    async fn rebase_quiet<C, F>(
        &self,
        id: &str,
        known: &ProjectBase,
        merge: &impl Fn(RebaseFiles) -> F,
        cancel: &Cancel,
    ) -> Result<QuietRebase<C>>
    where
        F: Future<Output = RebaseDecision<C>>,
    {
        let Some(operation) = self.0.operation_locks.try_lock(id) else { return Ok(QuietRebase::NotQuiet) };
        let sandbox = &self.with_recorded_base(self.read_row(id).await?).await?;
        let base = self.check_rebase(sandbox)?;
        let handle = self.replaceable_handle(sandbox)?;
        if base != *known {
            return Ok(QuietRebase::NotQuiet);
        }
        self.check_snapshot_quota(&Scope::Owner(sandbox.owner.clone()), 1).await?;
        // No command starts while this guard is held.
        let Some(_no_starts) = handle.tracer.try_block_starts() else { return Ok(QuietRebase::NotQuiet) };
        let Some(quiet) = QuietMoment::of(&handle).await else { return Ok(QuietRebase::NotQuiet) };
        if handle.io.is_transferring() {
            return Ok(QuietRebase::NotQuiet);
        }
        // The files are nearly those that the workspace was made from, whose layers exist.
        let made_from = config_of(sandbox)?.snapshot.unwrap_or(base.snapshot);
        let target = Target { sandbox, handle: &handle, base: &base, quiet: Some(&quiet) };
        let rebased =
            self.replace_by_decision(target, made_from, IfInUse::Fail, &operation, merge, cancel).await?;
        Ok(QuietRebase::Rebased(rebased))
    }

    /// Replaces the files of a sandbox by those on which `merge` decides while the sandbox is frozen.
    async fn replace_by_decision<C, F>(
        &self,
        target: Target<'_>,
        head: SnapshotId,
        if_in_use: IfInUse,
        operation: &OperationLockGuard,
        merge: &impl Fn(RebaseFiles) -> F,
        cancel: &Cancel,
    ) -> Result<Rebase<C>>
    where
        F: Future<Output = RebaseDecision<C>>,
    {
        let Target { sandbox, handle, base, .. } = target;
        let id = sandbox.id.as_str();
        let prepared = self.prepare_replacement(sandbox, handle, head, if_in_use, operation, cancel).await?;
        let attempt = || self.rebase_frozen(target, merge, cancel);
        let Replaced { value, killed, thawed } =
            self.replace_unused(sandbox, handle, &prepared.access, if_in_use, cancel, attempt).await?;
        let ReplacedFiles { theirs, bytes, new } = match value {
            Attempt::Done(files) => *files,
            Attempt::Kept(report) => {
                thawed?;
                return Ok(Rebase::Kept(report));
            }
        };
        let MergedFiles { snapshot, base: new_base, keeps_former, report } = new;
        failpoint::hit("rebase-replaced")?;
        self.notify_hooks_of_replacement(id, &prepared.access).await;
        drop(prepared);
        // Nothing was committed since the former rebase, so its snapshot is no ancestor of any other.
        let unused = base.rebased.filter(|rebased| theirs.parents.first() == Some(rebased) && !keeps_former);
        self.remove_former_files(id, unused.map(|snapshot| (sandbox.owner.clone(), snapshot)));
        let change = |sandbox: &Sandbox| {
            let config = config_of(sandbox).ok()?.with_base(new_base.clone());
            let config = Config { snapshot: Some(snapshot.id), ..config };
            Some(Change { config: serde_json::to_value(config).ok(), ..Change::default() })
        };
        // If this fails, the next operation records it (`with_recorded_base`).
        let changed = self.change(id, change, &[event_of_base(&new_base)]).await;
        failpoint::hit("rebase-recorded")?;
        self.count_base_change(id);
        // Recorded without the sandbox: notes of its agent belong to the next snapshot of its work, not to this one.
        let origin = SnapshotOrigin { sandbox: None, round_id: Some(new_base.round_id(id)) };
        let (name, bytes) = (snapshot.id.to_string(), bytes.load(Ordering::Relaxed));
        let owned = self.0.catalog.snapshots().add_of_origin(&sandbox.owner, &name, &origin, bytes).await;
        failpoint::hit("rebase-owned")?;
        if owned.is_ok() {
            self.settle_snapshot(snapshot.id).await;
        }
        if !keeps_former {
            self.remove_snapshot_from_store(id, &theirs).await;
        }
        owned?;
        let info = self.info(changed?)?;
        let former = keeps_former.then_some(theirs.id);
        let result = RebaseResult { info, snapshot: snapshot.id, former, killed, freeze: thawed? };
        Ok(Rebase::Done(Box::new(result), report))
    }

    /// Replaces the workspace of a frozen sandbox, or leaves it as it was.
    async fn rebase_frozen<C, F>(
        &self,
        Target { sandbox, handle, base, quiet }: Target<'_>,
        merge: &impl Fn(RebaseFiles) -> F,
        cancel: &Cancel,
    ) -> Result<Attempt<C>>
    where
        F: Future<Output = RebaseDecision<C>>,
    {
        let id = sandbox.id.as_str();
        self.check_unused(handle).await?;
        if quiet.is_some_and(|quiet| !quiet.lasts(handle)) {
            return Err(SandboxError::WorkspaceUsed { id: id.to_owned(), processes: Vec::new() });
        }
        let bytes = Arc::<AtomicU64>::default();
        let new = || NewSnapshot {
            author: sandbox.owner.clone(),
            message: MESSAGE.to_owned(),
            durability: Durability::Buffered,
            pending: true,
            stored_bytes: Some(Arc::clone(&bytes)),
            ..NewSnapshot::default()
        };
        let (name, description) = (id.to_owned(), new());
        // Without a kept root, which stays as it is.
        let commit = move |workspaces: &CancellableWorkspaces<'_>| {
            workspaces.commit(&name, description, Writers::Stopped)
        };
        let theirs = self.on_workspaces_until(cancel, commit).await?.snapshot;
        failpoint::hit("rebase-committed")?;
        let files = RebaseFiles { base: base.clone(), theirs: theirs.id, new: new() };
        let mut new = match merge(files).await {
            RebaseDecision::Replace(new) => *new,
            RebaseDecision::Keep(report) => {
                self.remove_snapshot_from_store(id, &theirs).await;
                return Ok(Attempt::Kept(report));
            }
        };
        new.base.rebased = Some(new.snapshot.id);
        if let Err(error) = self.replace_by_merged(sandbox, handle, base, &theirs, &mut new, cancel).await {
            self.remove_snapshot_from_store(id, &new.snapshot).await;
            // As long as it has an owner, it stays.
            if !new.keeps_former || self.remove_owner(sandbox, &theirs).await.is_ok() {
                self.remove_snapshot_from_store(id, &theirs).await;
            }
            return Err(error);
        }
        Ok(Attempt::Done(Box::new(ReplacedFiles { theirs, bytes, new })))
    }

    /// Replaces the files of a frozen sandbox, which `theirs` holds, by merged ones. If versions of the agent are
    /// missing in the merged files, `theirs` belongs to the owner of the sandbox before that: a server that is killed
    /// afterwards must not lose them.
    async fn replace_by_merged<C>(
        &self,
        sandbox: &Sandbox,
        handle: &SandboxHandle,
        base: &ProjectBase,
        theirs: &Snapshot,
        new: &mut MergedFiles<C>,
        cancel: &Cancel,
    ) -> Result<()> {
        // Otherwise a fork that changed nothing would complete the changes of its original.
        let is_untouched = self.has_files_of(base.untouched, theirs).await?;
        new.base.untouched = is_untouched.then_some(new.snapshot.id);
        if new.keeps_former {
            self.on_workspaces(|workspaces| Ok(workspaces.store().sync()?)).await?;
            let made_in = (sandbox.id.as_str(), Some(base));
            self.record_snapshot(&sandbox.owner, theirs, made_in, &AtomicU64::new(0)).await?;
            failpoint::hit("rebase-former-recorded")?;
        }
        let info = serde_json::to_string(&new.base).unwrap_or_default();
        self.replace(handle, new.snapshot.id, Some(info), cancel).await
    }

    async fn remove_owner(&self, sandbox: &Sandbox, snapshot: &Snapshot) -> Result<()> {
        let id = snapshot.id.to_string();
        self.0.catalog.snapshots().remove_owner(Some(&sandbox.owner), &id).await?;
        Ok(())
    }

    /// Returns true if a snapshot has the same files as the snapshot `id`; false if that was removed, or there is none.
    async fn has_files_of(&self, id: Option<SnapshotId>, snapshot: &Snapshot) -> Result<bool> {
        let Some(id) = id else { return Ok(false) };
        let found = self.on_workspaces(move |workspaces| Ok(workspaces.store().find_snapshot(&id)?)).await?;
        Ok(found.is_some_and(|found| found.tree == snapshot.tree))
    }

    /// Records that a workspace has all changes of `head` without a rebase, if its base is still `known`.
    pub async fn record_current_base(
        &self,
        scope: &Scope,
        id: &str,
        known: &ProjectBase,
        head: ProjectBase,
    ) -> Result<SandboxInfo> {
        self.find_on_this_server(scope, id).await?;
        // The changes are compared with the same snapshot as before.
        let ProjectBase { snapshot, rebased, untouched, ref reverted, .. } = *known;
        let head = ProjectBase { snapshot, rebased, untouched, reverted: reverted.clone(), ..head };
        let change = |sandbox: &Sandbox| {
            let config = config_of(sandbox).ok().filter(|config| has_base(config, known))?;
            let config = config.with_base(head.clone());
            Some(Change { config: serde_json::to_value(config).ok(), ..Change::default() })
        };
        let changed = self.change(id, change, &[]).await?;
        self.count_base_change(id);
        self.info(changed)
    }

    /// Records the event that `head` has changes which the workspace of a sandbox, with the base `known`, does not
    /// have. Does nothing if such an event was recorded for this head, or if the base is not `known` any more.
    pub async fn announce_moved_base(&self, id: &str, known: &ProjectBase, head: HeadVersion) -> Result<()> {
        let change = |sandbox: &Sandbox| {
            let config = config_of(sandbox).ok().filter(|config| has_base(config, known))?;
            let config = Config { base_moved: Some(head), ..config };
            let is_new = sandbox.config["base_moved"] != json!(head);
            is_new.then(|| Change { config: serde_json::to_value(config).ok(), ..Change::default() })
        };
        self.change(id, change, &[EventKind::SandboxBaseMoved]).await.map(|_| ())
    }

    /// Records that the changes in the workspace of a sandbox conflict with a head, and an event with the conflicts,
    /// once for each head. Does nothing if the base is not `known` any more.
    pub async fn announce_conflict(
        &self,
        id: &str,
        known: &ProjectBase,
        conflicting: &ConflictingHead,
        conflicts: &Value,
    ) -> Result<()> {
        let change = |sandbox: &Sandbox| {
            let config = config_of(sandbox).ok().filter(|config| has_base(config, known))?;
            if config.conflicting_head.as_ref() == Some(conflicting) {
                return None;
            }
            let head = conflicting.head;
            let is_told = config.conflicting_head.as_ref().is_some_and(|former| former.head == head);
            let conflicting_head = Some(conflicting.clone());
            let config = Config { base_moved: Some(head), conflicting_head, ..config };
            let change = Change { config: serde_json::to_value(config).ok(), ..Change::default() };
            let mut event = event(EventKind::SandboxRebaseConflicted, sandbox, &change);
            event.data["conflicts"] = conflicts.clone();
            let events: Vec<NewEvent> = if is_told { Vec::new() } else { vec![event] };
            Some((change, events))
        };
        self.change_with(id, change).await.map(|_| ())
    }
}

/// Returns true if the base of a sandbox is still `known`: since then, it was neither rebased or restored to another
/// base, nor recorded to have all changes of a later head.
fn has_base(config: &Config, known: &ProjectBase) -> bool {
    config.lineage.project_base.as_ref().is_some_and(|base| base == known)
}
