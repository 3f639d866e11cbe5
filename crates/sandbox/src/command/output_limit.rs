//! Limit on the retained output of all commands of a sandbox.
//!
//! Output is outside the workspace, so neither a quota nor the disk limit of the workspace applies to it. A sandbox
//! keeps [`Settings::kept_output_bytes_per_sandbox`](crate::Settings) bytes of it, and no more than its disk limit
//! leaves beside its workspace, but [`OUTPUT_MIN`] at least. A *trim* removes older output until 7/8 of this limit are
//! left, in whole segments, which are files with a part of the output of a command: first those of commands that have
//! exited, oldest first, then those of running ones, largest first. Readers get a gap. The last segment of a running
//! command stays, and so does unread output of a command that waits for its readers.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use workspace_agent_protocol::output::{self, Segment};

use crate::blocking::blocking;
use crate::error::Result;
use crate::guest::handle::SandboxHandle;
use crate::service::Service;

/// Bytes of output that every sandbox may keep, however full its workspace is.
pub(crate) const OUTPUT_MIN: u64 = 1 << 20;
/// A command that waits for its readers keeps at most the output limit of its sandbox divided by this: its
/// unread output cannot be removed, and many such commands may run.
const BLOCKING_DIVISOR: u64 = 16;

impl Service {
    /// Returns the maximum number of bytes of output that are kept of a command.
    pub(crate) fn kept_of_command(&self, handle: &SandboxHandle, blocks_on_unread_output: bool) -> u64 {
        let max = self.0.settings.kept_output_bytes;
        if blocks_on_unread_output { max.min(self.output_limit(handle) / BLOCKING_DIVISOR) } else { max }
    }

    /// Measures the output of sandboxes whose output directory changed since the last time: guest agents do not
    /// report output of programs that outlive their command.
    pub(crate) async fn measure_outputs(&self, handles: &[Arc<SandboxHandle>]) -> Result<()> {
        let outputs: Vec<_> = handles.iter().map(|handle| (handle.dir.clone(), Arc::clone(handle))).collect();
        let measure = move || {
            for (dir, handle) in outputs {
                if let Err(error) = handle.output.measure(&dir) {
                    tracing::warn!(sandbox = handle.id, %error, "failed to measure retained output");
                }
            }
        };
        blocking(measure).await
    }

    /// Returns the maximum number of bytes of output that a sandbox keeps, given the size of its workspace at the last
    /// scan.
    fn output_limit(&self, handle: &SandboxHandle) -> u64 {
        let settings = &self.0.settings;
        // Without a disk limit, the output of one command always fits, even if the limit for all commands is lower: a
        // quarter more, because output is trimmed to 7/8 of the limit.
        let max = settings
            .kept_output_bytes_per_sandbox
            .max(settings.kept_output_bytes + settings.kept_output_bytes / 4);
        let beside_workspace =
            handle.disk().map_or(u64::MAX, |limit| limit.saturating_sub(handle.usage.bytes()));
        max.min(beside_workspace).max(OUTPUT_MIN)
    }

    /// Removes output of a sandbox beyond its limit, if it may have grown beyond it.
    pub(crate) fn limit_output(&self, handle: &Arc<SandboxHandle>) {
        // The running commands are known while the guest agent is connected.
        if !handle.guest.is_connected()
            || !handle.output.may_exceed(self.output_limit(handle))
            || !handle.output.try_begin_update()
        {
            return;
        }
        let (service, handle) = (self.clone(), Arc::clone(handle));
        tokio::spawn(async move {
            let (limit, shared) = (service.output_limit(&handle), Arc::clone(&handle));
            let goal = limit - limit / 8;
            let work = move || trim(&shared.dir.output(), goal, || shared.commands.droppable_offsets());
            let trimmed = blocking(work).await;
            match trimmed.and_then(|trimmed| trimmed.map_err(crate::command::output::read_error)) {
                Ok(kept) => handle.output.finish_update(Some(kept)),
                Err(error) => {
                    handle.output.finish_update(None);
                    tracing::warn!(sandbox = handle.id, %error, "failed to limit retained output");
                }
            }
        });
    }
}

