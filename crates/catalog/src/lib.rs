//! The catalog: the SQL database of a deployment, with its sandboxes and their owners.
//!
//! A [`Catalog`] is a SQLite file by default, or a PostgreSQL database. Both use the same statements and the same
//! tests. There is one module per table; in their statements, `text("owner", …)` binds the next positional parameter,
//! and the first argument is only a label for errors:
//!
//! - [`Sandboxes`]: a [`State`] changes only by allowed transitions, only for a caller that knows the current
//!   version, and together with its event.
//! - [`Events`]: events, each with an owner. Their numbers are consecutive, and they become visible in that order.
//! - [`ApiKeys`]: hashes of API keys.
//! - [`Commands`]: commands that ran in sandboxes, with their exit status.
//! - [`Snapshots`]: owners of snapshots.
//! - [`Episodes`]: owners of episodes.
//! - [`Notes`]: texts and data with which agents comment on their steps.
//! - [`TemplateSteps`]: results of steps of template builds.
//! - [`Projects`]: projects with their head, which moves only by [`Projects::advance`].
//! - [`Operations`], [`FileVersions`]: history of projects, and of their files.
//! - [`Policies`]: versions of the policies of projects.
//! - [`Completions`]: changes of agents that wait to be merged into a project.
//! - [`AgentWorkspaces`]: workspaces of agents that run in containers of their own.
//! - [`Reviews`]: conflicts and critical changes that wait for a decision.
//! - [`Leases`]: names that one server holds for a limited time.
//! - [`Secrets`]: random values that all servers share.
//! - [`Idempotency`], [`CommandClaims`]: idempotency keys, so that a repeated request has no second effect.
//!
//! ```no_run
//! use workspace_catalog::{Catalog, Change, State};
//!
//! # async fn example() -> workspace_catalog::Result<()> {
//! let catalog = Catalog::open("sqlite:///var/lib/workspace/catalog.db").await?;
//! if let Some(sandbox) = catalog.sandboxes().find("alice", "sbx-1").await? {
//!     let change = Change { state: Some(State::Stopping), ..Change::default() };
//!     catalog.sandboxes().change(&sandbox.id, sandbox.version, change, &[]).await?;
//! }
//! # Ok(())
//! # }
//! ```

mod agent_workspace;
mod api_key;
mod catalog;
mod clock;
mod command;
mod command_claim;
mod completion;
mod database;
mod episode;
mod error;
mod event;
mod failpoint;
mod file_version;
mod idempotency;
mod lease;
mod migration;
mod note;
mod operation;
mod order;
mod path;
mod policy;
mod project;
mod recorder;
mod review;
mod row;
mod sandbox;
mod search;
mod secret;
mod selection;
mod snapshot;
mod state;
mod statement;
mod string_enum;
mod template_step;
mod trace;
mod unmeasured_bytes;
mod writer;

pub use agent_workspace::{
    AgentWorkspace, AgentWorkspaceFilter, AgentWorkspaceInsertion, AgentWorkspaceState, AgentWorkspaces,
    NewAgentWorkspace, WorkspaceDirectory, WorkspaceHead,
};
pub use api_key::{
    ApiKey, ApiKeys, KeyBinding, NewApiKey, Revocation, Role, agents_prefix, covers_owner, owner_behind_agent,
};
pub use catalog::Catalog;
pub use clock::now;
pub use command::{COMMAND_SHOWN_MAX, Command, CommandEnd, CommandState, Commands, NewCommand};
pub use command_claim::{CommandClaims, CommandInsertion};
pub use completion::{
    COMPLETION_ATTEMPTS_MAX, Completion, CompletionFilter, CompletionInsertion, CompletionOutcome,
    CompletionState, Completions, NewCompletion,
};
pub use database::sqlite_url;
pub use episode::{EpisodeInsertion, EpisodeQuota, EpisodeUsage, Episodes, NewEpisode};
pub use error::{CatalogError, Result};
pub use event::{Event, EventFilter, EventKind, EventSlice, Events, NewEvent};
pub use file_version::{
    ChangedPath, FileChange, FileKind, FileVersion, FileVersions, NewFileVersion, Staging,
};
pub use idempotency::{Idempotency, IdempotencyClaim};
pub use lease::{Lease, Leases};
pub use note::{NewNote, Note, NoteFilter, NoteInsertion, NotePage, NoteQuota, Notes};
pub use operation::{Operation, OperationFilter, OperationKind, Operations, Operator};
pub use order::CreationOrder;
pub use policy::{Policies, Policy, PolicyResult};
pub use project::{
    Advance, AdvanceResult, AdvanceStep, NewProject, Project, ProjectChange, ProjectFilter, Projects,
    ReviewedCompletion,
};
pub use review::{NewReview, Review, ReviewDecision, ReviewFilter, ReviewState, Reviews};
pub use sandbox::{
    Change, Filter, NewSandbox, PAGE_SIZE_MAX, PauseStep, Sandbox, SandboxInsertion, Sandboxes,
};
pub use search::{Search, SearchPage};
pub use secret::Secrets;
pub use snapshot::{OwnedSnapshot, SnapshotOrder, SnapshotOrigin, Snapshots, Transactions};
pub use state::{State, VisibleState};
pub use template_step::{TemplateStep, TemplateSteps};
pub use trace::CommandTrace;
pub use unmeasured_bytes::DeletedBytes;
