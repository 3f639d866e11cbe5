//! Runs the program `git`, which supports every repository format and the settings of the user.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use crate::error::{CommandError, Result, io_hint};

/// Hint for a repository that is damaged.
pub(in crate::commands) const FSCK_HINT: &str = "`git fsck` checks the repository";

/// A repository.
pub(in crate::commands) struct Repository {
    path: PathBuf,
    /// Creates a command in the directory of the repository.
    new_command: fn(&Path) -> Command,
}

/// A commit and its parents, as ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) struct CommitParents {
    pub(in crate::commands) id: String,
    pub(in crate::commands) parents: Vec<String>,
}

impl Repository {
    pub(in crate::commands) fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, user_command)
    }

    /// Opens a repository whose settings are not trusted: nothing that it configures is executed.
    pub(in crate::commands) fn open_untrusted(path: &Path) -> Result<Self> {
        Self::open_with(path, super::super::project::git::command)
    }

    fn open_with(path: &Path, new_command: fn(&Path) -> Command) -> Result<Self> {
        let repository = Self { path: path.to_owned(), new_command };
        match repository.run(&["rev-parse", "--git-dir"])? {
            Ok(_) => Ok(repository),
            Err(stderr) => {
                let failed = CommandError::failed(format!("git failed: {stderr}"));
                Err(match is_remote(path) {
                    true => failed.hint("clone it first, `git clone --bare URL DIR`, and specify DIR"),
                    false => failed.hint("specify the directory of a git repository, bare or not"),
                })
            }
        }
    }

    /// Returns a git command in this repository.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = (self.new_command)(&self.path);
        command.args(words);
        command
    }

    /// Runs git. Returns its stdout, or its stderr if it failed.
    fn run(&self, words: &[&str]) -> Result<std::result::Result<String, String>> {
        let output: Output = self.command(words).output().map_err(|error| cannot_run(&error))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
    }

    /// Returns the id of the commit that a revision names.
    pub(in crate::commands) fn commit(&self, revision: &str) -> Result<String> {
        let expression = format!("{revision}^{{commit}}");
        match self.run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &expression])? {
            Ok(id) if is_id(&id) => Ok(id),
            _ => {
                let path = self.path.display();
                Err(CommandError::failed(format!("there is no commit `{revision}` in {path}"))
                    .hint("specify a branch, a tag or a commit id"))
            }
        }
    }

    /// Returns the commits and their ancestors, parents first.
    pub(in crate::commands) fn history(&self, tips: &[String]) -> Result<Vec<CommitParents>> {
        let mut words = vec!["rev-list", "--topo-order", "--reverse", "--parents"];
        words.extend(tips.iter().map(String::as_str));
        words.push("--");
        let listed = self.run(&words)?;
        let listed =
            listed.map_err(|stderr| CommandError::failed(format!("git failed: {stderr}")).hint(FSCK_HINT))?;
        listed.lines().map(parse_line).collect()
    }

    /// Returns a commit and the ancestors that first parents lead to, oldest first.
    pub(in crate::commands) fn first_parents(&self, tip: &str) -> Result<Vec<CommitParents>> {
        let listed = self.run(&["rev-list", "--first-parent", "--reverse", "--parents", tip, "--"])?;
        let listed =
            listed.map_err(|stderr| CommandError::failed(format!("git failed: {stderr}")).hint(FSCK_HINT))?;
        let mut commits = listed.lines().map(parse_line).collect::<Result<Vec<_>>>()?;
        commits.iter_mut().for_each(|commit| commit.parents.truncate(1));
        Ok(commits)
    }

    /// Starts `git cat-file`, which reads objects.
    pub(in crate::commands) fn start_cat_file(&self) -> Result<CatFile> {
        let mut command = self.command(&["cat-file", "--batch"]);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = spawned.map_err(|error| cannot_run(&error))?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(requests), Some(responses)) => {
                Ok(CatFile { process, requests, responses: BufReader::with_capacity(128 << 10, responses) })
            }
            _ => unreachable!("stdin and stdout are pipes"),
        }
    }
}

