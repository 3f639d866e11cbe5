//! `workspace sandbox create`

use std::io::{self, BufWriter, Read, Write as _};
use std::path::Path;
use std::thread::{self, JoinHandle};

use clap::ValueEnum;
use hyper::Method;
use workspace_api::sandboxes::Sandbox;
use workspace_api::snapshots::UploadSnapshotResult;
use workspace_state::{ArchiveError, Quiet, SnapshotOptions, Tree, export_tar, preview_directory};

use super::super::report::{SkippedFields, warn_skipped};
use super::super::run;
use crate::args::SandboxCreate;
use crate::context::Context;
use crate::error::{CommandError, Result, io_hint};
use crate::remote::with_client;

/// Buffer size for writing an archive.
const BUFFER_SIZE: usize = 256 << 10;

/// Creates a sandbox. With `--dir`, first uploads the directory as a snapshot, from which the sandbox is created.
pub(super) fn create(context: &mut Context, args: &SandboxCreate) -> Result<Sandbox> {
    let tree = args.content.dir.as_deref().map(|path| read_directory(context, path)).transpose()?;
    with_client(&args.server, async |client| {
        let mut request = run::create_request(&args.options, args.timeout);
        request.on_timeout = args.on_timeout.into();
        request.snapshot.clone_from(&args.content.snapshot);
        request.root = args.root.into();
        request.provider = args.content.provider.as_ref().and_then(api_name);
        request.materialize = args.content.materialize.as_ref().and_then(api_name);
        if let Some(tree) = tree {
            let (archive, packing) = pack_in_thread(tree)?;
            let sent =
                client.upload::<UploadSnapshotResult>(&Method::POST, "/api/v1/snapshots", archive).await;
            request.snapshot = Some(upload_result(sent, packing)?.snapshot.id);
        }
        run::create(client, &request).await
    })
}

/// Reads a directory into a tree of the local store, without a snapshot. It is complete before anything is sent, so
/// that warnings of skipped entries come first.
pub(in crate::commands) fn read_directory(context: &Context, path: &Path) -> Result<Tree> {
    let store = context.store_or_create()?;
    let options = SnapshotOptions { record_as_checkout: false, ..SnapshotOptions::default() };
    let preview = preview_directory(&store, path, &options, &context.progress)?;
    let skipped: Vec<_> = preview.skipped.iter().map(SkippedFields::of).collect();
    warn_skipped(&skipped, preview.skipped_count);
    Ok(preview.tree)
}

/// Returns the name of a value of an option, which is also its name in the API.
fn api_name(value: &impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_owned())
}

/// Thread that packs a tree.
pub(in crate::commands) type Packing = JoinHandle<Result<(), ArchiveError>>;

/// Starts a thread that packs a tree into an archive. Returns the reader of the archive, and the thread.
pub(in crate::commands) fn pack_in_thread(tree: Tree) -> Result<(Box<dyn Read + Send>, Packing)> {
    let (reader, writer) = io::pipe().map_err(|error| {
        CommandError::failed(format!("cannot send an archive: {error}")).hint(io_hint(&error))
    })?;
    let packing = thread::spawn(move || {
        let mut writer = BufWriter::with_capacity(BUFFER_SIZE, writer);
        export_tar(&tree, &mut writer, &Quiet)?;
        writer.flush().map_err(|source| ArchiveError::Write { source })
    });
    Ok((Box::new(reader), packing))
}

/// Returns the result of an upload. If the server refused the archive, its error is returned, and not the error of the
/// packing thread, whose pipe then broke.
pub(in crate::commands) fn upload_result<T>(sent: Result<T>, packing: Packing) -> Result<T> {
    match packing.join() {
        Ok(Err(error)) if !matches!(error, ArchiveError::Write { .. }) => Err(error.into()),
        _ => sent,
    }
}
