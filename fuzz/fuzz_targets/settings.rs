//! Fuzz target for settings of a server.

#![no_main]

workspace_fuzz::fuzz_input!(settings);
