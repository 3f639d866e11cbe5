//! Generated files of `docs/`.

use std::io;
use std::path::Path;

/// Writes `settings.md`, `errors.md` and `openapi.json` into a directory.
pub fn write_generated_docs(directory: &Path) -> io::Result<()> {
    std::fs::write(directory.join("settings.md"), crate::settings::page())?;
    std::fs::write(directory.join("errors.md"), crate::error_page::page())?;
    std::fs::write(directory.join("openapi.json"), crate::router::openapi_json()?)
}
