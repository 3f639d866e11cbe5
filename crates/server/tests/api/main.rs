//! Tests of the server through HTTP: in this process, and as a program.

mod auth;
mod documents;
mod errors;
mod events;
mod guests;
mod keys;
mod limits;
mod program;
mod real;
mod settings;
mod signed_urls;
mod snapshots;
mod support;
mod system;
mod tickets;
mod tls;
mod tokens;
