//! The types of the REST API: request and response bodies, query parameters, events and error codes.
//!
//! The server and its clients, such as the CLI, use these types, and the OpenAPI document is generated from them.
//! Nothing else defines the wire format, so a change here changes the API: run `scripts/generate.sh` and review the
//! diff of `docs/openapi.json`.
//!
//! Field names are in camelCase. Exceptions are documented at the type: fields that a client may also send in
//! snake_case have an alias, and trees and diffs use the snake_case names of `workspace --json` and `docs/insight.md`.
//! Requests reject unknown fields; responses may gain fields, so clients ignore unknown ones.
//!
//! Times are RFC 3339 in UTC. Ids are opaque text. The crate does no I/O and validates nothing beyond the JSON types:
//! limits and formats are checked by the server.
//!
//! A `u32` without a maximum below 2³¹ has `value_type = u64` for the OpenAPI document: its format for 32-bit numbers,
//! `int32`, is signed.

#![allow(unused_qualifications, reason = "utoipa's derive of query parameters writes qualified paths")]

pub mod access;
pub mod agent_workspaces;
pub mod diff;
pub mod episodes;
pub mod error;
pub mod error_codes;
pub mod event_log;
pub mod events;
pub mod files;
pub mod keys;
pub mod nfs;
pub mod notes;
pub mod pauses;
pub mod ports;
pub mod previews;
pub mod processes;
pub mod project_completions;
pub mod project_history;
pub mod projects;
pub mod references;
pub mod reviews;
pub mod revision;
pub mod sandbox_metrics;
pub mod sandbox_snapshots;
pub mod sandboxes;
pub mod snapshots;
pub mod system;
pub mod template_builds;
pub mod templates;
pub mod terminals;
