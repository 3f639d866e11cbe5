//! `/api/v1/sandboxes/{id}/notes`: texts that an agent stores about its steps, such as the reason for a command.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

/// Request to add a note.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"text": "The parser loses the last line; read until EOF.", "data": {"tokens": 812}}))]
pub struct CreateNote {
    /// Text, at most 16 KiB.
    #[schema(min_length = 1, example = "The parser loses the last line; read until EOF.")]
    pub text: String,
    /// Your own data, at most 64 KiB of JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Map<String, Value>>,
    /// Id of the command of the sandbox that the note is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Note of an agent about a step. It is deleted with the snapshot that it belongs to, or with the sandbox if there is
/// none.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// Id of the note.
    #[schema(example = "note-0190c2f1a5c07cc0a1b2c3d4e5f60718")]
    pub id: String,
    /// Id of the sandbox in which the step was made.
    pub sandbox_id: String,
    /// Id of the command that the note is about; null if it names none.
    pub command: Option<String>,
    /// Id of the snapshot that the note belongs to: that of its command if there was one already, else the next one of
    /// the sandbox. Null until there is one.
    pub snapshot: Option<String>,
    /// Text.
    pub text: String,
    /// Data. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Value>,
    /// Creation time.
    #[schema(format = DateTime)]
    pub time: String,
}

/// Page of notes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NoteList {
    /// Notes in the order of `sort`.
    pub items: Vec<Note>,
    /// Number of notes on all pages.
    pub total: u64,
    /// Maximum number of notes per page.
    pub limit: u32,
    /// Value of `cursor` for the next page. Absent on the last page. A page that would exceed 1 MiB ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Filter and page of a list of notes.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListNotesQuery {
    /// Filter by the id of the command that the notes are about.
    pub command: Option<String>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of notes per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Order. Default: `oldest`. Use a cursor with the order of the list that it is from.
    #[param(inline)]
    pub sort: Option<NoteSort>,
}

/// Order of a list of notes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NoteSort {
    /// Oldest first.
    #[default]
    Oldest,
    /// Newest first.
    Newest,
}
