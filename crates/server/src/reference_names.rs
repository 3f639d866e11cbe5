//! Names of references: those that callers use, and those in the store.
//!
//! The store knows no owners. The reference `main` of the owner `alice` is `owners/alice/main` in the store, so owners can
//! neither see nor change references of others, whatever names they use. Admin keys use the names of the store: `main` is
//! the reference that the command line calls `main`, and `owners/alice/main` that of `alice`.
//!
//! Owners may have any characters, names of references only some. In the name of an owner, each byte other than an ASCII
//! letter, a digit, `_` or `-` becomes a `.` and two hexadecimal digits. A name that would be too long becomes `.-` and its
//! BLAKE3 hash; no other owner has that, because `-` is not a digit.

use workspace_api::error_codes;
use workspace_sandbox::Scope;
use workspace_state::{SnapshotId, Store, StoreError, check_reference_name};

use crate::error::ApiError;

/// Prefix of the references of owners in the store.
const OWNERS: &str = "owners/";
/// Maximum length of the part of a name that stands for its owner, in bytes.
const OWNER_MAX: usize = 110;
/// Maximum length of a name that an owner uses, in bytes. With [`OWNERS`] and [`OWNER_MAX`] it fits into
/// [`STORE_NAME_MAX`].
const NAME_MAX: usize = 128;
/// Maximum length of a name in the store, in bytes.
const STORE_NAME_MAX: usize = 255;

/// Names of the references in a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReferenceNames {
    /// Prefix in the store; empty for admins.
    prefix: String,
}

impl ReferenceNames {
    /// Returns the names in a scope.
    pub(crate) fn of(scope: &Scope) -> Self {
        let prefix = match scope {
            Scope::Owner(owner) | Scope::Sandbox { owner, .. } => format!("{OWNERS}{}/", encode_owner(owner)),
            Scope::All => String::new(),
        };
        Self { prefix }
    }

    /// Returns the name in the store.
    pub(crate) fn in_store(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Validates the name of a new reference.
    pub(crate) fn check(&self, name: &str) -> Result<(), ApiError> {
        let max = if self.prefix.is_empty() { STORE_NAME_MAX } else { NAME_MAX };
        if name.len() <= max && check_reference_name(name).is_ok() {
            return Ok(());
        }
        let message = format!(
            "`{}` is not a name of a reference: use 1 to {max} of A-Z a-z 0-9 . _ - / without empty parts",
            shorten(name)
        );
        Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "name"))
    }

    /// Returns the references of the scope whose names begin with `prefix`, sorted by name.
    pub(crate) fn list(&self, store: &Store, prefix: &str) -> Result<Vec<(String, SnapshotId)>, StoreError> {
        let mut found = store.references_with_prefix(&self.in_store(prefix))?;
        for (name, _) in &mut found {
            name.drain(..self.prefix.len());
        }
        Ok(found)
    }

    /// Returns the first name of the scope that points to a snapshot. Reads no references of others.
    pub(crate) fn first_to(&self, store: &Store, id: &SnapshotId) -> Result<Option<String>, StoreError> {
        let found = store.first_reference_to(id, &self.prefix)?;
        Ok(found.map(|name| name[self.prefix.len()..].to_owned()))
    }

    /// Returns the key of the lock for changes of the references of an owner, or of those without an owner.
    pub(crate) fn lock_key(&self, name: &str) -> String {
        let name = self.in_store(name);
        let owner = name.strip_prefix(OWNERS).and_then(|rest| rest.split('/').next());
        owner.unwrap_or_default().to_owned()
    }
}

/// Returns true if a reference that belongs to no owner, such as one of the command line, points to a snapshot.
pub(crate) fn has_reference_without_owner(store: &Store, id: &SnapshotId) -> Result<bool, StoreError> {
    Ok(store.first_reference_outside(id, OWNERS)?.is_some())
}

