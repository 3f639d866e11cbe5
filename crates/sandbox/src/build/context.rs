//! Recipe and context of a build, as received from a client.
//!
//! The archive is imported into the store: its names, symlinks and kinds of files are checked there, and nothing of it
//! is ever a path of the server.

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;

use tokio::sync::OwnedRwLockReadGuard;
use workspace_state::{
    ArchiveError, ArchiveLimits, Cancel, Expect, ImportOptions, NewSnapshot, NoProgress, Node, Snapshot,
    Store, StoreError, Tree, TreeError, import_tar,
};
use workspace_workspace::WorkspaceError;

use super::cache::{new_context_reference, remove_reference};
use super::recipe::{RECIPE_MAX, Recipe};
use super::target::{check_source, tree_path};
use crate::blocking::blocking;
use crate::error::{Result, SandboxError};
use crate::service::Service;
use crate::template::{ImportOptions as TemplateOptions, TemplateError, Templates, decompressed};

/// Path of the recipe in the archive, unless the client names another one.
pub const RECIPE_FILE: &str = "template.toml";
/// Maximum number of entries of a context.
const ENTRIES_MAX: u64 = 1_000_000;
/// Maximum number of bytes of the names and attributes of a context.
const METADATA_MAX: u64 = 64 << 20;
/// Message of the snapshot of a context.
const MESSAGE: &str = "context of a template build";

/// Recipe and context of a build.
#[derive(Debug)]
pub struct BuildContext {
    /// Recipe, which is not part of the context.
    pub recipe: Recipe,
    pub(super) files: ContextFiles,
    /// Keeps the files, and the results that the build uses, from being removed as those of a build that has ended.
    pub(super) cache_guard: OwnedRwLockReadGuard<()>,
}

/// Files of a context, which are removed from the store when this is dropped.
#[derive(Debug)]
pub(super) struct ContextFiles {
    store: Store,
    /// Reference to the snapshot in the store, which keeps it.
    reference: String,
    snapshot: Snapshot,
}

impl ContextFiles {
    /// Opens the files.
    pub(super) fn tree(&self, store: &Store) -> std::result::Result<Tree, StoreError> {
        Tree::of_snapshot(store, &self.snapshot)
    }

    /// Removes the recipe from the files, so that a change of the recipe does not change what a step copies.
    fn remove_recipe(&mut self, recipe: &str) -> std::result::Result<(), TreeError> {
        let with_recipe = self.snapshot.id;
        let mut tree = self.store.restore(&with_recipe)?;
        tree.remove(recipe)?;
        let new = NewSnapshot {
            references: vec![(self.reference.clone(), Expect::At(with_recipe))],
            ..NewSnapshot::with_message(MESSAGE)
        };
        self.snapshot = tree.commit(new)?;
        self.store.remove_snapshots(&[with_recipe])?;
        Ok(())
    }
}

impl Drop for ContextFiles {
    fn drop(&mut self) {
        let (store, reference, id) = (self.store.clone(), self.reference.clone(), self.snapshot.id);
        let remove = move || {
            if let Err(error) = remove_reference(&store, &reference, id) {
                // The next `prune_build_cache` tries again.
                tracing::warn!(%error, "failed to remove the context of a template build");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl Service {
    /// Imports an archive with a recipe and a context: a tar file, plain or compressed with gzip or zstd. `recipe` is
    /// the path of the recipe in it. The import is cancelled when the future is dropped.
    pub async fn receive_build(&self, archive: File, recipe: &str) -> Result<BuildContext> {
        let invalid = |message| SandboxError::Invalid { field: "recipe", message };
        check_source(recipe).map_err(invalid)?;
        let recipe = tree_path(recipe);
        let templates = self.imported_templates()?.clone();
        let max_bytes = self.0.settings.max_build_context_bytes;
        let cancel = self.0.cancel.child();
        let cancel_guard = cancel.drop_guard();
        let store = self.0.workspaces.store().clone();
        let cache_guard = Arc::clone(&self.0.builds.cache).read_owned().await;
        let receive = move || {
            let (recipe, files) = receive(&store, &templates, archive, &recipe, max_bytes, &cancel)?;
            Ok(BuildContext { recipe, files, cache_guard })
        };
        let received = blocking(receive).await?;
        cancel_guard.disarm();
        received
    }
}

fn receive(
    store: &Store,
    templates: &Templates,
    archive: File,
    recipe: &str,
    max_bytes: u64,
    cancel: &Cancel,
) -> Result<(Recipe, ContextFiles)> {
    let options = TemplateOptions { max_bytes, cancel: cancel.clone() };
    let archive = decompressed(archive, &options, || templates.receive())?;
    let reference = new_context_reference();
    let new = NewSnapshot {
        references: vec![(reference.clone(), Expect::Absent)],
        ..NewSnapshot::with_message(MESSAGE)
    };
    let limits = ArchiveLimits { bytes: max_bytes, entries: ENTRIES_MAX, metadata: METADATA_MAX };
    let options = ImportOptions { limits, ..ImportOptions::default() };
    let cancellable = store.with_cancel(cancel.clone());
    let imported = import_tar(&cancellable, &mut BufReader::new(archive), new, &options, &NoProgress);
    let snapshot = imported.map_err(import_error)?.snapshot;
    // From here on, the snapshot is removed if anything fails.
    let mut files = ContextFiles { store: store.clone(), reference, snapshot };
    let recipe_of_context = read_recipe(&files.tree(&cancellable).map_err(WorkspaceError::from)?, recipe)?;
    files.remove_recipe(recipe).map_err(WorkspaceError::from)?;
    Ok((recipe_of_context, files))
}

fn import_error(error: ArchiveError) -> SandboxError {
    match error {
        ArchiveError::Cancelled(_) => SandboxError::Cancelled,
        error => TemplateError::from(error).into(),
    }
}

fn read_recipe(tree: &Tree, path: &str) -> Result<Recipe> {
    let invalid = |message: String| SandboxError::Invalid { field: "recipe", message };
    let entry = tree.entry(path).map_err(WorkspaceError::from)?;
    let Some(Node::File(file)) = entry.map(|entry| entry.node) else {
        return Err(invalid(format!("the archive has no file `{path}`")));
    };
    if file.size() > RECIPE_MAX as u64 {
        return Err(invalid(format!("`{path}` has more than {RECIPE_MAX} bytes")));
    }
    let text = String::from_utf8(tree.read(&file).map_err(WorkspaceError::from)?);
    let text = text.map_err(|_| invalid(format!("`{path}` is not UTF-8")))?;
    Ok(Recipe::parse(&text)?)
}
