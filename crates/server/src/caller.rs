//! Caller of a request.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use workspace_api::error_codes;
use workspace_api::keys::KeyLimits;
use workspace_catalog::Role;
use workspace_sandbox::Scope;

use crate::error::ApiError;

/// Authenticated caller, as described by its key.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// Id of the key.
    pub key_id: String,
    /// Owner whose sandboxes and snapshots the key gives access to.
    pub owner: String,
    /// Role of the key.
    pub role: Role,
    /// Limits of the key that differ from the settings.
    pub limits: KeyLimits,
    /// First 16 digits of the hash of the key, for the audit log.
    pub user: String,
}

impl Caller {
    /// Returns true for admin keys.
    pub fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }

    /// Fails with `FORBIDDEN` unless the key is an admin key.
    pub fn require_admin(&self) -> Result<(), ApiError> {
        let refused = || ApiError::new(error_codes::FORBIDDEN, "only admin keys may do this");
        self.is_admin().then_some(()).ok_or_else(refused)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get().cloned();
        caller.ok_or_else(|| ApiError::internal("a route without authentication asked for the caller"))
    }
}

/// Returns the scope of a caller: everything for admins, else the resources of its owner.
pub(crate) fn scope(caller: &Caller) -> Scope {
    if caller.is_admin() { Scope::All } else { Scope::Owner(caller.owner.clone()) }
}
