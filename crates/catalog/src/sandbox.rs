//! The table `sandboxes`.

mod filter;

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::catalog::Catalog;
use crate::clock::now;
use crate::error::{CatalogError, Result};
use crate::event::{self, NewEvent};
use crate::idempotency::{self, Claim, NewClaim};
use crate::row::Row;
use crate::state::State;
use crate::statement::{Parameters, Statement, TOGETHER};

pub use filter::{Filter, LIMIT_MAX};

/// A sandbox to be written down.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSandbox {
    /// Names it: `sbx-…`.
    pub id: String,
    /// Which server looks after it.
    pub node: String,
    /// What it is doing.
    pub state: State,
    /// What people call it.
    pub name: Option<String>,
    /// Refuses the sandbox if its owner has one of this name that is to be unique as well.
    pub unique_name: bool,
    /// Whose it is.
    pub owner: String,
    /// What its root filesystem is made from.
    pub template: String,
    /// What runs it.
    pub runtime: String,
    /// What it may reach.
    pub network: String,
    /// The directory of its workspace.
    pub workspace_path: String,
    /// The hash of the token with which its guest agent proves itself.
    pub token_hash: String,
    /// What lists can be narrowed by.
    pub labels: BTreeMap<String, String>,
    /// Limits, environment and whatever else it was asked for with.
    pub config: Value,
    /// When it was made, in milliseconds since 1970.
    pub created_at: i64,
    /// When it ends by itself.
    pub expires_at: i64,
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// Names it: `sbx-…`.
    pub id: String,
    /// Which server looks after it.
    pub node: String,
    /// What people call it.
    pub name: Option<String>,
    /// Whose it is.
    pub owner: String,
    /// What it is doing.
    pub state: State,
    /// Why.
    pub state_reason: Option<String>,
    /// What its root filesystem is made from.
    pub template: String,
    /// What runs it.
    pub runtime: String,
    /// What it may reach.
    pub network: String,
    /// What its runtime finds its processes again by.
    pub process: Option<Value>,
    /// The directory of its workspace.
    pub workspace_path: String,
    /// The hash of the token with which its guest agent proves itself.
    pub token_hash: String,
    /// What lists can be narrowed by.
    pub labels: BTreeMap<String, String>,
    /// Limits, environment and whatever else it was asked for with.
    pub config: Value,
    /// When it was made, in milliseconds since 1970.
    pub created_at: i64,
    /// When it ends by itself.
    pub expires_at: i64,
    /// When it was last changed.
    pub updated_at: i64,
    /// Counts its changes. Who changes it says which version they know.
    pub version: i64,
}

/// What came of a request that may come again.
#[derive(Debug, Clone, PartialEq)]
pub enum Inserted {
    /// It came for the first time.
    New(Box<Sandbox>),
    /// It came before.
    Repeated {
        /// The sandbox that it made then, which may be gone.
        sandbox_id: String,
    },
}

/// What is to change; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// The new state.
    pub state: Option<State>,
    /// Why. A new state without a reason forgets the old state's.
    pub state_reason: Option<String>,
    /// What its runtime finds its processes again by.
    pub process: Option<Value>,
    /// The directory of its workspace.
    pub workspace_path: Option<String>,
    /// The hash of the token with which its guest agent proves itself.
    pub token_hash: Option<String>,
    /// Limits, environment and the rest.
    pub config: Option<Value>,
    /// When it ends by itself.
    pub expires_at: Option<i64>,
    /// All of its labels.
    pub labels: Option<BTreeMap<String, String>>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, node, name, owner, state, state_reason, template, runtime, network, process, workspace_path,
             token_hash, labels, config, created_at, expires_at, updated_at, version FROM sandboxes ",
            $rest
        )
    };
}
use select;

/// The sandboxes of a catalog.
#[derive(Debug, Clone, Copy)]
pub struct Sandboxes<'c> {
    pub(crate) catalog: &'c Catalog,
}

