//! Tests of the NFS server over TCP, with real directories.
//!
//! The client encodes with the crate `nfs3_types`, which the server does not use. So a mistake in the server's codec is
//! not hidden by the same mistake in the client.

#![cfg(target_os = "linux")]

mod access;
mod attributes;
mod child;
mod client;
mod contract;
mod create;
mod fixture;
mod foreign;
mod handles;
mod hostile;
mod list;
mod management;
mod memory;
mod mount;
mod names;
mod overlay;
mod read_write;
mod remove;
mod rename;
mod restart;
mod search;
