//! Table `api_keys`: API keys with their roles and limits. Only hashes of the keys are stored.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::{Database, DatabaseKind};
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::statement::Statement;
use crate::string_enum::string_enum;

string_enum! {
    /// Permissions of an API key.
    pub enum Role {
        /// Full access to the resources of all owners.
        Admin = "admin",
        /// Full access to the owner's resources.
        User = "user",
        /// Read access to the owner's resources.
        ReadOnly = "read_only",
        /// Work of agents on projects that the key is bound to.
        Agent = "agent",
        /// Like [`Self::Agent`], and may resolve reviews of these projects.
        Reviewer = "reviewer",
    }
}

/// Locks the revocation of keys in a transaction on PostgreSQL. SQLite has one writer at a time.
const LOCK_SQL: &str = "SELECT 1 FROM pg_advisory_xact_lock(20, 0)";

/// Separator in the owner of an agent's key. `acme/agents/coder-3f9a1c22b7d0e418` owns the sandboxes and snapshots of
/// keys with one binding, which work for `acme`: `coder` is the first agent of the binding, and the digits are a hash
/// of its projects and agents.
const AGENTS_SEPARATOR: &str = "/agents/";

/// Returns the prefix of the owners of all agents that work for `owner`, such as `acme/agents/`.
pub fn agents_prefix(owner: &str) -> String {
    format!("{owner}{AGENTS_SEPARATOR}")
}

/// Returns the owner for whom an agent works: `acme` for `acme/agents/coder-3f9a1c22b7d0e418`; `None` if `owner` is not
/// that of an agent.
pub fn owner_behind_agent(owner: &str) -> Option<&str> {
    owner.split_once(AGENTS_SEPARATOR).map(|(owner, _)| owner)
}

/// Returns true if a caller with the owner `owner` has access to what `other` owns: to its own things, and to those of
/// the agents that work for it.
pub fn covers_owner(owner: &str, other: &str) -> bool {
    other == owner || owner_behind_agent(other) == Some(owner)
}

/// API key to insert.
#[derive(Debug, Clone, PartialEq)]
pub struct NewApiKey {
    /// Unique id, used in lists and to revoke the key.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Owner whose resources the key gives access to.
    pub owner: String,
    /// Permissions of the key.
    pub role: Role,
    /// BLAKE3 hash of the key: 64 lowercase hexadecimal digits.
    pub hash: String,
    /// Limits of the key, which override the settings of the server, as JSON.
    pub limits: Value,
    /// Projects and agents that the key is bound to; `None` if it has access to everything of its owner.
    pub binding: Option<KeyBinding>,
}

/// Projects and agents that a key is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeyBinding {
    /// Ids of the projects.
    pub projects: Vec<String>,
    /// Names of the agents that the key may act for.
    pub agents: Vec<String>,
}

/// Stored API key.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiKey {
    /// Unique id, used in lists and to revoke the key.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Owner whose resources the key gives access to.
    pub owner: String,
    /// Permissions of the key.
    pub role: Role,
    /// Hash of the key.
    pub hash: String,
    /// Limits of the key, which override the settings of the server, as JSON.
    pub limits: Value,
    /// Projects and agents that the key is bound to; `None` if it has access to everything of its owner.
    pub binding: Option<KeyBinding>,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
    /// Revocation time in milliseconds since 1970; `None` while the key is valid.
    pub revoked_at: Option<i64>,
}

/// Outcome of revoking a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    /// The key is revoked.
    Revoked,
    /// There is no valid key with this id.
    NotFound,
    /// Nothing is changed: without the key, no admin would have one.
    LastAdmin,
}

/// SQL text that selects all columns of rows of the table `api_keys`, for `from_row`. The argument is the rest of the
/// statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, name, owner, role, hash, limits, binding, created_at, revoked_at FROM api_keys ",
            $rest
        )
    };
}

/// Queries on the table `api_keys`.
#[derive(Debug, Clone, Copy)]
pub struct ApiKeys<'c> {
    pub(crate) database: &'c Database,
}

