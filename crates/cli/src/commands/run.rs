//! `workspace run`

use std::time::Duration;

use workspace_api::sandboxes::{CreateSandbox, Resources, Sandbox};

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
    let request = create_request(&args.making, life);
    let making = create(client, &request);
    tokio::pin!(making);
    let (sandbox, asked) = tokio::select! {
        made = &mut making => (made?, None),
        // Whether it was made is only known when the server answers.
        signal = signals.next() => (making.await?, Some(signal)),
    };
    let id = sandbox.id.as_str();
    let over = match asked {
        Some(signal) => Err(CommandError::asked(signal)),
        None => inside(context, client, id, args, &mut signals).await,
    };
    if args.keep {
        text::print_stderr(&format!("note: the sandbox {id} is kept; `workspace sandbox rm {id}` ends it"));
        return over;
    }
    let removed = client.delete::<()>(&format!("/api/v1/sandboxes/{id}")).await;
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

/// Returns the request for a sandbox with these options.
pub(super) fn create_request(making: &Making, life: Option<Duration>) -> CreateSandbox {
    CreateSandbox {
        template: making.template.clone(),
        name: making.name.clone(),
        unique_name: making.name.is_some() && !making.allow_duplicate_name,
        envs: super::exec::pairs(&making.envs),
        timeout_seconds: life.map(|life| life.as_secs()),
        resources: Resources {
            cpu: making.cpu.clone(),
            memory: making.memory.clone(),
            disk: making.disk.clone(),
            processes: None,
        },
        network: making.network.into(),
        egress_allow: (!making.allowed.is_empty()).then(|| making.allowed.clone()),
        labels: super::exec::pairs(&making.labels),
        ..CreateSandbox::default()
    }
}

/// Creates a sandbox and warns of limits that could not be applied.
pub(super) async fn create(client: &Client, request: &CreateSandbox) -> Result<Sandbox> {
    let sandbox: Sandbox = client.post("/api/v1/sandboxes", request).await?;
    for missing in &sandbox.not_applied {
        text::print_stderr(&format!("warning: {missing}"));
    }
    Ok(sandbox)
}
