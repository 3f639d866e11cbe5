//! Migrations of the schema.

use sqlx::AnyConnection;

use crate::clock::now;
use crate::database::{Database, DatabaseKind};
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::statement::{Statement, run_script};

/// Migration that only PostgreSQL needs. SQLite records its version alone.
const EVENT_QUEUE: &str = include_str!("../migrations/0027_event_queue.sql");

/// Migrations in order. The version of a migration is its position in this list, counted from 1, and not the number in
/// its name (there are no files 0006 to 0009). A released migration is never changed: append a new one.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_first.sql"),
    include_str!("../migrations/0002_node.sql"),
    include_str!("../migrations/0003_snapshots.sql"),
    include_str!("../migrations/0004_command_claims.sql"),
    include_str!("../migrations/0005_unique_name.sql"),
    include_str!("../migrations/0010_episodes.sql"),
    include_str!("../migrations/0011_episode_sizes.sql"),
    include_str!("../migrations/0012_episode_usage.sql"),
    include_str!("../migrations/0013_event_indexes.sql"),
    include_str!("../migrations/0014_snapshot_sizes.sql"),
    include_str!("../migrations/0015_secrets.sql"),
    include_str!("../migrations/0016_event_owners.sql"),
    include_str!("../migrations/0017_command_arguments.sql"),
    include_str!("../migrations/0018_pause.sql"),
    include_str!("../migrations/0019_lineage.sql"),
    include_str!("../migrations/0020_template_steps.sql"),
    include_str!("../migrations/0021_projects.sql"),
    include_str!("../migrations/0022_bound_keys.sql"),
    include_str!("../migrations/0023_project_quota.sql"),
    include_str!("../migrations/0024_agent_workspaces.sql"),
    include_str!("../migrations/0025_snapshot_workspaces.sql"),
    include_str!("../migrations/0026_workspace_rebases.sql"),
    EVENT_QUEUE,
];

const CREATE_VERSIONS_TABLE_SQL: &str = "CREATE TABLE IF NOT EXISTS schema_versions (
    version BIGINT PRIMARY KEY,
    applied_at BIGINT NOT NULL
)";

/// Statement that serialises migrations on PostgreSQL. The key is arbitrary, but must not change.
const LOCK_SQL: &str = "SELECT 1 FROM pg_advisory_xact_lock(7310218561024)";

/// Migrates the schema to the newest version in one transaction.
pub(crate) async fn migrate(database: &Database) -> Result<()> {
    let mut transaction = database.begin().await?;
    if database.kind() == DatabaseKind::Postgres {
        // Two servers that start at the same time would both create the tables.
        Statement::new(LOCK_SQL).run(&mut transaction).await?;
    }
    Statement::new(CREATE_VERSIONS_TABLE_SQL).run(&mut transaction).await?;
    let current = current_version(&mut transaction).await?;
    for (version, sql) in (1..).zip(MIGRATIONS) {
        if version > current {
            let is_needed = database.kind() == DatabaseKind::Postgres || *sql != EVENT_QUEUE;
            apply(&mut transaction, version, if is_needed { sql } else { "" }).await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}

/// Returns the version of the schema. Fails if a newer program has migrated it further than this one can.
async fn current_version(connection: &mut AnyConnection) -> Result<i64> {
    let newest = Statement::new("SELECT COALESCE(MAX(version), 0) AS version FROM schema_versions");
    let found = Row(newest.one(connection).await?).number("version")?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known { Err(CatalogError::NewerSchema { found, known }) } else { Ok(found) }
}

async fn apply(connection: &mut AnyConnection, version: i64, sql: &str) -> Result<()> {
    if !sql.is_empty() {
        run_script(sql, connection).await?;
    }
    let record = Statement::new("INSERT INTO schema_versions (version, applied_at) VALUES ($1, $2)");
    record.number(version).number(now()).run(connection).await?;
    Ok(())
}
