//! Names of templates in requests: without a version, the newest one is meant.

use crate::config::NewSandbox;
use crate::error::{Context as _, Result, SandboxError};
use crate::service::Service;
use crate::template::{ImportedTemplate, split_version};

/// Template of the machine's programs. Its built versions are used only if they are named.
const MACHINE: &str = "base";

impl Service {
    /// Returns the parameters of a new sandbox with a version in the name of the template, if the template has
    /// versions.
    pub(crate) async fn with_template_version(&self, new: NewSandbox) -> Result<NewSandbox> {
        let template = match self.0.runtime.imported_templates() {
            Some(templates) if new.template != MACHINE => {
                // Template, with its version, from which the root of the snapshot was made.
                let of_root =
                    if new.root.is_discarded() { None } else { self.template_of_root(new.snapshot).await? };
                // A root that comes from the snapshot needs that version, not the newest.
                match of_root.filter(|of_root| split_version(of_root).0 == new.template) {
                    Some(of_root) => Some(of_root),
                    None => {
                        let found = templates.resolve(&new.template);
                        found.context(|| "find a template".to_owned())?.map(|(template, _)| template.name)
                    }
                }
            }
            _ => None,
        };
        Ok(match template {
            Some(template) => NewSandbox { template, ..new },
            None => new,
        })
    }

    /// Returns an imported or built template. A name without a version means the newest one.
    pub fn template(&self, name: &str) -> Result<ImportedTemplate> {
        let found = self.imported_templates()?.resolve(name).context(|| "find a template".to_owned())?;
        let missing = || SandboxError::NoTemplate { name: name.to_owned(), hint: String::new() };
        found.map(|(template, _)| template).ok_or_else(missing)
    }

    /// Returns the error for a template that cannot be removed because there is none with exactly this name.
    pub(crate) fn no_template_to_remove(&self, name: &str) -> SandboxError {
        let versions = self.imported_templates().ok().and_then(|templates| templates.versions(name).ok());
        let versions: Vec<_> =
            versions.unwrap_or_default().into_iter().map(|template| template.name).collect();
        let hint = match versions.is_empty() {
            true => String::new(),
            false => format!(" without a version; remove its versions: {}", versions.join(", ")),
        };
        SandboxError::NoTemplate { name: name.to_owned(), hint }
    }
}
