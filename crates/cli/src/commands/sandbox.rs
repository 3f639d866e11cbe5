//! `workspace sandbox`

mod changes;
mod snapshots;
mod upload;

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use super::table;
use crate::args::{SandboxCommand, Server};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, Place, block_on, find, list};
use crate::text::shown_bytes;

pub(crate) fn run(context: &mut Context, command: SandboxCommand) -> Result<Outcome> {
    match command {
        SandboxCommand::Ls(args) => {
            let narrowed = narrowed(args.state.as_deref(), &args.labels)?;
            let found = with(&args.server, async |client| list(client, &narrowed).await)?;
            super::ps::sandboxes(context, &found, false)
        }
        SandboxCommand::Create(args) => {
            let made = upload::create(context, &args)?;
            show(context, &made, |made| vec![table::text(made, "id")])
        }
        SandboxCommand::Get(args) => {
            let found = with(&args.server, async |client| one(client, &args.sandbox, "").await)?;
            get(context, &found)
        }
        SandboxCommand::Rm(args) => with(&args.server, async |client| {
            remove(context, client, &args.sandboxes, args.keep_workspace).await
        }),
        SandboxCommand::Extend { sandbox, by, server } => {
            let extended = with(&server, async |client| extend(client, &sandbox, by).await)?;
            show(context, &extended, |sandbox| vec![format!("expires {}", table::time(sandbox, "expiresAt"))])
        }
        SandboxCommand::Label { sandbox, labels, server } => {
            let changes = labels.iter().map(|label| change(label)).collect::<Result<Vec<_>>>()?;
            let labelled = with(&server, async |client| relabel(client, &sandbox, &changes).await)?;
            show(context, &labelled, lines_of_labels)
        }
        SandboxCommand::Stats(args) => {
            let stats = with(&args.server, async |client| one(client, &args.sandbox, "/stats").await)?;
            self::stats(context, &stats)
        }
        SandboxCommand::Commit(args) => snapshots::commit(context, &args),
        SandboxCommand::Restore(args) => snapshots::restore(context, &args),
        SandboxCommand::Fork(args) => snapshots::fork(context, &args),
        SandboxCommand::Changes(args) => changes::list(context, &args),
        SandboxCommand::Diff(args) => changes::patch(context, &args),
    }
}

fn with<T>(server: &Server, work: impl AsyncFnOnce(&Client) -> Result<T>) -> Result<T> {
    let client = Client::new(Place::new(server)?);
    block_on(work(&client))
}

fn show(context: &mut Context, record: &Value, lines: impl Fn(&Value) -> Vec<String>) -> Result<Outcome> {
    if context.output.json() {
        context.output.record(record)?;
    } else {
        lines(record).iter().try_for_each(|line| context.output.line(crate::text::shown_text(line)))?;
    }
    Ok(Outcome::Done)
}

/// The query for some of the sandboxes.
fn narrowed(state: Option<&str>, labels: &[(String, String)]) -> Result<String> {
    let mut query = state.map(|state| format!("&state={}", escaped(state))).unwrap_or_default();
    if let Some((name, _)) = labels.iter().find(|(name, value)| format!("{name}{value}").contains(',')) {
        return Err(CommandError::usage(format!(
            "the label `{name}` has a comma, by which none can be looked for"
        ))
        .hint("`workspace --json sandbox ls` has all labels"));
    }
    if !labels.is_empty() {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| escaped(&format!("{name}={value}"))).collect();
        query.push_str(&format!("&labels={}", labels.join(",")));
    }
    Ok(query)
}

/// As it stands in a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

async fn one(client: &Client, sandbox: &str, below: &str) -> Result<Value> {
    let id = find(client, sandbox).await?;
    client.call(Method::GET, &format!("/api/v1/sandboxes/{id}{below}"), None).await
}

