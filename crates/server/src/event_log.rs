//! `/api/v1/events`: events of sandboxes and snapshots.

mod agent_events;
mod conversion;
pub(crate) mod event_ids;
pub(crate) mod feed;
mod reader;
mod stream;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::event_log::{Event, EventGap, EventMessage, EventPage, EventType, EventsQuery};
use workspace_catalog::{EventFilter, EventKind};

pub(crate) use agent_events::{AgentEvents, AgentRole};
use conversion::event_to_api;
pub(crate) use reader::EventReader;
use stream::StreamRequest;

use crate::accept_header::prefers;
use crate::access::Rule;
use crate::app::{App, EVENT_STREAMS_MAX};
use crate::caller::{Caller, scope};
use crate::commands::last_event_id;
use crate::error::ApiError;
use crate::extract::{Json, Query};
use crate::route_group::RouteGroup;

const LIMIT_DEFAULT: u32 = 100;
const LIMIT_MAX: u32 = 1_000;

#[derive(OpenApi)]
#[openapi(paths(list), components(schemas(EventPage, Event, EventType, EventGap, EventMessage)))]
struct Document;

const RULES: &[Rule] = &[Rule::only_keys("GET", "/api/v1/events")];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new().route("/api/v1/events", get(list));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// List events of sandboxes and snapshots, the oldest first, or stream them.
///
/// You get the events of your owner; an admin key gets those of all owners. With `Accept: text/event-stream` the
/// response is a stream: it sends the stored events after `after` and then new ones as they occur. To resume a lost
/// stream, send the id of the last event as `Last-Event-ID`. If events were deleted before you read them, a page has a
/// `gap`, and a stream a message `gap`. A gap ignores filters: it may be of events that do not match them. An owner can
/// have 16 streams at a time.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", operation_id = "list_events",
    params(EventsQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Id of the last received event, to resume a stream")),
    responses(
        (status = 200, description = "Page of events; with `Accept: text/event-stream`, a stream of events", content(
            (EventPage = "application/json"), (EventMessage = "text/event-stream"))),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<EventsQuery>,
) -> Result<Response, ApiError> {
    let owner = scope(&caller).owner().map(str::to_owned);
    let reader = EventReader::of_caller(&app, &caller);
    respond(&app, caller, &headers, query, owner, reader).await
}

/// Returns a page or a stream of events, as the client prefers. `owner` is `None` for events of all owners.
pub(crate) async fn respond(
    app: &App,
    caller: Caller,
    headers: &HeaderMap,
    query: EventsQuery,
    owner: Option<String>,
    reader: EventReader,
) -> Result<Response, ApiError> {
    let limit = query.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let message = format!("limit must be between 1 and {LIMIT_MAX}");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "limit"));
    }
    for (field, text) in [("sandbox", &query.sandbox), ("project", &query.project)] {
        if text.as_deref().is_some_and(|text| text.contains('\0')) {
            let message = format!("{field} must not contain NUL characters");
            return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", field));
        }
    }
    let after = last_event_id(headers)?.or(query.after);
    let after = after.map(|id| reader.number(id).ok_or_else(unknown_position)).transpose()?;
    let filter = EventFilter {
        owner,
        sandbox_id: query.sandbox,
        kind: query.kind.as_deref().map(parse_kind).transpose()?,
        project: query.project,
    };
    let mut response = if prefers(headers, "text/event-stream") {
        open_stream(app, caller, filter, after, reader).await?
    } else {
        let _permit = app.work_limits.read(&caller.owner).await;
        Json(page(app, &filter, after, limit, reader).await?).into_response()
    };
    response.headers_mut().insert(header::VARY, header::HeaderValue::from_static("Accept"));
    Ok(response)
}

async fn page(
    app: &App,
    filter: &EventFilter,
    after: Option<i64>,
    limit: u32,
    mut reader: EventReader,
) -> Result<EventPage, ApiError> {
    let shown = reader.read(app, filter, after.unwrap_or(0), limit).await?;
    if after.is_some_and(|after| after > shown.newest) {
        return Err(unknown_position());
    }
    // Not the number up to which events were read: it would change with events that the reader does not see.
    let next = shown.events.last().map_or(after.unwrap_or(0), |event| event.number);
    let to_api = |event: workspace_catalog::Event| {
        let id = reader.id(event.number);
        event_to_api(event, id)
    };
    Ok(EventPage {
        next: reader.id(next),
        more: shown.has_more,
        // A reader without a position begins with the first stored event, and misses nothing.
        gap: after.and_then(|after| reader.gap(after, shown.last_deleted)),
        items: shown.events.into_iter().map(to_api).collect::<Result<_, ApiError>>()?,
    })
}

async fn open_stream(
    app: &App,
    caller: Caller,
    filter: EventFilter,
    after: Option<i64>,
    reader: EventReader,
) -> Result<Response, ApiError> {
    let permit = app.event_streams.semaphore(&caller.owner).try_acquire_owned().map_err(|_| {
        let message = format!("{EVENT_STREAMS_MAX} streams of events of the same owner are open; close one");
        ApiError::new(error_codes::CONNECTION_LIMIT_EXCEEDED, message).detail("limit", EVENT_STREAMS_MAX)
    })?;
    if let Some(after) = after
        && after > app.catalog.events().newest().await?
    {
        return Err(unknown_position());
    }
    Ok(stream::stream(app, StreamRequest { key_id: caller.key_id, filter, after, reader, permit }))
}

/// Creates the error for a position after the newest event. The catalog was probably replaced by an older copy: a
/// reader that waited at this position would miss the events up to it.
fn unknown_position() -> ApiError {
    let message = "after: there is no event with this id yet; start without a position";
    ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "after")
}

fn parse_kind(word: &str) -> Result<EventKind, ApiError> {
    word.parse().map_err(|_| {
        let words: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let message = format!("`{word}` is not a type of events; the types are {}", words.join(", "));
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "type")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_the_api_names_every_type_of_events() {
        let described = serde_json::to_value(Document::openapi()).unwrap();
        let names = described["components"]["schemas"]["EventType"]["enum"].as_array().unwrap();
        let mut names: Vec<&str> = names.iter().map(|name| name.as_str().unwrap()).collect();
        let mut kinds: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        names.sort_unstable();
        kinds.sort_unstable();
        assert_eq!(names, kinds);
    }
}
