//! A terminal in a sandbox on a server, connected with this one by WebSocket.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use hyper::Method;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, Interval, interval_at, timeout};
use tokio_tungstenite::tungstenite::{self, Message};
use workspace_api::terminals::{
    OpenTerminal, ResizeTerminal, Terminal, TerminalClientMessage, TerminalServerMessage,
};

use super::backoff::Backoff;
use super::websocket::{self, Socket};
use super::{Client, RequestError};
use crate::error::Result;
use crate::screen::{self, RawMode};
use crate::session::{
    self, Attachment, CommandExit, Destination, InputState, OnSignal, OutputEvent, OutputStream, SIGKILL,
    Session, attach,
};
use crate::signals::Signals;
use crate::stdin::spawn_stdin_reader;

/// Ping interval. The server disconnects clients that are idle for 90 seconds.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Idle timeout of the connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Terminal to open.
#[derive(Debug, Default)]
pub(crate) struct TerminalOptions {
    /// Path of the shell; `None` for the default one of the sandbox.
    pub(crate) shell: Option<String>,
    /// Command line for the shell; `None` for an interactive shell.
    pub(crate) command_line: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) envs: BTreeMap<String, String>,
    /// User that runs the shell; `None` for the user of the sandbox.
    pub(crate) user: Option<String>,
}

/// Opens a terminal and stays connected until its shell exits.
pub(crate) async fn run(client: &Client, sandbox: &str, options: TerminalOptions) -> Result<CommandExit> {
    // First, so that no terminal is opened in the sandbox if this program has none.
    let _raw = RawMode::enter()?;
    let mut signals = Signals::new()?;
    let mut stdin = spawn_stdin_reader();
    let (terminal, output) = RemoteTerminal::open(client, sandbox, options).await?;
    let attachment = Attachment {
        stdin: Some(&mut stdin),
        destination: Destination::Terminal,
        signals: &mut signals,
        on_signal: OnSignal::Return,
        timeout: None,
    };
    let exit = attach(&terminal, output, attachment).await;
    if exit.is_err() {
        // No other client would use the terminal. An error is ignored, because the server may be unreachable.
        drop(terminal.kill(SIGKILL).await);
    }
    exit
}

/// Input side of a terminal. [`TerminalOutput`] owns the connection and sends the input.
struct RemoteTerminal<'a> {
    client: &'a Client,
    /// Path of the terminal in the API.
    path: String,
    input: mpsc::Sender<Vec<u8>>,
    /// Signalled when the terminal of this program has another size.
    resized: Arc<Notify>,
}

impl<'a> RemoteTerminal<'a> {
    async fn open(
        client: &'a Client,
        sandbox: &str,
        options: TerminalOptions,
    ) -> Result<(Self, TerminalOutput<'a>)> {
        let TerminalOptions { shell, command_line: command, cwd, mut envs, user } = options;
        let (cols, rows) = screen::size();
        screen::set_term(&mut envs);
        let path = format!("/api/v1/sandboxes/{sandbox}/pty");
        let body = OpenTerminal { cols, rows, shell, command, cwd, envs, user };
        let terminal: Terminal = client.post(&path, &body).await?;
        let path = format!("{path}/{}", terminal.id);
        let (input, received_input) = mpsc::channel(1);
        let resized = Arc::new(Notify::new());
        let output = TerminalOutput {
            client,
            path: path.clone(),
            offset: 0,
            input: received_input,
            unsent: None,
            resized: resized.clone(),
            connection: None,
            is_first_dial: true,
            backoff: Backoff::default(),
        };
        Ok((Self { client, path, input, resized }, output))
    }
}

impl Session for RemoteTerminal<'_> {
    async fn write_input(&self, data: Vec<u8>) -> Result<InputState> {
        Ok(match self.input.send(data).await {
            Ok(()) => InputState::Open,
            Err(_) => InputState::Closed,
        })
    }

    async fn kill(&self, _signal: i32) -> Result<()> {
        let closed = self.client.request_with_timeout(Method::DELETE, &self.path, None).await;
        closed.map_err(|failure| self.client.explain(failure))
    }

    async fn resize(&self) {
        self.resized.notify_one();
    }
}

