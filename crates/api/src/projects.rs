//! `/api/v1/projects`: files that many agents change, with their history, and completions of work on them.
//!
//! In JSON, a path with control characters, quotes, backslashes or bytes that are not UTF-8 is in double quotes with C
//! escapes, as in the output of git. That applies to requests as well as to responses.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::revision::Revision;

/// Project: a tree of files that many agents share, with its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    /// Id of the project.
    #[schema(example = "prj-0190c2f1a5c07cc0a1b2c3d4e5f60718")]
    pub id: String,
    /// Name, unique among the projects of the owner.
    #[schema(example = "website")]
    pub name: String,
    /// Owner of the project.
    pub owner: String,
    /// Number of changes of the head; 0 for an empty project. Wherever a snapshot of the project is expected, its
    /// sequence can be used as well. Agents get numbers of their own, which count only the changes that they can see: a
    /// sequence of an agent means another state than the same sequence of the owner. Agents name a state by its
    /// sequence only.
    pub sequence: u64,
    /// Id of the snapshot with the present files; null for an empty project.
    pub head: Option<String>,
    /// Version of the access policy; 0 if none was set, and for agents.
    pub policy_version: u64,
    /// Treatment of a git repository (`.git`) in the root of imported and completed files.
    #[serde(default)]
    pub git: GitSetting,
    /// Occasions at which the changes of sandboxes are merged.
    #[serde(default)]
    pub merge: MergeSetting,
    /// Creation time.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time of the last change.
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// Treatment of a git repository (`.git`) in the root of files that enter a project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GitSetting {
    /// It stays outside: two agents' index files could only conflict.
    #[default]
    Ignored,
    /// It is part of the project.
    Kept,
}

/// Occasions at which the changes of sandboxes are merged into a project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"mode": "periodic", "interval": 30}))]
pub struct MergeSetting {
    /// Mode.
    pub mode: MergeMode,
    /// Time between two automatic merges of a sandbox, for the mode `periodic`: a number of seconds, or a text such as
    /// `30s` or `5m`, between a second and a day. Default: 10 s. Responses have a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<MergeInterval>,
}

/// Mode of merging the changes of sandboxes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MergeMode {
    /// When you complete a sandbox, and when it is deleted or expires.
    #[default]
    Completion,
    /// Also at intervals while sandboxes run, when no command runs in them.
    Periodic,
    /// Also after each command and request that changed files, when no other command runs.
    Write,
}

/// Time between two merges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum MergeInterval {
    /// Number of seconds.
    Seconds(u64),
    /// Number with a unit: `s`, `m`, `h` or `d`.
    Text(String),
}

/// Request to create a project.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "website"}))]
pub struct CreateProject {
    /// Name: 1 to 128 letters, digits, `.`, `_` and `-`, not starting with `.` or `-`.
    #[schema(example = "website")]
    pub name: String,
    /// Occasions at which the changes of sandboxes are merged. Default: `completion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeSetting>,
}

/// Changes to a project. A field that is absent stays as it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({"name": "website-2"}))]
pub struct UpdateProject {
    /// New name. Sandboxes and completions of the project stay; events from before have the old name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Treatment of a git repository (`.git`) in the root of files that enter the project from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSetting>,
    /// Occasions at which the changes of sandboxes are merged from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeSetting>,
}

/// Page of projects.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ProjectList {
    /// Projects, ordered by name.
    pub items: Vec<Project>,
    /// Number of projects on all pages.
    pub total: u64,
    /// Maximum number of projects per page.
    pub limit: u32,
    /// Value of `cursor` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Page of a list of projects.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListProjectsQuery {
    /// `next` of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of projects per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Change of the head of a project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Sequence of the project after the change.
    pub sequence: u64,
    /// Id of the snapshot after the change. Absent for agents, who may not see all its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Id of the snapshot before the change; null for the first one, and for agents.
    pub previous: Option<String>,
    /// Kind of the change: `import`, `merge` (of a completion), `rollback` or `resolve` (a review was decided).
    #[schema(example = "merge")]
    pub operation: String,
    /// Name of the agent or person that made the change.
    pub author: String,
    /// Kind of the author: `agent` or `person`.
    #[schema(example = "agent")]
    pub operator: String,
    /// Id of the completion that was merged. Absent for other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
    /// Sequence of the head on which the merged changes were made. Absent for other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// Number of files that the change added, modified, renamed or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Id of the git commit that was imported. Absent for other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Time of that commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub commit_time: Option<String>,
    /// Message, which may be empty.
    pub message: String,
    /// Files that a merge strategy combined, each with the name of the strategy.
    pub merged: Vec<MergedFile>,
    /// Time of the change.
    #[schema(format = DateTime)]
    pub time: String,
}

