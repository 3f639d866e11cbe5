//! Notes: texts and data that AI agents write about their steps.
//!
//! A note belongs to the next snapshot of its sandbox, or to the snapshot of its command if the sandbox is traced and
//! the command has ended. It is deleted with that snapshot, or with the sandbox if there was none.

use serde_json::{Map, Value};
use workspace_catalog::{
    CatalogError, NewNote as NewRow, Note, NoteFilter, NoteInsertion, NotePage, NoteQuota,
};

use crate::clock::now;
use crate::error::{Result, SandboxError};
use crate::id;
use crate::scope::Scope;
use crate::service::Service;

/// Maximum size of the text of a note in bytes.
pub const NOTE_TEXT_MAX: usize = 16 << 10;
/// Maximum size of the data of a note in bytes of JSON.
pub const NOTE_DATA_MAX: usize = 64 << 10;
/// Prefix of the ids of notes.
const NOTE_ID_PREFIX: &str = "note";

/// Note to add.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewNote {
    /// Text, at most [`NOTE_TEXT_MAX`] bytes.
    pub text: String,
    /// Data, at most [`NOTE_DATA_MAX`] bytes of JSON.
    pub data: Option<Map<String, Value>>,
    /// Command of the sandbox that the note is about.
    pub command: Option<String>,
}

impl NewNote {
    /// Validates the note. Returns its size in bytes.
    fn check(&self) -> Result<usize> {
        if self.text.is_empty() || self.text.contains('\0') {
            let message = "must be at least one character, without NUL".to_owned();
            return Err(SandboxError::Invalid { field: "text", message });
        }
        check_size("text", self.text.len(), NOTE_TEXT_MAX)?;
        let data = self.data.as_ref().map_or(Ok(0), |data| serde_json::to_vec(data).map(|json| json.len()));
        let data = data.unwrap_or(usize::MAX);
        check_size("data", data, NOTE_DATA_MAX)?;
        Ok(self.text.len() + data)
    }
}

fn check_size(field: &'static str, bytes: usize, limit: usize) -> Result<()> {
    if bytes > limit { Err(SandboxError::NoteTooLarge { field, limit }) } else { Ok(()) }
}

impl Service {
    /// Adds a note about a step in a sandbox. It counts towards the quota of the owner of the sandbox. The quota is not
    /// checked for a caller with access to all sandboxes; the limit for each sandbox applies to every caller.
    pub async fn add_note(&self, scope: &Scope, sandbox: &str, new: NewNote) -> Result<Note> {
        let sandbox = self.find(scope, sandbox).await?;
        let bytes = new.check()?;
        let snapshot = match &new.command {
            Some(command) => self.sandbox_command(&sandbox.id, command).await?.snapshot,
            None => None,
        };
        let row = NewRow {
            id: id::new(NOTE_ID_PREFIX),
            owner: sandbox.owner.clone(),
            sandbox_id: sandbox.id.clone(),
            command_id: new.command,
            snapshot,
            text: new.text,
            data: new.data.map(Value::Object),
            bytes: bytes as u64,
            created_at: now(),
        };
        let quota = self.note_quota(scope);
        match self.0.catalog.notes().insert(&row, quota).await {
            Ok(NoteInsertion::Done) => Ok(note(row)),
            Ok(full) => Err(quota_error(full, quota, &sandbox.owner, &sandbox.id)),
            Err(CatalogError::NotFound { id, .. }) => Err(SandboxError::NotFound { id }),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a page of the notes that were made in a sandbox.
    pub async fn notes(&self, scope: &Scope, sandbox: &str, filter: &NoteFilter) -> Result<NotePage> {
        let sandbox = self.find(scope, sandbox).await?;
        match self.0.catalog.notes().list(&sandbox.id, filter).await {
            // The filter has a NUL, and no id has one: nothing matches.
            Err(CatalogError::Nul { .. }) => Ok(NotePage::default()),
            page => Ok(page?),
        }
    }

    fn note_quota(&self, scope: &Scope) -> NoteQuota {
        let settings = self.settings();
        // `None` for a caller with access to all sandboxes.
        let has_quota = scope.owner().is_some();
        NoteQuota {
            per_sandbox: u64::from(settings.notes_per_sandbox),
            per_owner: (has_quota && settings.notes_per_owner > 0)
                .then_some(u64::from(settings.notes_per_owner)),
            owner_bytes: has_quota.then_some(settings.note_bytes_per_owner),
        }
    }
}

fn note(row: NewRow) -> Note {
    Note {
        id: row.id,
        sandbox_id: row.sandbox_id,
        command_id: row.command_id,
        snapshot: row.snapshot,
        text: row.text,
        data: row.data,
        created_at: row.created_at,
    }
}

/// Returns the error for a note that the catalog did not insert.
fn quota_error(full: NoteInsertion, quota: NoteQuota, owner: &str, sandbox: &str) -> SandboxError {
    let owner = format!("`{owner}`");
    match full {
        NoteInsertion::Done | NoteInsertion::SandboxFull => SandboxError::TooManyNotes {
            what: format!("sandbox `{sandbox}`"),
            limit: quota.per_sandbox,
            unit: "notes",
            setting: "MAX_NOTES_PER_SANDBOX",
        },
        NoteInsertion::OwnerCountFull => SandboxError::TooManyNotes {
            what: owner,
            limit: quota.per_owner.unwrap_or_default(),
            unit: "notes",
            setting: "MAX_NOTES_PER_OWNER",
        },
        NoteInsertion::OwnerBytesFull => SandboxError::TooManyNotes {
            what: owner,
            limit: quota.owner_bytes.unwrap_or_default(),
            unit: "bytes of notes",
            setting: "MAX_NOTE_BYTES_PER_OWNER",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_notes_are_bounded() {
        let data = |len: usize| Some(Map::from_iter([("a".to_owned(), Value::from("x".repeat(len)))]));
        let note = |text: &str, data| NewNote { text: text.to_owned(), data, command: None };
        assert_eq!(note("abc", None).check().unwrap(), 3);
        assert!(note(&"x".repeat(NOTE_TEXT_MAX), data(NOTE_DATA_MAX - 8)).check().is_ok());
        for wrong in ["", "a\0b"] {
            assert!(matches!(note(wrong, None).check(), Err(SandboxError::Invalid { field: "text", .. })));
        }
        let too_large = |note: NewNote| match note.check() {
            Err(SandboxError::NoteTooLarge { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(too_large(note(&"x".repeat(NOTE_TEXT_MAX + 1), None)), "text");
        assert_eq!(too_large(note("a", data(NOTE_DATA_MAX))), "data");
    }
}
