//! Fuzz targets that need no special build. `make fuzz` runs them for long; `tests/tests/fuzz.rs` runs the same functions with a few
//! thousand inputs.

#[path = "../../crates/cli/src/remote/events.rs"]
mod events;

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use self::events::{EVENT_MAX, Event, Parser};

/// Three versions that are merged, divided by the byte 0x1e. Whoever is ours, the verdict is the same.
pub fn merge(path: &str, bytes: &[u8]) {
    use workspace_merge::{FileRule, Input, OnConflict, Strategies, Versions, merge_file};

    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == 0x1e).collect();
    let [base, ours, theirs] = parts.as_slice() else { return };
    let strategies = Strategies::default();
    let merged = |ours: &[u8], theirs: &[u8], on_conflict: OnConflict| {
        let versions = Versions { base: Some(base), ours, theirs };
        let rule = FileRule { on_conflict, ..FileRule::default() };
        merge_file(&strategies, &rule, &Input::new(path, versions)).expect("the strategy is there")
    };
    let result = merged(ours, theirs, OnConflict::Review);
    let mirrored = merged(theirs, ours, OnConflict::Theirs);
    assert_eq!(result.conflict.is_none(), mirrored.conflict.is_none(), "the verdicts differ");
    merged(ours, theirs, OnConflict::Ours);
}

/// Notebooks that are merged.
pub fn merge_notebook(bytes: &[u8]) {
    merge("a.ipynb", bytes);
}

/// A guest that says anything. If the first byte is even, messages, each behind its length; else a file of output.
pub fn guest_protocol(bytes: &[u8]) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory =
        std::env::temp_dir().join(format!("workspace-fuzz-guest-{}-{number}", std::process::id()));
    // Of a process of the same number that was killed.
    drop(fs::remove_dir_all(&directory));
    fs::create_dir(&directory).expect("there is room");
    let heard = if kind % 2 == 0 {
        workspace_sandbox::fuzzing::handle_messages(bytes, &directory)
    } else {
        workspace_sandbox::fuzzing::read_segment(bytes, &directory)
    };
    fs::remove_dir_all(&directory).expect("it is there");
    heard.expect("the directory can be used");
}

/// A stream of events as a client reads it: events are the same however their bytes come, and none is longer than allowed. And
/// where a client wants to go on, as the server reads it.
pub fn event_stream(bytes: &[u8]) {
    let events = |size: usize| {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        for piece in bytes.chunks(size) {
            parser.push(piece);
            loop {
                match parser.next() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(_) => return None,
                }
            }
        }
        Some(events)
    };
    let whole = events(bytes.len().max(1));
    let fits = |event: &Event| {
        event.data.len() <= EVENT_MAX && event.id.as_ref().is_none_or(|id| !id.contains('\n'))
    };
    assert!(whole.as_ref().is_none_or(|events| events.iter().all(fits)));
    assert_eq!(events(7), whole, "events depend on how their bytes come");
    workspace_server::fuzzing::event_stream_request(bytes);
}

/// A message to a terminal.
pub fn terminal_socket(bytes: &[u8]) {
    workspace_server::fuzzing::terminal_message(bytes);
}

/// Settings of a server.
pub fn settings(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        workspace_server::fuzzing::settings(text);
    }
}
