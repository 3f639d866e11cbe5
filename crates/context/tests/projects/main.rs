//! Tests of projects over a catalog and a store.

mod abandoned;
mod agent_views;
mod child;
mod completions;
mod crash;
mod crash_check;
mod disk_full;
mod fixture;
mod hidden_names;
mod history;
mod matrix;
mod model;
mod reviews;
mod server;
mod servers;