impl ApiKeys<'_> {
    /// Inserts a key. Fails if the id or the hash already exists, or the hash is malformed.
    pub async fn insert(&self, key: &NewApiKey) -> Result<()> {
        if !is_hash(&key.hash) {
            return Err(CatalogError::InvalidHash);
        }
        let limits = key.limits.to_string();
        let binding = key
            .binding
            .as_ref()
            .map(|binding| json!({ "projects": binding.projects, "agents": binding.agents }).to_string());
        let insert = Statement::new(
            "INSERT INTO api_keys (id, name, owner, role, hash, limits, binding, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        );
        let insert = insert.text("id", &key.id).text("name", &key.name).text("owner", &key.owner);
        let insert = insert.text("role", key.role.as_str()).text("hash", &key.hash).text("limits", &limits);
        let insert = insert.optional_text("binding", binding.as_deref());
        let result = insert.number(now()).run(&mut *self.database.connection().await?).await;
        result.map_err(|error| error.unique_key_as_exists("API key", &key.id))?;
        Ok(())
    }

    /// Returns the key with this hash, unless it was revoked.
    pub async fn find_by_hash(&self, hash: &str) -> Result<Option<ApiKey>> {
        let select = Statement::new(select!("WHERE hash = $1 AND revoked_at IS NULL"));
        select
            .text("hash", hash)
            .optional(&mut *self.database.reader().await?)
            .await?
            .map(from_row)
            .transpose()
    }

    /// Returns the key with this id, unless it was revoked.
    pub async fn find_by_id(&self, id: &str) -> Result<Option<ApiKey>> {
        let select = Statement::new(select!("WHERE id = $1 AND revoked_at IS NULL"));
        select.text("id", id).optional(&mut *self.database.reader().await?).await?.map(from_row).transpose()
    }

    /// Returns the keys of an owner, or all of them, oldest first, including revoked ones.
    pub async fn list(&self, owner: Option<&str>) -> Result<Vec<ApiKey>> {
        let select = match owner {
            Some(owner) => {
                Statement::new(select!("WHERE owner = $1 ORDER BY created_at, id")).text("owner", owner)
            }
            None => Statement::new(select!("ORDER BY created_at, id")),
        };
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }

    /// Revokes a key, unless it is the last valid key of an admin.
    pub async fn revoke(&self, id: &str) -> Result<Revocation> {
        let mut transaction = self.database.begin().await?;
        if self.database.kind() == DatabaseKind::Postgres {
            // Of two concurrent revocations, the second one sees the first.
            Statement::new(LOCK_SQL).run(&mut transaction).await?;
        }
        let update = Statement::new(
            "UPDATE api_keys SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL AND (role <> $3 OR EXISTS
             (SELECT 1 FROM api_keys AS other WHERE other.role = $3 AND other.revoked_at IS NULL AND other.id <> $2))",
        );
        let update = update.number(now()).text("id", id).text("role", Role::Admin.as_str());
        if update.run(&mut transaction).await? > 0 {
            transaction.commit().await?;
            return Ok(Revocation::Revoked);
        }
        let valid = Statement::new("SELECT id FROM api_keys WHERE id = $1 AND revoked_at IS NULL");
        let valid = valid.text("id", id).optional(&mut transaction).await?;
        Ok(if valid.is_some() { Revocation::LastAdmin } else { Revocation::NotFound })
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn parse_binding(value: Value) -> Result<KeyBinding> {
    serde_json::from_value(value).map_err(|source| CatalogError::Json { column: "binding", source })
}

fn from_row(row: AnyRow) -> Result<ApiKey> {
    let row = Row(row);
    Ok(ApiKey {
        id: row.text("id")?,
        name: row.text("name")?,
        owner: row.text("owner")?,
        role: row.parsed("role")?,
        hash: row.text("hash")?,
        limits: row.json("limits")?,
        binding: row.optional_json("binding")?.map(parse_binding).transpose()?,
        created_at: row.number("created_at")?,
        revoked_at: row.optional_number("revoked_at")?,
    })
}
