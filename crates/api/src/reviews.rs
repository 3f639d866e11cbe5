//! Types for reviews: conflicts and critical changes of projects that wait for a decision.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::diff::Cause;
use crate::projects::Operation;
use crate::snapshots::EntryKind;

/// State of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewState {
    /// It waits for a decision.
    Open,
    /// Nobody decided it in time, and it waits for somebody else.
    Escalated,
    /// It was decided.
    Resolved,
    /// Nobody decided it in time: the head keeps its version.
    Expired,
}

/// Conflict or critical change that waits for a decision, or was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    /// Id of the review, `rev-` followed by letters and digits. Later ids sort later.
    pub id: String,
    /// Id of the project.
    pub project: String,
    /// Path that the review is about.
    pub path: String,
    /// Kind of the conflict, such as `content`, `modify/delete` or `critical`.
    pub class: String,
    /// State.
    pub state: ReviewState,
    /// Agent whose change needs the review.
    pub agent: String,
    /// Id of the completion that brought the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
    /// Names or globs of those who may resolve it by the policy in force. Absent if everybody with access may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewers: Option<Vec<String>>,
    /// Name or glob of those to whom it was escalated. Absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated_to: Option<String>,
    /// Time at which it is escalated or expires. Absent if it waits for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Person, agent or `system` that decided it. Absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// Decision. Absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ReviewResolution>,
    /// Creation time.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time of the last change.
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// Decision about a review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReviewResolution {
    /// Choice: `ours`, `theirs`, `strategy`, `content` or `delete`.
    pub choice: String,
    /// Name of the merge strategy. Absent for other choices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Sequence of the project that has the chosen version. Absent if the head had it already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
}

/// Page of reviews.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReviewList {
    /// Reviews, oldest first.
    pub items: Vec<Review>,
    /// Number of reviews that match on all pages. Absent if only those are listed that somebody may resolve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Maximum number of reviews per page.
    pub limit: u32,
    /// Value of `cursor` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Filters and page of a list of reviews.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListReviewsQuery {
    /// Filter by state: `open`, `escalated`, `resolved` or `expired`.
    pub state: Option<String>,
    /// Filter by completion.
    pub completion: Option<String>,
    /// Filter by path, which may be quoted with C escapes.
    pub path: Option<String>,
    /// Only those that this person or agent may resolve. A page may then have fewer reviews than `limit`.
    pub assigned: Option<String>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of reviews per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Review with all versions, and what led to them.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewDetails {
    /// The review.
    #[serde(flatten)]
    pub review: Review,
    /// Sandbox of the agent, which may be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Reason of the conflict. Absent if it is not about the content of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Sequence of the present head.
    pub sequence: u64,
    /// Version that the agent started from.
    pub base: ReviewVersion,
    /// Version that the head had when the review was opened.
    pub ours: ReviewVersion,
    /// Version of the agent.
    pub theirs: ReviewVersion,
    /// Version of the present head, on which a decision acts.
    pub head: ReviewVersion,
    /// Conflicting lines or values of `base`, `ours` and `theirs`; empty if the whole entry is in conflict.
    pub regions: Vec<ReviewRegion>,
    /// True if there are more regions than are listed.
    #[serde(default)]
    pub regions_truncated: bool,
    /// Choices `ours`, `theirs` and `strategy` that can be made now; empty if the review is decided. An open review can
    /// also be decided with new content, or with the choice `delete`.
    pub choices: Vec<ReviewChoice>,
    /// Commands and notes that led to `ours`.
    pub ours_change: ReviewChange,
    /// Commands and notes that led to `theirs`.
    pub theirs_change: ReviewChange,
}

/// Version of the entry that a review is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewVersion {
    /// False if this version has no entry.
    pub present: bool,
    /// Path of the entry in this version.
    pub path: String,
    /// Identity of the version, for `expect` of a decision.
    pub version: String,
    /// Kind of the entry: `file`, `directory` or `symlink`. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "file")]
    pub kind: Option<EntryKind>,
    /// Size in bytes; 0 for a directory. Absent if there is no entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Permission bits in octal. Absent if there is no entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Hash of the content: equal for equal content. Absent if there is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// MIME type, guessed from the name. Absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    /// True if the file looks like text, false if it is binary. Absent if there is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<bool>,
    /// Text of the file, or target of the symlink. Absent if it is longer than 64 KiB or not UTF-8;
    /// `versions/{side}` has it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// Conflicting part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum ReviewRegion {
    /// Conflicting lines.
    Lines {
        /// Lines in the base.
        base: LineRange,
        /// Lines in our version.
        ours: LineRange,
        /// Lines in their version.
        theirs: LineRange,
    },
    /// Conflicting value of a document.
    Value {
        /// Path of the value: keys joined by dots, array elements by the field that identifies them, such as `[id=7]`,
        /// and cells of notebooks by their label, as `[label]`.
        path: String,
        /// Source text in the base. Null if the base does not have it. Each of the three texts is cut after 1 KiB, and
        /// then ends with `…`.
        base: Option<String>,
        /// Source text in our version. Null if it was removed there.
        ours: Option<String>,
        /// Source text in their version. Null if it was removed there.
        theirs: Option<String>,
    },
}

/// Range of lines, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LineRange {
    /// First line.
    pub start: usize,
    /// Line after the last one.
    pub end: usize,
}

/// Decision that can be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReviewChoice {
    /// Choice: `ours`, `theirs` or `strategy`. The choice `delete` is not listed.
    pub choice: String,
    /// Name of the merge strategy. Absent for other choices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Size of the resulting file in bytes. Absent if the result is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// Origin of one side of a conflict.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReviewChange {
    /// Operation of the project that brought the change. Absent for their side, and if the history has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// Snapshots in which the entry changed, newest first, with the commands and notes that belong to them.
    pub causes: Vec<Cause>,
    /// False if there may be other causes.
    pub complete: bool,
}

/// Decision about a review. Exactly one of `choice`, `content` and `contentBase64` is given.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({"choice": "theirs", "message": "the agent is right"}))]
pub struct ResolveReview {
    /// Choice: `ours` (the head stays as it is), `theirs`, `strategy` or `delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
    /// Name of the merge strategy, with the choice `strategy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// New content of the file as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// New content of the file in base64, for bytes that are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_base64: Option<String>,
    /// Version of the head that you have seen: `head.version` of the review, or a sequence of the project. Needed if
    /// the head has changed the path since the review was opened, except for the choice `ours`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
    /// Message for the history.
    #[serde(default)]
    pub message: String,
}

/// Decided review.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResolvedReview {
    /// The review with its decision.
    pub review: Review,
    /// Operation that changed the head. Absent if the head had the chosen version already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}
