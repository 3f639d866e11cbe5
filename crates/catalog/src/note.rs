//! Table `notes`: texts and data with which agents comment on their steps.
//!
//! A note belongs to the next snapshot of its sandbox, or to the snapshot of its command if that exists already. The
//! note is deleted with the snapshot, or with the sandbox if there was no snapshot after the note.

use std::collections::BTreeMap;

use serde_json::Value;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::api_key::agents_prefix;
use crate::database::{Database, DatabaseKind};
use crate::error::{CatalogError, Result};
use crate::order::CreationOrder;
use crate::row::Row;
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement, tuples};

/// Statement that serialises insertions of the same owner on PostgreSQL, so that they stay within the quota together.
/// 19 identifies the locks of this table; other tables use other numbers.
const LOCK_SQL: &str = "SELECT 1 FROM pg_advisory_xact_lock(19, hashtext($1))";

/// Note to insert.
#[derive(Debug, Clone, PartialEq)]
pub struct NewNote {
    /// Unique id, `note-` followed by a UUIDv7. Later ids sort later.
    pub id: String,
    /// Owner of the sandbox.
    pub owner: String,
    /// Sandbox in which the step was made.
    pub sandbox_id: String,
    /// Command that the note is about.
    pub command_id: Option<String>,
    /// Snapshot of that command, if there is one already.
    pub snapshot: Option<String>,
    /// Text of the agent.
    pub text: String,
    /// Data of the agent.
    pub data: Option<Value>,
    /// Size in bytes, for the quota.
    pub bytes: u64,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
}

/// Stored note.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// Unique id, `note-` followed by a UUIDv7.
    pub id: String,
    /// Sandbox in which the step was made. It may be deleted.
    pub sandbox_id: String,
    /// Command that the note is about.
    pub command_id: Option<String>,
    /// Snapshot that the note belongs to; `None` until there is one.
    pub snapshot: Option<String>,
    /// Text of the agent.
    pub text: String,
    /// Data of the agent.
    pub data: Option<Value>,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
}

/// Maximum number and size of notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoteQuota {
    /// Maximum number of notes that were made in one sandbox and are kept.
    pub per_sandbox: u64,
    /// Maximum number of notes of one owner; `None` if the caller has no quota.
    pub per_owner: Option<u64>,
    /// Maximum size of the notes of one owner in bytes; `None` if the caller has no quota.
    pub owner_bytes: Option<u64>,
}

/// Result of [`Notes::insert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteInsertion {
    /// The note is in the table.
    Done,
    /// The sandbox has the maximum number of notes.
    SandboxFull,
    /// The owner has the maximum number of notes.
    OwnerCountFull,
    /// The notes of the owner would exceed the maximum size together.
    OwnerBytesFull,
}

/// Criteria for a page of the notes of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoteFilter {
    /// Command that the notes are about; `None` for any, or none.
    pub command_id: Option<String>,
    /// Order of the notes.
    pub order: CreationOrder,
    /// Id of the last note of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of notes.
    pub limit: u32,
    /// Maximum size of the notes in bytes. The page has at least one note.
    pub bytes: u64,
}

/// Page of notes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NotePage {
    /// Notes in the order of the filter.
    pub notes: Vec<Note>,
    /// Number of notes on all pages.
    pub total: u64,
    /// True if there are notes after these.
    pub has_more: bool,
}

/// Queries on the table `notes`.
#[derive(Debug, Clone, Copy)]
pub struct Notes<'c> {
    pub(crate) database: &'c Database,
}

