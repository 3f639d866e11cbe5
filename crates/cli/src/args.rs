//! Command line arguments. Nothing here accesses a store or a file; `commands` interprets them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as Arguments, Parser, Subcommand, ValueEnum, ValueHint};

mod access;
mod episode;
mod events;
mod exchange;
mod files;
mod history;
mod lineage;
mod merge;
mod pause;
mod process;
mod project;
mod project_clone;
mod project_workspace;
mod reference;
mod review;
mod sandbox;
mod server;
mod space;
mod template_build;
mod terminal;
mod trees;
mod trial;
mod workspace;

pub(crate) use access::{TokenCommand, Whoami};
pub(crate) use episode::{EpisodeAdd, EpisodeCommand, EpisodePath, EpisodeRm, EpisodeRoot, EpisodeUpdate};
pub(crate) use events::Events;
pub(crate) use exchange::{Export, Import, ImportGit};
pub(crate) use files::{
    FilesAt, FilesBatch, FilesChmod, FilesCommand, FilesLs, FilesPut, FilesUrl, PortForward, PortPair, Ports,
};
pub(crate) use history::{Log, Rm, Show, SnapshotArgs, SnapshotMetadata};
pub(crate) use lineage::{EpisodesCommand, EpisodesSubtree, NoteAdd, NoteCommand, NoteLs};
pub(crate) use merge::{ConflictStyle, FileType, MergeFile, MergeRules, MergeSide};
pub(crate) use pause::{SandboxPause, SandboxResume};
pub(crate) use process::{Cp, Exec, Kill, Logs, Ps, Run, ShellArgs};
pub(crate) use project::{
    Complete, History, MergeMode, PolicyCommand, PolicySet, ProjectCommand, ProjectDiff, ProjectExport,
    ProjectImport, ProjectLog, ProjectLs, ProjectRefused, ProjectRm, Rollback,
};
pub(crate) use project_clone::{Conflicts, ProjectClone, ProjectPull, ProjectPush, ProjectStatus};
pub(crate) use project_workspace::{
    ProjectSync, ProjectWorkspaceChanges, ProjectWorkspaceCommand, ProjectWorkspaceComplete,
    ProjectWorkspaceCreate, ProjectWorkspaceLs, ProjectWorkspaceRebase, ProjectWorkspaceRm,
    ProjectWorkspaceShow,
};
pub(crate) use reference::{Branch, BranchOrTagArgs, RefCommand, RefSet, Tag};
pub(crate) use review::{ReviewCommand, ReviewLs, ReviewResolve, ReviewShow, StateFilter};
pub(crate) use sandbox::{
    Network, SandboxArgs, SandboxCommand, SandboxCreate, SandboxMetrics, SandboxOptions, SandboxRm,
    SandboxUrl, Trace,
};
pub(crate) use server::{KeyCommand, NfsCommand, Server, Status, TemplateCommand};
pub(crate) use space::{Gc, Verify};
pub(crate) use template_build::TemplateBuild;
pub(crate) use terminal::{TerminalCommand, TerminalCreate, TerminalTicket};
pub(crate) use trees::{Cat, Checkout, Diff, Ls, MergeTree, Mount, Umount};
pub(crate) use trial::Try;
pub(crate) use workspace::{SandboxChanges, SandboxCommit, SandboxFork, SandboxRebase, SandboxRestore};

const AFTER_HELP: &str = "\
You may shorten ids as long as they are unambiguous. Where a command takes the id of a snapshot, it also takes a reference.
NAME~N is the N-th ancestor of NAME, following first parents.

Exit status:
  0  success
  1  failure; stderr says why, and what to do
  2  usage error
  3  success with warnings: files were left out that changed or could not be read, or damage was found
  merge-file: the number of conflicts; merge-tree: 1 if there are conflicts; both: 128 or more if they failed
  try, run, exec and shell: the status of the program; 124 if it timed out, 125 if it could not be run

Environment:
  WORKSPACE_STORE    the store, like --store
  WORKSPACE_SERVER   the URL of the server, like --server
  WORKSPACE_API_KEY  the API key, like --api-key
  XDG_DATA_HOME      directory of the default store (elevo-workspace/store) and of the key of a local server
                     (workspace-server/api-key); ~/.local/share by default

Examples:
  workspace snapshot project -m \"first version\" --ref main
  workspace log --ref main
  workspace diff main~1 main --stat
  workspace diff main project --patch
  workspace checkout main copy
  workspace try -- make clean
  workspace run -- echo hello";

/// Snapshot, fork, diff, restore and check out file trees, and run programs in sandboxes.
///
/// A snapshot records the files of a directory with author, time and message. Snapshots share the content that they
/// have in common. They are stored in a directory, the store, which several processes may use at the same time; no
/// server is needed. Sandboxes run on a server, by default the one on this machine.
#[derive(Debug, Parser)]
#[command(name = "workspace", version, after_help = AFTER_HELP, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = false)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Command line with `merge-file` as the only command.
#[derive(Parser)]
struct OnlyMergeFile {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    merge: MergeFile,
}

