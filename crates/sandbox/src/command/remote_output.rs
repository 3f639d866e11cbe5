//! Output that guest agents send over the connection because they share no files with the server.
//!
//! The server writes it to the same files that other guest agents write themselves, so readers need not know its
//! source. Written output is confirmed; the agent sends unconfirmed output again on its next connection, and it is
//! written once.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use workspace_agent_protocol::output::{ExitStatus, Stream, Writer};
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{
    CommandOutput, OutputStored, OutputType, PtyOutput, RegisterRequest, pty_output,
};

use crate::command::running::RunningCommand;
use crate::guest::handle::SandboxHandle;
use crate::service::Service;

/// Minimum for the bytes of output that are kept of a command, as in guest agents that write files themselves.
pub(crate) const KEPT_OUTPUT_MIN: u64 = 512 << 10;

/// Output of a command, or its exit, that a guest agent sent.
pub(crate) struct ReceivedOutput {
    pub(crate) id: String,
    offset: u64,
    /// Time of arrival at the guest agent, in milliseconds since 1970.
    time: i64,
    content: Content,
}

enum Content {
    Data(Stream, Vec<u8>),
    Exit(ExitStatus),
}

impl ReceivedOutput {
    /// Converts output or the exit of a command; `None` for other messages.
    pub(crate) fn of_command(output: CommandOutput) -> Option<Self> {
        let content = match output.r#type() {
            OutputType::Stdout => Content::Data(Stream::Stdout, output.data),
            OutputType::Stderr => Content::Data(Stream::Stderr, output.data),
            OutputType::Exit => {
                Content::Exit(ExitStatus { exit_code: output.exit_code, timed_out: output.timed_out })
            }
            OutputType::Unspecified | OutputType::Error => return None,
        };
        Some(Self { id: output.command_id, offset: output.offset, time: output.timestamp, content })
    }

    /// Converts output or the exit of a terminal; `None` for other messages.
    pub(crate) fn of_terminal(output: PtyOutput) -> Option<Self> {
        let content = match output.payload? {
            pty_output::Payload::Data(data) => Content::Data(Stream::Stdout, data),
            pty_output::Payload::ExitCode(exit_code) => {
                Content::Exit(ExitStatus { exit_code, timed_out: false })
            }
            pty_output::Payload::Error(_) => return None,
        };
        Some(Self { id: output.pty_id, offset: output.offset, time: output.timestamp, content })
    }

    /// Writes the part of the piece that is not written yet.
    pub(crate) fn write(self, writer: &mut Writer) -> io::Result<()> {
        match self.content {
            Content::Exit(status) => writer.write_exit(self.time, status),
            Content::Data(stream, data) => {
                let written = writer.end_offset().saturating_sub(self.offset);
                let new = data.get(usize::try_from(written).unwrap_or(usize::MAX)..).unwrap_or_default();
                writer.skip_to(self.offset);
                writer.write(stream, self.time, new)
            }
        }
    }
}

impl Service {
    /// Stores output of a command that the guest agent sent.
    pub(crate) async fn store_command_output(&self, handle: &Arc<SandboxHandle>, output: CommandOutput) {
        if let Some(piece) = ReceivedOutput::of_command(output) {
            self.store(handle, piece).await;
        }
    }

    /// Stores output of a terminal that the guest agent sent.
    pub(crate) async fn store_terminal_output(&self, handle: &Arc<SandboxHandle>, output: PtyOutput) {
        if let Some(piece) = ReceivedOutput::of_terminal(output) {
            self.store(handle, piece).await;
        }
    }

