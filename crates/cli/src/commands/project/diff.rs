//! `workspace project diff`

use workspace_api::diff::Diff;

use super::super::exec::reject_json;
use super::super::sandbox::changes::{CHANGES_MAX, outcome, print_diff, print_patch};
use super::routes::project_path;
use crate::args::ProjectDiff;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{percent_encode, with_client};

pub(super) fn run(context: &mut Context, args: &ProjectDiff) -> Result<Outcome> {
    let path = route(args);
    if args.patch {
        reject_json(context, "a patch")?;
        let truncated =
            with_client(&args.server, async |client| print_patch(&mut context.output, client, &path).await)?;
        return Ok(outcome(truncated));
    }
    let diff: Diff = with_client(&args.server, async |client| client.get(&path).await)?;
    if context.output.is_json() {
        context.output.record(&diff)?;
    } else {
        print_diff(context, &diff, args.insight)?;
    }
    Ok(outcome(diff.truncated))
}

fn route(args: &ProjectDiff) -> String {
    let mut path = format!("{}/diff?limit={CHANGES_MAX}", project_path(&args.project));
    for (name, revision) in [("from", &args.from), ("to", &args.to)] {
        if let Some(revision) = revision {
            path.push_str(&format!("&{name}={}", percent_encode(revision.as_bytes())));
        }
    }
    for (name, is_set) in [("insight", args.insight), ("patch", args.patch)] {
        if is_set {
            path.push_str(&format!("&{name}=true"));
        }
    }
    path
}
