//! The files in `docs/` that come from the source.

use std::io;
use std::path::Path;

/// Writes them into a directory.
pub fn generate(directory: &Path) -> io::Result<()> {
    std::fs::write(directory.join("settings.md"), crate::settings::page())?;
    std::fs::write(directory.join("errors.md"), crate::error_page::page())?;
    std::fs::write(directory.join("openapi.json"), crate::router::openapi_json()?)
}
