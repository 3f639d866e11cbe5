//! Table `episodes`: owners of episodes. The episodes themselves are in the store of a server. An episode is one step
//! of a search over snapshots: an action, its reward, and the resulting snapshot. The column `node` has the id of the
//! server whose store has the episode.

use std::collections::{BTreeMap, HashSet};

use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::{Database, DatabaseKind};
use crate::error::Result;
use crate::row::Row;
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement, owned_ids};

/// Statement that serialises transactions of the same owner on PostgreSQL, so that concurrent insertions
/// together stay within the quota. 10 identifies the locks of this table; other tables use other numbers.
const LOCK_SQL: &str = "SELECT 1 FROM pg_advisory_xact_lock(10, hashtext($1))";

/// Episode to insert.
#[derive(Debug, Clone, Copy)]
pub struct NewEpisode<'a> {
    /// Unique id within its owner.
    pub id: &'a str,
    /// Owner of the episode.
    pub owner: &'a str,
    /// Server whose store contains the episode.
    pub server: &'a str,
    /// Size in that store, in bytes.
    pub bytes: u64,
    /// Id of the previous step; `None` for the first step of a search.
    pub parent: Option<&'a str>,
}

/// Current number and total size of an owner's episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpisodeUsage {
    /// Number of episodes.
    pub count: u64,
    /// Total size in bytes.
    pub bytes: u64,
}

/// Maximum number and total size of an owner's episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpisodeQuota {
    /// Maximum number of episodes.
    pub count: u64,
    /// Maximum total size in bytes.
    pub bytes: u64,
}

/// Result of [`Episodes::insert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpisodeInsertion {
    /// The episode is in the table.
    Done,
    /// The episode would exceed the quota and was not inserted. Contains the owner's current usage.
    QuotaExceeded(EpisodeUsage),
}

/// Queries on the table `episodes`.
#[derive(Debug, Clone, Copy)]
pub struct Episodes<'c> {
    pub(crate) database: &'c Database,
}

impl Episodes<'_> {
    /// Inserts an episode, if its owner stays within `quota`. Inserting it again changes nothing, but returns
    /// [`EpisodeInsertion::QuotaExceeded`] if counting it twice would exceed the quota.
    pub async fn insert(
        &self,
        new: &NewEpisode<'_>,
        quota: Option<EpisodeQuota>,
    ) -> Result<EpisodeInsertion> {
        let mut transaction = self.database.begin().await?;
        if let Some(quota) = quota {
            if self.database.kind() == DatabaseKind::Postgres {
                Statement::new(LOCK_SQL).text("owner", new.owner).run(&mut transaction).await?;
            }
            let usage = usage(&mut transaction, new.owner).await?;
            if usage.count >= quota.count || usage.bytes.saturating_add(new.bytes) > quota.bytes {
                return Ok(EpisodeInsertion::QuotaExceeded(usage));
            }
        }
        let root = match new.parent {
            Some(parent) => root(&mut transaction, parent).await?,
            None => new.id.to_owned(),
        };
        let insert = Statement::new(
            "INSERT INTO episodes (owner, id, created_at, bytes, node, root) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (owner, id) DO NOTHING",
        );
        let bytes = i64::try_from(new.bytes).unwrap_or(i64::MAX);
        let insert = insert.text("owner", new.owner).text("id", new.id).number(now()).number(bytes);
        if insert.text("server", new.server).text("root", &root).run(&mut transaction).await? > 0 {
            let add_usage = Statement::new(
                "INSERT INTO episode_usage (owner, episodes, bytes) VALUES ($1, 1, $2) ON CONFLICT (owner) DO UPDATE
                 SET episodes = episode_usage.episodes + 1, bytes = episode_usage.bytes + excluded.bytes",
            );
            add_usage.text("owner", new.owner).number(bytes).run(&mut transaction).await?;
        }
        transaction.commit().await?;
        Ok(EpisodeInsertion::Done)
    }

    /// Returns the usage of an owner; zero for an owner without episodes.
    pub async fn usage(&self, owner: &str) -> Result<EpisodeUsage> {
        usage(&mut *self.database.reader().await?, owner).await
    }

    /// Returns at most `limit` ids greater than `cursor` of episodes in the store of a server, in ascending
    /// order.
    pub async fn ids_of_server(&self, server: &str, cursor: &str, limit: u32) -> Result<Vec<String>> {
        let select =
            Statement::new("SELECT id FROM episodes WHERE node = $1 AND id > $2 ORDER BY id LIMIT $3");
        let select = select.text("server", server).text("id", cursor).number(limit.into());
        let rows = select.all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(|row| Row(row).text("id")).collect()
    }

    /// Returns the subset of `ids` that belongs to the owner.
    pub async fn owned(&self, owner: &str, ids: &[String]) -> Result<HashSet<String>> {
        owned_ids(self.database, "episodes", owner, ids).await
    }

    /// Deletes episodes of all owners. With `server`, only those in the store of that server, and those of earlier
    /// versions, which did not record the server (`node` is empty).
    pub async fn remove(&self, server: Option<&str>, ids: &[String]) -> Result<()> {
        for ids in ids.chunks(IDS_PER_STATEMENT) {
            let mut parameters = Parameters::default();
            let of_server = match server {
                Some(server) => format!("node IN (${}, '') AND", parameters.text("server", server)),
                None => String::new(),
            };
            let ids = parameters.texts("id", ids);
            let sql = format!("DELETE FROM episodes WHERE {of_server} id IN ({ids}) RETURNING owner, bytes");
            let mut transaction = self.database.begin().await?;
            let removed = Statement::with_parameters(&sql, parameters).all(&mut transaction).await?;
            subtract_usage(&mut transaction, removed).await?;
            transaction.commit().await?;
        }
        Ok(())
    }
}

/// Returns the first step of the search that an episode belongs to; an empty text for an episode of an earlier version,
/// which did not record it.
async fn root(connection: &mut AnyConnection, id: &str) -> Result<String> {
    let select = Statement::new("SELECT root FROM episodes WHERE id = $1 LIMIT 1").text("id", id);
    let row = select.optional(connection).await?;
    Ok(row.map(|row| Row(row).text("root")).transpose()?.unwrap_or_default())
}

async fn usage(connection: &mut AnyConnection, owner: &str) -> Result<EpisodeUsage> {
    let select = Statement::new("SELECT episodes, bytes FROM episode_usage WHERE owner = $1");
    let Some(row) = select.text("owner", owner).optional(connection).await? else {
        return Ok(EpisodeUsage { count: 0, bytes: 0 });
    };
    let row = Row(row);
    Ok(EpisodeUsage { count: row.count("episodes")?, bytes: row.count("bytes")? })
}

/// Subtracts deleted episodes from the usage of their owners.
async fn subtract_usage(connection: &mut AnyConnection, removed: Vec<AnyRow>) -> Result<()> {
    // Sorted by owner, so that two transactions that change the same rows cannot deadlock.
    let mut owners = BTreeMap::<String, (i64, i64)>::new();
    for row in removed {
        let row = Row(row);
        let (count, bytes) = owners.entry(row.text("owner")?).or_default();
        *count += 1;
        *bytes = bytes.saturating_add(row.number("bytes")?);
    }
    for (owner, (count, bytes)) in owners {
        let update = Statement::new(
            "UPDATE episode_usage SET episodes = episodes - $1, bytes = bytes - $2 WHERE owner = $3",
        );
        update.number(count).number(bytes).text("owner", &owner).run(connection).await?;
    }
    Ok(())
}
