//! Metrics and audit entries of the NFS server.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use workspace_nfs::{Direction, MountEvent, Observer, Operation, Outcome, Refusal, RefusalReason};

use crate::audit::{Audit, Entry, Level};
use crate::metrics::write_metric_header;

/// Maximum number of refusals, and that of mounts and unmounts, in the audit log in each interval: a client can cause any
/// number of them, and entries of others must not be dropped for them.
const RECORDED_MAX: u32 = 100;
const RECORDED_INTERVAL: Duration = Duration::from_secs(60);

/// Observer that counts operations, and records mounts and refusals in the audit log.
#[derive(Debug)]
pub(super) struct NfsObserver {
    operations: [AtomicU64; Operation::COUNT],
    failures: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    refusals: [AtomicU64; RefusalReason::ALL.len()],
    /// Audit log; not set before the server listens.
    audit: OnceLock<Audit>,
    recorded_refusals: RecordLimit,
    recorded_mounts: RecordLimit,
}

/// Limit on the entries of one kind in the audit log.
#[derive(Debug, Default)]
struct RecordLimit {
    /// Start of the present interval, and the entries since.
    recorded: Mutex<(Option<Instant>, u32)>,
}

impl RecordLimit {
    /// Counts an entry. Returns false if there were too many in this interval.
    fn allows(&self) -> bool {
        let mut recorded = self.recorded.lock();
        if recorded.0.is_none_or(|start| start.elapsed() >= RECORDED_INTERVAL) {
            *recorded = (Some(Instant::now()), 0);
        }
        recorded.1 = recorded.1.saturating_add(1);
        recorded.1 <= RECORDED_MAX
    }
}

impl Default for NfsObserver {
    fn default() -> Self {
        Self {
            operations: std::array::from_fn(|_| AtomicU64::new(0)),
            failures: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            refusals: std::array::from_fn(|_| AtomicU64::new(0)),
            audit: OnceLock::new(),
            recorded_refusals: RecordLimit::default(),
            recorded_mounts: RecordLimit::default(),
        }
    }
}

impl NfsObserver {
    /// Sets the audit log. Later calls have no effect.
    pub(super) fn set_audit(&self, audit: Audit) {
        let _ = self.audit.set(audit);
    }

    /// Renders the metrics.
    pub(super) fn render(&self, text: &mut String) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        write_metric_header(text, "nfs_operations_total", "counter", "Operations of NFS and MOUNT.");
        for (operation, count) in Operation::all().zip(&self.operations) {
            let _ = writeln!(text, "nfs_operations_total{{op=\"{}\"}} {}", operation.name(), load(count));
        }
        write_metric_header(text, "nfs_errors_total", "counter", "Operations of NFS and MOUNT that failed.");
        let _ = writeln!(text, "nfs_errors_total {}", load(&self.failures));
        write_metric_header(text, "nfs_bytes_total", "counter", "Bytes of file content over NFS.");
        for (direction, count) in [("read", &self.read_bytes), ("write", &self.written_bytes)] {
            let _ = writeln!(text, "nfs_bytes_total{{direction=\"{direction}\"}} {}", load(count));
        }
        write_metric_header(
            text,
            "nfs_refused_total",
            "counter",
            "Connections, mounts and operations that were refused.",
        );
        for (reason, count) in RefusalReason::ALL.iter().zip(&self.refusals) {
            let _ = writeln!(text, "nfs_refused_total{{reason=\"{}\"}} {}", reason.name(), load(count));
        }
    }

    fn record(&self, level: Level, event: &'static str, export: Option<&str>, details: serde_json::Value) {
        let Some(audit) = self.audit.get() else { return };
        let serde_json::Value::Object(details) = details else { return };
        let sandbox_id = export.map(str::to_owned);
        audit.record(Entry { level, event, sandbox_id, details, ..Entry::default() });
    }

    fn record_mount(&self, event: &'static str, mount: MountEvent<'_>) {
        if self.recorded_mounts.allows() {
            self.record(
                Level::Info,
                event,
                Some(mount.export),
                json!({ "client": mount.client.to_string() }),
            );
        }
    }
}

impl Observer for NfsObserver {
    fn operation(&self, operation: Operation, outcome: Outcome) {
        self.operations[operation.index()].fetch_add(1, Ordering::Relaxed);
        if matches!(outcome, Outcome::Failed(_)) {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn bytes(&self, direction: Direction, count: u64) {
        let counter = match direction {
            Direction::Read => &self.read_bytes,
            Direction::Write => &self.written_bytes,
        };
        counter.fetch_add(count, Ordering::Relaxed);
    }

    fn mounted(&self, event: MountEvent<'_>) {
        self.record_mount("nfs.mounted", event);
    }

    fn unmounted(&self, event: MountEvent<'_>) {
        self.record_mount("nfs.unmounted", event);
    }

    fn refused(&self, refusal: Refusal<'_>) {
        self.refusals[refusal.reason.index()].fetch_add(1, Ordering::Relaxed);
        if self.recorded_refusals.allows() {
            let details = json!({ "client": refusal.client.to_string(), "reason": refusal.reason.name() });
            // The client has chosen the name of an unknown export.
            let export = refusal.export.filter(|_| refusal.reason != RefusalReason::UnknownExport);
            self.record(Level::Warn, "nfs.refused", export, details);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_limited_in_each_interval() {
        let limit = RecordLimit::default();
        let allowed = (0..RECORDED_MAX * 3).filter(|_| limit.allows()).count();
        assert_eq!(allowed, RECORDED_MAX as usize);
        *limit.recorded.lock() = (Instant::now().checked_sub(RECORDED_INTERVAL), RECORDED_MAX);
        assert!(limit.allows());
    }
}
