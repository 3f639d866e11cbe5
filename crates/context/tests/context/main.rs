//! Tests of the context crate.

mod check;
mod fixture;
mod lift;
mod policy;
mod view;
