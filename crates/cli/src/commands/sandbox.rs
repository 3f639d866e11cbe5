//! `workspace sandbox`

pub(super) mod changes;
mod create;
mod metrics;
mod pauses;
mod show;
mod snapshots;
mod url;

use std::time::Duration;

use serde::de::DeserializeOwned;
use workspace_api::pauses::OnTimeout;
use workspace_api::sandboxes::{
    DeleteSandboxResult, ExtendSandbox, FollowChoice, OnEnd, RevertedChanges, RootChoice, Sandbox,
    SandboxStats, SetTimeout, UpdateSandbox,
};

use self::show::show;
use super::ps::ListForm;
use super::table;
use crate::args::{SandboxCommand, SandboxRm};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, find_sandbox, list_sandboxes, percent_encode, with_client};
use crate::text::{self, format_bytes};

pub(crate) fn run(context: &mut Context, command: SandboxCommand) -> Result<Outcome> {
    match command {
        SandboxCommand::Ls(args) => {
            let mut filter_query = filter_query(args.state.as_deref(), &args.labels)?;
            for (name, value) in [("project", &args.project), ("agent", &args.agent)] {
                let value = value.iter().map(|value| percent_encode(value.as_bytes()));
                value.for_each(|value| filter_query.push_str(&format!("&{name}={value}")));
            }
            let found =
                with_client(&args.server, async |client| list_sandboxes(client, &filter_query).await)?;
            super::ps::print_sandboxes(context, &found, ListForm::Table)
        }
        SandboxCommand::Create(args) => {
            let created = create::run(context, &args)?;
            show(context, &created, |sandbox| vec![sandbox.id.clone()])
        }
        SandboxCommand::Get(args) => {
            let found = with_client(&args.server, async |client| fetch(client, &args.sandbox, "").await)?;
            print_details(context, &found)
        }
        SandboxCommand::Rm(args) => {
            with_client(&args.server, async |client| remove(context, client, &args).await)
        }
        SandboxCommand::Extend { sandbox, by, server } => {
            let extended = with_client(&server, async |client| extend(client, &sandbox, by).await)?;
            show(context, &extended, |sandbox| vec![format!("expires {}", table::time(&sandbox.expires_at))])
        }
        SandboxCommand::Timeout { sandbox, after, server } => {
            let changed = with_client(&server, async |client| set_timeout(client, &sandbox, after).await)?;
            show(context, &changed, |sandbox| vec![format!("expires {}", table::time(&sandbox.expires_at))])
        }
        SandboxCommand::Pause(args) => pauses::pause(context, &args),
        SandboxCommand::Resume(args) => pauses::resume(context, &args),
        SandboxCommand::Label { sandbox, labels, server } => {
            let changes = labels.iter().map(|label| parse_label_change(label)).collect::<Result<Vec<_>>>()?;
            let labelled = with_client(&server, async |client| relabel(client, &sandbox, &changes).await)?;
            show(context, &labelled, lines_of_labels)
        }
        SandboxCommand::Stats(args) => {
            let stats =
                with_client(&args.server, async |client| fetch(client, &args.sandbox, "/stats").await)?;
            print_stats(context, &stats)
        }
        SandboxCommand::Metrics(args) => metrics::run(context, &args),
        SandboxCommand::Url(args) => url::run(context, &args),
        SandboxCommand::Commit(args) => snapshots::commit(context, &args),
        SandboxCommand::Restore(args) => snapshots::restore(context, &args),
        SandboxCommand::Rebase(args) => snapshots::rebase(context, &args),
        SandboxCommand::Fork(args) => snapshots::fork(context, &args),
        SandboxCommand::Changes(args) => changes::list(context, &args),
        SandboxCommand::Diff(args) => changes::patch(context, &args),
    }
}

/// Returns the query that filters sandboxes by state and labels. The API separates labels by commas, so a label that
/// contains one is an error.
fn filter_query(state: Option<&str>, labels: &[(String, String)]) -> Result<String> {
    let mut query =
        state.map(|state| format!("&state={}", percent_encode(state.as_bytes()))).unwrap_or_default();
    if let Some((name, _)) = labels.iter().find(|(name, value)| format!("{name}{value}").contains(',')) {
        return Err(CommandError::usage(format!(
            "cannot filter by the label `{name}`, because it contains a comma"
        ))
        .hint("`workspace --json sandbox ls` has all labels"));
    }
    if !labels.is_empty() {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| percent_encode(format!("{name}={value}").as_bytes())).collect();
        query.push_str(&format!("&labels={}", labels.join(",")));
    }
    Ok(query)
}

