//! Table `snapshots`: owners of snapshots. Their content is in the store of a server.

mod measurement;
mod record;

use std::collections::HashSet;

use serde_json::json;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::api_key::{covers_owner, owner_behind_agent};
use crate::clock::now;
use crate::database::Database;
use crate::error::Result;
use crate::event::{EventKind, NewEvent};
use crate::note;
use crate::recorder::Recorder;
use crate::row::Row;
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement, tuples};
use crate::unmeasured_bytes::add_deleted_bytes;

pub use record::Transactions;

/// Number of columns of the table `snapshots` that an insertion sets.
const SNAPSHOT_COLUMNS: usize = 6;

/// Ownership of a snapshot. A snapshot may have several owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedSnapshot {
    /// Id of the snapshot in the store.
    pub id: String,
    /// One of the owners of the snapshot.
    pub owner: String,
    /// Sandbox in which the snapshot was created; `None` if it was created outside a sandbox.
    pub sandbox: Option<String>,
    /// Time at which the owner was added, in milliseconds since 1970.
    pub created_at: i64,
}

/// Origin of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotOrigin {
    /// Sandbox in which the snapshot was created; `None` if it was created outside a sandbox.
    pub sandbox: Option<String>,
    /// Id of the round of the workspace ([`NewCompletion::round_id`](crate::NewCompletion::round_id)) in which the
    /// snapshot was made. `None` without a project, and for snapshots of earlier versions. The column is named
    /// `workspace`.
    pub round_id: Option<String>,
}

/// Order of the snapshots of an owner, which is the order of their ids: an id begins with the creation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotOrder {
    /// Newest first.
    Newest,
    /// Oldest first.
    Oldest,
}

/// SQL text that selects all columns of rows of the table `snapshots`, for `from_row`. The argument is the rest of the
/// statement.
macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT id, owner, sandbox, created_at FROM snapshots ", $rest)
    };
}

/// Queries on the table `snapshots`.
#[derive(Debug, Clone, Copy)]
pub struct Snapshots<'c> {
    pub(crate) database: &'c Database,
    pub(crate) recorder: &'c Recorder,
}

/// Owner of a snapshot to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewSnapshotRow {
    pub(crate) owner: String,
    pub(crate) id: String,
    pub(crate) origin: SnapshotOrigin,
    /// Growth of the store by the snapshot.
    pub(crate) bytes: i64,
}

impl NewSnapshotRow {
    /// Returns the event about the new row.
    pub(crate) fn created_event(&self) -> NewEvent {
        let mut data =
            json!({ "snapshotId": self.id, "sandboxId": self.origin.sandbox, "owner": self.owner });
        // Content that an agent shares with files which it may not see adds no bytes, which would reveal them.
        if owner_behind_agent(&self.owner).is_none() {
            data["bytes"] = self.bytes.into();
        }
        NewEvent { kind: EventKind::SnapshotCreated, data }
    }
}

