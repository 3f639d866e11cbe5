//! Table `agent_workspaces`: workspaces of agents that run in containers which no server started.
//!
//! A row is inserted before the directory of its workspace is made, and deleted after it was removed, so that every
//! such directory has a row. Each change of the state compares the former one.

use std::collections::HashSet;

use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::Database;
use crate::error::Result;
use crate::row::Row;
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement};
use crate::string_enum::string_enum;

string_enum! {
    /// State of the workspace of an agent.
    pub enum AgentWorkspaceState {
        /// Its directory is being made.
        Creating = "creating",
        /// The agent may use it.
        Ready = "ready",
        /// Its files are being replaced by those of a newer head.
        Moving = "moving",
        /// Its directory is being removed.
        Removing = "removing",
    }
}

/// Head of a project, as an agent sees it, that a workspace was made from or moves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceHead {
    /// Snapshot with the files that the agent may see.
    pub snapshot: String,
    /// Sequence of the head.
    pub sequence: i64,
    /// Version of the policy that decided what the agent may see.
    pub policy_version: i64,
}

/// Workspace of an agent to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAgentWorkspace {
    /// Unique id, also that of its directory.
    pub id: String,
    /// Id of the project.
    pub project: String,
    /// Agent that works in it.
    pub agent: String,
    /// Owner, whose quota it counts towards.
    pub owner: String,
    /// Server that has the directory.
    pub server: String,
    /// Head that it is made from.
    pub base: WorkspaceHead,
}

/// Directory of the workspace of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceDirectory {
    /// Provider that made it.
    pub provider: String,
    /// Absolute path on the machine of its server.
    pub path: String,
    /// UID and GID that own its files.
    pub owner: (u32, u32),
}

/// Stored workspace of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentWorkspace {
    /// Workspace as it was inserted, with the head of its last move.
    pub workspace: NewAgentWorkspace,
    /// State.
    pub state: AgentWorkspaceState,
    /// Directory; `None` until it is made.
    pub directory: Option<WorkspaceDirectory>,
    /// Number of moves to a newer head; part of
    /// [`NewCompletion::round_id`](crate::NewCompletion::round_id).
    pub round: i64,
    /// Head that a move is in progress to.
    pub next: Option<WorkspaceHead>,
    /// Snapshot of the files that the move in progress writes; `None` for those of the head.
    pub next_files: Option<String>,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
    /// Time of the last change in milliseconds since 1970.
    pub updated_at: i64,
}

/// Result of [`AgentWorkspaces::insert`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentWorkspaceInsertion {
    /// The workspace was inserted.
    New(Box<AgentWorkspace>),
    /// The agent has a workspace of the project; nothing was inserted.
    Existing(Box<AgentWorkspace>),
    /// The owner has the maximum number of workspaces; nothing was inserted.
    LimitReached,
}

/// Page of the workspaces of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentWorkspaceFilter {
    /// Agent; `None` for all.
    pub agent: Option<String>,
    /// Last agent of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of workspaces.
    pub limit: u32,
}

macro_rules! columns {
    () => {
        "id, project, agent, owner, server, state, provider, path, uid, gid, round, base_snapshot, base_sequence,
         policy_version, next_snapshot, next_sequence, next_policy_version, next_files, created_at, updated_at"
    };
}

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT ", columns!(), " FROM agent_workspaces ", $rest)
    };
}

macro_rules! update {
    ($rest:literal) => {
        concat!("UPDATE agent_workspaces SET ", $rest, " RETURNING ", columns!())
    };
}

/// Queries on the table `agent_workspaces`.
#[derive(Debug, Clone, Copy)]
pub struct AgentWorkspaces<'c> {
    pub(crate) database: &'c Database,
}

