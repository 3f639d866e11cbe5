//! `workspace episodes`

use std::collections::HashMap;

use workspace_api::episodes::{Episode, EpisodeSubtree, SearchList};

use super::table;
use crate::args::{EpisodesCommand, EpisodesSubtree};
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, percent_encode, with_client};
use crate::text;

/// Number of searches per request.
const PAGE_SIZE: u32 = 1_000;

pub(crate) fn run(context: &mut Context, command: &EpisodesCommand) -> Result<Outcome> {
    match command {
        EpisodesCommand::Ls { oldest, server } => {
            with_client(server, async |client| list(context, client, *oldest).await)
        }
        EpisodesCommand::Subtree(args) => {
            with_client(&args.server, async |client| subtree(context, client, args).await)
        }
    }
}

async fn list(context: &mut Context, client: &Client, is_oldest_first: bool) -> Result<Outcome> {
    let sort = if is_oldest_first { "oldest" } else { "newest" };
    let (mut cursor, mut rows) = (String::new(), Vec::new());
    loop {
        let page: SearchList =
            client.get(&format!("/api/v1/episodes?limit={PAGE_SIZE}&sort={sort}{cursor}")).await?;
        for search in &page.items {
            if context.output.is_json() {
                context.output.record(search)?;
            } else {
                let first = &search.first;
                let action = text::first_line(&first.action).into_owned();
                rows.push(vec![first.id.clone(), table::time(&first.time), search.steps.to_string(), action]);
            }
        }
        let Some(next) = page.next else { break };
        cursor = format!("&cursor={}", percent_encode(next.as_bytes()));
    }
    table::print(&mut context.output, &["ID", "MADE", "STEPS", "ACTION"], &rows)?;
    Ok(Outcome::Done)
}

async fn subtree(context: &mut Context, client: &Client, args: &EpisodesSubtree) -> Result<Outcome> {
    let depth = args.depth.map(|depth| format!("&depth={depth}")).unwrap_or_default();
    let id = percent_encode(args.episode.as_bytes());
    let path = format!("/api/v1/episodes/{id}/subtree?limit={}{depth}", args.limit);
    let found: EpisodeSubtree = client.get(&path).await?;
    for (depth, step) in in_depth_order(&found.items) {
        if context.output.is_json() {
            context.output.record(step)?;
        } else {
            context.output.line(text::escape_controls(&line(step, depth)))?;
        }
    }
    if found.truncated {
        text::print_stderr("warning: there are more steps; `--depth` and `--limit` say how many are printed");
    }
    Ok(Outcome::with_warnings_if(found.truncated))
}

/// Returns steps with their depths, each before its children. A step whose parent is not among `steps` has depth zero.
fn in_depth_order(steps: &[Episode]) -> Vec<(usize, &Episode)> {
    let known: HashMap<&str, usize> =
        steps.iter().enumerate().map(|(index, it)| (it.id.as_str(), index)).collect();
    let mut children = HashMap::<usize, Vec<usize>>::new();
    let mut stack = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        match step.parent.as_deref().and_then(|parent| known.get(parent)) {
            Some(parent) => children.entry(*parent).or_default().push(index),
            None => stack.push((0, index)),
        }
    }
    stack.reverse();
    let mut ordered = Vec::with_capacity(steps.len());
    while let Some((depth, index)) = stack.pop() {
        ordered.push((depth, &steps[index]));
        let below = children.remove(&index).unwrap_or_default();
        stack.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
    }
    ordered
}

fn line(step: &Episode, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let (visits, action) = (text::pluralize(step.visits, "visit", "visits"), text::first_line(&step.action));
    format!("{indent}{}  reward {}  {visits}  snapshot {}  {action}", step.id, step.reward, step.snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_printed_below_their_parents() {
        let step = |id: &str, parent: Option<&str>| Episode {
            id: id.to_owned(),
            snapshot: String::new(),
            parent: parent.map(str::to_owned),
            action: String::new(),
            reward: 0.0,
            visits: 1,
            insight: None,
            data: serde_json::Value::Null,
            time: String::new(),
        };
        let steps =
            [step("a", Some("elsewhere")), step("b", Some("a")), step("c", Some("a")), step("d", Some("b"))];
        let ordered = in_depth_order(&steps);
        let ordered: Vec<String> =
            ordered.iter().map(|(depth, step)| format!("{depth}{}", step.id)).collect();
        assert_eq!(ordered, ["0a", "1b", "2d", "1c"]);
    }
}
