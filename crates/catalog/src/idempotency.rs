//! Table `idempotency`: idempotency keys of requests that create sandboxes.

use sqlx::AnyConnection;

use crate::clock::now;
use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::statement::Statement;

/// Idempotency key to claim, and the request that it identifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyClaim {
    /// Key that the client sends with each attempt. Keys are scoped to an owner.
    pub key: String,
    /// Owner that sends the request.
    pub owner: String,
    /// Hash of the request, to detect a different request with the same key.
    pub request_hash: String,
}

/// Result of [`claim`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimResult {
    /// First request with this key: create the sandbox.
    New,
    /// Repeated request. The sandbox of the first request may not be ready yet.
    Existing { sandbox_id: String },
}

/// Queries on the table `idempotency`. [`Sandboxes::insert_once`](crate::Sandboxes::insert_once) inserts the
/// rows.
#[derive(Debug, Clone, Copy)]
pub struct Idempotency<'c> {
    pub(crate) database: &'c Database,
}

impl Idempotency<'_> {
    /// Returns the id of the sandbox of an earlier request with the same key and content. It may not be ready yet.
    pub async fn find(&self, claim: &IdempotencyClaim) -> Result<Option<String>> {
        find(&mut *self.database.reader().await?, claim).await
    }

    /// Deletes the claim of a request that failed, so that the client can retry.
    pub async fn release(&self, sandbox_id: &str) -> Result<()> {
        let delete = Statement::new("DELETE FROM idempotency WHERE sandbox_id = $1");
        delete.text("sandbox_id", sandbox_id).run(&mut *self.database.connection().await?).await?;
        Ok(())
    }

    /// Deletes claims created before `time`, in milliseconds since 1970. Returns their number.
    pub async fn delete_before(&self, time: i64) -> Result<u64> {
        let delete = Statement::new("DELETE FROM idempotency WHERE created_at < $1");
        delete.number(time).run(&mut *self.database.connection().await?).await
    }
}

/// Claims a key for a sandbox as part of a transaction. Exactly one of several identical concurrent requests gets
/// `New`, the others `Existing`; a different request with the same key fails.
pub(crate) async fn claim(
    connection: &mut AnyConnection,
    claim: &IdempotencyClaim,
    sandbox_id: &str,
) -> Result<ClaimResult> {
    let insert = Statement::new(
        "INSERT INTO idempotency (owner, key, request_hash, sandbox_id, created_at)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (owner, key) DO NOTHING",
    );
    let insert = insert.text("owner", &claim.owner).text("key", &claim.key);
    let insert = insert.text("request_hash", &claim.request_hash).text("sandbox_id", sandbox_id);
    if insert.number(now()).run(connection).await? > 0 {
        return Ok(ClaimResult::New);
    }
    let sandbox_id = find(connection, claim).await?;
    let missing = || CatalogError::NotFound { what: "idempotency key", id: claim.key.clone() };
    Ok(ClaimResult::Existing { sandbox_id: sandbox_id.ok_or_else(missing)? })
}

async fn find(connection: &mut AnyConnection, claim: &IdempotencyClaim) -> Result<Option<String>> {
    let select =
        Statement::new("SELECT request_hash, sandbox_id FROM idempotency WHERE owner = $1 AND key = $2");
    let select = select.text("owner", &claim.owner).text("key", &claim.key);
    let Some(row) = select.optional(connection).await?.map(Row) else { return Ok(None) };
    if row.text("request_hash")? != claim.request_hash {
        return Err(CatalogError::IdempotencyConflict { key: claim.key.clone() });
    }
    row.text("sandbox_id").map(Some)
}
