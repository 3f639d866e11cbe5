//! Commands on sandboxes.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use workspace_api::previews;
use workspace_api::sandboxes::{self, FollowChoice, NetworkChoice, RootChoice, TraceChoice};
use workspace_state::Timestamp;

use super::history::key_value;
use super::pause::{OnTimeout, SandboxPause, SandboxResume};
use super::process::time_or_age;
use super::server::{Server, duration};
use super::workspace::{
    InitialContent, SandboxChanges, SandboxCommit, SandboxFork, SandboxRebase, SandboxRestore,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  id=$(workspace sandbox create --name work)
  workspace exec work -- make test
  workspace sandbox commit work -m \"tests pass\"
  workspace sandbox extend work 30m
  workspace sandbox pause work
  workspace sandbox rm work";

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    Ls(SandboxList),
    Create(Box<SandboxCreate>),
    /// Show the details of a sandbox
    #[command(
        after_help = "Examples:\n  workspace sandbox get work\n  workspace --json sandbox get sbx-0199a"
    )]
    Get(SandboxArgs),
    Rm(SandboxRm),
    /// Extend the lifetime of a sandbox, by at most an hour
    #[command(after_help = "Examples:\n  workspace sandbox extend work 30m")]
    Extend {
        /// Sandbox: its id, a prefix of it, or its name
        #[arg(value_name = "SANDBOX")]
        sandbox: String,
        /// Time to add
        #[arg(value_name = "DURATION", value_parser = duration)]
        by: Duration,
        #[command(flatten)]
        server: Server,
    },
    /// Set the time after which a sandbox expires, counted from now
    #[command(after_help = "Examples:\n  workspace sandbox timeout work 10m")]
    Timeout {
        /// Sandbox: its id, a prefix of it, or its name
        #[arg(value_name = "SANDBOX")]
        sandbox: String,
        /// Time from now
        #[arg(value_name = "DURATION", value_parser = duration)]
        after: Duration,
        #[command(flatten)]
        server: Server,
    },
    Pause(SandboxPause),
    Resume(SandboxResume),
    /// Set and remove labels of a sandbox
    #[command(
        after_help = "Examples:\n  workspace sandbox label work step=2\n  workspace sandbox label work step-"
    )]
    Label {
        /// Sandbox: its id, a prefix of it, or its name
        #[arg(value_name = "SANDBOX")]
        sandbox: String,
        /// K=V to set a label, K- to remove it; without any, the labels are printed
        #[arg(value_name = "LABEL")]
        labels: Vec<String>,
        #[command(flatten)]
        server: Server,
    },
    /// Show the resource usage of a sandbox
    #[command(
        after_help = "Examples:\n  workspace sandbox stats work\n  workspace --json sandbox stats work"
    )]
    Stats(SandboxArgs),
    Metrics(SandboxMetrics),
    Url(SandboxUrl),
    Commit(SandboxCommit),
    Restore(SandboxRestore),
    Rebase(SandboxRebase),
    Fork(SandboxFork),
    Changes(SandboxChanges),
    /// Print the changes in a sandbox as a patch
    ///
    /// The patch is against the snapshot from which the workspace was created or last restored, or the files of the
    /// project that it was rebased onto.
    #[command(
        after_help = "Examples:\n  workspace sandbox diff work\n  workspace sandbox diff work | git apply"
    )]
    Diff(SandboxArgs),
}

/// List sandboxes, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox ls
  workspace sandbox ls --state running --label run=42
  workspace --json sandbox ls | jq -r .id")]
pub(crate) struct SandboxList {
    /// Only sandboxes in this state: starting, running, paused, stopping, stopped or error
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Only sandboxes with this label; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = key_value)]
    pub(crate) labels: Vec<(String, String)>,
    /// Only sandboxes of this project
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Only sandboxes of this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Create a sandbox and print its id
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox create
  workspace sandbox create --name work --timeout 4h --memory 4g --label run=42
  workspace sandbox create --dir project
  workspace sandbox create --project checkout --agent fixer-7 --trace command
  workspace sandbox create --project checkout --agent reviewer --follow head
  workspace sandbox create --project checkout --agent writer --follow rebase
  workspace sandbox create --snapshot 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0 --materialize full
  workspace sandbox create --network egress --allow pypi.org --allow '*.pythonhosted.org'
  workspace sandbox create --template debian:12 --root kept --name work")]
