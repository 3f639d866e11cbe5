//! What there is where no runtime can be used.

use async_trait::async_trait;

use super::{Runtime, RuntimeError, Start, Started, Template, Usage};
use crate::place::Place;

/// Runs nothing, and says why.
#[derive(Debug)]
pub struct Unavailable {
    name: &'static str,
    reason: String,
}

impl Unavailable {
    /// In place of the runtime of that name.
    pub fn new(name: &'static str, reason: String) -> Self {
        Self { name, reason }
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

    async fn lacks(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(vec![self.reason.clone()])
    }

    async fn start(&self, _: &Start<'_>) -> Result<Started, RuntimeError> {
        self.error()
    }

    async fn is_running(&self, _: &str, _: &Place) -> Result<bool, RuntimeError> {
        self.error()
    }

    async fn ended(&self, _: &str, _: &Place) -> Result<(), RuntimeError> {
        self.error()
    }

    async fn end(&self, _: &str, _: &Place) -> Result<(), RuntimeError> {
        self.error()
    }

    async fn usage(&self, _: &str) -> Result<Usage, RuntimeError> {
        self.error()
    }

    async fn known(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn templates(&self) -> Result<Vec<Template>, RuntimeError> {
        Ok(Vec::new())
    }
}