/// A connection to a terminal.
struct Connection {
    socket: Socket,
    pings: Interval,
    /// Time of the last message from the server.
    last_message: Instant,
}

/// Error for a broken connection, after which a new one is made.
struct Disconnected;

impl From<tungstenite::Error> for Disconnected {
    fn from(_: tungstenite::Error) -> Self {
        Self
    }
}

/// Output of a terminal, with a new connection when one is lost.
struct TerminalOutput<'a> {
    client: &'a Client,
    path: String,
    /// Output offset at which a new connection resumes.
    offset: u64,
    input: mpsc::Receiver<Vec<u8>>,
    /// Input that was not sent when the last connection broke.
    unsent: Option<Vec<u8>>,
    /// Signalled when the terminal of this program has another size.
    resized: Arc<Notify>,
    connection: Option<Connection>,
    /// True if the terminal was just opened, so the guest agent is connected.
    is_first_dial: bool,
    backoff: Backoff,
}

impl OutputStream for TerminalOutput<'_> {
    /// Not cancel safe: a connection that is in use is dropped with the future.
    async fn next(&mut self) -> Result<OutputEvent> {
        loop {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match self.exchange(&mut connection).await {
                Ok(event) => {
                    self.connection = Some(connection);
                    return Ok(event);
                }
                // The result is ignored, because `connect` gives up if the next attempt fails, too.
                Err(Disconnected) => _ = self.backoff.wait_for_retry().await,
            }
        }
    }
}

