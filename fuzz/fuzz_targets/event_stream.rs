//! Fuzz target for event streams and their resume positions.

#![no_main]

workspace_fuzz::fuzz_input!(event_stream);
