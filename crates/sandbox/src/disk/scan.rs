//! Looks at workspaces, a few at once, and fewer of one owner.

use std::sync::Arc;

use crate::fair_semaphore::{OwnerTurn, OwnerTurns};
use crate::guest::live::Live;

/// Looks that the server makes by itself. Each is a task of its own: whoever begins one does not wait for it, and one that
/// takes long delays none of another sandbox.
#[derive(Debug)]
pub(crate) struct Looks(Arc<OwnerTurns>);

impl Looks {
    pub(crate) fn new(at_once: u32) -> Self {
        Self(Arc::new(OwnerTurns::new(at_once)))
    }

    /// Begins a look at a sandbox, unless one is under way. It gets its turn, which it gives back when it has looked.
    pub(crate) fn begin<L: Future<Output = ()> + Send + 'static>(
        &self,
        live: &Arc<Live>,
        look: impl FnOnce(OwnerTurn) -> L + Send + 'static,
    ) {
        if !live.begin_look() {
            return;
        }
        let (turns, live) = (Arc::clone(&self.0), Arc::clone(live));
        tokio::spawn(async move {
            if let Ok(turn) = turns.take(live.owner().unwrap_or(&live.id)).await {
                look(turn).await;
            }
            live.end_look();
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, mpsc};

    use super::*;
    use crate::sandbox_dir::Place;

    fn live(id: &str) -> Arc<Live> {
        Arc::new(Live::new(id, Place::new("/nonexistent".into()), ""))
    }

    #[tokio::test]
    async fn a_look_that_takes_long_delays_no_other_sandbox() {
        let looks = Looks::new(2);
        let (began, mut begun) = mpsc::unbounded_channel();
        let tree_end = Arc::new(Semaphore::new(0));
        let huge = |live: &Arc<Live>| {
            let (began, id, end) = (began.clone(), live.id.clone(), Arc::clone(&tree_end));
            looks.begin(live, move |turn| async move {
                began.send(id).unwrap();
                end.acquire().await.unwrap().forget();
                drop(turn);
            });
        };
        let small = |live: &Arc<Live>| {
            let (began, id) = (began.clone(), live.id.clone());
            looks.begin(live, move |turn| async move {
                began.send(id).unwrap();
                drop(turn);
            });
        };
        let (first, second) = (live("first"), live("second"));
        huge(&first);
        assert_eq!(begun.recv().await.unwrap(), "first");
        for id in ["a", "b", "c"] {
            small(&live(id));
            assert_eq!(begun.recv().await.unwrap(), id, "the first is still being looked at");
        }
        // One sandbox takes one turn.
        huge(&first);
        small(&live("d"));
        assert_eq!(begun.recv().await.unwrap(), "d");
        // As many as there are turns are looked at at once.
        huge(&second);
        assert_eq!(begun.recv().await.unwrap(), "second");
        small(&live("e"));
        tokio::task::yield_now().await;
        assert!(begun.try_recv().is_err());
        tree_end.add_permits(1);
        assert_eq!(begun.recv().await.unwrap(), "e");
    }
}
