//! This terminal, connected with one in a sandbox.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use hyper::header::AUTHORIZATION;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, interval_at, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use workspace_api::terminals::{OpenTerminal, ResizeTerminal, Terminal, TerminalEvent, TerminalRequest};

use super::backoff::Backoff;
use super::stream::Stream;
use super::{ApiError, Client, RequestError};
use crate::error::Result;
use crate::screen::{self, Raw};
use crate::signals::{Signals, failed};
use crate::stdin::stdin;

/// Ping interval. The server disconnects clients that are idle for 90 seconds.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Idle timeout of the connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Terminal to open.
#[derive(Debug, Default)]
pub(crate) struct TerminalOptions {
    /// The program, if not the usual shell.
    pub(crate) shell: Option<String>,
    /// A line for the shell, if it is not to ask.
    pub(crate) line: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) envs: BTreeMap<String, String>,
}

/// Opens a terminal and stays connected until its shell exits. Returns its exit code, or the signal that
/// ended this program.
pub(crate) async fn run(
    client: &Client,
    sandbox: &str,
    options: &TerminalOptions,
) -> Result<Result<i32, i32>> {
    // Before anything is opened inside: without a terminal here there is nothing to connect.
    let raw = Raw::enter()?;
    let path = open(client, sandbox, options).await?;
    let mut session = Session {
        client,
        path,
        received: 0,
        keys: Some(stdin()),
        unsent: None,
        resized: signal(SignalKind::window_change()).map_err(|error| failed(&error))?,
        signals: Signals::new()?,
        backoff: Backoff::default(),
    };
    let over = session.run().await;
    if !matches!(over, Ok(Ok(_))) {
        // No client would find the terminal again. The server may be gone, too.
        drop(client.delete::<()>(&session.path).await);
    }
    drop(raw);
    over
}

async fn open(client: &Client, sandbox: &str, options: &TerminalOptions) -> Result<String> {
    let (cols, rows) = screen::size();
    let mut envs = options.envs.clone();
    // What this terminal can show is known here alone.
    if !envs.contains_key("TERM")
        && let Ok(term) = std::env::var("TERM")
    {
        envs.insert("TERM".to_owned(), term);
    }
    let (shell, command, cwd) = (options.shell.clone(), options.line.clone(), options.cwd.clone());
    let path = format!("/api/v1/sandboxes/{sandbox}/pty");
    let body = OpenTerminal { cols, rows, shell, command, cwd, envs };
    let terminal: Terminal = client.post(&path, &body).await?;
    Ok(format!("{path}/{}", terminal.id))
}

type Socket = WebSocketStream<Stream>;

/// Reason for which a connection ended.
enum Over {
    /// The shell exited.
    Exit(i32),
    /// A signal asked this program to end.
    Asked(i32),
    /// The connection broke.
    Lost,
}

struct Session<'a> {
    client: &'a Client,
    path: String,
    /// Offset of the output, from which a new connection resumes.
    received: u64,
    keys: Option<mpsc::Receiver<Vec<u8>>>,
    /// Input that was not sent when the connection broke.
    unsent: Option<Vec<u8>>,
    resized: Signal,
    signals: Signals,
    backoff: Backoff,
}

