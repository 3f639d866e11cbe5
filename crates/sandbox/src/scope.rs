//! The sandboxes that a caller may see and change.

use workspace_catalog::covers_owner;

/// The sandboxes that a caller may see and change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Sandboxes of one owner and of its agents, whose owners are `OWNER/agents/AGENT` ([`covers_owner`]).
    Owner(String),
    /// One sandbox of an owner, for a sandbox token. A list (of sandboxes, snapshots or searches) in this scope is
    /// empty: it does not have even this sandbox.
    Sandbox {
        /// Owner of the sandbox, whose quotas apply.
        owner: String,
        /// Id of the sandbox.
        id: String,
    },
    /// All sandboxes.
    All,
}

impl Scope {
    /// Returns the owner whose sandboxes, or one of them, the scope covers; `None` for the sandboxes of all owners.
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::Owner(owner) | Self::Sandbox { owner, .. } => Some(owner),
            Self::All => None,
        }
    }

    /// Returns true if it covers a sandbox of an owner. A sandbox of the warm pool has no owner.
    pub fn covers(&self, id: &str, owner: Option<&str>) -> bool {
        match self {
            Self::Owner(name) => owner.is_some_and(|owner| covers_owner(name, owner)),
            Self::Sandbox { owner: name, .. } => owner == Some(name) && self.covers_id(id),
            Self::All => true,
        }
    }

    /// Returns false if the scope excludes that id, independent of its owner.
    pub(crate) fn covers_id(&self, id: &str) -> bool {
        match self {
            Self::Sandbox { id: only, .. } => only == id,
            Self::Owner(_) | Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_of_one_sandbox_covers_no_other_sandbox_of_the_owner() {
        let one = Scope::Sandbox { owner: "alice".to_owned(), id: "sbx-1".to_owned() };
        assert!(one.covers("sbx-1", Some("alice")));
        assert!(!one.covers("sbx-2", Some("alice")));
        assert!(!one.covers("sbx-1", Some("bob")) && !one.covers("sbx-1", None));
        assert_eq!(one.owner(), Some("alice"));
        let owner = Scope::Owner("alice".to_owned());
        assert!(owner.covers("sbx-2", Some("alice/agents/coder")));
        assert!(!owner.covers("sbx-2", Some("bob/agents/alice/agents/coder")));
        assert!(!Scope::Owner("alice/agents/coder".to_owned()).covers("sbx-2", Some("alice")));
        assert!(owner.covers("sbx-2", Some("alice")) && !owner.covers("sbx-2", None));
        assert!(Scope::All.covers("sbx-2", None));
    }
}
