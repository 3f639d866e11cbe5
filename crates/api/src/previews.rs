//! `/api/v1/sandboxes/{id}/ports/{port}`: previews of HTTP servers that run in a sandbox.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request for a preview of a port.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"expiresInSeconds": 3600}))]
pub struct CreatePreview {
    /// Lifetime of the preview in seconds. Default: 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub expires_in_seconds: Option<u64>,
    /// Header `Host` of the requests that the program in the sandbox gets. Default: `keep`.
    #[serde(default)]
    pub host_header: HostHeader,
}

/// Header `Host` of forwarded requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostHeader {
    /// Host of the preview, as the client sent it.
    #[default]
    Keep,
    /// `localhost` with the port, for programs that refuse other hosts.
    Localhost,
}

/// Preview of a port: a URL that shows the HTTP server on it, without a key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// URL to open in a browser. It is on a host of its own if the server has a `PREVIEW_DOMAIN`, else it is `pathUrl`.
    pub url: String,
    /// URL below `/preview/` on the host of the API. The browser isolates pages there (`Content-Security-Policy:
    /// sandbox`): they have no cookies and no storage.
    pub path_url: String,
    /// Token for programs, to send in the header `X-Workspace-Preview-Token` to the host of `url`. The server does not
    /// store it, so it cannot be read again.
    pub token: String,
    /// Time at which the preview ends. It ends earlier if its key is revoked or its sandbox is deleted.
    #[schema(format = DateTime)]
    pub expires_at: String,
}
