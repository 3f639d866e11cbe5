//! Group commit for snapshots and completions.
//!
//! When many agents complete at once, each completion needs two rows and their events. A transaction for each of them
//! would wait for the disk and for the other transactions, and every statement is a round trip. So one task collects
//! what arrives while a transaction is being committed, and records all of it in the next one, with one statement for
//! all rows of a table. Each caller gets its response when its own rows are durable.

use std::collections::{HashMap, HashSet};

use sqlx::AnyConnection;
use tokio::sync::{mpsc, oneshot};

use crate::completion::{self, Completion, CompletionInsertion, NewCompletion};
use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::event::{self, NewEvent, PlacedEvent};
use crate::failpoint;
use crate::note;
use crate::snapshot::{self, NewSnapshotRow};

/// Maximum number of records in one transaction. Databases limit the number of parameters of a statement.
const BATCH_MAX: usize = 64;

/// Rows to insert, with their events.
#[derive(Debug, Clone)]
pub(crate) enum Record {
    /// Owner of a snapshot.
    Snapshot(NewSnapshotRow),
    /// Queued completion.
    Completion(NewCompletion, Vec<NewEvent>),
}

/// Result of a record.
#[derive(Debug)]
pub(crate) enum Recorded {
    Snapshot,
    Completion(Box<CompletionInsertion>),
}

/// Record with the channel for its result.
type PendingRecord = (Record, oneshot::Sender<Result<Recorded>>);

/// Handle of the task that records, which ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Recorder(mpsc::Sender<PendingRecord>);

impl Recorder {
    pub(crate) fn start(database: &Database) -> Self {
        let (sender, receiver) = mpsc::channel(BATCH_MAX);
        tokio::spawn(record_all(database.clone(), receiver));
        Self(sender)
    }

    /// Records an owner of a snapshot. Returns when the row is durable.
    pub(crate) async fn add_snapshot(&self, row: NewSnapshotRow) -> Result<()> {
        self.record(Record::Snapshot(row)).await.map(drop)
    }

    /// Records a queued completion. Returns when the row is durable.
    pub(crate) async fn insert_completion(
        &self,
        new: NewCompletion,
        events: Vec<NewEvent>,
    ) -> Result<CompletionInsertion> {
        match self.record(Record::Completion(new, events)).await? {
            Recorded::Completion(inserted) => Ok(*inserted),
            Recorded::Snapshot => Err(closed()),
        }
    }

    async fn record(&self, record: Record) -> Result<Recorded> {
        let (respond, response) = oneshot::channel();
        self.0.send((record, respond)).await.map_err(|_| closed())?;
        response.await.map_err(|_| closed())?
    }
}

/// Returns the error of a task that has ended.
fn closed() -> CatalogError {
    CatalogError::Database { source: sqlx::Error::PoolClosed }
}

async fn record_all(database: Database, mut records: mpsc::Receiver<PendingRecord>) {
    let mut pending = Vec::new();
    while records.recv_many(&mut pending, BATCH_MAX).await > 0 {
        let (batch, responses): (Vec<Record>, Vec<_>) = pending.drain(..).unzip();
        let results = match in_one_transaction(&database, &batch).await {
            Ok(results) => results,
            Err(error) if batch.len() == 1 => vec![Err(error)],
            // One of them may have failed. The others must not fail with it.
            Err(_) => one_by_one(&database, &batch).await,
        };
        for (respond, result) in responses.into_iter().zip(results) {
            // The caller may have been cancelled.
            drop(respond.send(result));
        }
    }
}

async fn one_by_one(database: &Database, batch: &[Record]) -> Vec<Result<Recorded>> {
    let mut results = Vec::with_capacity(batch.len());
    for record in batch {
        let result = in_one_transaction(database, std::slice::from_ref(record)).await;
        results.push(result.and_then(|mut results| results.pop().unwrap_or_else(|| Err(closed()))));
    }
    results
}

