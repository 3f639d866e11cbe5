//! Tests of the program with real sandboxes, through HTTP.

mod access;
mod audit;
mod bridge;
mod commands;
mod container;
pub(crate) mod disk;
mod egress;
mod events;
mod exhaustion;
mod files;
mod full_disk;
mod imports;
mod kills;
mod lineage;
mod ports;
mod postgres;
mod previews;
mod sandboxes;
mod stop;
mod stream;
mod terminals;
pub(crate) mod test_server;
mod trees;
mod watches;
mod words;
mod workspaces;
