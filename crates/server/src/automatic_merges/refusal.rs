//! Events about automatic merges that are refused because a quota of snapshots is used up.

use serde_json::json;
use workspace_catalog::{Catalog, EventKind, NewEvent};
use workspace_sandbox::{SandboxError, Scope, Service};

use crate::error::ApiError;

/// Records events for the owners of a sandbox and of its project: the changes in the sandbox could not be completed. As
/// with other failures, only the owner of the project gets the reason.
pub(super) async fn announce(
    catalog: &Catalog,
    sandboxes: &Service,
    id: &str,
    refusal: &SandboxError,
) -> Result<(), ApiError> {
    let view = sandboxes.get(&Scope::All, id).await?;
    let Some(base) = view.config.lineage.project_base else { return Ok(()) };
    let Some(project) = catalog.projects().get(&base.project).await? else { return Ok(()) };
    let owner = view.sandbox.owner;
    if owner != project.owner {
        let data = json!({ "project": project.name, "projectId": project.id, "agent": base.agent });
        insert(catalog, &owner, id, data).await?;
    }
    let data = json!({ "project": project.name, "projectId": project.id, "agent": base.agent, "reason": refusal.to_string() });
    insert(catalog, &project.owner, id, data).await
}

async fn insert(
    catalog: &Catalog,
    owner: &str,
    sandbox: &str,
    data: serde_json::Value,
) -> Result<(), ApiError> {
    let event = NewEvent { kind: EventKind::CompletionFailed, data };
    catalog.events().insert(Some(owner), Some(sandbox), &event).await?;
    Ok(())
}
