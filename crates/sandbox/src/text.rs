//! Validation of short texts that clients choose.

use crate::error::{Result, SandboxError};

/// Fails unless a text has between 1 and `max` bytes, and no control characters.
pub(crate) fn check_text(field: &'static str, text: &str, max: usize) -> Result<()> {
    if text.is_empty() || text.len() > max || text.chars().any(char::is_control) {
        let message = format!("must have between 1 and {max} bytes, without control characters");
        return Err(SandboxError::Invalid { field, message });
    }
    Ok(())
}
