//! Table `completions`: changes of agents that wait to be merged into a project, and what became of them.

mod outcome;

use std::collections::HashMap;

use serde_json::Value;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::event::{self, NewEvent};
use crate::order::CreationOrder;
use crate::recorder::Recorder;
use crate::row::Row;
use crate::selection::{Selection, count_in};
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement};
use crate::string_enum::string_enum;

pub use outcome::CompletionOutcome;
pub(crate) use outcome::{land_if_decided, record_all};

/// Number of attempts to merge a completion after which it is [`CompletionState::Failed`].
pub const COMPLETION_ATTEMPTS_MAX: u32 = 5;

string_enum! {
    /// State of a completion.
    pub enum CompletionState {
        /// It waits to be merged, or is being merged.
        Queued = "queued",
        /// Its changes are in the head, and none of its reviews is undecided.
        Landed = "landed",
        /// Some of its changes wait for reviews.
        InReview = "in_review",
        /// None of its changes was allowed.
        Refused = "refused",
        /// It could not be merged, and is not tried again.
        Failed = "failed",
    }
}

/// Completion to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCompletion {
    /// Id, unique within its project: the idempotency key of the client, or a hash of workspace, base and tree.
    pub id: String,
    /// Id of the project.
    pub project: String,
    /// Owner of the project.
    pub owner: String,
    /// Owner of the workspace, who gets events about the completion, too; `None` if that is the owner of the project,
    /// or there is no workspace. The column is named `requester`.
    pub workspace_owner: Option<String>,
    /// Agent that made the changes.
    pub agent: String,
    /// Sandbox of the workspace, which may be deleted; `None` for a workspace without one.
    pub sandbox: Option<String>,
    /// Id of the round of the workspace: the id of the workspace, with a suffix after its first move to a newer head. A
    /// completion contains the changes of the earlier ones of its round, and none of other rounds. `None` for
    /// changes that were sent without a workspace (`workspace project push`). The column is named `workspace`.
    pub round_id: Option<String>,
    /// Snapshot from which the workspace was made: the view of the agent, which is the part of a head that it may read.
    pub base_snapshot: String,
    /// Sequence of the head from which that view was made.
    pub base_sequence: i64,
    /// Snapshot of the workspace with the changes.
    pub theirs_snapshot: String,
    /// Version of the policy in force when the workspace was made.
    pub policy_version: i64,
}

/// Stored completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Completion as it was inserted.
    pub completion: NewCompletion,
    /// State.
    pub state: CompletionState,
    /// Number of failed attempts to merge it.
    pub attempts: u32,
    /// Sequence of the head that first had some of its changes; `None` if there is none.
    pub sequence: Option<i64>,
    /// Report about its changes, as JSON.
    pub result: Option<Value>,
    /// Reason of the last failed attempt.
    pub error: Option<String>,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
    /// Time of the last change in milliseconds since 1970.
    pub updated_at: i64,
}

/// Result of [`Completions::insert`].
#[derive(Debug, Clone, PartialEq)]
pub enum CompletionInsertion {
    /// The completion was inserted.
    New(Completion),
    /// The project has a completion with this id; nothing was inserted.
    Existing(Completion),
}

/// Criteria for completions of a project. A field that is `None` matches every completion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionFilter {
    /// State.
    pub state: Option<CompletionState>,
    /// Agent.
    pub agent: Option<String>,
    /// Order of the completions.
    pub order: CreationOrder,
    /// Creation time and id of the last completion of the previous page.
    pub cursor: Option<(i64, String)>,
    /// Maximum number of completions.
    pub limit: u32,
}

macro_rules! columns {
    () => {
        "project, id, owner, requester, agent, sandbox, workspace, base_snapshot, base_sequence, theirs_snapshot, policy_version,
         state, attempts, sequence, result, error, created_at, updated_at"
    };
}

/// SQL text that selects all columns of rows of the table `completions`, for `from_row`. The argument is the rest of
/// the statement.
macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT ", columns!(), " FROM completions ", $rest)
    };
}

/// Queries on the table `completions`.
#[derive(Debug, Clone, Copy)]
pub struct Completions<'c> {
    pub(crate) database: &'c Database,
    pub(crate) recorder: &'c Recorder,
}