impl Sandboxes<'_> {
    /// Writes down a sandbox, and the events in the same transaction.
    pub async fn insert(&self, new: &NewSandbox, events: &[NewEvent]) -> Result<Sandbox> {
        let mut transaction = self.catalog.begin().await?;
        let sandbox = insert_all(&mut transaction, new, events).await?;
        transaction.commit().await?;
        Ok(sandbox)
    }

    /// The same for a request that may come again: the claim is made in the same transaction, and a repeated one
    /// writes nothing.
    pub async fn insert_once(
        &self,
        new: &NewSandbox,
        claim: &NewClaim,
        events: &[NewEvent],
    ) -> Result<Inserted> {
        let mut transaction = self.catalog.begin().await?;
        match idempotency::claim(&mut transaction, claim, &new.id).await? {
            Claim::Repeated { sandbox_id } => Ok(Inserted::Repeated { sandbox_id }),
            Claim::First => {
                let sandbox = insert_all(&mut transaction, new, events).await?;
                transaction.commit().await?;
                Ok(Inserted::New(Box::new(sandbox)))
            }
        }
    }

    /// The sandbox of that id, whoever's it is.
    pub async fn get(&self, id: &str) -> Result<Option<Sandbox>> {
        let mut connection = self.catalog.connection().await?;
        get(&mut connection, id).await
    }

    /// The sandbox of that id, if it is `owner`'s. Another's is as good as none.
    pub async fn find(&self, owner: &str, id: &str) -> Result<Option<Sandbox>> {
        let select = Statement::new(select!("WHERE id = $1 AND owner = $2"));
        let select = select.text("id", id).text("owner", owner);
        select.optional(&mut *self.catalog.connection().await?).await?.map(read).transpose()
    }

    /// Servers that look after some sandboxes, by the ids of those that there are and that are `owner`'s, if one is named.
    pub async fn nodes(&self, owner: Option<&str>, ids: &[String]) -> Result<HashMap<String, String>> {
        let mut nodes = HashMap::new();
        for ids in ids.chunks(TOGETHER) {
            let mut parameters = Parameters::default();
            let of_owner = match owner {
                Some(owner) => format!("owner = ${} AND", parameters.text("owner", owner)),
                None => String::new(),
            };
            let ids = parameters.texts("id", ids);
            let sql = format!("SELECT id, node FROM sandboxes WHERE {of_owner} id IN ({ids})");
            let select = Statement::with(&sql, parameters);
            for row in select.all(&mut *self.catalog.connection().await?).await? {
                let row = Row(row);
                nodes.insert(row.text("id")?, row.text("node")?);
            }
        }
        Ok(nodes)
    }

    /// Id of a sandbox of that name that `owner` has, on any server; the newest of several.
    pub async fn find_named(&self, owner: &str, name: &str) -> Result<Option<String>> {
        let select = Statement::new(
            "SELECT id FROM sandboxes WHERE owner = $1 AND name = $2 ORDER BY created_at DESC, id LIMIT 1",
        );
        let select = select.text("owner", owner).text("name", name);
        let row = select.optional(&mut *self.catalog.connection().await?).await?;
        row.map(|row| Row(row).text("id")).transpose()
    }

    /// A page of those that fit the filter, newest first, and how many fit in all.
    pub async fn list(&self, filter: &Filter) -> Result<(Vec<Sandbox>, u64)> {
        let mut connection = self.catalog.connection().await?;
        let total = filter.count(&mut connection).await?;
        let rows = filter.page(&mut connection).await?;
        Ok((rows.into_iter().map(read).collect::<Result<_>>()?, total))
    }

    /// How many a server looks after in each state, in the order of [`State::ALL`].
    pub async fn counts(&self, node: &str) -> Result<Vec<(State, u64)>> {
        let select =
            Statement::new("SELECT state, COUNT(*) AS total FROM sandboxes WHERE node = $1 GROUP BY state");
        let mut counts: Vec<(State, u64)> = State::ALL.iter().map(|state| (*state, 0)).collect();
        for row in select.text("node", node).all(&mut *self.catalog.connection().await?).await? {
            let row = Row(row);
            let (found, total) = (row.word("state")?, row.count("total")?);
            for (state, count) in &mut counts {
                if *state == found {
                    *count = total;
                }
            }
        }
        Ok(counts)
    }

    /// How many a server looks after, and how many an owner has on all servers.
    pub async fn total(&self, node: &str, owner: &str) -> Result<(u64, u64)> {
        let select = Statement::new(
            "SELECT COUNT(CASE WHEN node = $1 THEN 1 END) AS here,
             COUNT(CASE WHEN owner = $2 THEN 1 END) AS own FROM sandboxes",
        );
        let select = select.text("node", node).text("owner", owner);
        let row = Row(select.one(&mut *self.catalog.connection().await?).await?);
        Ok((row.count("here")?, row.count("own")?))
    }

    /// All that a server looks after, oldest first.
    pub async fn all(&self, node: &str) -> Result<Vec<Sandbox>> {
        let select = Statement::new(select!("WHERE node = $1 ORDER BY created_at, id"));
        let select = select.text("node", node);
        select.all(&mut *self.catalog.connection().await?).await?.into_iter().map(read).collect()
    }

    /// Those that a server looks after and whose time is up at `now`, the longest first.
    pub async fn expired(&self, node: &str, now: i64) -> Result<Vec<Sandbox>> {
        let select = Statement::new(select!("WHERE node = $1 AND expires_at <= $2 ORDER BY expires_at, id"));
        let select = select.text("node", node).number(now);
        select.all(&mut *self.catalog.connection().await?).await?.into_iter().map(read).collect()
    }

    /// Gives sandboxes that no server looks after, because they were written before servers had names, to this one.
    pub async fn adopt(&self, node: &str) -> Result<u64> {
        let update = Statement::new("UPDATE sandboxes SET node = $1 WHERE node = ''");
        update.text("node", node).run(&mut *self.catalog.connection().await?).await
    }

    /// Changes the sandbox that was read at version `expected`, and writes the events in the same transaction.
    ///
    /// Of two who know the same version one wins; the other gets [`CatalogError::Conflict`] and reads again.
    pub async fn change(
        &self,
        id: &str,
        expected: i64,
        change: Change,
        events: &[NewEvent],
    ) -> Result<Sandbox> {
        let mut transaction = self.catalog.begin().await?;
        let found = get(&mut transaction, id).await?;
        let found = found.ok_or_else(|| CatalogError::NotFound { what: "sandbox", id: id.to_owned() })?;
        let relabelled = change.labels.is_some();
        let changed = found.changed(expected, change)?;
        update(&mut transaction, &changed, expected).await?;
        if relabelled {
            let delete = Statement::new("DELETE FROM sandbox_labels WHERE sandbox_id = $1");
            delete.text("id", id).run(&mut transaction).await?;
            insert_labels(&mut transaction, &changed).await?;
        }
        record(&mut transaction, id, events).await?;
        transaction.commit().await?;
        Ok(changed)
    }

    /// Forgets a sandbox with its labels and commands, and writes the events in the same transaction. False, and
    /// no event, when there is none.
    pub async fn delete(&self, id: &str, events: &[NewEvent]) -> Result<bool> {
        let mut transaction = self.catalog.begin().await?;
        let delete = Statement::new("DELETE FROM sandboxes WHERE id = $1");
        if delete.text("id", id).run(&mut transaction).await? == 0 {
            return Ok(false);
        }
        record(&mut transaction, id, events).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

impl NewSandbox {
    fn as_sandbox(&self) -> Sandbox {
        let new = self.clone();
        Sandbox {
            id: new.id,
            node: new.node,
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
            updated_at: new.created_at,
            version: 1,
        }
    }
}

impl Sandbox {
    fn changed(self, expected: i64, change: Change) -> Result<Self> {
        if self.version != expected {
            return Err(CatalogError::Conflict { id: self.id, expected });
        }
        if let Some(to) = change.state.filter(|to| !self.state.may_become(*to)) {
            return Err(CatalogError::Transition { id: self.id, from: self.state, to });
        }
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
            updated_at: now(),
            version: expected + 1,
            ..self
        })
    }
}