impl Snapshots<'_> {
    /// Adds an owner to a snapshot, and inserts the event `snapshot.created` in the same transaction. `bytes` is the
    /// growth of the store by this snapshot. Notes of the sandbox that belong to no snapshot yet are attached to it.
    /// Adding the same owner again has no effect.
    pub async fn add_owner(&self, owner: &str, id: &str, sandbox: Option<&str>, bytes: u64) -> Result<()> {
        let origin = SnapshotOrigin { sandbox: sandbox.map(str::to_owned), round_id: None };
        self.add_of_origin(owner, id, &origin, bytes).await
    }

    /// Adds an owner like [`Self::add_owner`], to the snapshot of a workspace. Snapshots that get their owners at the same
    /// time share a transaction (`recorder.rs`).
    pub async fn add_of_origin(
        &self,
        owner: &str,
        id: &str,
        origin: &SnapshotOrigin,
        bytes: u64,
    ) -> Result<()> {
        let (owner, id, origin) = (owner.to_owned(), id.to_owned(), origin.clone());
        self.recorder.add_snapshot(NewSnapshotRow { owner, id, origin, bytes: signed(bytes) }).await
    }

    /// Counts the snapshots of an owner.
    pub async fn count(&self, owner: &str) -> Result<u64> {
        let count = Statement::new("SELECT COUNT(*) AS total FROM snapshots WHERE owner = $1");
        let row = count.text("owner", owner).one(&mut *self.database.reader().await?).await?;
        Row(row).count("total")
    }

    /// Returns true if `owner` is one of the owners of the snapshot.
    pub async fn owns(&self, owner: &str, id: &str) -> Result<bool> {
        let select = Statement::new("SELECT id FROM snapshots WHERE owner = $1 AND id = $2");
        let select = select.text("owner", owner).text("id", id);
        Ok(select.optional(&mut *self.database.reader().await?).await?.is_some())
    }

    /// Returns the origin of a snapshot of an owner; `None` if the owner does not have the snapshot.
    pub async fn origin(&self, owner: &str, id: &str) -> Result<Option<SnapshotOrigin>> {
        let select = Statement::new("SELECT sandbox, workspace FROM snapshots WHERE owner = $1 AND id = $2");
        let select = select.text("owner", owner).text("id", id);
        let row = select.optional(&mut *self.database.reader().await?).await?.map(Row);
        row.map(|row| {
            Ok(SnapshotOrigin {
                sandbox: row.optional_text("sandbox")?,
                round_id: row.optional_text("workspace")?,
            })
        })
        .transpose()
    }

    /// Returns true if `owner` is one of the owners of the snapshot; with `None`, if it has any owner.
    pub async fn is_owned(&self, owner: Option<&str>, id: &str) -> Result<bool> {
        if let Some(owner) = owner {
            return self.owns(owner, id).await;
        }
        let select = Statement::new("SELECT id FROM snapshots WHERE id = $1 LIMIT 1").text("id", id);
        Ok(select.optional(&mut *self.database.reader().await?).await?.is_some())
    }

    /// Returns those of the ids that an owner may read: its own, and those of its agents
    /// ([`covers_owner`](crate::covers_owner)).
    pub async fn readable(&self, owner: &str, ids: &[String]) -> Result<HashSet<String>> {
        let mut readable = HashSet::new();
        for ids in ids.chunks(IDS_PER_STATEMENT) {
            let mut parameters = Parameters::default();
            let ids = parameters.texts("id", ids);
            let sql = format!("SELECT id, owner FROM snapshots WHERE id IN ({ids})");
            let select = Statement::with_parameters(&sql, parameters);
            for row in select.all(&mut *self.database.reader().await?).await?.into_iter().map(Row) {
                if covers_owner(owner, &row.text("owner")?) {
                    readable.insert(row.text("id")?);
                }
            }
        }
        Ok(readable)
    }

    /// Returns those of the ids that belong to an owner and were created in a sandbox.
    pub async fn made_in(&self, owner: &str, sandbox: &str, ids: &[String]) -> Result<HashSet<String>> {
        let mut made = HashSet::new();
        for ids in ids.chunks(IDS_PER_STATEMENT) {
            let mut parameters = Parameters::default();
            let (owner, sandbox) = (parameters.text("owner", owner), parameters.text("sandbox", sandbox));
            let ids = parameters.texts("id", ids);
            let sql = format!(
                "SELECT id FROM snapshots WHERE owner = ${owner} AND sandbox = ${sandbox} AND id IN ({ids})"
            );
            let select = Statement::with_parameters(&sql, parameters);
            for row in select.all(&mut *self.database.reader().await?).await? {
                made.insert(Row(row).text("id")?);
            }
        }
        Ok(made)
    }

    /// Returns a page of the snapshots of an owner, or of all owners. `cursor` is the last snapshot of the
    /// previous page. Newest first: an id begins with the creation time.
    pub async fn list(
        &self,
        owner: Option<&str>,
        cursor: Option<&OwnedSnapshot>,
        limit: u32,
    ) -> Result<Vec<OwnedSnapshot>> {
        let mut parameters = Parameters::default();
        let mut all = Vec::new();
        if let Some(owner) = owner {
            all.push(format!("owner = ${}", parameters.text("owner", owner)));
        }
        if let Some(last) = cursor {
            let (id, owner) = (parameters.text("id", &last.id), parameters.text("owner", &last.owner));
            all.push(format!("(id < ${id} OR (id = ${id} AND owner > ${owner}))"));
        }
        let condition = if all.is_empty() { String::new() } else { format!("WHERE {}", all.join(" AND ")) };
        let limit = parameters.number(limit.into());
        let select = select!("");
        let sql = format!("{select} {condition} ORDER BY id DESC, owner LIMIT ${limit}");
        let select = Statement::with_parameters(&sql, parameters);
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }

    /// Returns ids of an owner's snapshots that are after `cursor` in this order, without the first `skip`, at
    /// most `limit`.
    pub async fn ids(
        &self,
        owner: &str,
        order: SnapshotOrder,
        cursor: Option<&str>,
        skip: u64,
        limit: u32,
    ) -> Result<Vec<String>> {
        let (after, direction) = match order {
            SnapshotOrder::Newest => ("<", "DESC"),
            SnapshotOrder::Oldest => (">", "ASC"),
        };
        let mut parameters = Parameters::default();
        let mut condition = format!("owner = ${}", parameters.text("owner", owner));
        if let Some(cursor) = cursor {
            condition.push_str(&format!(" AND id {after} ${}", parameters.text("id", cursor)));
        }
        let limit = parameters.number(limit.into());
        let skip = parameters.number(i64::try_from(skip).unwrap_or(i64::MAX));
        let sql = format!(
            "SELECT id FROM snapshots WHERE {condition} ORDER BY id {direction} LIMIT ${limit} OFFSET ${skip}"
        );
        let rows =
            Statement::with_parameters(&sql, parameters).all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(|row| Row(row).text("id")).collect()
    }

    /// Removes an owner, or all owners, from a snapshot, with their notes. Returns whether it still has another owner.
    pub async fn remove_owner(&self, owner: Option<&str>, id: &str) -> Result<bool> {
        let mut transaction = self.database.begin().await?;
        // If two owners remove it at the same time, the second has to see that the first did.
        let lock_rows = Statement::new("UPDATE snapshots SET created_at = created_at WHERE id = $1");
        lock_rows.text("id", id).run(&mut transaction).await?;
        keep_counting(&mut transaction, owner, id).await?;
        let delete = match owner {
            Some(owner) => Statement::new("DELETE FROM snapshots WHERE id = $1 AND owner = $2")
                .text("id", id)
                .text("owner", owner),
            None => Statement::new("DELETE FROM snapshots WHERE id = $1").text("id", id),
        };
        delete.run(&mut transaction).await?;
        note::delete_of_snapshot(&mut transaction, owner, id).await?;
        let count = Statement::new("SELECT COUNT(*) AS total FROM snapshots WHERE id = $1");
        let owners = Row(count.text("id", id).one(&mut transaction).await?).count("total")?;
        transaction.commit().await?;
        Ok(owners > 0)
    }
}

