//! NFS: the workspaces of sandboxes as exports, for clients outside of the sandboxes.
//!
//! - `server`: the server (embedded, or that of the kernel), and the exports in the form of the API.
//! - `exports`: adds, replaces and removes the export of each workspace, as hooks of the sandbox service.
//! - `workspace_access`: lets operations of clients wait for commits and restores, and applies the disk limit.
//! - `observer`: metrics and audit entries of operations, mounts and refusals.
//! - `routes`: the list of exports.

mod exports;
mod observer;
pub(crate) mod routes;
pub(crate) mod server;
mod workspace_access;