impl Args {
    /// Parses the command line. Git starts its merge driver for every file, so `merge-file` has its own parser that
    /// does not build the help of all other commands. Arguments that it rejects go to the complete parser.
    pub(crate) fn parse_command_line() -> Result<Self, clap::Error> {
        let mut words = std::env::args_os();
        let program = words.next();
        if words.next().is_some_and(|word| word == "merge-file")
            && let Ok(parsed) = OnlyMergeFile::try_parse_from(program.into_iter().chain(words))
        {
            return Ok(Self { global: parsed.global, command: Command::MergeFile(parsed.merge) });
        }
        Self::try_parse()
    }
}

/// Options of every command.
#[derive(Debug, Arguments)]
pub(crate) struct Global {
    /// Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) store: Option<PathBuf>,
    /// Print data as JSON, one object per line (fields: docs/cli.md)
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Snapshot(SnapshotArgs),
    Log(Log),
    Show(Show),
    Ls(Ls),
    Cat(Cat),
    Diff(Diff),
    MergeFile(MergeFile),
    MergeTree(MergeTree),
    Checkout(Checkout),
    Mount(Mount),
    Umount(Umount),
    Rm(Rm),
    /// List references and their target snapshots
    #[command(after_help = "Examples:\n  workspace refs\n  workspace --json refs")]
    Refs,
    /// Create, move and remove references
    #[command(subcommand, after_help = reference::EXAMPLES)]
    Ref(RefCommand),
    Branch(Branch),
    Tag(Tag),
    Gc(Gc),
    Verify(Verify),
    Export(Export),
    Import(Import),
    ImportGit(ImportGit),
    /// Record the steps of a search
    ///
    /// An episode is one step: a parent episode, an action, the snapshot that the action led to, and a reward.
    #[command(subcommand, after_help = episode::EXAMPLES)]
    Episode(EpisodeCommand),
    /// List the searches of a server, and their steps
    ///
    /// A search is a tree of episodes on the server. `workspace episode` records those of the store.
    #[command(subcommand, after_help = lineage::SEARCH_EXAMPLES)]
    Episodes(EpisodesCommand),
    Try(Try),
    Run(Run),
    Exec(Exec),
    Shell(ShellArgs),
    Ps(Ps),
    Logs(Logs),
    Kill(Kill),
    Events(Events),
    Cp(Cp),
    /// Read, write, list and watch files of a sandbox
    #[command(subcommand, after_help = files::EXAMPLES)]
    Files(FilesCommand),
    /// Say why: notes about the steps in a sandbox
    #[command(subcommand, after_help = lineage::NOTE_EXAMPLES)]
    Note(NoteCommand),
    Ports(Ports),
    PortForward(PortForward),
    /// Manage projects: files that many agents share, with their history
    #[command(subcommand, after_help = project::EXAMPLES)]
    Project(ProjectCommand),
    Complete(Complete),
    History(History),
    Rollback(Rollback),
    /// Manage the access policies of projects
    #[command(subcommand, after_help = project::POLICY_EXAMPLES)]
    Policy(PolicyCommand),
    /// Decide about conflicts and critical changes of projects
    #[command(subcommand, after_help = review::EXAMPLES)]
    Review(ReviewCommand),
    /// Create, inspect and remove sandboxes
    #[command(subcommand, after_help = sandbox::EXAMPLES)]
    Sandbox(SandboxCommand),
    /// Manage templates, from which sandboxes are created
    #[command(subcommand, after_help = server::TEMPLATE_EXAMPLES)]
    Template(TemplateCommand),
    /// Mount the workspaces of sandboxes over NFS
    #[command(subcommand, after_help = server::NFS_EXAMPLES)]
    Nfs(NfsCommand),
    /// Manage the API keys of a server; admins only
    #[command(subcommand, after_help = server::KEY_EXAMPLES)]
    Key(KeyCommand),
    /// Create tokens, which give access to one sandbox
    #[command(subcommand, after_help = access::TOKEN_EXAMPLES)]
    Token(TokenCommand),
    /// Open terminals for other programs, such as a web page
    ///
    /// `workspace shell` opens a terminal in yours.
    #[command(subcommand, after_help = terminal::EXAMPLES)]
    Terminal(TerminalCommand),
    Whoami(Whoami),
    Status(Status),
    Completions(Completions),
    #[command(hide = true)]
    Generate(Generate),
    /// Serve a lazy mount; started by `workspace mount`
    #[command(hide = true)]
    ServeLazyMount(ServeLazyMount),
}

/// Print a completion script for a shell
#[derive(Debug, Arguments)]
#[command(after_help = "\
Examples:
  workspace completions bash > ~/.local/share/bash-completion/completions/workspace
  workspace completions zsh > ~/.zfunc/_workspace
  workspace completions fish > ~/.config/fish/completions/workspace.fish")]
pub(crate) struct Completions {
    /// Shell
    pub(crate) shell: clap_complete::Shell,
}

/// Write the files that are checked in
#[derive(Debug, Arguments)]
pub(crate) struct Generate {
    pub(crate) what: Generated,
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// Arguments that the library adds to the command that serves a lazy mount.
#[derive(Debug, Arguments)]
pub(crate) struct ServeLazyMount {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

/// Files that can be generated.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Generated {
    Man,
    Completions,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:"), "{}", command.get_name());
            command.get_subcommands().filter(|command| !command.is_hide_set()).for_each(check);
        }
        check(&Args::command());
    }
}
