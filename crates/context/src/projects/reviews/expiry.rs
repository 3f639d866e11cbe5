//! Overdue reviews: conflicts that nobody decided in time. If the policy names somebody to escalate to, a review is
//! escalated once: that person or agent may decide it, too. Otherwise, and after another timeout, it expires: the head
//! (the present files of the project) keeps its version. `Review::opened` is a review as it was inserted in the
//! catalog.

use std::collections::HashMap;

use serde_json::json;
use workspace_catalog::{EventKind, NewEvent, Project, Review, ReviewDecision, ReviewState};

use super::data::time_after;
use super::is_undecided;
use super::resolve::event_data;
use crate::policy::{ConflictSettings, Policy, ReviewTimeout};
use crate::projects::error::{ProjectError, Result};
use crate::projects::{ATTEMPTS_MAX, Projects};

/// Number of reviews that are read at a time.
const PAGE_SIZE: u32 = 100;
/// Number of escalated and expired reviews after which [`Projects::settle_overdue_reviews`] returns. Failed ones are
/// not counted: each call begins with the oldest reviews, and would never reach the later ones if enough of the oldest
/// always fail.
const SETTLED_MAX: u64 = 1_000;
/// Name in `resolved_by` of a review that a server expired.
const SYSTEM: &str = "system";

/// Numbers of overdue reviews that a call of [`Projects::settle_overdue_reviews`] handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SettledReviews {
    /// Reviews that were escalated: one more person or agent may decide them.
    pub escalated: u64,
    /// Reviews that expired: the head keeps its version.
    pub expired: u64,
    /// Reviews that could not be escalated or expired. The next call tries them again.
    pub failed: u64,
    /// True if more reviews may be overdue, so that the next call should follow at once.
    pub has_more: bool,
}

/// Result of handling an overdue review.
enum Settled {
    Escalated,
    Expired,
    /// Somebody else decided or escalated the review meanwhile, or it was deleted with its project.
    NotOverdue,
}

impl Projects {
    /// Escalates or expires reviews that should have been decided at `time`, in milliseconds since 1970. Several
    /// servers may do this at the same time: each review is escalated and expires once.
    pub async fn settle_overdue_reviews(&self, time: i64) -> Result<SettledReviews> {
        let (mut settled, mut cursor) = (SettledReviews::default(), None);
        loop {
            let page = self.catalog.reviews().overdue(time, cursor.as_ref(), PAGE_SIZE).await?;
            let Some(last) = page.last().cloned() else { return Ok(settled) };
            let mut policies = HashMap::new();
            for review in &page {
                match self.settle(review, time, &mut policies).await {
                    Ok(Settled::Escalated) => settled.escalated += 1,
                    Ok(Settled::Expired) => settled.expired += 1,
                    Ok(Settled::NotOverdue) => {}
                    Err(error) => {
                        settled.failed += 1;
                        let review = &review.opened.id;
                        tracing::warn!(review, %error, "failed to escalate or expire an overdue review");
                    }
                }
            }
            if settled.escalated + settled.expired >= SETTLED_MAX {
                return Ok(SettledReviews { has_more: true, ..settled });
            }
            cursor = Some(last);
        }
    }

    /// Escalates or expires a review that was overdue when it was listed. `policies` caches the policies of projects
    /// by id and version.
    async fn settle(
        &self,
        review: &Review,
        time: i64,
        policies: &mut HashMap<(String, i64), Policy>,
    ) -> Result<Settled> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(project) = self.catalog.projects().get(&review.project).await? else {
                return Ok(Settled::NotOverdue);
            };
            let Some(review) = self.catalog.reviews().find(&project.id, &review.opened.id).await? else {
                return Ok(Settled::NotOverdue);
            };
            if !is_undecided(&review) || review.opened.expires_at.is_none_or(|expiry| expiry > time) {
                return Ok(Settled::NotOverdue);
            }
            let key = (project.id.clone(), project.policy_version);
            if !policies.contains_key(&key) {
                policies.insert(key.clone(), self.policy(&project).await?);
            }
            let agent = policies.get(&key).map(|policy| policy.for_agent(&review.opened.author));
            let settings =
                agent.map(|agent| agent.conflict_settings(&review.opened.path)).unwrap_or_default();
            // If another server escalates the review at this moment, `escalate` returns false. The review must not
            // expire then: it is read again.
            let escalate_to = settings.escalate_to.as_deref().filter(|_| review.state == ReviewState::Open);
            let settled = match escalate_to {
                Some(to) if self.escalate(&project, &review, to, &settings, time).await? => {
                    Settled::Escalated
                }
                None if self.expire(&project, &review).await? => Settled::Expired,
                _ => continue,
            };
            return Ok(settled);
        }
        Err(ProjectError::Contended { project: review.project.clone() })
    }

    /// Escalates an open review. Returns false if it is not open any more.
    async fn escalate(
        &self,
        project: &Project,
        review: &Review,
        to: &str,
        settings: &ConflictSettings,
        time: i64,
    ) -> Result<bool> {
        let timeout = settings.review_timeout.as_ref().and_then(ReviewTimeout::duration);
        let expires_at = timeout.map(|timeout| time_after(time, timeout));
        let mut data = event_data(project, review);
        data["escalatedTo"] = to.into();
        let event = NewEvent { kind: EventKind::ReviewEscalated, data };
        let (reviews, id) = (self.catalog.reviews(), &review.opened.id);
        Ok(reviews.escalate(&project.id, &project.owner, id, to, expires_at, &[event]).await?)
    }

    /// Expires a review. Returns false if it was decided, or the head moved, meanwhile.
    async fn expire(&self, project: &Project, review: &Review) -> Result<bool> {
        let decision = ReviewDecision {
            id: review.opened.id.clone(),
            state: ReviewState::Expired,
            resolved_by: SYSTEM.to_owned(),
            resolution: json!({ "choice": "ours" }),
        };
        let decided = self.prepare_decision(project, review, decision, None).await?;
        self.record_decision(project, decided).await
    }
}
