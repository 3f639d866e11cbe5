//! Watches of directories and files.

use serde_json::{Value, json};

use super::files::FileServer;
use super::stream::{Event, Stream};
use super::test_server::wait_until;

fn watch(fixture: &FileServer, path: &str) -> Stream {
    Stream::watch(&fixture.server, &fixture.id, path).begun()
}

/// Reads events up to one of this kind and path, and returns it.
#[track_caller]
fn until(stream: &mut Stream, kind: &str, path: &str) -> Value {
    let mut seen: Vec<Event> = Vec::new();
    loop {
        let Some(event) = stream.next() else { panic!("no {kind} {path:?} after {seen:?}") };
        if event.kind == kind && event.data["path"].as_str().unwrap_or_default() == path {
            assert_eq!(event.data["type"], kind);
            return event.data;
        }
        seen.push(event);
    }
}

#[test]
fn changes_are_streamed() {
    let fixture = FileServer::new();
    fixture.output_of("mkdir d");
    let mut stream = watch(&fixture, "workspace/d");
    fixture.output_of("echo x > d/a");
    assert_eq!(until(&mut stream, "created", "a")["directory"], false);
    until(&mut stream, "modified", "a");
    fixture.output_of("chmod 600 d/a");
    until(&mut stream, "attributes", "a");
    fixture.output_of("mv d/a d/b");
    assert_eq!(until(&mut stream, "renamed", "b")["from"], "a");
    fixture.output_of("mkdir d/sub; rm d/b; touch d/sub/not-watched");
    assert_eq!(until(&mut stream, "created", "sub")["directory"], true);
    until(&mut stream, "removed", "b");
    // Files that the API writes are changes, too.
    assert_eq!(fixture.put("workspace/d/c", b"x").status, 200);
    until(&mut stream, "created", "c");
    assert_eq!(fixture.put("workspace/d/c", b"y").status, 200);
    until(&mut stream, "renamed", "c");
    fixture.output_of("rm -r d");
    until(&mut stream, "removed", "");
    let last = stream.rest().pop().unwrap();
    assert_eq!(
        (last.kind.as_str(), &last.data["reason"]),
        ("ended", &json!("the watched entry was removed"))
    );
}

#[test]
fn a_recursive_watch_includes_new_directories() {
    let fixture = FileServer::new();
    fixture.output_of("mkdir -p d/one");
    let mut stream = watch(&fixture, "workspace/d?recursive=true");
    fixture.output_of("echo x > d/one/a; mkdir -p d/two/three");
    until(&mut stream, "created", "one/a");
    until(&mut stream, "created", "two/three");
    fixture.output_of("echo x > d/two/three/b; mv d/two d/new; echo y > d/new/three/c");
    until(&mut stream, "created", "two/three/b");
    assert_eq!(until(&mut stream, "renamed", "new")["from"], "two");
    until(&mut stream, "created", "new/three/c");
}

#[test]
fn a_watch_continues_after_dropped_changes() {
    let fixture = FileServer::new();
    fixture.output_of("mkdir d");
    let mut stream = watch(&fixture, "workspace/d?recursive=true");
    // Nobody reads the stream, so the kernel's queue becomes full before the directory is created.
    fixture.output_of("cd d; seq 1 40000 | xargs touch; mkdir late");
    until(&mut stream, "dropped", "");
    fixture.output_of("echo x > d/late/file");
    until(&mut stream, "created", "late/file");
}

#[test]
fn a_watch_ends_with_a_restore() {
    let fixture = FileServer::new();
    fixture.output_of("mkdir d");
    let commit = fixture.server.post(&fixture.route("commit"), &json!({})).json();
    let mut stream = watch(&fixture, "workspace/d");
    let restored =
        fixture.server.post(&fixture.route("restore"), &json!({"snapshot": commit["snapshot"]["id"]}));
    assert_eq!(restored.status, 200, "{}", restored.body);
    assert_eq!(stream.rest().pop().unwrap().kind, "ended");
}

#[test]
fn the_number_of_watches_is_limited() {
    let fixture = FileServer::new();
    let route = fixture.route("watch/workspace");
    let mut streams: Vec<Stream> = (0..16).map(|_| watch(&fixture, "workspace")).collect();
    let refused = fixture.server.get(&route);
    assert_eq!(
        (refused.error().as_str(), &refused.json()["error"]["details"]["limit"]),
        ("TRANSFER_LIMIT_EXCEEDED", &json!(16))
    );
    assert_eq!(fixture.call("GET", "watch/workspace/none").send().error(), "TRANSFER_LIMIT_EXCEEDED");
    streams.truncate(15);
    wait_until("there is a place again", || {
        fixture.call("GET", "watch/workspace/none").send().error() == "PATH_NOT_FOUND"
    });
}
