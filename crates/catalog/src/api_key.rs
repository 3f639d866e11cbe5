//! The table `api_keys`: who may do what. Only the hashes of the keys are here.

use serde_json::Value;
use sqlx::any::AnyRow;

use crate::catalog::Catalog;
use crate::clock::now;
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::statement::Statement;
use crate::words::words;

words! {
    /// What the holder of a key may do.
    pub enum Role {
        /// Everything, with what belongs to anyone.
        Admin = "admin",
        /// Everything with what is their own.
        User = "user",
        /// Look at what is their own.
        ReadOnly = "read_only",
    }
}

/// A key to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct NewApiKey {
    /// Names it in lists, and when it is revoked.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Whose sandboxes it gives access to.
    pub owner: String,
    /// What its holder may do.
    pub role: Role,
    /// The hash of the key: 64 hexadecimal digits in lower case.
    pub hash: String,
    /// What its holder may use.
    pub limits: Value,
}

/// A key.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiKey {
    /// Names it in lists, and when it is revoked.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Whose sandboxes it gives access to.
    pub owner: String,
    /// What its holder may do.
    pub role: Role,
    /// The hash of the key.
    pub hash: String,
    /// What its holder may use.
    pub limits: Value,
    /// When it was made, in milliseconds since 1970.
    pub created_at: i64,
    /// When it was revoked.
    pub revoked_at: Option<i64>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT id, name, owner, role, hash, limits, created_at, revoked_at FROM api_keys ", $rest)
    };
}

/// The keys of a catalog.
#[derive(Debug, Clone, Copy)]
pub struct ApiKeys<'c> {
    pub(crate) catalog: &'c Catalog,
}

impl ApiKeys<'_> {
    /// Keeps a key.
    pub async fn insert(&self, key: &NewApiKey) -> Result<()> {
        if !is_hash(&key.hash) {
            return Err(CatalogError::NotAHash);
        }
        let limits = key.limits.to_string();
        let insert = Statement::new(
            "INSERT INTO api_keys (id, name, owner, role, hash, limits, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        );
        let insert = insert.text("id", &key.id).text("name", &key.name).text("owner", &key.owner);
        let insert = insert.text("role", key.role.as_str()).text("hash", &key.hash).text("limits", &limits);
        let done = insert.number(now()).run(&mut *self.catalog.connection().await?).await;
        done.map_err(|error| error.or_exists("API key", &key.id))?;
        Ok(())
    }

    /// The key of that hash, unless it was revoked.
    pub async fn find_by_hash(&self, hash: &str) -> Result<Option<ApiKey>> {
        let select = Statement::new(select!("WHERE hash = $1 AND revoked_at IS NULL"));
        select
            .text("hash", hash)
            .optional(&mut *self.catalog.connection().await?)
            .await?
            .map(read)
            .transpose()
    }

    /// The keys of an owner, or all, oldest first, the revoked ones too.
    pub async fn list(&self, owner: Option<&str>) -> Result<Vec<ApiKey>> {
        let select = match owner {
            Some(owner) => {
                Statement::new(select!("WHERE owner = $1 ORDER BY created_at, id")).text("owner", owner)
            }
            None => Statement::new(select!("ORDER BY created_at, id")),
        };
        select.all(&mut *self.catalog.connection().await?).await?.into_iter().map(read).collect()
    }

    /// Revokes a key. False when there is none that was not revoked before.
    pub async fn revoke(&self, id: &str) -> Result<bool> {
        let update =
            Statement::new("UPDATE api_keys SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL");
        Ok(update.number(now()).text("id", id).run(&mut *self.catalog.connection().await?).await? > 0)
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn read(row: AnyRow) -> Result<ApiKey> {
    let row = Row(row);
    Ok(ApiKey {
        id: row.text("id")?,
        name: row.text("name")?,
        owner: row.text("owner")?,
        role: row.word("role")?,
        hash: row.text("hash")?,
        limits: row.json("limits")?,
        created_at: row.number("created_at")?,
        revoked_at: row.optional_number("revoked_at")?,
    })
}