impl Completions<'_> {
    /// Inserts a queued completion, and its events in the same transaction. If the project has a completion with this
    /// id, it is returned, and nothing is inserted; if that one is of another agent or workspace round, it fails with
    /// [`CatalogError::IdempotencyConflict`]. Fails with [`CatalogError::NotFound`] if the project does not exist.
    ///
    /// Completions that are inserted at the same time share a transaction (`recorder.rs`).
    pub async fn insert(&self, new: &NewCompletion, events: &[NewEvent]) -> Result<CompletionInsertion> {
        self.recorder.insert_completion(new.clone(), events.to_vec()).await
    }

    /// Returns a completion of a project.
    pub async fn find(&self, project: &str, id: &str) -> Result<Option<Completion>> {
        find(&mut *self.database.reader().await?, project, id).await
    }

    /// Returns the completions of a project that match a filter.
    pub async fn list(&self, project: &str, filter: &CompletionFilter) -> Result<Vec<Completion>> {
        self.select(project, filter, Selection::Page).await?.into_iter().map(from_row).collect()
    }

    /// Counts the completions of a project that match a filter, on all pages.
    pub async fn count(&self, project: &str, filter: &CompletionFilter) -> Result<u64> {
        count_in(self.select(project, filter, Selection::Count).await?)
    }

    async fn select(
        &self,
        project: &str,
        filter: &CompletionFilter,
        selection: Selection,
    ) -> Result<Vec<AnyRow>> {
        let (after, direction) = filter.order.sql();
        let mut parameters = Parameters::default();
        let mut all = vec![format!("project = ${}", parameters.text("project", project))];
        if let Some(state) = filter.state {
            all.push(format!("state = ${}", parameters.text("state", state.as_str())));
        }
        if let Some(agent) = &filter.agent {
            all.push(format!("agent = ${}", parameters.text("agent", agent)));
        }
        if let Some((time, id)) = filter.cursor.as_ref().filter(|_| selection == Selection::Page) {
            let (time, id) = (parameters.number(*time), parameters.text("cursor", id));
            all.push(format!("(created_at {after} ${time} OR (created_at = ${time} AND id {after} ${id}))"));
        }
        let (select, condition) = (select!(""), all.join(" AND "));
        let sql = match selection {
            Selection::Count => format!("SELECT COUNT(*) AS total FROM completions WHERE {condition}"),
            Selection::Page => {
                let limit = parameters.number(filter.limit.into());
                format!(
                    "{select} WHERE {condition} ORDER BY created_at {direction}, id {direction} LIMIT ${limit}"
                )
            }
        };
        Statement::with_parameters(&sql, parameters).all(&mut *self.database.reader().await?).await
    }

    /// Returns the queued completions of a project, oldest first, at most `limit`.
    pub async fn queued(&self, project: &str, limit: u32) -> Result<Vec<Completion>> {
        let select = Statement::new(select!(
            "WHERE project = $1 AND state = 'queued' ORDER BY created_at, id LIMIT $2"
        ));
        let select = select.text("project", project).number(limit.into());
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }

    /// Returns for each workspace round the snapshot of its newest completion that was merged or refused. Rounds without
    /// such a completion are left out.
    pub async fn newest_snapshots(
        &self,
        project: &str,
        rounds: &[String],
    ) -> Result<HashMap<String, String>> {
        let mut snapshots = HashMap::new();
        for rounds in rounds.chunks(IDS_PER_STATEMENT) {
            let mut parameters = Parameters::default();
            let project = parameters.text("project", project);
            let rounds = parameters.texts("workspace", rounds);
            // Creation times of one round differ.
            let sql = format!(
                "SELECT c.workspace, c.theirs_snapshot FROM completions c JOIN
                 (SELECT workspace, MAX(created_at) AS newest FROM completions WHERE project = ${project}
                  AND workspace IN ({rounds}) AND state IN ('landed', 'in_review', 'refused') GROUP BY workspace) last
                 ON c.workspace = last.workspace AND c.created_at = last.newest WHERE c.project = ${project}"
            );
            let select = Statement::with_parameters(&sql, parameters);
            for row in select.all(&mut *self.database.reader().await?).await?.into_iter().map(Row) {
                snapshots.insert(row.text("workspace")?, row.text("theirs_snapshot")?);
            }
        }
        Ok(snapshots)
    }

    /// Returns the newest completion of a workspace round that was merged or refused. Later ones of the round contain
    /// its changes.
    pub async fn newest_merged_or_refused(
        &self,
        project: &str,
        round_id: &str,
    ) -> Result<Option<Completion>> {
        let select = Statement::new(select!(
            "WHERE project = $1 AND workspace = $2 AND state IN ('landed', 'in_review', 'refused')
             ORDER BY created_at DESC, id DESC LIMIT 1"
        ));
        let select = select.text("project", project).text("workspace", round_id);
        select.optional(&mut *self.database.reader().await?).await?.map(from_row).transpose()
    }

    /// Returns the completions of a workspace round that were merged or refused, oldest first, at most `limit`, after
    /// creation time and id of `cursor` if given.
    pub async fn merged_or_refused(
        &self,
        project: &str,
        round_id: &str,
        cursor: Option<(i64, &str)>,
        limit: u32,
    ) -> Result<Vec<Completion>> {
        let select = Statement::new(select!(
            "WHERE project = $1 AND workspace = $2 AND state IN ('landed', 'in_review', 'refused')
             AND (created_at > $3 OR (created_at = $3 AND id > $4)) ORDER BY created_at, id LIMIT $5"
        ));
        let (time, id) = cursor.unwrap_or((i64::MIN, ""));
        let select =
            select.text("project", project).text("workspace", round_id).number(time).text("cursor", id);
        let select = select.number(limit.into());
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }

    /// Returns the newest completion of a workspace round, whatever became of it.
    pub async fn newest(&self, project: &str, round_id: &str) -> Result<Option<Completion>> {
        let select = Statement::new(select!(
            "WHERE project = $1 AND workspace = $2 ORDER BY created_at DESC, id DESC LIMIT 1"
        ));
        let select = select.text("project", project).text("workspace", round_id);
        select.optional(&mut *self.database.reader().await?).await?.map(from_row).transpose()
    }

    /// Returns the ids of projects that have queued completions, in order, at most `limit`, after `cursor` if given.
    pub async fn projects_with_queued(&self, cursor: Option<&str>, limit: u32) -> Result<Vec<String>> {
        let select = Statement::new(
            "SELECT DISTINCT project FROM completions WHERE state = 'queued' AND project > $1
             ORDER BY project LIMIT $2",
        );
        let select = select.text("cursor", cursor.unwrap_or_default()).number(limit.into());
        let rows = select.all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(|row| Row(row).text("project")).collect()
    }

    /// Counts a failed attempt to merge a queued completion. After [`COMPLETION_ATTEMPTS_MAX`] attempts it becomes
    /// [`CompletionState::Failed`], and `events` are inserted in the same transaction. Returns `None` if it is not
    /// queued.
    pub async fn record_attempt(
        &self,
        project: &str,
        id: &str,
        error: &str,
        events: &[NewEvent],
    ) -> Result<Option<Completion>> {
        let mut transaction = self.database.begin().await?;
        let update = Statement::new(concat!(
            "UPDATE completions SET attempts = attempts + 1, error = $1, updated_at = $2,
             state = CASE WHEN attempts + 1 >= $3 THEN 'failed' ELSE state END
             WHERE project = $4 AND id = $5 AND state = 'queued' RETURNING ",
            columns!()
        ));
        let update = update.text("error", error).number(now()).number(COMPLETION_ATTEMPTS_MAX.into());
        let update = update.text("project", project).text("id", id);
        let Some(row) = update.optional(&mut transaction).await? else { return Ok(None) };
        let completion = from_row(row)?;
        let events = if completion.state == CompletionState::Failed { events } else { &[] };
        event::insert_for_owners(&mut transaction, &completion.completion.for_owners(events)).await?;
        self.database.commit_and_wake_readers(transaction, events).await?;
        Ok(Some(completion))
    }

    /// Queues a failed completion again, without its attempts, and inserts events in the same transaction. Returns
    /// false, and inserts no events, if it is not failed.
    pub async fn requeue(&self, project: &str, id: &str, events: &[NewEvent]) -> Result<bool> {
        let mut transaction = self.database.begin().await?;
        let update = Statement::new(
            "UPDATE completions SET state = 'queued', attempts = 0, updated_at = $1
             WHERE project = $2 AND id = $3 AND state = 'failed' RETURNING owner",
        );
        let update = update.number(now()).text("project", project).text("id", id);
        let Some(row) = update.optional(&mut transaction).await? else { return Ok(false) };
        event::insert_for_owner(&mut transaction, &Row(row).text("owner")?, events).await?;
        self.database.commit_and_wake_readers(transaction, events).await?;
        Ok(true)
    }
}

