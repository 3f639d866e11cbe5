//! Messages between server and guest agent about a command: its start, its input, and the offset up to which
//! its output was read.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use workspace_agent_protocol::v1::OutputTaken;
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;

use crate::command::input::{Delivery, InputRefused, PIECE_MAX};
use crate::command::running::{CommandExit, CommandReservation, Progress, RunningCommand};
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;

/// Interval at which the server checks whether a sandbox is still frozen after the timeout of a command.
const FREEZE_POLL_INTERVAL: Duration = Duration::from_millis(500);

impl SandboxHandle {
    /// Sends the request to start the command that a slot was reserved for. The command is added before the
    /// guest agent can respond.
    pub(crate) async fn start_command(
        &self,
        reservation: CommandReservation<'_>,
        request: ServerPayload,
    ) -> Result<Arc<RunningCommand>> {
        let (command, stream) = self.commands.start(reservation, || self.guest.stream())?;
        if let Err(error) = self.guest.send_on(&stream, request).await {
            command.advance(0, Some(&CommandExit::failed(error.to_string())));
            self.commands.remove(&command.id);
            return Err(error);
        }
        Ok(command)
    }

    /// Waits until a command makes progress. Returns false if there will be none, because the service was
    /// closed. Fails if the guest agent was given up, or should have reported the end of the command long ago.
    pub(crate) async fn wait_for_progress(
        &self,
        command: &RunningCommand,
        progress: &mut watch::Receiver<Progress>,
    ) -> Result<bool> {
        tokio::select! {
            biased;
            changed = progress.changed() => Ok(changed.is_ok()),
            error = self.guest.wait_for_loss() => Err(error),
            () = self.wait_until_overdue(command) => {
                let reason = format!("it did not report the exit of timed-out command `{}`", command.id);
                Err(self.guest.lost_error(&reason))
            }
        }
    }

    /// Waits until the guest agent should have reported the end of a command. Time in which it may be frozen does
    /// not count.
    async fn wait_until_overdue(&self, command: &RunningCommand) {
        loop {
            let Some(deadline) = command.exit_report_deadline() else { return std::future::pending().await };
            tokio::time::sleep_until(deadline).await;
            if !self.guest.may_be_frozen() {
                return;
            }
            tokio::time::sleep(FREEZE_POLL_INTERVAL).await;
        }
    }

    /// Records that a reader has read the output of a command up to this offset, and tells the guest agent if the
    /// command waits for readers.
    pub(crate) async fn report_read_offset(&self, command: &RunningCommand, offset: u64) {
        if command.advance_read_offset(offset) {
            self.send_read_offset(command).await;
        }
    }

    /// Tells the guest agent how much of a command's output was read.
    pub(crate) async fn send_read_offset(&self, command: &RunningCommand) {
        let taken = command.read_offset();
        if taken > 0 {
            let request = OutputTaken { command_id: command.id.clone(), taken };
            // A disconnected guest agent gets it when it reconnects.
            drop(self.guest.send(ServerPayload::OutputTaken(request)).await);
        }
    }

    /// Writes to the input of a command, piece by piece, each in a request that `request` makes. Waits up to
    /// `timeout` for each piece while the command reads slower.
    pub(crate) async fn write_input(
        &self,
        id: &str,
        data: &[u8],
        timeout: Duration,
        request: impl Fn(Vec<u8>) -> ServerPayload,
    ) -> Result<()> {
        let ended = || SandboxError::CommandEnded { id: id.to_owned() };
        let command = self.commands.get(id).ok_or_else(ended)?;
        let _guard = command.input.lock(timeout).await.map_err(|reason| input_error(id, reason, 0))?;
        for (n, piece) in data.chunks(PIECE_MAX).enumerate() {
            let counts_input = self.guest.stream().is_ok_and(|stream| stream.capabilities.counts_input);
            if counts_input && let Err(reason) = command.input.reserve(piece.len() as u64, timeout).await {
                return Err(input_error(id, reason, n * PIECE_MAX));
            }
            let delivered = self.deliver(&command, piece, timeout, &request).await;
            delivered.map_err(|error| match error {
                // Earlier pieces arrived.
                SandboxError::AgentAway { .. } if n > 0 => SandboxError::InputLost { id: id.to_owned() },
                other => other,
            })?;
        }
        Ok(())
    }

