//! Fuzz target for merges of notebooks.

#![no_main]

workspace_fuzz::fuzz_input!(merge_notebook);
