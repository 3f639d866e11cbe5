//! Table `event_queue`: events of committed transactions that have no number yet. Only on PostgreSQL.
//!
//! A number must not become visible after a higher one, because readers go on after the last number that they have seen.
//! If each transaction gave its events their numbers, it would have to hold the row of `event_sequence` until it commits,
//! and all writers would wait for each other. SQLite has one writer anyway. On PostgreSQL a transaction inserts its events
//! here, without a lock. After its commit, a short transaction *publishes* them: it moves all events that it finds here to
//! the table `events`, and numbers them. It alone holds the row, so numbers are in the order of the publications, and an
//! event that is committed later gets a higher number, however long its transaction took.
//!
//! Events of one transaction become visible here at once, and keep their order. Those of a transaction that began after
//! the commit of another come after those of the other, because they have higher ids.

use sqlx::AnyConnection;

use super::retention;
use crate::database::{Database, DatabaseKind};
use crate::error::Result;
use crate::row::Row;
use crate::statement::Statement;

/// Maximum number of events that one transaction publishes.
const BATCH_MAX: i64 = 1_000;

/// Publishes all events of transactions that are committed by now. Does nothing on SQLite.
pub(super) async fn publish_all(database: &Database) -> Result<()> {
    if database.kind() == DatabaseKind::Sqlite {
        return Ok(());
    }
    while has_events(&mut *database.reader().await?).await? {
        // Others of this process would wait for the row of `event_sequence` with a connection each.
        let _publishing = database.lock_publication().await;
        let mut transaction = database.begin().await?;
        publish(&mut transaction).await?;
        transaction.commit().await?;
    }
    Ok(())
}

/// Publishes the oldest events, at most [`BATCH_MAX`], as part of a transaction, which must be short: from here on, it
/// holds the row of `event_sequence`. Returns the number of the newest event.
async fn publish(connection: &mut AnyConnection) -> Result<i64> {
    let lock = Statement::new("SELECT last FROM event_sequence FOR UPDATE");
    let last = Row(lock.one(connection).await?).number("last")?;
    let publish = Statement::new(
        "WITH taken AS (DELETE FROM event_queue WHERE id IN (SELECT id FROM event_queue ORDER BY id LIMIT $1)
         RETURNING id, type, owner, sandbox_id, data, created_at, project)
         INSERT INTO events (sequence, type, owner, sandbox_id, data, created_at, project)
         SELECT CAST($2 AS BIGINT) + row_number() OVER (ORDER BY id), type, owner, sandbox_id, data, created_at, project
         FROM taken",
    );
    let count = publish.number(BATCH_MAX).number(last).run(connection).await?;
    if count == 0 {
        return Ok(last);
    }
    let newest = last + i64::try_from(count).unwrap_or(BATCH_MAX);
    Statement::new("UPDATE event_sequence SET last = $1").number(newest).run(connection).await?;
    retention::update_counts_and_evict(connection, last, newest).await?;
    Ok(newest)
}

/// Publishes all events as part of a transaction, so that one that it inserts itself comes after them.
pub(super) async fn publish_before(connection: &mut AnyConnection) -> Result<()> {
    while has_events(connection).await? {
        publish(connection).await?;
    }
    Ok(())
}

async fn has_events(connection: &mut AnyConnection) -> Result<bool> {
    let select = Statement::new("SELECT id FROM event_queue LIMIT 1");
    Ok(select.optional(connection).await?.is_some())
}
