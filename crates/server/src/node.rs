//! Name of this server among those that share a catalog. It is in `DATA_DIR/node`, because the sandboxes of the server are
//! in that directory, too.

use std::path::Path;

use uuid::Uuid;

use crate::private::{self, PrivateError};

/// Reads the name, or creates it.
pub(crate) fn name(data: &Path) -> Result<String, PrivateError> {
    let path = data.join("node");
    if let Some(text) = private::read(&path)? {
        let name = text.trim();
        if !name.is_empty() {
            return Ok(name.to_owned());
        }
        // A crash can leave an empty file.
        std::fs::remove_file(&path).map_err(PrivateError::of("remove", &path))?;
    }
    let name = format!("node-{}", Uuid::now_v7().simple());
    private::create(&path, &format!("{name}\n"))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_stable_and_unique() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = name(one.path()).unwrap();
        assert_eq!(name(one.path()).unwrap(), first);
        assert_ne!(name(other.path()).unwrap(), first);
        std::fs::write(one.path().join("node"), "\n").unwrap();
        assert_ne!(name(one.path()).unwrap(), "");
    }
}
