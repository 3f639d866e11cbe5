//! The synopsis of a manual page: `[-m MSG]`, `[--label K=V]...`, `[-p | --stat]`, `DIR`, `[ID]...`.
//!
//! The generator of the other sections omits values of options, and does not mark options that may be repeated.

use clap::{Arg, ArgAction, ArgGroup, Command};

use super::roff_line;

/// Returns the section. Global options are only in the synopsis of the main page.
pub(super) fn section(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut words = vec![format!("\\fB{}\\fR", roff_line(name))];
    let is_main_page = !name.contains(' ');
    words.extend(options(command, is_main_page));
    words.extend(command.get_positionals().filter(|arg| !arg.is_hide_set()).map(positional));
    if command.has_subcommands() {
        words.push("\\fICOMMAND\\fR ...".to_owned());
    }
    // Without justification and hyphenation.
    format!(".SH SYNOPSIS\n.ad l\n.nh\n{}\n.hy\n.ad b\n", words.join(" "))
}

fn options(command: &Command, with_global: bool) -> Vec<String> {
    let is_shown = |arg: &&Arg| {
        let is_help = matches!(
            arg.get_action(),
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
        );
        !arg.is_positional() && !arg.is_hide_set() && !is_help && (with_global || !arg.is_global_set())
    };
    let mut words = Vec::new();
    let mut shown: Vec<&Arg> = Vec::new();
    for arg in command.get_arguments().filter(is_shown) {
        if shown.contains(&arg) {
            continue;
        }
        let group = exclusive_group(command, arg);
        let together = alternatives(command, arg, group);
        let forms: Vec<String> = together.iter().map(|arg| form(arg)).collect();
        let forms = forms.join(" | ");
        let is_required = group.is_some_and(ArgGroup::is_required_set);
        words.push(if is_required { format!("{{{forms}}}") } else { marked(arg, &forms) });
        shown.extend(together);
    }
    words
}

/// Returns the group of options that exclude each other to which the option belongs.
fn exclusive_group<'a>(command: &'a Command, arg: &Arg) -> Option<&'a ArgGroup> {
    command
        .get_groups()
        .find(|group| !(*group).clone().is_multiple() && group.get_args().any(|id| id == arg.get_id()))
}

/// Returns the options of a group, or only the option if it is in none.
fn alternatives<'a>(command: &'a Command, arg: &'a Arg, group: Option<&ArgGroup>) -> Vec<&'a Arg> {
    match group {
        Some(group) => {
            let members = command.get_arguments();
            members.filter(|member| group.get_args().any(|id| id == member.get_id())).collect()
        }
        None => vec![arg],
    }
}

/// Returns the shorter name of an option, and its value.
fn form(arg: &Arg) -> String {
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), _) => format!("-{short}"),
        (None, long) => format!("--{}", long.unwrap_or_default()),
    };
    let name = format!("\\fB{}\\fR", roff_line(&name));
    // The space does not break, so that a value stays with its option.
    if arg.get_action().takes_values() { format!("{name}\\ {}", value(arg)) } else { name }
}

pub(super) fn positional(arg: &Arg) -> String {
    let text = marked(arg, &value(arg));
    if arg.is_last_set() { format!("\\-\\- {text}") } else { text }
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(clap::builder::Str::as_str).collect();
    format!("\\fI{}\\fR", roff_line(&names.join(" ")))
}

/// Puts an optional argument into brackets, and adds dots to one that may be repeated.
fn marked(arg: &Arg, text: &str) -> String {
    let dots = if is_repeated(arg) { "..." } else { "" };
    if arg.is_required_set() { format!("{text}{dots}") } else { format!("[{text}]{dots}") }
}

fn is_repeated(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append | ArgAction::Count)
}
