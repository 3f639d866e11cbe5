//! `/api/v1/events`: pages and streams of events.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use workspace_catalog::{Catalog, EventKind, NewEvent};

use crate::support::{Answer, KEY, Server};

/// Open stream of events.
pub(crate) struct EventReader {
    reader: BufReader<TcpStream>,
}

/// Message of a stream.
#[derive(Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) kind: String,
    pub(crate) id: u64,
    pub(crate) data: Value,
}

impl EventReader {
    /// Opens a stream with this query, after an event.
    fn open(server: &Server, key: &str, query: &str, last: Option<u64>) -> Self {
        Self::open_at(server.address, key, &format!("/api/v1/events{query}"), last)
    }

    /// Opens a stream of a route, after an event.
    pub(crate) fn open_at(address: SocketAddr, key: &str, route: &str, last: Option<u64>) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let last = last.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        // HTTP/1.0, so that the body has no chunked encoding.
        let head = format!(
            "GET {route} HTTP/1.0\r\nhost: test\r\nauthorization: Bearer {key}\r\n\
             accept: text/event-stream\r\n{last}\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(socket);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains(" 200 "), "{line}");
        while line != ": events\n" {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0, "no stream");
        }
        Self { reader }
    }

    /// Returns the next message; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Message> {
        let mut message = Message { kind: String::new(), id: 0, data: Value::Null };
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            match line.trim_end_matches('\n').split_once(": ") {
                Some(("event", kind)) => kind.clone_into(&mut message.kind),
                Some(("id", id)) => message.id = id.parse().unwrap(),
                Some(("data", data)) => message.data = serde_json::from_str(data).unwrap(),
                _ if line == "\n" && !message.kind.is_empty() => return Some(message),
                _ => {}
            }
        }
    }

    /// Returns the ids of the next messages.
    fn ids(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next().unwrap().id).collect()
    }
}

async fn insert_into(catalog: &Catalog, owner: &str, sandbox: &str, kind: EventKind) -> u64 {
    let event = NewEvent { kind, data: json!({ "sandboxId": sandbox, "state": "running" }) };
    catalog.events().insert(Some(owner), Some(sandbox), &event).await.unwrap().try_into().unwrap()
}

fn insert(server: &Server, owner: &str, sandbox: &str, kind: EventKind) -> u64 {
    server.runtime.block_on(insert_into(&server.app.catalog, owner, sandbox, kind))
}

fn delete_all(server: &Server) {
    server.runtime.block_on(server.app.catalog.events().delete_before(i64::MAX)).unwrap();
}

/// Creates a key of that owner.
fn key_of(server: &Server, owner: &str) -> String {
    let body = json!({ "name": "a test", "owner": owner, "role": "user" }).to_string();
    let answer = server.call("POST", "/api/v1/keys").key(KEY).json(&body).send();
    answer.json()["key"].as_str().unwrap().to_owned()
}

fn get(server: &Server, key: &str, query: &str) -> Answer {
    server.call("GET", &format!("/api/v1/events{query}")).key(key).send()
}

fn ids(page: &Value) -> Vec<u64> {
    page["items"].as_array().unwrap().iter().map(|event| event["id"].as_u64().unwrap()).collect()
}

#[test]
fn pages_continue_where_the_last_one_ended() {
    let server = Server::new();
    let key = key_of(&server, "alice");
    let empty = get(&server, &key, "").json();
    assert_eq!(empty, json!({ "items": [], "next": 0, "more": false }));
    let all: Vec<u64> =
        (0..5).map(|_| insert(&server, "alice", "sbx-1", EventKind::SandboxRunning)).collect();
    let first = get(&server, &key, "?limit=3").json();
    assert_eq!(
        (ids(&first), &first["more"], &first["next"]),
        (all[..3].to_vec(), &json!(true), &json!(all[2]))
    );
    let second = get(&server, &key, &format!("?limit=3&after={}", first["next"])).json();
    assert_eq!((ids(&second), &second["more"]), (all[3..].to_vec(), &json!(false)));
    let third = get(&server, &key, &format!("?after={}", second["next"])).json();
    assert_eq!(third, json!({ "items": [], "next": all[4], "more": false }));
    let event = &first["items"][0];
    assert_eq!((&event["type"], &event["owner"]), (&json!("sandbox.running"), &json!("alice")));
    assert_eq!((&event["sandboxId"], &event["data"]), (&json!("sbx-1"), &json!({ "state": "running" })));
    assert!(event["time"].as_str().unwrap().ends_with('Z'), "{event}");
}

