//! Reviews: conflicts that no rule resolves, and changes of critical paths, which wait for a decision.
//!
//! The merge of a completion (finished work of an agent) opens reviews, in the transaction that records the result of
//! the merge. Until a review is decided, the head (the present files of the project) keeps its own version of the path.
//! A decision is recorded once. If it changes the head, one transaction moves the head and records the decision.

mod apply;
mod data;
mod expiry;
mod resolve;
mod show;
mod sides;

use std::collections::HashMap;

use workspace_catalog::{Project, Review, ReviewFilter, ReviewState};

use super::Projects;
use super::agent_view::AgentView;
use super::error::{ProjectError, Result};
use crate::policy::{Policy, name_matches};

pub use apply::TheirsChoice;
pub use data::ReviewData;
pub(super) use data::opened_reviews;
pub use expiry::SettledReviews;
pub use resolve::{Resolution, ResolveRequest, Resolved};
pub use show::{ReviewDetails, StrategyChoice};
pub use sides::{ReviewSide, ReviewVersion};

/// Maximum number of reviews that are read for one page. Most of them may be filtered out.
const SCAN_MAX: usize = 5_000;
/// Number of reviews that are read at a time.
const SCAN_PAGE_SIZE: u32 = 500;

/// Review with the names of its reviewers.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewEntry {
    /// Stored review. Its field `opened` has the id, the path and the data with which it was inserted.
    pub stored: Review,
    /// Names or globs of the agents and people that may resolve it by the policy in force; `None` for everybody with
    /// access to the project.
    pub reviewers: Option<Vec<String>>,
}

/// Page of reviews.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewPage {
    /// Reviews, the oldest first.
    pub reviews: Vec<ReviewEntry>,
    /// Number of reviews on all pages; `None` if only those of a reviewer or of a view are listed.
    pub total: Option<u64>,
    /// Cursor of the next page; `None` if this is the last one.
    pub next: Option<String>,
}

impl Projects {
    /// Returns a page of the reviews of a project. With `reviewer`, the page has only reviews that this person or agent
    /// may resolve. With `view`, it has only reviews whose paths are all visible to the agent of the view. With either,
    /// a page can have fewer reviews than the limit, although another page follows.
    pub async fn reviews(
        &self,
        project: &Project,
        filter: ReviewFilter,
        reviewer: Option<&str>,
        view: Option<&AgentView>,
    ) -> Result<ReviewPage> {
        let mut reviewers = Reviewers::new(self.policy(project).await?);
        let (limit, mut filter) = (filter.limit as usize, filter);
        let total = if reviewer.is_some() || view.is_some() {
            filter.limit = filter.limit.max(SCAN_PAGE_SIZE);
            None
        } else {
            Some(self.catalog.reviews().count(&project.id, &filter).await?)
        };
        let (mut reviews, mut scanned) = (Vec::new(), 0);
        loop {
            let found = self.catalog.reviews().list(&project.id, &filter).await?;
            let is_last = found.len() < filter.limit as usize;
            scanned += found.len();
            for review in found {
                filter.cursor = Some(review.opened.id.clone());
                let allowed = reviewers.of(&review);
                if view.is_none_or(|view| is_shown(&review, view))
                    && reviewer.is_none_or(|name| is_reviewer(allowed.as_deref(), &review, name))
                {
                    reviews.push(ReviewEntry { stored: review, reviewers: allowed });
                }
                if reviews.len() == limit {
                    return Ok(ReviewPage { reviews, total, next: filter.cursor });
                }
            }
            if is_last || scanned >= SCAN_MAX {
                let next = filter.cursor.filter(|_| !is_last);
                return Ok(ReviewPage { reviews, total, next });
            }
        }
    }

    /// Returns a review of a project.
    pub async fn review(&self, project: &Project, id: &str) -> Result<Review> {
        let found = self.catalog.reviews().find(&project.id, id).await?;
        found.ok_or_else(|| ProjectError::ReviewNotFound {
            project: project.name.clone(),
            review: id.to_owned(),
        })
    }
}

/// Returns true if the paths of all versions of a review are visible in the view of an agent.
pub fn is_shown(review: &Review, view: &AgentView) -> bool {
    let Ok(data) = ReviewData::parse(&review.opened.data) else { return false };
    let mut others = [data.base_path, data.theirs_path, data.theirs_path_in_head].into_iter().flatten();
    view.shows(&review.opened.path) && others.all(|path| view.shows(&path.0))
}

/// Fails if a person or agent may not resolve a review. The reviewers are named by the rules for the path and for the
/// author of the change. An escalated review (one that was not decided in time) has one more: `assigned`.
pub fn check_reviewer(policy: &Policy, review: &Review, reviewer: &str) -> Result<()> {
    let reviewers = Reviewers::new(policy.clone()).of(review);
    if is_reviewer(reviewers.as_deref(), review, reviewer) {
        return Ok(());
    }
    let mut reviewers = reviewers.unwrap_or_default();
    reviewers.extend(review.opened.assigned.clone());
    Err(ProjectError::NotReviewer {
        review: review.opened.id.clone(),
        reviewer: reviewer.to_owned(),
        reviewers: reviewers.join(", "),
    })
}

fn is_reviewer(reviewers: Option<&[String]>, review: &Review, name: &str) -> bool {
    let named = reviewers.is_none_or(|reviewers| reviewers.iter().any(|glob| name_matches(glob, name)));
    named || review.opened.assigned.as_ref().is_some_and(|glob| name_matches(glob, name))
}

fn is_undecided(review: &Review) -> bool {
    matches!(review.state, ReviewState::Open | ReviewState::Escalated)
}

/// Lookup of the reviewers that a policy names.
struct Reviewers {
    policy: Policy,
    /// Rules for the agents whose changes are reviewed, by name. Kept because each lookup goes through all rules.
    agents: HashMap<String, crate::policy::AgentPolicy>,
}

impl Reviewers {
    fn new(policy: Policy) -> Self {
        Self { policy, agents: HashMap::new() }
    }

    /// Returns the names and globs of the reviewers that the policy names for a review; `None` for everybody.
    fn of(&mut self, review: &Review) -> Option<Vec<String>> {
        let author = &review.opened.author;
        let agent = self.agents.entry(author.clone()).or_insert_with(|| self.policy.for_agent(author));
        agent.conflict_settings(&review.opened.path).reviewers
    }
}
