//! Users that commands run as.

use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;

/// Maximum length of the name of a user, in bytes.
const NAME_MAX: usize = 256;
/// Names of the user of every sandbox.
const SANDBOX_USER: [&str; 2] = ["sandbox", "1000"];

impl SandboxHandle {
    /// Returns the user for a request to the guest agent: empty for its own user. Fails if the sandbox has no
    /// other users.
    pub(crate) fn requested_user(&self, user: Option<String>) -> Result<String> {
        let Some(user) = user.filter(|user| !SANDBOX_USER.contains(&user.as_str())) else {
            return Ok(String::new());
        };
        let is_valid = !user.is_empty() && user.len() <= NAME_MAX;
        if !is_valid || user.contains(|character: char| character == ':' || character.is_control()) {
            let message =
                format!("must have between 1 and {NAME_MAX} bytes, without `:` and control characters");
            return Err(SandboxError::Invalid { field: "user", message });
        }
        if !self.guest.stream()?.capabilities.switches_users {
            return Err(SandboxError::UserUnavailable { user });
        }
        Ok(user)
    }
}
