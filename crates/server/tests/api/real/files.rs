//! Files of a sandbox: reading, writing, listing and changing them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::test_server::{TestServer, wait_until};
use crate::support::{Answer, Call, KEY};

/// Server with one sandbox.
pub(super) struct FileServer {
    pub(super) server: TestServer,
    pub(super) id: String,
}

impl FileServer {
    pub(super) fn new() -> Self {
        Self::with(&[])
    }

    pub(super) fn with(variables: &[(&str, &str)]) -> Self {
        let server = TestServer::with(variables);
        let id = server.create();
        Self { server, id }
    }

    pub(super) fn route(&self, path: &str) -> String {
        format!("/api/v1/sandboxes/{}/{path}", self.id)
    }

    /// Creates a request for a route of the sandbox, such as `files/workspace/a`.
    pub(super) fn call(&self, method: &str, path: &str) -> Call {
        self.server.call(method, &self.route(path))
    }

    pub(super) fn put(&self, path: &str, content: &[u8]) -> Answer {
        self.call("PUT", &format!("files/{path}")).body(content).send()
    }

    pub(super) fn read(&self, path: &str) -> (Answer, Vec<u8>) {
        self.call("GET", &format!("files/{path}")).send_for_bytes()
    }

    fn error(&self, path: &str) -> String {
        self.call("GET", path).send().error()
    }

