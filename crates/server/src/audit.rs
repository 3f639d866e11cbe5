//! Audit log of operations and refused requests, as lines of JSON.
//!
//! Recording never blocks: entries go through a bounded channel to a writer thread. Entries that do not fit in the channel
//! or cannot be written are counted (`audit_lost_total`) and reported in the server log. `audit/file.rs` rotates
//! the files.

mod file;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use jiff::Timestamp;
use parking_lot::Mutex;
use regex_lite::Regex;
use serde_json::{Map, Value, json};

use crate::caller::{Caller, Credential};
use crate::metrics;
use crate::private_file::PrivateFileError;
use crate::request_id::RequestId;

pub use file::Retention;
use file::{LogFile, WriteFailure};

/// Maximum number of entries in the channel.
const QUEUE_MAX: usize = 10_000;
const REDACTED: &str = "[redacted]";
/// Maximum size of a text in an entry in bytes. A longer text is cut, and its length and hash are added: long entries of
/// one client must not push the entries of others out of the files.
const TEXT_MAX: usize = 4 << 10;
/// Number of bytes of a text that are searched for secrets before it is cut to [`TEXT_MAX`], so that a secret across the cut
/// is found.
const SEARCHED_MAX: usize = 64 << 10;

/// Severity of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// Successful operation.
    #[default]
    Info,
    /// Refused request.
    Warn,
    /// Failed operation.
    Error,
}

/// Entry of the audit log.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Severity.
    pub level: Level,
    /// Name of the event, such as `sandbox.created`.
    pub event: &'static str,
    /// Id of the sandbox; `None` if the event is not about one.
    pub sandbox_id: Option<String>,
    /// Key of the caller: the first 16 hexadecimal digits of its hash. `None` without a key.
    pub user: Option<String>,
    /// Credential that the caller sent instead of the key, such as `token`; `None` for the key itself.
    pub credential: Option<&'static str>,
    /// Id of the request; `None` if the server itself caused the event.
    pub request_id: Option<String>,
    /// Duration of the operation in milliseconds.
    pub duration_ms: Option<u64>,
    /// Further fields; `AUDIT_REDACT` applies to these.
    pub details: Map<String, Value>,
}

impl Entry {
    /// Creates an entry for an operation of a caller. `details` must be an object; other values are ignored.
    pub fn for_caller(event: &'static str, caller: &Caller, request: &RequestId, details: Value) -> Self {
        let details = match details {
            Value::Object(details) => details,
            _ => Map::new(),
        };
        let (user, request_id) = (Some(caller.user.clone()), Some(request.0.clone()));
        let credential = caller.credential().map(Credential::as_str);
        Self { event, user, credential, request_id, details, ..Self::default() }
    }
}

/// Handle of the audit log. Clones write to the same file.
#[derive(Debug, Clone)]
pub struct Audit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sender: SyncSender<Message>,
    /// Writer thread; `None` after [`Audit::close`].
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Patterns of `AUDIT_REDACT`.
    patterns: Vec<Regex>,
    /// Number of entries that were not written.
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(String),
    Close,
}

impl Audit {
    /// Opens the log or creates it with mode 0600, and starts the writer thread.
    pub fn open(path: &Path, retention: Retention, patterns: Vec<Regex>) -> Result<Self, PrivateFileError> {
        let file = LogFile::open(path, retention)?;
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let writer_lost = Arc::clone(&lost);
        let writer = std::thread::Builder::new().name("audit".to_owned());
        let writer = writer.spawn(move || run_writer(file, &receiver, &writer_lost));
        let writer =
            Mutex::new(Some(writer.map_err(PrivateFileError::failed_to("start a thread for", path))?));
        Ok(Self { shared: Arc::new(Shared { sender, writer, patterns, lost }) })
    }

    /// Queues an entry to be written. Does not block.
    pub fn record(&self, entry: Entry) {
        let line = line(entry, &self.shared.patterns, Timestamp::now());
        match self.shared.sender.try_send(Message::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => count_lost(&self.shared.lost, 1, "the queue is full"),
            Err(TrySendError::Disconnected(_)) => count_lost(&self.shared.lost, 1, "the log is closed"),
        }
    }

