//! Differences as a patch, produced piece by piece.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use workspace_state::{Cancel, Difference, PatchSections, StoreError, Tree, diff};

use super::body::{self, PIECE_SIZE, Pieces};
use super::work_limits::{WorkLimits, WorkPermit};
use crate::error::ApiError;

/// Number of context lines around a change, the default of `diff -u` and git.
const CONTEXT: usize = 3;
/// Approximate maximum number of bytes compared for one piece. The size of the piece does not limit this work: binary
/// files are compared, but add little to a patch.
const COMPARED_MAX: u64 = 16 << 20;
/// Header with `true` if the patch does not contain all differences.
const TRUNCATED: HeaderName = HeaderName::from_static("x-truncated");

/// Patch of several differences.
pub(crate) struct Patches {
    from: Tree,
    to: Tree,
    differences: std::vec::IntoIter<Difference>,
    /// Rest of the current difference.
    sections: Option<PatchSections>,
    truncated: bool,
}

impl Patches {
    pub(crate) fn new(from: Tree, to: Tree, limit: usize) -> Result<Self, StoreError> {
        let mut differences = diff(&from, &to)?;
        let truncated = differences.len() > limit;
        differences.truncate(limit);
        Ok(Self { from, to, differences: differences.into_iter(), sections: None, truncated })
    }

    /// Creates the response. Each piece is produced under a permit of the owner.
    pub(crate) async fn into_response(
        self,
        limits: &Arc<WorkLimits>,
        owner: &str,
    ) -> Result<Response, ApiError> {
        let truncated = HeaderValue::from_static(if self.truncated { "true" } else { "false" });
        let kind = HeaderValue::from_static("text/x-diff");
        let headers = [(header::CONTENT_TYPE, kind), (TRUNCATED, truncated)];
        Ok((headers, body::stream(self, limits, owner).await?).into_response())
    }

    /// Returns the next piece; `None` at the end. A piece is empty if `max_compared` bytes were compared without output.
    fn render_piece(&mut self, max_compared: u64) -> Result<Option<Bytes>, StoreError> {
        let (mut piece, mut compared) = (Vec::new(), 0);
        while piece.len() < PIECE_SIZE && compared < max_compared {
            let Some(sections) = &mut self.sections else {
                let Some(difference) = self.differences.next() else {
                    return Ok((!piece.is_empty()).then(|| piece.into()));
                };
                self.sections = Some(PatchSections::new(&self.from, &self.to, difference, CONTEXT));
                continue;
            };
            let before = sections.compared();
            match sections.next() {
                Some(section) => {
                    // Writing into memory does not fail.
                    let _ = section?.write_to(&mut piece);
                    compared += sections.compared() - before;
                }
                None => self.sections = None,
            }
        }
        Ok(Some(piece.into()))
    }
}

impl Pieces for Patches {
    fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        Ok(self.render_piece(COMPARED_MAX)?)
    }

    fn cancel(&self) -> &Cancel {
        self.from.store().cancel_flag()
    }

    async fn permit(limits: &WorkLimits, owner: &str) -> WorkPermit {
        limits.comparison(owner).await
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::task::Poll;

    use axum::body::to_bytes;
    use workspace_state::{NewSnapshot, Store};

    use super::super::tree::open_tree;
    use super::*;

    /// Patches between nothing and these files.
    fn added(store: &Store, files: &[(String, Vec<u8>)]) -> Patches {
        let from = store.empty_tree().unwrap().commit(NewSnapshot::default()).unwrap();
        let mut to = store.empty_tree().unwrap();
        files.iter().for_each(|(name, content)| to.write(name, content.clone()).unwrap());
        let to = to.commit(NewSnapshot::default()).unwrap();
        Patches::new(open_tree(store, &from).unwrap(), open_tree(store, &to).unwrap(), 1_000).unwrap()
    }

    async fn is_pending(future: &mut Pin<&mut impl Future>) -> bool {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        (directory, store)
    }

    #[test]
    fn a_piece_ends_when_enough_bytes_were_compared() {
        let (_directory, store) = store();
        let files: Vec<_> = (0..10).map(|n| (format!("{n}"), vec![0; 100_000])).collect();
        let mut patches = added(&store, &files);
        let mut pieces = Vec::new();
        while let Some(piece) = patches.render_piece(150_000).unwrap() {
            pieces.push(piece);
        }
        let binary = |piece: &Bytes| String::from_utf8_lossy(piece).matches("Binary files").count();
        assert_eq!(pieces.iter().map(binary).filter(|count| *count > 0).collect::<Vec<_>>(), [2; 5]);
    }

    #[tokio::test]
    async fn a_piece_waits_for_a_permit_of_its_owner_and_releases_it() {
        let (_directory, store) = store();
        let patches = added(&store, &[("a".to_owned(), b"1\n".to_vec())]);
        let limits = Arc::new(WorkLimits::for_tests());
        let other = limits.comparison("alice").await;
        let mut answer = pin!(patches.into_response(&limits, "alice"));
        assert!(is_pending(&mut answer).await);
        drop(other);
        let body = answer.await.unwrap().into_body();
        // The client has taken nothing yet.
        drop(limits.comparison("alice").await);
        let body = to_bytes(body, 1 << 20).await.unwrap();
        assert!(body.ends_with(b"+1\n"), "{body:?}");
    }

    #[test]
    fn a_disconnect_cancels_the_comparison() {
        // The only blocking thread is taken, so the comparison cannot finish before the client disconnects.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (_directory, store) = store();
        let store = store.with_cancel(store.cancel_flag().child());
        let patches = added(&store, &[("a".to_owned(), b"1\n".to_vec())]);
        let limits = WorkLimits::for_tests();
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            tokio::task::spawn_blocking(move || released.recv());
            {
                let mut piece = pin!(body::advance(patches, &limits, "alice"));
                assert!(is_pending(&mut piece).await);
                assert!(!store.cancel_flag().is_cancelled());
            }
            assert!(store.cancel_flag().is_cancelled());
            drop(release);
            // The blocking work ends, and releases the permit.
            limits.comparison("alice").await;
        });
    }
}
