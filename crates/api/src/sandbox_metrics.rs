//! `/api/v1/sandboxes/{id}/metrics`: resource usage of a sandbox over the last hour.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Range of the measurements of a sandbox.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MetricsQuery {
    /// Earliest time of a measurement, in RFC 3339.
    pub from: Option<String>,
    /// Latest time of a measurement, in RFC 3339.
    pub to: Option<String>,
}

/// Measurements of a sandbox, at most those of the last hour.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricSeries {
    /// Id of the sandbox.
    pub sandbox_id: String,
    /// Seconds between two measurements. None are made while the sandbox is paused or frozen for a
    /// snapshot, or while the server is down.
    #[schema(example = 5)]
    pub interval_seconds: u64,
    /// Measurements, oldest first.
    pub samples: Vec<MetricSample>,
}

/// Resource usage of a sandbox at one time. A field is absent if the value was not measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({
    "time": "2026-01-31T10:00:05.000Z",
    "cpuPercent": 12.5,
    "cpuSeconds": 3.25,
    "memory": 52428800,
    "disk": 1048576,
    "processes": 7,
    "rxBytes": 12345,
    "txBytes": 678
}))]
pub struct MetricSample {
    /// Time of the measurement.
    #[schema(format = DateTime)]
    pub time: String,
    /// CPU usage since the previous measurement, in percent of one core; 200 for two busy cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// CPU time since the start of the sandbox in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Used memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Used disk space of the workspace and of retained output in bytes, as of the last scan of the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// Number of tasks: processes and all their threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes received since the start of the sandbox. Absent without a network, and with the runtime `oci`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_bytes: Option<u64>,
    /// Bytes sent since the start of the sandbox. Absent without a network, and with the runtime `oci`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_bytes: Option<u64>,
}
