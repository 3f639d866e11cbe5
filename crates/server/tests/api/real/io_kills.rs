//! Kills of the server, of the I/O worker and of the guest agent during watches, connections to ports, previews, and
//! archives in both directions.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Message, WebSocket};

use super::files::{FileServer, noise};
use super::ports;
use super::previews::{PORT, Preview, serve};
use super::stream::Stream;
use super::test_server::{names, runs_slow_tests, wait_until};
use crate::snapshots::archive::Archive;
use crate::support::{Answer, KEY};

/// Number of files in the archives.
const FILES: usize = 60;

/// Streams of one sandbox that are all in the middle of their work.
struct Streams {
    watch: Stream,
    port: WebSocket<TcpStream>,
    response: TcpStream,
    /// Request that the program has not answered, because a part of it is missing.
    pending: TcpStream,
    socket: WebSocket<TcpStream>,
    download: TcpStream,
    upload: TcpStream,
    /// Bytes of the upload that were not sent yet.
    unsent: Vec<u8>,
}

/// Last thing that the client of each stream sees.
#[derive(Debug)]
struct Ends {
    watch: String,
    port: String,
    response: String,
    pending: String,
    socket: String,
    download: String,
    upload: String,
}

/// Sends a request, and reads the response up to the end of `until`.
fn send(fixture: &FileServer, head: &str, body: &[u8], until: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(&[head.as_bytes(), b"\r\n", body].concat()).unwrap();
    let mut received = Vec::new();
    while !received.ends_with(until) {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&received));
        received.push(byte[0]);
    }
    stream
}

fn head(fixture: &FileServer, method: &str, path: &str) -> String {
    format!("{method} {} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {KEY}\r\n", fixture.route(path))
}

/// Starts to send an archive, of which only a part is sent.
fn begin_upload(fixture: &FileServer, archive: &[u8], sent: usize) -> TcpStream {
    let head = head(fixture, "PUT", "files/workspace/tree?archive=tar");
    let head = format!("{head}connection: close\r\ncontent-length: {}\r\n", archive.len());
    send(fixture, &head, &archive[..sent], b"")
}

/// Content of the files before an upload.
fn old() -> Vec<u8> {
    [&b"old"[..], &noise(30_000)].concat()
}

/// Content of the files of an upload. All files together are more than the buffers on their way.
fn new() -> Vec<u8> {
    [&b"new"[..], &noise(40_000)].concat()
}

/// Returns an archive of files with the same content.
fn archive(content: &[u8]) -> Vec<u8> {
    (0..FILES).fold(Archive::new(), |archive, number| archive.file(format!("{number}"), content)).bytes()
}

/// Starts a sandbox with an HTTP server.
fn sandbox_with_program(fixture: &FileServer) -> Preview {
    serve(&fixture.server, &fixture.id);
    wait_until("the program listens", || {
        let ports = fixture.call("GET", "ports").send().json();
        ports["items"].as_array().unwrap().iter().any(|port| port["port"] == PORT)
    });
    Preview::create(&fixture.server, &fixture.id, PORT, &json!({}))
}

impl Streams {
    fn open(fixture: &FileServer, preview: &Preview) -> Self {
        fixture.output_of("rm -rf watched; mkdir -p watched big; head -c 64m /dev/zero > big/zeros");
        assert_eq!(fixture.put("workspace/tree?archive=tar", &archive(&old())).status, 200);
        let mut watch = Stream::watch(&fixture.server, &fixture.id, "workspace/watched").begun();
        fixture.output_of("touch watched/file");
        assert_eq!(watch.next().unwrap().kind, "created");
        let mut port = ports::connect(fixture, PORT).unwrap();
        port.send(Message::binary(b"GET /endless HTTP/1.1\r\n\r\n".to_vec())).unwrap();
        assert!(matches!(port.read().unwrap(), Message::Binary(data) if data.starts_with(b"HTTP/1.1 200")));
        let token = format!("x-workspace-preview-token: {}\r\n", preview.token);
        let request = format!("GET /endless HTTP/1.1\r\nhost: {}\r\n{token}", preview.host);
        let response = send(fixture, &request, b"", b"begun");
        let request =
            format!("POST /hash HTTP/1.1\r\nhost: {}\r\ncontent-length: 10\r\n{token}", preview.host);
        let pending = send(fixture, &request, b"part", b"");
        wait_until("the program has three connections", || connections_of_program(fixture) == 3);
        let mut request = format!("ws://{}/socket", preview.host).into_client_request().unwrap();
        request.headers_mut().insert("x-workspace-preview-token", preview.token.parse().unwrap());
        let stream = TcpStream::connect(fixture.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (mut socket, _) = tungstenite::client(request, stream).unwrap();
        socket.send(Message::text("x")).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text("x"));
        let download =
            send(fixture, &head(fixture, "GET", "files/workspace/big?archive=tar"), b"", b"\r\n\r\n");
        let sent = archive(&new());
        let unsent = sent[sent.len() / 2..].to_vec();
        let upload = begin_upload(fixture, &sent, sent.len() / 2);
        wait_until("files were replaced", || fixture.read("workspace/tree/1").1 == new());
        Self { watch, port, response, pending, socket, download, upload, unsent }
    }

