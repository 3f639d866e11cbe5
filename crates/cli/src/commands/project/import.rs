//! `workspace project import`: from a directory, a tar archive, or a git repository.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use hyper::Method;
use tempfile::TempDir;
use workspace_api::projects::{ImportResult, OperationList, Project};
use workspace_state::{Progress as _, Snapshot, Store, Tree};

use super::super::import_git::git::{CommitParents, Repository};
use super::super::import_git::history::Importer;
use super::super::report::{SkippedFields, print_skipped};
use super::super::tree_upload;
use super::git::{self, Depth};
use super::routes::project_path;
use crate::args::ProjectImport;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::remote::{Client, percent_encode, with_client};
use crate::text;

/// First bytes of a git bundle.
const BUNDLE_MAGIC: [&[u8]; 2] = [b"# v2 git bundle\n", b"# v3 git bundle\n"];
/// Maximum length of a commit's message and author in a request, in bytes. The rest is cut off.
const MESSAGE_MAX: usize = 8 << 10;
const AUTHOR_MAX: usize = 256;

/// Origin of an import.
enum Source {
    Directory(PathBuf),
    Tar(Box<dyn Read + Send>),
    /// Repository, and the directory of its clone, which is removed with it.
    Git(Repository, PathBuf, Option<TempDir>),
}

pub(super) fn run(context: &mut Context, args: &ProjectImport) -> Result<Outcome> {
    match open(args)? {
        Source::Directory(path) => {
            let tree = tree_upload::read_directory(context, &path)?;
            let imported =
                with_client(&args.server, async |client| send_tree(client, &route(args), tree).await)?;
            print(context, &imported)
        }
        Source::Tar(archive) => {
            let route = route(args);
            let imported = with_client(&args.server, async |client| {
                client.upload(&Method::POST, &route, archive).await
            })?;
            print(context, &imported)
        }
        Source::Git(repository, path, clone) => {
            let imported = import_git(context, args, &repository, &path);
            drop(clone);
            imported
        }
    }
}

fn route(args: &ProjectImport) -> String {
    let message = percent_encode(args.message.as_bytes());
    let mut route = format!("{}/import?message={message}", project_path(&args.project));
    if let Some(expect) = &args.expect {
        route.push_str(&format!("&expect={}", percent_encode(expect.as_bytes())));
    }
    route
}

/// Finds out what the source is.
fn open(args: &ProjectImport) -> Result<Source> {
    let (source, is_git) = (args.source.as_os_str(), args.git.is_some() || args.history);
    let path = Path::new(source);
    if source == "-" {
        return match is_git {
            true => Err(CommandError::usage("a git repository cannot be read from stdin")
                .hint("specify a repository, a bundle file or a URL")),
            false => stdin_archive(),
        };
    }
    if source.to_string_lossy().starts_with('-') {
        return Err(CommandError::usage(format!(
            "`{}` is an option, not a source",
            git::shown(&args.source)
        ))
        .hint("for a file of that name, write `./` before it"));
    }
    if git::is_url(source) {
        let is_newest = !args.history && args.git.as_deref().is_none_or(|revision| revision == "HEAD");
        return clone(source, if is_newest { Depth::Newest } else { Depth::Full });
    }
    let failed = |error: io::Error| {
        CommandError::failed(format!("cannot read {}: {error}", path.display())).hint(io_hint(&error))
    };
    if fs::metadata(path).map_err(failed)?.is_dir() {
        return match is_git || is_bare_repository(path) {
            true => Ok(Source::Git(Repository::open_untrusted(path)?, path.to_owned(), None)),
            false => Ok(Source::Directory(path.to_owned())),
        };
    }
    let mut file = File::open(path).map_err(failed)?;
    let mut start = Vec::new();
    file.by_ref().take(16).read_to_end(&mut start).map_err(failed)?;
    if BUNDLE_MAGIC.iter().any(|magic| start.starts_with(magic)) {
        return clone(git::absolute(path)?.as_os_str(), Depth::Full);
    }
    if is_git {
        return Err(CommandError::usage(format!("{} is neither a repository nor a bundle", path.display()))
            .hint("omit `--git` and `--history` to import an archive"));
    }
    Ok(Source::Tar(Box::new(io::Cursor::new(start).chain(file))))
}

