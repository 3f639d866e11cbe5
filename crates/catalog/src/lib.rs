//! The catalog: what a deployment knows of its sandboxes, in SQL.
//!
//! A [`Catalog`] is a SQLite file by default and a PostgreSQL database when given one. The statements are the
//! same on both, and so are the tests. One module per table:
//!
//! - [`Sandboxes`]: a sandbox's [`State`] changes only along the allowed ways, only by who knows its version,
//!   and together with the event that tells of it.
//! - [`Events`]: numbered without gaps, visible in the order of their numbers.
//! - [`ApiKeys`]: the hashes of the keys, never the keys.
//! - [`Commands`]: what ran in a sandbox and how it ended.
//! - [`Snapshots`]: whose a snapshot is.
//! - [`Episodes`]: whose an episode is.
//! - [`Idempotency`]: which request made which sandbox, so that a repeated one makes no second.
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

mod api_key;
mod catalog;
mod clock;
mod command;
mod command_claim;
mod episode;
mod error;
mod event;
mod idempotency;
mod migration;
mod row;
mod sandbox;
mod snapshot;
mod state;
mod statement;
mod words;
mod writer;

pub use api_key::{ApiKey, ApiKeys, NewApiKey, Role};
pub use catalog::{Catalog, sqlite_url};
pub use command::{COMMAND_SHOWN_MAX, Command, CommandState, Commands, End, NewCommand};
pub use command_claim::{CommandClaims, InsertedCommand};
pub use episode::{EpisodeUsage, Episodes, NewEpisode};
pub use error::{CatalogError, Result};
pub use event::{Event, EventKind, Events, NewEvent};
pub use idempotency::{Idempotency, NewClaim};
pub use sandbox::{Change, Filter, Inserted, LIMIT_MAX, NewSandbox, Sandbox, Sandboxes};
pub use snapshot::{OwnedSnapshot, Snapshots};
pub use state::State;
