//! Lookup of the sequence of a head (number of changes of the project up to it), and changes of a project's name and
//! settings.

use serde_json::json;
use workspace_catalog::{CatalogError, EventKind, NewEvent, Project, ProjectChange};

use super::settings::ProjectSettings;
use super::{ProjectError, Projects, Result, check_name};

impl Projects {
    /// Returns the sequence at which a snapshot became the head.
    pub async fn sequence_of(&self, project: &Project, snapshot: &str) -> Result<i64> {
        if project.head.as_deref() == Some(snapshot) {
            return Ok(project.sequence);
        }
        let found = self.catalog.operations().find_snapshot(&project.id, snapshot).await?;
        found.map(|operation| operation.sequence).ok_or_else(|| ProjectError::NoSuchSnapshot {
            project: project.name.clone(),
            snapshot: snapshot.to_owned(),
        })
    }

    /// Changes the name and the settings of a project. Fields that are `None` stay as they are.
    pub async fn update(
        &self,
        project: &Project,
        name: Option<&str>,
        settings: ProjectSettings,
    ) -> Result<Project> {
        if let Some(name) = name {
            check_name(name)?;
        }
        let settings = (settings != ProjectSettings::default()).then(|| settings.to_json());
        // Has only the fields that the caller sets: another request may have renamed the project since it was read.
        let change = ProjectChange { name: name.map(str::to_owned), settings };
        let name = name.unwrap_or(&project.name);
        let event = NewEvent {
            kind: EventKind::ProjectUpdated,
            data: json!({ "project": name, "projectId": project.id }),
        };
        match self.catalog.projects().update(&project.id, &change, &[event]).await {
            Err(CatalogError::Exists { .. }) => Err(ProjectError::NameTaken { name: name.to_owned() }),
            updated => updated?.ok_or_else(|| ProjectError::NotFound { project: project.name.clone() }),
        }
    }
}
