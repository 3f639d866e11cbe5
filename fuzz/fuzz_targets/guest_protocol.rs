//! What a guest may say.

#![no_main]

workspace_fuzz::fuzz_input!(guest_protocol);
