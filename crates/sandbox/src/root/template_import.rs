//! Importing the files of a template into the store, and removing them.

use std::path::Path;

use uuid::Uuid;
use workspace_state::{Cancel, Expect, NewSnapshot, SnapshotId};
use workspace_workspace::{Result, RootImport, Workspaces};

use super::skeleton;
use crate::template::ImportedTemplate;

/// Prefix of the references to the files of templates.
pub(crate) const REFERENCES: &str = "template-roots/";
/// Prefix of the references to snapshots of imports that are in progress.
const TEMPORARY_REFERENCES: &str = "template-imports/";

/// Returns the prefix of the references to the files of all templates that have or had a name.
fn references_of(name: &str) -> String {
    format!("{REFERENCES}{}/", &blake3::hash(name.as_bytes()).to_hex()[..32])
}

/// Returns the reference to the files of a template. Another template that gets its name later has another one.
pub(crate) fn reference_of(template: &ImportedTemplate) -> String {
    format!("{}{}-{}", references_of(&template.name), template.created_at, template.size)
}

/// Imports the files of a template from a directory, as a snapshot that the reference names.
pub(super) fn import(
    roots: &Workspaces,
    name: &str,
    directory: &Path,
    reference: &str,
    cancel: &Cancel,
) -> Result<SnapshotId> {
    let temporary_reference = format!("{TEMPORARY_REFERENCES}{}", Uuid::now_v7().simple());
    let import = RootImport {
        directory,
        template: name,
        temporary_reference: &temporary_reference,
        change: &skeleton::add,
    };
    let new = NewSnapshot {
        references: vec![(reference.to_owned(), Expect::Absent)],
        ..NewSnapshot::with_message(format!("files of template {name}"))
    };
    Ok(roots.cancellable(cancel).import_root(&import, new)?.id)
}

/// Removes the files of all templates that had a name, except those that a root is based on.
pub(super) fn forget(roots: &Workspaces, name: &str) -> Result<()> {
    let pinned: Vec<SnapshotId> = roots.store().pins()?.iter().map(|pin| pin.snapshot).collect();
    for (reference, id) in roots.store().references_with_prefix(&references_of(name))? {
        if !pinned.contains(&id) {
            roots.remove_import(&reference, id)?;
        }
    }
    Ok(())
}

/// Removes snapshots of imports in which the last server was stopped.
pub(super) fn remove_unfinished(roots: &Workspaces) -> Result<()> {
    for (reference, id) in roots.store().references_with_prefix(TEMPORARY_REFERENCES)? {
        roots.remove_import(&reference, id)?;
    }
    Ok(())
}
