//! A WebSocket connection to a terminal, which is called `pty` in paths and error codes of the API.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout, timeout_at};
use workspace_api::error_codes;
use workspace_api::terminals::{TerminalClientMessage, TerminalServerMessage};
use workspace_sandbox::{CommandHandle, Output, OutputPiece, SandboxError, Scope, Size};

use crate::app::App;
use crate::error::ApiError;
use crate::stream_access::StreamAccess;

/// Number of unanswered pings after which the client counts as disconnected.
const UNANSWERED_PINGS_MAX: u32 = 3;
/// Timeout for sending the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Parsed message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Input(Vec<u8>),
    Resize(Size),
    Ping,
    /// WebSocket control frame, which needs no response.
    Control,
}

/// Parses a message of a client. Fails with a message for the client.
pub(crate) fn parse_message(message: &Message) -> Result<Request, String> {
    let request = match message {
        Message::Binary(data) => return Ok(Request::Input(data.to_vec())),
        Message::Text(text) => serde_json::from_str(text).map_err(|error| error.to_string())?,
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) => return Ok(Request::Control),
    };
    Ok(match request {
        TerminalClientMessage::Input { data } => {
            Request::Input(BASE64_STANDARD.decode(data).map_err(|_| "data is not base64".to_owned())?)
        }
        TerminalClientMessage::Resize { cols, rows } => Request::Resize(Size { cols, rows }),
        TerminalClientMessage::Ping => Request::Ping,
    })
}

fn text_message(event: &TerminalServerMessage<'_>) -> Message {
    // Serializing strings and numbers does not fail.
    Message::text(serde_json::to_string(event).unwrap_or_default())
}

fn error_message(message: &str) -> Message {
    text_message(&TerminalServerMessage::Error { message: message.into() })
}

/// Treatment of input and sizes that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputMode {
    Accepted,
    /// The client may only read output.
    Refused,
}

/// Connection of one client to a terminal. A terminal may have several.
pub(super) struct Session {
    pub(super) app: App,
    pub(super) scope: Scope,
    /// Id of the sandbox.
    pub(super) sandbox: String,
    pub(super) terminal: CommandHandle,
    /// True if output is sent as binary messages instead of JSON.
    pub(super) binary: bool,
    pub(super) mode: InputMode,
    /// Access of the client. The connection is closed when it expires or is revoked.
    pub(super) access: StreamAccess,
}

/// Reason why a connection ended. After `Closed`, the terminal has ended, or its output could not be read; after the
/// others, the client can connect again.
enum EndReason {
    Disconnected,
    /// The client sent nothing for `TERMINAL_TIMEOUT`, or did not read.
    TimedOut,
    /// The token has expired, or the key was revoked.
    AccessEnded(&'static str),
    /// The terminal has ended, or its output could not be read.
    Closed,
    /// The server is stopping.
    Stopping,
}

impl Session {
    pub(super) async fn run(self, mut socket: WebSocket, mut output: Output) {
        let _running = self.app.shutdown.enter();
        let reason = tokio::select! {
            reason = self.exchange_messages(&mut socket, &mut output) => reason,
            reason = self.access.ended() => EndReason::AccessEnded(reason),
        };
        let (code, reason) = match reason {
            EndReason::Disconnected => return,
            EndReason::TimedOut => (close_code::POLICY, self.timeout_message()),
            EndReason::AccessEnded(reason) => (close_code::POLICY, reason.to_owned()),
            EndReason::Closed => (close_code::NORMAL, "the terminal is closed".to_owned()),
            EndReason::Stopping => (close_code::AWAY, "the server is stopping; connect again".to_owned()),
        };
        let frame = CloseFrame { code, reason: reason.into() };
        // An error means that the client is disconnected or does not read.
        drop(timeout(CLOSE_TIMEOUT, socket.send(Message::Close(Some(frame)))).await);
    }

    fn timeout_message(&self) -> String {
        let seconds = self.app.settings.terminal_timeout.as_secs();
        format!("the client sent nothing for {seconds} s, not even a pong, or did not read; connect again")
    }

