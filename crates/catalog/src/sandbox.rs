//! Table `sandboxes`: sandboxes with their state, configuration and labels. The column `node` has the name of the
//! server that runs a sandbox.

mod filter;
mod pause;

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::event::{self, NewEvent};
use crate::idempotency::{self, ClaimResult, IdempotencyClaim};
use crate::note;
use crate::row::Row;
use crate::state::{State, VisibleState};
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement};

pub use filter::{Filter, PAGE_SIZE_MAX};
pub use pause::PauseStep;

/// Sandbox to insert.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSandbox {
    /// Unique id, `sbx-` followed by a UUIDv7.
    pub id: String,
    /// Name of the server that runs the sandbox (column `node`).
    pub server: String,
    /// Initial state.
    pub state: State,
    /// Display name.
    pub name: Option<String>,
    /// Set to reject the sandbox if its owner has another one with the same name and this flag.
    pub unique_name: bool,
    /// Owner of the sandbox.
    pub owner: String,
    /// Template of the root filesystem.
    pub template: String,
    /// Name of the runtime.
    pub runtime: String,
    /// Network mode.
    pub network: String,
    /// Path of the workspace directory.
    pub workspace_path: String,
    /// Hash of the token that authenticates the guest agent.
    pub token_hash: String,
    /// Labels, which lists can be filtered by.
    pub labels: BTreeMap<String, String>,
    /// Limits, environment and other parameters of the request, as JSON.
    pub config: Value,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
    /// Expiry time in milliseconds since 1970.
    pub expires_at: i64,
}

/// Stored sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// Unique id, `sbx-` followed by a UUIDv7.
    pub id: String,
    /// Name of the server that runs the sandbox.
    pub server: String,
    /// Display name.
    pub name: Option<String>,
    /// Owner of the sandbox.
    pub owner: String,
    /// Current state.
    pub state: State,
    /// Human-readable reason for the current state.
    pub state_reason: Option<String>,
    /// Template of the root filesystem.
    pub template: String,
    /// Name of the runtime.
    pub runtime: String,
    /// Network mode.
    pub network: String,
    /// Handle that the runtime uses to find the processes after a restart of the server.
    pub process: Option<Value>,
    /// Path of the workspace directory.
    pub workspace_path: String,
    /// Hash of the token that authenticates the guest agent.
    pub token_hash: String,
    /// Labels, which lists can be filtered by.
    pub labels: BTreeMap<String, String>,
    /// Limits, environment and other parameters of the request, as JSON.
    pub config: Value,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
    /// Expiry time in milliseconds since 1970.
    pub expires_at: i64,
    /// Step of a pause or resume; `None` if the sandbox is neither paused nor about to be.
    pub pause: Option<PauseStep>,
    /// Snapshot of the last pause to disk. After a resume, the workspace is based on it.
    pub pause_snapshot: Option<String>,
    /// Lifetime in milliseconds that was left when the sandbox was paused.
    pub remaining_ms: Option<i64>,
    /// Time of the last change in milliseconds since 1970.
    pub updated_at: i64,
    /// Number of changes, for optimistic locking: a change has to name the version that was read.
    pub version: i64,
}

/// Result of [`Sandboxes::insert_once`].
#[derive(Debug, Clone, PartialEq)]
pub enum SandboxInsertion {
    /// First request with this key; the sandbox was inserted.
    New(Box<Sandbox>),
    /// Repeated request; nothing was inserted.
    Existing {
        /// Sandbox of the first request, which may be deleted.
        sandbox_id: String,
    },
}

/// Changes to a sandbox; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// New state.
    pub state: Option<State>,
    /// New reason. A new state without a reason clears the old reason.
    pub state_reason: Option<String>,
    /// Handle that the runtime uses to find the processes after a restart of the server.
    pub process: Option<Value>,
    /// Path of the workspace directory.
    pub workspace_path: Option<String>,
    /// Hash of the token that authenticates the guest agent.
    pub token_hash: Option<String>,
    /// Limits, environment and other parameters, as JSON.
    pub config: Option<Value>,
    /// Expiry time in milliseconds since 1970.
    pub expires_at: Option<i64>,
    /// Labels, which replace all existing ones.
    pub labels: Option<BTreeMap<String, String>>,
    /// Step of a pause or resume; `Some(None)` clears it. A new state `stopped` or `error` clears a step that needs the
    /// processes of the sandbox.
    pub pause: Option<Option<PauseStep>>,
    /// Snapshot of a pause to disk; `Some(None)` clears it.
    pub pause_snapshot: Option<Option<String>>,
    /// Lifetime in milliseconds that was left; `Some(None)` clears it.
    pub remaining_ms: Option<Option<i64>>,
}

