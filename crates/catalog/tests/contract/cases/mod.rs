//! Test cases, by table.

pub(crate) mod advances;
pub(crate) mod agent_workspaces;
pub(crate) mod changes;
pub(crate) mod commands;
pub(crate) mod completions;
pub(crate) mod episodes;
pub(crate) mod events;
pub(crate) mod file_versions;
pub(crate) mod idempotency;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod lineage;
pub(crate) mod pauses;
pub(crate) mod projects;
pub(crate) mod reviews;
pub(crate) mod sandboxes;
pub(crate) mod schema;
pub(crate) mod secrets;
pub(crate) mod snapshots;
pub(crate) mod template_steps;
pub(crate) mod text;

use serde_json::json;
use workspace_catalog::{Catalog, Change, EventKind, NewEvent, NewSandbox, Sandbox, State};

/// Returns a sandbox with default values.
fn new_sandbox(id: &str) -> NewSandbox {
    NewSandbox {
        server: "here".to_owned(),
        state: State::Starting,
        id: id.to_owned(),
        name: None,
        unique_name: false,
        owner: "alice".to_owned(),
        template: "python:3.11".to_owned(),
        runtime: "embedded".to_owned(),
        network: "none".to_owned(),
        workspace_path: format!("/workspaces/{id}"),
        token_hash: "t".repeat(64),
        labels: [].into(),
        config: json!({}),
        created_at: 1_000,
        expires_at: 2_000,
    }
}

async fn insert(catalog: &Catalog, new: NewSandbox) -> Sandbox {
    catalog.sandboxes().insert(&new, &[]).await.unwrap()
}

fn to(state: State) -> Change {
    Change { state: Some(state), ..Change::default() }
}

fn event(kind: EventKind) -> NewEvent {
    NewEvent { kind, data: json!({ "why": kind.as_str() }) }
}

fn ids(sandboxes: &[Sandbox]) -> Vec<&str> {
    sandboxes.iter().map(|it| it.id.as_str()).collect()
}