impl Notes<'_> {
    /// Inserts a note, if its sandbox and its owner stay within the quota. A snapshot that was removed meanwhile is
    /// ignored.
    pub async fn insert(&self, new: &NewNote, quota: NoteQuota) -> Result<NoteInsertion> {
        let mut transaction = self.database.begin().await?;
        if self.database.kind() == DatabaseKind::Postgres {
            Statement::new(LOCK_SQL).text("owner", &new.owner).run(&mut transaction).await?;
        }
        lock_sandbox(&mut transaction, &new.sandbox_id).await?;
        let (notes, bytes) = usage(&mut transaction, &new.owner).await?;
        if quota.per_owner.is_some_and(|max| notes >= max) {
            return Ok(NoteInsertion::OwnerCountFull);
        }
        if quota.owner_bytes.is_some_and(|max| bytes.saturating_add(new.bytes) > max) {
            return Ok(NoteInsertion::OwnerBytesFull);
        }
        if count(&mut transaction, &new.sandbox_id, None).await? >= quota.per_sandbox {
            return Ok(NoteInsertion::SandboxFull);
        }
        let snapshot = match &new.snapshot {
            Some(snapshot) if lock_snapshot(&mut transaction, &new.owner, snapshot).await? => {
                Some(snapshot.clone())
            }
            _ => None,
        };
        insert(&mut transaction, &NewNote { snapshot, ..new.clone() }).await?;
        add_usage(&mut transaction, &new.owner, signed(new.bytes)).await?;
        transaction.commit().await?;
        Ok(NoteInsertion::Done)
    }

    /// Returns a page of the notes that were made in a sandbox.
    pub async fn list(&self, sandbox_id: &str, filter: &NoteFilter) -> Result<NotePage> {
        let (after, direction) = filter.order.sql();
        let mut parameters = Parameters::default();
        let mut condition = format!("sandbox_id = ${}", parameters.text("sandbox_id", sandbox_id));
        if let Some(command) = &filter.command_id {
            condition.push_str(&format!(" AND command_id = ${}", parameters.text("command_id", command)));
        }
        if let Some(cursor) = &filter.cursor {
            condition.push_str(&format!(" AND id {after} ${}", parameters.text("cursor", cursor)));
        }
        let limit = parameters.number(i64::from(filter.limit) + 1);
        let sql =
            format!("SELECT id, bytes FROM notes WHERE {condition} ORDER BY id {direction} LIMIT ${limit}");
        let mut connection = self.database.reader().await?;
        let total = count(&mut connection, sandbox_id, filter.command_id.as_deref()).await?;
        let rows = Statement::with_parameters(&sql, parameters).all(&mut connection).await?;
        let (ids, has_more) = ids_within_limits(rows, filter.limit as usize, filter.bytes)?;
        let mut notes = read(&mut connection, &ids).await?;
        if filter.order == CreationOrder::Newest {
            notes.reverse();
        }
        Ok(NotePage { notes, total, has_more })
    }

    /// Returns the notes of snapshots, oldest first, and whether some were left out. At most `limit` notes are
    /// returned, with at most `bytes` bytes together. With `reader`, only those that this owner may read: its own, and
    /// those of its agents ([`covers_owner`](crate::covers_owner)).
    pub async fn of_snapshots(
        &self,
        reader: Option<&str>,
        snapshots: &[String],
        limit: usize,
        bytes: u64,
    ) -> Result<(Vec<Note>, bool)> {
        let mut notes = Vec::new();
        let (mut left, mut bytes_left, mut is_cut) = (limit, bytes, false);
        let reader = reader.map(|owner| (owner, agents_prefix(owner)));
        let mut connection = self.database.reader().await?;
        for snapshots in snapshots.chunks(IDS_PER_STATEMENT) {
            let mut parameters = Parameters::default();
            let readable = match &reader {
                Some((owner, agents)) => {
                    let owner = parameters.text("owner", owner);
                    let agents = parameters.text("agents", agents);
                    format!("(owner = ${owner} OR substr(owner, 1, length(${agents})) = ${agents}) AND")
                }
                None => String::new(),
            };
            let snapshots = parameters.texts("snapshot", snapshots);
            let limit = parameters.number(i64::try_from(left).unwrap_or(i64::MAX).saturating_add(1));
            let sql = format!(
                "SELECT id, bytes FROM notes WHERE {readable} snapshot IN ({snapshots}) ORDER BY id LIMIT ${limit}"
            );
            let rows = Statement::with_parameters(&sql, parameters).all(&mut connection).await?;
            let sizes = rows.iter().map(row_bytes).collect::<Result<Vec<u64>>>()?;
            let (ids, has_more) = ids_within_limits(rows, left, bytes_left)?;
            left -= ids.len();
            bytes_left = bytes_left.saturating_sub(sizes.iter().take(ids.len()).sum());
            notes.extend(read(&mut connection, &ids).await?);
            if has_more {
                is_cut = true;
                break;
            }
        }
        notes.sort_by(|a, b| a.id.cmp(&b.id));
        Ok((notes, is_cut))
    }
}

