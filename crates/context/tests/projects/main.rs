//! Tests of projects over a catalog and a store.

mod completions;
mod fixture;
mod history;
mod reviews;
