//! Readers of events: the stored events that a caller sees, and the ids under which it sees them.

use workspace_api::event_log::EventGap;
use workspace_catalog::{Event, EventFilter};

use super::agent_events::AgentEvents;
use super::conversion::{event_id, gap};
use super::event_ids::EventIds;
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;

/// Minimum number of events that are read at a time for an agent, which may see few of them.
const SCANNED_MIN: u32 = 1_000;

/// Reader of the events that match a filter.
#[derive(Debug)]
pub(crate) enum EventReader {
    /// Sees all of them, with their numbers.
    Full,
    /// Key of an agent. Numbers would tell it about events of others.
    Agent {
        ids: EventIds,
        /// Filter of the events of a project; `None` for events of the key's own owner, all of which it sees.
        events: Option<Box<AgentEvents>>,
    },
}

/// Events that a reader sees, each with its number.
#[derive(Debug)]
pub(super) struct ShownEvents {
    pub(super) events: Vec<Event>,
    /// True if there may be further ones.
    pub(super) has_more: bool,
    /// Highest number of a deleted event of the filter's owner; 0 if there is none.
    pub(super) last_deleted: i64,
    /// Highest number of all events when the read began.
    pub(super) newest: i64,
    /// Number up to which all matching events were read.
    pub(super) read: i64,
}

/// Returns an event without the fields that agents do not get: the growth of the store, which tells what content hidden
/// files have in common with a snapshot, and the id of the project, which no other event has for them.
fn as_agent_sees(mut event: Event) -> Event {
    if let Some(data) = event.data.as_object_mut() {
        for field in ["bytes", "projectId"] {
            data.remove(field);
        }
    }
    event
}

impl EventReader {
    /// Returns the reader of the events of the caller's owner.
    pub(super) fn of_caller(app: &App, caller: &Caller) -> Self {
        match caller.binding {
            None => Self::Full,
            Some(_) => Self::Agent { ids: app.event_id_secret.of_reader(&[&caller.owner]), events: None },
        }
    }

    /// Returns the reader of the events of a project that an agent sees.
    pub(crate) fn of_agent(app: &App, events: AgentEvents) -> Self {
        Self::Agent { ids: app.event_id_secret.of_reader(&events.reader()), events: Some(Box::new(events)) }
    }

    /// Returns the id of the event with a number.
    pub(super) fn id(&self, number: i64) -> u64 {
        match self {
            Self::Full => event_id(number),
            Self::Agent { ids, .. } => ids.id(number),
        }
    }

    /// Returns the number of the event with an id; `None` if there cannot be one.
    pub(super) fn number(&self, id: u64) -> Option<i64> {
        match self {
            Self::Full => i64::try_from(id).ok(),
            Self::Agent { ids, .. } => ids.number(id),
        }
    }

    /// Returns the gap for a reader that has the events up to `after`; `None` unless later ones were deleted. An agent
    /// is told no more than that its own position is gone: the deleted events may be about hidden files.
    pub(super) fn gap(&self, after: i64, last_deleted: i64) -> Option<EventGap> {
        let gap = gap(after, last_deleted)?;
        Some(match self {
            Self::Full => gap,
            Self::Agent { ids, .. } => EventGap { from: ids.id(after), to: ids.id(after) },
        })
    }

    /// Reads the first events after a number, at most `limit`.
    pub(super) async fn read(
        &mut self,
        app: &App,
        filter: &EventFilter,
        after: i64,
        limit: u32,
    ) -> Result<ShownEvents, ApiError> {
        let page_size = match self {
            Self::Agent { events: Some(_), .. } => limit.max(SCANNED_MIN),
            Self::Full | Self::Agent { events: None, .. } => limit,
        };
        let (mut shown, mut read) = (Vec::new(), after);
        loop {
            let slice = app.catalog.events().read(filter, read, page_size).await?;
            let is_last = slice.events.len() < page_size as usize;
            read = slice.events.last().map_or(read, |last| last.number);
            shown.extend(match self {
                Self::Agent { events: Some(events), .. } => events.shown(app, slice.events).await?,
                Self::Agent { events: None, .. } => slice.events.into_iter().map(as_agent_sees).collect(),
                Self::Full => slice.events,
            });
            let is_full = shown.len() >= limit as usize;
            if is_full || is_last {
                let is_cut = shown.len() > limit as usize;
                shown.truncate(limit as usize);
                if is_cut {
                    read = shown.last().map_or(read, |last| last.number);
                } else if is_last {
                    read = read.max(slice.newest);
                }
                let (last_deleted, newest) = (slice.last_deleted, slice.newest);
                return Ok(ShownEvents { events: shown, has_more: is_full, last_deleted, newest, read });
            }
        }
    }
}