    /// Waits until all have ended.
    fn ends(mut self) -> Ends {
        let watch = match self.watch.rest().pop() {
            Some(event) if event.kind == "ended" => event.data["reason"].as_str().unwrap().to_owned(),
            _ => "cut".to_owned(),
        };
        // The client goes on. It may find the connection closed.
        drop(self.upload.write_all(&self.unsent));
        Ends {
            watch,
            port: end_of_socket(&mut self.port),
            response: end_of_response(self.response),
            pending: error_of(self.pending),
            socket: end_of_socket(&mut self.socket),
            download: end_of_response(self.download),
            upload: error_of(self.upload),
        }
    }
}

/// Reads to the end. Returns the error, unless it is the reset that ends a broken connection.
fn rest(mut stream: TcpStream) -> (Vec<u8>, Option<std::io::Error>) {
    let mut bytes = Vec::new();
    let error =
        stream.read_to_end(&mut bytes).err().filter(|error| error.kind() != ErrorKind::ConnectionReset);
    (bytes, error)
}

/// Returns the error of the response, or `cut` if there was none.
fn error_of(stream: TcpStream) -> String {
    match rest(stream) {
        (bytes, _) if bytes.windows(4).any(|four| four == b"\r\n\r\n") => Answer::parse(&bytes).error(),
        _ => "cut".to_owned(),
    }
}

/// Returns `complete` for a chunked body that has ended, and `cut` for one that is not complete.
fn end_of_response(stream: TcpStream) -> String {
    match rest(stream) {
        (_, Some(error)) => error.to_string(),
        (bytes, None) if bytes.ends_with(b"0\r\n\r\n") => "complete".to_owned(),
        _ => "cut".to_owned(),
    }
}

/// Returns the close code, or `cut` if the connection ended without.
fn end_of_socket(socket: &mut WebSocket<TcpStream>) -> String {
    loop {
        match socket.read() {
            Ok(Message::Close(frame)) => {
                return frame.map_or_else(String::new, |frame| u16::from(frame.code).to_string());
            }
            Ok(_) => {}
            Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                return error.to_string();
            }
            Err(_) => return "cut".to_owned(),
        }
    }
}

/// Returns the PIDs of the I/O workers of a sandbox.
fn workers(fixture: &FileServer) -> Vec<Pid> {
    let is_worker = |pid: &String| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
        arguments.contains(&&b"--io-fd"[..]) && arguments.contains(&fixture.id.as_bytes())
    };
    let pids = names(std::path::Path::new("/proc")).into_iter().filter(is_worker);
    pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn kill_worker(fixture: &FileServer) {
    let pids = workers(fixture);
    assert_eq!(pids.len(), 1);
    kill_process(pids[0], Signal::KILL).unwrap();
}

fn connections_of_program(fixture: &FileServer) -> u32 {
    let listed = fixture.output_of("grep -c ' 0100007F:1F40 [0-9A-F:]* 01 ' /proc/net/tcp || true");
    listed.trim().parse().unwrap()
}

/// Checks that each file of the tree is old or new, that nothing else is there, that nothing still runs for the former
/// streams, and that the sandbox is usable. Returns the number of new files.
fn assert_whole_and_usable(fixture: &FileServer) -> usize {
    // The next worker removes what a killed one has left.
    assert_eq!(fixture.read("workspace/tree/0").0.status, 200);
    let new = assert_whole(fixture);
    wait_until("the connections of the program were closed", || connections_of_program(fixture) == 0);
    wait_until("only one worker runs", || workers(fixture).len() == 1);
    // Nobody holds the gate of the workspace.
    let commit = fixture.server.post(&fixture.route("commit"), &json!({}));
    assert_eq!(commit.status, 201, "{}", commit.body);
    // No place of a transfer or a watch is taken: this many are allowed at once.
    let watches: Vec<Stream> =
        (0..16).map(|_| Stream::watch(&fixture.server, &fixture.id, "workspace").begun()).collect();
    drop(watches);
    assert_eq!(fixture.put("workspace/tree?archive=tar", &archive(&old())).status, 200);
    new
}

/// Checks that each file of the tree is old or new as a whole, and returns the number of new ones.
fn assert_whole(fixture: &FileServer) -> usize {
    // A mixture, or a part, would be a third content.
    let listed = fixture.output_of(
        "cd tree; ls -A | wc -l; sha256sum * | cut -c 1-64 | sort -u | wc -l; \
         for f in *; do head -c 3 $f; echo; done | grep -c new || true",
    );
    let numbers: Vec<usize> = listed.lines().map(|line| line.trim().parse().unwrap()).collect();
    let [files, contents, new] = numbers[..] else { panic!("{listed}") };
    assert_eq!(files, FILES, "{}", fixture.output_of("ls -A tree"));
    assert!(contents <= if new == 0 || new == FILES { 1 } else { 2 }, "{listed}");
    new
}

