//! The table `events`: what happened, in order.

use serde_json::Value;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::catalog::Catalog;
use crate::clock::now;
use crate::error::Result;
use crate::row::Row;
use crate::statement::Statement;
use crate::words::words;

/// Newest events of one sandbox that are kept: many times as many as one has that is made, used and removed.
const SANDBOX_MAX: i64 = 1_000;
/// Newest events that are kept in all.
const TOTAL_MAX: i64 = 1_000_000;
/// Old events that are forgotten in one statement, so that others are served in between.
const TOGETHER: i64 = 10_000;

words! {
    /// What an event tells of.
    pub enum EventKind {
        /// A sandbox was made.
        SandboxCreated = "sandbox.created",
        /// Its processes are being started.
        SandboxStarting = "sandbox.starting",
        /// Its guest agent is ready.
        SandboxRunning = "sandbox.running",
        /// It will expire soon.
        SandboxExpiring = "sandbox.expiring",
        /// It expired and is about to be removed.
        SandboxExpired = "sandbox.expired",
        /// It was removed.
        SandboxDeleted = "sandbox.deleted",
        /// It failed.
        SandboxError = "sandbox.error",
        /// Its guest agent connected.
        AgentConnected = "agent.connected",
        /// Its guest agent is gone.
        AgentDisconnected = "agent.disconnected",
    }
}

/// An event to be written. Which sandbox it is about comes from the operation that it goes with.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// What it tells of.
    pub kind: EventKind,
    /// The rest, as the receiver gets it.
    pub data: Value,
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its number. An event never becomes visible after one of a higher number.
    pub sequence: i64,
    /// What it tells of.
    pub kind: EventKind,
    /// The sandbox it is about, which may be gone.
    pub sandbox_id: Option<String>,
    /// The rest, as the receiver gets it.
    pub data: Value,
    /// When it was written, in milliseconds since 1970.
    pub created_at: i64,
}

/// The events of a catalog.
#[derive(Debug, Clone, Copy)]
pub struct Events<'c> {
    pub(crate) catalog: &'c Catalog,
}

impl Events<'_> {
    /// Writes an event that goes with no change of a sandbox, and answers its number.
    pub async fn insert(&self, sandbox_id: Option<&str>, event: &NewEvent) -> Result<i64> {
        let mut transaction = self.catalog.begin().await?;
        let sequence = record(&mut transaction, sandbox_id, event).await?;
        transaction.commit().await?;
        Ok(sequence)
    }

    /// Forgets events that were written before a time; how many those were.
    pub async fn forget_before(&self, time: i64) -> Result<u64> {
        let mut forgotten = 0;
        loop {
            let delete = Statement::new(
                "DELETE FROM events WHERE sequence IN
                 (SELECT sequence FROM events WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
            );
            let delete = delete.number(time).number(TOGETHER);
            match delete.run(&mut *self.catalog.connection().await?).await? {
                0 => return Ok(forgotten),
                some => forgotten += some,
            }
        }
    }

    /// The first events after the one numbered `sequence`, at most `limit`, in order.
    pub async fn after(&self, sequence: i64, limit: u32) -> Result<Vec<Event>> {
        let select = Statement::new(
            "SELECT sequence, type, sandbox_id, data, created_at FROM events
             WHERE sequence > $1 ORDER BY sequence LIMIT $2",
        );
        let rows =
            select.number(sequence).number(limit.into()).all(&mut *self.catalog.connection().await?).await?;
        rows.into_iter().map(read).collect()
    }
}

/// Writes an event as part of a transaction. The last thing a transaction does: from here on every other one
/// that has an event waits for its end.
pub(crate) async fn record(on: &mut AnyConnection, sandbox: Option<&str>, event: &NewEvent) -> Result<i64> {
    let next = Statement::new("UPDATE event_sequence SET last = last + 1 RETURNING last");
    let sequence = Row(next.one(on).await?).number("last")?;
    let data = event.data.to_string();
    let insert = Statement::new(
        "INSERT INTO events (sequence, type, sandbox_id, data, created_at) VALUES ($1, $2, $3, $4, $5)",
    );
    let insert = insert.number(sequence).text("type", event.kind.as_str());
    insert.optional_text("sandbox_id", sandbox).text("data", &data).number(now()).run(on).await?;
    forget_oldest(on, sandbox, sequence).await?;
    Ok(sequence)
}

/// Forgets events beyond the newest ones of a sandbox, and of all.
async fn forget_oldest(on: &mut AnyConnection, sandbox: Option<&str>, newest: i64) -> Result<()> {
    if let Some(sandbox) = sandbox {
        let delete = Statement::new(
            "DELETE FROM events WHERE sandbox_id = $1 AND sequence <=
             (SELECT sequence FROM events WHERE sandbox_id = $1 ORDER BY sequence DESC LIMIT 1 OFFSET $2)",
        );
        delete.text("sandbox_id", sandbox).number(SANDBOX_MAX).run(on).await?;
    }
    let delete = Statement::new("DELETE FROM events WHERE sequence <= $1").number(newest - TOTAL_MAX);
    delete.run(on).await?;
    Ok(())
}

fn read(row: AnyRow) -> Result<Event> {
    let row = Row(row);
    Ok(Event {
        sequence: row.number("sequence")?,
        kind: row.word("type")?,
        sandbox_id: row.optional_text("sandbox_id")?,
        data: row.json("data")?,
        created_at: row.number("created_at")?,
    })
}
