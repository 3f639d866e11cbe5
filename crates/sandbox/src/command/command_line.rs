//! Command lines and tags: their checks, and their text.

use std::borrow::Cow;

use crate::error::{Result, SandboxError};

/// Maximum length of a command line in bytes. For arguments, it includes a NUL after each.
const COMMAND_MAX: usize = 1 << 20;
/// Maximum number of arguments, and length of each in bytes: the kernel accepts no longer ones.
const ARGUMENTS_MAX: usize = 16_384;
const ARGUMENT_MAX: usize = (128 << 10) - 1;
/// Maximum length of the name or path of a program, in bytes.
const PROGRAM_MAX: usize = 4_095;
/// Maximum length of a tag, in characters.
const TAG_MAX: usize = 128;

/// Program of a command, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLine {
    /// Command line for `/bin/sh`.
    Shell(String),
    /// Program and its arguments, executed without a shell. The program is searched in `PATH` of the command.
    Arguments(Vec<String>),
}

impl Default for CommandLine {
    fn default() -> Self {
        Self::Shell(String::new())
    }
}

impl CommandLine {
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Shell(command) => check_command(command),
            Self::Arguments(argv) => check_argv(argv),
        }
    }

    /// Returns the text for lists: the command line, or the arguments as they are quoted for a shell.
    pub fn to_text(&self) -> String {
        match self {
            Self::Shell(command) => command.clone(),
            Self::Arguments(argv) => {
                let quoted: Vec<_> = argv.iter().map(|argument| quoted(argument)).collect();
                quoted.join(" ")
            }
        }
    }

    /// Returns the command line for the shell, which is empty without one, and the arguments; `None` for a shell.
    pub(crate) fn into_parts(self) -> (String, Option<Vec<String>>) {
        match self {
            Self::Shell(command) => (command, None),
            Self::Arguments(argv) => (String::new(), Some(argv)),
        }
    }
}

/// Validates a command line for a shell.
pub(crate) fn check_command(command: &str) -> Result<()> {
    if command.is_empty() || command.len() > COMMAND_MAX || command.contains('\0') {
        let message = format!("must have between 1 and {COMMAND_MAX} bytes, without a NUL");
        return Err(SandboxError::Invalid { field: "command", message });
    }
    Ok(())
}

fn check_argv(argv: &[String]) -> Result<()> {
    let invalid = |message: String| Err(SandboxError::Invalid { field: "argv", message });
    let program = argv.first().map(String::as_str).unwrap_or_default();
    if program.is_empty() || program.len() > PROGRAM_MAX {
        return invalid(format!("must begin with a program, of at most {PROGRAM_MAX} bytes"));
    }
    let size: usize = argv.iter().map(|argument| argument.len() + 1).sum();
    let is_long = argv.iter().any(|argument| argument.len() > ARGUMENT_MAX);
    if argv.len() > ARGUMENTS_MAX || size > COMMAND_MAX || is_long {
        return invalid(format!(
            "must have at most {ARGUMENTS_MAX} arguments of at most {ARGUMENT_MAX} bytes each and {COMMAND_MAX} \
             bytes in total"
        ));
    }
    if argv.iter().any(|argument| argument.contains('\0')) {
        return invalid("must not contain a NUL".to_owned());
    }
    Ok(())
}

/// Validates a tag.
pub(crate) fn check_tag(tag: &str) -> Result<()> {
    if tag.is_empty() || tag.chars().count() > TAG_MAX || tag.chars().any(char::is_control) {
        let message = format!("must have between 1 and {TAG_MAX} characters, without control characters");
        return Err(SandboxError::Invalid { field: "tag", message });
    }
    Ok(())
}

/// Quotes an argument for a shell, if that is necessary.
fn quoted(argument: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:@%+=".contains(&byte);
    if !argument.is_empty() && argument.bytes().all(is_plain) {
        return Cow::Borrowed(argument);
    }
    Cow::Owned(format!("'{}'", argument.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(argv: &[&str]) -> CommandLine {
        CommandLine::Arguments(argv.iter().map(|&argument| argument.to_owned()).collect())
    }

    #[test]
    fn arguments_are_shown_as_a_shell_reads_them() {
        let line = arguments(&["printf", "%s\n", "", "a b", "it's", "$HOME", "--x=1", "ä"]);
        assert_eq!(line.to_text(), "printf '%s\n' '' 'a b' 'it'\\''s' '$HOME' --x=1 'ä'");
        assert_eq!(CommandLine::Shell("echo  $A".to_owned()).to_text(), "echo  $A");
    }

    #[test]
    fn arguments_that_cannot_be_executed_are_refused() {
        for valid in [
            arguments(&["true"]),
            arguments(&["true", "", "a\nb", &"x".repeat(ARGUMENT_MAX)]),
            arguments(&vec!["x"; ARGUMENTS_MAX]),
        ] {
            valid.check().unwrap();
        }
        let large = "x".repeat(ARGUMENT_MAX);
        for invalid in [
            arguments(&[]),
            arguments(&["", "a"]),
            arguments(&[&"x".repeat(PROGRAM_MAX + 1)]),
            arguments(&["a\0b"]),
            arguments(&["true", "\0"]),
            arguments(&["true", &"x".repeat(ARGUMENT_MAX + 1)]),
            arguments(&[&["true"], [large.as_str(); 8].as_slice()].concat()),
            arguments(&vec!["x"; ARGUMENTS_MAX + 1]),
        ] {
            assert!(matches!(invalid.check(), Err(SandboxError::Invalid { field: "argv", .. })));
        }
    }

    #[test]
    fn a_tag_is_a_short_text() {
        for valid in ["a", " ", "step 1: tests", &"ä".repeat(TAG_MAX)] {
            check_tag(valid).unwrap();
        }
        for invalid in ["", "a\nb", "\0", &"ä".repeat(TAG_MAX + 1)] {
            assert!(
                matches!(check_tag(invalid), Err(SandboxError::Invalid { field: "tag", .. })),
                "{invalid}"
            );
        }
    }
}
