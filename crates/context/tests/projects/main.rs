//! Tests of projects over a catalog and a store.

mod agent_views;
mod completions;
mod fixture;
mod hidden_names;
mod history;
mod reviews;
