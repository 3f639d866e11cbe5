//! Conversion of projects and their history into the types of the API.

use serde_json::Value;
use workspace_api::error_codes;
use workspace_api::project_history::ProjectSnapshot;
use workspace_api::projects::{
    Completion, CompletionConflict, CompletionState, FileVersion, GitSetting, MergedFile, Operation, Project,
    RefusedChange, RenamedAddition,
};
use workspace_catalog::{
    Completion as CompletionRecord, CompletionState as State, FileChange, FileVersion as VersionRecord,
    Operation as OperationRecord, Project as ProjectRecord,
};
use workspace_context::projects::{CompletionReport, GitDirectory};
use workspace_state::quote_path;

use crate::error::ApiError;
use crate::time::format_millis;

pub(super) fn project_to_api(project: ProjectRecord) -> Result<Project, ApiError> {
    let git = match GitDirectory::of(&project) {
        GitDirectory::Ignored => GitSetting::Ignored,
        GitDirectory::Kept => GitSetting::Kept,
    };
    Ok(Project {
        git,
        created_at: format_millis(project.created_at)?,
        updated_at: format_millis(project.updated_at)?,
        id: project.id,
        name: project.name,
        owner: project.owner,
        sequence: project.sequence.unsigned_abs(),
        head: project.head,
        policy_version: project.policy_version.unsigned_abs(),
    })
}

pub(super) fn git_directory(git: GitSetting) -> GitDirectory {
    match git {
        GitSetting::Ignored => GitDirectory::Ignored,
        GitSetting::Kept => GitDirectory::Kept,
    }
}

pub(super) fn operation_to_api(operation: OperationRecord) -> Result<Operation, ApiError> {
    let merged: Vec<MergedFile> = match operation.details.get("merged") {
        Some(merged) => serde_json::from_value(merged.clone()).map_err(ApiError::internal)?,
        None => Vec::new(),
    };
    Ok(Operation {
        sequence: operation.sequence.unsigned_abs(),
        snapshot: operation.snapshot,
        previous: operation.previous,
        operation: operation.operation.as_str().to_owned(),
        author: operation.author,
        operator: operation.operator.as_str().to_owned(),
        completion: operation.completion,
        base: operation.details.get("base").and_then(Value::as_u64),
        files: operation.details.get("files").and_then(Value::as_u64),
        commit: operation.details.get("commit").and_then(Value::as_str).map(str::to_owned),
        commit_time: operation
            .details
            .get("commitTime")
            .and_then(Value::as_i64)
            .map(format_millis)
            .transpose()?,
        message: operation.message.unwrap_or_default(),
        merged,
        time: format_millis(operation.created_at)?,
    })
}

pub(super) fn version_to_api(stored: VersionRecord) -> Result<FileVersion, ApiError> {
    let version = stored.version;
    let exists = version.change != FileChange::Removed;
    Ok(FileVersion {
        file: version.file_id,
        sequence: stored.sequence.unsigned_abs(),
        path: quote_path(&version.path).into_owned(),
        change: version.change.as_str().to_owned(),
        previous_path: version.previous_path.map(|path| quote_path(&path).into_owned()),
        kind: exists.then(|| version.kind.as_str().to_owned()),
        size: exists.then_some(version.size),
        mode: exists.then(|| format!("{:04o}", version.mode)),
        mime: version.mime,
        strategy: version.algorithm,
        author: version.author,
        time: format_millis(stored.created_at)?,
    })
}

pub(super) fn completion_to_api(stored: CompletionRecord) -> Result<Completion, ApiError> {
    let report: CompletionReport = match stored.result {
        Some(result) => serde_json::from_value(result).map_err(ApiError::internal)?,
        None => CompletionReport::default(),
    };
    let refused = report.refused.into_iter().map(|change| RefusedChange {
        path: change.path,
        change: change.change,
        reason: change.reason,
    });
    let renamed =
        report.renamed.into_iter().map(|addition| RenamedAddition { from: addition.from, to: addition.to });
    let conflicts = report
        .conflicts
        .into_iter()
        .map(|conflict| CompletionConflict { path: conflict.path, class: conflict.class });
    let is_failed = stored.state == State::Failed;
    Ok(Completion {
        id: stored.completion.id,
        project: stored.completion.project,
        agent: stored.completion.agent,
        sandbox: stored.completion.sandbox,
        state: state_to_api(stored.state),
        sequence: stored.sequence.map(i64::unsigned_abs),
        refused: refused.collect(),
        renamed: renamed.collect(),
        conflicts: conflicts.collect(),
        error: stored.error.filter(|_| is_failed),
        created_at: format_millis(stored.created_at)?,
    })
}

fn state_to_api(state: State) -> CompletionState {
    match state {
        State::Queued => CompletionState::Queued,
        State::Landed => CompletionState::Landed,
        State::InReview => CompletionState::InReview,
        State::Refused => CompletionState::Refused,
        State::Failed => CompletionState::Failed,
    }
}

pub(super) fn snapshot_to_api(operation: OperationRecord) -> Result<ProjectSnapshot, ApiError> {
    Ok(ProjectSnapshot {
        sequence: operation.sequence.unsigned_abs(),
        snapshot: operation.snapshot,
        operation: operation.operation.as_str().to_owned(),
        author: operation.author,
        time: format_millis(operation.created_at)?,
    })
}

/// Converts a sequence of a request. None is higher than what the catalog can store.
pub(super) fn sequence_number(sequence: u64) -> Result<i64, ApiError> {
    i64::try_from(sequence).map_err(|_| {
        ApiError::new(error_codes::INVALID_REQUEST, "the sequence is too large").detail("field", "sequence")
    })
}