impl AgentWorkspaces<'_> {
    /// Inserts a workspace in state [`AgentWorkspaceState::Creating`], unless the agent has one, or its owner has
    /// `limit`. Servers that share a database may exceed the limit by those that they insert at the same moment. Fails
    /// with [`CatalogError::NotFound`](crate::CatalogError::NotFound) if the project does not exist.
    pub async fn insert(
        &self,
        new: &NewAgentWorkspace,
        limit: Option<u32>,
    ) -> Result<AgentWorkspaceInsertion> {
        let mut transaction = self.database.begin().await?;
        if let Some(row) = find(&mut transaction, &new.project, &new.agent).await? {
            return Ok(AgentWorkspaceInsertion::Existing(Box::new(row)));
        }
        if let Some(limit) = limit
            && count(&mut transaction, &new.owner).await? >= u64::from(limit)
        {
            return Ok(AgentWorkspaceInsertion::LimitReached);
        }
        let inserted = insert(&mut transaction, new).await?;
        transaction.commit().await?;
        let row = match inserted {
            Some(row) => return Ok(AgentWorkspaceInsertion::New(Box::new(from_row(row)?))),
            // Another server inserted one meanwhile.
            None => self.find(&new.project, &new.agent).await?,
        };
        let removed = || crate::CatalogError::NotFound { what: "workspace of agent", id: new.agent.clone() };
        Ok(AgentWorkspaceInsertion::Existing(Box::new(row.ok_or_else(removed)?)))
    }

    /// Returns the workspace of an agent in a project.
    pub async fn find(&self, project: &str, agent: &str) -> Result<Option<AgentWorkspace>> {
        find(&mut *self.database.reader().await?, project, agent).await
    }

    /// Returns the workspaces of an agent in the projects of an owner, at most `limit`.
    pub async fn of_agent(&self, owner: &str, agent: &str, limit: u32) -> Result<Vec<AgentWorkspace>> {
        let select = Statement::new(select!(
            "WHERE agent = $1 AND project IN (SELECT id FROM projects WHERE owner = $2) ORDER BY project LIMIT $3"
        ));
        self.all(select.text("agent", agent).text("owner", owner).number(limit.into())).await
    }

    /// Returns the workspaces of a project that match a filter, ordered by agent.
    pub async fn list(&self, project: &str, filter: &AgentWorkspaceFilter) -> Result<Vec<AgentWorkspace>> {
        let select = Statement::new(select!(
            "WHERE project = $1 AND agent > $2 AND (agent = $3 OR $4 = 0) ORDER BY agent LIMIT $5"
        ));
        let select = select
            .text("project", project)
            .text("cursor", filter.cursor.as_deref().unwrap_or_default())
            .text("agent", filter.agent.as_deref().unwrap_or_default())
            .number(filter.agent.is_some().into())
            .number(filter.limit.into());
        self.all(select).await
    }

    /// Returns the workspaces of a server whose creation, move or removal was begun and not finished.
    pub async fn unfinished(&self, server: &str) -> Result<Vec<AgentWorkspace>> {
        let select = Statement::new(select!("WHERE server = $1 AND state <> 'ready' ORDER BY id"));
        self.all(select.text("server", server)).await
    }

    /// Returns those of the `ids` that a workspace has.
    pub async fn existing(&self, ids: &[String]) -> Result<HashSet<String>> {
        let mut existing = HashSet::new();
        for ids in ids.chunks(IDS_PER_STATEMENT) {
            let mut parameters = Parameters::default();
            let ids = parameters.texts("id", ids);
            let sql = format!("SELECT id FROM agent_workspaces WHERE id IN ({ids})");
            let select = Statement::with_parameters(&sql, parameters);
            for row in select.all(&mut *self.database.reader().await?).await? {
                existing.insert(Row(row).text("id")?);
            }
        }
        Ok(existing)
    }

    /// Records that the directory of a workspace was made. Returns `None` unless it was in
    /// [`AgentWorkspaceState::Creating`].
    pub async fn set_ready(&self, id: &str, made: &WorkspaceDirectory) -> Result<Option<AgentWorkspace>> {
        let update = Statement::new(update!(
            "state = 'ready', provider = $1, path = $2, uid = $3, gid = $4, updated_at = $5
             WHERE id = $6 AND state = 'creating'"
        ));
        let update = update
            .text("provider", &made.provider)
            .text("path", &made.path)
            .number(made.owner.0.into())
            .number(made.owner.1.into());
        self.change(update.number(now()).text("id", id)).await
    }

    /// Begins to move a workspace to another head. `files` is the snapshot of the files that it gets, with its changes to
    /// the head; `None` without changes. Returns `None` unless it was in [`AgentWorkspaceState::Ready`].
    pub async fn begin_move(
        &self,
        id: &str,
        next: &WorkspaceHead,
        files: Option<&str>,
    ) -> Result<Option<AgentWorkspace>> {
        let update = Statement::new(update!(
            "state = 'moving', next_snapshot = $1, next_sequence = $2, next_policy_version = $3, next_files = $4,
             updated_at = $5
             WHERE id = $6 AND state = 'ready'"
        ));
        let update =
            update.text("snapshot", &next.snapshot).number(next.sequence).number(next.policy_version);
        self.change(update.optional_text("files", files).number(now()).text("id", id)).await
    }

    /// Ends a move: the workspace has the files of the other head now. Returns `None` if no move is in progress.
    pub async fn finish_move(&self, id: &str) -> Result<Option<AgentWorkspace>> {
        let update = Statement::new(update!(
            "state = 'ready', round = round + 1, base_snapshot = next_snapshot, base_sequence = next_sequence,
             policy_version = next_policy_version, next_snapshot = NULL, next_sequence = NULL,
             next_policy_version = NULL, next_files = NULL, updated_at = $1
             WHERE id = $2 AND state = 'moving'"
        ));
        self.change(update.number(now()).text("id", id)).await
    }

    /// Ends a move that did not take place. Returns `None` if no move is in progress.
    pub async fn cancel_move(&self, id: &str) -> Result<Option<AgentWorkspace>> {
        let update = Statement::new(update!(
            "state = 'ready', next_snapshot = NULL, next_sequence = NULL, next_policy_version = NULL,
             next_files = NULL, updated_at = $1
             WHERE id = $2 AND state = 'moving'"
        ));
        self.change(update.number(now()).text("id", id)).await
    }

    /// Begins to remove a workspace, whatever its state is, or to try it again. Returns `None` if there is none. The
    /// caller excludes other operations on its directory.
    pub async fn begin_removal(&self, id: &str) -> Result<Option<AgentWorkspace>> {
        let update = Statement::new(update!("state = 'removing', updated_at = $1 WHERE id = $2"));
        self.change(update.number(now()).text("id", id)).await
    }

    /// Deletes the row of a workspace whose directory does not exist any more. Returns false if there is none.
    pub async fn delete(&self, id: &str) -> Result<bool> {
        let delete = Statement::new("DELETE FROM agent_workspaces WHERE id = $1");
        Ok(delete.text("id", id).run(&mut *self.database.connection().await?).await? > 0)
    }

    async fn all(&self, select: Statement<'_>) -> Result<Vec<AgentWorkspace>> {
        let rows = select.all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(from_row).collect()
    }

    async fn change(&self, update: Statement<'_>) -> Result<Option<AgentWorkspace>> {
        update.optional(&mut *self.database.connection().await?).await?.map(from_row).transpose()
    }
}

