//! Connection to the database.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Any, AnyConnection, AnyPool, ConnectOptions, Connection as _, Executor, Transaction};
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::error::{CatalogError, Result};

/// Connections that write to SQLite, which allows one writer at a time. With a single connection the tasks of this
/// process wait in the pool's queue, which is fair; SQLite's own busy handler polls, and can starve a writer.
const SQLITE_CONNECTIONS: u32 = 1;
/// Connections that only read from SQLite. They do not wait for the writer, nor for its syncs.
const SQLITE_READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 10;

/// Pragmas of each connection. The busy timeout comes first, since the switch to WAL may have to wait for a lock, too.
/// `synchronous = FULL` makes a commit durable before it returns.
const SQLITE_PRAGMAS: &str = "PRAGMA busy_timeout = 30000; PRAGMA journal_mode = WAL; \
     PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON";
/// Pragmas of each connection that only reads. A statement that writes fails on it.
const SQLITE_READER_PRAGMAS: &str = "PRAGMA busy_timeout = 30000; PRAGMA query_only = ON";

/// Database system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    Sqlite,
    Postgres,
}

impl DatabaseKind {
    /// Returns the database system of a connection.
    pub(crate) fn of(connection: &AnyConnection) -> Self {
        match connection.backend_name() {
            "PostgreSQL" => Self::Postgres,
            _ => Self::Sqlite,
        }
    }
}

/// Connections to a database. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    /// Connections that write. Those of PostgreSQL also read.
    pool: AnyPool,
    /// Connections that only read: those of `pool` for PostgreSQL.
    readers: AnyPool,
    kind: DatabaseKind,
    /// Changes after each insertion of events by this process, and after those by others of which it is notified.
    events: Arc<watch::Sender<()>>,
    /// Changes after each insertion of events by this process.
    inserted: Arc<watch::Sender<()>>,
    /// Held by the task of this process that publishes events.
    publication: Arc<Mutex<()>>,
}

impl Database {
    /// Opens `sqlite:///PATH`, which is created if it is missing, or `postgres://USER@HOST/DATABASE`.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        sqlx::any::install_default_drivers();
        let options = AnyConnectOptions::from_str(url).map_err(unsupported_url)?;
        let kind = kind(&options)?;
        let (pool, readers) = match kind {
            DatabaseKind::Sqlite => open_sqlite(options).await?,
            DatabaseKind::Postgres => {
                let pool = open_postgres(options).await?;
                (pool.clone(), pool)
            }
        };
        Ok(Self {
            pool,
            readers,
            kind,
            events: Arc::default(),
            inserted: Arc::default(),
            publication: Arc::default(),
        })
    }

    /// Waits for running statements and closes all connections.
    pub(crate) async fn close(&self) {
        // The last connection to SQLite moves the write-ahead log to the database, which one that only reads cannot.
        self.readers.close().await;
        self.pool.close().await;
    }

    pub(crate) fn kind(&self) -> DatabaseKind {
        self.kind
    }

    /// Wakes readers of events, after events were committed.
    pub(crate) fn notify_event_readers(&self) {
        self.events.send_replace(());
        self.inserted.send_replace(());
    }

    /// Wakes readers of events, after another process has notified this one.
    pub(crate) fn wake_event_readers(&self) {
        self.events.send_replace(());
    }

    /// Follows insertions of events by this process alone.
    pub(crate) fn subscribe_to_own_events(&self) -> watch::Receiver<()> {
        self.inserted.subscribe()
    }

    /// Waits until no other task of this process publishes events, and keeps others from it.
    pub(crate) async fn lock_publication(&self) -> MutexGuard<'_, ()> {
        self.publication.lock().await
    }

    /// Follows insertions of events by this process, and by others of which it is notified.
    pub(crate) fn subscribe_to_events(&self) -> watch::Receiver<()> {
        self.events.subscribe()
    }

    /// Returns a connection for one statement or several that only read. They see all transactions that were committed
    /// before.
    pub(crate) async fn reader(&self) -> Result<PoolConnection<Any>> {
        Ok(self.readers.acquire().await?)
    }

    /// Returns a connection for one statement that writes.
    pub(crate) async fn connection(&self) -> Result<PoolConnection<Any>> {
        Ok(self.pool.acquire().await?)
    }

    /// Begins a transaction that will write. It is rolled back when dropped without a commit.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Any>> {
        Ok(match self.kind {
            DatabaseKind::Sqlite => self.begin_immediate().await?,
            DatabaseKind::Postgres => self.pool.begin().await?,
        })
    }

    /// Begins a transaction of SQLite that may write at once. One that first reads and then writes cannot wait: SQLite
    /// fails it if another process wrote in between.
    ///
    /// The task ends also if the caller is cancelled. Otherwise `begin_with` could be dropped after `BEGIN` and before it
    /// returns the transaction, which nobody would roll back then: it would keep other processes from writing.
    async fn begin_immediate(&self) -> Result<Transaction<'static, Any>> {
        let pool = self.pool.clone();
        let begun = tokio::spawn(async move { pool.begin_with("BEGIN IMMEDIATE").await }).await;
        // The runtime is being shut down.
        Ok(begun.map_err(|_| sqlx::Error::PoolClosed)??)
    }

    /// Commits a transaction that inserted `events`. Wakes the readers of events unless `events` is empty.
    pub(crate) async fn commit_and_wake_readers<E>(
        &self,
        transaction: Transaction<'static, Any>,
        events: &[E],
    ) -> Result<()> {
        transaction.commit().await?;
        if !events.is_empty() {
            self.notify_event_readers();
        }
        Ok(())
    }
}

