//! Sandboxes that follow the head of their project: shows each new head in them.
//!
//! One task checks the projects that have followers, after each event that this server records, and every second for
//! events of other servers. Followers with the same view of a project share an *anchor*, so a new head is shown in
//! all of them by one operation. A policy can change the view of an agent: then its sandboxes move to another anchor,
//! before their former one shows another head.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use workspace_catalog::{Catalog, Project};
use workspace_context::ViewKey;
use workspace_context::projects::Projects;
use workspace_sandbox::{Follower, Service};

use crate::app::App;
use crate::error::ApiError;

/// Interval at which heads are compared that other servers may have changed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two switches of a head.
const SWITCH_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Minimum time between two checks that find nothing to do, so that many events cause few of them.
const QUERY_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Maximum time that the move of one sandbox may take before the others get their turn.
const MOVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of projects whose heads are switched at a time.
const PROJECTS_AT_ONCE: usize = 8;

/// Returns the name of the anchor of a view of a project.
pub(crate) fn anchor_name(project: &str, view: ViewKey) -> String {
    blake3::hash(format!("{project}\0{view}").as_bytes()).to_hex()[..40].to_owned()
}

/// Sequence and policy version of a project that its followers show.
type Shown = (i64, i64);

/// Task that shows new heads. Drop its future to stop it: followers keep the heads that they have.
#[derive(Debug, Clone)]
pub(crate) struct Followers {
    catalog: Catalog,
    projects: Projects,
    sandboxes: Service,
}

impl Followers {
    pub(crate) fn new(app: &App) -> Self {
        let (catalog, projects) = (app.catalog.clone(), app.projects.clone());
        Self { catalog, projects, sandboxes: app.sandboxes.clone() }
    }

    /// Shows new heads until the future is dropped.
    pub(crate) async fn run(self) {
        let mut recorded = self.catalog.events().subscribe();
        let mut shown: HashMap<String, (Shown, BTreeSet<String>)> = HashMap::new();
        loop {
            let began = Instant::now();
            let interval = match self.show_all(&mut shown).await {
                true => SWITCH_INTERVAL_MIN,
                false => QUERY_INTERVAL_MIN,
            };
            sleep_until(began + interval).await;
            // Continues after a change or the interval. `changed` itself cannot fail, because the catalog lives as long
            // as this task.
            let _ = timeout(POLL_INTERVAL, recorded.changed()).await;
        }
    }

    /// Shows the present head of each project that has followers. `shown` has what was shown of each project, and in
    /// which sandboxes: nothing is to be done until the head, the policy or the followers change. Returns true if there
    /// was something to do.
    async fn show_all(&self, shown: &mut HashMap<String, (Shown, BTreeSet<String>)>) -> bool {
        let mut by_project: BTreeMap<String, Vec<Follower>> = BTreeMap::new();
        for follower in self.sandboxes.followers() {
            by_project.entry(follower.project.clone()).or_default().push(follower);
        }
        shown.retain(|project, _| by_project.contains_key(project));
        if by_project.is_empty() {
            return false;
        }
        if let Err(error) = self.sandboxes.release_former_heads().await {
            tracing::warn!(%error, "failed to release former heads");
        }
        let ids: Vec<String> = by_project.keys().cloned().collect();
        let mut projects = match self.catalog.projects().with_ids(&ids).await {
            Ok(projects) => projects,
            Err(error) => {
                tracing::warn!(%error, "failed to look up the projects that are followed");
                return false;
            }
        };
        let (mut tasks, mut has_worked) = (JoinSet::new(), false);
        for (id, followers) in by_project {
            // Followers of a deleted project keep the last head.
            let Some(project) = projects.remove(&id) else { continue };
            let version = (project.sequence, project.policy_version);
            let ids: BTreeSet<String> = followers.iter().map(|follower| follower.id.clone()).collect();
            if shown.get(&id).is_some_and(|(last, known)| *last == version && ids.is_subset(known)) {
                continue;
            }
            if tasks.len() >= PROJECTS_AT_ONCE {
                record(shown, tasks.join_next().await);
            }
            has_worked = true;
            let this = self.clone();
            tasks.spawn(async move {
                let result = this.show(&project, followers).await;
                (id, (version, ids), result)
            });
        }
        while let Some(done) = tasks.join_next().await {
            record(shown, Some(done));
        }
        has_worked
    }

    /// Shows the present head of a project in its followers.
    async fn show(&self, project: &Project, followers: Vec<Follower>) -> Result<(), ApiError> {
        let agents = followers.iter().map(|follower| follower.agent.clone()).collect();
        let view_keys = self.projects.view_keys(project, agents).await?;
        // All agents with the same view get the same files, so one of them stands for all.
        let mut agents_by_key: BTreeMap<ViewKey, &str> = BTreeMap::new();
        for (agent, key) in &view_keys {
            agents_by_key.entry(*key).or_insert(agent);
        }
        let mut heads = Vec::new();
        for (key, agent) in agents_by_key {
            let base = self.projects.workspace_base(project, agent).await?;
            heads.push((key, anchor_name(&project.id, key), base));
        }
        let (mut failure, mut blocked) = (None, HashSet::new());
        for follower in followers {
            let Some(key) = view_keys.get(&follower.agent) else { continue };
            let Some((_, anchor, base)) = heads.iter().find(|(found, ..)| found == key) else { continue };
            if follower.anchor == *anchor {
                continue;
            }
            let moving = self.sandboxes.move_follower(&follower.id, anchor, base.snapshot, base.sequence);
            let moved = match timeout(MOVE_TIMEOUT, moving).await {
                Ok(moved) => moved.map_err(ApiError::from),
                Err(elapsed) => Err(ApiError::internal(elapsed)),
            };
            if let Err(error) = moved {
                // The sandbox stays at its anchor, whose next head may have files that its agent may no longer see. So
                // that anchor keeps its present head.
                blocked.insert(follower.anchor);
                failure = Some(error);
            }
        }
        for (_, anchor, base) in heads {
            if blocked.contains(&anchor) {
                continue;
            }
            if let Err(error) = self.sandboxes.switch_head(&anchor, base.snapshot, base.sequence).await {
                failure = Some(error.into());
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Id of a project, what to record in `shown`, and the result of its task.
type Done = (String, (Shown, BTreeSet<String>), Result<(), ApiError>);

/// Records that the head of a project is shown, or logs why not: then the next check tries again.
fn record(
    shown: &mut HashMap<String, (Shown, BTreeSet<String>)>,
    done: Option<Result<Done, tokio::task::JoinError>>,
) {
    match done {
        Some(Ok((project, state, Ok(())))) => {
            shown.insert(project, state);
        }
        Some(Ok((project, _, Err(error)))) => {
            tracing::warn!(
                project,
                cause = error.cause(),
                "failed to show the head of a project, trying again"
            );
        }
        Some(Err(error)) => tracing::error!(%error, "the task that shows the head of a project failed"),
        None => {}
    }
}