fn get(context: &mut Context, sandbox: &Value) -> Result<Outcome> {
    if context.output.json() {
        context.output.record(sandbox)?;
        return Ok(Outcome::Done);
    }
    let bytes = |field: &str| sandbox["resources"][field].as_u64().map(shown_bytes).unwrap_or_default();
    let mut fields: Vec<(&str, String)> =
        ["id", "name", "owner", "state", "template", "runtime", "snapshot", "provider", "network"]
            .iter()
            .map(|field| (*field, table::text(sandbox, field)))
            .collect();
    let allowed = sandbox["egressAllow"].as_array().into_iter().flatten().filter_map(Value::as_str);
    fields.extend(allowed.map(|allowed| ("allowed", allowed.to_owned())));
    fields.push(("reason", table::text(sandbox, "stateReason")));
    fields.push(("made", table::time(sandbox, "createdAt")));
    fields.push(("expires", table::time(sandbox, "expiresAt")));
    fields.push(("cpu", table::text(&sandbox["resources"], "cpu")));
    fields.push(("memory", bytes("memory")));
    fields.push(("disk", bytes("disk")));
    fields.push(("processes", table::text(&sandbox["resources"], "processes")));
    fields.push(("agent", if sandbox["agentConnected"] == true { "connected" } else { "away" }.to_owned()));
    fields.extend(lines_of_labels(sandbox).into_iter().map(|label| ("label", label)));
    let missing = sandbox["notApplied"].as_array().into_iter().flatten().filter_map(Value::as_str);
    fields.extend(missing.map(|missing| ("missing", missing.to_owned())));
    fields.retain(|(_, value)| !value.is_empty());
    table::fields(&mut context.output, &fields)?;
    Ok(Outcome::Done)
}

fn lines_of_labels(sandbox: &Value) -> Vec<String> {
    let labels = sandbox["labels"].as_object().into_iter().flatten();
    labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect()
}

async fn remove(context: &mut Context, client: &Client, sandboxes: &[String], keep: bool) -> Result<Outcome> {
    for sandbox in sandboxes {
        let id = find(client, sandbox).await?;
        let path = format!("/api/v1/sandboxes/{id}{}", if keep { "?keepWorkspace=true" } else { "" });
        let kept = client.call(Method::DELETE, &path, None).await?;
        if context.output.json() {
            let record = if kept.is_null() { json!({ "id": id }) } else { kept };
            context.output.record(&record)?;
        } else if keep {
            let field = if kept["snapshot"].is_null() { "workspacePath" } else { "snapshot" };
            context.output.line(table::text(&kept, field))?;
        }
    }
    Ok(Outcome::Done)
}

async fn extend(client: &Client, sandbox: &str, by: Duration) -> Result<Value> {
    let id = find(client, sandbox).await?;
    let body = json!({ "seconds": by.as_secs() });
    client.call(Method::POST, &format!("/api/v1/sandboxes/{id}/extend"), Some(&body)).await
}

/// A label to set, or one without a value to remove.
fn change(text: &str) -> Result<(String, Option<String>)> {
    match (text.split_once('='), text.strip_suffix('-')) {
        (Some((name, value)), _) if !name.is_empty() => Ok((name.to_owned(), Some(value.to_owned()))),
        (None, Some(name)) if !name.is_empty() => Ok((name.to_owned(), None)),
        _ => Err(CommandError::usage(format!("`{text}` is no change of a label"))
            .hint("K=V sets a label, K- removes it")),
    }
}

async fn relabel(client: &Client, sandbox: &str, changes: &[(String, Option<String>)]) -> Result<Value> {
    let id = find(client, sandbox).await?;
    let path = format!("/api/v1/sandboxes/{id}");
    let found = client.call(Method::GET, &path, None).await?;
    if changes.is_empty() {
        return Ok(found);
    }
    let mut labels = found["labels"].as_object().cloned().unwrap_or_default();
    for (name, value) in changes {
        match value {
            Some(value) => drop(labels.insert(name.clone(), json!(value))),
            None => drop(labels.remove(name)),
        }
    }
    client.call(Method::PATCH, &path, Some(&json!({ "labels": labels }))).await
}

fn stats(context: &mut Context, stats: &Value) -> Result<Outcome> {
    if context.output.json() {
        context.output.record(stats)?;
        return Ok(Outcome::Done);
    }
    let bytes = |part: &str, field: &str| stats[part][field].as_u64().map(shown_bytes).unwrap_or_default();
    let fields = [
        (
            "cpu",
            format!(
                "{:.1} % of {}",
                stats["cpu"]["usage"].as_f64().unwrap_or_default(),
                table::text(&stats["cpu"], "limit")
            ),
        ),
        ("memory", format!("{} of {}", bytes("memory", "usage"), bytes("memory", "limit"))),
        ("disk", format!("{} of {}", bytes("disk", "usage"), bytes("disk", "limit"))),
        ("processes", table::text(stats, "processes")),
    ];
    table::fields(&mut context.output, &fields)?;
    Ok(Outcome::Done)
}
