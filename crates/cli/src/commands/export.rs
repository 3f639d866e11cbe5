//! `workspace export`

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use http_body_util::BodyExt as _;
use workspace_state::{Entry, TarExport, Tree};

use crate::args::{Export, Server};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::names;
use crate::output::Output;
use crate::progress::Bars;
use crate::remote::{Client, RequestError, find_snapshot, percent_encode, with_client};

/// Buffer size for writing a file.
const BUFFER_SIZE: usize = 256 << 10;
/// Mode of a new file before the umask.
const NEW_FILE_MODE: u32 = 0o666;

pub(crate) fn run(context: &mut Context, args: &Export) -> Result<Outcome> {
    if context.output.is_json() {
        return Err(CommandError::usage("an archive is not JSON")
            .hint("omit `--json`, or list the files with `workspace --json ls -R`"));
    }
    if args.output.is_none() && Output::stdout_is_terminal() {
        return Err(CommandError::usage("an archive cannot be printed on a terminal")
            .hint(format!("write it to a file: `workspace export {} > x.tar`", args.snapshot)));
    }
    let source = Source::open(context, args)?;
    match &args.output {
        Some(path) => write_file(path, |out| source.write(&context.progress, out))?,
        None => source.write(&context.progress, context.output.writer())?,
    }
    Ok(Outcome::Done)
}

/// Origin of an archive.
enum Source<'a> {
    Store(Box<StoredEntry>),
    Server { server: Server, snapshot: &'a str, path: Vec<u8> },
}

/// Entry of a snapshot in the store.
struct StoredEntry {
    tree: Tree,
    path: Vec<u8>,
    entry: Entry,
}

impl<'a> Source<'a> {
    fn open(context: &Context, args: &'a Export) -> Result<Self> {
        let path = names::path(&args.path)?.into_owned();
        if let Some(server) = args.server.selected() {
            return Ok(Self::Server { server, snapshot: &args.snapshot, path });
        }
        let store = context.store()?;
        let snapshot = names::snapshot(&store, &args.snapshot)?;
        let tree = Tree::of_snapshot(&store, &snapshot)?;
        let entry = names::entry(&tree, &args.snapshot, &path)?;
        Ok(Self::Store(Box::new(StoredEntry { tree, path, entry })))
    }

    fn write(self, progress: &Bars, out: &mut dyn Write) -> Result<()> {
        match self {
            Self::Store(stored) => {
                let StoredEntry { tree, path, entry } = *stored;
                Ok(TarExport::new(path, entry).write_all(&tree, out, progress)?)
            }
            Self::Server { server, snapshot, path } => {
                with_client(&server, async |client| download(client, snapshot, &path, out).await)
            }
        }
    }
}

/// Writes the archive of a snapshot on a server.
async fn download(client: &Client, snapshot: &str, path: &[u8], out: &mut dyn Write) -> Result<()> {
    let id = find_snapshot(client, snapshot).await?;
    let path = format!("/api/v1/snapshots/{id}/archive?path={}", percent_encode(path));
    let mut body = client.open(&path, &[]).await.map_err(|failure| client.explain(failure))?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| client.explain(RequestError::Disconnected(error.to_string())))?;
        if let Some(data) = frame.data_ref() {
            out.write_all(data).map_err(|error| CommandError::output_failed(&error))?;
        }
    }
    Ok(())
}

/// Writes a file that gets its name when it is complete, so that a failure leaves an existing file unchanged.
pub(super) fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |error: io::Error| {
        CommandError::failed(format!("cannot write {}: {error}", path.display())).hint(io_hint(&error))
    };
    let (target, mode) = target(path)?;
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    let new = builder.prefix(".workspace-").permissions(Permissions::from_mode(mode));
    let mut out = BufWriter::with_capacity(BUFFER_SIZE, new.tempfile_in(directory).map_err(failed)?);
    write(&mut out)?;
    let new = out.into_inner().map_err(|error| failed(error.into_error()))?;
    new.persist(&target).map(drop).map_err(|error| failed(error.error))
}

/// Returns the file to replace and its mode. The target of a symlink is replaced, not the symlink. Anything other than
/// a regular file, such as a device, is refused.
fn target(path: &Path) -> Result<(PathBuf, u32)> {
    let failed = |error: &io::Error| {
        CommandError::failed(format!("cannot write {}: {error}", path.display())).hint(io_hint(error))
    };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            let target = fs::canonicalize(path).map_err(|error| failed(&error))?;
            Ok((target, metadata.permissions().mode()))
        }
        Ok(_) => Err(CommandError::failed(format!("{} is not a regular file", path.display()))
            .hint("without `-o`, the archive is printed to stdout")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((path.to_owned(), NEW_FILE_MODE)),
        Err(error) => Err(failed(&error)),
    }
}