/// Creates a git command with the settings of the user.
fn user_command(directory: &Path) -> Command {
    let mut command = Command::new("git");
    // Replaced objects would lead to other ids than in the original repository.
    command.arg("--no-replace-objects").arg("-C").arg(directory);
    command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0");
    command.stdin(Stdio::null());
    workspace_host::limits::reset_open_files_limit(&mut command);
    command
}

/// Returns true for a URL of git, `scheme://…` or `host:…`, that is no local path.
fn is_remote(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let first = text.split('/').next().unwrap_or_default();
    first.contains(':') && !path.exists()
}

fn cannot_run(error: &io::Error) -> CommandError {
    if error.kind() == io::ErrorKind::NotFound {
        return CommandError::failed("the program `git` is not installed")
            .hint("install it, on Debian with `apt-get install git`");
    }
    CommandError::failed(format!("cannot run git: {error}")).hint(io_hint(error))
}

fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn parse_line(line: &str) -> Result<CommitParents> {
    let mut ids = line.split(' ').map(str::to_owned);
    match ids.next() {
        Some(id) if is_id(&id) => Ok(CommitParents { id, parents: ids.collect() }),
        _ => Err(CommandError::failed(format!("git listed something that is not a commit: `{line}`"))
            .hint(FSCK_HINT)),
    }
}

/// `git cat-file --batch`: one request at a time; its response is read before the next request.
pub(in crate::commands) struct CatFile {
    process: Child,
    requests: ChildStdin,
    responses: BufReader<ChildStdout>,
}

/// Kind of a git object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum ObjectKind {
    Commit,
    Tree,
    Blob,
}

impl ObjectKind {
    fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
        }
    }
}

impl CatFile {
    /// Reads a whole object.
    pub(in crate::commands) fn read(&mut self, id: &str, kind: ObjectKind) -> Result<Vec<u8>> {
        self.stream(id, kind, |_, content| {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).map_err(|error| git_failed(&error))?;
            Ok(bytes)
        })
    }

    /// Passes the size and the content of an object to `take`, which need not read the content to its end.
    pub(in crate::commands) fn stream<T>(
        &mut self,
        id: &str,
        kind: ObjectKind,
        take: impl FnOnce(u64, &mut dyn Read) -> Result<T>,
    ) -> Result<T> {
        let size = self.request(id, kind)?;
        let mut content = (&mut self.responses).take(size);
        let result = take(size, &mut content)?;
        // A newline follows the content.
        let unread = content.limit() + 1;
        let skipped = io::copy(&mut (&mut self.responses).take(unread), &mut io::sink());
        match skipped {
            Ok(skipped) if skipped == unread => Ok(result),
            Ok(_) => {
                let message = format!("git exited in the middle of {} {id}", kind.name());
                Err(CommandError::failed(message).hint(FSCK_HINT))
            }
            Err(error) => Err(git_failed(&error)),
        }
    }

    /// Requests an object and returns its size. Its content is the next output of git.
    fn request(&mut self, id: &str, kind: ObjectKind) -> Result<u64> {
        writeln!(self.requests, "{id}")
            .and_then(|()| self.requests.flush())
            .map_err(|error| git_failed(&error))?;
        let mut line = String::new();
        self.responses.read_line(&mut line).map_err(|error| git_failed(&error))?;
        let mut words = line.trim_end().split(' ').skip(1);
        match (words.next(), words.next().and_then(|size| size.parse().ok())) {
            (Some(found), Some(size)) if found == kind.name() => Ok(size),
            (Some("missing"), _) => {
                Err(CommandError::failed(format!("{} {id} is missing from the repository", kind.name()))
                    .hint("`git fsck` lists what else is missing; a partial clone needs its remote"))
            }
            _ => Err(CommandError::failed(format!(
                "git answered `{}` for {} {id}",
                line.trim_end(),
                kind.name()
            ))
            .hint(FSCK_HINT)),
        }
    }
}

impl Drop for CatFile {
    fn drop(&mut self) {
        // It only reads, so it can be killed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

pub(in crate::commands) fn git_failed(error: &io::Error) -> CommandError {
    CommandError::failed(format!("cannot communicate with git: {error}")).hint(FSCK_HINT)
}