/// File that was changed on both sides and merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MergedFile {
    /// Path of the file.
    pub path: String,
    /// Name of the merge strategy.
    #[schema(example = "text")]
    pub strategy: String,
}

/// Page of operations.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    /// Operations, newest first.
    pub items: Vec<Operation>,
    /// Number of operations that match on all pages. Absent if an agent reads the project and filters them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Maximum number of operations per page.
    pub limit: u32,
    /// Value of `before` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Filters and page of a list of operations.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListOperationsQuery {
    /// Filter by kind: `import`, `merge`, `rollback` or `resolve`.
    pub operation: Option<String>,
    /// Filter by author.
    pub author: Option<String>,
    /// Sequence before which operations are listed: `next` of the previous page.
    pub before: Option<u64>,
    /// Maximum number of operations per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Version of a file of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileVersion {
    /// Id of the file, which it keeps when it is renamed.
    pub file: String,
    /// Sequence of the project in which the version was made.
    pub sequence: u64,
    /// Path of the file in that version.
    pub path: String,
    /// Kind of the change: `added`, `modified`, `renamed`, `mode` or `removed`.
    pub change: String,
    /// Path before a rename. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_path: Option<String>,
    /// Kind of the entry: `file` or `symlink`. Absent if it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Size in bytes. Absent if it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Permission bits in octal. Absent if it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// MIME type, guessed from the name. Absent if it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    /// Name of the merge strategy, if the version was merged from two sides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Name of the agent or person that made the version.
    pub author: String,
    /// Time of the version.
    #[schema(format = DateTime)]
    pub time: String,
}

/// Page of versions of a file.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FileVersionList {
    /// Versions, newest first.
    pub items: Vec<FileVersion>,
    /// Maximum number of versions per page.
    pub limit: u32,
    /// Value of `before` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Page of a list of versions.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListVersionsQuery {
    /// Sequence before which versions are listed: `next` of the previous page.
    pub before: Option<u64>,
    /// Maximum number of versions per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Request to complete the work in a sandbox: its changes are merged into the project.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({"message": "fix the parser", "wait": 30}))]
pub struct CompleteSandbox {
    /// Message for the history of the project.
    #[serde(default)]
    pub message: String,
    /// Seconds to wait until the changes landed or were refused, at most 60. Default: 0; the answer is then `queued`.
    #[serde(default)]
    pub wait: u64,
}

/// State of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompletionState {
    /// The completion waits to be merged, or is being merged.
    Queued,
    /// Its changes are in the head of the project, except those that the policy refused or a review rejected. No review
    /// waits for a decision.
    Landed,
    /// Some of its changes wait for reviews, because they conflict with the head or change critical paths. The others
    /// are in the head, except those that the policy refused.
    InReview,
    /// The policy refused all its changes.
    Refused,
    /// The completion could not be merged in several attempts.
    Failed,
}

/// Finished work of an agent, whose changes are merged into its project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// Id of the completion: a prefix, such as `tree-`, and a BLAKE3 hash in hex.
    #[schema(example = "tree-50d858e0985ecc7f60418aaf0cc5ab587f42c2570a884095a9e8ccacd0f6545c")]
    pub id: String,
    /// Id of the project.
    pub project: String,
    /// Agent that did the work.
    pub agent: String,
    /// Id of the sandbox, which may be deleted. Absent if the changes were sent without a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// State.
    pub state: CompletionState,
    /// Sequence of the project that first had some of the changes. Absent until then, and if nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// Changes that the policy refused.
    pub refused: Vec<RefusedChange>,
    /// Files that landed under another name, because their name was taken.
    pub renamed: Vec<RenamedAddition>,
    /// Conflicts, and changes of critical paths, that wait for a review. Until it is decided, the head keeps its own
    /// version of these paths.
    pub conflicts: Vec<CompletionConflict>,
    /// Reason why it could not be merged. Absent unless `state` is `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Creation time.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// Change that the policy refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedChange {
    /// Path of the change.
    pub path: String,
    /// Kind of the change: `addition`, `change`, `deletion` or `replacement` (by an entry of another kind, such as a
    /// directory in place of a file).
    pub change: String,
    /// Reason.
    pub reason: String,
    /// Path of the request that returns the file which the agent had there. Absent for deletions, and for keys of
    /// agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "/api/v1/projects/prj-0190c2f1a5c07cc0a1b2c3d4e5f60718/completions/\
        tree-50d858e0985ecc7f60418aaf0cc5ab587f42c2570a884095a9e8ccacd0f6545c/files/conf/main.toml")]
    pub content: Option<String>,
}