pub(crate) struct SandboxCreate {
    #[command(flatten)]
    pub(crate) options: SandboxOptions,
    #[command(flatten)]
    pub(crate) content: InitialContent,
    /// Treatment of changes outside /workspace
    #[arg(long, value_enum, default_value_t = Root::Discarded)]
    pub(crate) root: Root,
    /// Address or network whose clients may mount the workspace over NFS, such as 10.1.0.0/16; may be repeated
    /// [default: all that the server allows]
    #[arg(long = "nfs-allow", value_name = "CIDR")]
    pub(crate) nfs_allowed: Vec<String>,
    /// Lifetime [default: set by the server, an hour]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Treatment of the sandbox when its lifetime is over
    #[arg(long, value_enum, default_value_t = OnTimeout::Delete)]
    pub(crate) on_timeout: OnTimeout,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Options of a new sandbox.
#[derive(Debug, Args)]
pub(crate) struct SandboxOptions {
    /// Template; see `workspace template ls`
    #[arg(long, value_name = "TEMPLATE", default_value = "base")]
    pub(crate) template: String,
    /// Name, which can be used instead of the id
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Allow a name that another sandbox of yours has; you then need ids to address them
    #[arg(long, requires = "name")]
    pub(crate) allow_duplicate_name: bool,
    /// Environment variable of all commands; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = key_value)]
    pub(crate) envs: Vec<(String, String)>,
    /// Processors, such as 0.5 or 2
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<String>,
    /// Memory, such as 512m or 2g
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Size limit of the workspace, such as 10g
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<String>,
    /// Network access
    #[arg(long, value_enum, default_value_t = Network::None)]
    pub(crate) network: Network,
    /// Allowlist for `--network egress`: a host name (*.example.com for all its subdomains) or IPv4 addresses
    /// such as 10.1.0.0/16; may be repeated
    #[arg(long = "allow", value_name = "HOST|CIDR")]
    pub(crate) allowed: Vec<String>,
    /// Label; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = key_value)]
    pub(crate) labels: Vec<(String, String)>,
    /// Project that the sandbox belongs to
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Agent that works in the sandbox
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Automatic snapshots
    #[arg(long, value_enum, default_value_t = Trace::Off)]
    pub(crate) trace: Trace,
    /// Show later files of the project, too; needs `--project`
    #[arg(long, value_enum, requires = "project")]
    pub(crate) follow: Option<Follow>,
    /// Start with the files of a former head of the project, by sequence or id; needs `--project`
    #[arg(long, value_name = "SEQUENCE", requires = "project", conflicts_with = "follow")]
    pub(crate) at: Option<String>,
    /// Treatment of changes that are not completed when the sandbox is removed or expires [default: complete]; needs
    /// `--project`
    #[arg(long, value_enum, requires = "project")]
    pub(crate) on_end: Option<OnEnd>,
}

/// Treatment of changes in a sandbox of a project when the sandbox ends.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OnEnd {
    /// Merge them into the project
    Complete,
    /// Discard them
    Discard,
}

impl From<OnEnd> for sandboxes::OnEnd {
    fn from(on_end: OnEnd) -> Self {
        match on_end {
            OnEnd::Complete => Self::Complete,
            OnEnd::Discard => Self::Discard,
        }
    }
}

/// Files of a project that a sandbox shows after its creation.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Follow {
    /// Always the newest: /workspace is read-only
    Head,
    /// Merge the changes in /workspace with the newest files whenever no command runs
    Rebase,
}

impl From<Follow> for FollowChoice {
    fn from(follow: Follow) -> Self {
        match follow {
            Follow::Head => Self::Head,
            Follow::Rebase => Self::Rebase,
        }
    }
}

