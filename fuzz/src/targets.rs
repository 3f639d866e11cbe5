//! Fuzz targets that need no special build. `make fuzz` runs them for long; `tests/tests/fuzz.rs` runs the
//! same functions with a few thousand inputs.

#[path = "../../crates/cli/src/remote/sse.rs"]
mod sse;

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use self::sse::{EVENT_MAX, SseEvent, SseParser};

/// Merges three versions, separated by the byte 0x1e. Whether they conflict must not depend on which side is
/// ours.
pub fn merge(path: &str, bytes: &[u8]) {
    use workspace_merge::{FileSettings, Input, OnConflict, Strategies, Versions, merge_file};

    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == 0x1e).collect();
    let [base, ours, theirs] = parts.as_slice() else { return };
    let strategies = Strategies::default();
    let merged = |ours: &[u8], theirs: &[u8], on_conflict: OnConflict| {
        let versions = Versions { base: Some(base), ours, theirs };
        let settings = FileSettings { on_conflict, ..FileSettings::default() };
        merge_file(&strategies, &settings, &Input::new(path, versions)).expect("the strategy is there")
    };
    let result = merged(ours, theirs, OnConflict::Review);
    let mirrored = merged(theirs, ours, OnConflict::Theirs);
    assert_eq!(result.conflict.is_none(), mirrored.conflict.is_none(), "the verdicts differ");
    merged(ours, theirs, OnConflict::Ours);
}

/// Merges notebooks.
pub fn merge_notebook(bytes: &[u8]) {
    merge("a.ipynb", bytes);
}

/// Parses input of a guest: length-delimited messages if the first byte is even, else an output file.
pub fn guest_protocol(bytes: &[u8]) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory =
        std::env::temp_dir().join(format!("workspace-fuzz-guest-{}-{number}", std::process::id()));
    // Left behind by a killed process with the same PID.
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

/// Parses a stream of events like a client: events must not depend on how their bytes are split, and none may
/// exceed the limit. Also parses the position at which a client resumes, like the server.
pub fn event_stream(bytes: &[u8]) {
    let events = |size: usize| {
        let (mut parser, mut events) = (SseParser::default(), Vec::new());
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
    let fits = |event: &SseEvent| {
        event.data.len() <= EVENT_MAX && event.id.as_ref().is_none_or(|id| !id.contains('\n'))
    };
    assert!(whole.as_ref().is_none_or(|events| events.iter().all(fits)));
    assert_eq!(events(7), whole, "events depend on how their bytes come");
    workspace_server::fuzzing::event_stream_request(bytes);
}

/// Parses a message to a terminal.
pub fn terminal_socket(bytes: &[u8]) {
    workspace_server::fuzzing::terminal_message(bytes);
}

/// Executes requests of an NFS client. Nothing outside the export may change.
#[cfg(target_os = "linux")]
pub fn nfs_requests(bytes: &[u8]) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("workspace-fuzz-nfs-{}-{number}", std::process::id()));
    // Left behind by a killed process with the same PID.
    drop(fs::remove_dir_all(&directory));
    fs::create_dir_all(directory.join("root")).expect("there is room");
    workspace_nfs::fuzzing::execute_requests(bytes, &directory).expect("the directory can be used");
    let outside: Vec<_> =
        fs::read_dir(&directory).expect("it is there").map(|it| it.unwrap().file_name()).collect();
    assert!(outside.iter().all(|name| name == "root" || name == "table"), "{outside:?} is outside");
    // Permissions that were set must not hinder the removal.
    use std::os::unix::fs::PermissionsExt as _;
    drop(fs::set_permissions(directory.join("root"), fs::Permissions::from_mode(0o700)));
    drop(fs::remove_dir_all(&directory));
}

/// Parses settings of a server.
pub fn settings(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        workspace_server::fuzzing::settings(text);
    }
}