    /// Returns the number of entries that could not be written.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Renders the metrics of the audit log.
    pub(crate) fn render(&self, text: &mut String) {
        metrics::write_metric_header(
            text,
            "audit_lost_total",
            "counter",
            "Audit entries that were not written.",
        );
        text.push_str(&format!("audit_lost_total {}\n", self.lost()));
    }

    /// Waits until all queued entries are written, and ends the writer. Later entries are lost and counted.
    pub fn close(&self) {
        // An error means that the writer has already ended.
        let _ = self.shared.sender.send(Message::Close);
        let writer = self.shared.writer.lock().take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("audit log writer failed");
        }
    }
}

fn count_lost(lost: &AtomicU64, entries: u64, reason: &str) {
    let before = lost.fetch_add(entries, Ordering::Relaxed);
    // Only the first loss and every doubling are logged: a full disk must not flood the server log.
    if before == 0 || before.ilog2() < (before + entries).ilog2() {
        tracing::error!(entries, total = before + entries, reason, "audit entries were lost");
    }
}

fn run_writer(mut file: LogFile, receiver: &Receiver<Message>, lost: &AtomicU64) {
    let count = |written: Result<(), WriteFailure>| {
        if let Err(WriteFailure { lines, error }) = written {
            count_lost(lost, lines, &error.to_string());
        }
    };
    while let Ok(first) = receiver.recv() {
        let mut closing = false;
        // All queued entries are written with one system call.
        for message in std::iter::once(first).chain(receiver.try_iter().take(QUEUE_MAX)) {
            match message {
                Message::Line(line) => count(file.add(&line)),
                Message::Close => closing = true,
            }
        }
        count(file.flush());
        if closing {
            return;
        }
    }
}

/// Returns an entry as a line of JSON, with a newline at its end. Fields without a value are omitted.
fn line(entry: Entry, patterns: &[Regex], now: Timestamp) -> String {
    let level = match entry.level {
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    };
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            fields.insert(name.to_owned(), value);
        }
    };
    set("timestamp", json!(format!("{now:.3}")));
    set("level", json!(level));
    set("event", json!(entry.event));
    set("sandbox_id", json!(entry.sandbox_id));
    set("user", json!(entry.user));
    set("credential", json!(entry.credential));
    for (name, mut value) in entry.details {
        if let Value::String(text) = &value
            && text.len() > TEXT_MAX
        {
            set(&format!("{name}_bytes"), json!(text.len()));
            set(&format!("{name}_blake3"), json!(blake3::hash(text.as_bytes()).to_hex().as_str()));
        }
        redact(&mut value, patterns);
        set(&name, value);
    }
    set("request_id", json!(entry.request_id));
    set("duration_ms", json!(entry.duration_ms));
    let mut line = Value::Object(fields).to_string();
    line.push('\n');
    line
}

