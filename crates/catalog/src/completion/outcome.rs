//! Outcomes of completions, recorded together with the change of the head.

use serde_json::Value;
use sqlx::AnyConnection;

use super::CompletionState;
use crate::clock::now;
use crate::error::Result;
use crate::statement::{Parameters, Statement};

/// Maximum number of outcomes in one statement, since databases limit the number of parameters.
const OUTCOMES_PER_STATEMENT: usize = 200;

/// New state of a completion.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionOutcome {
    /// Id of the completion.
    pub id: String,
    /// State that it must have.
    pub from: CompletionState,
    /// New state.
    pub state: CompletionState,
    /// Report about its changes, as JSON; `None` leaves the old one.
    pub result: Option<Value>,
}

/// Records new states of completions of a project as part of a transaction. Returns false if one of them has another
/// state than expected; the caller rolls back then. The number is the sequence of the head that contains the changes of
/// the completion; `None` if it made no operation. A sequence that is stored already is kept.
pub(crate) async fn record_all(
    connection: &mut AnyConnection,
    project: &str,
    outcomes: &[(&CompletionOutcome, Option<i64>)],
) -> Result<bool> {
    for outcomes in outcomes.chunks(OUTCOMES_PER_STATEMENT) {
        if record(connection, project, outcomes).await? != outcomes.len() as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Updates rows by one statement, because every statement is a round trip. Returns the number of updated rows.
async fn record(
    connection: &mut AnyConnection,
    project: &str,
    outcomes: &[(&CompletionOutcome, Option<i64>)],
) -> Result<u64> {
    let results: Vec<Option<String>> =
        outcomes.iter().map(|(outcome, _)| outcome.result.as_ref().map(Value::to_string)).collect();
    let mut parameters = Parameters::default();
    let (project, time) = (parameters.text("project", project), parameters.number(now()));
    let mut rows = Vec::with_capacity(outcomes.len());
    for ((outcome, sequence), result) in outcomes.iter().zip(&results) {
        let id = parameters.text("completion", &outcome.id);
        let from = parameters.text("state", outcome.from.as_str());
        let state = parameters.text("state", outcome.state.as_str());
        let sequence = parameters.optional_number(*sequence);
        let result = parameters.optional_text("result", result.as_deref());
        rows.push(format!(
            "(${id}, ${from}, ${state}, CAST(${sequence} AS BIGINT), CAST(${result} AS TEXT))"
        ));
    }
    let sql = format!(
        "WITH outcome (id, expected, state, sequence, result) AS (VALUES {})
         UPDATE completions SET state = outcome.state, sequence = COALESCE(completions.sequence, outcome.sequence),
         result = COALESCE(outcome.result, completions.result), error = NULL, updated_at = ${time} FROM outcome
         WHERE completions.project = ${project} AND completions.id = outcome.id
         AND completions.state = outcome.expected",
        rows.join(", ")
    );
    Statement::with_parameters(&sql, parameters).run(connection).await
}

/// Lands a completion in review if all its reviews are decided, as part of a transaction. Returns false if one is not,
/// or the completion has another state. A completion that has a sequence keeps it.
pub(crate) async fn land_if_decided(
    connection: &mut AnyConnection,
    project: &str,
    id: &str,
    sequence: Option<i64>,
) -> Result<bool> {
    let update = Statement::new(
        "UPDATE completions SET state = 'landed', sequence = COALESCE(sequence, CAST($1 AS BIGINT)), updated_at = $2
         WHERE project = $3 AND id = $4 AND state = 'in_review' AND NOT EXISTS (SELECT 1 FROM reviews
         WHERE reviews.project = $3 AND reviews.completion = $4 AND reviews.state IN ('open', 'escalated'))",
    );
    let update =
        update.optional_number(sequence).number(now()).text("project", project).text("completion", id);
    Ok(update.run(connection).await? > 0)
}
