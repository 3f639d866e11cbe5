//! `/api/v1/sandboxes/{id}/ports`: TCP ports of a running sandbox.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// TCP ports on which processes of a sandbox listen.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PortList {
    /// Ports, ordered by number.
    pub items: Vec<ListeningPort>,
}

/// TCP port on which a process of a sandbox listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListeningPort {
    /// Number of the port.
    #[schema(value_type = u64, example = 8000)]
    pub port: u16,
    /// IP address on which the process listens. `0.0.0.0` and `::` are all addresses.
    #[schema(example = "127.0.0.1")]
    pub address: String,
    /// PID inside the sandbox. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub pid: Option<u32>,
    /// Name of the program. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "python3")]
    pub program: Option<String>,
}
