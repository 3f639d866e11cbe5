//! Upload of an archive as a snapshot. Only a few pieces of the body are in memory at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use http_body::Body as _;
use tokio::sync::mpsc;
use workspace_state::{
    ArchiveError, ArchiveLimits, ImportOptions, ImportReport, NewSnapshot, NoProgress, Store, import_tar,
};

use crate::app::App;
use crate::archive_body::{
    BodyReader, LimitedReader, QUEUE_MAX, decompress, forward, import_error, too_large, too_slow,
};
use crate::error::ApiError;
use crate::owner_memory::ImportMemory;
use crate::store::blocking;

/// Maximum number of members of an archive. Their names and attributes are in memory until the archive is complete.
const ENTRIES_MAX: u64 = 2_000_000;
/// Maximum size of the names and attributes of an archive in bytes.
const METADATA_MAX: u64 = 512 << 20;

/// Creates a snapshot of `owner` from an archive. An error, also of the connection, leaves no snapshot; garbage collection
/// removes the objects that were written. A disconnect cancels the import, unless the snapshot has been committed.
pub(crate) async fn receive(
    app: &App,
    owner: String,
    new: NewSnapshot,
    body: Body,
) -> Result<ImportReport, ApiError> {
    // If the length is known, an archive that is too large is refused before it is received.
    let max = app.settings.max_upload.0;
    if body.size_hint().exact().is_some_and(|length| length > max) {
        return Err(too_large(max));
    }
    let permit = app.work_limits.upload(&owner).await?;
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let cancel = app.store.cancel_flag().child();
    let cancel_guard = cancel.drop_guard();
    let store = app.store.with_cancel(cancel);
    // In a separate task, so that a committed snapshot gets its owner even if the client disconnects.
    let task_app = app.clone();
    let imported = tokio::spawn(async move {
        let _permit = permit;
        create_snapshot(&task_app, store, &owner, new, BodyReader::new(receiver)).await
    });
    let received = forward(body, sender, max);
    let received = tokio::time::timeout(app.settings.upload_timeout, received).await;
    let received = received.unwrap_or_else(|_| Err(too_slow().detail("setting", "UPLOAD_TIMEOUT")));
    let imported = imported.await.map_err(ApiError::internal)?;
    cancel_guard.disarm();
    // An error of the body is the cause of an error of the archive.
    received?;
    imported
}

async fn create_snapshot(
    app: &App,
    store: Store,
    owner: &str,
    new: NewSnapshot,
    body: BodyReader,
) -> Result<ImportReport, ApiError> {
    let limits = UploadLimits {
        archive: app.settings.max_upload.0,
        expanded: app.settings.max_upload_expanded.0,
        memory: app.upload_memory.reserve(owner).into(),
    };
    let stored = Arc::<AtomicU64>::default();
    let new = NewSnapshot { pending: true, stored_bytes: Some(Arc::clone(&stored)), ..new };
    let report = blocking(move || import(&store, new, body, &limits)).await?;
    let id = report.snapshot.id;
    if let Err(error) = app.snapshots().record_owner(owner, &id, None, stored.load(Ordering::Relaxed)).await {
        let store = app.store.clone();
        if let Err(removal) = blocking(move || Ok(store.remove_snapshots(&[id])?)).await {
            tracing::warn!(snapshot = %id, cause = removal.cause(), "failed to remove a snapshot without an owner");
        }
        return Err(error.into());
    }
    let store = app.store.clone();
    if let Err(error) = blocking(move || Ok(store.end_pending(&[id])?)).await {
        // The next server finds that it has an owner.
        tracing::warn!(snapshot = %id, cause = error.cause(), "failed to end the pending state of a recorded snapshot");
    }
    Ok(report)
}

/// Limits of one upload.
struct UploadLimits {
    /// Maximum size of the decompressed archive in bytes.
    archive: u64,
    /// Maximum total size of its files in bytes.
    expanded: u64,
    /// Memory budget, shared with other uploads of the owner.
    memory: ImportMemory,
}

fn import(
    store: &Store,
    new: NewSnapshot,
    body: BodyReader,
    limits: &UploadLimits,
) -> Result<ImportReport, ApiError> {
    let decompressed = decompress(body).map_err(|source| import_error(ArchiveError::Read { source }))?;
    let mut archive = LimitedReader::new(decompressed, limits.archive);
    let archive_limits =
        ArchiveLimits { bytes: limits.expanded, entries: ENTRIES_MAX, metadata: METADATA_MAX };
    let options =
        ImportOptions { limits: archive_limits, memory: Some(&limits.memory), ..ImportOptions::default() };
    import_tar(store, &mut archive, new, &options, &NoProgress).map_err(import_error)
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use workspace_api::error_codes;
    use workspace_state::export_tar;

    use super::super::tree::open_tree;
    use super::*;
    use crate::archive_body::Piece;
    use crate::owner_memory::OwnerMemory;

    fn data(bytes: &[u8]) -> Piece {
        Piece::Data(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn uploads_of_one_owner_share_a_memory_budget() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        let mut tree = store.empty_tree().unwrap();
        (0..100).for_each(|number| tree.write(format!("{number}"), Vec::new()).unwrap());
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        let mut tar = Vec::new();
        export_tar(&open_tree(&store, &snapshot).unwrap(), &mut tar, &NoProgress).unwrap();
        let memory = OwnerMemory::new(40 << 10);
        let import = |owner: &str| {
            let (sender, receiver) = mpsc::channel(2);
            sender.try_send(data(&tar)).ok().unwrap();
            sender.try_send(Piece::End).ok().unwrap();
            let limits =
                UploadLimits { archive: 1 << 20, expanded: 1 << 20, memory: memory.reserve(owner).into() };
            let done = import(&store, NewSnapshot::default(), BodyReader::new(receiver), &limits);
            done.map(|_| limits)
        };
        let running = import("alice").unwrap();
        let error = import("alice").err().unwrap();
        assert_eq!(error.code(), error_codes::UPLOAD_LIMIT_EXCEEDED, "{error:?}");
        import("bob").unwrap();
        drop(running);
        import("alice").unwrap();
    }
}
