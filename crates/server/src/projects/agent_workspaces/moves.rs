//! Moves of workspaces of agents to another head, in place: by a sync without changes, by a rebase with the changes of
//! the agent merged into the files of the head.
//!
//! A move is recorded before a file is written, so that the next start of a killed server can finish it.

use workspace_catalog::{AgentWorkspace, WorkspaceHead};
use workspace_context::projects::WorkspaceBase;
use workspace_sandbox::{MoveStart, MoveTarget, SandboxError};
use workspace_state::SnapshotId;

use crate::app::App;
use crate::error::ApiError;

pub(super) fn head_of(base: &WorkspaceBase) -> WorkspaceHead {
    WorkspaceHead {
        snapshot: base.snapshot.to_string(),
        sequence: base.sequence,
        policy_version: base.policy_version,
    }
}

/// Moves a workspace from the files of the snapshot `content` to a head. `merged` is the snapshot of the files that it
/// gets; `None` for those of the head. It is removed afterwards, unless the move is to be continued after an error. Returns
/// false if the workspace keeps its base, because it has other files by now.
pub(super) async fn move_to(
    app: &App,
    row: &AgentWorkspace,
    content: SnapshotId,
    head: &WorkspaceBase,
    merged: Option<SnapshotId>,
) -> Result<bool, ApiError> {
    let id = &row.workspace.id;
    let files = merged.map(|files| files.to_string());
    let begun = app.catalog.agent_workspaces().begin_move(id, &head_of(head), files.as_deref()).await?;
    if begun.is_none() {
        remove_merged(app, id, merged).await;
        return Ok(false);
    }
    let target = MoveTarget { files: merged.unwrap_or(head.snapshot), base: head.snapshot };
    let moved = app.sandboxes.move_agent_workspace(id, MoveStart::ExpectContent(content), target).await;
    end_move(app, id, merged, moved).await
}

/// Finishes a move that was begun and not finished. Returns false if changes of the agent are in the way: then the
/// workspace keeps its base.
pub(super) async fn continue_move(app: &App, row: &AgentWorkspace) -> Result<bool, ApiError> {
    let Some(next) = &row.next else { return Err(ApiError::internal("a move has no target")) };
    let parse = |id: &str| id.parse().map_err(|_| ApiError::internal("a move has no valid target"));
    let (base, merged) = (parse(&next.snapshot)?, row.next_files.as_deref().map(parse).transpose()?);
    let (id, target) = (&row.workspace.id, MoveTarget { files: merged.unwrap_or(base), base });
    let moved = app.sandboxes.move_agent_workspace(id, MoveStart::Continue, target).await;
    end_move(app, id, merged, moved).await
}

/// Records the end of a move. After an error it stays in progress, because the files may be those of both heads.
async fn end_move(
    app: &App,
    id: &str,
    merged: Option<SnapshotId>,
    moved: Result<bool, SandboxError>,
) -> Result<bool, ApiError> {
    let (moved, workspaces) = (moved?, app.catalog.agent_workspaces());
    match moved {
        true => workspaces.finish_move(id).await?,
        false => workspaces.cancel_move(id).await?,
    };
    remove_merged(app, id, merged).await;
    Ok(moved)
}

async fn remove_merged(app: &App, id: &str, merged: Option<SnapshotId>) {
    if let Some(merged) = merged {
        app.sandboxes.remove_agent_files(id, merged).await;
    }
}
