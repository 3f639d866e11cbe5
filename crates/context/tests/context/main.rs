//! Tests of policies (access of agents to paths), of views of trees, of checks of changes, and of lifts.

mod check;
mod fixture;
mod lift;
mod policy;
mod view;