/// SQL text that selects all columns of rows of the table `sandboxes`, for `from_row`. The argument is the rest of the
/// statement; without one, the caller appends it.
macro_rules! select_sandboxes {
    () => {
        select_sandboxes!("")
    };
    ($rest:literal) => {
        concat!(
            "SELECT id, node, name, owner, state, state_reason, template, runtime, network, process, workspace_path,
             token_hash, labels, config, created_at, expires_at, pause, pause_snapshot, remaining_ms, updated_at,
             version FROM sandboxes ",
            $rest
        )
    };
}
use select_sandboxes;

/// Queries on the table `sandboxes`.
#[derive(Debug, Clone, Copy)]
pub struct Sandboxes<'c> {
    pub(crate) database: &'c Database,
}

impl Sandboxes<'_> {
    /// Inserts a sandbox and its events in one transaction.
    pub async fn insert(&self, new: &NewSandbox, events: &[NewEvent]) -> Result<Sandbox> {
        let mut transaction = self.database.begin().await?;
        let sandbox = insert_all(&mut transaction, new, events).await?;
        self.database.commit_and_wake_readers(transaction, events).await?;
        Ok(sandbox)
    }

    /// Inserts a sandbox like [`Self::insert`], and claims an idempotency key in the same transaction. A
    /// repeated request inserts nothing.
    pub async fn insert_once(
        &self,
        new: &NewSandbox,
        claim: &IdempotencyClaim,
        events: &[NewEvent],
    ) -> Result<SandboxInsertion> {
        let mut transaction = self.database.begin().await?;
        match idempotency::claim(&mut transaction, claim, &new.id).await? {
            ClaimResult::Existing { sandbox_id } => Ok(SandboxInsertion::Existing { sandbox_id }),
            ClaimResult::New => {
                let sandbox = insert_all(&mut transaction, new, events).await?;
                self.database.commit_and_wake_readers(transaction, events).await?;
                Ok(SandboxInsertion::New(Box::new(sandbox)))
            }
        }
    }

    /// Returns a sandbox of any owner.
    pub async fn get(&self, id: &str) -> Result<Option<Sandbox>> {
        let mut connection = self.database.reader().await?;
        get(&mut connection, id).await
    }

    /// Returns a sandbox of an owner; `None` if it does not exist or belongs to another owner.
    pub async fn find(&self, owner: &str, id: &str) -> Result<Option<Sandbox>> {
        let select = Statement::new(select_sandboxes!("WHERE id = $1 AND owner = $2"));
        let select = select.text("id", id).text("owner", owner);
        select.optional(&mut *self.database.reader().await?).await?.map(from_row).transpose()
    }

    /// Returns the server of each sandbox, by id. Ids that do not exist, or belong to another owner than
    /// `owner`, are omitted.
    pub async fn servers(&self, owner: Option<&str>, ids: &[String]) -> Result<HashMap<String, String>> {
        let mut servers = HashMap::new();
        for ids in ids.chunks(IDS_PER_STATEMENT) {
            let mut parameters = Parameters::default();
            let of_owner = match owner {
                Some(owner) => format!("owner = ${} AND", parameters.text("owner", owner)),
                None => String::new(),
            };
            let ids = parameters.texts("id", ids);
            let sql = format!("SELECT id, node FROM sandboxes WHERE {of_owner} id IN ({ids})");
            let select = Statement::with_parameters(&sql, parameters);
            for row in select.all(&mut *self.database.reader().await?).await? {
                let row = Row(row);
                servers.insert(row.text("id")?, row.text("node")?);
            }
        }
        Ok(servers)
    }

    /// Returns the id of an owner's sandbox by name, on any server; the newest if there are several.
    pub async fn find_named(&self, owner: &str, name: &str) -> Result<Option<String>> {
        let select = Statement::new(
            "SELECT id FROM sandboxes WHERE owner = $1 AND name = $2 ORDER BY created_at DESC, id LIMIT 1",
        );
        let select = select.text("owner", owner).text("name", name);
        let row = select.optional(&mut *self.database.reader().await?).await?;
        row.map(|row| Row(row).text("id")).transpose()
    }

    /// Returns a page of the sandboxes that match a filter, newest first, and the total number of matches.
    pub async fn list(&self, filter: &Filter) -> Result<(Vec<Sandbox>, u64)> {
        let mut connection = self.database.reader().await?;
        let total = filter.count(&mut connection).await?;
        let rows = filter.page(&mut connection).await?;
        Ok((rows.into_iter().map(from_row).collect::<Result<_>>()?, total))
    }

    /// Counts the sandboxes of a server by state, in the order of [`VisibleState::ALL`].
    pub async fn count_by_state(&self, server: &str) -> Result<Vec<(VisibleState, u64)>> {
        let select = Statement::new(
            "SELECT state, pause, COUNT(*) AS total FROM sandboxes WHERE node = $1 GROUP BY state, pause",
        );
        let mut counts: Vec<(VisibleState, u64)> =
            VisibleState::ALL.iter().map(|state| (*state, 0)).collect();
        for row in select.text("server", server).all(&mut *self.database.reader().await?).await? {
            let row = Row(row);
            let (found, total) =
                (VisibleState::of(row.parsed("state")?, pause_step(&row)?), row.count("total")?);
            for (_, count) in counts.iter_mut().filter(|(state, _)| *state == found) {
                *count += total;
            }
        }
        Ok(counts)
    }

    /// Returns the number of sandboxes of a server, and the number of sandboxes of an owner on all servers. Sandboxes
    /// that are paused on disk do not count.
    pub async fn count_for_quota(&self, server: &str, owner: &str) -> Result<(u64, u64)> {
        let select = Statement::new(
            "SELECT COUNT(CASE WHEN node = $1 THEN 1 END) AS of_server,
             COUNT(CASE WHEN owner = $2 THEN 1 END) AS of_owner FROM sandboxes
             WHERE COALESCE(pause, '') <> 'disk'",
        );
        let select = select.text("server", server).text("owner", owner);
        let row = Row(select.one(&mut *self.database.reader().await?).await?);
        Ok((row.count("of_server")?, row.count("of_owner")?))
    }

    /// Returns all sandboxes of a server, oldest first.
    pub async fn all(&self, server: &str) -> Result<Vec<Sandbox>> {
        let select = Statement::new(select_sandboxes!("WHERE node = $1 ORDER BY created_at, id"));
        let select = select.text("server", server);
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }

    /// Returns the sandboxes of a server that have expired at `now`, the earliest expiry first.
    pub async fn expired(&self, server: &str, now: i64) -> Result<Vec<Sandbox>> {
        let select =
            Statement::new(select_sandboxes!("WHERE node = $1 AND expires_at <= $2 ORDER BY expires_at, id"));
        let select = select.text("server", server).number(now);
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }

    /// Assigns sandboxes without a server, which predate named servers, to this one. Returns their number.
    pub async fn adopt(&self, server: &str) -> Result<u64> {
        let update = Statement::new("UPDATE sandboxes SET node = $1 WHERE node = ''");
        update.text("server", server).run(&mut *self.database.connection().await?).await
    }

    /// Changes a sandbox that was read at version `expected`, and inserts its events in the same transaction.
    ///
    /// If two callers change the same version, one gets [`CatalogError::Conflict`] and has to read again.
    pub async fn change(
        &self,
        id: &str,
        expected: i64,
        change: Change,
        events: &[NewEvent],
    ) -> Result<Sandbox> {
        let mut transaction = self.database.begin().await?;
        let found = get(&mut transaction, id).await?;
        let found = found.ok_or_else(|| CatalogError::NotFound { what: "sandbox", id: id.to_owned() })?;
        let has_new_labels = change.labels.is_some();
        let changed = found.with_change(expected, change)?;
        update(&mut transaction, &changed, expected).await?;
        if has_new_labels {
            let delete = Statement::new("DELETE FROM sandbox_labels WHERE sandbox_id = $1");
            delete.text("id", id).run(&mut transaction).await?;
            insert_labels(&mut transaction, &changed).await?;
        }
        insert_events(&mut transaction, &changed.owner, id, events).await?;
        self.database.commit_and_wake_readers(transaction, events).await?;
        Ok(changed)
    }

    /// Deletes a sandbox with its labels, its commands, and its notes that belong to no snapshot; inserts events in
    /// the same transaction. Returns false, and inserts no events, if the sandbox does not exist.
    pub async fn delete(&self, id: &str, events: &[NewEvent]) -> Result<bool> {
        let mut transaction = self.database.begin().await?;
        let delete = Statement::new("DELETE FROM sandboxes WHERE id = $1 RETURNING owner");
        let Some(deleted) = delete.text("id", id).optional(&mut transaction).await? else { return Ok(false) };
        let owner = Row(deleted).text("owner")?;
        note::delete_pending(&mut transaction, id).await?;
        insert_events(&mut transaction, &owner, id, events).await?;
        self.database.commit_and_wake_readers(transaction, events).await?;
        Ok(true)
    }
}