/// Returns the URL of a SQLite file, with special characters escaped.
pub fn sqlite_url(path: &Path) -> String {
    SqliteConnectOptions::new().filename(path).to_url_lossy().into()
}

fn kind(options: &AnyConnectOptions) -> Result<DatabaseKind> {
    match options.database_url.scheme() {
        "sqlite" => Ok(DatabaseKind::Sqlite),
        "postgres" | "postgresql" => Ok(DatabaseKind::Postgres),
        other => Err(CatalogError::UnsupportedUrl { reason: format!("`{other}` is no known database") }),
    }
}

/// Opens a pool. If the server does not respond until the pool times out, the error is that of the first
/// attempt, which names the cause.
async fn open_postgres(options: AnyConnectOptions) -> Result<AnyPool> {
    let first = AnyConnection::connect_with(&options).await;
    match pool(POSTGRES_CONNECTIONS).connect_with(options).await {
        Err(sqlx::Error::PoolTimedOut) => Err(first.err().unwrap_or(sqlx::Error::PoolTimedOut).into()),
        opened => Ok(opened?),
    }
}

/// Opens the pool of the connection that writes, and that of the connections that only read.
async fn open_sqlite(options: AnyConnectOptions) -> Result<(AnyPool, AnyPool)> {
    let url = options.database_url.as_str();
    if url.contains(":memory:") || url.contains("mode=memory") {
        let reason = "a catalog in memory would be forgotten".to_owned();
        return Err(CatalogError::UnsupportedUrl { reason });
    }
    let file = SqliteConnectOptions::from_url(&options.database_url).map_err(unsupported_url)?;
    make_private(file.get_filename())?;
    let writer = sqlite_pool(SQLITE_CONNECTIONS, SQLITE_PRAGMAS).connect_with(options.clone()).await?;
    // They connect when they are needed. The write-ahead log, without which a reader would wait for the writer, is a
    // property of the file by now.
    let readers = sqlite_pool(SQLITE_READERS, SQLITE_READER_PRAGMAS).connect_lazy_with(options);
    Ok((writer, readers))
}

