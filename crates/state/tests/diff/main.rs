//! Diff, insight diff and patches, from outside: against a plain model of trees, and against git.

mod insight;
mod model;
mod patches;
mod trees;
