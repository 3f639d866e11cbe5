//! Access levels of agents at paths.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Rights of an agent at a path. Each level includes the rights of the levels before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Access {
    /// No rights: the entry is hidden.
    #[serde(rename = "none")]
    None,
    /// Read.
    #[serde(rename = "R")]
    Read,
    /// Add entries that do not exist.
    #[serde(rename = "RA")]
    ReadAdd,
    /// Change content and attributes, but not delete.
    #[serde(rename = "RW-")]
    NoDelete,
    /// Read, add, change and delete.
    #[default]
    #[serde(rename = "RW")]
    Full,
}

impl Access {
    /// All levels, lowest first.
    pub const ALL: [Self; 5] = [Self::None, Self::Read, Self::ReadAdd, Self::NoDelete, Self::Full];

    /// Returns true if the entry is visible.
    pub fn can_read(self) -> bool {
        self >= Self::Read
    }

    /// Returns true if an entry may be added.
    pub fn can_add(self) -> bool {
        self >= Self::ReadAdd
    }

    /// Returns true if content and attributes may be changed.
    pub fn can_change(self) -> bool {
        self >= Self::NoDelete
    }

    /// Returns true if the entry may be deleted.
    pub fn can_delete(self) -> bool {
        self >= Self::Full
    }

    /// Returns the name used in policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "R",
            Self::ReadAdd => "RA",
            Self::NoDelete => "RW-",
            Self::Full => "RW",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json_form() {
        for access in Access::ALL {
            let json = serde_json::to_string(&access).unwrap();
            assert_eq!(json, format!("\"{access}\""));
            assert_eq!(serde_json::from_str::<Access>(&json).unwrap(), access);
        }
        assert!(serde_json::from_str::<Access>("\"rw\"").is_err());
    }

    #[test]
    fn each_level_adds_one_right() {
        let rights = |access: Access| {
            [access.can_read(), access.can_add(), access.can_change(), access.can_delete()]
                .map(u8::from)
                .iter()
                .sum::<u8>()
        };
        assert_eq!(Access::ALL.map(rights), [0, 1, 2, 3, 4]);
    }
}
