//! Resource usage of a sandbox, as the runtime and the guest agent report it.

use std::time::Duration;

use crate::guest::handle::SandboxHandle;
use crate::runtime::ResourceUsage;

/// Asks the guest agent for values that the runtime did not measure. Values that the agent does not report either stay
/// `None`.
pub(crate) async fn complete_from_agent(usage: ResourceUsage, handle: &SandboxHandle) -> ResourceUsage {
    if usage.cpu.is_some() && usage.memory_bytes.is_some() && usage.processes.is_some() {
        return usage;
    }
    let Some(reported) = handle.guest.request_usage().await else { return usage };
    ResourceUsage {
        cpu: usage.cpu.or(Some(Duration::from_micros(reported.cpu_micros))),
        memory_bytes: usage.memory_bytes.or(Some(reported.memory_bytes)),
        processes: usage.processes.or(Some(reported.processes.into())),
        ..usage
    }
}