/// Assigns the notes of a sandbox that have no snapshot to its newest one.
pub(crate) async fn attach(connection: &mut AnyConnection, sandbox_id: &str, snapshot: &str) -> Result<()> {
    attach_all(connection, &[(sandbox_id, snapshot)]).await
}

/// Assigns the notes of sandboxes that have no snapshot, by one statement. Each pair is a sandbox and
/// its newest snapshot; no sandbox is in two of them.
pub(crate) async fn attach_all(connection: &mut AnyConnection, made_in: &[(&str, &str)]) -> Result<()> {
    if made_in.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "WITH made (sandbox, snapshot) AS (VALUES {}) UPDATE notes SET snapshot = made.snapshot FROM made
         WHERE notes.sandbox_id = made.sandbox AND notes.snapshot IS NULL",
        tuples(made_in.len(), 2)
    );
    let mut update = Statement::new(&sql);
    for (sandbox, snapshot) in made_in {
        update = update.text("sandbox_id", sandbox).text("snapshot", snapshot);
    }
    update.run(connection).await?;
    Ok(())
}

/// Deletes the notes of a sandbox that have no snapshot.
pub(crate) async fn delete_pending(connection: &mut AnyConnection, sandbox_id: &str) -> Result<()> {
    let delete =
        Statement::new("DELETE FROM notes WHERE sandbox_id = $1 AND snapshot IS NULL RETURNING owner, bytes");
    let deleted = delete.text("sandbox_id", sandbox_id).all(connection).await?;
    subtract_usage(connection, deleted).await
}

/// Deletes the notes of a snapshot. With `owner`, only those of the owner.
pub(crate) async fn delete_of_snapshot(
    connection: &mut AnyConnection,
    owner: Option<&str>,
    snapshot: &str,
) -> Result<()> {
    let delete = match owner {
        Some(owner) => {
            Statement::new("DELETE FROM notes WHERE snapshot = $1 AND owner = $2 RETURNING owner, bytes")
                .text("snapshot", snapshot)
                .text("owner", owner)
        }
        None => Statement::new("DELETE FROM notes WHERE snapshot = $1 RETURNING owner, bytes")
            .text("snapshot", snapshot),
    };
    let deleted = delete.all(connection).await?;
    subtract_usage(connection, deleted).await
}

/// Locks the row of a sandbox until the end of the transaction. Otherwise a concurrent deletion of the sandbox could
/// miss the note that is being inserted, which would then stay for ever.
async fn lock_sandbox(connection: &mut AnyConnection, id: &str) -> Result<()> {
    let lock = Statement::new("UPDATE sandboxes SET version = version WHERE id = $1");
    match lock.text("id", id).run(connection).await? {
        0 => Err(CatalogError::NotFound { what: "sandbox", id: id.to_owned() }),
        _ => Ok(()),
    }
}

/// Locks the row of a snapshot for the same reason as [`lock_sandbox`]. Returns false if the owner does not have the
/// snapshot.
async fn lock_snapshot(connection: &mut AnyConnection, owner: &str, id: &str) -> Result<bool> {
    let lock = Statement::new("UPDATE snapshots SET created_at = created_at WHERE id = $1 AND owner = $2");
    Ok(lock.text("id", id).text("owner", owner).run(connection).await? > 0)
}

