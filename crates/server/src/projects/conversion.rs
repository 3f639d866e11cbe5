//! Conversion of projects and their history into the types of the API.

use serde_json::Value;
use workspace_api::error_codes;
use workspace_api::project_history::ProjectSnapshot;
use workspace_api::projects::{
    Completion, CompletionConflict, CompletionState, FileVersion, GitSetting, MergeInterval,
    MergeMode as Mode, MergeSetting, MergedFile, Operation, Project, RefusedChange, RenamedAddition,
};
use workspace_catalog::{
    Completion as CompletionRecord, CompletionState as State, FileChange, FileVersion as VersionRecord,
    Operation as OperationRecord, Project as ProjectRecord,
};
use workspace_context::ReviewTimeout;
use workspace_context::projects::{AgentView, CompletionReport, GitDirectory, MergeMode};
use workspace_state::{quote_path, unquote_path};

use super::completed_file::content_route;
use crate::error::ApiError;
use crate::time::format_millis;

pub(super) fn project_to_api(project: ProjectRecord) -> Result<Project, ApiError> {
    let git = match GitDirectory::of(&project) {
        GitDirectory::Ignored => GitSetting::Ignored,
        GitDirectory::Kept => GitSetting::Kept,
    };
    Ok(Project {
        git,
        merge: merge_to_api(MergeMode::of(&project)),
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

fn merge_to_api(mode: MergeMode) -> MergeSetting {
    match mode {
        MergeMode::Completion => MergeSetting::default(),
        MergeMode::Periodic(interval) => {
            MergeSetting { mode: Mode::Periodic, interval: Some(MergeInterval::Seconds(interval.as_secs())) }
        }
        MergeMode::Write => MergeSetting { mode: Mode::Write, interval: None },
    }
}

/// Parses the merge mode of a request. Fails with `INVALID_REQUEST`.
pub(super) fn merge_mode(setting: MergeSetting) -> Result<MergeMode, ApiError> {
    let wrong = |message: &str| {
        ApiError::new(error_codes::INVALID_REQUEST, format!("merge: {message}")).detail("field", "merge")
    };
    let duration = |interval: MergeInterval| match interval {
        MergeInterval::Seconds(seconds) => ReviewTimeout::Seconds(seconds).duration(),
        MergeInterval::Text(text) => ReviewTimeout::Text(text).duration(),
    };
    match (setting.mode, setting.interval) {
        (Mode::Completion, None) => Ok(MergeMode::Completion),
        (Mode::Write, None) => Ok(MergeMode::Write),
        (Mode::Completion | Mode::Write, Some(_)) => Err(wrong("only the mode `periodic` has an `interval`")),
        (Mode::Periodic, None) => Ok(MergeMode::Periodic(MergeMode::INTERVAL_DEFAULT)),
        (Mode::Periodic, Some(interval)) => duration(interval)
            .filter(|interval| (MergeMode::INTERVAL_MIN..=MergeMode::INTERVAL_MAX).contains(interval))
            .map(MergeMode::Periodic)
            .ok_or_else(|| wrong("`interval` is between 1 second and 1 day, such as `30s`")),
    }
}

pub(super) fn operation_to_api(operation: OperationRecord) -> Result<Operation, ApiError> {
    let merged: Vec<MergedFile> = match operation.details.get("merged") {
        Some(merged) => serde_json::from_value(merged.clone()).map_err(ApiError::internal)?,
        None => Vec::new(),
    };
    Ok(Operation {
        sequence: operation.sequence.unsigned_abs(),
        snapshot: Some(operation.snapshot),
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

/// Returns an operation as an agent sees it: without hidden files, and without ids that depend on them, or that belong to
/// other agents.
pub(super) fn operation_for_agent(operation: Operation, view: &AgentView) -> Operation {
    let is_own = operation.author == view.policy().agent();
    let shows = |file: &MergedFile| unquote_path(&file.path).is_some_and(|path| view.shows(&path));
    Operation {
        snapshot: None,
        previous: None,
        completion: operation.completion.filter(|_| is_own),
        base: operation.base.map(|base| agent_sequence(base, view)),
        // `files` counts hidden files, too, and the id of a commit depends on them.
        files: None,
        commit: None,
        merged: operation.merged.into_iter().filter(shows).collect(),
        ..operation
    }
}

/// Returns a project as an agent sees it. `head` is the snapshot of the files that it sees, and `changed_at` the time of
/// the last change of these.
pub(super) fn project_for_agent(
    view: &AgentView,
    head: Option<String>,
    changed_at: Option<i64>,
) -> Result<Project, ApiError> {
    let project = view.project().clone();
    let updated_at = changed_at.unwrap_or(project.created_at);
    let sequence = view.sequence();
    // The version of the policy is not shown to agents.
    project_to_api(ProjectRecord { sequence, head, updated_at, policy_version: 0, ..project })
}

/// Converts a sequence of the project to that of an agent, which counts only the changes that it can see.
pub(super) fn agent_sequence(sequence: u64, view: &AgentView) -> u64 {
    view.agent_sequence_at(i64::try_from(sequence).unwrap_or(i64::MAX)).unsigned_abs()
}

/// Returns a completion as its agent sees it.
pub(super) fn completion_for_agent(completion: Completion, view: &AgentView) -> Completion {
    // The reason may name what the agent must not see.
    let reason = || "it could not be merged; ask the owner of the project".to_owned();
    // An agent has the files of its workspace. The content of a completion is for the owner of the project.
    let refused =
        completion.refused.into_iter().map(|change| RefusedChange { content: None, ..change }).collect();
    Completion {
        sequence: completion.sequence.map(|sequence| agent_sequence(sequence, view)),
        refused,
        error: completion.error.map(|_| reason()),
        ..completion
    }
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
        strategy: version.strategy,
        author: version.author,
        time: format_millis(stored.created_at)?,
    })
}

pub(super) fn completion_to_api(stored: CompletionRecord) -> Result<Completion, ApiError> {
    let report: CompletionReport = match stored.result {
        Some(result) => serde_json::from_value(result).map_err(ApiError::internal)?,
        None => CompletionReport::default(),
    };
    let (project, id) = (&stored.completion.project, &stored.completion.id);
    let refused = report.refused.into_iter().map(|change| RefusedChange {
        content: content_route(project, id, &change),
        path: change.path,
        change: change.change,
        reason: change.reason,
    });
    let refused: Vec<RefusedChange> = refused.collect();
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
        refused,
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
        snapshot: Some(operation.snapshot),
        operation: operation.operation.as_str().to_owned(),
        author: operation.author,
        time: format_millis(operation.created_at)?,
    })
}

/// Converts a sequence of a request. Fails with `INVALID_REQUEST` if it is too large for the catalog.
pub(super) fn sequence_number(sequence: u64) -> Result<i64, ApiError> {
    i64::try_from(sequence).map_err(|_| {
        ApiError::new(error_codes::INVALID_REQUEST, "the sequence is too large").detail("field", "sequence")
    })
}
