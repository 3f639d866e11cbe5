//! Kinds of workspace providers. A provider is a method of making the directory of a workspace.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Kind of a workspace provider. Records, settings and the API spell it in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// The kernel's overlay file system over layers (read-only directories) that workspaces share.
    Overlay,
    /// Files that are reflinked from layers.
    Clone,
    /// Files that are all written.
    Copy,
}

impl ProviderKind {
    /// All kinds, the fastest first.
    pub const ALL: [Self; 3] = [Self::Overlay, Self::Clone, Self::Copy];
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlay => "overlay",
            Self::Clone => "clone",
            Self::Copy => "copy",
        })
    }
}

impl FromStr for ProviderKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = Self::ALL.into_iter().find(|kind| kind.to_string() == text);
        kind.ok_or_else(|| format!("`{text}` is not a provider: use overlay, clone or copy"))
    }
}
