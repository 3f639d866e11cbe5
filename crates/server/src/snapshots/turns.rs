//! How much of what is costly is done at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::code;
use crate::error::ApiError;

/// Archives that are taken at once. Each keeps a thread, also when its client is slow.
const UPLOADS: usize = 32;
/// Comparisons and searches at once.
const COMPARISONS: usize = 4;
/// How long an upload waits for its turn.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Turns {
    uploads: Arc<Semaphore>,
    comparisons: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            uploads: Arc::new(Semaphore::new(UPLOADS)),
            comparisons: Arc::new(Semaphore::new(COMPARISONS)),
        }
    }
}

impl Turns {
    /// Waits for the turn of an upload, but not for long: the others may be slow.
    pub(crate) async fn upload(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let turn = tokio::time::timeout(PATIENCE, Arc::clone(&self.uploads).acquire_owned()).await;
        let message = || format!("{UPLOADS} archives are being taken already; try again");
        let turn = turn.map_err(|_| ApiError::new(code::UPLOAD_LIMIT_EXCEEDED, message()))?;
        turn.map_err(ApiError::internal)
    }

    /// Waits for the turn of a comparison.
    pub(crate) async fn comparison(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.comparisons).acquire_owned().await.map_err(ApiError::internal)
    }
}