impl NewSandbox {
    fn as_sandbox(&self) -> Sandbox {
        let new = self.clone();
        Sandbox {
            id: new.id,
            server: new.server,
            name: new.name,
            owner: new.owner,
            state: new.state,
            state_reason: None,
            template: new.template,
            runtime: new.runtime,
            network: new.network,
            process: None,
            workspace_path: new.workspace_path,
            token_hash: new.token_hash,
            labels: new.labels,
            config: new.config,
            created_at: new.created_at,
            expires_at: new.expires_at,
            pause: None,
            pause_snapshot: None,
            remaining_ms: None,
            updated_at: new.created_at,
            version: 1,
        }
    }
}

impl Sandbox {
    /// Applies a change to a sandbox at version `expected`.
    fn with_change(self, expected: i64, change: Change) -> Result<Self> {
        if self.version != expected {
            return Err(CatalogError::Conflict { id: self.id, expected });
        }
        let change = self.complete_change(change)?;
        let old_reason = if change.state.is_none() { self.state_reason } else { None };
        Ok(Self {
            state: change.state.unwrap_or(self.state),
            state_reason: change.state_reason.or(old_reason),
            process: change.process.or(self.process),
            workspace_path: change.workspace_path.unwrap_or(self.workspace_path),
            token_hash: change.token_hash.unwrap_or(self.token_hash),
            config: change.config.unwrap_or(self.config),
            labels: change.labels.unwrap_or(self.labels),
            expires_at: change.expires_at.unwrap_or(self.expires_at),
            pause: change.pause.unwrap_or(self.pause),
            pause_snapshot: change.pause_snapshot.unwrap_or(self.pause_snapshot),
            remaining_ms: change.remaining_ms.unwrap_or(self.remaining_ms),
            updated_at: now(),
            version: expected + 1,
            ..self
        })
    }
}

