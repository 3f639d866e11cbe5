//! Freezing against a fake daemon that learns late whether its container is paused.
//!
//! containerd pauses a container, and the daemon hears of it by an event. Until then it reports the former
//! state, and accepts or refuses requests according to it.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::*;

const ID: &str = "sbx-1";

/// Fake daemon with one running container. It stops with the async runtime of the test.
struct FakeDaemon {
    home: TempDir,
    container: Arc<Mutex<FakeContainer>>,
}

#[derive(Default)]
struct FakeContainer {
    /// Label of the server that owns the container.
    server: String,
    /// State in containerd.
    is_paused: bool,
    /// State that the daemon knows.
    known_paused: bool,
    /// Number of requests, after a change, that the daemon answers by the former state.
    lag: u32,
    /// Number of these requests that are left.
    stale_reports: u32,
    /// The next pause takes effect, but is reported as failed.
    loses_pause: bool,
    /// Messages of refused requests.
    refusals: Vec<String>,
}

impl FakeContainer {
    /// Answers a request with a status and a body.
    fn answer(&mut self, request: &str) -> (u16, String) {
        if request.ends_with("/_ping") {
            return (200, "OK".to_owned());
        }
        if self.known_paused != self.is_paused {
            match self.stale_reports.checked_sub(1) {
                Some(left) => self.stale_reports = left,
                None => self.known_paused = self.is_paused,
            }
        }
        let done = match request.rsplit('/').next() {
            Some("json") => return (200, self.inspect()),
            Some("pause") => self.pause(),
            Some("unpause") => self.unpause(),
            _ => Err("page not found".to_owned()),
        };
        match done {
            Ok(()) => (204, String::new()),
            Err(message) => {
                self.refusals.push(message.clone());
                (500, serde_json::json!({ "message": message }).to_string())
            }
        }
    }

    fn inspect(&self) -> String {
        let state = serde_json::json!({ "Running": true, "Paused": self.known_paused });
        let config = serde_json::json!({ "Labels": { SERVER_LABEL: self.server } });
        serde_json::json!({ "State": state, "Config": config }).to_string()
    }

    fn pause(&mut self) -> Result<(), String> {
        if self.known_paused {
            return Err(format!("Container {ID} is already paused"));
        }
        if self.is_paused {
            return Err(format!("Cannot pause container {ID}: cannot pause a paused container"));
        }
        self.set_paused(true);
        if std::mem::take(&mut self.loses_pause) {
            return Err(format!("Cannot pause container {ID}: context deadline exceeded"));
        }
        Ok(())
    }

    fn unpause(&mut self) -> Result<(), String> {
        if !self.known_paused {
            return Err(format!("Container {ID} is not paused"));
        }
        if !self.is_paused {
            return Err(format!("Cannot unpause container {ID}: cannot resume a running process"));
        }
        self.set_paused(false);
        Ok(())
    }

    fn set_paused(&mut self, is_paused: bool) {
        (self.is_paused, self.stale_reports) = (is_paused, self.lag);
    }
}

impl FakeDaemon {
    /// Starts a daemon that gives `lag` outdated answers after each change, and connects a runtime to it.
    async fn start(lag: u32) -> (Self, Docker) {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("docker.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let container = Arc::new(Mutex::new(FakeContainer { lag, ..FakeContainer::default() }));
        let served = Arc::clone(&container);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&served)));
            }
        });
        let agent = home.path().join("agent");
        std::fs::write(&agent, "").unwrap();
        let host = format!("unix://{}", socket.display());
        let docker = Docker::connect(&host, None, &agent, &home.path().join("sandboxes")).await.unwrap();
        container.lock().server.clone_from(&docker.server_label);
        let daemon = Self { home, container };
        std::fs::create_dir(daemon.sandboxes()).unwrap();
        daemon.dir().make().unwrap();
        (daemon, docker)
    }

    fn sandboxes(&self) -> PathBuf {
        self.home.path().join("sandboxes")
    }

    fn dir(&self) -> SandboxDir {
        SandboxDir::new(self.sandboxes().join(ID))
    }

    fn is_paused(&self) -> bool {
        self.container.lock().is_paused
    }

    /// Checks that a request was refused with this message.
    fn assert_refused(&self, message: &str) {
        let refusals = &self.container.lock().refusals;
        assert!(refusals.iter().any(|refusal| refusal.contains(message)), "{refusals:?}");
    }
}