/// Replaces the secrets in all texts of a value, and cuts the texts to [`TEXT_MAX`].
fn redact(value: &mut Value, patterns: &[Regex]) {
    match value {
        Value::String(text) => {
            cut(text, SEARCHED_MAX);
            for pattern in patterns {
                *text = redact_text(text, pattern);
            }
            cut(text, TEXT_MAX);
        }
        Value::Array(values) => values.iter_mut().for_each(|value| redact(value, patterns)),
        Value::Object(fields) => fields.values_mut().for_each(|value| redact(value, patterns)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Cuts a text to at most `max` bytes, between characters.
fn cut(text: &mut String, max: usize) {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
}

/// Replaces all matches of a pattern; of a pattern with a group, only the group.
fn redact_text(text: &str, pattern: &Regex) -> String {
    let (mut kept, mut end) = (String::new(), 0);
    for found in pattern.captures_iter(text) {
        let Some(secret) = found.get(1).or_else(|| found.get(0)) else { continue };
        kept.push_str(&text[end..secret.start()]);
        kept.push_str(REDACTED);
        end = secret.end();
    }
    kept.push_str(&text[end..]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETENTION: Retention = Retention { max_bytes: 1 << 20, kept: 8 };

    #[test]
    fn an_entry_is_a_line_of_json_without_redacted_text() {
        let patterns = [Regex::new(r"password=(\S+)").unwrap(), Regex::new("hush+").unwrap()];
        let details =
            json!({"command": "login password=abc hushhh", "args": ["password=x"], "template": "base"});
        let Value::Object(details) = details else { panic!() };
        let entry = Entry {
            event: "command.run",
            sandbox_id: Some("sbx-1".into()),
            duration_ms: Some(3),
            details,
            ..Entry::default()
        };
        let line = line(entry, &patterns, Timestamp::from_millisecond(1_705_314_600_123).unwrap());
        let read: Value = serde_json::from_str(&line).unwrap();
        let expected = json!({
            "timestamp": "2024-01-15T10:30:00.123Z", "level": "info", "event": "command.run",
            "sandbox_id": "sbx-1", "duration_ms": 3, "template": "base",
            "command": "login password=[redacted] [redacted]", "args": ["password=[redacted]"],
        });
        assert_eq!(read, expected);
        assert!(line.ends_with('\n'));
    }

    #[test]
    fn a_long_text_is_cut_and_its_length_and_hash_are_added() {
        let patterns = [Regex::new("(?s)BEGIN KEY(.*)END KEY").unwrap()];
        let secret = "s".repeat(TEXT_MAX);
        let command = format!("echo BEGIN KEY{secret}END KEY {}", "\u{20ac}".repeat(300_000));
        let Value::Object(details) = json!({ "command": command, "args": ["x".repeat(1 << 20)] }) else {
            unreachable!()
        };
        let line =
            line(Entry { event: "command.run", details, ..Entry::default() }, &patterns, Timestamp::now());
        assert!(line.len() < 3 * TEXT_MAX, "{}", line.len());
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["command_bytes"], command.len());
        assert_eq!(read["command_blake3"], blake3::hash(command.as_bytes()).to_hex().as_str());
        let kept = read["command"].as_str().unwrap();
        assert!(kept.starts_with("echo BEGIN KEY[redacted]END KEY \u{20ac}"), "{kept}");
        assert!((TEXT_MAX - 2..=TEXT_MAX).contains(&kept.len()), "{}", kept.len());
    }

    #[test]
    fn closing_the_log_writes_all_entries() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let audit = Audit::open(&path, RETENTION, Vec::new()).unwrap();
        for _ in 0..1000 {
            audit.record(Entry { event: "x", ..Entry::default() });
        }
        audit.close();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1000);
        audit.record(Entry::default());
        assert_eq!(audit.lost(), 1);
    }

    #[test]
    fn entries_of_many_threads_are_whole_lines_across_rotations() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let retention = Retention { max_bytes: 4_096, kept: 1_000 };
        let audit = Audit::open(&path, retention, Vec::new()).unwrap();
        // All entries fit in the queue, so that none is lost on a slow disk.
        let (threads, each) = (8, QUEUE_MAX / 8);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let audit = &audit;
                scope.spawn(move || {
                    for number in 0..each {
                        let Value::Object(details) = json!({ "number": format!("{thread}-{number}") }) else {
                            unreachable!()
                        };
                        audit.record(Entry { event: "x", details, ..Entry::default() });
                    }
                });
            }
        });
        audit.close();
        assert_eq!(audit.lost(), 0);
        let (mut seen, mut files) = (std::collections::HashSet::new(), 0);
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            files += 1;
            for line in std::fs::read_to_string(entry.unwrap().path()).unwrap().lines() {
                let read: Value = serde_json::from_str(line).unwrap();
                assert!(seen.insert(read["number"].as_str().unwrap().to_owned()), "{line}");
            }
        }
        assert_eq!(seen.len(), threads * each);
        assert!(files > 10, "{files} files");
    }
}
