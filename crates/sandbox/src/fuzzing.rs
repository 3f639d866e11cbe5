//! Entry points for fuzz targets: a malicious guest agent, without a sandbox.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use workspace_agent_protocol::fuzzing::decode_messages;
use workspace_agent_protocol::output::{Item, Reader, Writer};
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::{CommandProgress, Heartbeat};

use crate::command::remote_output::{KEPT_OUTPUT_MIN, ReceivedOutput};
use crate::guest::handle::SandboxHandle;
use crate::guest::listener::check_protocol_version;
use crate::id;
use crate::sandbox_dir::SandboxDir;

/// Id of the only gRPC stream of the guest agent.
const AGENT_STREAM: u64 = 1;
/// Maximum number of items of a command's output that are read.
const ITEMS_MAX: usize = 10_000;

/// Handles messages, each behind its length, like those of a guest agent. Output is written to a directory.
pub fn handle_messages(bytes: &[u8], directory: &Path) -> io::Result<()> {
    let handle = SandboxHandle::new("sbx-1", SandboxDir::new(directory.to_owned()), id::NO_TOKEN_HASH);
    for message in decode_messages(bytes) {
        let Some(payload) = message.payload else { return Ok(()) };
        match payload {
            AgentPayload::Register(request) => {
                assert!(
                    !id::is_token_of(&request.token, &handle.token_hash),
                    "a token matched the hash that no token has"
                );
                // The server stops at an unsupported version. Here the rest of the request is handled anyway.
                let protocol_version = request.generation;
                drop(check_protocol_version(protocol_version));
                for progress in request.commands {
                    let running = handle.commands.get_or_add(&progress.command_id);
                    running.input.record_reconnect(progress.input_received, AGENT_STREAM);
                    record_progress(&handle, progress);
                }
            }
            AgentPayload::Heartbeat(Heartbeat { resource_usage: Some(usage), .. }) => {
                handle.guest.set_usage(usage);
            }
            AgentPayload::Heartbeat(_) => {}
            AgentPayload::Processes(listed) => handle.guest.set_processes(listed.processes),
            AgentPayload::TimersSuspended(report) => handle.guest.set_timers_suspended(report.on),
            AgentPayload::CommandProgress(progress) => record_progress(&handle, progress),
            AgentPayload::RequestFailed(failed) => drop(handle.commands.get_or_add(&failed.id)),
            AgentPayload::CommandOutput(output) => store(ReceivedOutput::of_command(output), directory)?,
            AgentPayload::PtyOutput(output) => store(ReceivedOutput::of_terminal(output), directory)?,
        }
    }
    Ok(())
}

fn record_progress(handle: &SandboxHandle, progress: CommandProgress) {
    let written = progress.written;
    let (running, exit) = handle.commands.record_report(progress);
    handle.output.add(written.saturating_sub(running.written()));
    running.advance(written, exit.as_ref());
    assert!(running.written() >= written, "the number of written bytes decreased");
    // Reserving input must not overflow, whatever numbers the guest agent reported.
    let _ = running.input.try_reserve(1);
}

/// Writes a piece of output as the server does, and reads all output.
fn store(piece: Option<ReceivedOutput>, directory: &Path) -> io::Result<()> {
    let Some(piece) = piece else { return Ok(()) };
    let id = piece.id.clone();
    // An id that is not a valid file name has no output.
    let Ok(mut writer) = Writer::resume(File::open(directory)?.into(), &id, KEPT_OUTPUT_MIN) else {
        return Ok(());
    };
    let before = writer.end_offset();
    // A piece that is too long is rejected.
    drop(piece.write(&mut writer));
    assert!(writer.end_offset() >= before, "the number of written bytes decreased");
    read_output(directory, &id)
}

/// Reads a file of output that a guest agent wrote itself, appends to it, and reads it again.
pub fn read_segment(bytes: &[u8], directory: &Path) -> io::Result<()> {
    let id = "cmd-1";
    fs::write(directory.join(format!("{id}.{:016x}", 0)), bytes)?;
    read_output(directory, id)?;
    let Ok(mut writer) = Writer::resume(File::open(directory)?.into(), id, KEPT_OUTPUT_MIN) else {
        return Ok(());
    };
    drop(writer.write(workspace_agent_protocol::output::Stream::Stdout, 0, b"more"));
    read_output(directory, id)
}

/// Reads all output, and checks that offsets never decrease.
fn read_output(directory: &Path, id: &str) -> io::Result<()> {
    let mut reader = Reader::open(File::open(directory)?, id, 0)?;
    let mut end = 0;
    for _ in 0..ITEMS_MAX {
        // A corrupt file is an error.
        let Ok(Some(item)) = reader.next_item() else { return Ok(()) };
        let (from, to) = match item {
            Item::Gap { from, to } => (from, to),
            Item::Frame(frame) if frame.exit_status().is_some() => continue,
            Item::Frame(frame) => (frame.offset, frame.offset + frame.data.len() as u64),
        };
        assert!(end <= from && from <= to, "output goes back: {end}, {from}..{to}");
        end = to;
    }
    Ok(())
}
