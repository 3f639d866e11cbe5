//! The table `idempotency`: which request made which sandbox.

use sqlx::AnyConnection;

use crate::catalog::Catalog;
use crate::clock::now;
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::statement::Statement;

/// A request that is about to make a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewClaim {
    /// What the client sends again with the same request. Each owner has keys of their own.
    pub key: String,
    /// Who sends it.
    pub owner: String,
    /// The hash of the request.
    pub request_hash: String,
}

/// What came of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The request is new: make the sandbox.
    First,
    /// The same request came before.
    Repeated {
        /// The sandbox that it made, or is making.
        sandbox_id: String,
    },
}

/// The claims of a catalog. They are made by [`Sandboxes::insert_once`](crate::Sandboxes::insert_once).
#[derive(Debug, Clone, Copy)]
pub struct Idempotency<'c> {
    pub(crate) catalog: &'c Catalog,
}

impl Idempotency<'_> {
    /// The sandbox that the same request made before, or is making.
    pub async fn find(&self, claim: &NewClaim) -> Result<Option<String>> {
        found(&mut *self.catalog.connection().await?, claim).await
    }

    /// Gives up the claim of a request that came to nothing, so that it may come again.
    pub async fn release(&self, sandbox_id: &str) -> Result<()> {
        let delete = Statement::new("DELETE FROM idempotency WHERE sandbox_id = $1");
        delete.text("sandbox_id", sandbox_id).run(&mut *self.catalog.connection().await?).await?;
        Ok(())
    }

    /// Forgets claims made before `time`, in milliseconds since 1970; how many.
    pub async fn forget_before(&self, time: i64) -> Result<u64> {
        let delete = Statement::new("DELETE FROM idempotency WHERE created_at < $1");
        delete.number(time).run(&mut *self.catalog.connection().await?).await
    }
}

/// Claims a key as part of a transaction. Of several at once exactly one is the first; another request under the
/// same key is refused.
pub(crate) async fn claim(on: &mut AnyConnection, claim: &NewClaim, sandbox_id: &str) -> Result<Claim> {
    let insert = Statement::new(
        "INSERT INTO idempotency (owner, key, request_hash, sandbox_id, created_at)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (owner, key) DO NOTHING",
    );
    let insert = insert.text("owner", &claim.owner).text("key", &claim.key);
    let insert = insert.text("request_hash", &claim.request_hash).text("sandbox_id", sandbox_id);
    if insert.number(now()).run(on).await? > 0 {
        return Ok(Claim::First);
    }
    let sandbox_id = found(on, claim).await?;
    let lost = || CatalogError::NotFound { what: "claim", id: claim.key.clone() };
    Ok(Claim::Repeated { sandbox_id: sandbox_id.ok_or_else(lost)? })
}

async fn found(on: &mut AnyConnection, claim: &NewClaim) -> Result<Option<String>> {
    let select =
        Statement::new("SELECT request_hash, sandbox_id FROM idempotency WHERE owner = $1 AND key = $2");
    let select = select.text("owner", &claim.owner).text("key", &claim.key);
    let Some(row) = select.optional(on).await?.map(Row) else { return Ok(None) };
    if row.text("request_hash")? != claim.request_hash {
        return Err(CatalogError::OtherRequest { key: claim.key.clone() });
    }
    row.text("sandbox_id").map(Some)
}