/// Requests a sandbox, or with a subpath such as `/stats` a resource of it.
async fn fetch<T: DeserializeOwned>(client: &Client, sandbox: &str, subpath: &str) -> Result<T> {
    let id = find_sandbox(client, sandbox).await?;
    client.get(&format!("/api/v1/sandboxes/{id}{subpath}")).await
}

/// Describes the refused changes that were reverted in the workspace.
fn reverted_text(reverted: &RevertedChanges) -> String {
    let more = reverted.count.saturating_sub(reverted.paths.len() as u64);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let paths = reverted.paths.join(", ");
    format!("refused changes of `{}`: {paths}{more}", reverted.completion)
}

fn follow_name(follow: FollowChoice) -> &'static str {
    match follow {
        FollowChoice::Head => "head",
        FollowChoice::Rebase => "head, merged with its changes when idle",
    }
}

fn print_details(context: &mut Context, sandbox: &Sandbox) -> Result<Outcome> {
    if context.output.is_json() {
        context.output.record(sandbox)?;
        return Ok(Outcome::Done);
    }
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut fields = vec![
        ("id", sandbox.id.clone()),
        ("name", optional(&sandbox.name)),
        ("owner", sandbox.owner.clone()),
        ("state", sandbox.state.clone()),
        ("template", sandbox.template.clone()),
        ("runtime", sandbox.runtime.clone()),
        ("snapshot", optional(&sandbox.snapshot)),
        ("provider", optional(&sandbox.provider)),
        ("network", sandbox.network.clone()),
        ("forked from", optional(&sandbox.forked_from)),
        ("created by", optional(&sandbox.created_by)),
        ("project", optional(&sandbox.project)),
        ("agent", optional(&sandbox.agent)),
        ("sequence", sandbox.sequence.map(|sequence| sequence.to_string()).unwrap_or_default()),
        ("base", if sandbox.base_moved { "moved: rebase to get the newest files" } else { "" }.to_owned()),
        ("reverted", sandbox.reverted.as_ref().map(reverted_text).unwrap_or_default()),
        ("follows", sandbox.follow.map(follow_name).unwrap_or_default().to_owned()),
        ("workspace", if sandbox.read_only { "read-only".to_owned() } else { String::new() }),
        ("trace", if sandbox.trace.is_off() { String::new() } else { "command".to_owned() }),
    ];
    if sandbox.root == RootChoice::Kept {
        fields.push(("root", "kept".to_owned()));
    }
    let allowed = sandbox.egress_allow.iter().flatten();
    fields.extend(allowed.map(|allowed| ("allowed", allowed.clone())));
    fields.push(("reason", optional(&sandbox.state_reason)));
    fields.push(("created", table::time(&sandbox.created_at)));
    fields.push(("expires", table::time(&sandbox.expires_at)));
    if sandbox.on_timeout == OnTimeout::Pause {
        fields.push(("on expiry", "paused".to_owned()));
    }
    if sandbox.on_end == Some(OnEnd::Discard) {
        fields.push(("at its end", "changes are discarded".to_owned()));
    }
    fields.push(("cpu", sandbox.resources.cpu.clone()));
    fields.push(("memory", format_bytes(sandbox.resources.memory)));
    fields.push(("disk", format_bytes(sandbox.resources.disk)));
    fields.push(("processes", sandbox.resources.processes.to_string()));
    let connection = if sandbox.agent_connected { "connected" } else { "disconnected" };
    fields.push(("guest agent", connection.to_owned()));
    fields.extend(lines_of_labels(sandbox).into_iter().map(|label| ("label", label)));
    fields.extend(sandbox.not_applied.iter().map(|limit| ("not applied", limit.clone())));
    fields.retain(|(_, value)| !value.is_empty());
    table::print_fields(&mut context.output, &fields)?;
    Ok(Outcome::Done)
}

