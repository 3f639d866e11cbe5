//! Tests of projects over a catalog and a store.

mod agent_views;
mod completions;
mod fixture;
mod history;
mod reviews;
