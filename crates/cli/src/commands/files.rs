//! `workspace files`

mod batch;
mod url;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use hyper::header::{IF_MATCH, IF_NONE_MATCH};
use workspace_api::files::{FileEntry, FileKind, FileListing, FileOperation, WatchEvent, WatchEventKind};

use super::{exec, table};
use crate::args::{FilesAt, FilesCommand, FilesLs, FilesPut};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::remote::files::{self, AtSymlink, PutOptions, RemotePath};
use crate::remote::{Client, Watch, find_sandbox, with_client};
use crate::text::{self, escape_controls, format_mode};

/// Number of entries in a request for a listing.
const PAGE_SIZE: u64 = 1_000;
/// Depth of a recursive listing, the maximum of the API.
const DEPTH_MAX: u32 = 32;
/// Argument that stands for stdin.
const STDIN: &str = "-";

pub(crate) fn run(context: &mut Context, command: &FilesCommand) -> Result<Outcome> {
    match command {
        FilesCommand::Ls(args) => {
            with_client(&args.server, async |client| list(context, client, args).await)?;
        }
        FilesCommand::Cat { at } => {
            exec::reject_json(context, "the content of a file")?;
            at_file(at, async |client, sandbox, path| print(context, client, sandbox, path).await)?;
        }
        FilesCommand::Put(args) => put(context, args)?,
        FilesCommand::Get { at, file } => {
            at_file(at, async |client, sandbox, path| get(client, sandbox, path, file.as_deref()).await)?;
        }
        FilesCommand::Rm { recursive, at } => at_file(at, async |client, sandbox, path| {
            let route = format!("{}?recursive={recursive}", path.route(sandbox, "files"));
            client.delete::<()>(&route).await
        })?,
        FilesCommand::Mkdir { parents, at } => at_file(at, async |client, sandbox, path| {
            let mkdir = FileOperation::Mkdir { path: path.quoted(), mode: None, parents: *parents };
            files::perform(client, sandbox, vec![mkdir]).await
        })?,
        FilesCommand::Mv { replace, at, to } => {
            let to = RemotePath::new(to)?;
            at_file(at, async |client, sandbox, path| {
                let (from, to) = (path.quoted(), to.quoted());
                let rename = FileOperation::Move { from, to, replace: *replace };
                files::perform(client, sandbox, vec![rename]).await
            })?;
        }
        FilesCommand::Cp { recursive, replace, at, to } => {
            let to = RemotePath::new(to)?;
            at_file(at, async |client, sandbox, path| {
                let (from, to) = (path.quoted(), to.quoted());
                let copy = FileOperation::Copy { from, to, replace: *replace, recursive: *recursive };
                files::perform(client, sandbox, vec![copy]).await
            })?;
        }
        FilesCommand::Chmod(args) => batch::chmod(args)?,
        FilesCommand::Stat { no_follow, at } => {
            let at_symlink = if *no_follow { AtSymlink::Describe } else { AtSymlink::Follow };
            let entry =
                at_file(at, async |client, sandbox, path| find(client, sandbox, path, at_symlink).await)?;
            print_details(context, &entry)?;
        }
        FilesCommand::Batch(args) => batch::run(context, args)?,
        FilesCommand::Url(args) => url::run(context, args)?,
        FilesCommand::Watch { recursive, at } => at_file(at, async |client, sandbox, path| {
            let route = format!("{}?recursive={recursive}", path.route(sandbox, "watch"));
            watch(context, client, &route).await
        })?,
    }
    Ok(Outcome::Done)
}

/// Runs requests about one file: resolves the name of its sandbox, and passes client, sandbox and path to `work`.
fn at_file<T>(at: &FilesAt, work: impl AsyncFnOnce(&Client, &str, &RemotePath) -> Result<T>) -> Result<T> {
    let path = RemotePath::new(&at.path)?;
    with_client(&at.server, async |client| {
        let sandbox = find_sandbox(client, &at.sandbox).await?;
        work(client, &sandbox, &path).await
    })
}

async fn list(context: &mut Context, client: &Client, args: &FilesLs) -> Result<()> {
    let path = RemotePath::new(&args.path)?;
    let sandbox = find_sandbox(client, &args.sandbox).await?;
    let depth = if args.recursive { DEPTH_MAX } else { 1 };
    let format = if args.long { ListFormat::Long } else { ListFormat::Short };
    let route = path.route(&sandbox, "entries");
    let mut listed = 0;
    for page in 1_u64.. {
        let page = format!("{route}?depth={depth}&limit={PAGE_SIZE}&page={page}");
        let listing: FileListing = client.get(&page).await?;
        let Some(items) = listing.items else {
            return print_entry(context, &listing.entry, format);
        };
        for item in &items {
            print_entry(context, item, format)?;
        }
        listed += items.len() as u64;
        if items.is_empty() || listed >= listing.total {
            break;
        }
    }
    Ok(())
}

/// Format of an entry in a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListFormat {
    /// Path alone.
    Short,
    /// Type, permissions, size, time, path and target, like `ls -l`.
    Long,
}

