//! Fuzz target for input of guests.

#![no_main]

workspace_fuzz::fuzz_input!(guest_protocol);