impl TerminalOutput<'_> {
    /// Connects, with retries.
    async fn connect(&mut self) -> Result<Connection> {
        loop {
            let failure = match timeout(IDLE_TIMEOUT, self.dial()).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(failure)) => failure,
                Err(_) => RequestError::Unreachable("no response".to_owned()),
            };
            if !failure.is_transient() || !self.backoff.wait_for_retry().await {
                return Err(self.client.explain(failure));
            }
        }
    }

    /// Opens the WebSocket, without retries.
    async fn dial(&mut self) -> Result<Connection, RequestError> {
        if !std::mem::replace(&mut self.is_first_dial, false) {
            self.check_agent().await?;
        }
        let path = format!("{}/ws?binary=true&from={}", self.path, self.offset);
        let mut socket = websocket::connect(&self.client.server, &path).await?;
        // The size may have changed while there was no connection.
        let sent = send_size(&mut socket).await;
        sent.map_err(|error| RequestError::Disconnected(error.to_string()))?;
        let pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
        Ok(Connection { socket, pings, last_message: Instant::now() })
    }

    /// Checks that the guest agent is connected. After a restart of the server it may not be, and input would
    /// be lost silently.
    async fn check_agent(&self) -> Result<(), RequestError> {
        let (cols, rows) = screen::size();
        let resized: Result<(), RequestError> =
            self.client.try_post(&format!("{}/resize", self.path), &ResizeTerminal { cols, rows }).await;
        match resized {
            Err(failure) if failure.is_transient() => Err(failure),
            // The connection to a closed terminal still delivers its exit code.
            _ => Ok(()),
        }
    }

    /// Exchanges messages until one of them is an event.
    async fn exchange(&mut self, connection: &mut Connection) -> Result<OutputEvent, Disconnected> {
        let Connection { socket, pings, last_message } = connection;
        loop {
            if self.unsent.is_some() {
                // A write to a connection that the server has closed does not fail, and the input would be lost.
                if let Some(message) = socket.next().now_or_never()
                    && let Some(event) = self.receive(message)?
                {
                    return Ok(event);
                }
                self.send_unsent(socket).await?;
            }
            tokio::select! {
                message = socket.next() => {
                    *last_message = Instant::now();
                    if let Some(event) = self.receive(message)? {
                        return Ok(event);
                    }
                }
                Some(input) = self.input.recv() => self.unsent = Some(input),
                () = self.resized.notified() => send_size(socket).await?,
                _ = pings.tick() => {
                    if last_message.elapsed() > IDLE_TIMEOUT {
                        return Err(Disconnected);
                    }
                    socket.send(message(&TerminalClientMessage::Ping)).await?;
                }
            }
        }
    }

    /// Sends `unsent`, which stays for the next connection if that fails.
    async fn send_unsent(&mut self, socket: &mut Socket) -> Result<(), tungstenite::Error> {
        if let Some(input) = &self.unsent {
            socket.send(Message::binary(input.clone())).await?;
        }
        self.unsent = None;
        Ok(())
    }

    /// Handles a message. `None` if it is no event for the caller.
    fn receive(
        &mut self,
        message: Option<Result<Message, tungstenite::Error>>,
    ) -> Result<Option<OutputEvent>, Disconnected> {
        let message = message.ok_or(Disconnected)??;
        self.backoff.reset();
        match message {
            Message::Binary(data) => {
                self.offset += data.len() as u64;
                let stream = session::Stream::Stdout;
                Ok(Some(OutputEvent::Data { stream, data: data.into(), time: 0 }))
            }
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(TerminalServerMessage::Exit { exit_code }) => Ok(Some(OutputEvent::Exited(CommandExit {
                    exit_code,
                    timed_out: false,
                    failure_reason: None,
                }))),
                // Output that was dropped is old; a warning would garble the screen.
                Ok(TerminalServerMessage::Gap { to, .. }) => {
                    self.offset = to;
                    Ok(None)
                }
                Ok(TerminalServerMessage::Error { message }) => {
                    let _ = write!(
                        std::io::stderr(),
                        "\r\nerror: {}\r\n",
                        crate::text::escape_controls(&message)
                    );
                    Ok(None)
                }
                Ok(TerminalServerMessage::Output { .. } | TerminalServerMessage::Pong) | Err(_) => Ok(None),
            },
            Message::Close(_) => Err(Disconnected),
            _ => Ok(None),
        }
    }
}

async fn send_size(socket: &mut Socket) -> Result<(), tungstenite::Error> {
    let (cols, rows) = screen::size();
    socket.send(message(&TerminalClientMessage::Resize { cols, rows })).await
}

fn message(message: &TerminalClientMessage) -> Message {
    // Numbers and texts can always be serialised.
    Message::text(serde_json::to_string(message).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::remote::ServerUrl;

    /// Responds to the first request with 503, and to all others with 404. Returns the URL, and the method and path of
    /// each request.
    fn serve_errors() -> (String, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                sender.send(read_request(&stream)).unwrap();
                let status = if number == 0 { "503 Service Unavailable" } else { "404 Not Found" };
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .unwrap();
            }
        });
        (url, requests)
    }

    fn read_request(stream: &TcpStream) -> String {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        reader.read_exact(&mut vec![0_u8; length.unwrap_or(0)]).unwrap();
        head.split(['?', ' ']).take(2).collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn the_agent_is_checked_before_every_connection_but_the_first_also_without_output() {
        let (url, requests) = serve_errors();
        let client = Client::new(ServerUrl::parse(&url).unwrap());
        let (_input, received_input) = mpsc::channel(1);
        let mut output = TerminalOutput {
            client: &client,
            path: "/pty".to_owned(),
            offset: 0,
            input: received_input,
            unsent: None,
            resized: Arc::default(),
            connection: None,
            is_first_dial: true,
            backoff: Backoff::default(),
        };
        assert!(output.connect().await.is_err());
        let requests: Vec<String> = requests.try_iter().collect();
        assert_eq!(requests, ["GET /pty/ws", "POST /pty/resize", "GET /pty/ws"]);
    }
}
