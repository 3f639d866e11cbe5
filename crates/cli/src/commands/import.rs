//! `workspace import`

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

use serde::Serialize;
use workspace_state::{Durability, ImportOptions, ImportReport, TreePath, import_tar, quote_path};

use super::record::new_snapshot;
use super::report::{Report, SkippedFields, print_skipped, warn_unlisted};
use crate::args::Import;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::text::print_stderr;

/// Fields of the report that only an import has.
#[derive(Serialize)]
struct ReplacedFields {
    /// Paths that are in the archive more than once.
    replaced: Vec<TreePath>,
}

pub(crate) fn run(context: &mut Context, args: Import) -> Result<Outcome> {
    let mut archive = open(args.archive.as_deref())?;
    let store = context.store_or_create()?;
    let new = new_snapshot(&store, args.metadata, Vec::new(), Durability::Synced)?;
    let options = ImportOptions { keep_set_id: args.keep_set_id, ..ImportOptions::default() };
    let report = import_tar(&store, &mut archive, new, &options, &context.progress)?;
    let skipped: Vec<_> =
        report.skipped.iter().map(|member| SkippedFields::new(&member.path, member.reason)).collect();
    print_skipped(&skipped);
    warn_unlisted(report.skipped_count - skipped.len() as u64, "members cannot be in a snapshot");
    warn_replaced(&report);
    let fields = Report {
        files: report.files,
        directories: report.directories,
        symlinks: report.symlinks,
        bytes: report.bytes,
        skipped,
        more: ReplacedFields { replaced: report.replaced.into_iter().map(TreePath).collect() },
    };
    fields.print(context, &store, &report.snapshot)?;
    Ok(Outcome::Done)
}

/// Opens the archive, by default stdin. Fails for a terminal, and for a compressed archive.
fn open(path: Option<&Path>) -> Result<Box<dyn Read>> {
    let named = path.filter(|path| *path != Path::new("-"));
    let input: Box<dyn Read> = match named {
        Some(path) => Box::new(File::open(path).map_err(|error| cannot_read(path, &error))?),
        None if io::stdin().is_terminal() => {
            return Err(CommandError::usage("an archive cannot be read from a terminal").hint(
                "specify a file, `workspace import x.tar`, or redirect stdin, `workspace import < x.tar`",
            ));
        }
        None => Box::new(io::stdin()),
    };
    let mut input = BufReader::with_capacity(256 << 10, input);
    let name = named.unwrap_or(Path::new("x.tar"));
    let start = input.fill_buf().map_err(|error| cannot_read(name, &error))?;
    match compression(start) {
        Some(program) => {
            let shown = name.display();
            Err(CommandError::failed(format!("the archive is compressed ({program})"))
                .hint(format!("decompress it on the way: `{program} -dc {shown} | workspace import`")))
        }
        None => Ok(Box::new(input)),
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> CommandError {
    let failed = CommandError::failed(format!("cannot read {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::IsADirectory => failed.hint("`workspace snapshot DIR` takes a directory"),
        _ => failed.hint(io_hint(error)),
    }
}

/// Returns the compression program of a file, by its magic number.
fn compression(start: &[u8]) -> Option<&'static str> {
    const MAGIC_NUMBERS: [(&[u8], &str); 4] =
        [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2")];
    MAGIC_NUMBERS.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, program)| *program)
}

/// Warns of replaced members; the report lists at most a thousand.
fn warn_replaced(report: &ImportReport) {
    for path in &report.replaced {
        print_stderr(&format!(
            "warning: {} is in the archive more than once; the last one is used",
            quote_path(path)
        ));
    }
    warn_unlisted(
        report.replaced_count - report.replaced.len() as u64,
        "members were replaced by later ones",
    );
}
