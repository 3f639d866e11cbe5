//! Table `events`: events in the order of their numbers, each with its owner. On PostgreSQL, events get their numbers after
//! the commit of the transaction that inserts them (`queue.rs`).

mod notification;
mod queue;
mod retention;

use std::collections::BTreeMap;

use serde_json::Value;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;
use tokio::sync::watch;

use crate::clock::now;
use crate::database::{Database, DatabaseKind};
use crate::error::Result;
use crate::row::Row;
use crate::statement::{Parameters, Statement};
use crate::string_enum::string_enum;
pub(crate) use notification::Notifications;

/// Value of the column `owner` for an event without an owner. No API key has an empty owner.
const NO_OWNER: &str = "";
/// Maximum number of events in one statement, since databases limit the number of parameters.
const EVENTS_PER_STATEMENT: usize = 1_000;

string_enum! {
    /// Type of an event.
    pub enum EventKind {
        /// A sandbox was created.
        SandboxCreated = "sandbox.created",
        /// Processes of the sandbox are being started.
        SandboxStarting = "sandbox.starting",
        /// The guest agent of the sandbox is ready.
        SandboxRunning = "sandbox.running",
        /// The workspace of the sandbox was replaced by a snapshot.
        SandboxRestored = "sandbox.restored",
        /// The head of the project of the sandbox has changes that its workspace does not have.
        SandboxBaseMoved = "sandbox.base_moved",
        /// The changes in the workspace of the sandbox were merged with a newer head of its project.
        SandboxRebased = "sandbox.rebased",
        /// The changes in the workspace of the sandbox conflict with the head of its project, so it was not rebased.
        SandboxRebaseConflicted = "sandbox.rebase_conflicted",
        /// Refused changes were reverted in the workspace of the sandbox.
        SandboxChangesReverted = "sandbox.changes_reverted",
        /// The sandbox was paused.
        SandboxPaused = "sandbox.paused",
        /// The sandbox was resumed.
        SandboxResumed = "sandbox.resumed",
        /// The sandbox will expire soon.
        SandboxExpiring = "sandbox.expiring",
        /// The sandbox expired and is about to be removed. Not emitted for a sandbox that is paused instead
        /// (`onTimeout`).
        SandboxExpired = "sandbox.expired",
        /// The sandbox was removed.
        SandboxDeleted = "sandbox.deleted",
        /// The sandbox failed.
        SandboxError = "sandbox.error",
        /// The guest agent connected.
        AgentConnected = "agent.connected",
        /// The guest agent disconnected.
        AgentDisconnected = "agent.disconnected",
        /// A snapshot was created, in a sandbox or by an upload.
        SnapshotCreated = "snapshot.created",
        /// A template was built.
        TemplateBuilt = "template.built",
        /// A project was created.
        ProjectCreated = "project.created",
        /// The name or the settings of a project changed.
        ProjectUpdated = "project.updated",
        /// A project was deleted.
        ProjectDeleted = "project.deleted",
        /// The head of a project moved.
        ProjectAdvanced = "project.advanced",
        /// A completion waits to be merged.
        CompletionQueued = "completion.queued",
        /// The changes of a completion are in the head, and none of its reviews is undecided.
        CompletionLanded = "completion.landed",
        /// A completion waits for reviews.
        CompletionInReview = "completion.in_review",
        /// No change of a completion was allowed.
        CompletionRefused = "completion.refused",
        /// A completion could not be merged, and is not tried again.
        CompletionFailed = "completion.failed",
        /// A review waits for a decision.
        ReviewOpened = "review.opened",
        /// A review was decided.
        ReviewResolved = "review.resolved",
        /// A review was not decided in time, and waits for somebody else.
        ReviewEscalated = "review.escalated",
        /// A review was not decided in time: the head keeps its version.
        ReviewExpired = "review.expired",
        /// A project has a new version of its policy.
        PolicyChanged = "policy.changed",
    }
}