#[test]
fn a_kill_of_the_server_ends_all_streams_and_leaves_the_sandbox_usable() {
    let mut fixture = FileServer::new();
    let preview = sandbox_with_program(&fixture);
    let streams = Streams::open(&fixture, &preview);
    fixture.server.kill();
    let ends = streams.ends();
    let streams = [&ends.watch, &ends.port, &ends.socket];
    for end in streams.into_iter().chain([&ends.response, &ends.pending, &ends.download, &ends.upload]) {
        assert_eq!(end, "cut", "{ends:?}");
    }
    fixture.server.start();
    wait_until("the guest is back", || fixture.server.sandbox(&fixture.id)["agentConnected"] == true);
    let new = assert_whole_and_usable(&fixture);
    assert!(new > 0 && new < FILES, "{new}");
    // The preview goes on with the next server.
    drop(Streams::open(&fixture, &preview));
}

#[test]
fn a_kill_of_the_worker_ends_all_streams_with_an_error() {
    let fixture = FileServer::new();
    let preview = sandbox_with_program(&fixture);
    let streams = Streams::open(&fixture, &preview);
    kill_worker(&fixture);
    let ends = streams.ends();
    assert_eq!((ends.port.as_str(), ends.response.as_str()), ("1011", "cut"), "{ends:?}");
    assert_eq!((ends.socket.as_str(), ends.download.as_str()), ("cut", "cut"), "{ends:?}");
    assert_eq!(
        (ends.pending.as_str(), ends.upload.as_str()),
        ("PREVIEW_FAILED", "AGENT_UNAVAILABLE"),
        "{ends:?}"
    );
    assert!(ends.watch.contains("guest agent"), "{ends:?}");
    let new = assert_whole_and_usable(&fixture);
    assert!(new > 0 && new < FILES, "{new}");
    drop(Streams::open(&fixture, &preview));
}

#[test]
fn a_kill_of_the_guest_agent_ends_all_streams_and_leaves_nothing() {
    let fixture = FileServer::new();
    let preview = sandbox_with_program(&fixture);
    let streams = Streams::open(&fixture, &preview);
    let agent = fixture.server.guest_process(&fixture.id).unwrap();
    agent.kill();
    let ends = streams.ends();
    assert_eq!((ends.response.as_str(), ends.download.as_str()), ("cut", "cut"), "{ends:?}");
    assert!(ends.port == "1011" && ends.socket == "cut" && ends.pending != "cut", "{ends:?}");
    assert!(
        ends.watch != "cut" && ["AGENT_UNAVAILABLE", "SANDBOX_NOT_RUNNING"].contains(&ends.upload.as_str()),
        "{ends:?}"
    );
    wait_until("the sandbox has ended", || fixture.server.sandbox(&fixture.id)["state"] == "error");
    let sandbox = fixture.server.sandbox(&fixture.id);
    assert!(sandbox["stateReason"].is_string(), "{sandbox}");
    wait_until("its processes have ended", || workers(&fixture).is_empty() && !agent.is_running());
    let refused = fixture.call("GET", "files/workspace/tree/0").send().error();
    assert_eq!(refused, "SANDBOX_NOT_RUNNING");
    fixture.server.delete(&fixture.id);
    wait_until("nothing of it is left", || {
        fixture.server.workspaces().is_empty() && fixture.server.sandbox_directories().is_empty()
    });
}

#[test]
fn a_kill_at_any_time_of_an_upload_leaves_old_or_new_files() {
    let mut fixture = FileServer::new();
    let (before, upload) = (archive(&old()), archive(&new()));
    let rounds = if runs_slow_tests() { 60 } else { 8 };
    for round in 0..rounds {
        assert_eq!(fixture.put("workspace/tree?archive=tar", &before).status, 200);
        // From nothing to all but the last byte, and then everything.
        let sent = upload.len() * round / (rounds - 1);
        let sent = if round + 1 < rounds { sent.min(upload.len() - 1) } else { upload.len() };
        let mut stream = begin_upload(&fixture, &upload, sent);
        let is_server = round % 2 == 0;
        if is_server {
            fixture.server.kill();
        } else {
            kill_worker(&fixture);
        }
        // The client goes on. It may find the connection closed.
        drop(stream.write_all(&upload[sent..]));
        let (bytes, error) = rest(stream);
        assert!(error.is_none(), "{error:?}");
        let is_acknowledged = bytes.starts_with(b"HTTP/1.1 200");
        if is_server {
            fixture.server.start();
            let id = fixture.id.clone();
            wait_until("the guest is back", || fixture.server.sandbox(&id)["agentConnected"] == true);
        }
        assert_eq!(fixture.read("workspace/tree/0").0.status, 200);
        let replaced = assert_whole(&fixture);
        assert!(replaced == FILES || !is_acknowledged, "{replaced} files");
        // A worker that was killed before the request reached it is replaced, and the upload succeeds.
        let is_whole = is_acknowledged || sent + 2 * 512 >= upload.len();
        assert!(replaced < FILES || is_whole, "{replaced} files of {sent} bytes");
    }
}
