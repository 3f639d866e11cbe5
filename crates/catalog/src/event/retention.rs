//! Limits on the number of events, and the table `event_owners`, which counts them.
//!
//! Every transaction here holds the lock on the row of `event_sequence`. So no two of them change the same rows at
//! once, which could deadlock.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::error::Result;
use crate::row::Row;
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement, tuples};

/// Maximum number of events kept per sandbox, far more than a typical sandbox produces.
const SANDBOX_EVENTS_MAX: i64 = 1_000;
/// Maximum number of events kept per owner, so that no owner evicts the events of others.
const OWNER_EVENTS_MAX: i64 = 100_000;
/// Maximum number of events deleted per transaction, so that others can insert events in between.
const DELETE_BATCH_SIZE: i64 = 2_000;
/// Number of columns of the table `event_owners`.
const OWNER_COLUMNS: usize = 3;

/// Adds new events to the counts of their owners, and deletes the oldest events of their sandboxes and owners that
/// exceed the limits. `owners` has the number of new events of each owner, at least one.
pub(super) async fn count_and_evict(
    connection: &mut AnyConnection,
    owners: &BTreeMap<&str, i64>,
    sandboxes: &BTreeSet<&str>,
) -> Result<()> {
    let owners: Vec<_> = owners.iter().collect();
    for owners in owners.chunks(IDS_PER_STATEMENT) {
        let sql = format!(
            "INSERT INTO event_owners (owner, events, dropped) VALUES {}
             ON CONFLICT (owner) DO UPDATE SET events = event_owners.events + excluded.events RETURNING owner, events",
            tuples(owners.len(), OWNER_COLUMNS)
        );
        let mut count = Statement::new(&sql);
        for (owner, new) in owners {
            count = count.text("owner", owner).number(**new).number(0);
        }
        let counts = count.all(connection).await?;
        evict_of_owners(connection, counts).await?;
    }
    let sandboxes: Vec<_> = sandboxes.iter().map(|id| (*id).to_owned()).collect();
    for ids in sandboxes.chunks(IDS_PER_STATEMENT) {
        let mut parameters = Parameters::default();
        let (ids, limit) = (parameters.texts("sandbox_id", ids), parameters.number(SANDBOX_EVENTS_MAX));
        let sql = format!(
            "SELECT sandbox_id FROM events WHERE sandbox_id IN ({ids}) GROUP BY sandbox_id HAVING COUNT(*) > ${limit}"
        );
        for row in Statement::with_parameters(&sql, parameters).all(connection).await? {
            evict_of_sandbox(connection, &Row(row).text("sandbox_id")?).await?;
        }
    }
    Ok(())
}

/// Deletes the oldest events of a sandbox that exceed the limit.
async fn evict_of_sandbox(connection: &mut AnyConnection, sandbox: &str) -> Result<()> {
    let delete = Statement::new(
        "DELETE FROM events WHERE sandbox_id = $1 AND sequence <=
         (SELECT sequence FROM events WHERE sandbox_id = $1 ORDER BY sequence DESC LIMIT 1 OFFSET $2)
         RETURNING sequence, owner",
    );
    let delete = delete.text("sandbox_id", sandbox).number(SANDBOX_EVENTS_MAX);
    let deleted = delete.all(connection).await?;
    record_deleted(connection, deleted).await
}

/// Counts the events with numbers after `last` and up to `newest` for their owners, and deletes the oldest events of
/// their sandboxes and owners that exceed the limits. Only for PostgreSQL: a few statements for any number of owners.
pub(super) async fn update_counts_and_evict(
    connection: &mut AnyConnection,
    last: i64,
    newest: i64,
) -> Result<()> {
    let count = Statement::new(
        "INSERT INTO event_owners (owner, events, dropped)
         SELECT owner, COUNT(*), 0 FROM events WHERE sequence > $1 AND sequence <= $2 GROUP BY owner
         ON CONFLICT (owner) DO UPDATE SET events = event_owners.events + excluded.events RETURNING owner, events",
    );
    let counts = count.number(last).number(newest).all(connection).await?;
    let delete = Statement::new(
        "DELETE FROM events USING (SELECT DISTINCT sandbox_id AS id FROM events
         WHERE sequence > $1 AND sequence <= $2 AND sandbox_id IS NOT NULL) AS sandbox
         CROSS JOIN LATERAL (SELECT sequence FROM events AS own WHERE own.sandbox_id = sandbox.id
         ORDER BY own.sequence DESC LIMIT 1 OFFSET $3) AS excess
         WHERE events.sandbox_id = sandbox.id AND events.sequence <= excess.sequence
         RETURNING events.sequence, events.owner",
    );
    let delete = delete.number(last).number(newest).number(SANDBOX_EVENTS_MAX);
    let deleted = delete.all(connection).await?;
    record_deleted(connection, deleted).await?;
    evict_of_owners(connection, counts).await
}

/// Deletes the oldest events of owners that exceed the limit. `counts` has rows with the owner, and the number of its
/// stored events.
async fn evict_of_owners(connection: &mut AnyConnection, counts: Vec<AnyRow>) -> Result<()> {
    for row in counts {
        let row = Row(row);
        evict_of_owner(connection, &row.text("owner")?, row.number("events")?).await?;
    }
    Ok(())
}

/// Deletes the oldest events of an owner, of which `kept` are stored, if they exceed the limit.
async fn evict_of_owner(connection: &mut AnyConnection, owner: &str, kept: i64) -> Result<()> {
    if kept > OWNER_EVENTS_MAX {
        let delete = Statement::new(
            "DELETE FROM events WHERE sequence IN
             (SELECT sequence FROM events WHERE owner = $1 ORDER BY sequence LIMIT $2) RETURNING sequence, owner",
        );
        let excess = (kept - OWNER_EVENTS_MAX).min(DELETE_BATCH_SIZE);
        let deleted = delete.text("owner", owner).number(excess).all(connection).await?;
        record_deleted(connection, deleted).await?;
    }
    Ok(())
}

/// Deletes a batch of events created before `time`. Returns their number.
pub(super) async fn delete_before(connection: &mut AnyConnection, time: i64) -> Result<u64> {
    // Locks the row, as the insertion of an event does.
    let lock = Statement::new("UPDATE event_sequence SET last = last");
    lock.run(connection).await?;
    let delete = Statement::new(
        "DELETE FROM events WHERE sequence IN
         (SELECT sequence FROM events WHERE created_at < $1 ORDER BY created_at LIMIT $2) RETURNING sequence, owner",
    );
    let deleted = delete.number(time).number(DELETE_BATCH_SIZE).all(connection).await?;
    let count = deleted.len() as u64;
    record_deleted(connection, deleted).await?;
    Ok(count)
}

/// Subtracts deleted events from the counts of their owners, and records the highest deleted number of each
/// owner (column `dropped`).
async fn record_deleted(connection: &mut AnyConnection, deleted: Vec<AnyRow>) -> Result<()> {
    let mut owners = BTreeMap::<String, (i64, i64)>::new();
    for row in deleted {
        let row = Row(row);
        let (count, newest) = owners.entry(row.text("owner")?).or_default();
        *count += 1;
        *newest = (*newest).max(row.number("sequence")?);
    }
    for (owner, (count, newest)) in &owners {
        let update = Statement::new(
            "UPDATE event_owners SET events = events - $1,
             dropped = CASE WHEN dropped < $2 THEN $2 ELSE dropped END WHERE owner = $3",
        );
        update.number(*count).number(*newest).text("owner", owner).run(connection).await?;
    }
    Ok(())
}
