//! The runtime of a machine where no other one can be used.

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;

use super::built_in_templates::list_templates;
use super::{ResourceUsage, Runtime, RuntimeError, SandboxSpec, StartResult, Template};
use crate::sandbox_dir::SandboxDir;
use crate::template::Templates;

/// A runtime that runs nothing, and reports the reason.
#[derive(Debug)]
pub struct Unavailable {
    name: &'static str,
    reason: String,
    templates: Option<Templates>,
}

impl Unavailable {
    /// Makes the replacement of the runtime with that name.
    pub fn new(name: &'static str, reason: String) -> Self {
        Self { name, reason, templates: None }
    }

    /// Sets the templates of the runtime that it replaces: they can be listed, imported and removed without a
    /// runtime.
    pub fn with_templates(self, directory: PathBuf) -> Result<Self, RuntimeError> {
        let templates = Templates::new(directory);
        templates.remove_leftovers().map_err(|error| self.failed("remove unfinished templates", &error))?;
        Ok(Self { templates: Some(templates), ..self })
    }

    fn failed(&self, action: &'static str, error: &std::io::Error) -> RuntimeError {
        RuntimeError::Failed { runtime: self.name, action, reason: error.to_string() }
    }

    fn error<T>(&self) -> Result<T, RuntimeError> {
        Err(RuntimeError::Isolation(self.reason.clone()))
    }
}

#[async_trait]
impl Runtime for Unavailable {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn missing_features(&self) -> Result<Vec<String>, RuntimeError> {
        self.error()
    }

    async fn start(&self, _: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        self.error()
    }

    async fn is_running(&self, _: &str, _: &SandboxDir) -> Result<bool, RuntimeError> {
        self.error()
    }

    async fn wait_for_exit(&self, _: &str, _: &SandboxDir) -> Result<(), RuntimeError> {
        self.error()
    }

    async fn kill(&self, _: &str, _: &SandboxDir) -> Result<(), RuntimeError> {
        self.error()
    }

    async fn usage(&self, _: &str, _: &SandboxDir) -> Result<ResourceUsage, RuntimeError> {
        self.error()
    }

    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn templates(&self) -> Result<Vec<Template>, RuntimeError> {
        let Some(templates) = &self.templates else { return Ok(Vec::new()) };
        list_templates(templates).map_err(|error| self.failed("list templates", &error))
    }

    /// Fails. Called before anything of a sandbox is made, so nothing has to be undone.
    async fn variables(&self, _: &str) -> Result<BTreeMap<String, String>, RuntimeError> {
        self.error()
    }

    fn imported_templates(&self) -> Option<&Templates> {
        self.templates.as_ref()
    }
}
