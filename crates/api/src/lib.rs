//! The types of the REST API: request and response bodies, query parameters, events and error codes.
//!
//! The server reads and writes these types, the command line and other clients do the reverse, and the OpenAPI
//! document is generated from them. Nothing else defines what goes over the wire, so a change here is a change of the
//! API: run `scripts/generate.sh` after it and look at the difference in `docs/openapi.json`.
//!
//! Names of fields are in camelCase. The exceptions are named where they are: fields that a client may also send in
//! snake_case have an alias, and trees and diffs use the snake_case names of `workspace --json` and `docs/insight.md`.
//! Requests refuse unknown fields; responses may gain fields, so clients ignore those that they do not know.
//!
//! Times are RFC 3339 in UTC. Ids are opaque text. The crate does no I/O and validates nothing beyond the JSON types:
//! limits and formats are checked by the server.

#![allow(unused_qualifications, reason = "utoipa's derive of query parameters writes qualified paths")]

pub mod diff;
pub mod episodes;
pub mod error;
pub mod error_codes;
pub mod events;
pub mod keys;
pub mod processes;
pub mod sandbox_snapshots;
pub mod sandboxes;
pub mod snapshots;
pub mod system;
pub mod templates;
pub mod terminals;
