//! Notifications between the servers on one PostgreSQL database: a server that has committed events wakes the readers of
//! the others.
//!
//! `NOTIFY` in a transaction takes a lock of the whole cluster until its commit, so it is sent after the commit, at most
//! every [`INTERVAL_MIN`] for all events of a process. It has no content but the sender. It may be lost, with the server
//! that sends it or with a connection; readers therefore also look at intervals.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::queue;
use crate::database::Database;
use crate::error::Result;
use crate::statement::Statement;

/// Name of the channel.
const CHANNEL: &str = "workspace_events";
/// Minimum time between two notifications of a process.
const INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Delay before the next attempt to connect or to send.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);

/// Tasks that send and receive notifications. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Notifications {
    tasks: [JoinHandle<()>; 2],
}

impl Notifications {
    /// Starts the tasks for a database of PostgreSQL.
    pub(crate) fn start(database: &Database, url: &str) -> Self {
        let sender = format!("{:016x}", RandomState::new().build_hasher().finish());
        let inserted = database.subscribe_to_own_events();
        let sending = tokio::spawn(send_all(database.clone(), sender.clone(), inserted));
        let receiving = tokio::spawn(receive_all(database.clone(), url.to_owned(), sender));
        Self { tasks: [sending, receiving] }
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Sends a notification after events were committed, and publishes them before that, so that they are numbered also if
/// nobody reads them.
async fn send_all(database: Database, sender: String, mut inserted: watch::Receiver<()>) {
    while inserted.changed().await.is_ok() {
        let delay = match send(&database, &sender).await {
            Ok(()) => INTERVAL_MIN,
            // Readers look at intervals, and publish themselves.
            Err(_) => RETRY_BACKOFF,
        };
        sleep(delay).await;
    }
}

async fn send(database: &Database, sender: &str) -> Result<()> {
    queue::publish_all(database).await?;
    let notify = Statement::new("SELECT 1 FROM pg_notify($1, $2)").text("channel", CHANNEL);
    notify.text("sender", sender).run(&mut *database.connection().await?).await?;
    Ok(())
}

/// Wakes the readers of this process after notifications of others. Connects again after errors.
async fn receive_all(database: Database, url: String, sender: String) {
    loop {
        // The error says nothing that those of other statements do not.
        let _ = receive(&database, &url, &sender).await;
        sleep(RETRY_BACKOFF).await;
    }
}

async fn receive(database: &Database, url: &str, sender: &str) -> Result<()> {
    let mut listener = PgListener::connect(url).await?;
    listener.listen(CHANNEL).await?;
    loop {
        // `None`: the connection was lost, and is made again by the next call. Notifications may be missing.
        let received = listener.try_recv().await?;
        if received.is_none_or(|received| received.payload() != sender) {
            database.wake_event_readers();
        }
    }
}