async fn get(on: &mut AnyConnection, id: &str) -> Result<Option<Sandbox>> {
    let select = Statement::new(select!("WHERE id = $1"));
    select.text("id", id).optional(on).await?.map(read).transpose()
}

async fn insert_all(on: &mut AnyConnection, new: &NewSandbox, events: &[NewEvent]) -> Result<Sandbox> {
    let sandbox = new.as_sandbox();
    let unique_name = new.name.as_deref().filter(|_| new.unique_name);
    insert(on, &sandbox, unique_name).await.map_err(|error| error.or_exists("sandbox", &sandbox.id))?;
    insert_labels(on, &sandbox).await?;
    record(on, &sandbox.id, events).await?;
    Ok(sandbox)
}

/// Of two transactions that insert the same unique name at once, the second waits for the first and is refused.
async fn insert(on: &mut AnyConnection, sandbox: &Sandbox, unique_name: Option<&str>) -> Result<()> {
    let (labels, config) = (labels_text(sandbox), sandbox.config.to_string());
    let insert = Statement::new(
        "INSERT INTO sandboxes (id, node, name, owner, state, template, runtime, network, workspace_path, token_hash,
         labels, config, created_at, expires_at, updated_at, version, unique_name)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
         ON CONFLICT (owner, unique_name) DO NOTHING",
    );
    let insert = insert
        .text("id", &sandbox.id)
        .text("node", &sandbox.node)
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
        .optional_text("name", unique_name);
    match (insert.run(on).await?, unique_name) {
        (0, Some(name)) => Err(CatalogError::NameTaken { name: name.to_owned() }),
        _ => Ok(()),
    }
}

