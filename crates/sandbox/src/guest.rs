//! Guest agents: how they connect and prove who they are, and the state the server keeps for each of them.

pub(crate) mod connection;
pub(crate) mod connection_limit;
pub(crate) mod endpoint;
pub(crate) mod handle;
pub(crate) mod handover;
pub(crate) mod identity;
pub(crate) mod listener;
pub(crate) mod processes;
pub(crate) mod tcp;