/// Event to insert. The operation that it belongs to sets the owner and the sandbox.
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
    /// Number, in the column `sequence`. An event never becomes visible after one with a higher number.
    pub number: i64,
    /// Type of the event. A newer server may have written one that [`EventKind`] does not have.
    pub kind: String,
    /// Owner of the event. `None` if it belongs to no owner: an event of a sandbox of the warm pool, or an
    /// event that an earlier version of the server wrote.
    pub owner: Option<String>,
    /// Sandbox of the event, which may be deleted.
    pub sandbox_id: Option<String>,
    /// Payload, as delivered to clients.
    pub data: Value,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
}

/// Criteria for events. A field that is `None` matches every event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Owner; `None` for events of all owners and for those without an owner.
    pub owner: Option<String>,
    /// Id of the sandbox.
    pub sandbox_id: Option<String>,
    /// Type.
    pub kind: Option<EventKind>,
    /// Name of the project of the event, or of the project of its sandbox.
    pub project: Option<String>,
}

/// Events after a number.
#[derive(Debug, Clone, PartialEq)]
pub struct EventSlice {
    /// Events that match the filter, in order.
    pub events: Vec<Event>,
    /// Highest number of a deleted event of the filter's owner, whatever its sandbox and type; 0 if there is
    /// none. If it is above the position of a reader, the reader may have missed events.
    pub last_deleted: i64,
    /// Highest number, over all owners, when the read began. If fewer than `limit` events are returned, the
    /// reader has seen every matching event up to this number and can continue after it.
    pub newest: i64,
}

/// Queries on the table `events`.
#[derive(Debug, Clone, Copy)]
pub struct Events<'c> {
    pub(crate) database: &'c Database,
}

impl Events<'_> {
    /// Inserts an event that is not part of a change of a sandbox. Returns its number.
    pub async fn insert(
        &self,
        owner: Option<&str>,
        sandbox_id: Option<&str>,
        event: &NewEvent,
    ) -> Result<i64> {
        let mut transaction = self.database.begin().await?;
        if self.database.kind() == DatabaseKind::Postgres {
            queue::publish_before(&mut transaction).await?;
        }
        // This transaction is short, so it may hold the lock of the numbers.
        let placed = PlacedEvent { owner, sandbox: sandbox_id, event };
        let number = insert_numbered(&mut transaction, &[placed]).await?;
        transaction.commit().await?;
        self.database.notify_event_readers();
        Ok(number)
    }

    /// Deletes events created before `time`, in milliseconds since 1970. Returns their number.
    pub async fn delete_before(&self, time: i64) -> Result<u64> {
        queue::publish_all(self.database).await?;
        let mut deleted = 0;
        loop {
            let mut transaction = self.database.begin().await?;
            let count = retention::delete_before(&mut transaction, time).await?;
            transaction.commit().await?;
            match count {
                0 => return Ok(deleted),
                count => deleted += count,
            }
        }
    }

    /// Returns the first events of all owners after a number, at most `limit`, in order.
    pub async fn after(&self, number: i64, limit: u32) -> Result<Vec<Event>> {
        Ok(self.read(&EventFilter::default(), number, limit).await?.events)
    }

    /// Returns the first events after a number that match a filter, at most `limit`, in order.
    pub async fn read(&self, filter: &EventFilter, after: i64, limit: u32) -> Result<EventSlice> {
        queue::publish_all(self.database).await?;
        let mut connection = self.database.reader().await?;
        let newest = newest(&mut connection).await?;
        let events = filter.select(&mut connection, after, limit).await?;
        // Must be read last: an event deleted during this call may then be both returned and counted as deleted, but
        // none can be missing and not counted.
        let last_deleted = last_deleted(&mut connection, filter.owner.as_deref()).await?;
        Ok(EventSlice { events, last_deleted, newest })
    }

    /// Returns the number of the newest event, which may be deleted; 0 before the first.
    pub async fn newest(&self) -> Result<i64> {
        queue::publish_all(self.database).await?;
        let mut connection = self.database.reader().await?;
        newest(&mut connection).await
    }

    /// Returns number and owner of the first events after a number, at most `limit`, in order.
    pub async fn owners_after(&self, number: i64, limit: u32) -> Result<Vec<(i64, Option<String>)>> {
        queue::publish_all(self.database).await?;
        let select = Statement::new(
            "SELECT sequence, owner FROM events WHERE sequence > $1 ORDER BY sequence LIMIT $2",
        );
        let select = select.number(number).number(limit.into());
        let rows = select.all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(|row| number_and_owner(&Row(row))).collect()
    }

    /// Returns a receiver that is notified when this process inserts an event. On PostgreSQL it is notified, too, of
    /// events that other processes insert, unless the notification is lost: look at intervals as well.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.database.subscribe_to_events()
    }
}

