//! `workspace generate`: the manual pages and completion scripts that are checked in.

mod synopsis;

use std::path::Path;
use std::{fs, io};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Args, Generate, Generated};
use crate::error::{CommandError, Outcome, Result, io_hint};

pub(crate) fn run(args: &Generate) -> Result<Outcome> {
    let written = match args.what {
        Generated::Man => write_manual(&args.directory),
        Generated::Completions => write_completions(&args.directory),
    };
    let directory = args.directory.display();
    written.map_err(|error| {
        CommandError::failed(format!("cannot write into {directory}: {error}")).hint(io_hint(&error))
    })?;
    Ok(Outcome::Done)
}

fn write_completions(directory: &Path) -> io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Args::command(), "workspace", directory)?;
    }
    Ok(())
}

/// Writes a page for every command that is not hidden.
fn write_manual(directory: &Path) -> io::Result<()> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, directory)
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &Command, directory: &Path) -> io::Result<()> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.into_iter().try_for_each(|command| write_pages(command, directory))?;
    let source = concat!("workspace ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source).manual("Elevo Workspace");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend(synopsis::section(command).into_bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut page = String::from_utf8(page).map_err(io::Error::other)?;
    // Each section that `man` renders begins with the roff definition of a quote; one is enough.
    if let Some(end) = page.find(".TH") {
        let definition = page[..end].to_owned();
        page = definition.clone() + &page.replace(&definition, "");
    }
    page = with_marked_arguments(page, command);
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    page.push_str(&closing_sections(&after));
    fs::write(directory.join(man.get_filename()), page)
}

/// Formats arguments in the list of options as in the synopsis.
fn with_marked_arguments(mut page: String, command: &Command) -> String {
    for arg in command.get_positionals() {
        let names = arg.get_value_names().unwrap_or_default().join(" ");
        let (open, close) = if arg.is_required_set() { ("<", ">") } else { ("[", "]") };
        let plain = format!("\n.TP\n{open}\\fI{names}\\fR{close}");
        page = page.replace(&plain, &format!("\n.TP\n{}", synopsis::positional(arg)));
    }
    page
}

/// Renders the end of the help with its headings as sections. The generator would put all of it under
/// `EXTRA`.
fn closing_sections(after_help: &str) -> String {
    let mut out = String::new();
    for line in after_help.lines() {
        match line.strip_suffix(':').filter(|heading| !heading.starts_with(' ')) {
            Some(heading) => {
                let end = if out.is_empty() { "" } else { ".fi\n" };
                out.push_str(&format!("{end}.SH \"{}\"\n.nf\n", heading.to_uppercase()));
            }
            // Text before the first heading is only for `--help`.
            None if out.is_empty() => {}
            None => out.push_str(&format!("{}\n", roff_line(line.trim_start()))),
        }
    }
    if !out.is_empty() {
        out.push_str(".fi\n");
    }
    out
}

/// Escapes a line for roff.
fn roff_line(line: &str) -> String {
    let escaped = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if escaped.starts_with('.') { format!("\\&{escaped}") } else { escaped }
}
