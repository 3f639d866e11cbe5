//! What the commands of a sandbox printed, all together.

use std::fs::File;

use workspace_agent_protocol::output::{Item, Reader, Stream};

use crate::error::{Doing as _, Result};
use crate::place::Place;
use crate::service::{Scope, Service};

/// Of so many commands.
const COMMANDS: u32 = 200;
/// Of so many bytes; the oldest go first.
const BYTES: usize = 8 << 20;

/// Lines in the order of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logs {
    /// The lines. What is not UTF-8 is replaced.
    pub text: String,
    /// Whether there were more.
    pub truncated: bool,
}

impl Service {
    /// The last lines that commands printed, not before `since` and not after `until`.
    pub async fn logs(
        &self,
        scope: &Scope,
        id: &str,
        tail: usize,
        since: Option<i64>,
        until: Option<i64>,
    ) -> Result<Logs> {
        let commands = self.commands(scope, id, COMMANDS).await?;
        let more = commands.len() >= COMMANDS as usize;
        let (place, ids) = (self.place(id), commands.into_iter().map(|command| command.id).collect());
        let wanted = since.unwrap_or(i64::MIN)..=until.unwrap_or(i64::MAX);
        let work = move || collect(&place, ids, &wanted);
        let collected = tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other);
        let reading = || "read what commands printed".to_owned();
        let (bytes, cut) = collected.doing(reading)?.doing(reading)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let first = lines.len().saturating_sub(tail);
        Ok(Logs { text: lines[first..].concat(), truncated: more || cut || first > 0 })
    }
}

/// What was printed within those times, and whether there was more.
fn collect(
    place: &Place,
    ids: Vec<String>,
    wanted: &std::ops::RangeInclusive<i64>,
) -> std::io::Result<(Vec<u8>, bool)> {
    let (mut pieces, mut size, mut cut) = (Vec::new(), 0, false);
    for id in ids {
        // Newest first: when there is enough, older ones need not be read.
        if size > BYTES {
            cut = true;
            break;
        }
        let mut reader = Reader::open(File::open(place.output())?, &id, 0)?;
        while let Some(item) = reader.next_item()? {
            match item {
                Item::Frame(frame) if frame.stream != Stream::End && wanted.contains(&frame.time) => {
                    size += frame.data.len();
                    pieces.push((frame.time, frame.data));
                }
                Item::Frame(_) => {}
                Item::Gap { .. } => cut = true,
            }
        }
    }
    pieces.sort_by_key(|(time, _)| *time);
    Ok((pieces.into_iter().flat_map(|(_, data)| data).collect(), cut))
}
