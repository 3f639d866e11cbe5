//! Streams of events, and where they go on.

#![no_main]

workspace_fuzz::fuzz_input!(event_stream);