fn sqlite_pool(connections: u32, pragmas: &'static str) -> AnyPoolOptions {
    let pool = pool(connections).after_connect(move |connection, _| {
        Box::pin(async move { connection.execute(pragmas).await.map(|_| ()) })
    });
    // On a full disk SQLite rolls back a transaction by itself, and an explicit rollback then fails. The pool
    // would go on counting the connection as being in a transaction, and could not begin another.
    //
    // Nothing else can go wrong with a connection to a file, so there is no test query before each use, which
    // would cost a round trip to another thread.
    pool.test_before_acquire(false).before_acquire(|connection, _| {
        let usable = !connection.is_in_transaction();
        Box::pin(async move { Ok(usable) })
    })
}

fn pool(connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new().max_connections(connections)
}

/// Creates the file if it is missing, and sets its mode to 0600. SQLite gives the same mode to its journal
/// files.
///
/// The file must not be opened here: closing it would release the locks that SQLite holds on it in this
/// process.
fn make_private(path: &Path) -> Result<()> {
    let failed = |action, source| CatalogError::File { action, path: path.to_owned(), source };
    let mode = Mode::RUSR | Mode::WUSR;
    match create(path, mode) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failed("create", io::Error::from(error))),
    }
    let private = PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, private).map_err(|source| failed("restrict", source))
}

#[cfg(target_os = "linux")]
fn create(path: &Path, mode: Mode) -> std::result::Result<(), Errno> {
    rustix::fs::mknodat(CWD, path, rustix::fs::FileType::RegularFile, mode, 0)
}

/// Creates the file by opening it, since `mknod` needs root on other systems. A new file has no locks to
/// lose.
#[cfg(not(target_os = "linux"))]
fn create(path: &Path, mode: Mode) -> std::result::Result<(), Errno> {
    use rustix::fs::OFlags;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, mode).map(drop)
}

/// Returns an error with the reason alone, without the URL, which may contain a password.
fn unsupported_url(error: sqlx::Error) -> CatalogError {
    let reason = match error {
        sqlx::Error::Configuration(reason) => reason.to_string(),
        other => other.to_string(),
    };
    CatalogError::UnsupportedUrl { reason }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::statement::Statement;

    #[tokio::test]
    async fn a_reader_of_sqlite_does_not_wait_for_a_transaction_and_cannot_write() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&sqlite_url(&directory.path().join("catalog.db"))).await.unwrap();
        database.pool.execute("CREATE TABLE numbers (number BIGINT)").await.unwrap();
        let insert = || Statement::new("INSERT INTO numbers VALUES (1)");
        let count = async || {
            let mut reader = database.reader().await.unwrap();
            Statement::new("SELECT number FROM numbers").all(&mut reader).await.unwrap().len()
        };
        let mut transaction = database.begin().await.unwrap();
        insert().run(&mut transaction).await.unwrap();
        assert_eq!(count().await, 0);
        transaction.commit().await.unwrap();
        assert_eq!(count().await, 1);
        let error = insert().run(&mut database.reader().await.unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("readonly"), "{error}");
    }

    #[tokio::test]
    async fn a_transaction_whose_caller_is_cancelled_is_rolled_back() {
        let directory = tempfile::tempdir().unwrap();
        let url = sqlite_url(&directory.path().join("catalog.db"));
        let (database, other) = (Database::open(&url).await.unwrap(), Database::open(&url).await.unwrap());
        other.pool.execute("PRAGMA busy_timeout = 10000").await.unwrap();
        for polls in (1..=4).cycle().take(200) {
            let mut begin = Box::pin(database.begin());
            let mut left = polls;
            let begun = std::future::poll_fn(|context| match begin.as_mut().poll(context) {
                Poll::Ready(begun) => Poll::Ready(Some(begun)),
                Poll::Pending if left == 1 => Poll::Ready(None),
                Poll::Pending => {
                    left -= 1;
                    Poll::Pending
                }
            });
            drop(begun.await);
            drop(begin);
            // Another process, which this one has not told about the cancellation, can write.
            let transaction = other.begin().await.unwrap_or_else(|error| panic!("{polls}: {error}"));
            drop(transaction);
        }
    }
}
