//! Table `reviews`: conflicts and critical changes that wait for a decision.

mod decision;

use serde_json::Value;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::Database;
use crate::error::Result;
use crate::event::{self, NewEvent};
use crate::order::CreationOrder;
use crate::path;
use crate::row::Row;
use crate::selection::{Selection, count_in};
use crate::statement::{Parameters, Statement, tuples};
use crate::string_enum::string_enum;

pub use decision::ReviewDecision;
pub(crate) use decision::decide;

/// Number of parameters of a row.
const REVIEW_COLUMNS: usize = 12;
/// Maximum number of rows in one statement, since databases limit the number of parameters.
const REVIEWS_PER_STATEMENT: usize = 500;

string_enum! {
    /// State of a review.
    pub enum ReviewState {
        /// It waits for a decision.
        Open = "open",
        /// It was decided.
        Resolved = "resolved",
        /// Nobody decided it in time.
        Expired = "expired",
        /// It waits for a decision of somebody else, because nobody decided it in time.
        Escalated = "escalated",
    }
}

/// Review to insert.
#[derive(Debug, Clone, PartialEq)]
pub struct NewReview {
    /// Unique id, `rev-` followed by a UUIDv7. Later ids sort later.
    pub id: String,
    /// Completion that caused the review; `None` if there is none.
    pub completion: Option<String>,
    /// Path that the review is about.
    pub path: Vec<u8>,
    /// Kind of the conflict, such as `content` or `modify/delete`; `critical` for a change of a critical path.
    pub class: String,
    /// Versions, regions and choices, as JSON.
    pub data: Value,
    /// Agent or person that caused the review.
    pub author: String,
    /// Reviewer or group of reviewers; `None` for any.
    pub assigned: Option<String>,
    /// Time until which it should be decided, in milliseconds since 1970; `None` for ever.
    pub expires_at: Option<i64>,
}

/// Stored review.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    /// Id of the project.
    pub project: String,
    /// Review as it was inserted; an escalation changes `assigned` and `expires_at`.
    pub opened: NewReview,
    /// State.
    pub state: ReviewState,
    /// Name of the person or agent that decided it, `system` if it expired; `None` if it is not decided.
    pub resolved_by: Option<String>,
    /// Decision, as JSON.
    pub resolution: Option<Value>,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
    /// Time of the last change in milliseconds since 1970.
    pub updated_at: i64,
}

/// Criteria for reviews of a project. A field that is `None` matches every review.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewFilter {
    /// State.
    pub state: Option<ReviewState>,
    /// Completion.
    pub completion: Option<String>,
    /// Path.
    pub path: Option<Vec<u8>>,
    /// Reviewer that it is assigned to.
    pub assigned: Option<String>,
    /// Order of the reviews.
    pub order: CreationOrder,
    /// Id of the last review of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of reviews.
    pub limit: u32,
}

/// SQL text that selects all columns of rows of the table `reviews`, for `from_row`. The argument is the rest of the
/// statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, project, completion, path, class, state, data, author, assigned, resolved_by, resolution,
             expires_at, created_at, updated_at FROM reviews ",
            $rest
        )
    };
}

/// Queries on the table `reviews`.
#[derive(Debug, Clone, Copy)]
pub struct Reviews<'c> {
    pub(crate) database: &'c Database,
}

