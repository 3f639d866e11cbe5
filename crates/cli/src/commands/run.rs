//! `workspace run`

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::args::{Making, Run};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::process::{self, Asked, Order, Over};
use crate::remote::{Client, Place, block_on, program, terminal};
use crate::signals::Signals;
use crate::text;

/// A sandbox outlives its command by this, so that the command's own end comes first.
const AFTERWARDS: Duration = Duration::from_secs(60);
/// Servers give every sandbox that much when nobody says more.
const USUAL: Duration = Duration::from_secs(3_600);

pub(crate) fn run(context: &mut Context, args: &Run) -> Result<Outcome> {
    super::exec::refuse_json(context, "the output of a program")?;
    let client = Client::new(Place::new(&args.server).map_err(CommandError::not_run)?);
    block_on(run_in_sandbox(context, &client, args)).map_err(CommandError::not_run)
}

async fn run_in_sandbox(context: &mut Context, client: &Client, args: &Run) -> Result<Outcome> {
    let mut signals = Signals::new()?;
    let life = args.timeout.map(|timeout| timeout + AFTERWARDS).filter(|life| *life > USUAL);
    let making = create(client, &args.making, life);
    tokio::pin!(making);
    let (sandbox, asked) = tokio::select! {
        made = &mut making => (made?, None),
        // Whether it was made is only known when the server answers.
        signal = signals.next() => (making.await?, Some(signal)),
    };
    let id = sandbox["id"].as_str().unwrap_or_default();
    let over = match asked {
        Some(signal) => Err(CommandError::asked(signal)),
        None => inside(context, client, id, args, &mut signals).await,
    };
    if args.keep {
        text::print_stderr(&format!("note: the sandbox {id} is kept; `workspace sandbox rm {id}` ends it"));
        return over;
    }
    let removed = client.call(Method::DELETE, &format!("/api/v1/sandboxes/{id}"), None).await;
    let over = over?;
    removed.map_err(|error| {
        error.hint(format!("`workspace sandbox rm {id}` ends the sandbox, which is still there"))
    })?;
    Ok(over)
}

async fn inside(
    context: &mut Context,
    client: &Client,
    id: &str,
    args: &Run,
    signals: &mut Signals,
) -> Result<Outcome> {
    let line = program(&args.words);
    if args.terminal {
        let wanted = terminal::Wanted { line: Some(line), ..terminal::Wanted::default() };
        return super::exec::in_terminal(client, id, &wanted).await;
    }
    let order = Order {
        line,
        timeout: super::exec::milliseconds(args.timeout),
        stdin: args.interactive,
        ..Order::default()
    };
    let command = process::start(client, id, &order).await?;
    let over =
        process::attend(client, (id, &command), args.interactive, (signals, Asked::End), &mut context.output)
            .await?;
    match over {
        Over::Ended(end) => super::exec::outcome(&end),
        Over::Asked(signal) => Err(CommandError::asked(signal)),
    }
}

/// Makes a sandbox.
pub(super) async fn create(client: &Client, making: &Making, life: Option<Duration>) -> Result<Value> {
    create_with(client, making, life, json!({})).await
}

/// The same, with more fields.
pub(super) async fn create_with(
    client: &Client,
    making: &Making,
    life: Option<Duration>,
    more: Value,
) -> Result<Value> {
    let mut resources = json!({});
    for (field, value) in [("cpu", &making.cpu), ("memory", &making.memory), ("disk", &making.disk)] {
        if let Some(value) = value {
            resources[field] = json!(value);
        }
    }
    let mut body = json!({
        "template": making.template,
        "envs": super::exec::pairs(&making.envs),
        "labels": super::exec::pairs(&making.labels),
        "network": making.network.as_str(),
        "resources": resources,
    });
    if let Some(name) = &making.name {
        body["name"] = json!(name);
        if !making.allow_duplicate_name {
            body["uniqueName"] = json!(true);
        }
    }
    if !making.allowed.is_empty() {
        body["egressAllow"] = json!(making.allowed);
    }
    if let Some(life) = life {
        body["timeoutSeconds"] = json!(life.as_secs());
    }
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    let sandbox = client.call(Method::POST, "/api/v1/sandboxes", Some(&body)).await?;
    for missing in sandbox["notApplied"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        text::print_stderr(&format!("warning: {missing}"));
    }
    Ok(sandbox)
}
