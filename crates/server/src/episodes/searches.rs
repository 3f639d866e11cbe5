//! Pages of searches, and bounds of subtrees.

use workspace_api::episodes::{EpisodeSubtreeQuery, SearchSort};
use workspace_api::error_codes;
use workspace_catalog::CreationOrder;
use workspace_sandbox::Scope;
use workspace_state::{Episode, EpisodeId, Store};

use super::PAGE_BYTES;
use crate::app::App;
use crate::error::ApiError;
use crate::store::with_store;

/// Maximum total size of the stored records (JSON) of the steps of a subtree, in bytes.
pub(super) const SUBTREE_BYTES: usize = 8 << 20;
/// Maximum number of steps in a subtree. Steps of a search in an admin's list are counted up to this number, too.
const STEPS_MAX: usize = 10_000;
const DEPTH_MAX: u32 = 1_000;
const SUBTREE_DEFAULT: u32 = 1_000;

/// Page of searches: the first step of each, with the number of steps.
pub(super) struct Page {
    pub(super) items: Vec<(Episode, u64)>,
    pub(super) total: u64,
    pub(super) next: Option<EpisodeId>,
}

/// Validates the bounds of a subtree. Returns its maximum depth and number of steps.
pub(super) fn check_subtree(query: &EpisodeSubtreeQuery) -> Result<(u32, usize), ApiError> {
    let (depth, limit) = (query.depth.unwrap_or(DEPTH_MAX), query.limit.unwrap_or(SUBTREE_DEFAULT) as usize);
    if depth > DEPTH_MAX || !(1..=STEPS_MAX).contains(&limit) {
        let message =
            format!("depth must be at most {DEPTH_MAX}, and limit must be between 1 and {STEPS_MAX}");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message));
    }
    Ok((depth, limit))
}

/// Returns a page of searches: those that the owner began, or for an admin all searches in the store.
pub(super) async fn page(
    app: &App,
    scope: &Scope,
    cursor: Option<EpisodeId>,
    limit: u32,
    sort: SearchSort,
) -> Result<Page, ApiError> {
    match scope {
        Scope::Owner(owner) => page_of_owner(app, owner, cursor, limit, sort).await,
        // Searches belong to no sandbox.
        Scope::Sandbox { .. } => Ok(Page { items: Vec::new(), total: 0, next: None }),
        Scope::All => {
            with_store(&app.store, move |store| page_of_store(store, cursor, limit as usize, sort)).await
        }
    }
}

async fn page_of_owner(
    app: &App,
    owner: &str,
    cursor: Option<EpisodeId>,
    limit: u32,
    sort: SearchSort,
) -> Result<Page, ApiError> {
    let order = match sort {
        SearchSort::Newest => CreationOrder::Newest,
        SearchSort::Oldest => CreationOrder::Oldest,
    };
    let cursor = cursor.map(|id| id.to_string());
    let found = app.catalog.episodes().searches(owner, order, cursor.as_deref(), limit).await?;
    let searches: Vec<(EpisodeId, u64)> =
        found.searches.iter().filter_map(|search| Some((search.id.parse().ok()?, search.steps))).collect();
    let (total, has_more) = (found.total, found.has_more);
    with_store(&app.store, move |store| read_first_steps(store, &searches, total, has_more)).await
}

fn page_of_store(
    store: &Store,
    cursor: Option<EpisodeId>,
    limit: usize,
    sort: SearchSort,
) -> Result<Page, ApiError> {
    // The first steps of all searches, which have no parent. Ids sort by creation time.
    let mut ids = store.episode_children_ids(None)?;
    let total = ids.len() as u64;
    if sort == SearchSort::Newest {
        ids.reverse();
    }
    let is_after = |id: &EpisodeId| match (sort, &cursor) {
        (_, None) => true,
        (SearchSort::Newest, Some(cursor)) => id < cursor,
        (SearchSort::Oldest, Some(cursor)) => id > cursor,
    };
    let mut rest = ids.into_iter().filter(is_after);
    let page: Vec<EpisodeId> = rest.by_ref().take(limit).collect();
    let has_more = rest.next().is_some();
    let mut searches = Vec::with_capacity(page.len());
    for id in page {
        // Counts at most `STEPS_MAX` steps.
        let (steps, _) = store.episode_levels(&id, u32::MAX, STEPS_MAX)?;
        searches.push((id, steps.len() as u64));
    }
    read_first_steps(store, &searches, total, has_more)
}

/// Reads the first steps of searches, until they exceed [`PAGE_BYTES`]. `searches` are the ids of the first steps and
/// the numbers of steps; `has_more` is true if others follow.
fn read_first_steps(
    store: &Store,
    searches: &[(EpisodeId, u64)],
    total: u64,
    has_more: bool,
) -> Result<Page, ApiError> {
    let ids: Vec<EpisodeId> = searches.iter().map(|(id, _)| *id).collect();
    let first = store.episodes_within(&ids, PAGE_BYTES)?;
    // A step that is not in this store is omitted; one that does not fit any more begins the next page.
    let is_cut = first.len() < ids.len() && store.missing_episodes(&ids)?.len() + first.len() < ids.len();
    let last = if is_cut { first.last().map(|last| last.id) } else { ids.last().copied() };
    let next = last.filter(|_| is_cut || has_more);
    let steps = |id: &EpisodeId| searches.iter().find(|(it, _)| it == id).map_or(0, |(_, steps)| *steps);
    let items = first.into_iter().map(|first| {
        let steps = steps(&first.id);
        (first, steps)
    });
    Ok(Page { items: items.collect(), total, next })
}
