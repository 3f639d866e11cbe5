//! What merges are held to.

mod git;
