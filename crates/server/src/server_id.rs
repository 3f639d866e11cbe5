//! Id of this server among those that share a catalog. It is in `DATA_DIR/node`, next to the sandboxes of the server.

use std::path::Path;

use uuid::Uuid;

use crate::private_file::{self, PrivateFileError};

/// Reads the id from `DATA_DIR`, or creates one.
pub(crate) fn read_or_create(data: &Path) -> Result<String, PrivateFileError> {
    let path = data.join("node");
    if let Some(text) = private_file::read(&path)? {
        let id = text.trim();
        if !id.is_empty() {
            return Ok(id.to_owned());
        }
        // A crash can leave an empty file.
        std::fs::remove_file(&path).map_err(PrivateFileError::failed_to("remove", &path))?;
    }
    let id = format!("node-{}", Uuid::now_v7().simple());
    private_file::create(&path, &format!("{id}\n"))?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_stable_and_unique() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = read_or_create(one.path()).unwrap();
        assert_eq!(read_or_create(one.path()).unwrap(), first);
        assert_ne!(read_or_create(other.path()).unwrap(), first);
        std::fs::write(one.path().join("node"), "\n").unwrap();
        assert_ne!(read_or_create(one.path()).unwrap(), "");
    }
}