impl Reviews<'_> {
    /// Inserts open reviews of a project, and events of `owner` in the same transaction. An [`Advance`](crate::Advance)
    /// inserts reviews, too.
    pub async fn insert(
        &self,
        project: &str,
        owner: &str,
        reviews: &[NewReview],
        events: &[NewEvent],
    ) -> Result<()> {
        let mut transaction = self.database.begin().await?;
        insert_all(&mut transaction, project, reviews).await?;
        event::insert_for_owner(&mut transaction, owner, events).await?;
        self.database.commit_and_wake_readers(transaction, events).await
    }

    /// Returns a review of a project.
    pub async fn find(&self, project: &str, id: &str) -> Result<Option<Review>> {
        let select = Statement::new(select!("WHERE project = $1 AND id = $2"));
        let select = select.text("project", project).text("id", id);
        select.optional(&mut *self.database.reader().await?).await?.map(from_row).transpose()
    }

    /// Returns the reviews of a project that match a filter.
    pub async fn list(&self, project: &str, filter: &ReviewFilter) -> Result<Vec<Review>> {
        self.select(project, filter, Selection::Page).await?.into_iter().map(from_row).collect()
    }

    /// Counts the reviews of a project that match a filter, on all pages.
    pub async fn count(&self, project: &str, filter: &ReviewFilter) -> Result<u64> {
        count_in(self.select(project, filter, Selection::Count).await?)
    }

    async fn select(
        &self,
        project: &str,
        filter: &ReviewFilter,
        selection: Selection,
    ) -> Result<Vec<AnyRow>> {
        let path = filter.path.as_deref().map(path::encode);
        let (after, direction) = filter.order.sql();
        let mut parameters = Parameters::default();
        let mut all = vec![format!("project = ${}", parameters.text("project", project))];
        let state = filter.state.map(ReviewState::as_str);
        for (column, value) in [
            ("state", state),
            ("completion", filter.completion.as_deref()),
            ("path", path.as_deref()),
            ("assigned", filter.assigned.as_deref()),
        ] {
            if let Some(value) = value {
                all.push(format!("{column} = ${}", parameters.text(column, value)));
            }
        }
        if let Some(cursor) = filter.cursor.as_ref().filter(|_| selection == Selection::Page) {
            all.push(format!("id {after} ${}", parameters.text("cursor", cursor)));
        }
        let (select, condition) = (select!(""), all.join(" AND "));
        let sql = match selection {
            Selection::Count => format!("SELECT COUNT(*) AS total FROM reviews WHERE {condition}"),
            Selection::Page => {
                let limit = parameters.number(filter.limit.into());
                format!("{select} WHERE {condition} ORDER BY id {direction} LIMIT ${limit}")
            }
        };
        Statement::with_parameters(&sql, parameters).all(&mut *self.database.reader().await?).await
    }

    /// Returns the reviews of all projects that wait for a decision and should have been decided at `time`, the
    /// earliest first, at most `limit`. `cursor` is the last review of the previous page.
    pub async fn overdue(&self, time: i64, cursor: Option<&Review>, limit: u32) -> Result<Vec<Review>> {
        let select = Statement::new(select!(
            "WHERE state IN ('open', 'escalated') AND expires_at <= $1
             AND (expires_at > $2 OR (expires_at = $2 AND id > $3)) ORDER BY expires_at, id LIMIT $4"
        ));
        let after = cursor.and_then(|review| review.opened.expires_at).unwrap_or(i64::MIN);
        let id = cursor.map_or("", |review| &review.opened.id);
        let select = select.number(time).number(after).text("cursor", id).number(limit.into());
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }
}

/// Inserts open reviews as part of a transaction.
pub(crate) async fn insert_all(
    connection: &mut AnyConnection,
    project: &str,
    reviews: &[NewReview],
) -> Result<()> {
    let created_at = now();
    for reviews in reviews.chunks(REVIEWS_PER_STATEMENT) {
        let texts: Vec<(String, String)> =
            reviews.iter().map(|review| (path::encode(&review.path), review.data.to_string())).collect();
        let sql = format!(
            "INSERT INTO reviews (id, project, completion, path, class, state, data, author, assigned, expires_at,
             created_at, updated_at) VALUES {}",
            tuples(reviews.len(), REVIEW_COLUMNS)
        );
        let mut insert = Statement::new(&sql);
        for (review, (path, data)) in reviews.iter().zip(&texts) {
            insert = insert
                .text("id", &review.id)
                .text("project", project)
                .optional_text("completion", review.completion.as_deref())
                .text("path", path)
                .text("class", &review.class)
                .text("state", ReviewState::Open.as_str())
                .text("data", data)
                .text("author", &review.author)
                .optional_text("assigned", review.assigned.as_deref())
                .optional_number(review.expires_at)
                .number(created_at)
                .number(created_at);
        }
        let inserted = insert.run(connection).await;
        inserted.map_err(|error| {
            error.foreign_key_as_not_found("project", project).unique_key_as_exists("review", &reviews[0].id)
        })?;
    }
    Ok(())
}

fn from_row(row: AnyRow) -> Result<Review> {
    let row = Row(row);
    let opened = NewReview {
        id: row.text("id")?,
        completion: row.optional_text("completion")?,
        path: path::decode(&row.text("path")?)?,
        class: row.text("class")?,
        data: row.json("data")?,
        author: row.text("author")?,
        assigned: row.optional_text("assigned")?,
        expires_at: row.optional_number("expires_at")?,
    };
    Ok(Review {
        project: row.text("project")?,
        opened,
        state: row.parsed("state")?,
        resolved_by: row.optional_text("resolved_by")?,
        resolution: row.optional_json("resolution")?,
        created_at: row.number("created_at")?,
        updated_at: row.number("updated_at")?,
    })
}