fn lines_of_labels(sandbox: &Sandbox) -> Vec<String> {
    sandbox.labels.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// Removes sandboxes. Reports completions of their changes on stderr. With `keep_workspace`, prints for each the id of
/// the snapshot with its files, or the path of their directory on the server.
async fn remove(context: &mut Context, client: &Client, args: &SandboxRm) -> Result<Outcome> {
    let choices = [(args.keep_workspace, "keepWorkspace=true"), (args.discard, "complete=false")];
    let query: Vec<&str> = choices.iter().filter(|(chosen, _)| *chosen).map(|(_, choice)| *choice).collect();
    for sandbox in &args.sandboxes {
        let id = find_sandbox(client, sandbox).await?;
        let path = format!("/api/v1/sandboxes/{id}?{}", query.join("&"));
        let result: Option<DeleteSandboxResult> = client.delete(&path).await?;
        let result = result.unwrap_or(DeleteSandboxResult { id, ..DeleteSandboxResult::default() });
        if context.output.is_json() {
            context.output.record(&result)?;
            continue;
        }
        if let Some(completion) = &result.completion {
            text::print_stderr(&format!("note: completed the changes of {}: {completion}", result.id));
        }
        if args.keep_workspace {
            context.output.line(result.snapshot.or(result.workspace_path).unwrap_or_default())?;
        }
    }
    Ok(Outcome::Done)
}

async fn extend(client: &Client, sandbox: &str, by: Duration) -> Result<Sandbox> {
    let id = find_sandbox(client, sandbox).await?;
    let body = ExtendSandbox { seconds: by.as_secs() };
    client.post(&format!("/api/v1/sandboxes/{id}/extend"), &body).await
}

async fn set_timeout(client: &Client, sandbox: &str, after: Duration) -> Result<Sandbox> {
    let id = find_sandbox(client, sandbox).await?;
    let body = SetTimeout { timeout_seconds: Some(after.as_secs()), ..SetTimeout::default() };
    client.put(&format!("/api/v1/sandboxes/{id}/timeout"), &body).await
}

/// Parses a change of a label: a name and its value, or `None` to remove it.
fn parse_label_change(text: &str) -> Result<(String, Option<String>)> {
    match (text.split_once('='), text.strip_suffix('-')) {
        (Some((name, value)), _) if !name.is_empty() => Ok((name.to_owned(), Some(value.to_owned()))),
        (None, Some(name)) if !name.is_empty() => Ok((name.to_owned(), None)),
        _ => Err(CommandError::usage(format!("`{text}` is not a label change"))
            .hint("K=V sets a label, K- removes it")),
    }
}

/// Applies changes of labels; `None` removes a label. Without changes, only requests the sandbox.
async fn relabel(client: &Client, sandbox: &str, changes: &[(String, Option<String>)]) -> Result<Sandbox> {
    let id = find_sandbox(client, sandbox).await?;
    let path = format!("/api/v1/sandboxes/{id}");
    let found: Sandbox = client.get(&path).await?;
    if changes.is_empty() {
        return Ok(found);
    }
    let mut labels = found.labels;
    for (name, value) in changes {
        match value {
            Some(value) => drop(labels.insert(name.clone(), value.clone())),
            None => drop(labels.remove(name)),
        }
    }
    client.patch(&path, &UpdateSandbox { labels }).await
}

fn print_stats(context: &mut Context, stats: &SandboxStats) -> Result<Outcome> {
    if context.output.is_json() {
        context.output.record(stats)?;
        return Ok(Outcome::Done);
    }
    let usage_of_limit = |usage: u64, limit: Option<u64>| {
        format!("{} of {}", format_bytes(usage), limit.map(format_bytes).unwrap_or_default())
    };
    let fields = [
        ("cpu", format!("{:.1} % of {}", stats.cpu.usage, stats.cpu.limit)),
        ("memory", usage_of_limit(stats.memory.usage, Some(stats.memory.limit))),
        ("disk", usage_of_limit(stats.disk.usage, stats.disk.limit)),
        ("processes", stats.processes.to_string()),
    ];
    table::print_fields(&mut context.output, &fields)?;
    Ok(Outcome::Done)
}
