//! Conversion of reviews to types of the API.

use serde_json::Value;
use workspace_api::reviews::{
    Review, ReviewChange, ReviewChoice, ReviewDetails, ReviewRegion, ReviewResolution, ReviewState,
    ReviewVersion,
};
use workspace_catalog::ReviewState as State;
use workspace_context::projects::{ReviewDetails as Details, ReviewEntry, ReviewVersion as Version};
use workspace_state::{Node, quote_path};

use crate::error::ApiError;
use crate::snapshots::{kind_to_api, octal};
use crate::time::format_millis;

pub(super) fn review_to_api(entry: ReviewEntry) -> Result<Review, ApiError> {
    let ReviewEntry { stored, reviewers } = entry;
    let review = stored.opened;
    Ok(Review {
        id: review.id,
        project: stored.project,
        path: quote_path(&review.path).into_owned(),
        class: review.class,
        state: state_to_api(stored.state),
        agent: review.author,
        completion: review.completion,
        reviewers,
        escalated_to: review.assigned,
        expires_at: review.expires_at.map(format_millis).transpose()?,
        resolved_by: stored.resolved_by,
        resolution: stored.resolution.map(resolution_to_api).transpose()?,
        created_at: format_millis(stored.created_at)?,
        updated_at: format_millis(stored.updated_at)?,
    })
}

fn resolution_to_api(resolution: Value) -> Result<ReviewResolution, ApiError> {
    serde_json::from_value(resolution).map_err(ApiError::internal)
}

fn state_to_api(state: State) -> ReviewState {
    match state {
        State::Open => ReviewState::Open,
        State::Escalated => ReviewState::Escalated,
        State::Resolved => ReviewState::Resolved,
        State::Expired => ReviewState::Expired,
    }
}

pub(super) fn details_to_api(
    details: Details,
    ours_change: ReviewChange,
    theirs_change: ReviewChange,
) -> Result<ReviewDetails, ApiError> {
    let choices = choices(&details);
    let regions = details.data.regions.into_iter().map(serde_json::from_value::<ReviewRegion>);
    Ok(ReviewDetails {
        review: review_to_api(details.entry)?,
        sandbox: details.completion.and_then(|completion| completion.completion.sandbox),
        reason: details.data.reason,
        sequence: details.sequence.unsigned_abs(),
        base: version_to_api(details.base),
        ours: version_to_api(details.ours_at_opening),
        theirs: version_to_api(details.theirs),
        head: version_to_api(details.head),
        regions: regions.collect::<Result<_, _>>().map_err(ApiError::internal)?,
        regions_truncated: details.data.has_more_regions,
        choices,
        ours_change,
        theirs_change,
    })
}

/// Returns the decisions that can be made about a review; none if it is decided.
fn choices(details: &Details) -> Vec<ReviewChoice> {
    if !matches!(details.entry.stored.state, State::Open | State::Escalated) {
        return Vec::new();
    }
    let choice = |choice: &str, strategy: Option<&str>, size| ReviewChoice {
        choice: choice.to_owned(),
        strategy: strategy.map(str::to_owned),
        size,
    };
    // `ours` keeps the present head, which may be newer than `details.ours_at_opening`.
    let mut choices = vec![choice("ours", None, file_size(&details.head))];
    choices.extend(details.theirs_choice.map(|theirs| choice("theirs", None, theirs.size)));
    let strategies = details.strategies.iter();
    choices.extend(strategies.map(|found| choice("strategy", Some(found.name), Some(found.size))));
    choices
}

fn file_size(version: &Version) -> Option<u64> {
    match version.entry.as_ref().map(|entry| &entry.node) {
        Some(Node::File(file)) => Some(file.size()),
        _ => None,
    }
}

fn version_to_api(version: Version) -> ReviewVersion {
    let node = version.entry.as_ref().map(|entry| &entry.node);
    ReviewVersion {
        present: node.is_some(),
        path: quote_path(&version.path).into_owned(),
        version: version.version,
        kind: node.map(|node| kind_to_api(node.kind())),
        size: node.map(|node| if matches!(node, Node::Directory(_)) { 0 } else { node.size() }),
        mode: node.map(|node| octal(node.mode())),
        hash: version.hash,
        mime: version.mime,
        text: version.is_text,
        content: version.content,
    }
}
