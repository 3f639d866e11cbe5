//! Errors of projects. The head of a project is the snapshot of its present files; its sequence is the number of
//! changes so far. A completion is finished work of an agent: when it has landed, it is merged into the head. A review
//! is a conflict that waits for a decision.

use workspace_catalog::CatalogError;
use workspace_merge::TreeMergeError;
use workspace_state::{SnapshotId, StoreError, TreeError};

use crate::check::CheckError;
use crate::lift::LiftError;
use crate::policy::PolicyError;
use crate::view::ViewError;

/// Error of an operation on a project.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// There is no project with that name or id.
    #[error("there is no project `{project}`; `workspace project ls` lists those that exist")]
    NotFound {
        /// Name or id that was asked for.
        project: String,
    },
    /// The owner has a project with that name.
    #[error("there is a project `{name}` already; choose another name")]
    NameTaken {
        /// Name of the project.
        name: String,
    },
    /// The owner has the maximum number of projects.
    #[error("`{owner}` may have {limit} projects at most; delete some, or raise MAX_PROJECTS_PER_OWNER")]
    TooMany {
        /// Owner of the projects.
        owner: String,
        /// Maximum number of projects.
        limit: u64,
    },
    /// The name of a project is not valid.
    #[error("`{name}` is no name of a project: {NAME_RULE}")]
    InvalidName {
        /// Name that was given.
        name: String,
    },
    /// The project has no such sequence.
    #[error("project `{project}` has no sequence {sequence}; its head has {head}")]
    NoSuchSequence {
        /// Name of the project.
        project: String,
        /// Sequence that was asked for.
        sequence: i64,
        /// Sequence of the head.
        head: i64,
    },
    /// A snapshot was never the head of the project.
    #[error("snapshot `{snapshot}` was never the head of project `{project}`")]
    NoSuchSnapshot {
        /// Name of the project.
        project: String,
        /// Snapshot that was asked for.
        snapshot: String,
    },
    /// The head has another sequence than the caller expects.
    #[error("the head of project `{project}` has sequence {found}, not {expected}")]
    Moved {
        /// Name of the project.
        project: String,
        /// Sequence that the caller expects.
        expected: i64,
        /// Sequence of the head.
        found: i64,
    },
    /// The head moved again in each of many attempts.
    #[error("the head of project `{project}` changed too often; try again")]
    Contended {
        /// Name of the project.
        project: String,
    },
    /// Completions of the project wait to be merged, or agents have workspaces of it.
    #[error(
        "completions of project `{project}` wait to be merged, or agents have workspaces of it; try again when they \
         have landed, and are deleted"
    )]
    InUse {
        /// Name of the project.
        project: String,
    },
    /// The project has no such review.
    #[error(
        "project `{project}` has no review `{review}`; `workspace review ls {project}` lists its reviews"
    )]
    ReviewNotFound {
        /// Name of the project.
        project: String,
        /// Id that was asked for.
        review: String,
    },
    /// The review is decided already.
    #[error(
        "review `{review}` is {state} by `{by}` already; change the file itself if the decision was wrong"
    )]
    ReviewDecided {
        /// Id of the review.
        review: String,
        /// State of the review.
        state: &'static str,
        /// Name of the person or agent that decided it; `system` if it expired.
        by: String,
    },
    /// The policy does not name the caller as a reviewer.
    #[error("`{reviewer}` may not resolve review `{review}`; the policy names: {reviewers}")]
    NotReviewer {
        /// Id of the review.
        review: String,
        /// Name of the caller.
        reviewer: String,
        /// Names and globs of those who may resolve it.
        reviewers: String,
    },
    /// The head has another version of the path than the reviewer has seen.
    #[error(
        "the head has another version of `{path}` now; look at it with `workspace review show`, and repeat with \
         `expect` `{version}`, or keep `ours`"
    )]
    ReviewOutdated {
        /// Id of the review.
        review: String,
        /// Path of the review.
        path: String,
        /// Identity of the present version.
        version: String,
    },
    /// A resolution cannot be applied to the present head.
    #[error("review `{review}` cannot be resolved this way: {reason}")]
    ResolutionNotApplicable {
        /// Id of the review.
        review: String,
        /// Reason, and what to do instead.
        reason: String,
    },
    /// The new content is too large.
    #[error(
        "the content has {size} bytes, but at most {limit} are allowed; complete it from a sandbox instead"
    )]
    ResolutionTooLarge {
        /// Size in bytes.
        size: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// There is no merge strategy with that name.
    #[error(transparent)]
    UnknownStrategy(workspace_merge::UnknownStrategy),
    /// A snapshot that the history refers to is not in the store of this server.
    #[error("snapshot {id} is not in the store of this server; run `workspace verify`")]
    SnapshotMissing {
        /// Id of the snapshot.
        id: SnapshotId,
    },
    /// The policy is not valid, or cannot be read.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A stored value cannot be read.
    #[error("a record of the project is damaged: {0}")]
    Record(String),
    /// The catalog failed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tree could not be changed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The changes of an agent could not be checked.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// A view could not be made.
    #[error(transparent)]
    View(#[from] ViewError),
    /// A merged view could not be applied to the head.
    #[error(transparent)]
    Lift(#[from] LiftError),
    /// A merge failed.
    #[error(transparent)]
    Merge(#[from] TreeMergeError),
    /// A task was cancelled or panicked.
    #[error("a task of the project ended early: {0}")]
    Task(String),
}

impl ProjectError {
    /// Returns true if the cause is not in the project, and can go away: an error of the disk, a store that is being
    /// repaired, or a shutdown.
    pub(super) fn is_temporary(&self) -> bool {
        let is_temporary = |error: &StoreError| {
            matches!(error, StoreError::Io { .. } | StoreError::Busy { .. } | StoreError::Cancelled(_))
        };
        self.store_error().is_some_and(|error| error.is_full() || is_temporary(error))
    }

    /// Returns the error of the store that caused this error. It is not among the sources of this error, because the
    /// variants in between are transparent.
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error)
            | Self::Check(CheckError::Store(error))
            | Self::View(ViewError::Store(error))
            | Self::Lift(LiftError::Store(error) | LiftError::View(ViewError::Store(error)))
            | Self::Merge(TreeMergeError::Store(error)) => Some(error),
            Self::Tree(error)
            | Self::Check(CheckError::Tree(error))
            | Self::View(ViewError::Tree(error))
            | Self::Lift(LiftError::Tree(error) | LiftError::View(ViewError::Tree(error)))
            | Self::Merge(TreeMergeError::Tree(error)) => match error {
                TreeError::Store(error) => Some(error),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Rule for names of projects.
pub(super) const NAME_RULE: &str =
    "use 1 to 128 letters, digits, `.`, `_` and `-`, and start with a letter or a digit";

pub(crate) type Result<T, E = ProjectError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_errors_are_temporary_inside_every_variant() {
        let cancelled = || StoreError::Cancelled(workspace_state::Cancelled);
        let errors = [
            ProjectError::Store(cancelled()),
            ProjectError::Tree(cancelled().into()),
            ProjectError::Check(cancelled().into()),
            ProjectError::Check(CheckError::Tree(cancelled().into())),
            ProjectError::View(cancelled().into()),
            ProjectError::View(ViewError::Tree(cancelled().into())),
            ProjectError::Lift(cancelled().into()),
            ProjectError::Lift(LiftError::Tree(cancelled().into())),
            ProjectError::Lift(LiftError::View(cancelled().into())),
            ProjectError::Merge(cancelled().into()),
            ProjectError::Merge(TreeMergeError::Tree(cancelled().into())),
        ];
        for error in errors {
            assert!(error.is_temporary(), "{error:?}");
        }
        let id = SnapshotId::from_bytes([0; 16]);
        assert!(!ProjectError::SnapshotMissing { id }.is_temporary());
    }
}
