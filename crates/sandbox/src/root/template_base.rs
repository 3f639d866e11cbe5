//! Files of templates in the store, for kept roots.
//!
//! A new kept root is based on a snapshot that has the files of the sandbox's template as its root, and an empty
//! workspace. The snapshot is made when a sandbox first needs it, named by a reference, and removed with the template.

use std::path::PathBuf;
use std::sync::Arc;

use workspace_state::{Cancel, SnapshotId};

use super::template_import::{forget, import, reference_of};
use crate::blocking::blocking;
use crate::error::{Context as _, Result, SandboxError};
use crate::lifecycle::cancellable::or_cancelled;
use crate::lock_rank::LockRank;
use crate::service::Service;
use crate::template::ImportedTemplate;

/// Template that consists of files of the machine.
const BASE: &str = "base";

impl Service {
    /// Returns the snapshot with the files of a template, after importing them if it does not exist.
    pub(crate) async fn template_base(&self, name: &str, cancel: &Cancel) -> Result<SnapshotId> {
        let (template, directory) = self.template_with_root(name)?;
        let roots = Arc::clone(self.0.roots.available().await?);
        let reference = reference_of(&template);
        // Requests for the same template wait for one import.
        let lock = self.0.roots.imports.get(&reference);
        let _import = or_cancelled(cancel, LockRank::TemplateImport.wait(lock.lock())).await?;
        let cancel = cancel.clone();
        let import = move || {
            if let Some(id) = roots.store().reference(&reference)? {
                return Ok(id);
            }
            tracing::info!(template = template.name, "importing the files of a template for kept roots");
            import(&roots, &template.name, &directory, &reference, &cancel)
        };
        match blocking(import).await? {
            Err(error) if error.is_cancelled() => Err(SandboxError::Cancelled),
            imported => Ok(imported?),
        }
    }

    /// Returns a template whose root can be kept, with the path of its files.
    pub(super) fn template_with_root(&self, name: &str) -> Result<(ImportedTemplate, PathBuf)> {
        if name == BASE {
            let reason =
                "template `base` consists of files of the server's machine; import another one".to_owned();
            return Err(SandboxError::RootUnavailable { reason });
        }
        let templates = self.imported_templates()?;
        let found = templates.find(name).context(|| "find a template".to_owned())?;
        found.ok_or_else(|| SandboxError::NoTemplate { name: name.to_owned(), hint: String::new() })
    }

    /// Removes from the store the files of a template that was removed. Roots of snapshots do not need them.
    pub(crate) async fn forget_template(&self, name: &str) {
        let Some(roots) = self.0.roots.get().cloned() else { return };
        let template = name.to_owned();
        let forgotten =
            blocking(move || forget(&roots, &template)).await.and_then(|forgotten| Ok(forgotten?));
        if let Err(error) = forgotten {
            tracing::warn!(template = name, %error, "failed to remove the files of a removed template from the store");
        }
    }
}
