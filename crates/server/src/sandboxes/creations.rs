//! Statistics of sandbox creations, for metrics and readiness.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use workspace_api::error_codes;
use workspace_sandbox::Service;

use super::conversion::ParameterOrigin;
use crate::error::ApiError;
use crate::metrics::{Histogram, write_metric_header};

/// Statistics of sandbox creations.
#[derive(Debug, Default)]
pub(crate) struct Creations {
    durations: Mutex<Histogram>,
    failures: Mutex<Failures>,
}

/// Creations that failed since the last success.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    /// Time and message of the last failure.
    last: Option<(Instant, String)>,
}

impl Creations {
    /// Records the duration of a successful creation, or a failure that counts for the readiness of the server.
    pub(super) fn observe(&self, origin: ParameterOrigin, duration: Duration, error: Option<&ApiError>) {
        let Some(error) = error else {
            self.durations.lock().observe(duration.as_secs_f64());
            *self.failures.lock() = Failures::default();
            return;
        };
        if is_server_fault(error, origin) {
            let mut failures = self.failures.lock();
            failures.count = failures.count.saturating_add(1);
            failures.last = Some((Instant::now(), error.message().to_owned()));
        }
    }

    /// Returns the message of the last failure if at least `min_failures` consecutive creations failed, the last of them
    /// at most `max_age` ago. An older failure is ignored, so that a server without requests becomes ready again.
    pub(crate) fn recent_failure(&self, min_failures: u32, max_age: Duration) -> Option<String> {
        let failures = self.failures.lock();
        let (failed_at, message) = failures.last.as_ref()?;
        (failures.count >= min_failures && failed_at.elapsed() <= max_age).then(|| message.clone())
    }
}

/// Returns true if a failed creation counts for the readiness of the server. A template, snapshot or project of the
/// caller's choice may be too large for any disk, and limits of the caller's choice may be too small.
fn is_server_fault(error: &ApiError, origin: ParameterOrigin) -> bool {
    match error.code() {
        error_codes::RUNTIME_UNAVAILABLE | error_codes::ISOLATION_UNAVAILABLE => true,
        error_codes::STORAGE_FULL | error_codes::INTERNAL_ERROR | error_codes::SANDBOX_CREATION_FAILED => {
            origin == ParameterOrigin::Server
        }
        _ => false,
    }
}

/// Renders the metrics of sandboxes.
pub(crate) fn render(service: &Service, creations: &Creations, text: &mut String) {
    write_metric_header(text, "sandbox_total", "gauge", "Sandboxes by state.");
    for (state, count) in service.state_counts() {
        // Writing into a `String` does not fail.
        let _ = writeln!(text, "sandbox_total{{state=\"{state}\"}} {count}");
    }
    write_metric_header(text, "sandbox_warm_pool", "gauge", "Sandboxes of the warm pool that are ready.");
    let _ = writeln!(text, "sandbox_warm_pool {}", service.warm_pool_size());
    let name = "sandbox_measurement_failures_total";
    write_metric_header(text, name, "counter", "Measurements of sandboxes that failed or took too long.");
    let _ = writeln!(text, "{name} {}", service.failed_measurements());
    let name = "sandbox_create_duration_seconds";
    write_metric_header(text, name, "histogram", "Time to create a sandbox.");
    creations.durations.lock().render(text, name, "");
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use workspace_api::sandboxes::CreateSandbox;

    use super::*;

    #[test]
    fn failures_caused_by_parameters_of_the_caller_do_not_count() {
        let observed = |body: serde_json::Value, code| {
            let creations = Creations::default();
            let body: CreateSandbox = serde_json::from_value(body).unwrap();
            let error = ApiError::new(code, "a test");
            for _ in 0..2 {
                creations.observe(ParameterOrigin::from_request(&body), Duration::ZERO, Some(&error));
            }
            creations.recent_failure(2, Duration::from_secs(60)).is_some()
        };
        let usual = json!({"template": "base", "name": "a", "timeout_seconds": 60});
        for code in
            [error_codes::STORAGE_FULL, error_codes::INTERNAL_ERROR, error_codes::SANDBOX_CREATION_FAILED]
        {
            assert!(observed(usual.clone(), code), "{code:?}");
            for chosen in [
                json!({"template": "python"}),
                json!({"template": "base", "snapshot": "01"}),
                json!({"template": "base", "project": "p"}),
                json!({"template": "base", "provider": "copy"}),
                json!({"template": "base", "materialize": "full"}),
                json!({"template": "base", "resources": {"disk": "1m"}}),
            ] {
                assert!(!observed(chosen.clone(), code), "{chosen} {code:?}");
                assert!(observed(chosen, error_codes::RUNTIME_UNAVAILABLE));
            }
        }
        assert!(!observed(usual, error_codes::INVALID_REQUEST));
    }
}
