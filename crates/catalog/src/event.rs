//! Table `events`: events in the order of their sequence numbers.

use serde_json::Value;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::Database;
use crate::error::Result;
use crate::row::Row;
use crate::statement::Statement;
use crate::string_enum::string_enum;

/// Maximum number of events kept per sandbox, far more than a typical sandbox produces.
const SANDBOX_EVENTS_MAX: i64 = 1_000;
/// Maximum number of events kept in total.
const TOTAL_EVENTS_MAX: i64 = 1_000_000;
/// Old events deleted per statement, so that other statements can run in between.
const DELETE_BATCH_SIZE: i64 = 10_000;

string_enum! {
    /// Type of an event.
    pub enum EventKind {
        /// A sandbox was created.
        SandboxCreated = "sandbox.created",
        /// Processes of the sandbox are being started.
        SandboxStarting = "sandbox.starting",
        /// The guest agent of the sandbox is ready.
        SandboxRunning = "sandbox.running",
        /// The sandbox will expire soon.
        SandboxExpiring = "sandbox.expiring",
        /// The sandbox expired and is about to be removed.
        SandboxExpired = "sandbox.expired",
        /// The sandbox was removed.
        SandboxDeleted = "sandbox.deleted",
        /// The sandbox failed.
        SandboxError = "sandbox.error",
        /// The guest agent connected.
        AgentConnected = "agent.connected",
        /// The guest agent disconnected.
        AgentDisconnected = "agent.disconnected",
    }
}

/// Event to insert. The operation that it belongs to sets the sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// Type of the event.
    pub kind: EventKind,
    /// Payload, as delivered to clients.
    pub data: Value,
}

/// Stored event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Sequence number. An event never becomes visible after one with a higher number.
    pub sequence: i64,
    /// Type of the event.
    pub kind: EventKind,
    /// Sandbox of the event, which may be deleted.
    pub sandbox_id: Option<String>,
    /// Payload, as delivered to clients.
    pub data: Value,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
}

/// Queries on the table `events`.
#[derive(Debug, Clone, Copy)]
pub struct Events<'c> {
    pub(crate) database: &'c Database,
}

impl Events<'_> {
    /// Inserts an event that is not part of a change of a sandbox. Returns its sequence number.
    pub async fn insert(&self, sandbox_id: Option<&str>, event: &NewEvent) -> Result<i64> {
        let mut transaction = self.database.begin().await?;
        let sequence = insert(&mut transaction, sandbox_id, event).await?;
        transaction.commit().await?;
        Ok(sequence)
    }

    /// Deletes events created before `time`, in milliseconds since 1970. Returns their number.
    pub async fn delete_before(&self, time: i64) -> Result<u64> {
        let mut deleted = 0;
        loop {
            let delete = Statement::new(
                "DELETE FROM events WHERE sequence IN
                 (SELECT sequence FROM events WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
            );
            let delete = delete.number(time).number(DELETE_BATCH_SIZE);
            match delete.run(&mut *self.database.connection().await?).await? {
                0 => return Ok(deleted),
                count => deleted += count,
            }
        }
    }

    /// Returns the first events after a sequence number, at most `limit`, in order.
    pub async fn after(&self, sequence: i64, limit: u32) -> Result<Vec<Event>> {
        let select = Statement::new(
            "SELECT sequence, type, sandbox_id, data, created_at FROM events
             WHERE sequence > $1 ORDER BY sequence LIMIT $2",
        );
        let rows =
            select.number(sequence).number(limit.into()).all(&mut *self.database.connection().await?).await?;
        rows.into_iter().map(from_row).collect()
    }
}

/// Inserts an event as part of a transaction. It has to be the last statement: from here on, other
/// transactions with an event wait for this one to end.
pub(crate) async fn insert(
    connection: &mut AnyConnection,
    sandbox: Option<&str>,
    event: &NewEvent,
) -> Result<i64> {
    let next = Statement::new("UPDATE event_sequence SET last = last + 1 RETURNING last");
    let sequence = Row(next.one(connection).await?).number("last")?;
    let data = event.data.to_string();
    let insert = Statement::new(
        "INSERT INTO events (sequence, type, sandbox_id, data, created_at) VALUES ($1, $2, $3, $4, $5)",
    );
    let insert = insert.number(sequence).text("type", event.kind.as_str());
    insert.optional_text("sandbox_id", sandbox).text("data", &data).number(now()).run(connection).await?;
    delete_oldest(connection, sandbox, sequence).await?;
    Ok(sequence)
}

/// Deletes all but the newest events of a sandbox, and of all sandboxes.
async fn delete_oldest(connection: &mut AnyConnection, sandbox: Option<&str>, newest: i64) -> Result<()> {
    if let Some(sandbox) = sandbox {
        let delete = Statement::new(
            "DELETE FROM events WHERE sandbox_id = $1 AND sequence <=
             (SELECT sequence FROM events WHERE sandbox_id = $1 ORDER BY sequence DESC LIMIT 1 OFFSET $2)",
        );
        delete.text("sandbox_id", sandbox).number(SANDBOX_EVENTS_MAX).run(connection).await?;
    }
    let delete = Statement::new("DELETE FROM events WHERE sequence <= $1").number(newest - TOTAL_EVENTS_MAX);
    delete.run(connection).await?;
    Ok(())
}

fn from_row(row: AnyRow) -> Result<Event> {
    let row = Row(row);
    Ok(Event {
        sequence: row.number("sequence")?,
        kind: row.parsed("type")?,
        sandbox_id: row.optional_text("sandbox_id")?,
        data: row.json("data")?,
        created_at: row.number("created_at")?,
    })
}