impl NewCompletion {
    /// Returns events about the completion with those who get them: the owner of the project, and of the workspace. The
    /// latter gets no reason of a failure, which may name files that an agent must not see.
    pub(crate) fn for_owners(&self, events: &[NewEvent]) -> Vec<(String, NewEvent)> {
        let of_owner = events.iter().map(|event| (self.owner.clone(), event.clone()));
        let of_workspace_owner = self.workspace_owner.iter().flat_map(|workspace_owner| {
            events.iter().map(|event| {
                let mut event = event.clone();
                event.data.as_object_mut().map(|data| data.remove("reason"));
                (workspace_owner.clone(), event)
            })
        });
        of_owner.chain(of_workspace_owner).collect()
    }

    pub(crate) fn is_of_same_round(&self, other: &Self) -> bool {
        let identity = |new: &Self| (new.agent.clone(), new.sandbox.clone(), new.round_id.clone());
        identity(self) == identity(other)
    }
}

/// Inserts completions as part of a transaction, and returns the new ones: not those whose project has one with this id.
/// Creation times of one workspace round increase, even if the clock does not: each of its completions contains the
/// changes of those before. So `new` has at most one of each round. Fails with [`CatalogError::NotFound`] if a project
/// does not exist.
pub(crate) async fn insert_all(
    connection: &mut AnyConnection,
    new: &[&NewCompletion],
) -> Result<Vec<Completion>> {
    let Some(first) = new.first() else { return Ok(Vec::new()) };
    let (time, mut parameters) = (now(), Parameters::default());
    let time = parameters.number(time);
    let mut rows = Vec::with_capacity(new.len());
    for new in new {
        let project = parameters.text("project", &new.project);
        let id = parameters.text("id", &new.id);
        let owner = parameters.text("owner", &new.owner);
        let requester = parameters.optional_text("requester", new.workspace_owner.as_deref());
        let agent = parameters.text("agent", &new.agent);
        let sandbox = parameters.optional_text("sandbox", new.sandbox.as_deref());
        let round = parameters.optional_text("workspace", new.round_id.as_deref());
        let base = parameters.text("base_snapshot", &new.base_snapshot);
        let sequence = parameters.number(new.base_sequence);
        let theirs = parameters.text("theirs_snapshot", &new.theirs_snapshot);
        let policy = parameters.number(new.policy_version);
        rows.push(format!(
            "(${project}, ${id}, ${owner}, ${requester}, ${agent}, ${sandbox}, ${round}, ${base}, ${sequence}, ${theirs},
             ${policy}, 'queued', 0,
             (SELECT CASE WHEN MAX(created_at) >= ${time} THEN MAX(created_at) + 1 ELSE ${time} END FROM completions
              WHERE project = ${project} AND workspace = ${round}), ${time})"
        ));
    }
    let sql = format!(
        "INSERT INTO completions (project, id, owner, requester, agent, sandbox, workspace, base_snapshot, base_sequence,
         theirs_snapshot, policy_version, state, attempts, created_at, updated_at) VALUES {}
         ON CONFLICT (project, id) DO NOTHING RETURNING {}",
        rows.join(", "),
        columns!()
    );
    let inserted = Statement::with_parameters(&sql, parameters).all(connection).await;
    let inserted = inserted.map_err(|error| error.foreign_key_as_not_found("project", &first.project))?;
    inserted.into_iter().map(from_row).collect()
}