/// Inserts owners of snapshots as part of a transaction. Returns owner and id of the new rows.
pub(crate) async fn insert_all(
    connection: &mut AnyConnection,
    rows: &[&NewSnapshotRow],
) -> Result<HashSet<(String, String)>> {
    if rows.is_empty() {
        return Ok(HashSet::new());
    }
    let sql = format!(
        "INSERT INTO snapshots (owner, id, sandbox, workspace, created_at, bytes) VALUES {}
         ON CONFLICT (owner, id) DO NOTHING RETURNING owner, id",
        tuples(rows.len(), SNAPSHOT_COLUMNS)
    );
    let (time, mut insert) = (now(), Statement::new(&sql));
    for row in rows {
        insert = insert
            .text("owner", &row.owner)
            .text("id", &row.id)
            .optional_text("sandbox", row.origin.sandbox.as_deref())
            .optional_text("workspace", row.origin.round_id.as_deref())
            .number(time)
            .number(row.bytes);
    }
    let inserted = insert.all(connection).await?.into_iter().map(Row);
    inserted.map(|row| Ok((row.text("owner")?, row.text("id")?))).collect()
}

/// Lets the bytes of a snapshot that is removed count until they are measured again: another snapshot or a project may
/// have the same content, which then stays in the store.
async fn keep_counting(connection: &mut AnyConnection, owner: Option<&str>, id: &str) -> Result<()> {
    let select =
        Statement::new("SELECT owner, bytes FROM snapshots WHERE id = $1 AND bytes > 0 ORDER BY owner");
    for row in select.text("id", id).all(connection).await? {
        let row = Row(row);
        let row_owner = row.text("owner")?;
        if owner.is_none_or(|owner| owner == row_owner) {
            add_deleted_bytes(connection, &row_owner, row.number("bytes")?).await?;
        }
    }
    Ok(())
}

/// Converts a size to the type of its column.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn from_row(row: AnyRow) -> Result<OwnedSnapshot> {
    let row = Row(row);
    Ok(OwnedSnapshot {
        id: row.text("id")?,
        owner: row.text("owner")?,
        sandbox: row.optional_text("sandbox")?,
        created_at: row.number("created_at")?,
    })
}