/// Removes segments until `goal` bytes are left, or no more may be removed, and returns the bytes that are
/// left. `running` returns the offset up to which the output of each running command may be removed. It is called
/// after the segments are listed: then none of them belongs to a command that started since.
fn trim(directory: &Path, goal: u64, running: impl FnOnce() -> HashMap<String, u64>) -> io::Result<u64> {
    let directory = File::open(directory)?;
    let mut kept = 0;
    let mut commands: BTreeMap<String, Vec<Segment>> = BTreeMap::new();
    for segment in output::all_segments(&directory)? {
        kept += segment.bytes;
        commands.entry(segment.command.clone()).or_default().push(segment);
    }
    let running = running();
    let (mut of_running, mut of_ended): (Vec<_>, Vec<_>) =
        commands.into_values().partition(|segments| running.contains_key(&segments[0].command));
    // Oldest first: after their prefix, ids of commands and terminals sort by time.
    of_ended.sort_by(|one, other| time_part(one).cmp(time_part(other)));
    for segment in of_ended.iter().flatten() {
        if kept <= goal {
            return Ok(kept);
        }
        output::remove_segment(&directory, segment)?;
        kept -= segment.bytes;
    }
    for segments in &mut of_running {
        let droppable = running.get(&segments[0].command).copied().unwrap_or(0);
        // A segment ends where the next one begins; the last one stays.
        let removable = segments.windows(2).take_while(|pair| pair[1].offset <= droppable).count();
        segments.truncate(removable);
        // The oldest is popped first.
        segments.reverse();
    }
    while kept > goal {
        let size = |segments: &Vec<Segment>| segments.iter().map(|segment| segment.bytes).sum::<u64>();
        let Some(segment) = of_running.iter_mut().max_by_key(|segments| size(segments)).and_then(Vec::pop)
        else {
            break;
        };
        output::remove_segment(&directory, &segment)?;
        kept -= segment.bytes;
    }
    Ok(kept)
}

/// Returns the id of a command without its prefix.
fn time_part(segments: &[Segment]) -> &str {
    let id = segments[0].command.as_str();
    id.split_once('-').map_or(id, |(_, time)| time)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use workspace_agent_protocol::output::{Stream, Writer};

    use super::*;

    /// Size of the output of each command. A quarter of it makes a segment.
    const OUTPUT: usize = 32 << 10;

    /// Writes output of a command, which keeps all of it.
    fn write(home: &Path, command: &str) {
        let directory = OwnedFd::from(File::open(home).unwrap());
        let mut writer = Writer::create(directory, command, OUTPUT as u64).unwrap();
        let (piece, time) = ([7; 1 << 10], 0);
        for _ in 0..OUTPUT / piece.len() {
            writer.write(Stream::Stdout, time, &piece).unwrap();
        }
    }

    fn segment_counts(home: &Path) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for segment in output::all_segments(File::open(home).unwrap()).unwrap() {
            *counts.entry(segment.command).or_default() += 1;
        }
        counts
    }

    #[test]
    fn oldest_ended_output_is_removed_first_and_the_last_segment_of_running_commands_stays() {
        let home = tempfile::tempdir().unwrap();
        for command in ["cmd-1", "cmd-2", "cmd-3", "cmd-4"] {
            write(home.path(), command);
        }
        let before = segment_counts(home.path());
        let all: u64 =
            output::all_segments(File::open(home.path()).unwrap()).unwrap().iter().map(|one| one.bytes).sum();
        let running = HashMap::from([("cmd-1".to_owned(), u64::MAX), ("cmd-2".to_owned(), 0)]);
        // A little less than all: the oldest that exited loses its first segment.
        trim(home.path(), all - 1, || running.clone()).unwrap();
        let now = segment_counts(home.path());
        assert_eq!(
            (now["cmd-1"], now["cmd-3"], now["cmd-4"]),
            (before["cmd-1"], before["cmd-3"] - 1, before["cmd-4"])
        );
        // Of cmd-1 only the last segment is left. Unread output of cmd-2, which waits for its readers, stays.
        let kept = trim(home.path(), 0, || running.clone()).unwrap();
        assert_eq!(
            segment_counts(home.path()),
            BTreeMap::from([("cmd-1".to_owned(), 1), ("cmd-2".to_owned(), before["cmd-2"])])
        );
        assert!(kept > 0);
    }

    #[test]
    fn output_of_a_command_that_starts_during_a_trim_stays() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), "cmd-1");
        let start = || {
            write(home.path(), "cmd-2");
            HashMap::new()
        };
        trim(home.path(), 0, start).unwrap();
        assert_eq!(segment_counts(home.path()).into_keys().collect::<Vec<_>>(), ["cmd-2"]);
    }
}
