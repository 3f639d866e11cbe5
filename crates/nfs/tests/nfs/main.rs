//! Contract of the NFS server, over the wire, on real directories.
//!
//! The client encodes with `nfs3_types`, which the server does not use: a mistake in one codec is not repeated by the
//! other.

#![cfg(target_os = "linux")]

mod access;
mod attributes;
mod child;
mod client;
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
