//! Paths inside a sandbox, the same for every runtime.

/// Mount point of the workspace.
pub const WORKSPACE: &str = "/workspace";
/// Directory with the server's socket.
pub const SOCKETS: &str = "/run/workspace";
