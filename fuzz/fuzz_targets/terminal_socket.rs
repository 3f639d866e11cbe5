//! Messages to terminals.

#![no_main]

workspace_fuzz::fuzz_input!(terminal_socket);