impl EventFilter {
    async fn select(&self, connection: &mut AnyConnection, after: i64, limit: u32) -> Result<Vec<Event>> {
        let mut parameters = Parameters::default();
        let mut all = vec![format!("sequence > ${}", parameters.number(after))];
        if let Some(owner) = &self.owner {
            // A sandbox has far fewer events than an owner. An expression cannot use the index of owners, so the
            // database uses that of sandboxes.
            let column = if self.sandbox_id.is_some() { "COALESCE(owner, '')" } else { "owner" };
            all.push(format!("{column} = ${}", parameters.text("owner", owner)));
            // An empty owner in the filter must not match the events without an owner.
            all.push(format!("owner <> '{NO_OWNER}'"));
        }
        if let Some(sandbox) = &self.sandbox_id {
            all.push(format!("sandbox_id = ${}", parameters.text("sandbox_id", sandbox)));
        }
        if let Some(kind) = self.kind {
            all.push(format!("type = ${}", parameters.text("type", kind.as_str())));
        }
        if let Some(project) = &self.project {
            all.push(format!("project = ${}", parameters.text("project", project)));
        }
        let (condition, limit) = (all.join(" AND "), parameters.number(limit.into()));
        let sql = format!(
            "SELECT sequence, type, owner, sandbox_id, data, created_at FROM events
             WHERE {condition} ORDER BY sequence LIMIT ${limit}"
        );
        let rows = Statement::with_parameters(&sql, parameters).all(connection).await?;
        rows.into_iter().map(from_row).collect()
    }
}

/// Event with its place: its owner and its sandbox, if it has one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedEvent<'e> {
    pub(crate) owner: Option<&'e str>,
    pub(crate) sandbox: Option<&'e str>,
    pub(crate) event: &'e NewEvent,
}

impl PlacedEvent<'_> {
    fn owner(&self) -> &str {
        self.owner.unwrap_or(NO_OWNER)
    }
}

/// Inserts events with one place as part of a transaction, like [`insert_placed`].
pub(crate) async fn insert_all(
    connection: &mut AnyConnection,
    owner: Option<&str>,
    sandbox: Option<&str>,
    events: &[NewEvent],
) -> Result<()> {
    let events: Vec<_> = events.iter().map(|event| PlacedEvent { owner, sandbox, event }).collect();
    insert_placed(connection, &events).await
}

/// Inserts events for one owner as part of a transaction, like [`insert_placed`].
pub(crate) async fn insert_for_owner(
    connection: &mut AnyConnection,
    owner: &str,
    events: &[NewEvent],
) -> Result<()> {
    insert_all(connection, Some(owner), None, events).await
}

/// Inserts events, each with its owner, as part of a transaction, like [`insert_placed`].
pub(crate) async fn insert_for_owners(
    connection: &mut AnyConnection,
    events: &[(String, NewEvent)],
) -> Result<()> {
    let events = events.iter();
    let placed = events.map(|(owner, event)| PlacedEvent { owner: Some(owner), sandbox: None, event });
    insert_placed(connection, &placed.collect::<Vec<_>>()).await
}

