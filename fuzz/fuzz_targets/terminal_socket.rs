//! Fuzz target for messages to terminals.

#![no_main]

workspace_fuzz::fuzz_input!(terminal_socket);
