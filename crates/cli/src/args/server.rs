//! Options for the server, and commands on its keys and templates.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use workspace_api::keys::KeyRole;

use super::template_build::TemplateBuild;

/// Server and key.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub(crate) server: Option<String>,
    /// API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a
    /// local server]
    #[arg(long, value_name = "KEY", help_heading = "Server")]
    pub(crate) api_key: Option<String>,
}

/// Optional server: with it, a command uses the snapshots and references of the server instead of those of the local
/// store.
#[derive(Debug, Args)]
pub(crate) struct ServerInsteadOfStore {
    /// Use this server instead of the store; WORKSPACE_SERVER has no effect here
    #[arg(long, value_name = "URL", help_heading = "Server")]
    server: Option<String>,
    /// API key for --server; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or
    /// the key of a local server]
    #[arg(long, value_name = "KEY", help_heading = "Server", requires = "server")]
    api_key: Option<String>,
}

impl ServerInsteadOfStore {
    /// Returns the server; `None` if the command uses the store.
    pub(crate) fn selected(&self) -> Option<Server> {
        let server = self.server.clone()?;
        Some(Server { server: Some(server), api_key: self.api_key.clone() })
    }
}

/// Server of `diff --why`.
#[derive(Debug, Args)]
pub(crate) struct WhyServer {
    /// URL of the server for --why [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", help_heading = "Server", requires = "why")]
    server: Option<String>,
    /// API key for --why; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or
    /// the key of a local server]
    #[arg(long, value_name = "KEY", help_heading = "Server", requires = "why")]
    api_key: Option<String>,
}

impl WhyServer {
    /// Returns the options with the type that other commands use.
    pub(crate) fn to_server(&self) -> Server {
        Server { server: self.server.clone(), api_key: self.api_key.clone() }
    }
}

/// Show whether a server is ready, and the results of its checks
///
/// The exit status is 1 if the server is not ready, or does not accept the key.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace status
  workspace status --server https://workspace.example.com
  workspace --json status | jq .ready")]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) server: Server,
}

pub(super) const NFS_EXAMPLES: &str = "\
Examples:
  workspace nfs ls
  sudo sh -c \"$(workspace --json nfs ls | jq -r 'select(.sandbox == \"sbx-0199a\").nfs.mountCommand')\"";

#[derive(Debug, Subcommand)]
pub(crate) enum NfsCommand {
    /// List the workspaces that can be mounted, with the host, port and path to mount
    #[command(after_help = "Examples:\n  workspace nfs ls\n  workspace --json nfs ls")]
    Ls {
        #[command(flatten)]
        server: Server,
    },
}

pub(super) const TEMPLATE_EXAMPLES: &str = "\
Examples:
  workspace template ls
  workspace template build base && workspace template build python
  docker save python:3.12-slim | workspace template import python:3.12 -
  workspace run --template python:3.12 -- python3 --version
  workspace template rm python:3.12";

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// List the templates that are installed, and known ones that can be imported
    #[command(after_help = "Examples:\n  workspace template ls\n  workspace --json template ls")]
    Ls {
        #[command(flatten)]
        server: Server,
    },
    /// Show a template
    ///
    /// A name without a version means the newest version.
    #[command(
        after_help = "Examples:\n  workspace template show python\n  workspace --json template show python@2"
    )]
    Show {
        /// Name, or NAME@VERSION
        name: String,
        #[command(flatten)]
        server: Server,
    },
    Build(TemplateBuild),
    /// Create a template from an archive
    ///
    /// The archive is a tar of a root filesystem, of an OCI layout, or the output of `docker save`; plain, gzip or
    /// zstd. Admins only.
    #[command(after_help = "\
Examples:
  docker save python:3.12-slim | workspace template import python:3.12 -
  workspace template import alpine alpine-minirootfs.tar.gz
  workspace template import mine ./oci-layout")]
    Import {
        /// Name
        name: String,
        /// Archive, directory with the content of one, or `-` for stdin
        source: PathBuf,
        #[command(flatten)]
        server: Server,
    },
    /// Remove templates that no sandbox uses
    ///
    /// A version of a built template is named NAME@VERSION.
    #[command(
        after_help = "Examples:\n  workspace template rm python:3.12\n  workspace template rm python@1"
    )]
    Rm {
        /// Names of the templates
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        #[command(flatten)]
        server: Server,
    },
}

pub(super) const KEY_EXAMPLES: &str = "\
Examples:
  key=$(workspace key create ci --owner ci)
  workspace key ls
  workspace key rm key-0199a";

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// List all keys, including revoked ones
    #[command(after_help = "Examples:\n  workspace key ls\n  workspace --json key ls")]
    Ls {
        #[command(flatten)]
        server: Server,
    },
    Create(KeyCreate),
    /// Revoke keys immediately
    #[command(after_help = "Examples:\n  workspace key rm key-0199a")]
    Rm {
        /// Ids of the keys
        #[arg(value_name = "KEY_ID", required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        server: Server,
    },
}

/// Create a key and print it; it is never shown again
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace key create ci --owner ci
  workspace key create dashboard --owner ci --role read-only
  workspace key create coder --owner ci --role agent --project website")]
pub(crate) struct KeyCreate {
    /// Name
    pub(crate) name: String,
    /// Owner of the sandboxes that the key has access to [default: NAME]
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Role
    #[arg(long, value_enum, default_value_t = Role::User)]
    pub(crate) role: Role,
    /// Project of the owner that the key of an agent or a reviewer is bound to; may be repeated
    #[arg(long = "project", value_name = "PROJECT")]
    pub(crate) projects: Vec<String>,
    /// Agent that the key may act for; may be repeated [default: NAME]
    #[arg(long = "agent", value_name = "AGENT", requires = "projects")]
    pub(crate) agents: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Role of a key.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Role {
    /// All rights
    Admin,
    /// All rights on the sandboxes and snapshots of the owner
    User,
    /// Read access to the sandboxes and snapshots of the owner
    ReadOnly,
    /// Work of agents on projects of the owner, as far as their access policies allow
    Agent,
    /// Like agent, and may resolve reviews
    Reviewer,
}

impl From<Role> for KeyRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Admin => Self::Admin,
            Role::User => Self::User,
            Role::ReadOnly => Self::ReadOnly,
            Role::Agent => Self::Agent,
            Role::Reviewer => Self::Reviewer,
        }
    }
}

/// Parses a duration: `90`, `90s`, `5m`, `2h` or `1d`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration such as `90s`, `5m`, `2h` or `1d`".to_owned();
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let amount: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match &text[number.len()..] {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let seconds = amount.checked_mul(unit).filter(|seconds| (1..=u64::from(u32::MAX)).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7_200), ("1d", 86_400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "s", "-1", "1.5h", "1y", "99999999999999999999d", "9999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
