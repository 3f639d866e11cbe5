//! The HTTP server of the REST API.
//!
//! [`settings`] configures it, [`App`] is the shared state of its routes, [`router`] combines the [`RouteGroup`]s,
//! [`start`] opens the store and the catalog, and a [`Server`] serves requests until its [`Shutdown`] begins. Middleware
//! around every route adds a request id, size limits, error bodies ([`ApiError`], with codes of
//! [`workspace_api::error_codes`]), authentication ([`auth`]), the audit log ([`audit`]) and metrics ([`Metrics`]).
//!
//! A handler extracts [`extract::Json`], [`extract::Query`], [`extract::Path`] and its [`Caller`](caller::Caller), and
//! returns `Result<_, ApiError>`. A long-lived stream ends at `Shutdown::wait_until_begun`.

mod accept_header;
pub mod access;
mod ambiguous_length;
mod app;
mod archive_body;
pub mod audit;
pub mod auth;
mod automatic_merges;
mod body_with_permits;
mod byte_range;
pub mod caller;
mod caller_cache;
mod commands;
mod connections;
mod cors;
mod credential_expiry;
mod entity_tag;
mod episode_recovery;
mod episodes;
pub mod error;
mod error_mapping;
mod error_page;
mod event_log;
pub mod extract;
pub mod first_key;
mod followers;
#[doc(hidden)]
pub mod fuzzing;
mod generated_docs;
mod guest_port;
mod health;
pub mod key_hash;
mod keyed_semaphores;
mod keys;
mod kill_on_drop;
mod log;
mod main_program;
mod me;
mod metrics;
mod nfs;
mod notes;
pub mod openapi;
mod outdated_bases;
mod owner_memory;
mod pages;
mod preview;
mod private_file;
mod processes;
mod projects;
mod pty;
pub mod rate;
mod readiness;
mod reference_names;
mod references;
mod refused_changes;
mod request;
mod request_id;
pub mod rights;
mod route_group;
mod router;
mod runtime;
mod sandbox_io;
mod sandboxes;
mod serve;
mod server_id;
mod server_sent_events;
pub mod settings;
mod shutdown;
mod signed_file;
mod signed_text;
mod signed_url;
mod signing_key;
pub mod snapshots;
mod start;
mod store;
mod stream;
mod stream_access;
mod system;
mod template_builds;
mod templates;
mod tickets;
mod time;
mod tls;
mod token;
mod tokens;
mod write_timeout;

pub use app::App;
pub use error::ApiError;
pub use generated_docs::write_generated_docs;
pub use guest_port::GuestPortError;
pub use main_program::main;
pub use metrics::{Metrics, write_metric_header};
pub use private_file::PrivateFileError;
pub use readiness::Readiness;
pub use request_id::{Peer, RequestId};
pub use route_group::RouteGroup;
pub use router::{openapi_json, route_groups, router};
pub use runtime::LAZY_MOUNT_ARG;
pub use serve::{Address, ServeError, Server};
pub use settings::Settings;
pub use shutdown::{RunningGuard, Shutdown};
pub use signing_key::{SigningKeyError, SigningSecret};
pub use start::{StartError, StartedServer, start};
pub use tls::TlsError;
