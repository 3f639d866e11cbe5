//! Signals that wake streams of events.
//!
//! One task queries the catalog for new events, after each insertion by this server and every second for those of other
//! servers, and wakes the streams of their owners, which then read the events. So streams without new events put no
//! load on the catalog. The task ends when there is no stream.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use workspace_catalog::{Catalog, CatalogError};

use crate::metrics::write_metric_header;

/// Interval at which the catalog is queried for events that other servers inserted.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two queries, so that many insertions cause few of them.
const QUERY_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Maximum number of events per query.
const BATCH_MAX: u32 = 1_000;

/// Signals to streams of events. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct EventFeed {
    catalog: Catalog,
    signals: Arc<Mutex<Signals>>,
}

#[derive(Debug, Default)]
struct Signals {
    /// Signal of each owner that has a stream.
    owners: HashMap<String, watch::Sender<()>>,
    /// Signal of streams with the events of all owners.
    all: watch::Sender<()>,
    /// True while the task runs.
    is_running: bool,
}

impl EventFeed {
    pub(crate) fn new(catalog: Catalog) -> Self {
        Self { catalog, signals: Arc::default() }
    }

    /// Returns a receiver that changes after new events of an owner, or with `None` of all owners. It may also change
    /// without a new event. Subscribe before you read events, so that an event after the read changes the receiver.
    pub(super) fn subscribe(&self, owner: Option<&str>) -> watch::Receiver<()> {
        let mut signals = self.lock();
        let receiver = match owner {
            Some(owner) => signals.owners.entry(owner.to_owned()).or_default().subscribe(),
            None => signals.all.subscribe(),
        };
        if !signals.is_running {
            signals.is_running = true;
            tokio::spawn(self.clone().run());
        }
        receiver
    }

    /// Appends the number of open streams to the metrics.
    pub(crate) fn render(&self, text: &mut String) {
        let signals = self.lock();
        let streams = signals.owners.values().chain([&signals.all]).map(watch::Sender::receiver_count);
        write_metric_header(text, "event_streams", "gauge", "Open streams of events.");
        // Writing into a `String` does not fail.
        let _ = writeln!(text, "event_streams {}", streams.sum::<usize>());
    }

    async fn run(self) {
        let mut inserted = self.catalog.events().subscribe();
        let mut last = None;
        while self.remove_unused_signals() {
            match self.wake_streams(last).await {
                Ok(newest) => last = Some(newest),
                Err(error) => tracing::warn!(%error, "failed to look for new events, trying again"),
            }
            sleep(QUERY_INTERVAL_MIN).await;
            // Continues after a change or the interval. `changed` itself cannot fail, because the catalog lives as long
            // as this task.
            let _ = timeout(POLL_INTERVAL, inserted.changed()).await;
        }
    }

    /// Wakes the streams of the owners that have events after `last`; all streams if it is `None`. Returns the sequence
    /// number of the newest event.
    async fn wake_streams(&self, last: Option<i64>) -> Result<i64, CatalogError> {
        let events = self.catalog.events();
        let Some(mut last) = last else {
            let newest = events.newest().await?;
            // A stream may have read the catalog before the newest event was inserted, so all of them read again.
            self.lock().wake_all();
            return Ok(newest);
        };
        loop {
            let new = events.owners_after(last, BATCH_MAX).await?;
            let Some((newest, _)) = new.last() else { return Ok(last) };
            last = *newest;
            let is_complete = new.len() < BATCH_MAX as usize;
            let owners = new.into_iter().filter_map(|(_, owner)| owner).collect();
            self.lock().wake(&owners);
            if is_complete {
                return Ok(last);
            }
        }
    }

    /// Removes signals without a stream. Returns false if no stream is left: then the task has to end, because the next
    /// [`EventFeed::subscribe`] starts another.
    fn remove_unused_signals(&self) -> bool {
        let mut signals = self.lock();
        signals.owners.retain(|_, signal| signal.receiver_count() > 0);
        signals.is_running = !signals.owners.is_empty() || signals.all.receiver_count() > 0;
        signals.is_running
    }

    fn lock(&self) -> MutexGuard<'_, Signals> {
        self.signals.lock()
    }
}

impl Signals {
    fn wake(&self, owners: &HashSet<String>) {
        for signal in owners.iter().filter_map(|owner| self.owners.get(owner)) {
            signal.send_replace(());
        }
        self.all.send_replace(());
    }

    fn wake_all(&self) {
        for signal in self.owners.values().chain([&self.all]) {
            signal.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use workspace_catalog::{EventKind, NewEvent, sqlite_url};

    use super::*;

    async fn insert(catalog: &Catalog, owner: &str) {
        let event = NewEvent { kind: EventKind::SandboxRunning, data: json!({}) };
        catalog.events().insert(Some(owner), None, &event).await.unwrap();
    }

    /// Waits until a receiver changes.
    async fn woken(receiver: &mut watch::Receiver<()>) {
        timeout(Duration::from_secs(30), receiver.changed()).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn only_streams_of_the_owner_and_of_all_owners_are_woken() {
        let directory = tempfile::tempdir().unwrap();
        let url = sqlite_url(&directory.path().join("catalog.db"));
        let (catalog, other_server) =
            (Catalog::open(&url).await.unwrap(), Catalog::open(&url).await.unwrap());
        let feed = EventFeed::new(catalog.clone());
        let (mut alice, mut bob) = (feed.subscribe(Some("alice")), feed.subscribe(Some("bob")));
        let mut all = feed.subscribe(None);
        // The first query wakes all, because they may have read the catalog before it.
        woken(&mut alice).await;
        woken(&mut bob).await;
        woken(&mut all).await;
        for catalog in [&catalog, &other_server] {
            insert(catalog, "alice").await;
            woken(&mut alice).await;
            woken(&mut all).await;
        }
        assert!(!bob.has_changed().unwrap());
        insert(&catalog, "bob").await;
        woken(&mut bob).await;
        assert!(!alice.has_changed().unwrap());
        let mut text = String::new();
        feed.render(&mut text);
        assert!(text.ends_with("event_streams 3\n"), "{text}");
    }

    #[tokio::test]
    async fn the_task_ends_with_the_last_stream_and_the_next_stream_starts_it_again() {
        let directory = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&sqlite_url(&directory.path().join("catalog.db"))).await.unwrap();
        let feed = EventFeed::new(catalog.clone());
        for _ in 0..2 {
            let mut stream = feed.subscribe(Some("alice"));
            woken(&mut stream).await;
            insert(&catalog, "alice").await;
            woken(&mut stream).await;
            drop(stream);
            while feed.lock().is_running {
                sleep(Duration::from_millis(1)).await;
            }
            assert!(feed.lock().owners.is_empty());
        }
    }
}
