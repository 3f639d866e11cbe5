//! The sandboxes that a caller may see and change.

/// The sandboxes that a caller may see and change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Sandboxes of one owner.
    Owner(String),
    /// All sandboxes.
    All,
}

impl Scope {
    /// Returns the owner whose sandboxes it covers; `None` for all.
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::Owner(name) => Some(name),
            Self::All => None,
        }
    }

    /// Returns true if it covers the sandboxes of an owner; `None` for a sandbox without an owner.
    pub(crate) fn covers(&self, owner: Option<&str>) -> bool {
        match self {
            Self::Owner(name) => owner == Some(name),
            Self::All => true,
        }
    }
}
