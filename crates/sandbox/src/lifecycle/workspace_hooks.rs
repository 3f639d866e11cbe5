//! Calls of the hooks ([`WorkspaceHooks`](crate::WorkspaceHooks)) of services that use the files of workspaces from
//! outside. In this file, a *service* is one of these and not [`Service`].

use std::collections::HashSet;

use tokio::time::timeout;
use workspace_catalog::Sandbox;
use workspace_workspace::Generation;

use crate::error::{Result, SandboxError};
use crate::gate::ExclusiveAccess;
use crate::hooks::{HookError, HookedWorkspace, RemovalCause, Retain, WorkspaceRoot, within};
use crate::service::{Service, config_of};

impl Service {
    /// Tells every service about a new workspace. Fails if one does not accept it.
    pub(crate) async fn notify_hooks_of_creation(&self, workspace: HookedWorkspace<'_>) -> Result<()> {
        let settings = &self.0.settings;
        for hooks in &settings.workspace_hooks {
            let root = self.open_root(workspace.id).await?;
            let accepted = within(settings.hook_timeout, hooks.created(workspace, root)).await;
            accepted.map_err(|source| SandboxError::CreationHook { source })?;
        }
        Ok(())
    }

    /// Tells every service about the workspace of a sandbox that can be used again: this server has found it, a resume
    /// has created it anew, or its removal was given up. Failures are only logged: a sandbox that is paused to disk has
    /// no workspace, and one whose processes exited may have none that can be opened.
    pub(crate) async fn notify_hooks_of_recovery(&self, sandbox: &Sandbox) {
        let (settings, id) = (&self.0.settings, sandbox.id.as_str());
        let Ok(config) = config_of(sandbox).inspect_err(|error| {
            tracing::error!(sandbox = id, %error, "failed to read the configuration of a recovered sandbox");
        }) else {
            return;
        };
        let (is_read_only, follows_head) = (config.read_only, config.follows);
        let outside_clients = config.outside_clients.as_deref();
        let owner = &sandbox.owner;
        let workspace = HookedWorkspace { id, owner, is_read_only, follows_head, outside_clients };
        for hooks in &settings.workspace_hooks {
            let root = match self.open_root(id).await {
                Ok(root) => root,
                Err(error) => {
                    tracing::debug!(sandbox = id, %error, "no workspace of a recovered sandbox can be opened");
                    return;
                }
            };
            if timeout(settings.hook_timeout, hooks.recovered(workspace, root)).await.is_err() {
                tracing::error!(
                    sandbox = id,
                    "a service that uses the workspace of a recovered sandbox did not answer in time"
                );
            }
        }
    }

    /// Asks every service whether the files of a workspace may be removed, and keeps them if one needs them.
    /// Nothing runs in the sandbox any more.
    pub(crate) async fn ask_before_removal(&self, id: &str, cause: RemovalCause) -> Result<Retain> {
        let settings = &self.0.settings;
        let mut retain = Retain::Release;
        for hooks in &settings.workspace_hooks {
            let answer = within(settings.hook_timeout, hooks.before_removal(id, cause)).await;
            let answer = answer.map_err(|source| SandboxError::RemovalHook { id: id.to_owned(), source })?;
            if answer == Retain::Keep {
                retain = Retain::Keep;
            }
        }
        Ok(retain)
    }

    /// Removes the workspace of a sandbox that could not be created, unless a service keeps it. If a service does
    /// not answer, it stays until orphans are removed.
    pub(crate) async fn discard_workspace(&self, id: &str) -> Result<()> {
        match self.ask_before_removal(id, RemovalCause::CreationFailed).await? {
            Retain::Release => self.remove_workspace(id).await,
            Retain::Keep => Ok(()),
        }
    }

    /// Tells every service that a workspace was replaced, and counts the replacement as activity of the sandbox. Does
    /// not wait for a service longer than the timeout.
    pub(crate) async fn notify_hooks_of_replacement(&self, id: &str, _access: &ExclusiveAccess) {
        if let Some(handle) = self.handle(id) {
            handle.record_activity();
        }
        let settings = &self.0.settings;
        for hooks in &settings.workspace_hooks {
            let root = self.open_root(id).await.inspect_err(|error| {
                tracing::error!(sandbox = id, %error, "failed to open a restored workspace for its services");
            });
            if timeout(settings.hook_timeout, hooks.replaced(id, root.ok())).await.is_err() {
                tracing::error!(
                    sandbox = id,
                    "a service that uses a restored workspace did not answer in time"
                );
            }
        }
    }

    /// Tells every service that a workspace is about to be removed while its sandbox stays, so that no service uses the
    /// root directory any more that it got before.
    pub(crate) async fn notify_hooks_of_removal(&self, id: &str, _access: &ExclusiveAccess) {
        let settings = &self.0.settings;
        for hooks in &settings.workspace_hooks {
            if timeout(settings.hook_timeout, hooks.replaced(id, None)).await.is_err() {
                tracing::error!(
                    sandbox = id,
                    "a service that uses a paused workspace did not answer in time"
                );
            }
        }
    }

    /// Returns those of the `ids`, which are workspaces without a sandbox, that a service keeps.
    pub(crate) async fn retained_workspaces(
        &self,
        ids: &[String],
    ) -> std::result::Result<HashSet<String>, HookError> {
        let settings = &self.0.settings;
        let mut retained = HashSet::new();
        if ids.is_empty() {
            return Ok(retained);
        }
        for hooks in &settings.workspace_hooks {
            retained.extend(within(settings.hook_timeout, hooks.retained(ids)).await?);
        }
        Ok(retained)
    }

    /// Opens the root directory of a workspace.
    async fn open_root(&self, id: &str) -> Result<WorkspaceRoot> {
        let id = id.to_owned();
        self.on_workspaces(move |workspaces| {
            let (directory, record) = (workspaces.open_root(&id)?, workspaces.record(&id)?);
            let Generation { number, pin, .. } = record.current;
            // A reset in place keeps the number, but has a new pin.
            let pin = pin.map(|pin| pin.to_string()).unwrap_or_default();
            let revision = format!("{}.{number}.{pin}", record.creation_id);
            Ok(WorkspaceRoot { directory, revision })
        })
        .await
    }
}
