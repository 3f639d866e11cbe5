//! Tests of diffs, insight diffs (diffs with line counts and risk notes) and patches through the public interface.
//! Results are compared with models of trees, which are plain maps, and with git.

mod insight;
mod model;
mod patches;
mod trees;