    async fn store(&self, handle: &Arc<SandboxHandle>, piece: ReceivedOutput) {
        let id = piece.id.clone();
        let Some(running) = handle.commands.get(&id) else { return };
        let stored = self.with_writer(handle, &running, move |writer| {
            // As with guest agents that write files: a full disk leaves a gap, which readers get.
            let written = piece.write(writer);
            (writer.end_offset(), written)
        });
        let Some((stored, written)) = stored.await else { return };
        if let Err(error) = written {
            tracing::warn!(sandbox = handle.id, command = id, %error, "failed to store output");
        }
        let confirmation = OutputStored { command_id: id, stored };
        // A disconnected guest agent gets the stored offset when it reconnects.
        drop(handle.guest.send(ServerPayload::OutputStored(confirmation)).await);
    }

    /// Removes from a registration the commands that no server started in the sandbox.
    pub(crate) async fn drop_unknown_commands(
        &self,
        handle: &Arc<SandboxHandle>,
        request: &mut RegisterRequest,
    ) {
        if request.commands.iter().all(|progress| handle.commands.get(&progress.command_id).is_some()) {
            return;
        }
        let started: HashSet<String> = match self.0.catalog.commands().newest_ids(&handle.id, u32::MAX).await
        {
            Ok(started) => started.into_iter().collect(),
            Err(error) => {
                // If unsure, the command stays: a running one would never be reported again.
                return tracing::error!(sandbox = handle.id, %error, "failed to list the commands of a sandbox");
            }
        };
        let before = request.commands.len();
        request.commands.retain(|progress| {
            handle.commands.get(&progress.command_id).is_some() || started.contains(&progress.command_id)
        });
        let unknown = before - request.commands.len();
        if unknown > 0 {
            tracing::warn!(
                sandbox = handle.id,
                unknown,
                "guest agent reported commands that no server started"
            );
        }
    }

    /// Returns the offset up to which the output of each command that a guest agent reported is stored. Empty if the
    /// agent writes output to files itself.
    pub(crate) async fn stored_outputs(
        &self,
        handle: &Arc<SandboxHandle>,
        request: &RegisterRequest,
    ) -> Vec<OutputStored> {
        let mut stored = Vec::new();
        if request.capabilities.get("output").is_none_or(|how| how != "stream") {
            return stored;
        }
        for progress in &request.commands {
            let running = handle.commands.get_or_add(&progress.command_id);
            if let Some(written) = self.with_writer(handle, &running, |writer| writer.end_offset()).await {
                stored.push(OutputStored { command_id: progress.command_id.clone(), stored: written });
            }
        }
        stored
    }

    /// Calls `work` with the writer of a command's output. `None` for a command that the catalog does not
    /// have: a guest agent may report anything.
    async fn with_writer<T: Send + 'static>(
        &self,
        handle: &Arc<SandboxHandle>,
        running: &Arc<RunningCommand>,
        work: impl FnOnce(&mut Writer) -> T + Send + 'static,
    ) -> Option<T> {
        let mut open_writer = running.writer.lock().await;
        let mut writer = match open_writer.take() {
            Some(writer) => writer,
            None => self.open_writer(handle, &running.id).await?,
        };
        let task = spawn_blocking(move || {
            let result = work(&mut writer);
            (writer, result)
        });
        let (writer, result) = task.await.ok()?;
        *open_writer = Some(writer);
        Some(result)
    }

    /// Opens the writer of a command's output; `None` if the catalog does not have the command, or the files cannot be
    /// opened.
    async fn open_writer(&self, handle: &SandboxHandle, id: &str) -> Option<Writer> {
        let row = self.0.catalog.commands().get(id).await;
        row.ok()?.filter(|command| command.sandbox_id == handle.id)?;
        let (directory, name) = (handle.dir.output(), id.to_owned());
        let keep = self.0.settings.kept_output_bytes.max(KEPT_OUTPUT_MIN);
        let open = move || Writer::resume(File::open(directory)?.into(), &name, keep);
        let opened = spawn_blocking(open).await.map_err(io::Error::other).flatten();
        opened
            .map_err(|error| {
                tracing::error!(sandbox = handle.id, command = id, %error, "failed to open output files");
            })
            .ok()
    }
}
