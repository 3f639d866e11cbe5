//! `/api/v1/snapshots/{id}/archive`: a snapshot or a part of it as a tar archive.
//!
//! The archive is produced piece by piece. Between pieces no tree is open, so a slow client delays neither the removal of
//! snapshots nor garbage collection. Memory use is small. The names of hard links and the map of a sparse file stay in
//! memory, and count against the owner's budget for responses.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::snapshots::SnapshotArchiveQuery;
use workspace_state::{ArchiveError, Cancel, NoProgress, Snapshot, Store, TarExport};

use super::body::{self, PIECE_SIZE, Pieces};
use super::conversion::unknown_parameter;
use super::tree::{find_entry, open_tree};
use super::tree_location::percent_decode;
use super::work_limits::{WorkLimits, WorkPermit};
use crate::app::App;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::Path;
use crate::owner_memory::MemoryReservation;
use crate::store::{cancelled, with_store};

/// Get a snapshot, or a part of it, as a tar archive.
///
/// The archive is in pax format, uncompressed, with permission bits, times, user extended attributes, symlinks, hard links
/// and holes. Paths in it are relative to the directory at `path`; a file or symlink at `path` is stored under its own
/// name. Symlinks are not followed. The same snapshot and path give the same bytes.
#[utoipa::path(get, path = "/api/v1/snapshots/{id}/archive", tag = "snapshots", operation_id = "get_snapshot_archive",
    params(("id" = String, Path, description = "Full id of the snapshot"), SnapshotArchiveQuery),
    responses(
        (status = 200, description = "Archive", body = Vec<u8>, content_type = "application/x-tar"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn download(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    ArchivePath(path): ArchivePath,
    method: Method,
) -> Result<Response, ApiError> {
    let snapshot = app.snapshots().find(&scope(&caller), &id).await?;
    send_archive(&app, &caller, snapshot, path, &method).await
}

/// Responds with a snapshot that the caller may see, or a part of it, as an archive.
pub(crate) async fn send_archive(
    app: &App,
    caller: &Caller,
    snapshot: Snapshot,
    path: Vec<u8>,
    method: &Method,
) -> Result<Response, ApiError> {
    let content_disposition = format!("attachment; filename=\"{}.tar\"", snapshot.id);
    let permit = app.work_limits.read(&caller.owner).await;
    let memory = app.response_memory.reserve(&caller.owner);
    let archive = with_store(&app.store, move |store| {
        let _permit = permit;
        Archive::open(store, snapshot, path, memory)
    });
    let archive = archive.await?;
    let body = if *method == Method::HEAD {
        Body::empty()
    } else {
        body::stream(archive, &app.work_limits, &caller.owner).await?
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar")),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::try_from(content_disposition).map_err(ApiError::internal)?,
        ),
    ];
    Ok((headers, body).into_response())
}

/// Extractor of [`SnapshotArchiveQuery::path`]. Paths of a tree need not be UTF-8, which axum's extractor requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArchivePath(Vec<u8>);

impl<S: Send + Sync> FromRequestParts<S> for ArchivePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

impl ArchivePath {
    fn parse(query: &str) -> Result<Self, ApiError> {
        let mut path = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if name != "path" {
                return Err(unknown_parameter(name));
            }
            let value = percent_decode(&value.replace('+', " "));
            let value = value.ok_or_else(|| invalid_path("a `%` needs two hexadecimal digits"))?;
            if path.replace(value).is_some() {
                return Err(invalid_path("`path` is set twice"));
            }
        }
        Ok(Self(path.unwrap_or_default()))
    }
}

fn invalid_path(message: &str) -> ApiError {
    ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "path")
}

/// Archive of a snapshot that is being sent.
struct Archive {
    store: Store,
    snapshot: Snapshot,
    export: TarExport,
    memory: MemoryReservation,
    /// Number of bytes in `memory`.
    reserved: usize,
}

impl Archive {
    /// Opens the archive of the entry at a path. Blocks.
    fn open(
        store: &Store,
        snapshot: Snapshot,
        path: Vec<u8>,
        memory: MemoryReservation,
    ) -> Result<Self, ApiError> {
        let found = find_entry(&open_tree(store, &snapshot)?, &path)?;
        let export = TarExport::new(path, found);
        Ok(Self { store: store.clone(), snapshot, export, memory, reserved: 0 })
    }

    /// Reserves the memory that the export keeps until the next piece.
    fn reserve_memory(&mut self) -> Result<(), ApiError> {
        let more = self.export.memory().saturating_sub(self.reserved);
        self.reserved += more;
        if more == 0 || self.memory.grow_by(more) {
            return Ok(());
        }
        let message =
            "unread responses to this owner exceed the memory limit; finish reading them, then try again";
        Err(ApiError::new(error_codes::ANSWERS_UNREAD, message))
    }
}

impl Pieces for Archive {
    fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        if self.export.is_finished() {
            return Ok(None);
        }
        let tree = open_tree(&self.store, &self.snapshot)?;
        let mut piece = Vec::new();
        self.export.write_part(&tree, &mut piece, PIECE_SIZE as u64, &NoProgress).map_err(export_error)?;
        self.reserve_memory()?;
        Ok(Some(piece.into()))
    }

    fn cancel(&self) -> &Cancel {
        self.store.cancel_flag()
    }

    async fn permit(limits: &WorkLimits, owner: &str) -> WorkPermit {
        limits.read(owner).await
    }
}

