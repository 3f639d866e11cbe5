//! Readiness of the server: named checks that other modules register.

mod sandboxes;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex as SyncMutex;
use tokio::sync::Mutex;
use workspace_api::system::{ReadinessCheck, ReadinessReport};

pub(crate) use sandboxes::add_checks;

/// Timeout after which a check counts as failed.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Cache lifetime of a report. It limits the work, because a request needs no key.
const CACHE_LIFETIME: Duration = Duration::from_secs(1);

type CheckResult = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;
type Check = Arc<dyn Fn() -> CheckResult + Send + Sync>;

/// Readiness checks. Clones share them.
#[derive(Clone, Default)]
pub struct Readiness {
    checks: Arc<SyncMutex<Vec<(&'static str, Check)>>>,
    /// Last report, with the time at which it was created.
    last: Arc<Mutex<Option<(Instant, ReadinessReport)>>>,
}

impl Readiness {
    /// Adds a check. It returns a message, or an error message. Both are public: `/ready` needs no key.
    pub fn add<F>(&self, name: &'static str, check: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        let check: Check = Arc::new(move || Box::pin(check()));
        self.checks.lock().push((name, check));
    }

    /// Runs the checks, or returns the cached report.
    pub async fn report(&self) -> ReadinessReport {
        let mut last = self.last.lock().await;
        if let Some((at, report)) = &*last
            && at.elapsed() < CACHE_LIFETIME
        {
            return report.clone();
        }
        let report = self.run_checks().await;
        *last = Some((Instant::now(), report.clone()));
        report
    }

    async fn run_checks(&self) -> ReadinessReport {
        let list = self.checks.lock().clone();
        let mut checks = Vec::new();
        for (name, check) in list {
            let result = tokio::time::timeout(TIMEOUT, check()).await;
            let result = result.unwrap_or_else(|_| Err("the check timed out".to_owned()));
            let (ok, message) = result.map_or_else(|error| (false, error), |message| (true, message));
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
