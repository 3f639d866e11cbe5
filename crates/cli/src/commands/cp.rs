//! `workspace cp`

use std::path::{Path, PathBuf};

use workspace_api::error_codes;
use workspace_api::files::FileKind;

use crate::args::Cp;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::archive::SkippedEntries;
use crate::remote::copy::{self, SandboxPath};
use crate::remote::files::{self, AtSymlink, RemotePath};
use crate::remote::{Client, ServerUrl, block_on, find_sandbox, tree_copy};

pub(crate) fn run(context: &mut Context, args: &Cp) -> Result<Outcome> {
    let (to, from) = args.paths.split_last().ok_or_else(|| CommandError::usage("nothing to copy"))?;
    let client = Client::new(ServerUrl::new(&args.server)?);
    let remote_sources: Vec<Option<(&str, &str)>> = from.iter().map(|path| split_remote(path)).collect();
    let skipped = match (split_remote(to), remote_sources.iter().flatten().count()) {
        (Some((sandbox, path)), 0) => block_on(put(context, &client, from, (sandbox, path)))?,
        (None, count) if count == from.len() => {
            block_on(get(context, &client, &remote_sources, Path::new(to)))?
        }
        _ => {
            return Err(CommandError::usage("exactly one side must be in a sandbox")
                .hint("write a path in a sandbox as SANDBOX:PATH, and a local path with a colon as ./a:b"));
        }
    };
    copy::warn_of_skipped(&skipped);
    Ok(Outcome::with_warnings_if(!skipped.is_empty()))
}

/// Splits `SANDBOX:PATH`; `None` for a local path. A path with a slash before its colon is local.
fn split_remote(path: &str) -> Option<(&str, &str)> {
    path.split_once(':')
        .filter(|(sandbox, _)| !sandbox.is_empty() && !sandbox.contains('/') && !sandbox.starts_with('.'))
}

/// Copies local files into a sandbox. Returns the entries that cannot be copied.
async fn put(
    context: &Context,
    client: &Client,
    from: &[String],
    (sandbox, to): (&str, &str),
) -> Result<SkippedEntries> {
    let (typed, sandbox) = (sandbox, find_sandbox(client, sandbox).await?);
    let target = SandboxPath::new(to)?;
    // `None` if the guest agent of the sandbox is too old for the routes for files.
    let is_directory = async |path: &str| {
        let entry = files::stat(client, &sandbox, &RemotePath::new(path)?, AtSymlink::Follow).await;
        match entry {
            Ok(entry) => Ok(Some(entry.is_some_and(|entry| entry.kind == FileKind::Directory))),
            Err(failure) if failure.is(error_codes::GUEST_OUTDATED) => Ok(None),
            Err(failure) => Err(client.explain(failure)),
        }
    };
    let not_a_directory = |path: &str| {
        CommandError::failed(format!("{path} is not a directory in the sandbox"))
            .hint(format!("`workspace exec {typed} -- mkdir -p {path}` creates it"))
    };
    let by_route = is_directory(&target.path()).await?;
    let into_directory = match by_route {
        Some(is_directory) => is_directory,
        None => copy::is_directory(client, &sandbox, &target.path()).await?,
    };
    if !into_directory && (from.len() > 1 || to.ends_with('/')) {
        return Err(not_a_directory(&target.path()));
    }
    let sources = from.iter().map(|path| {
        let path = PathBuf::from(path);
        let destination =
            if into_directory { target.join(&local_name(&path)?) } else { SandboxPath::new(to)? };
        Ok((path, destination))
    });
    let sources: Vec<(PathBuf, SandboxPath)> = sources.collect::<Result<_>>()?;
    if by_route.is_none() {
        return copy::put(client, &sandbox, sources, &context.progress).await;
    }
    let directory = if into_directory { target.path() } else { target.directory().to_owned() };
    // The server would create a missing directory.
    if !into_directory && is_directory(&directory).await? != Some(true) {
        return Err(not_a_directory(&directory));
    }
    let sources = sources.into_iter().map(|(path, to)| (path, to.name().to_owned())).collect();
    let directory = RemotePath::new(&directory)?;
    tree_copy::put(client, &sandbox, &directory, sources, &context.progress).await
}

/// Returns the name of a file, also where the path ends in `.` or `..`.
fn local_name(path: &Path) -> Result<String> {
    let resolved = if path.file_name().is_some() { Ok(path.to_owned()) } else { path.canonicalize() };
    let resolved = resolved.map_err(|error| {
        CommandError::failed(format!("{}: {error}", path.display())).hint(crate::error::io_hint(&error))
    })?;
    let name = resolved.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| {
        CommandError::usage(format!("{} has no file name for the copy", path.display()))
            .hint("specify a file or directory")
    })
}

/// Copies files of sandboxes to a local path. Returns the entries that cannot be copied.
async fn get(
    context: &Context,
    client: &Client,
    from: &[Option<(&str, &str)>],
    to: &Path,
) -> Result<SkippedEntries> {
    let is_directory = to.is_dir();
    if !is_directory && (from.len() > 1 || to.as_os_str().as_encoded_bytes().ends_with(b"/")) {
        return Err(
            CommandError::failed(format!("{} is not a directory", to.display())).hint("create it first")
        );
    }
    let mut skipped = SkippedEntries::default();
    for (sandbox, path) in from.iter().flatten() {
        let sandbox = find_sandbox(client, sandbox).await?;
        let source = SandboxPath::new(path)?;
        let target = if is_directory { to.join(source.name()) } else { to.to_owned() };
        let path = RemotePath::new(&source.path())?;
        let copied = match files::stat(client, &sandbox, &path, AtSymlink::Describe).await {
            Ok(Some(entry)) => {
                tree_copy::get(client, &sandbox, (&path, &entry), target, &context.progress).await
            }
            Ok(None) => {
                let message = format!("there is no {} in the sandbox", path.quoted());
                Err(CommandError::failed(message)
                    .hint("check the spelling; a relative path starts in /workspace"))
            }
            Err(failure) if failure.is(error_codes::GUEST_OUTDATED) => {
                copy::get(client, &sandbox, &source, target, &context.progress).await
            }
            Err(failure) => Err(client.explain(failure)),
        };
        skipped.extend(copied?);
    }
    Ok(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_with_a_sandbox_before_a_colon_are_remote() {
        assert_eq!(split_remote("work:a"), Some(("work", "a")));
        assert_eq!(split_remote("work:"), Some(("work", "")));
        assert_eq!(split_remote("work:/a:b"), Some(("work", "/a:b")));
        for local in ["a", "./a:b", "/a:b", "a/b:c", ":a"] {
            assert_eq!(split_remote(local), None, "{local}");
        }
    }
}
