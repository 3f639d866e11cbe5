//! Lineage of a sandbox: who created it, from what, and for what.

use serde::{Deserialize, Serialize};

use crate::config::check_text;
use crate::error::Result;

/// Maximum length of the name of a project or an agent, in bytes.
const NAME_MAX: usize = 128;

/// Origin and purpose of a sandbox. The configuration of the sandbox has it, so it never changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// Id of the sandbox that it is a fork of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<String>,
    /// Name of the key that created it; `None` if the caller had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Project that it belongs to, a text of the client's choice. Lists can be filtered by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Agent that works in it, a text of the client's choice. Lists can be filtered by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl Lineage {
    /// Returns true if nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Validates the texts that clients choose.
    pub(crate) fn check(&self) -> Result<()> {
        self.project.as_deref().map(|name| check_text("project", name, NAME_MAX)).transpose()?;
        self.agent.as_deref().map(|name| check_text("agent", name, NAME_MAX)).transpose()?;
        Ok(())
    }

    /// Returns the lineage of a fork of the sandbox `id`.
    pub(crate) fn fork(self, id: &str, created_by: Option<String>) -> Self {
        Self { forked_from: Some(id.to_owned()), created_by, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_inherits_project_and_agent() {
        let name = |text: &str| Some(text.to_owned());
        let lineage =
            Lineage { created_by: name("ci"), project: name("p"), agent: name("a"), forked_from: None };
        let fork = lineage.fork("sbx-1", name("laptop"));
        let expected = Lineage {
            forked_from: name("sbx-1"),
            created_by: name("laptop"),
            project: name("p"),
            agent: name("a"),
        };
        assert_eq!(fork, expected);
    }

    #[test]
    fn names_are_bounded_and_have_no_control_characters() {
        let check =
            |project: &str| Lineage { project: Some(project.to_owned()), ..Lineage::default() }.check();
        assert!(check("checkout").is_ok() && check(&"x".repeat(NAME_MAX)).is_ok());
        for wrong in ["", "a\nb", "a\0b", &"x".repeat(NAME_MAX + 1)] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}
