//! Paths of the API and sizes of requests that the commands on projects share.

use crate::remote::percent_encode;

/// Number of entries per request.
pub(super) const PAGE_SIZE: u32 = 1_000;
/// Time in seconds for which one request waits for a completion.
pub(super) const WAIT_SECONDS: u64 = 30;

/// Returns the path of a project in the API.
pub(in crate::commands) fn project_path(project: &str) -> String {
    format!("/api/v1/projects/{}", percent_encode(project.as_bytes()))
}