async fn get(connection: &mut AnyConnection, id: &str) -> Result<Option<Sandbox>> {
    let select = Statement::new(select_sandboxes!("WHERE id = $1"));
    select.text("id", id).optional(connection).await?.map(from_row).transpose()
}

async fn insert_all(
    connection: &mut AnyConnection,
    new: &NewSandbox,
    events: &[NewEvent],
) -> Result<Sandbox> {
    let sandbox = new.as_sandbox();
    let unique_name = new.name.as_deref().filter(|_| new.unique_name);
    insert(connection, &sandbox, unique_name)
        .await
        .map_err(|error| error.unique_key_as_exists("sandbox", &sandbox.id))?;
    insert_labels(connection, &sandbox).await?;
    insert_events(connection, &sandbox.owner, &sandbox.id, events).await?;
    Ok(sandbox)
}

/// Inserts the row. If two transactions insert the same unique name, the second waits for the first and
/// fails.
async fn insert(connection: &mut AnyConnection, sandbox: &Sandbox, unique_name: Option<&str>) -> Result<()> {
    let (labels, config) = (labels_to_json(sandbox), sandbox.config.to_string());
    let insert = Statement::new(
        "INSERT INTO sandboxes (id, node, name, owner, state, template, runtime, network, workspace_path, token_hash,
         labels, config, created_at, expires_at, updated_at, version, unique_name, project, agent)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
         ON CONFLICT (owner, unique_name) DO NOTHING",
    );
    let insert = insert
        .text("id", &sandbox.id)
        .text("server", &sandbox.server)
        .optional_text("name", sandbox.name.as_deref())
        .text("owner", &sandbox.owner)
        .text("state", sandbox.state.as_str())
        .text("template", &sandbox.template)
        .text("runtime", &sandbox.runtime)
        .text("network", &sandbox.network)
        .text("workspace_path", &sandbox.workspace_path)
        .text("token_hash", &sandbox.token_hash)
        .text("labels", &labels)
        .text("config", &config)
        .number(sandbox.created_at)
        .number(sandbox.expires_at)
        .number(sandbox.updated_at)
        .number(sandbox.version)
        .optional_text("name", unique_name)
        .optional_text("project", lineage_text(sandbox, "project"))
        .optional_text("agent", lineage_text(sandbox, "agent"));
    match (insert.run(connection).await?, unique_name) {
        (0, Some(name)) => Err(CatalogError::NameTaken { name: name.to_owned() }),
        _ => Ok(()),
    }
}

