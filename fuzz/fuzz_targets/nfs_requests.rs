//! Fuzz target for requests of NFS clients.

#![no_main]

workspace_fuzz::fuzz_input!(nfs_requests);
