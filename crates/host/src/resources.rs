//! Resources of a sandbox: limits, usage, and freezing.

pub mod free_space;
pub(crate) mod frozen;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "limits are enforced only on Linux"))]
pub mod limits;

#[cfg(target_os = "linux")]
pub mod cgroup;
#[cfg(target_os = "linux")]
pub mod disk_usage;
#[cfg(target_os = "linux")]
pub mod freeze;
#[cfg(target_os = "linux")]
pub(crate) mod hierarchy;
#[cfg(target_os = "linux")]
pub mod quota;
#[cfg(target_os = "linux")]
pub(crate) mod sysctl_limits;

#[cfg(not(target_os = "linux"))]
pub use crate::unsupported::{disk_usage, freeze, quota};