    fn entries(&self, path: &str) -> Value {
        let answer = self.call("GET", &format!("entries/{path}")).send();
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    fn batch(&self, operations: &Value) -> Answer {
        self.server.post(&self.route("files"), &json!({ "operations": operations }))
    }

    pub(super) fn output_of(&self, command: &str) -> String {
        self.server.output_of(&self.id, command)
    }
}

/// Returns bytes without a pattern.
pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn files_of_any_size_are_written_and_read() {
    let fixture = FileServer::new();
    for size in [0, 1, 65_536, 65_537, 3 << 20] {
        let content = noise(size);
        let written = fixture.put("workspace/file", &content);
        assert_eq!(written.status, 200, "{}", written.body);
        let entry = written.json();
        assert_eq!((&entry["path"], &entry["kind"]), (&json!("/workspace/file"), &json!("file")));
        assert_eq!((&entry["mode"], &entry["size"]), (&json!("0644"), &json!(size)));
        let (answer, found) = fixture.read("workspace/file");
        assert!(answer.status == 200 && found == content, "{size}: {}", answer.head);
        assert_eq!(answer.header("etag"), entry["etag"].as_str());
        assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
        assert_eq!(answer.header("content-disposition"), Some("attachment"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("content-length"), Some(size.to_string().as_str()));
        assert!(answer.header("last-modified").is_some_and(|time| time.ends_with(" GMT")));
    }
    assert_eq!(fixture.output_of("ls -A"), "file\n", "temporary files are gone");
    assert_eq!(fixture.call("DELETE", "files/workspace/file").send().status, 204);
    let missing = fixture.call("GET", "files/workspace/file").send();
    assert_eq!(missing.error(), "PATH_NOT_FOUND");
    assert_eq!(missing.json()["error"]["details"]["path"], "/workspace/file");
    assert_eq!(fixture.call("DELETE", "files/workspace/file").send().error(), "PATH_NOT_FOUND");
}

#[test]
fn a_write_sets_the_mode_and_creates_parents() {
    let fixture = FileServer::new();
    assert_eq!(fixture.put("workspace/a/b/file", b"x").error(), "PATH_NOT_FOUND");
    let written = fixture.put("workspace/a/b/file?mkdirs=true&mode=0750", b"x");
    assert_eq!((written.status, &written.json()["mode"]), (200, &json!("0750")));
    // A later write keeps the mode.
    assert_eq!(fixture.put("workspace/a/b/file", b"y").json()["mode"], "0750");
    assert_eq!(fixture.output_of("stat -c %a a/b/file; cat a/b/file"), "750\ny");
    for query in ["mode=9", "mode=rwx", "mkdirs=maybe", "archive=zip", "force=true"] {
        assert_eq!(fixture.put(&format!("workspace/x?{query}"), b"x").error(), "INVALID_REQUEST", "{query}");
    }
    assert_eq!(fixture.put("workspace/a", b"x").error(), "NOT_A_FILE");
    let full = fixture.call("DELETE", "files/workspace/a").send();
    assert_eq!(full.error(), "FILE_CONFLICT", "{}", full.body);
    assert_eq!(fixture.call("DELETE", "files/workspace/a?recursive=true").send().status, 204);
    assert_eq!(fixture.output_of("ls -A"), "");
}

#[test]
fn ranges_of_a_file_are_sent() {
    let fixture = FileServer::new();
    let content = noise(200_000);
    fixture.put("workspace/file", &content);
    let range =
        |range: &str| fixture.call("GET", "files/workspace/file").header("range", range).send_for_bytes();
    for (text, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=10-99999", 10, 100_000),
        ("bytes=199990-", 199_990, 200_000),
        ("bytes=-7", 199_993, 200_000),
        ("bytes=-300000", 0, 200_000),
        ("bytes=5-999999999", 5, 200_000),
    ] {
        let (answer, found) = range(text);
        assert_eq!(answer.status, 206, "{text}");
        assert!(found == content[from..to], "{text}");
        let expected = format!("bytes {from}-{}/200000", to - 1);
        assert_eq!(answer.header("content-range"), Some(expected.as_str()));
    }
    for text in ["bytes=200000-", "bytes=-0"] {
        let (answer, _) = range(text);
        assert_eq!(
            (answer.error().as_str(), answer.header("content-range")),
            ("RANGE_NOT_SATISFIABLE", Some("bytes */200000"))
        );
    }
    for text in ["bytes=0-1,5-6", "lines=1-2", "bytes=x"] {
        let (answer, found) = range(text);
        assert!(answer.status == 200 && found == content, "{text}");
    }
    let (head, body) =
        fixture.call("HEAD", "files/workspace/file").header("range", "bytes=0-1").send_for_bytes();
    assert_eq!((head.status, head.header("content-length"), body.len()), (200, Some("200000"), 0));
}

#[test]
fn reads_obey_conditions() {
    let fixture = FileServer::new();
    let tag = fixture.put("workspace/file", b"content").json()["etag"].as_str().unwrap().to_owned();
    let get =
        |name: &str, value: &str| fixture.call("GET", "files/workspace/file").header(name, value).send();
    for known in [tag.as_str(), "*", &format!("\"other\", {tag}"), &format!("W/{tag}")] {
        let answer = get("if-none-match", known);
        assert_eq!((answer.status, answer.body.as_str()), (304, ""), "{known}");
        assert_eq!(answer.header("etag"), Some(tag.as_str()));
    }
    assert_eq!(get("if-none-match", "\"other\"").body, "content");
    for known in [tag.as_str(), "*"] {
        assert_eq!(get("if-match", known).body, "content", "{known}");
    }
    for known in ["\"other\"", &format!("W/{tag}")] {
        assert_eq!(get("if-match", known).error(), "PRECONDITION_FAILED", "{known}");
    }
    let resumed = |known: &str| {
        let call = fixture.call("GET", "files/workspace/file").header("range", "bytes=3-");
        let answer = call.header("if-range", known).send();
        (answer.status, answer.body)
    };
    assert_eq!(resumed(&tag), (206, "tent".to_owned()));
    assert_eq!(resumed("\"other\""), (200, "content".to_owned()));
}

#[test]
fn writes_obey_conditions() {
    let fixture = FileServer::new();
    let put = |name: &str, value: &str, content: &[u8]| {
        fixture.call("PUT", "files/workspace/file").header(name, value).body(content).send()
    };
    // Small content is sent to the sandbox in one message, larger content in pieces.
    for size in [10, 100_000] {
        let (old, new) = (vec![b'o'; size], vec![b'n'; size]);
        assert_eq!(put("if-match", "*", &old).error(), "PRECONDITION_FAILED");
        let first = put("if-none-match", "*", &old);
        assert_eq!(first.status, 200, "{}", first.body);
        let tag = first.json()["etag"].as_str().unwrap().to_owned();
        assert_eq!(put("if-none-match", "*", &new).error(), "PRECONDITION_FAILED");
        assert_eq!(put("if-match", "\"1-2-3-4\"", &new).error(), "PRECONDITION_FAILED");
        assert_eq!(put("if-match", "\"of another server\"", &new).error(), "PRECONDITION_FAILED");
        assert!(fixture.read("workspace/file").1 == old);
        let second = put("if-match", &format!("\"1-2-3-4\", {tag}"), &new);
        assert_eq!(second.status, 200, "{}", second.body);
        assert_eq!(
            put("if-match", &tag, &old).error(),
            "PRECONDITION_FAILED",
            "the tag is that of the old file"
        );
        assert!(fixture.read("workspace/file").1 == new);
        assert_eq!(fixture.call("DELETE", "files/workspace/file").send().status, 204);
    }
    assert_eq!(put("if-none-match", "\"1-2-3-4\"", b"x").error(), "INVALID_REQUEST");
    assert_eq!(fixture.output_of("ls -A"), "");
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let fixture = FileServer::new();
    fixture.output_of("mkdir -p a/b; ln -s a link; ln -s . here");
    for to in ["a/copy", "a/b/copy", "link/copy", "link/b/copy", "a", "here/a"] {
        let copy = json!({"op": "copy", "from": "/workspace/a", "to": format!("/workspace/{to}"),
            "recursive": true, "replace": true});
        let failed = fixture.batch(&json!([copy])).json();
        assert_eq!(failed["failed"]["error"]["name"], "INVALID_REQUEST", "{to}: {failed}");
    }
    assert_eq!(fixture.output_of("find a"), "a\na/b\n");
}

#[test]
fn a_batch_stops_at_the_first_failure() {
    let fixture = FileServer::new();
    let done = fixture.batch(&json!([
        {"op": "mkdir", "path": "/workspace/a/b", "parents": true},
        {"op": "write", "path": "/workspace/a/b/text", "text": "h\u{e9}llo"},
        {"op": "write", "path": "/workspace/a/b/bytes", "base64": "/wA=", "mode": "0600"},
        {"op": "copy", "from": "/workspace/a", "to": "/workspace/c", "recursive": true},
        {"op": "move", "from": "/workspace/a/b/text", "to": "/workspace/moved"},
        {"op": "chmod", "path": "/workspace/moved", "mode": "0440"},
        {"op": "remove", "path": "/workspace/a", "recursive": true},
        {"op": "remove", "path": "/workspace/none", "force": true},
    ]));
    assert_eq!((done.status, done.json()), (200, json!({"completed": 8})), "{}", done.body);
    assert_eq!(
        fixture.output_of("cat moved c/b/text; stat -c %a moved c/b/bytes; ls"),
        "h\u{e9}lloh\u{e9}llo440\n600\nc\nmoved\n"
    );
    let failed = fixture.batch(&json!([
        {"op": "write", "path": "/workspace/one", "text": "1"},
        {"op": "write", "path": "/workspace/one", "text": "2", "ifNoneMatch": "*"},
        {"op": "write", "path": "/workspace/three", "text": "3"},
    ]));
    assert_eq!(failed.status, 200);
    let result = failed.json();
    assert_eq!((&result["completed"], &result["failed"]["index"]), (&json!(1), &json!(1)));
    let error = &result["failed"]["error"];
    assert_eq!((&error["name"], &error["code"]), (&json!("PRECONDITION_FAILED"), &json!(4203)));
    assert_eq!(fixture.output_of("cat one; ls"), "1c\nmoved\none\n");
    let exists =
        fixture.batch(&json!([{"op": "move", "from": "/workspace/one", "to": "/workspace/moved"}])).json();
    assert_eq!(exists["failed"]["error"]["name"], "FILE_CONFLICT");
}

#[test]
fn invalid_batches_change_nothing() {
    let fixture = FileServer::new();
    let write = json!({"op": "write", "path": "/workspace/a", "text": "x"});
    for wrong in [
        json!([write, {"op": "dance", "path": "/workspace/a"}]),
        json!([write, {"op": "mkdir", "path": "relative"}]),
        json!([write, {"op": "mkdir", "path": "/workspace/../etc"}]),
        json!([write, {"op": "chmod", "path": "/workspace/a", "mode": "x"}]),
        json!([write, {"op": "write", "path": "/workspace/a", "text": "", "base64": ""}]),
        json!([write, {"op": "remove", "path": "/workspace/a", "verbose": true}]),
        json!(vec![write.clone(); 1_001]),
    ] {
        let answer = fixture.batch(&wrong);
        assert_eq!(answer.error(), "INVALID_REQUEST", "{}", answer.body);
    }
    let large = json!([{"op": "write", "path": "/workspace/a", "text": "x".repeat(1 << 20)}]);
    assert_eq!(fixture.batch(&large).error(), "PAYLOAD_TOO_LARGE");
    assert_eq!(fixture.output_of("ls -A"), "");
}

#[test]
fn directories_are_listed_in_pages() {
    let fixture = FileServer::new();
    fixture.output_of("mkdir -p d/sub; cd d; seq -w 25 | xargs touch; echo inner > sub/x; ln -s sub link");
    let page = |query: &str| fixture.entries(&format!("workspace/d?{query}"));
    let names = |listing: &Value| -> Vec<String> {
        listing["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["path"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = page("limit=10");
    assert_eq!((&first["total"], &first["page"], &first["limit"]), (&json!(27), &json!(1), &json!(10)));
    assert_eq!(first["entry"]["kind"], "directory");
    let all: Vec<String> =
        (1..=4).flat_map(|number| names(&page(&format!("limit=10&page={number}")))).collect();
    let mut expected: Vec<String> = (1..=25).map(|number| format!("{number:02}")).collect();
    expected.extend(["link".to_owned(), "sub".to_owned()]);
    assert_eq!(all, expected);
    let deep = page("depth=2&limit=1000");
    assert_eq!((names(&deep).last().unwrap().as_str(), &deep["total"]), ("sub/x", &json!(28)));
    let link = &deep["items"][25];
    assert_eq!((&link["kind"], &link["target"]), (&json!("symlink"), &json!("sub")));
    // A symlink at the path is followed, unless the request says otherwise.
    assert_eq!(names(&fixture.entries("workspace/d/link")), ["x"]);
    let itself = fixture.entries("workspace/d/link?follow=false");
    assert_eq!((&itself["entry"]["kind"], itself.get("items")), (&json!("symlink"), None));
    let file = fixture.entries("workspace/d/sub/x");
    assert_eq!((&file["entry"]["size"], file.get("items"), &file["total"]), (&json!(6), None, &json!(0)));
    assert!(names(&fixture.entries("")).contains(&"workspace".to_owned()), "the root can be listed");
    for (path, error) in [
        ("workspace/none", "PATH_NOT_FOUND"),
        ("workspace/d/sub/x/y", "FILE_CONFLICT"),
        ("workspace/d?depth=0", "INVALID_REQUEST"),
        ("workspace/d?depth=33", "INVALID_REQUEST"),
        ("workspace/d?limit=1001", "INVALID_REQUEST"),
        ("workspace/d?page=0", "INVALID_REQUEST"),
    ] {
        assert_eq!(fixture.error(&format!("entries/{path}")), error, "{path}");
    }
}

#[test]
fn names_need_not_be_utf_8() {
    let fixture = FileServer::new();
    assert_eq!(fixture.put("workspace/%FF%0A%22", b"x").status, 200);
    assert_eq!(fixture.output_of("for f in *; do printf %s \"$f\" | od -An -tx1; done").trim(), "ff 0a 22");
    let listing = fixture.entries("workspace");
    assert_eq!(listing["items"][0]["path"], "\"\\377\\n\\\"\"");
    assert_eq!(fixture.read("workspace/%ff%0a%22").1, b"x");
    let renamed = json!([{"op": "move", "from": "\"/workspace/\\377\\n\\\"\"", "to": "/workspace/a%20b c"}]);
    assert_eq!(fixture.batch(&renamed).json(), json!({"completed": 1}));
    assert_eq!(fixture.read("workspace/a%2520b%20c").1, b"x");
    for path in ["workspace/%", "workspace/%zz", "workspace/..", "workspace/%2e%2e/etc", "workspace/a%00b"] {
        assert_eq!(fixture.error(&format!("files/{path}")), "INVALID_REQUEST", "{path}");
    }
}

#[test]
fn only_regular_files_are_read_and_replaced() {
    let fixture = FileServer::new();
    fixture.output_of(
        "mkfifo fifo; mkdir directory; touch denied; chmod 000 denied; echo inside > file; ln -s file link",
    );
    fixture.output_of(
        "ln -s /etc/passwd outside; ln -s loop loop; mkdir closed; touch closed/x; chmod 000 closed",
    );
    for (path, error) in [
        ("workspace/fifo", "NOT_A_FILE"),
        ("workspace/directory", "NOT_A_FILE"),
        ("dev/null", "NOT_A_FILE"),
        ("dev/zero", "NOT_A_FILE"),
        ("proc/self/status", "NOT_A_FILE"),
        ("workspace/denied", "FILE_DENIED"),
        ("workspace/closed/x", "FILE_DENIED"),
        ("workspace/loop", "INVALID_REQUEST"),
        ("workspace/file/below", "FILE_CONFLICT"),
    ] {
        assert_eq!(fixture.error(&format!("files/{path}")), error, "{path}");
        let head = fixture.call("HEAD", &format!("files/{path}")).send_for_bytes().0;
        assert!((400..500).contains(&head.status), "{path}: {}", head.head);
    }
    // Symlinks lead to files of the sandbox.
    assert_eq!(fixture.read("workspace/link").1, b"inside\n");
    assert_eq!(fixture.read("workspace/outside").1, fixture.output_of("cat /etc/passwd").as_bytes());
    assert_eq!(fixture.put("workspace/link", b"new").status, 200);
    assert_eq!(fixture.output_of("cat file; readlink link"), "newfile\n");
    for (path, error) in
        [("workspace/fifo", "NOT_A_FILE"), ("dev/null", "NOT_A_FILE"), ("workspace/closed/y", "FILE_DENIED")]
    {
        assert_eq!(fixture.put(path, b"x").error(), error, "{path}");
    }
    // The sandbox denied access to a file, not the API: the audit log does not have the event for the latter.
    let audited = || std::fs::read_to_string(fixture.server.path().join("audit.log")).unwrap();
    wait_until("the write is audited", || audited().contains("file.written"));
    assert!(!audited().contains("auth.forbidden"), "{}", audited());
}

#[test]
fn files_of_sandboxes_that_do_not_run_are_not_available() {
    let fixture = FileServer::new();
    assert_eq!(fixture.put("workspace/file", b"x").status, 200);
    fixture.server.delete(&fixture.id);
    for (method, path) in [("GET", "files/workspace/file"), ("GET", "entries/workspace"), ("GET", "ports")] {
        assert_eq!(fixture.call(method, path).send().error(), "SANDBOX_NOT_FOUND", "{path}");
    }
}

/// Calls a signed URL without a key.
fn by_url(fixture: &FileServer, method: &str, body: &Value, content: &[u8]) -> Answer {
    let made = fixture.server.post(&fixture.route("signed-url"), body);
    assert_eq!(made.status, 201, "{}", made.body);
    let url = made.json()["url"].as_str().unwrap().to_owned();
    let path = url.strip_prefix("http://test").unwrap();
    Call::new(fixture.server.address(), method, path).body(content).send()
}

#[test]
fn a_signed_url_reads_or_writes_one_file() {
    let fixture = FileServer::new();
    let write = json!({"path": "/workspace/a b", "method": "PUT", "maxBytes": 100_000});
    assert_eq!(by_url(&fixture, "PUT", &write, b"small").status, 200);
    assert_eq!(by_url(&fixture, "PUT", &write, &noise(100_000)).status, 200);
    assert_eq!(by_url(&fixture, "PUT", &write, &noise(100_001)).error(), "PAYLOAD_TOO_LARGE");
    assert_eq!(by_url(&fixture, "GET", &write, b"").error(), "UNAUTHORIZED");
    let read = json!({"path": "/workspace/a b", "method": "GET"});
    let answer = by_url(&fixture, "GET", &read, b"");
    assert_eq!((answer.status, answer.header("content-length")), (200, Some("100000")));
    assert_eq!(by_url(&fixture, "DELETE", &read, b"").error(), "UNAUTHORIZED");
}

#[test]
fn tokens_need_the_right_for_files() {
    let fixture = FileServer::new();
    let token = |rights: &Value| {
        let made = fixture.server.post(&fixture.route("token"), &json!({ "rights": rights }));
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["token"].as_str().unwrap().to_owned()
    };
    let (reader, writer) = (token(&json!(["files:read"])), token(&json!(["files:write"])));
    let status = |token: &str, method: &str, path: &str| {
        fixture.server.call_as(token, method, &fixture.route(path)).body(b"x").send().status
    };
    assert_eq!(status(&writer, "PUT", "files/workspace/file"), 200);
    assert_eq!(status(&reader, "GET", "files/workspace/file"), 200);
    assert_eq!(status(&reader, "GET", "entries/workspace"), 200);
    for (token, method, path) in [
        (&reader, "PUT", "files/workspace/file"),
        (&reader, "DELETE", "files/workspace/file"),
        (&writer, "GET", "files/workspace/file"),
        (&writer, "GET", "entries/workspace"),
        (&reader, "GET", "ports"),
    ] {
        assert_eq!(status(token, method, path), 403, "{method} {path}");
    }
}

/// Sends the head of a `PUT` and a part of its body.
fn begin_put(fixture: &FileServer, length: usize, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let route = fixture.route("files/workspace/file");
    let head = format!(
        "PUT {route} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {KEY}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), sent].concat()).unwrap();
    stream
}

#[test]
fn a_client_that_leaves_in_the_middle_keeps_the_old_file() {
    let fixture = FileServer::new();
    fixture.put("workspace/file", b"old");
    let part = noise(1 << 20);
    // A sandbox can have fewer transfers at once than this, so the earlier ones must have ended.
    for _ in 0..20 {
        drop(begin_put(&fixture, 4 << 20, &part));
        assert_eq!(fixture.read("workspace/file").1, b"old");
    }
    assert_eq!(fixture.put("workspace/file", &part).status, 200);
    assert!(fixture.read("workspace/file").1 == part);
    assert_eq!(fixture.output_of("ls -A"), "file\n");
}

#[test]
fn a_file_above_the_limit_is_refused() {
    let fixture = FileServer::with(&[("MAX_UPLOAD", "1m")]);
    assert_eq!(fixture.put("workspace/file", &noise(1 << 20)).status, 200);
    let refused = fixture.put("workspace/other", &noise((1 << 20) + 1));
    assert_eq!(refused.error(), "PAYLOAD_TOO_LARGE");
    assert_eq!(refused.json()["error"]["details"]["setting"], "MAX_UPLOAD");
    // A chunked body has no length in advance.
    let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
    let route = fixture.route("files/workspace/other");
    let head = format!(
        "PUT {route} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {KEY}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    let content = noise(3 << 19);
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(format!("{:x}\r\n", content.len()).as_bytes()).unwrap();
    stream.write_all(&[&content[..], b"\r\n0\r\n\r\n"].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(Answer::parse(&answer).error(), "PAYLOAD_TOO_LARGE");
    assert_eq!(fixture.output_of("ls -A"), "file\n");
}

/// Opens a connection and reads only the head of a response.
pub(super) fn begin_read(fixture: &FileServer, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let route = fixture.route(path);
    let head = format!("GET {route} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {KEY}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    stream
}

#[test]
fn clients_that_do_not_read_take_little_memory_and_do_not_delay_others() {
    let fixture = FileServer::new();
    fixture.output_of("head -c 64m /dev/zero > large; echo small > small");
    fixture.read("workspace/small");
    let before = fixture.server.resident_bytes();
    let stalled: Vec<TcpStream> = (0..4).map(|_| begin_read(&fixture, "files/workspace/large")).collect();
    assert_eq!(fixture.read("workspace/small").1, b"small\n");
    assert_eq!(fixture.output_of("echo usable"), "usable\n");
    let grown = fixture.server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "the server grew by {} MiB", grown >> 20);
    drop(stalled);
    assert_eq!(fixture.read("workspace/large").1.len(), 64 << 20);
}
