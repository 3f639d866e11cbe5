//! The audit log: who did what, as lines of JSON.
//!
//! Recording never waits: entries go through a bounded channel to a thread that writes. What does not fit and
//! what cannot be written is counted (`audit_lost_total`) and said in the server's log. Files have a largest size, and
//! only so many are kept (`audit/file.rs`).

mod file;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use jiff::Timestamp;
use regex_lite::Regex;
use serde_json::{Map, Value, json};

use crate::caller::Caller;
use crate::metrics;
use crate::private::PrivateError;
use crate::request_id::RequestId;

pub use file::Retention;
use file::{LogFile, Lost};

const WAITING_MAX: usize = 10_000;
const REDACTED: &str = "[redacted]";
/// Longest text in an entry, in bytes. Of a longer one the entry has this much, its length and its hash: entries of one client
/// must not push those of others out of the files that are kept.
const TEXT_MAX: usize = 4 << 10;
/// Bytes of a text that are searched for secrets before it is cut, so that one that goes beyond the cut is still found.
const SEARCHED_MAX: usize = 64 << 10;

/// Severity of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// A successful operation.
    #[default]
    Info,
    /// Something was refused.
    Warn,
    /// Something failed.
    Error,
}

/// An entry of the audit log.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Severity of an entry.
    pub level: Level,
    /// Name of the event, such as `sandbox.created`.
    pub event: &'static str,
    /// Id of the sandbox, if there is one.
    pub sandbox_id: Option<String>,
    /// By whose key: the beginning of its hash.
    pub user: Option<String>,
    /// Id of the request, if there is one.
    pub request_id: Option<String>,
    /// Duration in milliseconds.
    pub duration_ms: Option<u64>,
    /// Further fields; `AUDIT_REDACT` applies to these.
    pub details: Map<String, Value>,
}

impl Entry {
    /// Creates an entry for an operation of a caller, with `details` if that is an object.
    pub fn by(event: &'static str, caller: &Caller, request: &RequestId, details: Value) -> Self {
        let details = match details {
            Value::Object(details) => details,
            _ => Map::new(),
        };
        let (user, request_id) = (Some(caller.user.clone()), Some(request.0.clone()));
        Self { event, user, request_id, details, ..Self::default() }
    }
}

/// The audit log. Clones write to the same file.
#[derive(Debug, Clone)]
pub struct Audit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sender: SyncSender<Message>,
    writer: Mutex<Option<JoinHandle<()>>>,
    patterns: Vec<Regex>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(String),
    Close,
}

impl Audit {
    /// Opens the log, made for its owner alone.
    pub fn open(path: &Path, retention: Retention, patterns: Vec<Regex>) -> Result<Self, PrivateError> {
        let file = LogFile::open(path, retention)?;
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let writer = std::thread::Builder::new().name("audit".to_owned());
        let writer = writer.spawn(move || write(file, &receiver, &counted));
        let writer = Mutex::new(Some(writer.map_err(PrivateError::of("start a thread for", path))?));
        Ok(Self { shared: Arc::new(Shared { sender, writer, patterns, lost }) })
    }

    /// Writes an entry down, without waiting for it.
    pub fn record(&self, entry: Entry) {
        let line = line(entry, &self.shared.patterns, Timestamp::now());
        match self.shared.sender.try_send(Message::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                lose(&self.shared.lost, 1, "no room");
            }
        }
    }

    /// Returns the number of entries that could not be written.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Renders the metrics of the audit log.
    pub(crate) fn render(&self, text: &mut String) {
        metrics::head(text, "audit_lost_total", "counter", "Audit entries that were not written.");
        text.push_str(&format!("audit_lost_total {}\n", self.lost()));
    }

    /// Waits until everything recorded so far is written. Later entries are lost, and counted.
    pub fn close(&self) {
        // An error says that the writer is gone already.
        let _ = self.shared.sender.send(Message::Close);
        let writer = self.shared.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("audit log writer failed");
        }
    }
}

fn lose(lost: &AtomicU64, entries: u64, reason: &str) {
    let before = lost.fetch_add(entries, Ordering::Relaxed);
    // The first, and then whenever there are twice as many: a full disk must not fill the other log.
    if before == 0 || before.ilog2() < (before + entries).ilog2() {
        tracing::error!(entries, total = before + entries, reason, "audit entries were lost");
    }
}

fn write(mut file: LogFile, receiver: &Receiver<Message>, lost: &AtomicU64) {
    let count = |written: Result<(), Lost>| {
        if let Err(Lost { lines, error }) = written {
            lose(lost, lines, &error.to_string());
        }
    };
    while let Ok(first) = receiver.recv() {
        let mut closing = false;
        // Whatever waits goes out with one system call.
        for message in std::iter::once(first).chain(receiver.try_iter().take(WAITING_MAX)) {
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

/// Cuts a text to at most `most` bytes and whole characters.
fn cut(text: &mut String, most: usize) {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
}

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
    fn an_entry_is_a_line_of_json_without_what_is_redacted() {
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
    fn of_a_long_text_an_entry_has_the_beginning_the_length_and_the_hash() {
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
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("audit.log");
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
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("audit.log");
        let retention = Retention { max_bytes: 4_096, kept: 1_000 };
        let audit = Audit::open(&path, retention, Vec::new()).unwrap();
        // No more than may wait, so that none is lost however slow the disk is.
        let (threads, each) = (8, WAITING_MAX / 8);
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
        for entry in std::fs::read_dir(place.path()).unwrap() {
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
