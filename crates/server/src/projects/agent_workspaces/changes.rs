//! Changes in the workspace of an agent, with content.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use workspace_api::agent_workspaces::{AgentWorkspaceChanges, ModifiedEntry};
use workspace_catalog::AgentWorkspace;
use workspace_sandbox::Changes;
use workspace_state::{
    Difference, DifferenceKind, Entry, FileNode, Node, StoreError, Tree, diff, quote_path,
};

use super::lookup::{is_last_completion, read_changes};
use crate::app::App;
use crate::error::ApiError;
use crate::sandboxes::skipped_to_api;
use crate::snapshots::work_limits::WorkPermit;
use crate::snapshots::{DIFF_LIMIT, kind_to_api, octal};
use crate::store::blocking_until;

/// Maximum size of a file whose content is in the response.
const FILE_CONTENT_MAX: u64 = 64 << 10;
/// Maximum size of all content in the response.
const CONTENT_MAX: u64 = 1 << 20;

/// Reads the changes of a workspace. `sequence` is that of its base, as it is shown to the caller.
pub(super) async fn read(
    app: &App,
    permit: &WorkPermit,
    row: &AgentWorkspace,
    sequence: u64,
) -> Result<AgentWorkspaceChanges, ApiError> {
    let changes = read_changes(app, permit, &row.workspace.id).await?;
    let is_base = changes.before.id() == changes.after.id();
    let completed = is_base || is_last_completion(app, row, changes.after.id()).await?;
    let (agent, base_snapshot) = (row.workspace.agent.clone(), row.workspace.base.snapshot.clone());
    let cancel = changes.before.store().cancel_flag().clone();
    blocking_until(&cancel, move || {
        let listing = Listing::of(&changes)?;
        Ok(AgentWorkspaceChanges {
            agent,
            base_snapshot,
            sequence,
            completed,
            truncated: listing.total > listing.modified.len() + listing.deleted.len(),
            modified: listing.modified,
            deleted: listing.deleted,
            total: listing.total,
            skipped: skipped_to_api(&changes.skipped),
            skipped_count: changes.skipped_count,
        })
    })
    .await
}

/// First changes, and the number of all.
#[derive(Default)]
struct Listing {
    modified: Vec<ModifiedEntry>,
    deleted: Vec<String>,
    total: usize,
    content_bytes: u64,
}

impl Listing {
    fn of(changes: &Changes) -> Result<Self, StoreError> {
        let mut listing = Self::default();
        for Difference { path, kind, old, new } in diff(&changes.before, &changes.after)? {
            match (kind, old, new) {
                // A renamed directory is one difference, whatever is in it.
                (DifferenceKind::Renamed { from }, Some(old), Some(new)) => {
                    listing.delete_all(&changes.before, &from, &old)?;
                    listing.add_all(&changes.after, &path, &new)?;
                }
                (_, _, Some(new)) => listing.add(&changes.after, &path, &new)?,
                (_, Some(_), None) => listing.delete(&path),
                (_, None, None) => {}
            }
        }
        Ok(listing)
    }

    fn is_full(&self) -> bool {
        self.modified.len() + self.deleted.len() >= DIFF_LIMIT
    }

    fn delete(&mut self, path: &[u8]) {
        self.total += 1;
        if !self.is_full() {
            self.deleted.push(quote_path(path).into_owned());
        }
    }

    fn delete_all(&mut self, tree: &Tree, path: &[u8], entry: &Entry) -> Result<(), StoreError> {
        let mut paths = Vec::new();
        below(tree, path, entry, &mut |path, _| {
            paths.push(path.to_vec());
            Ok(())
        })?;
        paths.iter().for_each(|path| self.delete(path));
        Ok(())
    }

    fn add_all(&mut self, tree: &Tree, path: &[u8], entry: &Entry) -> Result<(), StoreError> {
        below(tree, path, entry, &mut |path, entry| self.add(tree, path, entry))
    }

    fn add(&mut self, tree: &Tree, path: &[u8], entry: &Entry) -> Result<(), StoreError> {
        self.total += 1;
        if self.is_full() {
            return Ok(());
        }
        let (size, content) = match &entry.node {
            Node::Directory(_) => (0, None),
            Node::File(file) => (file.size(), self.content(tree, file)?),
            Node::Symlink(symlink) => (entry.node.size(), self.within_limit(symlink.target.clone())),
        };
        let (content, content_base64) = match content.map(String::from_utf8) {
            None => (None, None),
            Some(Ok(text)) => (Some(text), None),
            Some(Err(error)) => (None, Some(BASE64_STANDARD.encode(error.as_bytes()))),
        };
        self.modified.push(ModifiedEntry {
            path: quote_path(path).into_owned(),
            kind: kind_to_api(entry.node.kind()),
            mode: octal(entry.node.mode()),
            size,
            content,
            content_base64,
        });
        Ok(())
    }

    /// Returns the content of a file; `None` if it is too large for the response.
    fn content(&mut self, tree: &Tree, file: &FileNode) -> Result<Option<Vec<u8>>, StoreError> {
        let fits = file.size() <= FILE_CONTENT_MAX && self.content_bytes + file.size() <= CONTENT_MAX;
        if !fits {
            return Ok(None);
        }
        Ok(self.within_limit(tree.read(file)?))
    }

    fn within_limit(&mut self, content: Vec<u8>) -> Option<Vec<u8>> {
        let bytes = self.content_bytes + content.len() as u64;
        if bytes > CONTENT_MAX {
            return None;
        }
        self.content_bytes = bytes;
        Some(content)
    }
}

/// Visits an entry and everything below it, a directory before its entries.
fn below(
    tree: &Tree,
    path: &[u8],
    entry: &Entry,
    visit: &mut impl FnMut(&[u8], &Entry) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    visit(path, entry)?;
    let mut pending = match &entry.node {
        Node::Directory(directory) => vec![(path.to_vec(), directory.clone())],
        _ => return Ok(()),
    };
    while let Some((path, directory)) = pending.pop() {
        for entry in tree.list(&directory)? {
            let mut below = path.clone();
            below.push(b'/');
            below.extend_from_slice(&entry.name);
            visit(&below, &entry)?;
            if let Node::Directory(directory) = &entry.node {
                pending.push((below, directory.clone()));
            }
        }
    }
    Ok(())
}
