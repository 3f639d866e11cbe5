//! Decisions about reviews. Each is made once: a review that is not open or escalated any more is left as it is.

use serde_json::Value;
use sqlx::AnyConnection;

use super::{ReviewState, Reviews};
use crate::clock::now;
use crate::error::Result;
use crate::event::{self, NewEvent};
use crate::statement::Statement;

/// Decision about a review, which is part of an [`Advance`](crate::Advance).
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewDecision {
    /// Id of the review.
    pub id: String,
    /// New state: [`ReviewState::Resolved`] or [`ReviewState::Expired`].
    pub state: ReviewState,
    /// Name of the person or agent that decides; `system` for a review that expires.
    pub resolved_by: String,
    /// Decision, as JSON.
    pub resolution: Value,
}

impl Reviews<'_> {
    /// Assigns an open review to somebody else until another time, and inserts events of `owner` in the same
    /// transaction. Returns false, and inserts no events, if it is not open.
    pub async fn escalate(
        &self,
        project: &str,
        owner: &str,
        id: &str,
        assigned: &str,
        expires_at: Option<i64>,
        events: &[NewEvent],
    ) -> Result<bool> {
        let mut transaction = self.database.begin().await?;
        let update = Statement::new(
            "UPDATE reviews SET state = 'escalated', assigned = $1, expires_at = $2, updated_at = $3
             WHERE project = $4 AND id = $5 AND state = 'open'",
        );
        let update = update.text("assigned", assigned).optional_number(expires_at).number(now());
        if update.text("project", project).text("id", id).run(&mut transaction).await? == 0 {
            return Ok(false);
        }
        event::insert_for_owner(&mut transaction, owner, events).await?;
        self.database.commit_and_wake_readers(transaction, events).await?;
        Ok(true)
    }
}

/// Records a decision as part of a transaction. Returns false if the review is decided already or does not exist.
pub(crate) async fn decide(
    connection: &mut AnyConnection,
    project: &str,
    decision: &ReviewDecision,
) -> Result<bool> {
    let resolution = decision.resolution.to_string();
    let update = Statement::new(
        "UPDATE reviews SET state = $1, resolved_by = $2, resolution = $3, updated_at = $4
         WHERE project = $5 AND id = $6 AND state IN ('open', 'escalated')",
    );
    let update = update
        .text("state", decision.state.as_str())
        .text("resolved_by", &decision.resolved_by)
        .text("resolution", &resolution)
        .number(now())
        .text("project", project)
        .text("id", &decision.id);
    Ok(update.run(connection).await? > 0)
}