pub(crate) async fn find(
    connection: &mut AnyConnection,
    project: &str,
    id: &str,
) -> Result<Option<Completion>> {
    let select = Statement::new(select!("WHERE project = $1 AND id = $2"));
    let select = select.text("project", project).text("id", id);
    select.optional(connection).await?.map(from_row).transpose()
}

pub(crate) fn not_found(id: &str) -> CatalogError {
    CatalogError::NotFound { what: "completion", id: id.to_owned() }
}

fn from_row(row: AnyRow) -> Result<Completion> {
    let row = Row(row);
    let completion = NewCompletion {
        id: row.text("id")?,
        project: row.text("project")?,
        owner: row.text("owner")?,
        workspace_owner: row.optional_text("requester")?,
        agent: row.text("agent")?,
        sandbox: row.optional_text("sandbox")?,
        round_id: row.optional_text("workspace")?,
        base_snapshot: row.text("base_snapshot")?,
        base_sequence: row.number("base_sequence")?,
        theirs_snapshot: row.text("theirs_snapshot")?,
        policy_version: row.number("policy_version")?,
    };
    Ok(Completion {
        completion,
        state: row.parsed("state")?,
        attempts: u32::try_from(row.number("attempts")?).unwrap_or(0),
        sequence: row.optional_number("sequence")?,
        result: row.optional_json("result")?,
        error: row.optional_text("error")?,
        created_at: row.number("created_at")?,
        updated_at: row.number("updated_at")?,
    })
}
