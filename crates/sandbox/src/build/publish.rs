//! The last step of a build: a root filesystem becomes a version of a template.

use std::collections::BTreeMap;
use std::path::Path;

use workspace_state::{
    Cancel, CheckoutOptions, Expect, NewSnapshot, NoProgress, SnapshotRoot, Store, Tree, VirtualTree,
    materialize,
};
use workspace_workspace::WorkspaceError;

use super::copy::has_entry;
use crate::blocking::blocking;
use crate::clock::now;
use crate::error::{Result, SandboxError};
use crate::root::template_import::reference_of;
use crate::service::Service;
use crate::template::{BuildOrigin, ImportedTemplate, TemplateError, Templates};

/// Result of the steps of a build.
#[derive(Debug, Clone)]
pub(super) struct Finished {
    /// Name of the template without a version.
    pub(super) name: String,
    /// Requested version; `None` for the next number.
    pub(super) version: Option<String>,
    /// Root filesystem.
    pub(super) root: SnapshotRoot,
    /// Environment variables.
    pub(super) envs: BTreeMap<String, String>,
    /// Template that the recipe started with.
    pub(super) from: Option<String>,
    /// Description of the recipe.
    pub(super) description: Option<String>,
}

impl Finished {
    fn template(&self, name: String) -> ImportedTemplate {
        ImportedTemplate {
            name,
            size: 0,
            created_at: now(),
            envs: self.envs.clone(),
            skipped: 0,
            build: Some(BuildOrigin {
                from: self.from.clone(),
                description: self.description.clone(),
                tree: self.root.tree.to_string(),
            }),
        }
    }

    /// Returns true if a template has the same content.
    fn has_content_of(&self, template: &ImportedTemplate) -> bool {
        template.build == self.template(String::new()).build && template.envs == self.envs
    }
}

impl Service {
    /// Adds a version of a template. Adds none, and returns the newest version, if that has the same content and the
    /// request names no version. The bool is true if the version is new.
    pub(super) async fn publish(
        &self,
        finished: Finished,
        cancel: &Cancel,
    ) -> Result<(ImportedTemplate, bool)> {
        let _publish = self.0.builds.publish.lock().await;
        let templates = self.imported_templates()?.clone();
        let store = self.0.workspaces.store().with_cancel(cancel.clone());
        let published = blocking(move || publish(&store, &templates, &finished)).await?;
        match published {
            Err(SandboxError::Workspace(error)) if error.is_cancelled() => Err(SandboxError::Cancelled),
            published => published,
        }
    }
}

/// Makes a template of a finished build. Returns it, and false if the newest version has the same content already.
fn publish(store: &Store, templates: &Templates, finished: &Finished) -> Result<(ImportedTemplate, bool)> {
    let Finished { name, version, root, .. } = finished;
    let newest = templates.versions(name).map_err(TemplateError::from)?.pop();
    if let Some(newest) = newest.filter(|newest| version.is_none() && finished.has_content_of(newest)) {
        return Ok((newest, false));
    }
    let template = finished.template(templates.next_version(name, version.as_deref())?);
    let tree = Tree::open(store, root.tree, Some(root.times)).map_err(WorkspaceError::from)?;
    let root = VirtualTree::over(&tree).map_err(WorkspaceError::from)?;
    if !has_entry(&root, "/bin/sh").map_err(WorkspaceError::from)? {
        return Err(TemplateError::Archive("the result has no /bin/sh".to_owned()).into());
    }
    let write = |directory: &Path| write_root(&tree, directory);
    let commit = |template: &ImportedTemplate| commit_root(store, root, template);
    Ok((templates.add(template, write, commit)?, true))
}

/// Writes the files for sandboxes whose root is not kept. All belong to the user of the server.
fn write_root(tree: &Tree, directory: &Path) -> Result<u64> {
    let written = materialize(tree, directory, &CheckoutOptions::default(), &NoProgress);
    Ok(written.map_err(WorkspaceError::from)?.bytes)
}

/// Commits the root filesystem for sandboxes whose root is kept. They see its owners, too.
fn commit_root(store: &Store, root: VirtualTree, template: &ImportedTemplate) -> Result<()> {
    let commit = || {
        let new = NewSnapshot {
            root: Some(root.into_root(&template.name)?),
            references: vec![(reference_of(template), Expect::Absent)],
            ..NewSnapshot::with_message(format!("files of template {}", template.name))
        };
        store.empty_tree()?.commit(new).map(drop)
    };
    Ok(commit().map_err(WorkspaceError::from)?)
}