impl Session<'_> {
    async fn run(&mut self) -> Result<Result<i32, i32>> {
        loop {
            let Some(mut socket) = self.connect().await? else { continue };
            match self.talk(&mut socket).await {
                Over::Exit(code) => return Ok(Ok(code)),
                Over::Asked(signal) => return Ok(Err(signal)),
                Over::Lost => {
                    self.backoff.should_retry();
                }
            }
        }
    }

    /// Connects, or waits before the next attempt and returns `None`.
    async fn connect(&mut self) -> Result<Option<Socket>> {
        self.backoff.wait().await;
        let failure = match timeout(IDLE_TIMEOUT, self.dial()).await {
            Ok(Ok(socket)) => return Ok(Some(socket)),
            Ok(Err(failure)) => failure,
            Err(_) => RequestError::Unreachable("no answer".to_owned()),
        };
        if failure.may_pass() && self.backoff.should_retry() {
            Ok(None)
        } else {
            Err(self.client.explain(failure))
        }
    }

    async fn dial(&self) -> Result<Socket, RequestError> {
        let server = &self.client.server;
        if self.received > 0 {
            self.check_agent().await?;
        }
        let stream = Stream::connect(server).await?;
        let scheme = if server.tls { "wss" } else { "ws" };
        let (authority, prefix) = (server.authority(), &server.prefix);
        let url =
            format!("{scheme}://{authority}{prefix}{}/ws?binary=true&from={}", self.path, self.received);
        let bad = |error: String| RequestError::Unreachable(format!("bad request: {error}"));
        let mut request = url.into_client_request().map_err(|error| bad(error.to_string()))?;
        if let Some(key) = &server.key {
            let value = format!("Bearer {key}").parse().map_err(|_| bad("the key".to_owned()))?;
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        match client_async(request, stream).await {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::Error::Http(response)) => {
                Err(refused(response.status(), response.body().as_deref()))
            }
            Err(error) => Err(RequestError::Disconnected(error.to_string())),
        }
    }

    /// Checks that the guest agent is connected. After a restart of the server it may not be, and input would
    /// be lost silently.
    async fn check_agent(&self) -> Result<(), RequestError> {
        let (cols, rows) = screen::size();
        let resized: Result<(), RequestError> =
            self.client.try_post(&format!("{}/resize", self.path), &ResizeTerminal { cols, rows }).await;
        match resized {
            Err(failure) if failure.may_pass() => Err(failure),
            // A terminal that is closed still tells how it ended.
            _ => Ok(()),
        }
    }

    async fn talk(&mut self, socket: &mut Socket) -> Over {
        // The size may have changed while there was no connection.
        if self.send_size(socket).await.is_err() || self.send_unsent(socket).await.is_err() {
            return Over::Lost;
        }
        let (mut pings, mut heard) = (every(PING_INTERVAL), Instant::now());
        loop {
            let sent = tokio::select! {
                message = socket.next() => {
                    heard = Instant::now();
                    match self.heard(message) {
                        Some(over) => return over,
                        None => Ok(()),
                    }
                }
                keys = next_keys(&mut self.keys) => match keys {
                    Some(keys) => {
                        self.unsent = Some(keys);
                        // Into a connection that is known to be broken they would go without an error.
                        match socket.next().now_or_never().map(|message| self.heard(message)) {
                            Some(Some(over)) => return over,
                            _ => self.send_unsent(socket).await,
                        }
                    }
                    None => {
                        self.keys = None;
                        Ok(())
                    }
                },
                _ = self.resized.recv() => self.send_size(socket).await,
                signal = self.signals.next() => return Over::Asked(signal),
                _ = pings.tick() => {
                    if heard.elapsed() > IDLE_TIMEOUT {
                        return Over::Lost;
                    }
                    socket.send(message(&TerminalRequest::Ping)).await
                }
            };
            if sent.is_err() {
                return Over::Lost;
            }
        }
    }

    async fn send_unsent(&mut self, socket: &mut Socket) -> Result<(), tungstenite::Error> {
        if let Some(keys) = &self.unsent {
            socket.send(Message::binary(keys.clone())).await?;
        }
        self.unsent = None;
        Ok(())
    }

    async fn send_size(&self, socket: &mut Socket) -> Result<(), tungstenite::Error> {
        let (cols, rows) = screen::size();
        socket.send(message(&TerminalRequest::Resize { cols, rows })).await
    }

    fn heard(&mut self, message: Option<Result<Message, tungstenite::Error>>) -> Option<Over> {
        match message {
            Some(Ok(message)) => self.hear(message),
            Some(Err(_)) | None => Some(Over::Lost),
        }
    }

    fn hear(&mut self, message: Message) -> Option<Over> {
        self.backoff.reset();
        match message {
            Message::Binary(data) => {
                self.received += data.len() as u64;
                let mut out = std::io::stdout();
                // A terminal that is gone tells so by a signal.
                let _ = out.write_all(&data).and_then(|()| out.flush());
                None
            }
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(TerminalEvent::Exit { exit_code }) => Some(Over::Exit(exit_code)),
                Ok(TerminalEvent::Error { message }) => {
                    let _ = write!(std::io::stderr(), "\r\nerror: {}\r\n", crate::text::shown_text(&message));
                    None
                }
                Ok(TerminalEvent::Output { .. } | TerminalEvent::Pong) | Err(_) => None,
            },
            Message::Close(_) => Some(Over::Lost),
            _ => None,
        }
    }
}

fn message(request: &TerminalRequest) -> Message {
    // Numbers and texts can always be written.
    Message::text(serde_json::to_string(request).unwrap_or_default())
}

async fn next_keys(keys: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match keys {
        Some(keys) => keys.recv().await,
        None => std::future::pending().await,
    }
}

fn every(period: Duration) -> Interval {
    interval_at(Instant::now() + period, period)
}

fn refused(status: StatusCode, body: Option<&[u8]>) -> RequestError {
    RequestError::Api(Box::new(ApiError::new(status, None, body.unwrap_or_default())))
}
