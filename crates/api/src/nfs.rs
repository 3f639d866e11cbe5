//! `/api/v1/nfs`: exports of workspaces over NFS.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Address of the workspace of a sandbox for NFS clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NfsInfo {
    /// Host name or address.
    #[schema(example = "127.0.0.1")]
    pub host: String,
    /// TCP port of NFS; in the mode `embedded` also of MOUNT.
    #[schema(example = 2049)]
    pub port: u16,
    /// Path to mount. It has a secret unless the server's setting `NFS_MOUNT_SECRET` is off, or the mode is `system`:
    /// whoever knows the path can read and write the workspace.
    #[schema(example = "/sbx-0190c2f1a5c07cc0a1b2c3d4e5f60718.6f1c9c2a8b7d4e5f90a1b2c3d4e5f607")]
    pub path: String,
    /// Command that mounts the workspace at `/mnt` on Linux by NFSv3. It needs root.
    pub mount_command: String,
    /// Command that mounts the workspace at `/mnt` on Linux by NFSv4, which only the mode `system` supports. It needs root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_command_v4: Option<String>,
    /// Command that mounts the workspace at `/mnt` on macOS.
    pub mount_command_macos: String,
}

/// Export of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NfsExport {
    /// Id of the sandbox.
    pub sandbox: String,
    /// Address for clients.
    pub nfs: NfsInfo,
    /// True if clients may only read.
    pub read_only: bool,
    /// Networks whose clients may use the export; `*` is every network.
    #[schema(example = "*")]
    pub clients: String,
    /// Number of mounts that clients have announced and not taken back. A client that crashed still counts. Always 0 in
    /// the mode `system`.
    pub mounts: u64,
}

/// Exports of the caller's workspaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NfsExports {
    /// `embedded`, `system` for the NFS server of the kernel, or `off` if the server has no NFS.
    #[schema(example = "embedded")]
    pub mode: String,
    /// Exports, ordered by the ids of their sandboxes.
    pub items: Vec<NfsExport>,
}