/// Answers the requests of a connection. No request has a body.
async fn serve(stream: UnixStream, container: Arc<Mutex<FakeContainer>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut request, mut header) = (String::new(), String::new());
        while header != "\r\n" {
            header.clear();
            if !stream.read_line(&mut header).await.is_ok_and(|length| length > 0) {
                return;
            }
            if request.is_empty() {
                request.clone_from(&header);
            }
        }
        let path = request.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let (status, body) = container.lock().answer(path);
        let length =
            if status == 204 { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let response =
            format!("HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\n{length}\r\n{body}");
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn freeze_after_a_thaw_succeeds_though_the_daemon_still_knows_the_container_as_paused() {
    let (daemon, docker) = FakeDaemon::start(0).await;
    docker.freeze(ID, &daemon.dir()).await.unwrap();
    // From here on the daemon is late. A freeze asks twice per attempt: to pause, and for the state.
    daemon.container.lock().lag = 4;
    docker.thaw(ID, &daemon.dir()).await.unwrap();
    assert!(!daemon.is_paused());
    docker.freeze(ID, &daemon.dir()).await.unwrap();
    assert!(daemon.is_paused() && daemon.dir().freeze_record().exists());
    daemon.assert_refused("already paused");
}

#[tokio::test]
async fn thaw_after_a_freeze_succeeds_though_the_daemon_does_not_know_yet_that_the_container_is_paused() {
    let (daemon, docker) = FakeDaemon::start(RUNNING_REPORTS_MIN - 1).await;
    docker.freeze(ID, &daemon.dir()).await.unwrap();
    assert!(daemon.is_paused());
    docker.thaw(ID, &daemon.dir()).await.unwrap();
    assert!(!daemon.is_paused() && !daemon.dir().freeze_record().exists());
}

#[tokio::test]
async fn thaw_of_a_running_container_waits_until_the_daemon_knows_that_it_runs() {
    let (daemon, docker) = FakeDaemon::start(0).await;
    pause_record::write(&daemon.dir()).unwrap();
    {
        let mut container = daemon.container.lock();
        (container.known_paused, container.stale_reports) = (true, 5);
    }
    docker.thaw(ID, &daemon.dir()).await.unwrap();
    assert!(!daemon.is_paused() && !daemon.dir().freeze_record().exists());
    daemon.assert_refused("cannot resume a running process");
}

#[tokio::test]
async fn unpause_is_repeated_when_the_daemon_has_forgotten_the_pause_in_between() {
    let (daemon, docker) = FakeDaemon::start(0).await;
    docker.freeze(ID, &daemon.dir()).await.unwrap();
    {
        // A late event of the former thaw: the daemon takes the paused container for a running one.
        let mut container = daemon.container.lock();
        (container.known_paused, container.stale_reports) = (false, RUNNING_REPORTS_MIN - 1);
    }
    docker.client.unpause_container(ID).await.unwrap_err();
    daemon.assert_refused("is not paused");
    docker.thaw(ID, &daemon.dir()).await.unwrap();
    assert!(!daemon.is_paused());
}

#[tokio::test]
async fn failed_pause_that_took_effect_is_undone() {
    let (daemon, docker) = FakeDaemon::start(0).await;
    daemon.container.lock().loses_pause = true;
    docker.freeze(ID, &daemon.dir()).await.unwrap_err();
    assert!(!daemon.is_paused() && !daemon.dir().freeze_record().exists());
    daemon.assert_refused("already paused");
}
