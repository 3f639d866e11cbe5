//! `workspace project export`: to a directory, a tar archive, a git repository or a bundle.

use std::fs;
use std::io::Write;
use std::path::Path;

use workspace_state::Progress as _;

use super::super::export::write_file;
use super::git_export;
use super::routes::project_path;
use crate::args::ProjectExport;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::output::Output;
use crate::remote::copy::warn_of_skipped;
use crate::remote::files::download;
use crate::remote::tree_copy::get_archive;
use crate::remote::{percent_encode, with_client};

pub(super) fn run(context: &mut Context, args: &ProjectExport) -> Result<Outcome> {
    match (&args.directory, &args.tar, &args.git, &args.bundle) {
        (Some(directory), ..) => to_directory(context, args, directory),
        (_, Some(tar), ..) => to_tar(context, args, tar),
        (_, _, Some(repository), _) => git_export::to_repository(context, args, repository),
        (.., Some(bundle)) => git_export::to_bundle(context, args, bundle),
        _ => Err(CommandError::usage("there is nothing to export to")
            .hint("specify a directory, `--tar FILE`, `--git DIR` or `--bundle FILE`")),
    }
}

fn archive_route(args: &ProjectExport) -> String {
    let at = args.at.as_ref().map(|at| format!("?at={}", percent_encode(at.as_bytes()))).unwrap_or_default();
    format!("{}/archive{at}", project_path(&args.project))
}

fn to_directory(context: &Context, args: &ProjectExport, directory: &Path) -> Result<Outcome> {
    fs::create_dir(directory).map_err(|error| {
        let shown = directory.display();
        CommandError::failed(format!("cannot create `{shown}`: {error}")).hint(io_hint(&error))
    })?;
    let (route, to) = (archive_route(args), directory.to_owned());
    context.progress.begin_bytes("exporting", None);
    let progress = &context.progress;
    let skipped = with_client(&args.server, async |client| get_archive(client, &route, to, progress).await);
    context.progress.end();
    let skipped = skipped?;
    warn_of_skipped(&skipped);
    Ok(Outcome::with_warnings_if(!skipped.is_empty()))
}

/// Writes an archive to a file, or with `-` to stdout.
fn to_tar(context: &mut Context, args: &ProjectExport, tar: &Path) -> Result<Outcome> {
    let route = archive_route(args);
    let write = |out: &mut dyn Write| {
        with_client(&args.server, async |client| {
            download(client, &route, async |data| {
                out.write_all(data).map_err(|error| CommandError::output_failed(&error))
            })
            .await
        })
    };
    if tar != Path::new("-") {
        write_file(tar, write)?;
        return Ok(Outcome::Done);
    }
    if context.output.is_json() || Output::stdout_is_terminal() {
        return Err(CommandError::usage("an archive can be printed neither on a terminal nor as JSON")
            .hint("write it to a file: `--tar x.tar`"));
    }
    write(context.output.writer())?;
    Ok(Outcome::Done)
}
