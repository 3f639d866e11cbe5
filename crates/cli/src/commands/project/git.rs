//! Runs the program `git` on repositories that may be hostile.
//!
//! Nothing that a repository configures is executed: no hooks, no file system monitor, no transport helper, no lazy
//! fetch of missing objects, no submodules. The settings of the user are read only where a URL is cloned, for
//! credentials.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::{CommandError, Result, io_hint};

/// Settings of every command.
const SETTINGS: [&str; 8] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "commit.gpgSign=false",
    "gc.auto=0",
];
/// Protocols from which a repository is cloned.
const PROTOCOLS: &str = "file:git:http:https:ssh";

/// Access to the network and to the settings of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Reads and writes local files only.
    Local,
    /// Clones a URL that the user named.
    Remote,
}

/// Creates a git command in a directory.
pub(in crate::commands) fn command(directory: &Path) -> Command {
    let mut command = with_settings(Access::Local);
    command.arg("-C").arg(directory);
    command
}

fn with_settings(access: Access) -> Command {
    let mut command = Command::new("git");
    // Variables such as GIT_DIR or GIT_CONFIG_COUNT would select another repository, or change settings.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_redirecting(name, access)) {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0");
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_NO_LAZY_FETCH", "1").env("GIT_ATTR_NOSYSTEM", "1");
    match access {
        Access::Local => {
            command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_ALLOW_PROTOCOL", "none");
        }
        Access::Remote => {
            command.env("GIT_ALLOW_PROTOCOL", PROTOCOLS);
        }
    }
    command.arg("--no-replace-objects").arg("--no-pager");
    for setting in SETTINGS {
        command.arg("-c").arg(setting);
    }
    // The files belong to another user if the repository was copied or mounted; nothing in it is executed.
    command.arg("-c").arg("safe.directory=*");
    command.stdin(Stdio::null());
    workspace_host::limits::reset_open_files_limit(&mut command);
    command
}

fn is_redirecting(name: &OsStr, access: Access) -> bool {
    let Some(name) = name.to_str().filter(|name| name.starts_with("GIT_")) else { return false };
    let is_for_transport = ["GIT_SSH", "GIT_SSL", "GIT_ASKPASS", "GIT_PROXY", "GIT_CURL", "GIT_HTTP"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    !(access == Access::Remote && is_for_transport)
}

/// Runs a command and returns its stdout. Fails with its stderr.
pub(super) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(|error| cannot_run(&error))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(failed(&output.stderr)),
    }
}

/// Runs a command and returns the first line of its stdout; `None` if it failed.
pub(super) fn line(command: &mut Command) -> Result<Option<String>> {
    let output = command.output().map_err(|error| cannot_run(&error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned()))
}

/// Starts a command that reads its stdin.
pub(super) fn start(command: &mut Command) -> Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().map_err(|error| cannot_run(&error))
}

/// Creates the error of a git command from its stderr.
pub(super) fn failed(stderr: &[u8]) -> CommandError {
    let text = String::from_utf8_lossy(stderr);
    CommandError::failed(format!("git failed: {}", text.trim()))
        .hint("`git fsck` checks a repository; a URL may need credentials")
}

fn cannot_run(error: &io::Error) -> CommandError {
    if error.kind() == io::ErrorKind::NotFound {
        return CommandError::failed("the program `git` is not installed")
            .hint("install it, on Debian with `apt-get install git`");
    }
    CommandError::failed(format!("cannot run git: {error}")).hint(io_hint(error))
}

/// Depth of a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Newest commit only.
    Newest,
    /// All commits.
    Full,
}

/// Clones a URL or a bundle to a new bare repository.
pub(super) fn clone(source: &OsStr, to: &Path, depth: Depth) -> Result<()> {
    check_source(source)?;
    let mut command = with_settings(Access::Remote);
    command.args(["clone", "--quiet", "--bare", "--template=", "--no-recurse-submodules"]);
    if depth == Depth::Newest {
        // All branches: if `HEAD` names none of them, nothing would be fetched.
        command.args(["--depth=1", "--no-single-branch"]);
    }
    output(command.arg("--").arg(source).arg(to)).map(drop)
}

/// Fails for a source that git would take for an option or a transport helper.
fn check_source(source: &OsStr) -> Result<()> {
    let text = source.to_string_lossy();
    if text.starts_with('-') {
        return Err(CommandError::usage(format!("`{text}` is an option, not a repository"))
            .hint("for a directory of that name, write `./` before it"));
    }
    if text.contains("::") && !Path::new(source).exists() {
        return Err(CommandError::usage(format!(
            "`{text}` names a transport helper, which could run programs"
        ))
        .hint("clone it yourself, `git clone --bare URL DIR`, and specify DIR"));
    }
    Ok(())
}

/// Returns true for a URL of git, `scheme://…` or `host:…`, that is no local path.
pub(super) fn is_url(source: &OsStr) -> bool {
    let text = source.to_string_lossy();
    let first = text.split('/').next().unwrap_or_default();
    first.contains(':') && !Path::new(source).exists()
}

/// Returns a path that git cannot take for an option.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        CommandError::failed(format!("cannot resolve `{}`: {error}", path.display())).hint(io_hint(&error))
    })
}

/// Quotes a path for a fast-import stream.
pub(super) fn quote(path: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in path {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b' '..=b'~' => quoted.push(*byte),
            _ => quoted.extend(format!("\\{byte:03o}").bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}

/// Returns the first branch of a repository whose `HEAD` names no commit; `None` if it has no commits.
pub(super) fn first_branch(repository: &Path) -> Result<Option<String>> {
    let mut list = command(repository);
    list.args([
        "for-each-ref",
        "--count=1",
        "--format=%(refname)",
        "refs/heads",
        "refs/tags",
        "refs/remotes",
    ]);
    Ok(line(&mut list)?.filter(|name| !name.is_empty()))
}

/// Returns the arguments of a command as text, for a hint.
pub(super) fn shown(argument: &OsString) -> String {
    crate::text::shell_word(&argument.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_transport_helpers_are_no_repositories() {
        for source in ["--upload-pack=touch /tmp/x", "-u", "ext::sh -c id", "fd::17/foo"] {
            assert!(check_source(OsStr::new(source)).is_err(), "{source}");
        }
        for source in ["https://example.org/a.git", "git@example.org:a.git", "/srv/a.git", "./-u"] {
            assert!(check_source(OsStr::new(source)).is_ok(), "{source}");
        }
    }

    #[test]
    fn urls_are_no_paths() {
        assert!(is_url(OsStr::new("https://example.org/a.git")));
        assert!(is_url(OsStr::new("host:a.git")));
        assert!(!is_url(OsStr::new("./host:a.git")));
        assert!(!is_url(OsStr::new("/srv/a.git")));
    }

    #[test]
    fn paths_are_quoted_for_fast_import() {
        assert_eq!(quote(b"a b"), b"\"a b\"");
        assert_eq!(quote(b"\"\\\n\xff"), b"\"\\\"\\\\\\012\\377\"");
    }
}
