//! `/api/v1/sandboxes/{id}/notes`: notes of agents about their steps, such as the reason for a command.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::access::Right;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::notes::{CreateNote, ListNotesQuery, Note, NoteList, NoteSort};
use workspace_catalog::{CreationOrder, Note as Record, NoteFilter};
use workspace_sandbox::NewNote;

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::time::format_millis;

const LIMIT_DEFAULT: u32 = 100;
const LIMIT_MAX: u32 = 1_000;
/// Size in bytes at which a page ends early.
const PAGE_BYTES: u64 = 1 << 20;

#[derive(OpenApi)]
#[openapi(paths(create, list))]
struct Document;

/// Rules of the routes. Notes are about commands, so a token needs the same right as for commands.
const RULES: &[Rule] = &[
    Rule::right("GET", "/api/v1/sandboxes/{id}/notes", Right::Process),
    Rule::right("POST", "/api/v1/sandboxes/{id}/notes", Right::Process),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new().route("/api/v1/sandboxes/{id}/notes", get(list).post(create));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Add a note about a step in a sandbox.
///
/// The note belongs to the next snapshot of the sandbox, and is deleted with it. If it names a command that has a
/// snapshot (`trace: "command"`), it belongs to that one. `GET /api/v1/snapshots/{a}/diff/{b}?why=true` has the notes of
/// the snapshots in which a file changed.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/notes", tag = "notes", operation_id = "create_note",
    params(("id" = String, Path, description = "Id of the sandbox")), request_body = CreateNote, responses(
    (status = 201, description = "New note", body = Note),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Json(body): Json<CreateNote>,
) -> Result<(StatusCode, Json<Note>), ApiError> {
    let new = NewNote { text: body.text, data: body.data, command: body.command };
    let note = app.sandboxes.add_note(&scope(&caller), &id, new).await?;
    // A note may contain anything, so only its size is logged.
    let details = json!({ "note": note.id, "command_id": note.command_id, "bytes": note.text.len() });
    let sandbox_id = Some(id);
    app.audit.record(Entry { sandbox_id, ..Entry::for_caller("note.created", &caller, &request, details) });
    Ok((StatusCode::CREATED, Json(note_to_api(note)?)))
}

/// List the notes of a sandbox, by default the oldest first.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/notes", tag = "notes", operation_id = "list_notes",
    params(("id" = String, Path, description = "Id of the sandbox"), ListNotesQuery), responses(
    (status = 200, description = "Page of notes", body = NoteList),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<ListNotesQuery>,
) -> Result<Json<NoteList>, ApiError> {
    let limit = query.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let message = format!("limit must be between 1 and {LIMIT_MAX}");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "limit"));
    }
    let order = match query.sort.unwrap_or_default() {
        NoteSort::Oldest => CreationOrder::Oldest,
        NoteSort::Newest => CreationOrder::Newest,
    };
    let (command_id, cursor) = (query.command, query.cursor);
    let filter = NoteFilter { command_id, order, cursor, limit, bytes: PAGE_BYTES };
    let _permit = app.work_limits.read(&caller.owner).await;
    let page = app.sandboxes.notes(&scope(&caller), &id, &filter).await?;
    let next = page.notes.last().filter(|_| page.has_more).map(|last| last.id.clone());
    let items = page.notes.into_iter().map(note_to_api).collect::<Result<_, ApiError>>()?;
    Ok(Json(NoteList { items, total: page.total, limit, next }))
}

pub(crate) fn note_to_api(note: Record) -> Result<Note, ApiError> {
    Ok(Note {
        time: format_millis(note.created_at)?,
        id: note.id,
        sandbox_id: note.sandbox_id,
        command: note.command_id,
        snapshot: note.snapshot,
        text: note.text,
        data: note.data,
    })
}
