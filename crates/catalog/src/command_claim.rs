//! Table `command_claims`: idempotency keys of requests that start commands.

use sqlx::AnyConnection;

use crate::clock::now;
use crate::command::{self, NewCommand};
use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::idempotency::IdempotencyClaim;
use crate::row::Row;
use crate::statement::Statement;

/// Result of [`CommandClaims::insert`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandInsertion {
    /// First request with this key; the command was inserted.
    New,
    /// Repeated request; nothing was inserted.
    Existing {
        /// Command of the first request. It may have been deleted since.
        command_id: String,
    },
}

/// Queries on the table `command_claims`. A key is scoped to an owner and a sandbox.
#[derive(Debug, Clone, Copy)]
pub struct CommandClaims<'c> {
    pub(crate) database: &'c Database,
}

impl CommandClaims<'_> {
    /// Inserts a command and the claim of its idempotency key in one transaction, if the key is new. Exactly one
    /// of several identical concurrent requests gets `New`, the others `Existing`; a different request with the
    /// same key fails.
    pub async fn insert(&self, claim: &IdempotencyClaim, command: &NewCommand) -> Result<CommandInsertion> {
        let mut transaction = self.database.begin().await?;
        let insert = Statement::new(
            "INSERT INTO command_claims (sandbox_id, owner, key, request_hash, command_id, created_at)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (sandbox_id, owner, key) DO NOTHING",
        );
        let insert = insert.text("sandbox_id", &command.sandbox_id).text("owner", &claim.owner);
        let insert = insert.text("key", &claim.key).text("request_hash", &claim.request_hash);
        let inserted = insert.text("command_id", &command.id).number(now()).run(&mut transaction).await;
        if inserted.map_err(|error| error.foreign_key_as_not_found("sandbox", &command.sandbox_id))? == 0 {
            let found = find(&mut transaction, claim, &command.sandbox_id).await?;
            let missing = || CatalogError::NotFound { what: "idempotency key", id: claim.key.clone() };
            return Ok(CommandInsertion::Existing { command_id: found.ok_or_else(missing)? });
        }
        command::insert(&mut transaction, command).await?;
        transaction.commit().await?;
        Ok(CommandInsertion::New)
    }

    /// Returns the id of the command that an earlier request with the same key and content started in this sandbox.
    pub async fn find(&self, claim: &IdempotencyClaim, sandbox_id: &str) -> Result<Option<String>> {
        find(&mut *self.database.reader().await?, claim, sandbox_id).await
    }

    /// Deletes the claim of a command that was not started, so that the request can be repeated. Claims of
    /// other sandboxes are not affected.
    pub async fn release(&self, sandbox_id: &str, command_id: &str) -> Result<()> {
        let delete = Statement::new("DELETE FROM command_claims WHERE sandbox_id = $1 AND command_id = $2");
        let delete = delete.text("sandbox_id", sandbox_id).text("command_id", command_id);
        delete.run(&mut *self.database.connection().await?).await?;
        Ok(())
    }

    /// Deletes claims created before `time`, in milliseconds since 1970. Returns their number.
    pub async fn delete_before(&self, time: i64) -> Result<u64> {
        let delete = Statement::new("DELETE FROM command_claims WHERE created_at < $1");
        delete.number(time).run(&mut *self.database.connection().await?).await
    }
}

async fn find(
    connection: &mut AnyConnection,
    claim: &IdempotencyClaim,
    sandbox_id: &str,
) -> Result<Option<String>> {
    let select = Statement::new(
        "SELECT request_hash, command_id FROM command_claims WHERE sandbox_id = $1 AND owner = $2 AND key = $3",
    );
    let select = select.text("sandbox_id", sandbox_id).text("owner", &claim.owner).text("key", &claim.key);
    let Some(row) = select.optional(connection).await?.map(Row) else { return Ok(None) };
    if row.text("request_hash")? != claim.request_hash {
        return Err(CatalogError::IdempotencyConflict { key: claim.key.clone() });
    }
    row.text("command_id").map(Some)
}