fn export_error(error: ArchiveError) -> ApiError {
    match error {
        ArchiveError::Store(error) => error.into(),
        ArchiveError::Cancelled(_) => cancelled(),
        other => ApiError::internal(other),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Poll;

    use workspace_state::{
        Attributes, GcOptions, ImportOptions, NewSnapshot, Tree, VirtualTree, export_tar, import_tar,
    };

    use super::*;
    use crate::owner_memory::OwnerMemory;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        (directory, store)
    }

    fn noise(seed: &str, len: usize) -> Vec<u8> {
        let mut noise = vec![0; len];
        blake3::Hasher::new().update(seed.as_bytes()).finalize_xof().fill(&mut noise);
        noise
    }

    fn committed(mut tree: VirtualTree) -> Snapshot {
        tree.commit(NewSnapshot::default()).unwrap()
    }

    fn opened(store: &Store, snapshot: &Snapshot, path: &str, memory: &OwnerMemory) -> Archive {
        Archive::open(store, snapshot.clone(), path.into(), memory.reserve("alice")).unwrap()
    }

    fn pieces(archive: &mut Archive) -> Vec<Bytes> {
        std::iter::from_fn(|| archive.next_piece().unwrap()).collect()
    }

    #[test]
    fn a_query_has_one_path_of_any_bytes() {
        for (query, path) in [
            ("", &b""[..]),
            ("path=", b""),
            ("path=a%2Fb/c", b"a/b/c"),
            ("path=%ff+x%2B&", b"\xff x+"),
            ("path=a=b", b"a=b"),
        ] {
            assert_eq!(ArchivePath::parse(query).unwrap().0, path, "{query}");
        }
        for query in ["path=a&path=b", "path=%", "path=%zz", "paths=a", "path=a&b", "=a"] {
            let error = ArchivePath::parse(query).unwrap_err();
            assert_eq!(error.code(), error_codes::INVALID_REQUEST, "{query}");
        }
    }

    #[test]
    fn pieces_are_bounded_and_make_up_the_archive() {
        let (_directory, store) = store();
        let mut tree = store.empty_tree().unwrap();
        for n in 0..1_500 {
            tree.write(format!("many/{n}"), noise(&n.to_string(), n)).unwrap();
        }
        tree.write("large", noise("large", 3 << 20)).unwrap();
        let snapshot = committed(tree);
        let mut archive = opened(&store, &snapshot, "", &OwnerMemory::for_responses());
        let pieces = pieces(&mut archive);
        // A piece ends with a chunk of at most 256 KiB, or with an entry.
        assert!(pieces.iter().all(|piece| piece.len() <= 2 * PIECE_SIZE));
        assert!(pieces.len() > 10, "{}", pieces.len());
        let mut whole = Vec::new();
        export_tar(&Tree::of_snapshot(&store, &snapshot).unwrap(), &mut whole, &NoProgress).unwrap();
        assert!(pieces.into_iter().flatten().collect::<Vec<u8>>() == whole);
    }

    #[test]
    fn a_reader_does_not_delay_garbage_collection() {
        let (_directory, store) = store();
        let mut tree = store.empty_tree().unwrap();
        tree.write("large", noise("large", 3 << 20)).unwrap();
        let snapshot = committed(tree);
        let mut archive = opened(&store, &snapshot, "", &OwnerMemory::for_responses());
        archive.next_piece().unwrap().unwrap();

        store.remove_snapshots(&[snapshot.id]).unwrap();
        let report = store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
        assert!(report.dead_bytes > 2 << 20, "{report:?}");
        assert_eq!(report.condemned_bytes, 0, "no object is kept for the open download");
        let error = archive.next_piece().unwrap_err();
        assert_eq!(error.code(), error_codes::SNAPSHOT_NOT_FOUND, "{error:?}");
    }

    #[test]
    fn names_of_hard_links_count_against_the_budget_of_the_owner() {
        let (_directory, store) = store();
        let mut tree = store.empty_tree().unwrap();
        for n in 0..1_000 {
            let linked = Attributes { mode: 0o644, link_label: Some(n), ..Attributes::default() };
            tree.put_file(format!("{n}"), &mut &b"x"[..], linked).unwrap();
        }
        let snapshot = committed(tree);
        let enough = OwnerMemory::new(1 << 20);
        let mut archive = opened(&store, &snapshot, "", &enough);
        let report = {
            let whole: Vec<u8> = pieces(&mut archive).into_iter().flatten().collect();
            import_tar(
                &store,
                &mut &whole[..],
                NewSnapshot::default(),
                &ImportOptions::default(),
                &NoProgress,
            )
        };
        assert_eq!(report.unwrap().files, 1_000);
        assert!(archive.reserved > 50_000, "{}", archive.reserved);

        let mut archive = opened(&store, &snapshot, "", &OwnerMemory::new(16 << 10));
        let refused = loop {
            match archive.next_piece() {
                Ok(piece) => assert!(piece.is_some(), "it has an end"),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code(), error_codes::ANSWERS_UNREAD);
    }

    #[test]
    fn a_disconnect_cancels_the_archive() {
        // The only blocking thread is taken, so the piece cannot be finished before the client disconnects.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (_directory, store) = store();
        let store = store.with_cancel(store.cancel_flag().child());
        let mut tree = store.empty_tree().unwrap();
        tree.write("file", "content").unwrap();
        let archive = opened(&store, &committed(tree), "", &OwnerMemory::for_responses());
        let limits = Arc::new(WorkLimits::for_tests());
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            tokio::task::spawn_blocking(move || released.recv());
            {
                let mut answer = pin!(body::stream(archive, &limits, "alice"));
                let is_pending =
                    poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending())).await;
                assert!(is_pending && !store.cancel_flag().is_cancelled());
            }
            assert!(store.cancel_flag().is_cancelled());
            drop(release);
            // The blocking work ends, and releases the permit.
            limits.read("alice").await;
        });
    }
}