fn print_entry(context: &mut Context, entry: &FileEntry, format: ListFormat) -> Result<()> {
    if context.output.is_json() {
        return context.output.record(entry);
    }
    let slash = if entry.kind == FileKind::Directory { "/" } else { "" };
    let name = format!("{}{slash}", escape_controls(&entry.path));
    if format == ListFormat::Short {
        return context.output.line(name);
    }
    let (file_type, size) = match entry.kind {
        FileKind::File => ('-', entry.size.to_string()),
        FileKind::Directory => ('d', "-".to_owned()),
        FileKind::Symlink => ('l', "-".to_owned()),
        FileKind::Special => ('?', "-".to_owned()),
    };
    let mode = format_mode(file_type, u16::from_str_radix(&entry.mode, 8).unwrap_or_default());
    let modified = table::time(&entry.modified);
    let target = entry.target.as_deref().map(|target| format!(" -> {}", escape_controls(target)));
    let target = target.unwrap_or_default();
    context.output.line(format!("{mode} {size:>12}  {modified:<26}  {name}{target}"))
}

async fn print(context: &mut Context, client: &Client, sandbox: &str, path: &RemotePath) -> Result<()> {
    files::download(client, &path.route(sandbox, "files"), async |data: &[u8]| context.output.bytes(data))
        .await
}

fn put(context: &mut Context, args: &FilesPut) -> Result<()> {
    let source = open(&args.file)?;
    let condition = match &args.if_match {
        Some(tag) => Some((IF_MATCH, quoted_tag(tag))),
        None => args.new.then(|| (IF_NONE_MATCH, "*".to_owned())),
    };
    let options = PutOptions { mode: args.mode.clone(), mkdirs: args.parents, condition };
    let entry = at_file(&args.at, async |client, sandbox, path| {
        files::put(client, sandbox, path, options, source).await
    })?;
    if context.output.is_json() { context.output.record(&entry) } else { Ok(()) }
}

/// Returns an etag with its double quotes, which a shell may have removed.
fn quoted_tag(tag: &str) -> String {
    if tag == "*" || tag.starts_with('"') { tag.to_owned() } else { format!("\"{tag}\"") }
}

fn open(path: &Path) -> Result<Box<dyn Read + Send>> {
    if path == Path::new(STDIN) {
        return Ok(Box::new(std::io::stdin()));
    }
    let opened = File::open(path);
    let file = opened.map_err(|error| {
        CommandError::failed(format!("{}: {error}", path.display())).hint(io_hint(&error))
    })?;
    Ok(Box::new(file))
}

async fn get(client: &Client, sandbox: &str, path: &RemotePath, to: Option<&Path>) -> Result<()> {
    let entry = find(client, sandbox, path, AtSymlink::Follow).await?;
    if entry.kind == FileKind::Directory {
        return Err(CommandError::failed(format!("{} is a directory", path.quoted()))
            .hint("`workspace cp` copies directories"));
    }
    let to = to.map_or_else(|| PathBuf::from(OsStr::from_bytes(path.name())), Path::to_owned);
    files::get(client, sandbox, (path, &entry), &to, |_| ()).await
}

/// Returns the entry at a path. Fails if there is none.
async fn find(client: &Client, sandbox: &str, path: &RemotePath, at_symlink: AtSymlink) -> Result<FileEntry> {
    let entry = files::stat(client, sandbox, path, at_symlink).await;
    entry.map_err(|failure| client.explain(failure))?.ok_or_else(|| {
        CommandError::failed(format!("there is no {} in the sandbox", path.quoted()))
            .hint("check the spelling; a relative path starts in /workspace")
    })
}

fn print_details(context: &mut Context, entry: &FileEntry) -> Result<()> {
    if context.output.is_json() {
        return context.output.record(entry);
    }
    let kind = match entry.kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Special => "special",
    };
    let mut fields = vec![
        ("path", entry.path.clone()),
        ("kind", kind.to_owned()),
        ("mode", entry.mode.clone()),
        ("size", entry.size.to_string()),
        ("modified", table::time(&entry.modified)),
        ("etag", entry.etag.clone()),
        ("owner", format!("{}:{}", entry.uid, entry.gid)),
    ];
    fields.extend(entry.target.clone().map(|target| ("target", target)));
    table::print_fields(&mut context.output, &fields)
}

async fn watch(context: &mut Context, client: &Client, route: &str) -> Result<()> {
    let mut watch = Watch::open(client, route).await?;
    loop {
        let event = watch.next().await?;
        if context.output.is_json() {
            context.output.record(&event)?;
        } else if event.kind != WatchEventKind::Ended {
            context.output.line(event_line(&event))?;
        }
        context.output.flush()?;
        if event.kind == WatchEventKind::Ended {
            let reason = event.reason.as_deref().unwrap_or("the watch ended");
            text::print_stderr(&format!("note: {reason}"));
            return Ok(());
        }
    }
}

fn event_line(event: &WatchEvent) -> String {
    let path = escape_controls(event.path.as_deref().unwrap_or_default()).into_owned();
    let slash = if event.directory == Some(true) { "/" } else { "" };
    let kind = event.kind.to_string();
    let line = match &event.from {
        Some(from) => format!("{kind:<10}  {} -> {path}{slash}", escape_controls(from)),
        None => format!("{kind:<10}  {path}{slash}"),
    };
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_get_the_quotes_that_a_shell_removed() {
        assert_eq!(quoted_tag("1-2-3-4"), "\"1-2-3-4\"");
        assert_eq!(quoted_tag("\"1-2-3-4\""), "\"1-2-3-4\"");
        assert_eq!(quoted_tag("*"), "*");
    }
}
