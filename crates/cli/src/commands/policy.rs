//! `workspace policy`

use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use workspace_api::projects::{PolicyExplanation, ProjectPolicy};

use super::project::project_path;
use crate::args::{PolicyCommand, PolicySet};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::remote::{percent_encode, with_client};
use crate::text;

pub(crate) fn run(context: &mut Context, command: &PolicyCommand) -> Result<Outcome> {
    match command {
        PolicyCommand::Show(args) => {
            let path = format!("{}/policy", project_path(&args.project));
            let found: ProjectPolicy = with_client(&args.server, async |client| client.get(&path).await)?;
            if context.output.is_json() {
                context.output.record(&found)?;
            } else {
                let document = serde_json::to_string_pretty(&found.policy)
                    .map_err(|error| CommandError::failed(format!("cannot print the policy: {error}")))?;
                context.output.line(document)?;
            }
        }
        PolicyCommand::Set(args) => set(context, args)?,
        PolicyCommand::Explain(args) => {
            let path = format!(
                "{}/policy/explain?agent={}&path={}",
                project_path(&args.project),
                percent_encode(args.agent.as_bytes()),
                percent_encode(args.path.as_bytes())
            );
            let found: PolicyExplanation = with_client(&args.server, async |client| client.get(&path).await)?;
            if context.output.is_json() {
                context.output.record(&found)?;
            } else {
                let line = format!("{}  {}", found.access, found.why);
                context.output.line(text::escape_controls(&line))?;
            }
        }
    }
    Ok(Outcome::Done)
}

fn set(context: &mut Context, args: &PolicySet) -> Result<()> {
    let policy = read(&args.file)?;
    let path = format!("{}/policy", project_path(&args.project));
    let set: ProjectPolicy = with_client(&args.server, async |client| client.put(&path, &policy).await)?;
    if context.output.is_json() {
        return context.output.record(&set);
    }
    context.output.line(format!("version {}", set.version))
}

fn read(file: &Path) -> Result<Value> {
    let shown = file.display();
    let mut content = String::new();
    let result = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut content).map(drop)
    } else {
        fs::read_to_string(file).map(|read| content = read)
    };
    result.map_err(|error| {
        CommandError::failed(format!("cannot read `{shown}`: {error}")).hint(io_hint(&error))
    })?;
    serde_json::from_str(&content)
        .map_err(|error| CommandError::failed(format!("`{shown}` is not JSON: {error}")))
}
