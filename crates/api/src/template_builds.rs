//! `/api/v1/templates/{name}/build`: builds of templates from recipes.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::ErrorFields;
use crate::templates::Template;

/// Options of a build.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BuildTemplateQuery {
    /// Path of the recipe in the archive. Default: `template.toml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "template.toml")]
    pub recipe: Option<String>,
    /// Runs all steps, including those with a cached result. Default: false.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    pub no_cache: bool,
}

/// Server-sent event of a build. The stream is text; this schema describes its fields.
#[derive(Debug, ToSchema)]
#[schema(example = json!({
    "event": "step",
    "data": "{\"type\":\"step\",\"step\":2,\"steps\":5,\"text\":\"run apt-get update\"}"
}))]
pub struct BuildServerSentEvent {
    /// Kind of the event: `step`, `cached`, `output`, `done` or `error`.
    pub event: String,
    /// `BuildEvent` as JSON.
    pub data: String,
}

/// Kind of an event of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildEventKind {
    /// A step begins.
    Step,
    /// The result of the step is cached.
    Cached,
    /// The command of the step wrote output.
    Output,
    /// The template is built.
    Done,
    /// The build failed.
    Error,
}

impl fmt::Display for BuildEventKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Step => "step",
            Self::Cached => "cached",
            Self::Output => "output",
            Self::Done => "done",
            Self::Error => "error",
        })
    }
}

/// Event of a build. `done` or `error` is the last event of a stream.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({"type": "step", "step": 2, "steps": 5, "text": "run apt-get update"}))]
pub struct BuildEvent {
    /// Kind of the event: `step`, `cached`, `output`, `done` or `error`.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: BuildEventKind,
    /// Number of the step, from 1. Only in `step` and `cached`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// Total number of steps. Only in `step` and `done`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// Description of the step in one line. Only in `step`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Stream that the output was written to: `stdout` or `stderr`. Only in `output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Output as text. Absent if it is not UTF-8. Only in `output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Output in base64. Only in `output`, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// The template. Only in `done`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// False if the build has the same content as the newest version, so no new version was created. Only in `done`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<bool>,
    /// Number of steps with a cached result, which did not run. Only in `done`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<usize>,
    /// Reason for the failure. Only in `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorFields>,
}

impl BuildEvent {
    /// Creates an event with only its kind.
    pub fn new(kind: BuildEventKind) -> Self {
        Self {
            kind,
            step: None,
            steps: None,
            text: None,
            stream: None,
            data: None,
            data_base64: None,
            template: None,
            created: None,
            cached: None,
            error: None,
        }
    }
}