/// Inserts events, if there are any, as part of a transaction, in their order. They get their numbers at once on SQLite,
/// and after the commit on PostgreSQL (`queue.rs`).
///
/// Many of them are inserted by one statement, because every statement is a round trip.
pub(crate) async fn insert_placed(connection: &mut AnyConnection, events: &[PlacedEvent<'_>]) -> Result<()> {
    if DatabaseKind::of(connection) == DatabaseKind::Sqlite {
        return insert_numbered(connection, events).await.map(drop);
    }
    for events in events.chunks(EVENTS_PER_STATEMENT) {
        insert_rows(connection, events, None).await?;
    }
    Ok(())
}

/// Inserts events with their numbers. Returns the last one; 0 without events. Locks `event_sequence`, so that other
/// transactions that number events wait until this transaction ends.
async fn insert_numbered(connection: &mut AnyConnection, events: &[PlacedEvent<'_>]) -> Result<i64> {
    if events.is_empty() {
        return Ok(0);
    }
    let count = events.len() as i64;
    let next = Statement::new("UPDATE event_sequence SET last = last + $1 RETURNING last").number(count);
    let last = Row(next.one(connection).await?).number("last")?;
    let mut first = last - count + 1;
    for events in events.chunks(EVENTS_PER_STATEMENT) {
        insert_rows(connection, events, Some(first)).await?;
        first += events.len() as i64;
    }
    // The number of events of a sandbox and of an owner is limited: the oldest ones are evicted.
    let mut owners = BTreeMap::<&str, i64>::new();
    for event in events {
        *owners.entry(event.owner()).or_default() += 1;
    }
    let sandboxes = events.iter().filter_map(|event| event.sandbox).collect();
    retention::count_and_evict(connection, &owners, &sandboxes).await?;
    Ok(last)
}

/// Inserts the rows of events, which get the numbers from `first` on; with `None`, they are queued without numbers.
async fn insert_rows(
    connection: &mut AnyConnection,
    events: &[PlacedEvent<'_>],
    first: Option<i64>,
) -> Result<()> {
    let data: Vec<String> = events.iter().map(|placed| placed.event.data.to_string()).collect();
    let created_at = now();
    let mut parameters = Parameters::default();
    let created_at = parameters.number(created_at);
    let mut rows = Vec::with_capacity(events.len());
    for ((placed, data), index) in events.iter().zip(&data).zip(0..) {
        let number = first.map(|first| format!("${}, ", parameters.number(first + index)));
        let number = number.unwrap_or_default();
        let kind = parameters.text("type", placed.event.kind.as_str());
        let owner = parameters.text("owner", placed.owner());
        let sandbox = parameters.optional_text("sandbox_id", placed.sandbox);
        let data = parameters.text("data", data);
        let project = parameters.optional_text("project", placed.event.data["project"].as_str());
        // The project comes from the event if it has one, because the row of a deleted sandbox is gone.
        rows.push(format!(
            "({number}${kind}, ${owner}, ${sandbox}, ${data}, ${created_at},
             COALESCE(${project}, (SELECT project FROM sandboxes WHERE id = ${sandbox})))"
        ));
    }
    let table = match first {
        Some(_) => "events (sequence, type, owner, sandbox_id, data, created_at, project)",
        None => "event_queue (type, owner, sandbox_id, data, created_at, project)",
    };
    let sql = format!("INSERT INTO {table} VALUES {}", rows.join(", "));
    Statement::with_parameters(&sql, parameters).run(connection).await?;
    Ok(())
}

async fn newest(connection: &mut AnyConnection) -> Result<i64> {
    Row(Statement::new("SELECT last FROM event_sequence").one(connection).await?).number("last")
}

/// Returns the highest number of a deleted event of an owner, or of all; 0 if there is none.
async fn last_deleted(connection: &mut AnyConnection, owner: Option<&str>) -> Result<i64> {
    let select = match owner {
        Some(owner) => {
            Statement::new("SELECT COALESCE(MAX(dropped), 0) AS dropped FROM event_owners WHERE owner = $1")
                .text("owner", owner)
        }
        None => Statement::new("SELECT COALESCE(MAX(dropped), 0) AS dropped FROM event_owners"),
    };
    Row(select.one(connection).await?).number("dropped")
}

/// Returns the number and the owner of an event.
fn number_and_owner(row: &Row) -> Result<(i64, Option<String>)> {
    let owner = Some(row.text("owner")?).filter(|owner| owner != NO_OWNER);
    Ok((row.number("sequence")?, owner))
}

fn from_row(row: AnyRow) -> Result<Event> {
    let row = Row(row);
    let (number, owner) = number_and_owner(&row)?;
    Ok(Event {
        number,
        kind: row.text("type")?,
        owner,
        sandbox_id: row.optional_text("sandbox_id")?,
        data: row.json("data")?,
        created_at: row.number("created_at")?,
    })
}
