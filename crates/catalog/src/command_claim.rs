//! The table `command_claims`: which request with an idempotency key began which command.

use sqlx::AnyConnection;

use crate::catalog::Catalog;
use crate::clock::now;
use crate::command::{self, NewCommand};
use crate::error::{CatalogError, Result};
use crate::idempotency::NewClaim;
use crate::row::Row;
use crate::statement::Statement;

/// Outcome of [`CommandClaims::insert`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsertedCommand {
    /// The request is new, and its command was written down.
    New,
    /// The same request came before; nothing was written.
    Repeated {
        /// The command that it began then. It may be forgotten by now.
        command_id: String,
    },
}

/// The claims of commands. A key belongs to one owner in one sandbox.
#[derive(Debug, Clone, Copy)]
pub struct CommandClaims<'c> {
    pub(crate) catalog: &'c Catalog,
}

impl CommandClaims<'_> {
    /// Writes a command down for the first request of its key, both or neither. Of several requests at once exactly one
    /// is the first; another request under the same key is refused.
    pub async fn insert(&self, claim: &NewClaim, command: &NewCommand) -> Result<InsertedCommand> {
        let mut transaction = self.catalog.begin().await?;
        let insert = Statement::new(
            "INSERT INTO command_claims (sandbox_id, owner, key, request_hash, command_id, created_at)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (sandbox_id, owner, key) DO NOTHING",
        );
        let insert = insert.text("sandbox_id", &command.sandbox_id).text("owner", &claim.owner);
        let insert = insert.text("key", &claim.key).text("request_hash", &claim.request_hash);
        let inserted = insert.text("command_id", &command.id).number(now()).run(&mut transaction).await;
        if inserted.map_err(|error| error.or_not_found("sandbox", &command.sandbox_id))? == 0 {
            let found = find(&mut transaction, claim, &command.sandbox_id).await?;
            let lost = || CatalogError::NotFound { what: "claim", id: claim.key.clone() };
            return Ok(InsertedCommand::Repeated { command_id: found.ok_or_else(lost)? });
        }
        command::insert(&mut transaction, command).await?;
        transaction.commit().await?;
        Ok(InsertedCommand::New)
    }

    /// The command that the same request began before in that sandbox.
    pub async fn find(&self, claim: &NewClaim, sandbox_id: &str) -> Result<Option<String>> {
        find(&mut *self.catalog.connection().await?, claim, sandbox_id).await
    }

    /// Gives up the claim of a command of that sandbox that never began, so that its request may come again. The claims of
    /// other sandboxes stay.
    pub async fn release(&self, sandbox_id: &str, command_id: &str) -> Result<()> {
        let delete = Statement::new("DELETE FROM command_claims WHERE sandbox_id = $1 AND command_id = $2");
        let delete = delete.text("sandbox_id", sandbox_id).text("command_id", command_id);
        delete.run(&mut *self.catalog.connection().await?).await?;
        Ok(())
    }

    /// Forgets claims made before `time`, in milliseconds since 1970, and returns their number.
    pub async fn forget_before(&self, time: i64) -> Result<u64> {
        let delete = Statement::new("DELETE FROM command_claims WHERE created_at < $1");
        delete.number(time).run(&mut *self.catalog.connection().await?).await
    }
}

async fn find(on: &mut AnyConnection, claim: &NewClaim, sandbox_id: &str) -> Result<Option<String>> {
    let select = Statement::new(
        "SELECT request_hash, command_id FROM command_claims WHERE sandbox_id = $1 AND owner = $2 AND key = $3",
    );
    let select = select.text("sandbox_id", sandbox_id).text("owner", &claim.owner).text("key", &claim.key);
    let Some(row) = select.optional(on).await?.map(Row) else { return Ok(None) };
    if row.text("request_hash")? != claim.request_hash {
        return Err(CatalogError::OtherRequest { key: claim.key.clone() });
    }
    row.text("command_id").map(Some)
}