/// Automatic snapshots of a sandbox.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Trace {
    /// None
    Off,
    /// After each command that changed files
    Command,
}

impl From<Trace> for TraceChoice {
    fn from(trace: Trace) -> Self {
        match trace {
            Trace::Off => Self::Off,
            Trace::Command => Self::Command,
        }
    }
}

/// Network access of a sandbox.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Network {
    /// Loopback only
    None,
    /// All networks that the machine can reach, but not the machine itself
    Egress,
}

impl From<Network> for NetworkChoice {
    fn from(network: Network) -> Self {
        match network {
            Network::None => Self::None,
            Network::Egress => Self::Egress,
        }
    }
}

/// Treatment of changes to the root filesystem of a sandbox.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Root {
    /// The root filesystem is read-only, and the home directory is in memory
    Discarded,
    /// Commits, forks and restores include the root filesystem; needs an imported template
    Kept,
}

impl From<Root> for RootChoice {
    fn from(root: Root) -> Self {
        match root {
            Root::Discarded => Self::Discarded,
            Root::Kept => Self::Kept,
        }
    }
}

/// Arguments of a command that needs only a sandbox.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Show the resource usage of a sandbox over time
///
/// The server measures every 5 seconds, and keeps the last hour, also over a restart. CPU is in percent of one core
/// since the previous measurement. Bytes received and sent count from the start of the sandbox.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox metrics work
  workspace sandbox metrics work --since 10m
  workspace --json sandbox metrics work | jq -r .memory")]
pub(crate) struct SandboxMetrics {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Only measurements from TIME on: a date, a time, or an age such as 90s or 10m
    #[arg(long, value_name = "TIME", value_parser = time_or_age)]
    pub(crate) since: Option<Timestamp>,
    /// Only measurements up to TIME
    #[arg(long, value_name = "TIME", value_parser = time_or_age)]
    pub(crate) until: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Print a URL that shows the HTTP server on a port of a sandbox: a preview
///
/// Everybody who has the URL can use that port, without a key, until the preview ends: when it expires, with its key, or
/// with the sandbox. The sandbox needs no network, and nothing has to listen yet.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace exec -d work -- python3 -m http.server 8000; workspace sandbox url work 8000
  workspace sandbox url work 5173 --expires 8h --host-header localhost
  workspace --json sandbox url work 8000 | jq -r .token")]
pub(crate) struct SandboxUrl {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Port of the sandbox
    #[arg(value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Lifetime, at most a day [default: an hour]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) expires: Option<Duration>,
    /// Header `Host` that the program gets
    #[arg(long, value_enum, default_value_t = HostHeader::Keep)]
    pub(crate) host_header: HostHeader,
    /// Print the URL below /preview/ of the server, which works without a preview domain; its pages have no cookies and
    /// no storage
    #[arg(long)]
    pub(crate) path: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Header `Host` of the requests of a preview.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum HostHeader {
    /// Host of the preview
    Keep,
    /// localhost with the port, for programs that refuse other hosts
    Localhost,
}

impl From<HostHeader> for previews::HostHeader {
    fn from(header: HostHeader) -> Self {
        match header {
            HostHeader::Keep => Self::Keep,
            HostHeader::Localhost => Self::Localhost,
        }
    }
}

/// Remove sandboxes and end their processes
///
/// Changes in sandboxes of projects that are not completed are merged into their projects first, as `workspace
/// complete` does; with --discard, they are lost. Workspaces are removed, too. With --keep-workspace, the directory of
/// each workspace on the server is printed instead, or a snapshot of its files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox rm work
  workspace sandbox rm --keep-workspace work
  workspace sandbox rm --discard experiment
  workspace sandbox rm $(workspace ps -q)")]
pub(crate) struct SandboxRm {
    /// Sandboxes: for each its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX", required = true)]
    pub(crate) sandboxes: Vec<String>,
    /// Keep the workspaces
    #[arg(long)]
    pub(crate) keep_workspace: bool,
    /// Discard changes in sandboxes of projects that are not completed
    #[arg(long)]
    pub(crate) discard: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}
