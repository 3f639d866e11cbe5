//! The table `idempotency`: which request made which sandbox.

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
    /// The sandbox it will make.
    pub sandbox_id: String,
}

/// What came of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The request is new: make the sandbox.
    First,
    /// The same request came before.
    Repeated {
        /// The sandbox that it made, or is making.
        sandbox_id: String,
    },
}

/// The claims of a catalog.
#[derive(Debug, Clone, Copy)]
pub struct Idempotency<'c> {
    pub(crate) catalog: &'c Catalog,
}

impl Idempotency<'_> {
    /// Claims a key. Of several at once exactly one is the first; another request under the same key is refused.
    pub async fn claim(&self, claim: &NewClaim) -> Result<Claim> {
        let mut transaction = self.catalog.begin().await?;
        let insert = Statement::new(
            "INSERT INTO idempotency (owner, key, request_hash, sandbox_id, created_at)
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (owner, key) DO NOTHING",
        );
        let insert = insert.text("owner", &claim.owner).text("key", &claim.key);
        let insert = insert.text("request_hash", &claim.request_hash).text("sandbox_id", &claim.sandbox_id);
        let first = insert.number(now()).run(&mut transaction).await? > 0;
        if first {
            transaction.commit().await?;
            return Ok(Claim::First);
        }
        let select =
            Statement::new("SELECT request_hash, sandbox_id FROM idempotency WHERE owner = $1 AND key = $2");
        let select = select.text("owner", &claim.owner).text("key", &claim.key);
        let row = Row(select.one(&mut transaction).await?);
        if row.text("request_hash")? != claim.request_hash {
            return Err(CatalogError::OtherRequest { key: claim.key.clone() });
        }
        Ok(Claim::Repeated { sandbox_id: row.text("sandbox_id")? })
    }
}
