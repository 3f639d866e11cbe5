//! A WebSocket connection to a terminal.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout, timeout_at};
use workspace_api::error_codes;
use workspace_api::terminals::{TerminalEvent, TerminalRequest};
use workspace_sandbox::{CommandHandle, Output, Piece, SandboxError, Scope, Size};

use crate::app::App;
use crate::error::ApiError;

/// Number of unanswered pings after which the client counts as disconnected.
const UNANSWERED_PINGS: u32 = 3;
/// Timeout for sending the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A parsed message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Input for the terminal.
    Type(Vec<u8>),
    Resize(Size),
    Ping,
    Nothing,
}

/// Parses a message of a client. Fails with an explanation for the client.
pub(crate) fn understand(message: &Message) -> Result<Request, String> {
    let request = match message {
        Message::Binary(data) => return Ok(Request::Type(data.to_vec())),
        Message::Text(text) => serde_json::from_str(text).map_err(|error| error.to_string())?,
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) => return Ok(Request::Nothing),
    };
    Ok(match request {
        TerminalRequest::Input { data } => {
            Request::Type(BASE64_STANDARD.decode(data).map_err(|_| "data is not base64".to_owned())?)
        }
        TerminalRequest::Resize { cols, rows } => Request::Resize(Size { cols, rows }),
        TerminalRequest::Ping => Request::Ping,
    })
}

fn text_message(event: &TerminalEvent<'_>) -> Message {
    // Always can be: texts and numbers.
    Message::text(serde_json::to_string(event).unwrap_or_default())
}

fn error_message(message: &str) -> Message {
    text_message(&TerminalEvent::Error { message: message.into() })
}

pub(super) struct Session {
    pub(super) app: App,
    pub(super) scope: Scope,
    pub(super) sandbox: String,
    pub(super) terminal: CommandHandle,
    pub(super) binary: bool,
}

/// Reason for which a connection ends.
enum Over {
    /// The client disconnected; the terminal stays open.
    Gone,
    /// The client sent nothing for too long, or does not read; the terminal stays open.
    Silent,
    /// The terminal is closed.
    Closed,
    /// The server is stopping.
    Stopping,
}

impl Session {
    pub(super) async fn run(self, mut socket: WebSocket, mut output: Output) {
        let _running = self.app.shutdown.enter();
        let over = self.talk(&mut socket, &mut output).await;
        let goodbye = match over {
            Over::Gone => return,
            Over::Silent => (close_code::POLICY, self.silent()),
            Over::Closed => (close_code::NORMAL, "the terminal is closed".to_owned()),
            Over::Stopping => (close_code::AWAY, "the server is stopping; connect again".to_owned()),
        };
        let frame = CloseFrame { code: goodbye.0, reason: goodbye.1.into() };
        // A client that is gone, or does not read, needs no goodbye.
        drop(timeout(CLOSE_TIMEOUT, socket.send(Message::Close(Some(frame)))).await);
    }

    fn silent(&self) -> String {
        let seconds = self.app.settings.terminal_timeout.as_secs();
        format!("nothing came for {seconds} s, no answer to a ping either; connect again")
    }

    async fn talk(&self, socket: &mut WebSocket, output: &mut Output) -> Over {
        let silence = self.app.settings.terminal_timeout;
        let mut pings = interval_at(Instant::now() + silence / UNANSWERED_PINGS, silence / UNANSWERED_PINGS);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Whatever is shown meanwhile: who is gone does not read it.
        let mut gone = Instant::now() + silence;
        loop {
            let sent = tokio::select! {
                pieces = output.next() => match pieces {
                    Ok(Some(pieces)) => tokio::select! {
                        told = timeout_at(gone, self.tell(socket, pieces)) => match told {
                            Ok(told) => told,
                            Err(_) => return Over::Silent,
                        },
                        () = self.app.shutdown.begun() => return Over::Stopping,
                    },
                    Ok(None) if output.has_ended() => return Over::Closed,
                    Ok(None) => return Over::Stopping,
                    Err(error) => {
                        let message = ApiError::from(error).message().to_owned();
                        drop(timeout(CLOSE_TIMEOUT, socket.send(error_message(&message))).await);
                        return Over::Closed;
                    }
                },
                heard = timeout_at(gone, socket.recv()) => match heard {
                    Ok(Some(Ok(message))) => {
                        gone = Instant::now() + silence;
                        let answer = match self.hear(message).await {
                            Ok(answer) => answer,
                            Err(message) => Some(error_message(&message)),
                        };
                        match answer {
                            Some(answer) => match timeout_at(gone, socket.send(answer)).await {
                                Ok(sent) => sent,
                                Err(_) => return Over::Silent,
                            },
                            None => Ok(()),
                        }
                    }
                    Ok(Some(Err(_)) | None) => return Over::Gone,
                    Err(_) => return Over::Silent,
                },
                _ = pings.tick() => match timeout_at(gone, socket.send(Message::Ping(Bytes::new()))).await {
                    Ok(sent) => sent,
                    Err(_) => return Over::Silent,
                },
                () = self.app.shutdown.begun() => return Over::Stopping,
            };
            if sent.is_err() {
                return Over::Gone;
            }
        }
    }

    async fn tell(&self, socket: &mut WebSocket, pieces: Vec<Piece>) -> Result<(), axum::Error> {
        for piece in pieces {
            match piece {
                Piece::Data { data, .. } if self.binary => socket.send(Message::binary(data)).await?,
                Piece::Data { data, offset, .. } => {
                    let data = BASE64_STANDARD.encode(data);
                    socket.send(text_message(&TerminalEvent::Output { data, offset })).await?;
                }
                // What left the screen long ago.
                Piece::Gap { .. } => {}
                Piece::End(end) => {
                    if let Some(message) = &end.failed {
                        socket.send(error_message(message)).await?;
                    }
                    let exit = TerminalEvent::Exit { exit_code: end.exit_code };
                    socket.send(text_message(&exit)).await?;
                }
            }
        }
        Ok(())
    }

    /// Handles a message. Returns the reply, or an error message for the client.
    async fn hear(&self, message: Message) -> Result<Option<Message>, String> {
        match understand(&message)? {
            Request::Nothing => {}
            Request::Type(data) => self.type_in(data).await?,
            Request::Resize(size) => {
                let service = &self.app.sandboxes;
                let resized =
                    service.resize_terminal(&self.scope, &self.sandbox, &self.terminal.id, size).await;
                resized.map_err(|error| closed(error, &self.terminal.id).message().to_owned())?;
            }
            Request::Ping => return Ok(Some(text_message(&TerminalEvent::Pong))),
        }
        Ok(None)
    }

    async fn type_in(&self, data: Vec<u8>) -> Result<(), String> {
        let typed =
            self.app.sandboxes.write_terminal(&self.scope, &self.sandbox, &self.terminal.id, data).await;
        typed.map_err(|error| closed(error, &self.terminal.id).message().to_owned())
    }
}

/// Maps the error of a terminal whose shell has exited to `PTY_CLOSED`.
pub(super) fn closed(error: SandboxError, pty: &str) -> ApiError {
    match error {
        SandboxError::CommandEnded { .. } => {
            ApiError::new(error_codes::PTY_CLOSED, format!("terminal `{pty}` is closed")).detail("ptyId", pty)
        }
        other => other.into(),
    }
}
