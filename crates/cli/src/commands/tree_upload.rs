//! Upload of a directory: reads it into a tree, and packs the tree into an archive while it is sent.

use std::io::{self, BufWriter, Read, Write as _};
use std::path::Path;
use std::thread::{self, JoinHandle};

use workspace_state::{ArchiveError, NoProgress, SnapshotOptions, Tree, export_tar, preview_directory};

use super::report::{SkippedFields, warn_skipped};
use crate::context::Context;
use crate::error::{CommandError, Result, io_hint};

/// Buffer size for writing an archive.
const BUFFER_SIZE: usize = 256 << 10;

/// Reads a directory into a tree of the local store, without a snapshot. It is complete before anything is sent, so
/// that warnings of skipped entries come first.
pub(super) fn read_directory(context: &Context, path: &Path) -> Result<Tree> {
    let store = context.store_or_create()?;
    let options = SnapshotOptions::default();
    let preview = preview_directory(&store, path, &options, &context.progress)?;
    let skipped: Vec<_> = preview.skipped.iter().map(SkippedFields::of).collect();
    warn_skipped(&skipped, preview.skipped_count);
    Ok(preview.tree)
}

/// Thread that packs a tree.
pub(super) type Packing = JoinHandle<Result<(), ArchiveError>>;

/// Starts a thread that packs a tree into an archive. Returns the reader of the archive, and the thread.
pub(super) fn pack_in_thread(tree: Tree) -> Result<(Box<dyn Read + Send>, Packing)> {
    let (reader, writer) = io::pipe().map_err(|error| {
        CommandError::failed(format!("cannot send an archive: {error}")).hint(io_hint(&error))
    })?;
    let packing = thread::spawn(move || {
        let mut writer = BufWriter::with_capacity(BUFFER_SIZE, writer);
        export_tar(&tree, &mut writer, &NoProgress)?;
        writer.flush().map_err(|source| ArchiveError::Write { source })
    });
    Ok((Box::new(reader), packing))
}

/// Returns the result of an upload. If the server refused the archive, its error is returned, and not the error of the
/// packing thread, whose pipe then broke.
pub(super) fn upload_result<T>(sent: Result<T>, packing: Packing) -> Result<T> {
    match packing.join() {
        Ok(Err(error)) if !matches!(error, ArchiveError::Write { .. }) => Err(error.into()),
        _ => sent,
    }
}
