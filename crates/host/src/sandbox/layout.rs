//! What a sandbox looks like from inside, whichever system and runtime it runs on.

/// Where the workspace is, inside.
pub const WORKSPACE: &str = "/workspace";
/// Where the directory with the server's socket is, inside.
pub const SOCKETS: &str = "/run/workspace";
