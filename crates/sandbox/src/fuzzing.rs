//! For fuzz targets: what a guest that says anything can make the server do, without a sandbox.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use workspace_agent_protocol::fuzzing::messages;
use workspace_agent_protocol::output::{Item, Reader, Writer};
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::{CommandProgress, Heartbeat};

use crate::command::remote_output::{KEEP_LEAST, Piece};
use crate::guest::handle::SandboxHandle;
use crate::guest::listener::check_generation;
use crate::id;
use crate::sandbox_dir::SandboxDir;

/// Items of a command's output that are looked at.
const ITEMS_MAX: usize = 10_000;

/// Hears messages, each behind its length, as those of a guest are heard. Output that it sends is written to a directory.
pub fn hear_messages(bytes: &[u8], directory: &Path) -> io::Result<()> {
    let handle = SandboxHandle::new("sbx-1", SandboxDir::new(directory.to_owned()), id::NOBODYS);
    for message in messages(bytes) {
        let Some(said) = message.payload else { return Ok(()) };
        match said {
            AgentPayload::Register(request) => {
                assert!(!id::is_token_of(&request.token, &handle.token_hash), "nobody's token was accepted");
                // Refused or not, it is heard here.
                drop(check_generation(request.generation));
                for progress in request.commands {
                    let running = handle.commands.get_or_add(&progress.command_id);
                    running.input.received(progress.input_received, 1);
                    hear_progress(&handle, progress);
                }
            }
            AgentPayload::Heartbeat(Heartbeat { resource_usage: Some(usage), .. }) => {
                handle.guest.set_usage(usage)
            }
            AgentPayload::Heartbeat(_) => {}
            AgentPayload::Processes(listed) => handle.guest.set_processes(listed.processes),
            AgentPayload::CommandProgress(progress) => hear_progress(&handle, progress),
            AgentPayload::RequestFailed(failed) => drop(handle.commands.get_or_add(&failed.id)),
            AgentPayload::CommandOutput(output) => store(Piece::of_command(output), directory)?,
            AgentPayload::PtyOutput(output) => store(Piece::of_terminal(output), directory)?,
        }
    }
    Ok(())
}

fn hear_progress(handle: &SandboxHandle, progress: CommandProgress) {
    let written = progress.written;
    let (running, end) = handle.commands.report(progress);
    handle.output.add(written.saturating_sub(running.written()));
    running.advance(written, end.as_ref());
    assert!(running.written() >= written, "what was written became less");
    // Somebody types, whatever the guest says of what came before.
    let _ = running.input.try_reserve(1);
}

/// Writes a piece of output as the server does, and reads all that is there.
fn store(piece: Option<Piece>, directory: &Path) -> io::Result<()> {
    let Some(piece) = piece else { return Ok(()) };
    let id = piece.id.clone();
    // An id that is no name of a file has no output.
    let Ok(mut writer) = Writer::resume(File::open(directory)?.into(), &id, KEEP_LEAST) else {
        return Ok(());
    };
    let before = writer.written();
    // What is too long is refused.
    drop(piece.write(&mut writer));
    assert!(writer.written() >= before, "what was written became less");
    read_output(directory, &id)
}

/// Reads a file of output that a guest wrote itself, goes on writing it, and reads it again.
pub fn read_segment(bytes: &[u8], directory: &Path) -> io::Result<()> {
    let id = "cmd-1";
    fs::write(directory.join(format!("{id}.{:016x}", 0)), bytes)?;
    read_output(directory, id)?;
    let Ok(mut writer) = Writer::resume(File::open(directory)?.into(), id, KEEP_LEAST) else { return Ok(()) };
    drop(writer.write(workspace_agent_protocol::output::Stream::Stdout, 0, b"more"));
    read_output(directory, id)
}

/// Offsets never go back, and what is read ends.
fn read_output(directory: &Path, id: &str) -> io::Result<()> {
    let mut reader = Reader::open(File::open(directory)?, id, 0)?;
    let mut behind = 0;
    for _ in 0..ITEMS_MAX {
        // A damaged file is an error.
        let Ok(Some(item)) = reader.next_item() else { return Ok(()) };
        let (from, to) = match item {
            Item::Gap { from, to } => (from, to),
            Item::Frame(frame) if frame.end().is_some() => continue,
            Item::Frame(frame) => (frame.offset, frame.offset + frame.data.len() as u64),
        };
        assert!(behind <= from && from <= to, "output goes back: {behind}, {from}..{to}");
        behind = to;
    }
    Ok(())
}