fn stdin_archive() -> Result<Source> {
    if io::stdin().is_terminal() {
        return Err(CommandError::usage("an archive cannot be read from a terminal")
            .hint("redirect stdin, `workspace project import PROJECT - < x.tar`"));
    }
    Ok(Source::Tar(Box::new(io::stdin())))
}

/// Returns true for a bare repository. A directory with a working tree is imported as it is, unless git is asked for.
fn is_bare_repository(path: &Path) -> bool {
    path.join("HEAD").is_file() && path.join("objects").is_dir() && path.join("refs").is_dir()
}

/// Clones a URL or a bundle to a temporary directory.
fn clone(source: &OsStr, depth: Depth) -> Result<Source> {
    let temporary = temporary_directory()?;
    let path = temporary.path().join("repository");
    git::clone(source, &path, depth)?;
    Ok(Source::Git(Repository::open_untrusted(&path)?, path, Some(temporary)))
}

pub(super) fn temporary_directory() -> Result<TempDir> {
    tempfile::tempdir().map_err(|error| {
        CommandError::failed(format!("cannot create a temporary directory: {error}")).hint(io_hint(&error))
    })
}

/// Imports a commit, or the commits that its first parents lead to, one operation each.
fn import_git(
    context: &mut Context,
    args: &ProjectImport,
    repository: &Repository,
    path: &Path,
) -> Result<Outcome> {
    let Some(tip) = tip(args, repository, path)? else {
        text::print_stderr("note: the repository has no commits; nothing was imported");
        return Ok(Outcome::Done);
    };
    let commits = match args.history {
        true => repository.first_parents(&tip)?,
        false => vec![CommitParents { id: tip, parents: Vec::new() }],
    };
    let temporary = temporary_directory()?;
    let store = Store::open_or_create(temporary.path().join("store"))?;
    let mut importer = Importer::new(&store, repository.start_cat_file()?)?;
    let results = with_client(&args.server, async |client| {
        let project: Project = client.get(&project_path(&args.project)).await?;
        let (done, mut expect) = match args.history {
            true => (imported_before(client, &project, &commits).await?, Some(project.sequence.to_string())),
            false => (0, args.expect.clone()),
        };
        let mut results: Vec<ImportResult> = Vec::new();
        context.progress.begin("importing commits", Some((commits.len() - done) as u64));
        for (index, commit) in commits.iter().enumerate() {
            importer.import(commit)?;
            if index < done {
                continue;
            }
            let snapshot = store.snapshot(&importer.snapshot(&commit.id)?)?;
            let route = commit_route(args, &snapshot, &commit.id, expect.as_deref());
            let sent = send_tree(client, &route, Tree::of_snapshot(&store, &snapshot)?).await;
            let imported = sent.map_err(|error| explain(error, args, results.len(), commits.len() - done))?;
            expect = match &imported.operation {
                Some(operation) => Some(operation.sequence.to_string()),
                None => expect,
            };
            results.push(imported);
            context.progress.advance(1);
        }
        context.progress.end();
        Ok(results)
    })?;
    let skipped = importer.into_skipped();
    let skipped: Vec<_> = skipped.iter().map(|entry| SkippedFields::new(&entry.path, entry.reason)).collect();
    print_skipped(&skipped);
    print_all(context, args, &results)
}

/// Returns the commit to import; `None` if the repository has none.
fn tip(args: &ProjectImport, repository: &Repository, path: &Path) -> Result<Option<String>> {
    let revision = args.git.as_deref().unwrap_or("HEAD");
    match repository.commit(revision) {
        Ok(id) => Ok(Some(id)),
        // A bundle need not have a `HEAD`, and that of an empty repository names a branch that does not exist.
        Err(error) if revision == "HEAD" => match git::first_branch(path)? {
            Some(branch) => Ok(Some(repository.commit(&branch)?)),
            None if is_detached(path)? => Err(error),
            None => Ok(None),
        },
        Err(error) => Err(error),
    }
}

