//! Readiness of the server: a list of named checks that parts of the server add to.

mod sandboxes;

use std::pin::Pin;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use workspace_api::system::{ReadinessCheck, ReadinessReport};

pub(crate) use sandboxes::add_checks;

/// Timeout after which a check counts as failed.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Cache lifetime of a report. Anyone may request it.
const CACHE_LIFETIME: Duration = Duration::from_secs(1);

type Answer = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;
type Ask = Arc<dyn Fn() -> Answer + Send + Sync>;

/// Readiness checks. Clones share them.
#[derive(Clone, Default)]
pub struct Readiness {
    checks: Arc<SyncMutex<Vec<(&'static str, Ask)>>>,
    last: Arc<Mutex<Option<(Instant, ReadinessReport)>>>,
}

impl Readiness {
    /// Adds a check. It returns a message, or an error message; anyone may read either.
    pub fn add<F>(&self, name: &'static str, check: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        let ask: Ask = Arc::new(move || Box::pin(check()));
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).push((name, ask));
    }

    /// Runs the checks, or returns the cached report.
    pub async fn report(&self) -> ReadinessReport {
        let mut last = self.last.lock().await;
        if let Some((at, report)) = &*last
            && at.elapsed() < CACHE_LIFETIME
        {
            return report.clone();
        }
        let report = self.ask().await;
        *last = Some((Instant::now(), report.clone()));
        report
    }

    async fn ask(&self) -> ReadinessReport {
        let list = self.checks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut checks = Vec::new();
        for (name, ask) in list {
            let answer = tokio::time::timeout(TIMEOUT, ask()).await;
            let answer = answer.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            let (ok, message) = answer.map_or_else(|wrong| (false, wrong), |fine| (true, fine));
            checks.push(ReadinessCheck { name: name.to_owned(), ok, message });
        }
        ReadinessReport { ready: checks.iter().all(|check| check.ok), checks }
    }
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Readiness")
    }
}
