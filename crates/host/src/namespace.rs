//! Namespaces: the process that holds them, creating and entering them, ids and credentials in them.

pub(crate) mod clone;
pub(crate) mod credentials;
pub(crate) mod enter;
pub(crate) mod holder;
pub(crate) mod id_map;
pub(crate) mod sandbox_ids;
