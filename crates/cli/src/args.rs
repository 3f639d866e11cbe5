//! Command line arguments. Nothing here accesses a store or a file; `commands` interprets them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as Arguments, Parser, Subcommand, ValueEnum, ValueHint};

mod episode;
mod exchange;
mod history;
mod merge;
mod process;
mod reference;
mod sandbox;
mod server;
mod space;
mod trees;
mod trial;
mod workspace;

pub(crate) use episode::{EpisodeAdd, EpisodeCommand, EpisodePath, EpisodeRm, EpisodeRoot, EpisodeUpdate};
pub(crate) use exchange::{Export, Import, ImportGit};
pub(crate) use history::{Log, Record, Rm, Show, SnapshotArgs};
pub(crate) use merge::{ConflictStyle, FileType, MergeFile, MergeRules, MergeSide};
pub(crate) use process::{Cp, Exec, Logs, Ps, Run, ShellArgs};
pub(crate) use reference::{Branch, Naming, RefCommand, RefSet, Tag};
pub(crate) use sandbox::{Network, SandboxCommand, SandboxCreate, SandboxOne, SandboxOptions};
pub(crate) use server::{KeyCommand, Server, Status, TemplateCommand};
pub(crate) use space::{Gc, Verify};
pub(crate) use trees::{Cat, Checkout, Diff, Ls, MergeTree, Mount, Umount};
pub(crate) use trial::Try;
pub(crate) use workspace::{SandboxChanges, SandboxCommit, SandboxFork, SandboxRestore};

const EXIT_CODES: &str = "\
Ids may be shortened as long as they are unambiguous, and a reference's name works wherever an id does. NAME~N is the
N-th snapshot before it, by first parents.

Exit status:
  0  done
  1  failed; stderr says why and what to do
  2  the command line makes no sense
  3  done with reservations: left out files that changed or could not be read, or found damage
  merge-file ends with the number of conflicts, merge-tree with 1 if there are any; both with 128 or more when they failed
  try, run, exec and shell end as what they ran; 124: its time was up, 125: they failed themselves

Environment:
  WORKSPACE_STORE    the store, as with --store
  WORKSPACE_SERVER   the server, as with --server
  WORKSPACE_API_KEY  the key for it, as with --api-key
  XDG_DATA_HOME      has the default store, elevo-workspace/store, and the key of a local server,
                     workspace-server/api-key; ~/.local/share when not set

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
/// A snapshot records a whole directory: its tree, named by its hash, and who made it, when and why. Snapshots
/// share all content they have in common. They are kept in a store: one directory, no server, which any number
/// of processes may use at once. Sandboxes are on a server, which is this machine's unless another is named.
#[derive(Debug, Parser)]
#[command(name = "workspace", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = false)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// `merge-file` alone.
#[derive(Parser)]
struct OnlyMergeFile {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    merge: MergeFile,
}

impl Args {
    /// Parses the command line. Git starts its merge driver for every file, so that one is parsed without
    /// building the descriptions of all other commands; what it does not understand is left to the complete
    /// parser.
    pub(crate) fn typed() -> Result<Self, clap::Error> {
        let mut words = std::env::args_os();
        let program = words.next();
        if words.next().is_some_and(|word| word == "merge-file")
            && let Ok(only) = OnlyMergeFile::try_parse_from(program.into_iter().chain(words))
        {
            return Ok(Self { global: only.global, command: Command::MergeFile(only.merge) });
        }
        Self::try_parse()
    }
}

/// Options of every command.
#[derive(Debug, Arguments)]
pub(crate) struct Global {
    /// The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]
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
    /// List the references and the snapshots they point to
    #[command(after_help = "Examples:\n  workspace refs\n  workspace --json refs")]
    Refs,
    /// Make, move and remove references
    #[command(subcommand, after_help = reference::EXAMPLES)]
    Ref(RefCommand),
    Branch(Branch),
    Tag(Tag),
    Gc(Gc),
    Verify(Verify),
    Export(Export),
    Import(Import),
    ImportGit(ImportGit),
    /// Keep the steps of a search
    ///
    /// An episode is one step: the snapshot it led to, the step before it, what was done, and what that was worth.
    #[command(subcommand, after_help = episode::EXAMPLES)]
    Episode(EpisodeCommand),
    Try(Try),
    Run(Run),
    Exec(Exec),
    Shell(ShellArgs),
    Ps(Ps),
    Logs(Logs),
    Cp(Cp),
    /// Make, look at and end sandboxes
    #[command(subcommand, after_help = sandbox::EXAMPLES)]
    Sandbox(SandboxCommand),
    /// Templates, from which sandboxes are created
    #[command(subcommand, after_help = server::TEMPLATE_EXAMPLES)]
    Template(TemplateCommand),
    /// The keys of a server, for its admins
    #[command(subcommand, after_help = server::KEY_EXAMPLES)]
    Key(KeyCommand),
    Status(Status),
    Completions(Completions),
    #[command(hide = true)]
    Generate(Generate),
    /// Serve a lazy view; run by `workspace mount`
    #[command(hide = true)]
    ServeView(ServeView),
}

/// Print a completion script for a shell
#[derive(Debug, Arguments)]
#[command(after_help = "\
Examples:
  workspace completions bash > ~/.local/share/bash-completion/completions/workspace
  workspace completions zsh > ~/.zfunc/_workspace
  workspace completions fish > ~/.config/fish/completions/workspace.fish")]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Write the files that are checked in
#[derive(Debug, Arguments)]
pub(crate) struct Generate {
    pub(crate) what: Generated,
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// Arguments that the library adds to the command that serves a view.
#[derive(Debug, Arguments)]
pub(crate) struct ServeView {
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