/// Returns true if `HEAD` names a commit, which is then missing.
fn is_detached(path: &Path) -> Result<bool> {
    Ok(git::line(git::command(path).args(["symbolic-ref", "--quiet", "HEAD"]))?.is_none())
}

/// Returns the number of commits that an earlier run imported, if the head of the project is one of them.
async fn imported_before(client: &Client, project: &Project, commits: &[CommitParents]) -> Result<usize> {
    let newest: OperationList =
        client.get(&format!("{}/operations?limit=1", project_path(&project.id))).await?;
    let head = newest.items.into_iter().next().and_then(|operation| operation.commit);
    let position = head.and_then(|head| commits.iter().position(|commit| commit.id == head));
    Ok(position.map_or(0, |position| position + 1))
}

fn commit_route(args: &ProjectImport, snapshot: &Snapshot, commit: &str, expect: Option<&str>) -> String {
    let message = match args.message.is_empty() || args.history {
        true => shortened(&snapshot.message, MESSAGE_MAX),
        false => args.message.clone(),
    };
    let mut route = format!("{}/import?commit={commit}", project_path(&args.project));
    let time = crate::time::rfc3339(snapshot.time);
    let fields = [
        ("message", Some(message.as_str())),
        ("author", Some(&*shortened(&snapshot.author, AUTHOR_MAX))),
        ("commitTime", Some(time.as_str())),
        ("expect", expect),
    ]
    .map(|(name, value)| value.map(|value| format!("&{name}={}", percent_encode(value.as_bytes()))));
    route.extend(fields.into_iter().flatten());
    route
}

/// Cuts a text to a number of bytes, and replaces characters that the server refuses.
fn shortened(text: &str, max: usize) -> String {
    let end = (0..=max.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].replace('\0', "\u{fffd}")
}

/// Adds a way out to the error of a history that was imported in part.
fn explain(error: CommandError, args: &ProjectImport, done: usize, total: usize) -> CommandError {
    match args.history {
        true => error.hint(format!(
            "{done} of {total} commits were imported; the same command continues with the next"
        )),
        false => error,
    }
}

pub(super) async fn send_tree(client: &Client, route: &str, tree: Tree) -> Result<ImportResult> {
    let (archive, packing) = tree_upload::pack_in_thread(tree)?;
    let sent = client.upload(&Method::POST, route, archive).await;
    tree_upload::upload_result(sent, packing)
}

fn print_all(context: &mut Context, args: &ProjectImport, results: &[ImportResult]) -> Result<Outcome> {
    if !args.history || context.output.is_json() {
        results.iter().try_for_each(|result| print(context, result).map(drop))?;
        return Ok(Outcome::Done);
    }
    let sequences: Vec<u64> =
        results.iter().filter_map(|result| Some(result.operation.as_ref()?.sequence)).collect();
    let commits = text::pluralize(results.len() as u64, "commit", "commits");
    match (sequences.first(), sequences.last()) {
        (Some(first), Some(last)) => {
            context.output.line(format!("sequences {first} to {last}: {commits}"))?;
        }
        _ => context.output.line(format!("nothing differs: {commits}"))?,
    }
    Ok(Outcome::Done)
}

fn print(context: &mut Context, imported: &ImportResult) -> Result<Outcome> {
    if context.output.is_json() {
        context.output.record(imported)?;
        return Ok(Outcome::Done);
    }
    let files = text::pluralize(imported.files, "file", "files");
    let size = text::format_bytes(imported.bytes);
    match &imported.operation {
        Some(operation) => {
            context.output.line(format!("sequence {}: {files}, {size}", operation.sequence))?;
        }
        None => context.output.line(format!("nothing differs: {files}, {size}"))?,
    }
    Ok(Outcome::Done)
}
