//! `workspace project log`

use workspace_api::projects::{Operation, OperationList};

use super::super::table;
use super::graph::{Graph, Style};
use super::routes::{PAGE_SIZE, project_path};
use crate::args::ProjectLog;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{percent_encode, with_client};
use crate::text;

/// Prints the operations page by page, so that a history of any length needs the memory of one page.
pub(super) fn run(context: &mut Context, args: &ProjectLog) -> Result<Outcome> {
    let mut graph = (args.graph && !context.output.is_json()).then(|| Graph::new(Style::of_stdout()));
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut before = args.before;
    with_client(&args.server, async |client| {
        while left > 0 {
            let limit = left.min(PAGE_SIZE.into());
            let page: OperationList = client.get(&page_path(args, limit, before)).await?;
            for operation in &page.items {
                match &mut graph {
                    Some(graph) => {
                        graph.draw(operation).into_iter().try_for_each(|line| context.output.line(line))?;
                    }
                    None => print_operation(context, operation)?,
                }
            }
            left -= limit;
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        Ok(())
    })?;
    match graph {
        Some(mut graph) if before.is_none() => {
            graph.finish().into_iter().try_for_each(|line| context.output.line(line))?;
        }
        _ => {}
    }
    Ok(Outcome::Done)
}

fn page_path(args: &ProjectLog, limit: u64, before: Option<u64>) -> String {
    let mut path = format!("{}/operations?limit={limit}", project_path(&args.project));
    for (name, value) in [("author", &args.author), ("operation", &args.operation)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", percent_encode(value.as_bytes())));
        }
    }
    if let Some(before) = before {
        path.push_str(&format!("&before={before}"));
    }
    path
}

pub(super) fn print_operation(context: &mut Context, operation: &Operation) -> Result<()> {
    if context.output.is_json() {
        return context.output.record(operation);
    }
    context.output.line(text::escape_controls(&operation_line(operation)))
}

/// Formats an operation on one line.
fn operation_line(operation: &Operation) -> String {
    let Operation { sequence, time, author, operation: kind, message, merged, .. } = operation;
    let merged = match merged.len() {
        0 => String::new(),
        count => format!("  ({} merged)", text::pluralize(count as u64, "file", "files")),
    };
    format!(
        "{sequence:>5}  {}  {kind:<8}  {author}  {}{merged}",
        table::time(time),
        text::first_line(message)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_one_line() {
        let operation = Operation {
            sequence: 7,
            snapshot: Some("s".to_owned()),
            previous: None,
            operation: "merge".to_owned(),
            author: "writer".to_owned(),
            operator: "agent".to_owned(),
            completion: None,
            base: None,
            files: None,
            commit: None,
            commit_time: None,
            message: "first\nsecond".to_owned(),
            merged: Vec::new(),
            time: "not a time".to_owned(),
        };
        assert_eq!(operation_line(&operation), "    7  not a time  merge     writer  first");
    }
}