async fn insert(connection: &mut AnyConnection, new: &NewAgentWorkspace) -> Result<Option<AnyRow>> {
    let insert = Statement::new(concat!(
        "INSERT INTO agent_workspaces (id, project, agent, owner, server, state, round, base_snapshot, base_sequence,
         policy_version, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, 'creating', 0, $6, $7, $8, $9, $9)
         ON CONFLICT (project, agent) DO NOTHING RETURNING ",
        columns!()
    ));
    let insert = insert
        .text("id", &new.id)
        .text("project", &new.project)
        .text("agent", &new.agent)
        .text("owner", &new.owner)
        .text("server", &new.server)
        .text("snapshot", &new.base.snapshot)
        .number(new.base.sequence)
        .number(new.base.policy_version)
        .number(now());
    let inserted = insert.optional(connection).await;
    inserted.map_err(|error| error.foreign_key_as_not_found("project", &new.project))
}

async fn find(connection: &mut AnyConnection, project: &str, agent: &str) -> Result<Option<AgentWorkspace>> {
    let select = Statement::new(select!("WHERE project = $1 AND agent = $2"));
    let select = select.text("project", project).text("agent", agent);
    select.optional(connection).await?.map(from_row).transpose()
}

async fn count(connection: &mut AnyConnection, owner: &str) -> Result<u64> {
    let select = Statement::new("SELECT COUNT(*) AS count FROM agent_workspaces WHERE owner = $1");
    Row(select.text("owner", owner).one(connection).await?).count("count")
}

fn from_row(row: AnyRow) -> Result<AgentWorkspace> {
    let row = Row(row);
    let base = WorkspaceHead {
        snapshot: row.text("base_snapshot")?,
        sequence: row.number("base_sequence")?,
        policy_version: row.number("policy_version")?,
    };
    let next = match (row.optional_text("next_snapshot")?, row.optional_number("next_sequence")?) {
        (Some(snapshot), Some(sequence)) => {
            let policy_version = row.optional_number("next_policy_version")?.unwrap_or_default();
            Some(WorkspaceHead { snapshot, sequence, policy_version })
        }
        _ => None,
    };
    Ok(AgentWorkspace {
        workspace: NewAgentWorkspace {
            id: row.text("id")?,
            project: row.text("project")?,
            agent: row.text("agent")?,
            owner: row.text("owner")?,
            server: row.text("server")?,
            base,
        },
        state: row.parsed("state")?,
        directory: directory(&row)?,
        round: row.number("round")?,
        next,
        next_files: row.optional_text("next_files")?,
        created_at: row.number("created_at")?,
        updated_at: row.number("updated_at")?,
    })
}

fn directory(row: &Row) -> Result<Option<WorkspaceDirectory>> {
    let (Some(provider), Some(path)) = (row.optional_text("provider")?, row.optional_text("path")?) else {
        return Ok(None);
    };
    let id = |value: Option<i64>| value.and_then(|id| u32::try_from(id).ok()).unwrap_or_default();
    let owner = (id(row.optional_number("uid")?), id(row.optional_number("gid")?));
    Ok(Some(WorkspaceDirectory { provider, path, owner }))
}
