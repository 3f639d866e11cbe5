//! `workspace cp`

use std::path::{Path, PathBuf};

use crate::args::Cp;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::copy::{self, SandboxPath};
use crate::remote::{Client, ServerUrl, block_on, find};

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
                .hint("write a path in a sandbox as ID:PATH, and a local path with a colon as ./a:b"));
        }
    };
    copy::warn_of_skipped(&skipped);
    Ok(Outcome::with_warnings_if(!skipped.is_empty()))
}

/// Splits `ID:PATH`; `None` for a local path. A path with a slash before its colon is local.
fn split_remote(path: &str) -> Option<(&str, &str)> {
    path.split_once(':')
        .filter(|(sandbox, _)| !sandbox.is_empty() && !sandbox.contains('/') && !sandbox.starts_with('.'))
}

async fn put(
    context: &Context,
    client: &Client,
    from: &[String],
    (sandbox, to): (&str, &str),
) -> Result<Vec<PathBuf>> {
    let (typed, sandbox) = (sandbox, find(client, sandbox).await?);
    let target = SandboxPath::new(to)?;
    let is_directory = copy::is_directory(client, &sandbox, &target.path()).await?;
    if !is_directory && (from.len() > 1 || to.ends_with('/')) {
        return Err(CommandError::failed(format!("{} is not a directory in the sandbox", target.path()))
            .hint(format!("`workspace exec {typed} -- mkdir -p {}` creates it", target.path())));
    }
    let sources = from.iter().map(|path| {
        let path = PathBuf::from(path);
        let destination = if is_directory { target.join(&local_name(&path)?) } else { SandboxPath::new(to)? };
        Ok((path, destination))
    });
    copy::put(client, &sandbox, sources.collect::<Result<_>>()?, &context.progress).await
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

async fn get(
    context: &Context,
    client: &Client,
    from: &[Option<(&str, &str)>],
    to: &Path,
) -> Result<Vec<PathBuf>> {
    let is_directory = to.is_dir();
    if !is_directory && (from.len() > 1 || to.as_os_str().as_encoded_bytes().ends_with(b"/")) {
        return Err(
            CommandError::failed(format!("{} is not a directory", to.display())).hint("create it first")
        );
    }
    let mut skipped = Vec::new();
    for (sandbox, path) in from.iter().flatten() {
        let sandbox = find(client, sandbox).await?;
        let source = SandboxPath::new(path)?;
        let target = if is_directory { to.join(source.name()) } else { to.to_owned() };
        skipped.extend(copy::get(client, &sandbox, &source, target, &context.progress).await?);
    }
    Ok(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_side_is_in_a_sandbox() {
        assert_eq!(split_remote("work:a"), Some(("work", "a")));
        assert_eq!(split_remote("work:"), Some(("work", "")));
        assert_eq!(split_remote("work:/a:b"), Some(("work", "/a:b")));
        for local in ["a", "./a:b", "/a:b", "a/b:c", ":a"] {
            assert_eq!(split_remote(local), None, "{local}");
        }
    }
}
