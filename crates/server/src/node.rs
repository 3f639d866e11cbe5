//! Name of this server among those that share a catalog. It is created once and kept in `DATA_DIR/node`,
//! because the server's sandboxes are in that directory too.

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
        // An empty name identifies no server.
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
    fn a_name_stays_and_no_two_are_alike() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = name(one.path()).unwrap();
        assert_eq!(name(one.path()).unwrap(), first);
        assert_ne!(name(other.path()).unwrap(), first);
        std::fs::write(one.path().join("node"), "\n").unwrap();
        assert_ne!(name(one.path()).unwrap(), "");
    }
}
