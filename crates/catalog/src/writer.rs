//! Group commit for writes to the table `commands`.
//!
//! SQLite has one writer, and every transaction waits for the disk. Writes that arrive while a transaction is
//! being committed are batched into the next one. Each caller gets its response when its own write is
//! durable.

use sqlx::AnyConnection;
use tokio::sync::{mpsc, oneshot};

use crate::command::{self, CommandEnd, NewCommand};
use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::trace::{self, CommandTrace};

/// Maximum number of writes in one transaction.
const BATCH_MAX: usize = 128;

/// Write to the table `commands`.
#[derive(Debug, Clone)]
pub(crate) enum CommandWrite {
    /// Insertion of a running command.
    Insert(NewCommand),
    /// Exit status of a command.
    Finish { sandbox_id: String, id: String, end: CommandEnd },
    /// Exit status of a command, and the outcome of its automatic snapshot.
    FinishTraced { sandbox_id: String, id: String, end: CommandEnd, trace: CommandTrace },
    /// Outcome of the automatic snapshot of a command.
    Trace { sandbox_id: String, id: String, trace: CommandTrace },
}

impl CommandWrite {
    pub(crate) async fn run(&self, connection: &mut AnyConnection) -> Result<()> {
        match self {
            Self::Insert(command) => command::insert(connection, command).await,
            Self::Finish { sandbox_id, id, end } => command::finish(connection, sandbox_id, id, *end).await,
            Self::FinishTraced { sandbox_id, id, end, trace } => {
                command::finish(connection, sandbox_id, id, *end).await?;
                trace::record(connection, sandbox_id, id, trace).await
            }
            Self::Trace { sandbox_id, id, trace } => trace::record(connection, sandbox_id, id, trace).await,
        }
    }

    /// Runs the write by itself. A single statement is its own transaction; `BEGIN` and `COMMIT` would be two more
    /// round trips.
    pub(crate) async fn run_alone(&self, database: &Database) -> Result<()> {
        if !self.has_several_statements() {
            return self.run(&mut *database.connection().await?).await;
        }
        let mut transaction = database.begin().await?;
        self.run(&mut transaction).await?;
        Ok(transaction.commit().await?)
    }

    fn has_several_statements(&self) -> bool {
        match self {
            Self::Insert(_) | Self::Finish { .. } => false,
            Self::FinishTraced { .. } | Self::Trace { .. } => true,
        }
    }
}

/// Write with the channel for its result.
type PendingWrite = (CommandWrite, oneshot::Sender<Result<()>>);

/// Handle of the writer task, which ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Writer(mpsc::Sender<PendingWrite>);

impl Writer {
    pub(crate) fn start(database: &Database) -> Self {
        let (sender, receiver) = mpsc::channel(BATCH_MAX);
        tokio::spawn(write_all(database.clone(), receiver));
        Self(sender)
    }

    /// Executes a write. Returns when it is durable.
    pub(crate) async fn write(&self, write: CommandWrite) -> Result<()> {
        let closed = || CatalogError::Database { source: sqlx::Error::PoolClosed };
        let (respond, response) = oneshot::channel();
        self.0.send((write, respond)).await.map_err(|_| closed())?;
        response.await.map_err(|_| closed())?
    }
}

async fn write_all(database: Database, mut writes: mpsc::Receiver<PendingWrite>) {
    let mut batch = Vec::new();
    while writes.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let results = match batch[..] {
            [_] => one_by_one(&database, &batch).await,
            _ => match in_one_transaction(&database, &batch).await {
                Ok(results) => results,
                // One of them may have failed. The others must not fail with it.
                Err(_) => one_by_one(&database, &batch).await,
            },
        };
        for ((_, respond), result) in batch.drain(..).zip(results) {
            // The caller may have been cancelled.
            drop(respond.send(result));
        }
    }
}

/// Executes all writes in one transaction. Returns an error if the database failed, or a write of several statements,
/// of which some may have been executed; other errors are results of their write.
async fn in_one_transaction(database: &Database, batch: &[PendingWrite]) -> Result<Vec<Result<()>>> {
    let mut transaction = database.begin().await?;
    let mut results = Vec::with_capacity(batch.len());
    for (write, _) in batch {
        match write.run(&mut transaction).await {
            Err(CatalogError::Database { source }) => return Err(source.into()),
            Err(error) if write.has_several_statements() => return Err(error),
            result => results.push(result),
        }
    }
    transaction.commit().await?;
    Ok(results)
}

async fn one_by_one(database: &Database, batch: &[PendingWrite]) -> Vec<Result<()>> {
    let mut results = Vec::with_capacity(batch.len());
    for (write, _) in batch {
        results.push(write.run_alone(database).await);
    }
    results
}
