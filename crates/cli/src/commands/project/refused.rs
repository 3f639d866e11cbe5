//! `workspace project refused`

use serde_json::json;
use workspace_api::projects::{Completion, CompletionList};

use super::super::table;
use super::routes::{PAGE_SIZE, project_path};
use crate::args::ProjectRefused;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::files::download;
use crate::remote::{percent_encode, with_client};

pub(super) fn run(context: &mut Context, args: &ProjectRefused) -> Result<Outcome> {
    let path = format!("{}/completions", project_path(&args.project));
    let of_completion = |id: &str| format!("{path}/{}", percent_encode(id.as_bytes()));
    match (&args.completion, &args.path) {
        (Some(id), Some(file)) => {
            let path = format!("{}/files/{}", of_completion(id), percent_encode(file.as_bytes()));
            let output = &mut context.output;
            with_client(&args.server, async |client| {
                download(client, &path, async |bytes| output.bytes(bytes)).await
            })?;
            Ok(Outcome::Done)
        }
        (Some(id), None) => {
            let path = of_completion(id);
            let found: Completion = with_client(&args.server, async |client| client.get(&path).await)?;
            print(context, &[found])
        }
        (None, _) => {
            let path = format!("{path}?limit={PAGE_SIZE}");
            let newest: CompletionList = with_client(&args.server, async |client| client.get(&path).await)?;
            print(context, &newest.items)
        }
    }
}

/// Prints the refused changes of completions.
fn print(context: &mut Context, completions: &[Completion]) -> Result<Outcome> {
    let refused = completions
        .iter()
        .flat_map(|completion| completion.refused.iter().map(move |change| (completion, change)));
    if context.output.is_json() {
        for (completion, change) in refused {
            context.output.record(&json!({ "completion": completion.id, "agent": completion.agent,
                "time": completion.created_at, "path": change.path, "change": change.change,
                "reason": change.reason, "content": change.content }))?;
        }
        return Ok(Outcome::Done);
    }
    let rows: Vec<Vec<String>> = refused
        .map(|(completion, change)| {
            vec![
                completion.id.clone(),
                completion.agent.clone(),
                table::time(&completion.created_at),
                change.change.clone(),
                change.path.clone(),
            ]
        })
        .collect();
    table::print(&mut context.output, &["COMPLETION", "AGENT", "COMPLETED", "CHANGE", "PATH"], &rows)?;
    Ok(Outcome::Done)
}
