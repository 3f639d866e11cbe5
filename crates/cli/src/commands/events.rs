//! `workspace events`

use workspace_api::event_log::{Event, EventGap, EventPage};

use super::table;
use crate::args::Events;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, EventFollower, LogMessage, find_sandbox, percent_encode, with_client};
use crate::text;

/// Number of events per request.
const PAGE_SIZE: u32 = 1_000;

pub(crate) fn run(context: &mut Context, args: &Events) -> Result<Outcome> {
    with_client(&args.server, async |client| {
        let filters = filters(client, args).await?;
        if args.follow {
            follow(context, client, args, &filters).await
        } else {
            list(context, client, args, &filters).await
        }
    })
}

/// Returns the filters as a part of a query.
async fn filters(client: &Client, args: &Events) -> Result<String> {
    let mut filters = String::new();
    if let Some(sandbox) = &args.sandbox {
        filters.push_str(&format!("&sandbox={}", find_sandbox(client, sandbox).await?));
    }
    if let Some(kind) = &args.kind {
        filters.push_str(&format!("&type={}", percent_encode(kind.as_bytes())));
    }
    if let Some(project) = &args.project {
        filters.push_str(&format!("&project={}", percent_encode(project.as_bytes())));
    }
    Ok(filters)
}

/// Prints all stored events.
async fn list(context: &mut Context, client: &Client, args: &Events, filters: &str) -> Result<Outcome> {
    let mut after = args.after;
    loop {
        let position = after.map(|after| format!("&after={after}")).unwrap_or_default();
        let path = format!("/api/v1/events?limit={PAGE_SIZE}{position}{filters}");
        let page: EventPage = client.get(&path).await?;
        page.gap.iter().for_each(warn_of_gap);
        page.items.iter().try_for_each(|event| print(context, event))?;
        if !page.more {
            return Ok(Outcome::Done);
        }
        after = Some(page.next);
    }
}

/// Prints all stored events, and new ones as they occur.
async fn follow(context: &mut Context, client: &Client, args: &Events, filters: &str) -> Result<Outcome> {
    let position = args.after.map(|after| format!("&after={after}")).unwrap_or_default();
    // `limit` has no effect on a stream; it begins the query.
    let mut events = EventFollower::new(client, &format!("?limit={PAGE_SIZE}{position}{filters}"));
    loop {
        match events.next().await? {
            LogMessage::Gap(gap) => warn_of_gap(&gap),
            LogMessage::Event(event) => print(context, &event)?,
        }
        context.output.flush()?;
    }
}

fn warn_of_gap(gap: &EventGap) {
    text::print_stderr(&format!(
        "warning: events between {} and {} may be missing; the server had deleted them",
        gap.from, gap.to
    ));
}

fn print(context: &mut Context, event: &Event) -> Result<()> {
    if context.output.is_json() {
        return context.output.record(event);
    }
    context.output.line(text::escape_controls(&line(event)))
}

/// Formats an event on one line.
fn line(event: &Event) -> String {
    let data = &event.data;
    let details = [
        ("owner", event.owner.clone()),
        ("name", data.name.clone()),
        ("state", data.state.clone()),
        ("snapshot", data.snapshot_id.clone()),
        ("reason", data.reason.as_deref().map(|reason| text::first_line(reason).into_owned())),
    ];
    let details: Vec<String> =
        details.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect();
    let sandbox = event.sandbox_id.as_deref().unwrap_or("-");
    let (time, details) = (table::time(&event.time), details.join(" "));
    format!("{:>6}  {time}  {:<18}  {sandbox}  {details}", event.id, event.kind)
}

#[cfg(test)]
mod tests {
    use workspace_api::event_log::EventData;

    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let data = EventData {
            state: Some("error".to_owned()),
            reason: Some("first\nsecond".to_owned()),
            ..EventData::default()
        };
        let event = Event {
            id: 7,
            kind: "sandbox.error".to_owned(),
            time: "not a time".to_owned(),
            owner: Some("alice".to_owned()),
            sandbox_id: None,
            data,
        };
        let expected = "     7  not a time  sandbox.error       -  owner=alice state=error reason=first";
        assert_eq!(line(&event), expected);
    }
}