    async fn exchange_messages(&self, socket: &mut WebSocket, output: &mut Output) -> EndReason {
        let client_timeout = self.app.settings.terminal_timeout;
        let ping_interval = client_timeout / UNANSWERED_PINGS_MAX;
        let mut pings = interval_at(Instant::now() + ping_interval, ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Sending output does not extend the deadline, because a disconnected client does not read.
        let mut deadline = Instant::now() + client_timeout;
        loop {
            let sent = tokio::select! {
                pieces = output.next() => match pieces {
                    Ok(Some(pieces)) => tokio::select! {
                        sent = timeout_at(deadline, self.send_output(socket, pieces)) => match sent {
                            Ok(sent) => sent,
                            Err(_) => return EndReason::TimedOut,
                        },
                        () = self.app.shutdown.wait_until_begun() => return EndReason::Stopping,
                    },
                    Ok(None) if output.has_ended() => return EndReason::Closed,
                    Ok(None) => return EndReason::Stopping,
                    Err(error) => {
                        let message = ApiError::from(error).message().to_owned();
                        drop(timeout(CLOSE_TIMEOUT, socket.send(error_message(&message))).await);
                        return EndReason::Closed;
                    }
                },
                received = timeout_at(deadline, socket.recv()) => match received {
                    Ok(Some(Ok(message))) => {
                        deadline = Instant::now() + client_timeout;
                        let reply = match self.handle(message).await {
                            Ok(reply) => reply,
                            Err(message) => Some(error_message(&message)),
                        };
                        match reply {
                            Some(reply) => match timeout_at(deadline, socket.send(reply)).await {
                                Ok(sent) => sent,
                                Err(_) => return EndReason::TimedOut,
                            },
                            None => Ok(()),
                        }
                    }
                    Ok(Some(Err(_)) | None) => return EndReason::Disconnected,
                    Err(_) => return EndReason::TimedOut,
                },
                _ = pings.tick() => match timeout_at(deadline, socket.send(Message::Ping(Bytes::new()))).await {
                    Ok(sent) => sent,
                    Err(_) => return EndReason::TimedOut,
                },
                () = self.app.shutdown.wait_until_begun() => return EndReason::Stopping,
            };
            if sent.is_err() {
                return EndReason::Disconnected;
            }
        }
    }

    async fn send_output(&self, socket: &mut WebSocket, pieces: Vec<OutputPiece>) -> Result<(), axum::Error> {
        for piece in pieces {
            match piece {
                OutputPiece::Data { data, .. } if self.binary => socket.send(Message::binary(data)).await?,
                OutputPiece::Data { data, offset, .. } => {
                    let data = BASE64_STANDARD.encode(data);
                    socket.send(text_message(&TerminalServerMessage::Output { data, offset })).await?;
                }
                // Sent in binary mode, too: the client computes offsets by counting bytes, and has to add the gap.
                OutputPiece::Gap { from, to } => {
                    socket.send(text_message(&TerminalServerMessage::Gap { from, to })).await?;
                }
                OutputPiece::Exit(end) => {
                    if let Some(message) = &end.failure_reason {
                        socket.send(error_message(message)).await?;
                    }
                    let exit = TerminalServerMessage::Exit { exit_code: end.exit_code };
                    socket.send(text_message(&exit)).await?;
                }
            }
        }
        Ok(())
    }

    /// Handles a message. Returns the reply, or an error message for the client.
    async fn handle(&self, message: Message) -> Result<Option<Message>, String> {
        match parse_message(&message)? {
            Request::Control => {}
            Request::Input(_) | Request::Resize(_) if self.mode == InputMode::Refused => {
                return Err("this connection is read-only".to_owned());
            }
            Request::Input(data) => self.write_input(data).await?,
            Request::Resize(size) => {
                let service = &self.app.sandboxes;
                let resized =
                    service.resize_terminal(&self.scope, &self.sandbox, &self.terminal.id, size).await;
                resized.map_err(|error| map_closed(error, &self.terminal.id).message().to_owned())?;
            }
            Request::Ping => return Ok(Some(text_message(&TerminalServerMessage::Pong))),
        }
        Ok(None)
    }

    async fn write_input(&self, data: Vec<u8>) -> Result<(), String> {
        let written =
            self.app.sandboxes.write_terminal(&self.scope, &self.sandbox, &self.terminal.id, data).await;
        written.map_err(|error| map_closed(error, &self.terminal.id).message().to_owned())
    }
}

/// Maps the error of a terminal whose shell has exited to `PTY_CLOSED`.
pub(super) fn map_closed(error: SandboxError, pty: &str) -> ApiError {
    match error {
        SandboxError::CommandEnded { .. } => {
            ApiError::new(error_codes::PTY_CLOSED, format!("terminal `{pty}` is closed")).detail("ptyId", pty)
        }
        other => other.into(),
    }
}
