//! Export of a project to git: one commit per sequence, through `git fast-import`.
//!
//! Only the files that a sequence changed are read from the server. The trailer `Workspace-Sequence` of the newest
//! commit says where the next export continues. The branch moves when all commits are there: an interrupted export
//! leaves it as it was.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, ChildStdin};

use workspace_api::projects::{Operation, OperationList, Project};
use workspace_state::Progress as _;

use super::git;
use super::git_stream::{CommitWriter, write_commit};
use super::import::temporary_directory;
use super::routes::project_path;
use crate::args::ProjectExport;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::remote::{Client, with_client};
use crate::text;

/// Branch of a new repository.
const DEFAULT_BRANCH: &str = "main";
/// Number of operations per request.
const PAGE_SIZE: u64 = 1_000;
const BUFFER_SIZE: usize = 256 << 10;

/// Branch to export to.
struct Branch<'a> {
    repository: &'a Path,
    /// Full name, `refs/heads/…`.
    name: String,
    /// True if the working tree shows the branch, and has to follow it.
    is_checked_out: bool,
}

/// Exports to a new repository, or to a branch of an existing one.
pub(super) fn to_repository(context: &mut Context, args: &ProjectExport, path: &Path) -> Result<Outcome> {
    let path = git::absolute(path)?;
    let is_new = is_absent_or_empty(&path)?;
    if is_new {
        let branch = args.branch.as_deref().unwrap_or(DEFAULT_BRANCH);
        check_branch(branch)?;
        fs::create_dir_all(&path).map_err(|error| {
            CommandError::failed(format!("cannot create {}: {error}", path.display())).hint(io_hint(&error))
        })?;
        let initial = format!("--initial-branch={branch}");
        git::output(git::command(&path).args(["init", "--quiet", "--template=", &initial]))?;
    }
    let branch = existing_branch(args, &path)?;
    let exported = with_client(&args.server, async |client| export(context, args, client, &branch).await)?;
    if branch.is_checked_out && exported > 0 {
        git::output(git::command(&path).args(["reset", "--quiet", "--hard"]))?;
    }
    print(context, exported)
}

/// Exports to a new repository, and writes that as a bundle.
pub(super) fn to_bundle(context: &mut Context, args: &ProjectExport, file: &Path) -> Result<Outcome> {
    let name = args.branch.as_deref().unwrap_or(DEFAULT_BRANCH);
    check_branch(name)?;
    let file = git::absolute(file)?;
    let temporary = temporary_directory()?;
    let path = temporary.path().join("repository");
    let initial = format!("--initial-branch={name}");
    let mut init = git::command(temporary.path());
    git::output(init.args(["init", "--quiet", "--bare", "--template=", &initial, "--"]).arg(&path))?;
    let branch = Branch { repository: &path, name: format!("refs/heads/{name}"), is_checked_out: false };
    let exported = with_client(&args.server, async |client| export(context, args, client, &branch).await)?;
    if exported == 0 {
        return Err(CommandError::failed("the project has no changes yet, and git has no empty bundles")
            .hint("`workspace project import` brings files into it"));
    }
    // Git writes to a lock file beside it, which gets the name when it is complete.
    let mut bundle = git::command(&path);
    git::output(bundle.args(["bundle", "create", "--quiet"]).arg(&file).args(["HEAD", &branch.name]))?;
    print(context, exported)
}

fn print(context: &mut Context, exported: u64) -> Result<Outcome> {
    if context.output.is_json() {
        context.output.record(&serde_json::json!({ "commits": exported }))?;
    } else {
        context.output.line(text::pluralize(exported, "commit", "commits"))?;
    }
    Ok(Outcome::Done)
}

fn is_absent_or_empty(path: &Path) -> Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => {
            Err(CommandError::failed(format!("cannot read {}: {error}", path.display()))
                .hint(io_hint(&error)))
        }
    }
}

fn check_branch(name: &str) -> Result<()> {
    let mut check = git::command(Path::new("."));
    match name.starts_with('-') || git::line(check.args(["check-ref-format", "--branch", name]))?.is_none() {
        true => Err(CommandError::usage(format!("`{name}` is no name of a branch"))),
        false => Ok(()),
    }
}

/// Returns the branch of a repository that exists. Fails if it is checked out and its files must not be replaced.
fn existing_branch<'a>(args: &ProjectExport, path: &'a Path) -> Result<Branch<'a>> {
    let is_bare = git::line(git::command(path).args(["rev-parse", "--is-bare-repository"]))?;
    let Some(is_bare) = is_bare else {
        return Err(CommandError::failed(format!(
            "{} is neither empty nor a git repository",
            path.display()
        ))
        .hint("specify a new directory, or a repository"));
    };
    let head = git::line(git::command(path).args(["symbolic-ref", "--quiet", "HEAD"]))?;
    let name = match (&args.branch, &head) {
        (Some(branch), _) => {
            check_branch(branch)?;
            format!("refs/heads/{branch}")
        }
        (None, Some(head)) => head.clone(),
        (None, None) => format!("refs/heads/{DEFAULT_BRANCH}"),
    };
    let is_checked_out = is_bare == "false" && head.as_deref() == Some(&name);
    if is_checked_out && !can_replace_files(path)? {
        return Err(CommandError::failed(
            "the branch is checked out, with changes or filters of the repository",
        )
        .hint("commit the changes, or export to another branch with `--branch NAME`"));
    }
    Ok(Branch { repository: path, name, is_checked_out })
}

