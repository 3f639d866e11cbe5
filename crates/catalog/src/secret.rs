//! Table `secrets`: random values that all servers of the catalog share.

use crate::clock::now;
use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::statement::Statement;

/// Queries on the table `secrets`.
#[derive(Debug, Clone, Copy)]
pub struct Secrets<'c> {
    pub(crate) database: &'c Database,
}

impl Secrets<'_> {
    /// Returns the secret with this name, or stores `candidate` and returns it. Concurrent callers, also of other
    /// processes, all get the same value.
    pub async fn get_or_insert(&self, name: &str, candidate: &str) -> Result<String> {
        let mut connection = self.database.connection().await?;
        let insert = Statement::new(
            "INSERT INTO secrets (name, value, created_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING",
        );
        insert.text("name", name).text("value", candidate).number(now()).run(&mut connection).await?;
        // A secret is never changed, so whatever was inserted first is read here.
        let select = Statement::new("SELECT value FROM secrets WHERE name = $1").text("name", name);
        let row = select.optional(&mut connection).await?;
        row.map(Row)
            .ok_or_else(|| CatalogError::NotFound { what: "secret", id: name.to_owned() })?
            .text("value")
    }
}
