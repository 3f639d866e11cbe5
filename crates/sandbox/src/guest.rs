//! Guest agents: connections, authentication, and the state that the server keeps for each agent.

pub(crate) mod connection;
pub(crate) mod connection_limit;
pub(crate) mod endpoint;
pub(crate) mod handle;
pub(crate) mod handover;
pub(crate) mod identity;
pub(crate) mod listener;
pub(crate) mod processes;
pub(crate) mod resource_usage;
pub(crate) mod tcp;
