//! Kinds of workspace providers, the methods of making the directory of a workspace.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Kind of a workspace provider, written in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// The kernel's overlay file system over shared layers.
    Overlay,
    /// Reflinked files.
    Clone,
    /// Copied files.
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