/// Added file whose name was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenamedAddition {
    /// Path under which the agent added it.
    pub from: String,
    /// Path under which it landed.
    pub to: String,
}

/// Conflict between the changes of an agent and the head, or change of a critical path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CompletionConflict {
    /// Path of the conflict.
    pub path: String,
    /// Kind of the conflict, such as `content` or `modify/delete`; `critical` for a change of a critical path.
    pub class: String,
}

/// Page of completions.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CompletionList {
    /// Completions, newest first.
    pub items: Vec<Completion>,
    /// Number of completions that match, on all pages.
    #[serde(default)]
    pub total: u64,
    /// Maximum number of completions per page.
    pub limit: u32,
    /// Value of `cursor` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Access policy of a project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectPolicy {
    /// Version, counted from 1; 0 if no policy was set.
    pub version: u64,
    /// Policy with `groups`, `rules` and `default`; the format is in docs/projects.md, Policies.
    #[schema(value_type = Object)]
    pub policy: Value,
    /// Author of the version. Absent if no policy was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Time of the version. Absent if no policy was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub time: Option<String>,
}

/// Answer to the question which rule decides about a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyExplanation {
    /// Agent that was asked about.
    pub agent: String,
    /// Path that was asked about.
    pub path: String,
    /// Access: `none`, `R` (read), `RA` (read and add), `RW-` (all but delete) or `RW`.
    pub access: String,
    /// Index of the rule that decides, counted from 0; null for the default.
    pub rule: Option<usize>,
    /// Reason in a sentence, in which `rules[0]` is the first rule.
    pub why: String,
}

/// Agent and path to explain.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExplainQuery {
    /// Name of the agent.
    pub agent: String,
    /// Path in the project.
    pub path: String,
}

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImportResult {
    /// Operation that the import made. Absent if it changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// Number of files in the archive.
    pub files: u64,
    /// Size of these files in bytes.
    pub bytes: u64,
}

/// Description of an import.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ImportQuery {
    /// Message for the history.
    pub message: Option<String>,
    /// Author of imported files, such as that of a commit, at most 256 bytes. Default: the name of the key.
    pub author: Option<String>,
    /// Id of the git commit that is imported, in hexadecimal digits.
    pub commit: Option<String>,
    /// Time of that commit in RFC 3339.
    pub commit_time: Option<String>,
    /// Sequence that the project must have, or id of the snapshot that must be its head. Without it, the import
    /// replaces the head whatever it is.
    #[param(value_type = Option<String>)]
    pub expect: Option<Revision>,
}

/// Request to roll back a file, a directory or the whole project.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"to": 3, "path": "src"}))]
pub struct Rollback {
    /// Sequence whose content is restored, or id of its snapshot.
    pub to: Revision,
    /// Path of the file or directory. Without it, the whole project is rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Message for the history.
    #[serde(default)]
    pub message: String,
}

/// State of a project, and page of the listing of its files.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProjectTreeQuery {
    /// State of the project: its sequence, or the id of the snapshot that a change made. Default: the head.
    #[param(value_type = Option<String>)]
    pub at: Option<Revision>,
    /// Page number, starting at 1. Default: 1.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// Maximum number of entries per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// State of a project to read.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProjectFileQuery {
    /// State of the project: its sequence, or the id of the snapshot that a change made. Default: the head.
    #[param(value_type = Option<String>)]
    pub at: Option<Revision>,
}

/// State of a project, and the part of it to archive.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProjectArchiveQuery {
    /// State of the project: its sequence, or the id of the snapshot that a change made. Default: the head.
    #[param(value_type = Option<String>)]
    pub at: Option<Revision>,
    /// Path of the directory, file or symlink to archive. Default: the whole project.
    pub path: Option<String>,
}

/// Filters and page of a list of completions.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListCompletionsQuery {
    /// Filter by state: `queued`, `landed`, `in_review`, `refused` or `failed`.
    pub state: Option<String>,
    /// Filter by agent.
    pub agent: Option<String>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of completions per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Time to wait for a completion.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Seconds to wait until it is not `queued` any more, at most 60. Default: 0.
    #[param(maximum = 60)]
    pub wait: Option<u64>,
}
