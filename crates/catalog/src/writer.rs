//! Writes commands of many callers together.
//!
//! SQLite has one writer, and every transaction waits for the disk. So whatever comes while one transaction is being
//! written goes into the next, all of it at once; each caller is answered when its own write is on disk.

use sqlx::AnyConnection;
use tokio::sync::{mpsc, oneshot};

use crate::catalog::Catalog;
use crate::command::{self, End, NewCommand};
use crate::error::{CatalogError, Result};

/// So many at most go into one transaction.
const TOGETHER: usize = 128;

/// Something to write.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    /// A command that runs.
    Insert(NewCommand),
    /// How a command ended.
    Finish { sandbox_id: String, id: String, end: End },
}

impl Write {
    pub(crate) async fn run(&self, on: &mut AnyConnection) -> Result<()> {
        match self {
            Self::Insert(command) => command::insert(on, command).await,
            Self::Finish { sandbox_id, id, end } => command::finish(on, sandbox_id, id, *end).await,
        }
    }
}

/// A write, and who waits for it.
type Job = (Write, oneshot::Sender<Result<()>>);

/// The way to the task that writes. It ends with the last of these.
#[derive(Debug, Clone)]
pub(crate) struct Writer(mpsc::Sender<Job>);

impl Writer {
    pub(crate) fn start(catalog: &Catalog) -> Self {
        let (sender, receiver) = mpsc::channel(TOGETHER);
        tokio::spawn(write_all(catalog.clone(), receiver));
        Self(sender)
    }

    /// Answers when it is on disk.
    pub(crate) async fn write(&self, write: Write) -> Result<()> {
        let closed = || CatalogError::Database { source: sqlx::Error::PoolClosed };
        let (answer, answered) = oneshot::channel();
        self.0.send((write, answer)).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

async fn write_all(catalog: Catalog, mut jobs: mpsc::Receiver<Job>) {
    let mut batch = Vec::new();
    while jobs.recv_many(&mut batch, TOGETHER).await > 0 {
        let results = match batch[..] {
            // A statement alone is a transaction; to begin and commit one would be two more.
            [_] => one_by_one(&catalog, &batch).await,
            _ => match together(&catalog, &batch).await {
                Ok(results) => results,
                // Perhaps one of them is at fault; then the others are not to suffer.
                Err(_) => one_by_one(&catalog, &batch).await,
            },
        };
        for ((_, answer), result) in batch.drain(..).zip(results) {
            // Who does not wait any more has gone.
            drop(answer.send(result));
        }
    }
}

/// Writes all or nothing. What is refused without a fault of the database is refused here too.
async fn together(catalog: &Catalog, batch: &[Job]) -> Result<Vec<Result<()>>> {
    let mut transaction = catalog.begin().await?;
    let mut results = Vec::with_capacity(batch.len());
    for (write, _) in batch {
        match write.run(&mut transaction).await {
            Err(CatalogError::Database { source }) => return Err(source.into()),
            result => results.push(result),
        }
    }
    transaction.commit().await?;
    Ok(results)
}

async fn one_by_one(catalog: &Catalog, batch: &[Job]) -> Vec<Result<()>> {
    let mut results = Vec::with_capacity(batch.len());
    for (write, _) in batch {
        results.push(match catalog.connection().await {
            Ok(mut connection) => write.run(&mut connection).await,
            Err(error) => Err(error),
        });
    }
    results
}