async fn insert(connection: &mut AnyConnection, new: &NewNote) -> Result<()> {
    let insert = Statement::new(
        "INSERT INTO notes (id, owner, sandbox_id, command_id, snapshot, text, data, bytes, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    );
    let data = new.data.as_ref().map(Value::to_string);
    let insert = insert.text("id", &new.id).text("owner", &new.owner).text("sandbox_id", &new.sandbox_id);
    let insert = insert.optional_text("command_id", new.command_id.as_deref());
    let insert = insert.optional_text("snapshot", new.snapshot.as_deref()).text("text", &new.text);
    let insert = insert.optional_text("data", data.as_deref()).number(signed(new.bytes));
    let inserted = insert.number(new.created_at).run(connection).await;
    inserted.map_err(|error| error.unique_key_as_exists("note", &new.id))?;
    Ok(())
}

async fn count(connection: &mut AnyConnection, sandbox_id: &str, command: Option<&str>) -> Result<u64> {
    let count = match command {
        Some(command) => {
            Statement::new("SELECT COUNT(*) AS total FROM notes WHERE sandbox_id = $1 AND command_id = $2")
                .text("sandbox_id", sandbox_id)
                .text("command_id", command)
        }
        None => Statement::new("SELECT COUNT(*) AS total FROM notes WHERE sandbox_id = $1")
            .text("sandbox_id", sandbox_id),
    };
    Row(count.one(connection).await?).count("total")
}

/// Returns the number of an owner's notes and their size in bytes.
async fn usage(connection: &mut AnyConnection, owner: &str) -> Result<(u64, u64)> {
    let select = Statement::new("SELECT notes, bytes FROM note_usage WHERE owner = $1");
    let Some(row) = select.text("owner", owner).optional(connection).await? else { return Ok((0, 0)) };
    let row = Row(row);
    Ok((row.count("notes")?, row.count("bytes")?))
}

async fn add_usage(connection: &mut AnyConnection, owner: &str, bytes: i64) -> Result<()> {
    let add = Statement::new(
        "INSERT INTO note_usage (owner, notes, bytes) VALUES ($1, 1, $2) ON CONFLICT (owner) DO UPDATE
         SET notes = note_usage.notes + 1, bytes = note_usage.bytes + excluded.bytes",
    );
    add.text("owner", owner).number(bytes).run(connection).await?;
    Ok(())
}

/// Subtracts deleted notes from the usage of their owners.
async fn subtract_usage(connection: &mut AnyConnection, deleted: Vec<AnyRow>) -> Result<()> {
    // Sorted by owner, so that two transactions that change the same rows cannot deadlock.
    let mut owners = BTreeMap::<String, (i64, i64)>::new();
    for row in deleted {
        let row = Row(row);
        let (count, bytes) = owners.entry(row.text("owner")?).or_default();
        *count += 1;
        *bytes = bytes.saturating_add(row.number("bytes")?);
    }
    for (owner, (count, bytes)) in owners {
        let update =
            Statement::new("UPDATE note_usage SET notes = notes - $1, bytes = bytes - $2 WHERE owner = $3");
        update.number(count).number(bytes).text("owner", &owner).run(connection).await?;
    }
    Ok(())
}

/// Returns the ids of the first `limit` rows, and whether there are further rows. Fewer ids are returned if the notes
/// would have more than `bytes` bytes together, but at least one.
fn ids_within_limits(rows: Vec<AnyRow>, limit: usize, bytes: u64) -> Result<(Vec<String>, bool)> {
    let (mut ids, mut total) = (Vec::new(), 0_u64);
    for row in rows {
        total = total.saturating_add(row_bytes(&row)?);
        if ids.len() == limit || (total > bytes && !ids.is_empty()) {
            return Ok((ids, true));
        }
        ids.push(Row(row).text("id")?);
    }
    Ok((ids, false))
}

fn row_bytes(row: &AnyRow) -> Result<u64> {
    use sqlx::Row as _;
    let bytes: i64 = row.try_get("bytes")?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Reads notes by id, oldest first.
async fn read(connection: &mut AnyConnection, ids: &[String]) -> Result<Vec<Note>> {
    let mut notes = Vec::with_capacity(ids.len());
    for ids in ids.chunks(IDS_PER_STATEMENT) {
        let mut parameters = Parameters::default();
        let ids = parameters.texts("id", ids);
        let sql = format!(
            "SELECT id, sandbox_id, command_id, snapshot, text, data, created_at FROM notes
             WHERE id IN ({ids}) ORDER BY id"
        );
        for row in Statement::with_parameters(&sql, parameters).all(connection).await? {
            notes.push(from_row(row)?);
        }
    }
    notes.sort_by(|a: &Note, b: &Note| a.id.cmp(&b.id));
    Ok(notes)
}

/// Converts a size to the type of its column.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn from_row(row: AnyRow) -> Result<Note> {
    let row = Row(row);
    Ok(Note {
        id: row.text("id")?,
        sandbox_id: row.text("sandbox_id")?,
        command_id: row.optional_text("command_id")?,
        snapshot: row.optional_text("snapshot")?,
        text: row.text("text")?,
        data: row.optional_json("data")?,
        created_at: row.number("created_at")?,
    })
}