#[test]
fn only_the_owner_and_admins_see_an_event() {
    let server = Server::new();
    let (alice, bob) = (key_of(&server, "alice"), key_of(&server, "bob"));
    let hers = insert(&server, "alice", "sbx-1", EventKind::SandboxCreated);
    let his = insert(&server, "bob", "sbx-2", EventKind::SandboxCreated);
    let old = NewEvent { kind: EventKind::SandboxCreated, data: json!({}) };
    let old = server.runtime.block_on(server.app.catalog.events().insert(None, Some("sbx-1"), &old)).unwrap();
    let old = u64::try_from(old).unwrap();
    assert_eq!(ids(&get(&server, &alice, "").json()), [hers]);
    assert_eq!(ids(&get(&server, &bob, "").json()), [his]);
    assert_eq!(ids(&get(&server, KEY, "").json()), [hers, his, old]);
    for query in ["?sandbox=sbx-1", "?sandbox=sbx-1&type=sandbox.created"] {
        assert_eq!(ids(&get(&server, &bob, query).json()), [0; 0], "{query}");
        assert_eq!(ids(&get(&server, &alice, query).json()), [hers], "{query}");
        assert_eq!(ids(&get(&server, KEY, query).json()), [hers, old], "{query}");
    }
    let mut streams = [alice.as_str(), &bob, KEY].map(|key| EventReader::open(&server, key, "", None));
    assert_eq!(streams[0].ids(1), [hers]);
    assert_eq!(streams[1].ids(1), [his]);
    assert_eq!(streams[2].ids(3), [hers, his, old]);
    let next = [("alice", 0), ("bob", 1)].map(|(owner, index)| {
        let id = insert(&server, owner, "sbx-3", EventKind::SandboxDeleted);
        assert_eq!(streams[index].ids(1), [id]);
        id
    });
    assert_eq!(streams[2].ids(2), next);
}

#[test]
fn filters_restrict_pages_and_streams() {
    let server = Server::new();
    let key = key_of(&server, "alice");
    let (created, deleted) = (EventKind::SandboxCreated, EventKind::SandboxDeleted);
    let all = [("sbx-1", created), ("sbx-2", created), ("sbx-1", deleted), ("sbx-2", deleted)]
        .map(|(sandbox, kind)| insert(&server, "alice", sandbox, kind));
    for (query, expected) in [
        ("?sandbox=sbx-2", vec![all[1], all[3]]),
        ("?type=sandbox.deleted", vec![all[2], all[3]]),
        ("?type=sandbox.deleted&sandbox=sbx-2", vec![all[3]]),
        ("?sandbox=sbx-none", vec![]),
    ] {
        for key in [key.as_str(), KEY] {
            assert_eq!(ids(&get(&server, key, query).json()), expected, "{query}");
            let mut stream = EventReader::open(&server, key, query, None);
            assert_eq!(stream.ids(expected.len()), expected, "{query}");
        }
    }
    let mut stream = EventReader::open(&server, &key, "?type=sandbox.deleted&sandbox=sbx-1", Some(all[2]));
    for (sandbox, kind) in [("sbx-1", created), ("sbx-2", deleted)] {
        insert(&server, "alice", sandbox, kind);
    }
    let last = insert(&server, "alice", "sbx-1", deleted);
    assert_eq!(stream.ids(1), [last]);
}

#[test]
fn resumed_streams_lose_and_repeat_nothing_while_others_write() {
    const WRITERS: u64 = 4;
    const EACH: usize = 100;
    let server = Server::new();
    let key = key_of(&server, "alice");
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (catalog, sandbox) = (server.app.catalog.clone(), format!("sbx-{number}"));
            server.runtime.spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..EACH {
                    ids.push(insert_into(&catalog, "alice", &sandbox, EventKind::SandboxRunning).await);
                    insert_into(&catalog, "bob", &sandbox, EventKind::SandboxRunning).await;
                }
                ids
            })
        })
        .collect();
    let total = WRITERS as usize * EACH;
    let mut seen: Vec<u64> = Vec::new();
    while seen.len() < total {
        let mut stream = EventReader::open(&server, &key, "", seen.last().copied());
        let count = (total - seen.len()).min(37);
        seen.extend(stream.ids(count));
    }
    let mut written: Vec<u64> =
        writers.into_iter().flat_map(|writer| server.runtime.block_on(writer).unwrap()).collect();
    written.sort_unstable();
    assert_eq!(seen, written);
}

#[test]
fn a_reader_behind_the_stored_events_gets_a_gap() {
    let server = Server::new();
    let (alice, bob) = (key_of(&server, "alice"), key_of(&server, "bob"));
    let insert = |owner: &str| insert(&server, owner, "sbx-1", EventKind::SandboxRunning);
    let deleted: Vec<u64> = (0..3).map(|_| insert("alice")).collect();
    let his = insert("bob");
    let mut open = EventReader::open(&server, &alice, "", None);
    assert_eq!(open.ids(3), deleted);
    delete_all(&server);
    let kept = insert("alice");
    let gap = json!({ "from": deleted[0] + 1, "to": deleted[2] });
    let page = get(&server, &alice, &format!("?after={}", deleted[0])).json();
    assert_eq!((&page["gap"], ids(&page)), (&gap, vec![kept]));
    let mut stream = EventReader::open(&server, &alice, "", Some(deleted[0]));
    assert_eq!(stream.next().unwrap(), Message { kind: "gap".to_owned(), id: deleted[0], data: gap });
    assert_eq!(stream.ids(1), [kept]);
    // A reader that has them, and one that asks for no position, miss nothing.
    for query in [format!("?after={}", deleted[2]), String::new()] {
        let page = get(&server, &alice, &query).json();
        assert_eq!((&page["gap"], ids(&page)), (&Value::Null, vec![kept]), "{query}");
        assert_eq!(EventReader::open(&server, &alice, &query, None).ids(1), [kept], "{query}");
    }
    assert_eq!(open.ids(1), [kept], "a stream that sent them has no gap");
    let mut others = EventReader::open(&server, &bob, "?after=0", None);
    assert_eq!(others.next().unwrap().data, json!({ "from": 1, "to": his }), "a gap of his own events");
}

