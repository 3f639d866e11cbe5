//! Names of a project and of its heads.

use serde_json::{Map, Value, json};
use workspace_catalog::{CatalogError, EventKind, NewEvent, Project, ProjectChange};

use super::git_directory::GIT_SETTING;
use super::merge_mode::MERGE_SETTING;
use super::{GitDirectory, MergeMode, ProjectError, Projects, Result, check_name};

/// Settings of a project to set. A field that is `None` stays as it is; for a new project, it is the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProjectSettings {
    /// Treatment of git repositories.
    pub git: Option<GitDirectory>,
    /// Occasions of merges.
    pub merge: Option<MergeMode>,
}

impl ProjectSettings {
    /// Returns the settings as they are stored.
    pub(super) fn to_json(self) -> Value {
        let git = self.git.map(|git| (GIT_SETTING.to_owned(), json!(git.as_str())));
        let merge = self.merge.map(|merge| (MERGE_SETTING.to_owned(), merge.to_json()));
        Value::Object(git.into_iter().chain(merge).collect::<Map<_, _>>())
    }
}

impl Projects {
    /// Returns the sequence in which a snapshot became the head.
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

    /// Changes a project. A name that is `None` stays as it is.
    pub async fn update(
        &self,
        project: &Project,
        name: Option<&str>,
        settings: ProjectSettings,
    ) -> Result<Project> {
        let name = name.unwrap_or(&project.name);
        check_name(name)?;
        let settings = (settings != ProjectSettings::default()).then(|| settings.to_json());
        let change = ProjectChange { name: Some(name.to_owned()), settings };
        let event = NewEvent { kind: EventKind::ProjectUpdated, data: json!({ "project": name }) };
        match self.catalog.projects().update(&project.id, &change, &[event]).await {
            Err(CatalogError::Exists { .. }) => Err(ProjectError::NameTaken { name: name.to_owned() }),
            updated => updated?.ok_or_else(|| ProjectError::NotFound { project: project.name.clone() }),
        }
    }
}