    /// Sends a piece of input until the guest agent confirms it. Bytes that were lost with a stream are sent again
    /// on the next one.
    async fn deliver(
        &self,
        command: &RunningCommand,
        piece: &[u8],
        timeout: Duration,
        request: &impl Fn(Vec<u8>) -> ServerPayload,
    ) -> Result<()> {
        let lost = || SandboxError::InputLost { id: command.id.clone() };
        let mut remaining = piece;
        loop {
            let error = || if remaining.len() == piece.len() { self.guest.away_error() } else { lost() };
            let stream = self.guest.stream().map_err(|_| error())?;
            // Input that is sent before the guest agent has reported on this stream how much it received would count as
            // lost, and be sent again. On the stream on which the command was started there is no such report.
            let is_stream_of_start = command.started_on() == stream.id;
            if stream.capabilities.confirms_input
                && !is_stream_of_start
                && !command.input.wait_for_report(stream.id, timeout).await
            {
                return Err(error());
            }
            let position = command.input.position();
            // If the stream was closed, the guest agent reports on the next one whether the piece arrived.
            let sent = self.guest.send_on(&stream, request(remaining.to_vec())).await;
            if !stream.capabilities.confirms_input {
                return sent;
            }
            match command.input.wait_for_delivery(&position, timeout).await {
                Some(Delivery::Received) => return Ok(()),
                Some(Delivery::Closed) => return Err(SandboxError::InputClosed { id: command.id.clone() }),
                Some(Delivery::Lost(bytes)) => {
                    remaining = &remaining[remaining.len().saturating_sub(bytes)..];
                }
                None => return Err(lost()),
            }
        }
    }

    /// Closes the input of a command, and waits until the guest agent confirms it.
    pub(crate) async fn close_input(
        &self,
        id: &str,
        timeout: Duration,
        request: ServerPayload,
    ) -> Result<()> {
        let Some(command) = self.commands.get(id) else { return self.guest.send(request).await };
        let _guard = command.input.lock(timeout).await.map_err(|reason| input_error(id, reason, 0))?;
        loop {
            let position = command.input.position();
            let stream = self.guest.stream()?;
            let sent = self.guest.send_on(&stream, request.clone()).await;
            if !stream.capabilities.confirms_input {
                command.input.close();
                return sent;
            }
            match command.input.wait_for_close(&position, timeout).await {
                Some(true) => return Ok(()),
                Some(false) => {}
                None => return Err(self.guest.away_error()),
            }
        }
    }
}

fn input_error(id: &str, reason: InputRefused, written: usize) -> SandboxError {
    let id = id.to_owned();
    match reason {
        InputRefused::Closed => SandboxError::InputClosed { id },
        InputRefused::WindowFull => SandboxError::InputFull { id, written },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox_dir::SandboxDir;

    fn handle() -> SandboxHandle {
        SandboxHandle::new("sbx-1", SandboxDir::new("/nonexistent".into()), "")
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_an_agent_that_is_given_up_gets_an_error() {
        let (handle, command) = (handle(), RunningCommand::new("cmd-1"));
        let mut progress = command.subscribe();
        let give_up = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            handle.guest.set_lost("away");
        };
        let (changed, ()) = tokio::join!(handle.wait_for_progress(&command, &mut progress), give_up);
        assert!(matches!(changed, Err(SandboxError::AgentLost { reason, .. }) if reason == "away"));
        // Progress that was reported before comes first.
        command.advance(1, None);
        assert!(handle.wait_for_progress(&command, &mut progress).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_is_not_reported_in_time_is_an_error_unless_the_sandbox_is_frozen() {
        let (handle, command) = (handle(), RunningCommand::new("cmd-1"));
        command.set_exit_report_timeout(Duration::from_secs(2));
        let mut progress = command.subscribe();
        let frozen = handle.guest.expect_freeze();
        let waiting =
            tokio::time::timeout(Duration::from_secs(100), handle.wait_for_progress(&command, &mut progress));
        assert!(waiting.await.is_err(), "it is waited for while it may be frozen");
        drop(frozen);
        handle.guest.forget_freezes();
        let changed = handle.wait_for_progress(&command, &mut progress).await;
        assert!(matches!(changed, Err(SandboxError::AgentLost { .. })), "{changed:?}");
    }
}