#[test]
fn events_of_another_server_on_the_same_catalog_are_streamed() {
    let one = Server::new();
    let url = workspace_catalog::sqlite_url(&one.data.path().join("catalog.db"));
    let other = Server::with(&[("DATABASE_URL", &url)]);
    let key = key_of(&one, "alice");
    let mut streams = [&one, &other].map(|server| EventReader::open(server, &key, "", None));
    for server in [&one, &other] {
        let id = insert(server, "alice", "sbx-1", EventKind::SandboxRunning);
        for stream in &mut streams {
            assert_eq!(stream.ids(1), [id]);
        }
    }
}

#[test]
fn a_stream_ends_with_its_key_and_with_the_server() {
    let server = Server::new();
    let key = key_of(&server, "alice");
    let (mut revoked, mut kept) =
        (EventReader::open(&server, &key, "", None), EventReader::open(&server, KEY, "", None));
    let keys = server.call("GET", "/api/v1/keys").key(KEY).send().json();
    let id =
        keys["items"].as_array().unwrap().iter().find(|key| key["owner"] == "alice").unwrap()["id"].clone();
    let path = format!("/api/v1/keys/{}", id.as_str().unwrap());
    assert_eq!(server.call("DELETE", &path).key(KEY).send().status, 204);
    let event = insert(&server, "alice", "sbx-1", EventKind::SandboxRunning);
    assert_eq!(revoked.next(), None);
    assert_eq!(kept.ids(1), [event]);
    server.app.shutdown.begin();
    assert_eq!(kept.next(), None);
}

#[test]
fn streams_of_an_owner_are_limited() {
    let server = Server::new();
    let (alice, bob) = (key_of(&server, "alice"), key_of(&server, "bob"));
    let mut streams: Vec<_> = (0..16).map(|_| EventReader::open(&server, &alice, "", None)).collect();
    let call = server.call("GET", "/api/v1/events").key(&alice);
    let refused = call.header("accept", "text/event-stream").send();
    assert_eq!(refused.error(), "CONNECTION_LIMIT_EXCEEDED");
    assert_eq!(refused.json()["error"]["details"]["limit"], 16);
    assert_eq!(get(&server, &alice, "").status, 200, "pages are not limited");
    let _other = EventReader::open(&server, &bob, "", None);
    let count = |text: &str| text.lines().find(|line| line.starts_with("event_streams ")).unwrap().to_owned();
    assert_eq!(count(&server.call("GET", "/metrics").key(KEY).send().body), "event_streams 17");
    streams.pop();
    // The server notices the disconnect a little later.
    while server.app.metrics.render().contains("event_streams 17") {
        std::thread::sleep(Duration::from_millis(10));
    }
    EventReader::open(&server, &alice, "", None);
}

#[test]
fn invalid_positions_and_filters_are_refused() {
    let server = Server::new();
    let key = key_of(&server, "alice");
    let last = insert(&server, "alice", "sbx-1", EventKind::SandboxRunning);
    for query in [
        "?after=-1".to_owned(),
        "?after=x".to_owned(),
        "?after=18446744073709551615".to_owned(),
        "?after=99999999999999999999".to_owned(),
        format!("?after={}", last + 1),
        "?limit=0".to_owned(),
        "?limit=1001".to_owned(),
        "?type=sandbox.unheard".to_owned(),
        "?type=".to_owned(),
        "?sandbox=a%00b".to_owned(),
        "?project=a%00b".to_owned(),
        "?colour=red".to_owned(),
        "?after=0&after=0".to_owned(),
    ] {
        for accept in ["application/json", "text/event-stream"] {
            let call =
                server.call("GET", &format!("/api/v1/events{query}")).key(&key).header("accept", accept);
            assert_eq!(call.send().error(), "INVALID_REQUEST", "{query} {accept}");
        }
    }
    for last in ["", "x", "-1", "18446744073709551616"] {
        let call = server.call("GET", "/api/v1/events").key(&key).header("last-event-id", last);
        assert_eq!(call.send().error(), "INVALID_REQUEST", "{last}");
    }
    for query in ["?sandbox=", "?sandbox=%27%20OR%201=1--", "?sandbox=%ff"] {
        let answer = get(&server, &key, query);
        assert!(matches!(answer.status, 200 | 400), "{query}: {}", answer.body);
        if answer.status == 200 {
            assert_eq!(ids(&answer.json()), [0; 0], "{query}");
        }
    }
    assert_eq!(server.call("GET", "/api/v1/events").send().error(), "UNAUTHORIZED");
    assert_eq!(server.call("POST", "/api/v1/events").key(&key).send().error(), "METHOD_NOT_ALLOWED");
}