/// Returns true if the working tree has no changes, and the repository configures no program that a checkout would run.
fn can_replace_files(path: &Path) -> Result<bool> {
    if git::line(git::command(path).args(["config", "--get-regexp", "^filter\\."]))?.is_some() {
        return Ok(false);
    }
    let status = git::output(git::command(path).args(["status", "--porcelain", "--ignore-submodules=all"]))?;
    Ok(status.is_empty())
}

/// Exports the sequences that the branch does not have. Returns their number.
async fn export(
    context: &Context,
    args: &ProjectExport,
    client: &Client,
    branch: &Branch<'_>,
) -> Result<u64> {
    let project: Project = client.get(&project_path(&args.project)).await?;
    let last = last_sequence(branch, &project)?;
    let mut git = FastImport::start(branch.repository)?;
    let mut next = last.unwrap_or(0) + 1;
    let mut writer = CommitWriter {
        client,
        project: &project,
        branch: &branch.name,
        parent: last.map(|_| branch.name.clone()),
    };
    context.progress.begin("exporting changes", Some(project.sequence.saturating_sub(next - 1)));
    let mut is_found = args.at.is_none();
    'pages: while next <= project.sequence {
        for operation in operations(client, &project, next).await? {
            let written = write_commit(&mut writer, &mut git.stream, &operation).await;
            if let Err(error) = written {
                return Err(git.explain(error));
            }
            context.progress.advance(1);
            next = operation.sequence + 1;
            if args.at.as_deref().is_some_and(|at| is_at(&operation, at)) {
                is_found = true;
                break 'pages;
            }
        }
    }
    context.progress.end();
    if !is_found {
        let at = args.at.as_deref().unwrap_or_default();
        return Err(CommandError::failed(format!("sequence `{at}` does not exist, or was exported before"))
            .hint("`workspace project log` lists the sequences"));
    }
    git.finish()?;
    Ok(next - 1 - last.unwrap_or(0))
}

fn is_at(operation: &Operation, at: &str) -> bool {
    operation.snapshot.as_deref() == Some(at) || operation.sequence.to_string() == at
}

/// Returns a page of operations from a sequence on, oldest first.
async fn operations(client: &Client, project: &Project, from: u64) -> Result<Vec<Operation>> {
    let path = project_path(&project.id);
    let before = from.saturating_add(PAGE_SIZE);
    let page: OperationList =
        client.get(&format!("{path}/operations?limit={PAGE_SIZE}&before={before}")).await?;
    let mut items = page.items;
    items.retain(|operation| operation.sequence >= from);
    items.reverse();
    match items.is_empty() {
        true => Err(CommandError::failed(format!("the history of the project ends before sequence {from}"))
            .hint("the project was deleted meanwhile; run the command again")),
        false => Ok(items),
    }
}

/// Returns the sequence of the newest commit of a branch; `None` if the branch does not exist.
fn last_sequence(branch: &Branch<'_>, project: &Project) -> Result<Option<u64>> {
    let mut exists = git::command(branch.repository);
    exists.args([
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &format!("{}^{{commit}}", branch.name),
    ]);
    if git::line(&mut exists)?.is_none() {
        return Ok(None);
    }
    let trailer = |key: &str| {
        let mut show = git::command(branch.repository);
        let format = format!("--format=%(trailers:key={key},valueonly)");
        show.args(["log", "-1", "--no-show-signature", &format, "--end-of-options", &branch.name, "--"]);
        git::output(&mut show).map(|text| {
            let text = String::from_utf8_lossy(&text);
            text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
        })
    };
    let sequence = trailer("Workspace-Sequence")?.and_then(|text| text.parse().ok());
    match (sequence, trailer("Workspace-Project")?) {
        (Some(sequence), Some(id)) if id == project.id && sequence <= project.sequence => Ok(Some(sequence)),
        _ => {
            let (name, project) = (&branch.name, &project.name);
            Err(CommandError::failed(format!("`{name}` is no export of project `{project}`"))
                .hint("export to a new branch with `--branch NAME`"))
        }
    }
}

/// Running `git fast-import`.
struct FastImport {
    process: Child,
    stream: BufWriter<ChildStdin>,
}

impl FastImport {
    fn start(repository: &Path) -> Result<Self> {
        let mut command = git::command(repository);
        // Without the command `done` at its end, git changes no reference.
        command.args(["fast-import", "--quiet", "--done", "--date-format=raw"]);
        let mut process = git::start(&mut command)?;
        match process.stdin.take() {
            Some(stdin) => Ok(Self { process, stream: BufWriter::with_capacity(BUFFER_SIZE, stdin) }),
            None => Err(CommandError::failed("git has no stdin")),
        }
    }

    fn finish(mut self) -> Result<()> {
        let written = self.stream.write_all(b"done\n").and_then(|()| self.stream.flush());
        drop(self.stream);
        let output = self.process.wait_with_output();
        let output = output.map_err(|error| CommandError::failed(format!("git failed: {error}")))?;
        match (output.status.success(), written) {
            (true, Ok(())) => Ok(()),
            _ => Err(git::failed(&output.stderr)),
        }
    }

    /// Returns the error of git if it ended early, else `error`.
    fn explain(mut self, error: CommandError) -> CommandError {
        drop(self.stream);
        match self.process.try_wait() {
            Ok(Some(status)) if !status.success() => match self.process.wait_with_output() {
                Ok(output) if !output.stderr.is_empty() => git::failed(&output.stderr),
                _ => error,
            },
            _ => {
                // It has changed nothing yet. It ends by itself, since its input ended.
                drop(self.process.wait());
                error
            }
        }
    }
}
