//! Expiry of credentials that a caller creates: tokens, signed URLs and previews.

use workspace_api::error_codes;

use crate::caller::Caller;
use crate::error::ApiError;

/// Lifetime in seconds, if the request does not set one.
const LIFETIME_DEFAULT: u64 = 3_600;
/// Maximum lifetime in seconds.
const LIFETIME_MAX: u64 = 86_400;

/// Returns the expiry of a new credential in milliseconds since 1970, at most that of the caller's own token. Fails
/// with `INVALID_REQUEST` if the lifetime in seconds is 0 or longer than a day.
pub(crate) fn expiry(caller: &Caller, seconds: Option<u64>, now: i64) -> Result<i64, ApiError> {
    let seconds = seconds.unwrap_or(LIFETIME_DEFAULT);
    if !(1..=LIFETIME_MAX).contains(&seconds) {
        let message = format!("expiresInSeconds must be between 1 and {LIFETIME_MAX}");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "expiresInSeconds"));
    }
    let wanted = now.saturating_add_unsigned(seconds * 1_000);
    let own = caller.grant.as_ref().and_then(|grant| grant.expires_at);
    Ok(own.map_or(wanted, |own| own.min(wanted)))
}

#[cfg(test)]
mod tests {
    use workspace_catalog::Role;

    use super::*;
    use crate::caller::tests::caller;
    use crate::caller::{Credential, Grant};
    use crate::rights::Rights;

    #[test]
    fn a_lifetime_is_at_most_a_day_and_never_longer_than_that_of_the_token() {
        let key = caller(Role::User);
        assert_eq!(expiry(&key, None, 1_000).unwrap(), 3_601_000);
        assert_eq!(expiry(&key, Some(86_400), 0).unwrap(), 86_400_000);
        for seconds in [0, 86_401, u64::MAX] {
            assert_eq!(expiry(&key, Some(seconds), 0).unwrap_err().code(), error_codes::INVALID_REQUEST);
        }
        let grant = Grant {
            credential: Credential::Token,
            sandbox: "sbx-1".to_owned(),
            sandbox_owner: "a".to_owned(),
            rights: Rights::default(),
            expires_at: Some(5_000),
        };
        let token = Caller { grant: Some(grant), ..key };
        assert_eq!(expiry(&token, Some(60), 1_000).unwrap(), 5_000);
        assert_eq!(expiry(&token, Some(2), 1_000).unwrap(), 3_000);
    }
}
