//! Caller of a request.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use workspace_api::access::Right;
use workspace_api::error_codes;
use workspace_api::keys::KeyLimits;
use workspace_catalog::{KeyBinding, Role};
use workspace_sandbox::Scope;

use crate::error::ApiError;
use crate::rights::Rights;

/// Authenticated caller, as described by its key.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// Id of the key.
    pub key_id: String,
    /// Display name of the key.
    pub name: String,
    /// Owner whose sandboxes and snapshots the key gives access to.
    pub owner: String,
    /// Role of the key.
    pub role: Role,
    /// Limits of the key that differ from the settings.
    pub limits: KeyLimits,
    /// First 16 hexadecimal digits of the hash of the key, for the audit log.
    pub user: String,
    /// Projects and agents that the key is bound to; `None` if it has access to everything of its owner.
    pub binding: Option<KeyBinding>,
    /// Restriction to one sandbox, if the caller did not send the key itself but a token, a ticket or a signed URL.
    pub grant: Option<Grant>,
}

/// Access to one sandbox by a credential that was created with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Credential that was sent.
    pub credential: Credential,
    /// Id of the sandbox.
    pub sandbox: String,
    /// Owner of the sandbox.
    pub sandbox_owner: String,
    /// Rights in the sandbox.
    pub rights: Rights,
    /// Time at which the access ends, in milliseconds since 1970. `None` for a ticket that a key requested.
    pub expires_at: Option<i64>,
}

/// Credential other than a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// Sandbox token.
    Token,
    /// Ticket for a terminal.
    Ticket {
        /// True if the connection may only read output.
        read_only: bool,
    },
    /// Signed URL of a file.
    SignedUrl {
        /// Maximum size of an upload in bytes; `None` if the URL does not limit it.
        max_bytes: Option<u64>,
    },
}

impl Credential {
    /// Returns the name of the credential in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Ticket { .. } => "ticket",
            Self::SignedUrl { .. } => "signed_url",
        }
    }
}

impl Caller {
    /// Returns true for an admin key, but not for tokens, tickets and signed URLs that were created with it.
    pub fn is_admin(&self) -> bool {
        self.role == Role::Admin && self.grant.is_none()
    }

    /// Fails with `FORBIDDEN` unless the key is an admin key.
    pub fn require_admin(&self) -> Result<(), ApiError> {
        let refused = || ApiError::new(error_codes::FORBIDDEN, "only admin keys may do this");
        self.is_admin().then_some(()).ok_or_else(refused)
    }

    /// Fails with `FORBIDDEN` if the key is bound to projects and agents.
    pub fn require_unbound(&self) -> Result<(), ApiError> {
        let refused =
            || ApiError::new(error_codes::FORBIDDEN, "the key of an agent or a reviewer may not do this");
        self.binding.is_none().then_some(()).ok_or_else(refused)
    }

    /// Fails with `FORBIDDEN` if the caller has sent a token without this right. A key has all rights.
    pub fn require(&self, right: Right) -> Result<(), ApiError> {
        let refused = || {
            let message = format!("the token lacks the right `{}`", right.as_str());
            ApiError::new(error_codes::FORBIDDEN, message).detail("right", right.as_str())
        };
        self.has(right).then_some(()).ok_or_else(refused)
    }

    /// Returns true unless the caller has sent a token without this right. A key has all rights.
    pub fn has(&self, right: Right) -> bool {
        self.grant.as_ref().is_none_or(|grant| grant.rights.contains(right))
    }

    /// Returns true if the caller may read and write the files of its sandboxes, which whoever mounts them can do.
    pub fn may_mount(&self) -> bool {
        self.role != Role::ReadOnly && self.has(Right::FilesRead) && self.has(Right::FilesWrite)
    }

    /// Returns the credential that was sent instead of the key; `None` for the key itself.
    pub fn credential(&self) -> Option<Credential> {
        self.grant.as_ref().map(|grant| grant.credential)
    }

    /// Returns the maximum size of an upload in bytes, if a signed URL limits it.
    pub fn upload_max(&self) -> Option<u64> {
        match self.credential() {
            Some(Credential::SignedUrl { max_bytes }) => max_bytes,
            Some(Credential::Token | Credential::Ticket { .. }) | None => None,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get().cloned();
        caller.ok_or_else(|| ApiError::internal("a route without authentication asked for the caller"))
    }
}

/// Returns the scope of a caller: one sandbox for tokens, tickets and signed URLs, everything for admin keys, else the
/// resources of its owner.
pub(crate) fn scope(caller: &Caller) -> Scope {
    match &caller.grant {
        Some(grant) => Scope::Sandbox { owner: grant.sandbox_owner.clone(), id: grant.sandbox.clone() },
        None if caller.is_admin() => Scope::All,
        None => Scope::Owner(caller.owner.clone()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn caller(role: Role) -> Caller {
        Caller {
            key_id: "key-1".to_owned(),
            name: "a test".to_owned(),
            owner: "a".to_owned(),
            role,
            limits: KeyLimits::default(),
            user: "0".to_owned(),
            binding: None,
            grant: None,
        }
    }

    #[test]
    fn a_token_of_an_admin_key_is_limited_to_its_sandbox() {
        let admin = caller(Role::Admin);
        assert_eq!((admin.is_admin(), scope(&admin)), (true, Scope::All));
        let grant = Grant {
            credential: Credential::Token,
            sandbox: "sbx-1".to_owned(),
            sandbox_owner: "b".to_owned(),
            rights: [Right::Process].into_iter().collect(),
            expires_at: Some(0),
        };
        let token = Caller { grant: Some(grant), ..admin };
        assert!(!token.is_admin() && token.require_admin().is_err());
        assert_eq!(scope(&token), Scope::Sandbox { owner: "b".to_owned(), id: "sbx-1".to_owned() });
        assert!(token.require(Right::Process).is_ok());
        assert_eq!(token.require(Right::Terminal).unwrap_err().code(), error_codes::FORBIDDEN);
    }

    #[test]
    fn a_key_has_all_rights() {
        for role in [Role::Admin, Role::User] {
            assert!(Right::ALL.into_iter().all(|right| caller(role).require(right).is_ok()));
        }
    }
}
