//! `workspace complete`

use workspace_api::projects::{CompleteSandbox, Completion, CompletionState};

use super::routes::{WAIT_SECONDS, project_path};
use crate::args::Complete;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, find_sandbox, percent_encode, with_client};
use crate::text;

pub(crate) fn complete(context: &mut Context, args: &Complete) -> Result<Outcome> {
    let wait = if args.no_wait { 0 } else { WAIT_SECONDS };
    let body = CompleteSandbox { message: args.message.clone(), wait };
    let completion: Completion = with_client(&args.server, async |client| {
        let id = find_sandbox(client, &args.sandbox).await?;
        let completion: Completion = client.post(&format!("/api/v1/sandboxes/{id}/complete"), &body).await?;
        if args.no_wait { Ok(completion) } else { wait_while_queued(client, completion).await }
    })?;
    finish_completion(context, &completion)
}

/// Waits until a completion is not queued any more.
pub(super) async fn wait_while_queued(client: &Client, mut completion: Completion) -> Result<Completion> {
    while completion.state == CompletionState::Queued {
        let (project, id) = (project_path(&completion.project), percent_encode(completion.id.as_bytes()));
        completion = client.get(&format!("{project}/completions/{id}?wait={WAIT_SECONDS}")).await?;
    }
    Ok(completion)
}

/// Prints a completion. The outcome has a warning if a change was refused or conflicts, or if the completion failed. A
/// queued completion gives no warning.
pub(super) fn finish_completion(context: &mut Context, completion: &Completion) -> Result<Outcome> {
    if context.output.is_json() {
        context.output.record(completion)?;
    } else {
        print_completion(context, completion)?;
    }
    let is_clean = completion.refused.is_empty() && completion.conflicts.is_empty();
    let has_failed = completion.state == CompletionState::Failed;
    Ok(Outcome::with_warnings_if(!is_clean || has_failed))
}

/// Describes what became of a completion as a whole.
fn summary(completion: &Completion) -> String {
    match (completion.state, completion.sequence) {
        (CompletionState::Queued, _) => format!("queued: {}", completion.id),
        (CompletionState::Landed, Some(sequence)) => format!("landed as sequence {sequence}"),
        (CompletionState::Landed, None) => "nothing changed".to_owned(),
        (CompletionState::InReview, Some(sequence)) => {
            format!("landed as sequence {sequence}, with conflicts")
        }
        (CompletionState::InReview, None) => {
            "nothing landed: the changes below wait for reviews or were refused".to_owned()
        }
        (CompletionState::Refused, _) => "the policy refused every change".to_owned(),
        (CompletionState::Failed, _) => {
            format!("failed: {}", completion.error.as_deref().unwrap_or("unknown reason"))
        }
    }
}

/// Prints a completion: a summary, and a line for each change that was refused, renamed or conflicts.
pub(super) fn print_completion(context: &mut Context, completion: &Completion) -> Result<()> {
    context.output.line(text::escape_controls(&summary(completion)))?;
    for change in &completion.refused {
        context
            .output
            .line(text::escape_controls(&format!("refused   {}: {}", change.path, change.reason)))?;
    }
    for addition in &completion.renamed {
        context.output.line(text::escape_controls(&format!(
            "renamed   {} to {}: the name was taken",
            addition.from, addition.to
        )))?;
    }
    for conflict in &completion.conflicts {
        context
            .output
            .line(text::escape_controls(&format!("conflict  {} ({})", conflict.path, conflict.class)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use workspace_api::projects::{CompletionConflict, RefusedChange};

    use super::*;

    #[test]
    fn a_completion_of_which_only_a_part_conflicts_is_not_said_to_conflict_as_a_whole() {
        let path = "a".to_owned();
        let refused = vec![RefusedChange {
            path: path.clone(),
            change: "addition".to_owned(),
            reason: String::new(),
            content: None,
        }];
        let completion = Completion {
            id: "c".to_owned(),
            project: "prj-1".to_owned(),
            agent: "editor".to_owned(),
            sandbox: None,
            state: CompletionState::InReview,
            sequence: None,
            refused,
            renamed: Vec::new(),
            conflicts: vec![CompletionConflict { path, class: "critical".to_owned() }],
            error: None,
            created_at: String::new(),
        };
        assert_eq!(
            summary(&completion),
            "nothing landed: the changes below wait for reviews or were refused"
        );
    }
}
