//! Differences as a patch that is longer than memory.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use workspace_state::{Cancel, Difference, PatchSections, StoreError, Tree, diff};

use super::body::{self, PIECE, Pieces};
use super::work_limits::{WorkLimits, WorkPermit};
use crate::error::ApiError;

/// Context lines around a change in a patch, the usual number.
const CONTEXT: usize = 3;
/// Approximate number of file bytes compared for one piece. Files that differ and are not text add little to
/// the patch.
const COMPARED: u64 = 16 << 20;
/// Header that says whether a patch is truncated.
const TRUNCATED: HeaderName = HeaderName::from_static("x-truncated");

/// Differences as patches, one behind the other.
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

    /// Answers with the patch. Each piece is made under a permit of the owner.
    pub(crate) async fn answer(self, limits: &Arc<WorkLimits>, owner: &str) -> Result<Response, ApiError> {
        let truncated = HeaderValue::from_static(if self.truncated { "true" } else { "false" });
        let kind = HeaderValue::from_static("text/x-diff");
        let headers = [(header::CONTENT_TYPE, kind), (TRUNCATED, truncated)];
        Ok((headers, body::stream(self, limits, owner).await?).into_response())
    }

    /// Returns the next piece, which is empty if much was compared for little output; `None` at the end.
    fn compare(&mut self, most_compared: u64) -> Result<Option<Bytes>, StoreError> {
        let (mut piece, mut compared) = (Vec::new(), 0);
        while piece.len() < PIECE && compared < most_compared {
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
                    // Infallible: memory takes everything.
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
        Ok(self.compare(COMPARED)?)
    }

    fn cancel(&self) -> &Cancel {
        self.from.store().cancel()
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

    use super::super::tree::open;
    use super::*;

    /// Patches between nothing and these files.
    fn added(store: &Store, files: &[(String, Vec<u8>)]) -> Patches {
        let from = store.empty_tree().unwrap().commit(NewSnapshot::default()).unwrap();
        let mut to = store.empty_tree().unwrap();
        files.iter().for_each(|(name, content)| to.write(name, content.clone()).unwrap());
        let to = to.commit(NewSnapshot::default()).unwrap();
        Patches::new(open(store, &from).unwrap(), open(store, &to).unwrap(), 1_000).unwrap()
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
    fn a_piece_ends_when_much_was_compared_for_little() {
        let (_directory, store) = store();
        let files: Vec<_> = (0..10).map(|n| (format!("{n}"), vec![0; 100_000])).collect();
        let mut patches = added(&store, &files);
        let mut pieces = Vec::new();
        while let Some(piece) = patches.compare(150_000).unwrap() {
            pieces.push(piece);
        }
        let binary = |piece: &Bytes| String::from_utf8_lossy(piece).matches("Binary files").count();
        assert_eq!(pieces.iter().map(binary).filter(|count| *count > 0).collect::<Vec<_>>(), [2; 5]);
    }

    #[tokio::test]
    async fn a_piece_waits_for_a_turn_of_its_owner_and_gives_it_back() {
        let (_directory, store) = store();
        let patches = added(&store, &[("a".to_owned(), b"1\n".to_vec())]);
        let limits = Arc::new(WorkLimits::few());
        let other = limits.comparison("alice").await;
        let mut answer = pin!(patches.answer(&limits, "alice"));
        assert!(is_pending(&mut answer).await);
        drop(other);
        let body = answer.await.unwrap().into_body();
        // The client has taken nothing yet.
        drop(limits.comparison("alice").await);
        let body = to_bytes(body, 1 << 20).await.unwrap();
        assert!(body.ends_with(b"+1\n"), "{body:?}");
    }

    #[test]
    fn a_client_that_leaves_cancels_the_comparison() {
        // One thread for what blocks, and it is taken: the comparison cannot be done before the client left.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (_directory, store) = store();
        let store = store.with_cancel(store.cancel().child());
        let patches = added(&store, &[("a".to_owned(), b"1\n".to_vec())]);
        let limits = WorkLimits::few();
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            tokio::task::spawn_blocking(move || released.recv());
            {
                let mut piece = pin!(body::advance(patches, &limits, "alice"));
                assert!(is_pending(&mut piece).await);
                assert!(!store.cancel().is_cancelled());
            }
            assert!(store.cancel().is_cancelled());
            drop(release);
            // What was begun ends, and with it the permit.
            limits.comparison("alice").await;
        });
    }
}
