//! The HTTP server of a deployment.
//!
//! [`settings`] says how it runs, [`App`] is what its routes share, [`router`] puts them together from [`Part`]s,
//! [`start`] opens everything, and a [`Server`] answers until it is told to stop. Around every route: a request id, limits, errors of one form
//! ([`ApiError`], numbered in [`workspace_api::error_codes`]), a key ([`auth`]), the audit log ([`audit`]) and numbers ([`Metrics`]).
//!
//! A handler takes [`extract::Json`], [`extract::Query`] and [`extract::Path`], asks for its
//! [`Caller`](caller::Caller), and answers with `Result<_, ApiError>`. A long stream watches [`Shutdown::begun`].

mod app;
pub mod audit;
pub mod auth;
pub mod caller;
mod caller_cache;
mod connections;
mod cors;
mod episode_recovery;
mod episodes;
pub mod error;
mod error_mapping;
mod error_page;
pub mod extract;
pub mod first_key;
#[doc(hidden)]
pub mod fuzzing;
mod generate;
mod guests;
mod health;
pub mod key_hash;
mod keys;
mod log;
mod metrics;
mod node;
pub mod openapi;
mod owner_memory;
mod pages;
mod part;
mod per_owner;
mod private;
mod process;
mod processes;
mod pty;
pub mod rate;
mod readiness;
mod request;
mod request_id;
mod router;
mod runtime;
mod sandboxes;
mod serve;
pub mod settings;
mod shutdown;
pub mod snapshots;
mod start;
mod store;
mod stream;
mod system;
mod templates;
mod time;
mod tls;
mod tracked;
mod write_timeout;

pub use app::App;
pub use connections::raise_open_files;
pub use error::ApiError;
pub use generate::generate;
pub use guests::GuestsError;
pub use log::init as init_log;
pub use metrics::{Metrics, head as metric_head};
pub use part::Part;
pub use private::PrivateError;
pub use readiness::Readiness;
pub use request_id::{Peer, RequestId};
pub use router::{openapi_json, parts, router};
pub use runtime::VIEW;
pub use serve::{Address, ServeError, Server};
pub use settings::Settings;
pub use shutdown::{Running, Shutdown};
pub use start::{StartError, Started, start};
pub use tls::TlsError;
