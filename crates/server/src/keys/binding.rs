//! Keys of agents and reviewers, which are bound to projects and agents.
//!
//! Such a key has an owner of its own. So its sandboxes, snapshots, episodes, references and events are apart from those
//! of the owner of the projects and of other agents, by the same checks that keep owners apart; and only the routes of
//! projects must look at what an agent may see.

use workspace_api::error_codes;
use workspace_api::keys::{CreateKey, KeyRole};
use workspace_catalog::{KeyBinding, agents_prefix, owner_behind_agent};

use super::check_name;
use crate::app::App;
use crate::error::ApiError;

/// Maximum number of projects, and of agents, of a key.
const BINDING_MAX: usize = 16;
/// Number of hexadecimal digits that tell bindings with the same first agent apart.
const DIGITS: usize = 16;

/// Returns the binding that a request asks for; `None` for a role without one.
pub(super) async fn of_request(app: &App, body: &CreateKey) -> Result<Option<KeyBinding>, ApiError> {
    if owner_behind_agent(&body.owner).is_some() {
        return Err(invalid("owner", "`/agents/` is reserved for the owners of what agents have"));
    }
    match body.role {
        KeyRole::Agent | KeyRole::Reviewer => bind(app, body).await.map(Some),
        KeyRole::Admin | KeyRole::User | KeyRole::ReadOnly => {
            if !body.projects.is_empty() || !body.agents.is_empty() {
                let message =
                    "only keys with the role `agent` or `reviewer` are bound to projects and agents";
                return Err(invalid("role", message));
            }
            Ok(None)
        }
    }
}

async fn bind(app: &App, body: &CreateKey) -> Result<KeyBinding, ApiError> {
    if !(1..=BINDING_MAX).contains(&body.projects.len()) {
        return Err(invalid("projects", &format!("name 1 to {BINDING_MAX} projects of the owner")));
    }
    let mut agents = if body.agents.is_empty() { vec![body.name.clone()] } else { body.agents.clone() };
    if agents.len() > BINDING_MAX {
        return Err(invalid("agents", &format!("name at most {BINDING_MAX} agents")));
    }
    for agent in &agents {
        check_name("agents", agent)?;
    }
    let mut projects = Vec::with_capacity(body.projects.len());
    for project in &body.projects {
        projects.push(app.projects.find(&body.owner, project).await?.id);
    }
    for names in [&mut projects, &mut agents] {
        names.sort();
        names.dedup();
    }
    Ok(KeyBinding { projects, agents })
}

/// Returns the owner of keys with a binding: one of their own, whose name is below that of `owner`, the owner of
/// the projects. Keys with the same binding have the same owner, so that one can replace another.
pub(super) fn owner_of_agents(owner: &str, binding: &KeyBinding) -> String {
    let mut hasher = blake3::Hasher::new();
    for name in binding.projects.iter().chain(&binding.agents) {
        hasher.update(name.as_bytes()).update(b"\0");
    }
    let hash = hasher.finalize().to_hex();
    let agent = binding.agents.first().map(String::as_str).unwrap_or_default();
    format!("{}{agent}-{}", agents_prefix(owner), &hash[..DIGITS])
}

fn invalid(field: &'static str, message: &str) -> ApiError {
    ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binding_has_an_owner_of_its_own() {
        let binding = |projects: &[&str], agents: &[&str]| KeyBinding {
            projects: projects.iter().map(ToString::to_string).collect(),
            agents: agents.iter().map(ToString::to_string).collect(),
        };
        let one = owner_of_agents("acme", &binding(&["prj-1"], &["ada"]));
        assert_eq!(one, owner_of_agents("acme", &binding(&["prj-1"], &["ada"])));
        assert!(one.starts_with("acme/agents/ada-") && owner_behind_agent(&one) == Some("acme"));
        for other in
            [binding(&["prj-2"], &["ada"]), binding(&["prj-1"], &["ada", "bob"]), binding(&[], &["prj-1"])]
        {
            assert_ne!(one, owner_of_agents("acme", &other));
        }
    }
}
