//! Sandboxes: launching them, their first process, their system calls, and the users of their workspace.

pub(crate) mod layout;
pub(crate) mod seccomp;
pub(crate) mod workspace_user;

#[cfg(target_os = "linux")]
pub(crate) mod guest;
#[cfg(target_os = "linux")]
pub mod host_view;
#[cfg(target_os = "linux")]
pub mod launch;
#[cfg(target_os = "linux")]
pub mod own_users;
#[cfg(target_os = "linux")]
pub(crate) mod probe;
#[cfg(target_os = "linux")]
pub mod workspace_users;

#[cfg(not(target_os = "linux"))]
pub use crate::unsupported::{launch, workspace_users};