fn encode_owner(owner: &str) -> String {
    let mut encoded = String::new();
    for byte in owner.bytes() {
        if byte.is_ascii_alphanumeric() || b"_-".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!(".{byte:02x}"));
        }
    }
    if (1..=OWNER_MAX).contains(&encoded.len()) {
        encoded
    } else {
        format!(".-{}", blake3::hash(owner.as_bytes()).to_hex())
    }
}

/// Returns the start of a name for a message.
fn shorten(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn of(owner: &str) -> ReferenceNames {
        ReferenceNames::of(&Scope::Owner(owner.to_owned()))
    }

    #[test]
    fn names_of_owners_are_apart_and_valid_in_the_store() {
        let long = ["o", "ö", " "].map(|letter| letter.repeat(100));
        let mut owners: Vec<&str> = long.iter().map(String::as_str).collect();
        owners.extend([
            "a", "A", "a/b", "a.2fb", "a.b", "..", ".", "", " ", "-", ".-", "a b", "团队", "a\0b", "owners",
        ]);
        let longest = "n".repeat(NAME_MAX);
        let mut seen = HashSet::new();
        for owner in &owners {
            let names = of(owner);
            for name in ["main", "a/b", "owners/a/main", &longest] {
                let store_name = names.in_store(name);
                assert!(
                    names.check(name).is_ok() && check_reference_name(&store_name).is_ok(),
                    "{store_name}"
                );
                assert!(seen.insert(store_name.clone()), "{store_name} twice");
                assert!(store_name.starts_with(OWNERS), "{store_name}");
                let readers = owners.iter().filter(|other| store_name.starts_with(&of(other).prefix)).count();
                assert_eq!(readers, 1, "{store_name}");
            }
        }
        assert_eq!(of("alice").in_store("main"), "owners/alice/main");
        assert_eq!(of("team a").in_store("main"), "owners/team.20a/main");
    }

    #[test]
    fn references_to_a_snapshot_are_found_in_their_scope() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let id = store.empty_tree().unwrap().commit(workspace_state::NewSnapshot::default()).unwrap().id;
        let set = |name: &str| {
            let (expect, durability) =
                (workspace_state::Expect::Absent, workspace_state::Durability::Buffered);
            store.set_reference(name, expect, id, durability).unwrap();
        };
        let first = |scope: &Scope| ReferenceNames::of(scope).first_to(&store, &id).unwrap();
        let (alice, bob) = (Scope::Owner("alice".to_owned()), Scope::Owner("bob".to_owned()));
        set("owners/alice/main");
        assert_eq!(first(&alice).as_deref(), Some("main"));
        assert_eq!((first(&bob), has_reference_without_owner(&store, &id).unwrap()), (None, false));
        assert_eq!(first(&Scope::All).as_deref(), Some("owners/alice/main"));
        set("runs/1");
        assert!(has_reference_without_owner(&store, &id).unwrap());
    }

    #[test]
    fn hostile_names_are_refused() {
        let long = "n".repeat(NAME_MAX + 1);
        for name in
            ["", "/", "a/", "/a", "..", "../bob/main", "a/../b", "a b", "a\0", "é", "a~1", "a%2fb", &long]
        {
            assert!(of("alice").check(name).is_err(), "{name}");
        }
        let admin = ReferenceNames::of(&Scope::All);
        assert!(
            admin.check(&long).is_ok()
                && admin.check("../x").is_err()
                && admin.check(&"n".repeat(256)).is_err()
        );
    }

    #[test]
    fn changes_by_admins_and_by_owners_have_the_same_lock() {
        let admin = ReferenceNames::of(&Scope::All);
        assert_eq!(admin.lock_key("owners/alice/main"), of("alice").lock_key("main"));
        assert_ne!(of("alice").lock_key("main"), of("bob").lock_key("main"));
        assert_eq!((admin.lock_key("main"), admin.lock_key("runs/1")), (String::new(), String::new()));
    }
}