/// Returns a text of the lineage in the configuration: `project` or `agent`. Columns repeat these texts, because the
/// databases have no JSON query in common.
fn lineage_text<'s>(sandbox: &'s Sandbox, name: &str) -> Option<&'s str> {
    sandbox.config.get("lineage")?.get(name)?.as_str()
}

async fn insert_labels(connection: &mut AnyConnection, sandbox: &Sandbox) -> Result<()> {
    for (name, value) in &sandbox.labels {
        let insert =
            Statement::new("INSERT INTO sandbox_labels (sandbox_id, name, value) VALUES ($1, $2, $3)");
        let insert = insert.text("sandbox_id", &sandbox.id).text("label", name).text("label", value);
        insert.run(connection).await?;
    }
    Ok(())
}

/// Updates the row if its version is still `expected`: on PostgreSQL another change can come between reading
/// and writing.
async fn update(connection: &mut AnyConnection, sandbox: &Sandbox, expected: i64) -> Result<()> {
    let (process, config) = (sandbox.process.as_ref().map(Value::to_string), sandbox.config.to_string());
    let labels = labels_to_json(sandbox);
    let update = Statement::new(
        "UPDATE sandboxes SET state = $1, state_reason = $2, process = $3, workspace_path = $4, token_hash = $5,
         config = $6, labels = $7, expires_at = $8, updated_at = $9, version = $10, pause = $11,
         pause_snapshot = $12, remaining_ms = $13 WHERE id = $14 AND version = $15",
    );
    let update = update
        .text("state", sandbox.state.as_str())
        .optional_text("state_reason", sandbox.state_reason.as_deref())
        .optional_text("process", process.as_deref())
        .text("workspace_path", &sandbox.workspace_path)
        .text("token_hash", &sandbox.token_hash)
        .text("config", &config)
        .text("labels", &labels)
        .number(sandbox.expires_at)
        .number(sandbox.updated_at)
        .number(sandbox.version)
        .optional_text("pause", sandbox.pause.map(PauseStep::as_str))
        .optional_text("pause_snapshot", sandbox.pause_snapshot.as_deref())
        .optional_number(sandbox.remaining_ms)
        .text("id", &sandbox.id)
        .number(expected);
    match update.run(connection).await? {
        0 => Err(CatalogError::Conflict { id: sandbox.id.clone(), expected }),
        _ => Ok(()),
    }
}

async fn insert_events(
    connection: &mut AnyConnection,
    owner: &str,
    id: &str,
    events: &[NewEvent],
) -> Result<()> {
    if !events.is_empty() {
        event::insert_all(connection, Some(owner), Some(id), events).await?;
    }
    Ok(())
}

/// Reads the step of a pause.
fn pause_step(row: &Row) -> Result<Option<PauseStep>> {
    row.optional_text("pause")?.map(|step| step.parse()).transpose()
}

fn labels_to_json(sandbox: &Sandbox) -> String {
    let value = |text: &String| Value::String(text.clone());
    let labels = sandbox.labels.iter().map(|(name, text)| (name.clone(), value(text)));
    Value::Object(labels.collect()).to_string()
}

fn from_row(row: AnyRow) -> Result<Sandbox> {
    let row = Row(row);
    let labels = row.text("labels")?;
    let not_json = |source| CatalogError::Json { column: "labels", source };
    Ok(Sandbox {
        id: row.text("id")?,
        server: row.text("node")?,
        name: row.optional_text("name")?,
        owner: row.text("owner")?,
        state: row.parsed("state")?,
        state_reason: row.optional_text("state_reason")?,
        template: row.text("template")?,
        runtime: row.text("runtime")?,
        network: row.text("network")?,
        process: row.optional_json("process")?,
        workspace_path: row.text("workspace_path")?,
        token_hash: row.text("token_hash")?,
        labels: serde_json::from_str(&labels).map_err(not_json)?,
        config: row.json("config")?,
        created_at: row.number("created_at")?,
        expires_at: row.number("expires_at")?,
        pause: pause_step(&row)?,
        pause_snapshot: row.optional_text("pause_snapshot")?,
        remaining_ms: row.optional_number("remaining_ms")?,
        updated_at: row.number("updated_at")?,
        version: row.number("version")?,
    })
}
