//! Notebooks, merged.

#![no_main]

workspace_fuzz::fuzz_input!(merge_notebook);