async fn insert_labels(on: &mut AnyConnection, sandbox: &Sandbox) -> Result<()> {
    for (name, value) in &sandbox.labels {
        let insert =
            Statement::new("INSERT INTO sandbox_labels (sandbox_id, name, value) VALUES ($1, $2, $3)");
        let insert = insert.text("sandbox_id", &sandbox.id).text("label", name).text("label", value);
        insert.run(on).await?;
    }
    Ok(())
}

/// The version is asked for once more: PostgreSQL lets another change come in between reading and writing.
async fn update(on: &mut AnyConnection, sandbox: &Sandbox, expected: i64) -> Result<()> {
    let (process, config) = (sandbox.process.as_ref().map(Value::to_string), sandbox.config.to_string());
    let labels = labels_text(sandbox);
    let update = Statement::new(
        "UPDATE sandboxes SET state = $1, state_reason = $2, process = $3, workspace_path = $4, token_hash = $5,
         config = $6, labels = $7, expires_at = $8, updated_at = $9, version = $10
         WHERE id = $11 AND version = $12",
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
        .text("id", &sandbox.id)
        .number(expected);
    match update.run(on).await? {
        0 => Err(CatalogError::Conflict { id: sandbox.id.clone(), expected }),
        _ => Ok(()),
    }
}

async fn record(on: &mut AnyConnection, id: &str, events: &[NewEvent]) -> Result<()> {
    for event in events {
        event::record(on, Some(id), event).await?;
    }
    Ok(())
}

fn labels_text(sandbox: &Sandbox) -> String {
    let value = |text: &String| Value::String(text.clone());
    let labels = sandbox.labels.iter().map(|(name, text)| (name.clone(), value(text)));
    Value::Object(labels.collect()).to_string()
}

fn read(row: AnyRow) -> Result<Sandbox> {
    let row = Row(row);
    let labels = row.text("labels")?;
    let not_json = |source| CatalogError::Json { column: "labels", source };
    Ok(Sandbox {
        id: row.text("id")?,
        node: row.text("node")?,
        name: row.optional_text("name")?,
        owner: row.text("owner")?,
        state: row.word("state")?,
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
        updated_at: row.number("updated_at")?,
        version: row.number("version")?,
    })
}
