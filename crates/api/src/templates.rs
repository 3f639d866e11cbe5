//! `/api/v1/templates`: templates of sandboxes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Template: the root filesystem of sandboxes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Name of the template, unique on the server.
    #[schema(example = "base")]
    pub name: String,
    /// Version of a template that was built from a recipe; its name ends with `@` and the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2")]
    pub version: Option<String>,
    /// Description in one line.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// Size on disk in bytes; null if the template is not present.
    pub size: Option<u64>,
    /// Time at which the template was imported or its image was built; null if it is not known.
    #[schema(format = DateTime)]
    pub created_at: Option<String>,
    /// True if the template is on this machine and can be used immediately.
    pub present: bool,
    /// Shell command that fetches the template. Only present if the template is not.
    #[serde(rename = "fetch", skip_serializing_if = "Option::is_none")]
    pub fetch_command: Option<String>,
}

/// Template with details.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateDetails {
    /// The template as in lists.
    #[serde(flatten)]
    pub template: Template,
    /// Template that the recipe of a built template starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "debian:12")]
    pub from: Option<String>,
    /// Environment variables of its sandboxes.
    #[schema(example = json!({"LANG": "C.UTF-8"}))]
    pub envs: BTreeMap<String, String>,
}
