//! One module per command or group of commands (`trial` is `workspace try`, `reference` is `ref`, `branch` and `tag`).
//! `record`, `report`, `table` and `tree_upload` are shared by several.

mod cat;
mod checkout;
mod completions;
mod cp;
mod diff;
mod episode;
mod episodes;
mod events;
mod exec;
mod export;
mod files;
mod gc;
mod generate;
mod import;
mod import_git;
mod key;
mod kill;
mod log;
mod logs;
mod ls;
mod merge_file;
mod merge_rules;
mod merge_tree;
pub(crate) mod mount;
mod nfs;
mod note;
mod policy;
mod port_forward;
mod ports;
mod project;
mod ps;
mod rebase_report;
mod record;
mod reference;
mod refs;
mod report;
mod review;
mod rm;
mod run;
mod sandbox;
mod server_snapshots;
mod shell;
mod show;
mod snapshot;
mod status;
mod table;
mod template;
mod template_build;
mod terminal;
mod token;
mod tree_upload;
mod trial;
mod verify;
mod whoami;

pub(crate) use self::merge_file::mark_unmerged_file;
use crate::args::{Args, Command};
use crate::context::Context;
use crate::error::{Outcome, Result};

/// Runs the command of the command line.
pub(crate) fn run(args: Args) -> Result<Outcome> {
    let mut context = Context::new(args.global);
    let outcome = dispatch(&mut context, args.command)?;
    context.output.flush()?;
    Ok(outcome)
}

fn dispatch(context: &mut Context, command: Command) -> Result<Outcome> {
    match command {
        Command::Snapshot(args) => snapshot::run(context, args),
        Command::Log(args) => log::run(context, &args),
        Command::Show(args) => show::run(context, &args),
        Command::Ls(args) => ls::run(context, &args),
        Command::Cat(args) => cat::run(context, &args),
        Command::Diff(args) => diff::run(context, &args),
        Command::MergeFile(args) => merge_file::run(context, &args),
        Command::MergeTree(args) => merge_tree::run(context, args),
        Command::Checkout(args) => checkout::run(context, &args),
        Command::Mount(args) => mount::mount(context, &args),
        Command::Umount(args) => mount::umount(&args),
        Command::Rm(args) => rm::run(context, &args),
        Command::Refs => refs::run(context),
        Command::Ref(args) => reference::run(context, args),
        Command::Branch(args) => reference::branch(context, &args.args),
        Command::Tag(args) => reference::tag(context, &args.args),
        Command::Gc(args) => gc::run(context, &args),
        Command::Verify(args) => verify::run(context, &args),
        Command::Export(args) => export::run(context, &args),
        Command::Import(args) => import::run(context, args),
        Command::ImportGit(args) => import_git::run(context, &args),
        Command::Episode(args) => episode::run(context, args),
        Command::Episodes(args) => episodes::run(context, &args),
        Command::Run(args) => run::run(context, &args),
        Command::Exec(args) => exec::run(context, &args),
        Command::Shell(args) => shell::run(context, &args),
        Command::Try(args) => trial::run(context, &args),
        Command::Ps(args) => ps::run(context, &args),
        Command::Logs(args) => logs::run(context, &args),
        Command::Kill(args) => kill::run(&args),
        Command::Events(args) => events::run(context, &args),
        Command::Cp(args) => cp::run(context, &args),
        Command::Files(args) => files::run(context, &args),
        Command::Note(args) => note::run(context, args),
        Command::Ports(args) => ports::run(context, &args),
        Command::PortForward(args) => port_forward::run(context, &args),
        Command::Project(args) => project::run(context, args),
        Command::Complete(args) => project::complete(context, &args),
        Command::History(args) => project::history(context, &args),
        Command::Rollback(args) => project::rollback(context, &args),
        Command::Policy(args) => policy::run(context, &args),
        Command::Review(args) => review::run(context, &args),
        Command::Sandbox(args) => sandbox::run(context, args),
        Command::Template(args) => template::run(context, &args),
        Command::Nfs(args) => nfs::run(context, &args),
        Command::Key(args) => key::run(context, &args),
        Command::Token(args) => token::run(context, &args),
        Command::Terminal(args) => terminal::run(context, &args),
        Command::Whoami(args) => whoami::run(context, &args),
        Command::Status(args) => status::run(context, &args),
        Command::Completions(args) => completions::run(context, &args),
        Command::Generate(args) => generate::run(&args),
        Command::ServeLazyMount(args) => mount::serve(args),
    }
}
