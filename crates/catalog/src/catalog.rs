//! Opening the database.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Any, AnyConnection, AnyPool, ConnectOptions, Connection as _, Executor, Transaction};

use crate::api_key::ApiKeys;
use crate::command::Commands;
use crate::command_claim::CommandClaims;
use crate::episode::Episodes;
use crate::error::{CatalogError, Result};
use crate::event::Events;
use crate::idempotency::Idempotency;
use crate::migration;
use crate::sandbox::Sandboxes;
use crate::snapshot::Snapshots;
use crate::writer::{Write, Writer};

/// SQLite has one writer at a time whatever is done. One connection makes the tasks of this process wait in
/// the pool's queue, which is fair; SQLite's own waiting is polling, with which one of many may starve.
const SQLITE_CONNECTIONS: u32 = 1;
const POSTGRES_CONNECTIONS: u32 = 10;

/// Waiting comes first: the switch to WAL waits too. A commit is on disk before it is answered.
const SQLITE_SETTINGS: &str = "PRAGMA busy_timeout = 30000; PRAGMA journal_mode = WAL; \
     PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON";

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// The SQL side of a deployment. Clones share one pool of connections.
#[derive(Debug, Clone)]
pub struct Catalog {
    pool: AnyPool,
    kind: Kind,
    /// For SQLite; PostgreSQL writes what many want at once together by itself.
    writer: Option<Writer>,
}

impl Catalog {
    /// Opens `sqlite:///PATH`, which is made when it is missing, or `postgres://USER@HOST/DATABASE`, and brings
    /// its schema up to date.
    pub async fn open(url: &str) -> Result<Self> {
        sqlx::any::install_default_drivers();
        let options = AnyConnectOptions::from_str(url).map_err(unusable)?;
        let kind = kind(&options)?;
        let pool = match kind {
            Kind::Sqlite => open_sqlite(options).await?,
            Kind::Postgres => open_postgres(options).await?,
        };
        let catalog = Self { pool, kind, writer: None };
        migration::migrate(&catalog).await?;
        let writer = (kind == Kind::Sqlite).then(|| Writer::start(&catalog));
        Ok(Self { writer, ..catalog })
    }

    /// The sandboxes.
    pub fn sandboxes(&self) -> Sandboxes<'_> {
        Sandboxes { catalog: self }
    }

    /// What happened to them.
    pub fn events(&self) -> Events<'_> {
        Events { catalog: self }
    }

    /// Who may do what.
    pub fn api_keys(&self) -> ApiKeys<'_> {
        ApiKeys { catalog: self }
    }

    /// What ran in the sandboxes.
    pub fn commands(&self) -> Commands<'_> {
        Commands { catalog: self }
    }

    /// Whose the snapshots are.
    pub fn snapshots(&self) -> Snapshots<'_> {
        Snapshots { catalog: self }
    }

    /// Whose the episodes are.
    pub fn episodes(&self) -> Episodes<'_> {
        Episodes { catalog: self }
    }

    /// Which request made which sandbox.
    pub fn idempotency(&self) -> Idempotency<'_> {
        Idempotency { catalog: self }
    }

    /// Which request began which command.
    pub fn command_claims(&self) -> CommandClaims<'_> {
        CommandClaims { catalog: self }
    }

    /// Waits for what is under way and closes every connection.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Returns true if other servers, each with a store of its own, may use it too.
    pub fn may_be_shared(&self) -> bool {
        self.kind == Kind::Postgres
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// A connection for one statement, or for several that only read.
    pub(crate) async fn connection(&self) -> Result<PoolConnection<Any>> {
        Ok(self.pool.acquire().await?)
    }

    /// Writes one of many small things.
    pub(crate) async fn write(&self, write: Write) -> Result<()> {
        match &self.writer {
            Some(writer) => writer.write(write).await,
            None => write.run(&mut *self.connection().await?).await,
        }
    }

    /// Begins a transaction that will write. It is undone when dropped without a commit.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Any>> {
        Ok(match self.kind {
            // A transaction that first reads and then writes cannot wait: SQLite refuses it when another
            // process wrote in between.
            Kind::Sqlite => self.pool.begin_with("BEGIN IMMEDIATE").await?,
            Kind::Postgres => self.pool.begin().await?,
        })
    }
}

/// The address of the SQLite file at `path`, with everything escaped that means something in an address.
pub fn sqlite_url(path: &Path) -> String {
    SqliteConnectOptions::new().filename(path).to_url_lossy().into()
}

fn kind(options: &AnyConnectOptions) -> Result<Kind> {
    match options.database_url.scheme() {
        "sqlite" => Ok(Kind::Sqlite),
        "postgres" | "postgresql" => Ok(Kind::Postgres),
        other => Err(CatalogError::Address { reason: format!("`{other}` is no known database") }),
    }
}

/// Waits a while for one that does not answer, and then says why.
async fn open_postgres(options: AnyConnectOptions) -> Result<AnyPool> {
    let first = AnyConnection::connect_with(&options).await;
    match pool(POSTGRES_CONNECTIONS).connect_with(options).await {
        Err(sqlx::Error::PoolTimedOut) => Err(first.err().unwrap_or(sqlx::Error::PoolTimedOut).into()),
        opened => Ok(opened?),
    }
}

async fn open_sqlite(options: AnyConnectOptions) -> Result<AnyPool> {
    let url = options.database_url.as_str();
    if url.contains(":memory:") || url.contains("mode=memory") {
        return Err(CatalogError::Address { reason: "a catalog in memory would be forgotten".to_owned() });
    }
    let file = SqliteConnectOptions::from_url(&options.database_url).map_err(unusable)?;
    make_private(file.get_filename())?;
    let pool = pool(SQLITE_CONNECTIONS).after_connect(|connection, _| {
        Box::pin(async move { connection.execute(SQLITE_SETTINGS).await.map(|_| ()) })
    });
    // On a full disk SQLite undoes a transaction by itself, and who wants to undo it then is refused: a connection that
    // counts on being in one still would begin none any more.
    //
    // Nothing else can happen to a connection to a file, so none is tried out before it is used: that would be a question to
    // another thread and its answer, for each statement.
    let pool = pool.test_before_acquire(false).before_acquire(|connection, _| {
        let usable = !connection.is_in_transaction();
        Box::pin(async move { Ok(usable) })
    });
    Ok(pool.connect_with(options).await?)
}

fn pool(connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new().max_connections(connections)
}

/// Makes the file when it is missing, and its owner the only one to read it. SQLite gives the files beside it
/// the same mode.
///
/// It is never opened here: closing it would end the locks that SQLite holds on it in this process.
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

/// Nobody but the superuser may make files without opening them. One that was not there has no locks to be ended.
#[cfg(not(target_os = "linux"))]
fn create(path: &Path, mode: Mode) -> std::result::Result<(), Errno> {
    use rustix::fs::OFlags;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, mode).map(drop)
}

/// The text of these errors names the fault alone, never the address.
fn unusable(error: sqlx::Error) -> CatalogError {
    let reason = match error {
        sqlx::Error::Configuration(reason) => reason.to_string(),
        other => other.to_string(),
    };
    CatalogError::Address { reason }
}