/// Records a batch in one transaction. After an error nothing is recorded; errors in the results concern their record
/// alone.
async fn in_one_transaction(database: &Database, batch: &[Record]) -> Result<Vec<Result<Recorded>>> {
    let snapshots: Vec<&NewSnapshotRow> = batch.iter().filter_map(Record::snapshot).collect();
    let completions: Vec<&NewCompletion> = batch.iter().filter_map(Record::completion).collect();
    let mut transaction = database.begin().await?;
    let mut new_snapshots = snapshot::insert_all(&mut transaction, &snapshots).await?;
    let mut new_completions = insert_completions(&mut transaction, &completions).await?;
    let mut results = Vec::with_capacity(batch.len());
    // Each with its sandbox and its owner.
    let mut events: Vec<(Option<&str>, String, NewEvent)> = Vec::new();
    // Sandboxes, each with a new snapshot.
    let mut made_in: Vec<(&str, &str)> = Vec::new();
    for record in batch {
        match record {
            Record::Snapshot(row) => {
                // The batch may have it twice.
                if new_snapshots.remove(&(row.owner.clone(), row.id.clone())) {
                    let sandbox = row.origin.sandbox.as_deref();
                    // The first one gets the notes of its sandbox.
                    let is_first = |sandbox: &&str| !made_in.iter().any(|(other, _)| other == sandbox);
                    made_in.extend(sandbox.filter(is_first).map(|sandbox| (sandbox, row.id.as_str())));
                    events.push((sandbox, row.owner.clone(), row.created_event()));
                }
                results.push(Ok(Recorded::Snapshot));
            }
            Record::Completion(new, of_completion) => match new_completions.remove(&key_of(new)) {
                Some(inserted) => {
                    let placed = new.for_owners(of_completion).into_iter();
                    events.extend(placed.map(|(owner, event)| (None, owner, event)));
                    results.push(Ok(Recorded::Completion(Box::new(CompletionInsertion::New(inserted)))));
                }
                None => results.push(match existing(&mut transaction, new).await {
                    // The database may have ended the transaction.
                    Err(error @ CatalogError::Database { .. }) => return Err(error),
                    result => result,
                }),
            },
        }
    }
    note::attach_all(&mut transaction, &made_in).await?;
    let placed = events.iter().map(|(sandbox, owner, event)| PlacedEvent {
        owner: Some(owner.as_str()),
        sandbox: *sandbox,
        event,
    });
    event::insert_placed(&mut transaction, &placed.collect::<Vec<_>>()).await?;
    if !completions.is_empty() {
        failpoint::hit("completion-inserted")?;
    }
    database.commit_and_wake_readers(transaction, &events).await?;
    Ok(results)
}

/// Project and id of a completion.
type CompletionKey = (String, String);

fn key_of(new: &NewCompletion) -> CompletionKey {
    (new.project.clone(), new.id.clone())
}

/// Inserts completions, except those that exist. Returns the new ones. Of two with the same id, or of the same round,
/// whose creation times must differ, the second is inserted by a statement of its own.
async fn insert_completions(
    connection: &mut AnyConnection,
    completions: &[&NewCompletion],
) -> Result<HashMap<CompletionKey, Completion>> {
    let (mut together, mut alone, mut ids, mut rounds) =
        (Vec::new(), Vec::new(), HashSet::new(), HashSet::new());
    for new in completions {
        let is_first_of_round =
            new.round_id.as_ref().is_none_or(|round| rounds.insert((new.project.as_str(), round.as_str())));
        match ids.insert(key_of(new)) && is_first_of_round {
            true => together.push(*new),
            false => alone.push(*new),
        }
    }
    let mut inserted = HashMap::new();
    for group in std::iter::once(together.as_slice()).chain(alone.chunks(1)) {
        for completion in completion::insert_all(connection, group).await? {
            inserted.insert(key_of(&completion.completion), completion);
        }
    }
    Ok(inserted)
}

/// Returns the stored completion with the id of one that was not inserted.
async fn existing(connection: &mut AnyConnection, new: &NewCompletion) -> Result<Recorded> {
    let found = completion::find(connection, &new.project, &new.id).await?;
    let found = found.ok_or_else(|| completion::not_found(&new.id))?;
    match found.completion.is_of_same_round(new) {
        true => Ok(Recorded::Completion(Box::new(CompletionInsertion::Existing(found)))),
        false => Err(CatalogError::IdempotencyConflict { key: new.id.clone() }),
    }
}

impl Record {
    fn snapshot(&self) -> Option<&NewSnapshotRow> {
        match self {
            Self::Snapshot(row) => Some(row),
            Self::Completion(..) => None,
        }
    }

    fn completion(&self) -> Option<&NewCompletion> {
        match self {
            Self::Snapshot(_) => None,
            Self::Completion(new, _) => Some(new),
        }
    }
}
