//! Finds snapshots on a server by id or reference.

use workspace_api::references::Reference;
use workspace_state::{SnapshotId, check_reference_name};

use super::{Client, percent_encode};
use crate::error::{CommandError, Result};

/// Returns the full id of the snapshot that `text` names: an id, or a reference on the server.
pub(crate) async fn find_snapshot(client: &Client, text: &str) -> Result<String> {
    if let Ok(id) = text.parse::<SnapshotId>() {
        return Ok(id.to_string());
    }
    if check_reference_name(text).is_err() {
        return Err(CommandError::failed(format!("`{text}` is neither a full id nor a reference"))
            .hint("with `--server`, name a snapshot by its full id or by a reference on the server"));
    }
    let reference: Reference = client.get(&reference_path(text)).await?;
    Ok(reference.snapshot)
}

/// Returns the path of a reference in the API.
pub(crate) fn reference_path(name: &str) -> String {
    format!("/api/v1/references/{}", percent_encode(name.as_bytes()))
}
