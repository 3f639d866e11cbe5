//! Tests of the command as a process, with real stores, directories, servers and sandboxes.
//!
//! Output for users is in `snapshots/`, with ids, times and paths replaced; `INSTA_UPDATE=always cargo test -p
//! workspace-cli` updates it.

mod builds;
mod commands;
mod copies;
mod diffs;
mod directories;
mod episodes;
mod errors;
mod files;
mod generated;
mod git;
mod history;
mod http;
mod json;
mod lineage;
mod merge_driver;
mod merged_trees;
mod merges;
mod operations;
mod pipes;
mod project_clones;
mod project_git;
mod project_workspaces;
mod projects;
mod real_path_views;
mod real_paths;
mod redact;
mod references;
mod remote_snapshots;
mod reviews;
mod sandboxes;
mod server;
mod serverless_runs;
mod shared_access;
mod shells;
mod space;
mod support;
mod tar;
mod terminal;
mod tls;
mod trees;
mod trials;
mod views;
mod workspaces;
