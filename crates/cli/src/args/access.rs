//! Commands on tokens, and on the caller itself.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use workspace_api::access::Right;

use super::server::{Server, duration};

pub(super) const TOKEN_EXAMPLES: &str = "\
Examples:
  token=$(workspace token create work --right process --expires 15m)
  WORKSPACE_API_KEY=$token workspace exec sbx-0199a1b263f17c019f2c2f1c2ea4a7d0 -- make test";

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    Create(TokenCreate),
}

/// Create a token for one sandbox and print it; it is never shown again
///
/// Use it like a key. It has no access to anything else, and ends with its key or its sandbox.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace token create work --right process
  workspace token create work --right terminal --right files:read --expires 15m")]
pub(crate) struct TokenCreate {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Right of the token; may be repeated
    #[arg(long = "right", value_name = "RIGHT", value_enum, required = true)]
    pub(crate) rights: Vec<TokenRight>,
    /// Lifetime, at most a day [default: an hour]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) expires: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Right of a token.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TokenRight {
    /// Read files and changes
    #[value(name = "files:read")]
    FilesRead,
    /// Write files
    #[value(name = "files:write")]
    FilesWrite,
    /// Run commands, and read their output
    Process,
    /// Open terminals
    Terminal,
    /// Connect to ports
    Ports,
    /// Extend the lifetime of the sandbox, pause, resume, label and remove it, and set its timeout
    Lifecycle,
    /// Commit the workspace, and restore its snapshots
    Snapshot,
}

impl From<TokenRight> for Right {
    fn from(right: TokenRight) -> Self {
        match right {
            TokenRight::FilesRead => Self::FilesRead,
            TokenRight::FilesWrite => Self::FilesWrite,
            TokenRight::Process => Self::Process,
            TokenRight::Terminal => Self::Terminal,
            TokenRight::Ports => Self::Ports,
            TokenRight::Lifecycle => Self::Lifecycle,
            TokenRight::Snapshot => Self::Snapshot,
        }
    }
}

/// Show the key that you use, with its owner, limits and usage
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace whoami
  workspace --json whoami | jq .limits")]
pub(crate) struct Whoami {
    #[command(flatten)]
    pub(crate) server: Server,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_have_the_names_of_the_api() {
        assert_eq!(TokenRight::value_variants().len(), Right::ALL.len());
        for right in TokenRight::value_variants() {
            let name = right.to_possible_value().map(|value| value.get_name().to_owned());
            assert_eq!(name.as_deref(), Some(Right::from(*right).as_str()));
        }
    }
}
