//! `workspace episode`

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use workspace_state::{Durability, Episode, EpisodeId, EpisodeLink, Store, Tree, insight};

use crate::args::{EpisodeAdd, EpisodeCommand, EpisodePath, EpisodeRm, EpisodeRoot, EpisodeUpdate};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::fields::EpisodeFields;
use crate::output::Output;
use crate::{names, text};

pub(crate) fn run(context: &mut Context, command: EpisodeCommand) -> Result<Outcome> {
    let store = context.store()?;
    let output = &mut context.output;
    match command {
        EpisodeCommand::Add(args) => add(&store, output, args),
        EpisodeCommand::Update(args) => update(&store, output, args),
        EpisodeCommand::Best(args) => best(&store, output, &args),
        EpisodeCommand::Path(args) => path(&store, output, &args),
        EpisodeCommand::Tree(args) => tree(&store, output, &args),
        EpisodeCommand::Export(args) => export(&store, output, &args),
        EpisodeCommand::Rm(args) => rm(&store, output, &args),
    }?;
    Ok(Outcome::Done)
}

fn add(store: &Store, output: &mut Output, args: EpisodeAdd) -> Result<()> {
    let snapshot = names::snapshot(store, &args.snapshot)?;
    let parent = args.parent.map(|text| names::episode(store, &text)).transpose()?;
    let mut episode =
        Episode::new(snapshot.id, parent.as_ref().map(|parent| parent.id), args.action, args.reward);
    episode.visits = args.visits;
    episode.data = args.data.unwrap_or_default();
    // The insight diff has line counts, sizes and risk notes of the changes (docs/insight.md).
    if let (true, Some(parent)) = (args.insight, &parent) {
        let from = Tree::of_snapshot(store, &store.snapshot(&parent.snapshot)?)?;
        let diff = insight(&from, &Tree::of_snapshot(store, &snapshot)?)?;
        let json = serde_json::to_value(diff);
        episode.insight = Some(json.map_err(|error| CommandError::failed(error.to_string()))?);
    }
    store.put_episode(&episode, Durability::Synced)?;
    if output.is_json() { output.record(&EpisodeFields::new(&episode)) } else { output.line(episode.id) }
}

fn update(store: &Store, output: &mut Output, args: EpisodeUpdate) -> Result<()> {
    let old = names::episode(store, &args.episode)?;
    let episode = Episode {
        action: args.action.unwrap_or(old.action),
        reward: args.reward.unwrap_or(old.reward),
        visits: args.visits.unwrap_or(old.visits),
        data: args.data.unwrap_or(old.data),
        ..old
    };
    store.put_episode(&episode, Durability::Synced)?;
    print(output, &episode, 0)
}

fn best(store: &Store, output: &mut Output, args: &EpisodeRoot) -> Result<()> {
    let root = root(store, args)?;
    // Only leaves are compared: episodes without children.
    let best = store.best_episode(root.as_ref())?.ok_or_else(|| {
        CommandError::failed("there are no episodes in this store").hint("`workspace episode add` adds one")
    })?;
    print(output, &best, 0)
}

fn path(store: &Store, output: &mut Output, args: &EpisodePath) -> Result<()> {
    let episode = names::episode(store, &args.episode)?;
    store.episode_path(&episode.id)?.iter().try_for_each(|step| print(output, step, 0))
}

fn tree(store: &Store, output: &mut Output, args: &EpisodeRoot) -> Result<()> {
    let root = root(store, args)?;
    let episodes = store.episode_subtree(root.as_ref())?;
    let mut depths: HashMap<EpisodeId, usize> = HashMap::new();
    for episode in depth_first(episodes) {
        let parent_depth = episode.parent.and_then(|parent| depths.get(&parent));
        let depth = parent_depth.map_or(0, |depth| depth + 1);
        depths.insert(episode.id, depth);
        print(output, &episode, depth)?;
    }
    Ok(())
}

/// Sorts episodes so that each is followed by its descendants. Siblings keep their order; the store returns them oldest
/// first. An episode whose parent is not in the list counts as a root.
fn depth_first(episodes: Vec<Episode>) -> Vec<Episode> {
    let known: HashSet<EpisodeId> = episodes.iter().map(|episode| episode.id).collect();
    let mut children: HashMap<Option<EpisodeId>, Vec<Episode>> = HashMap::new();
    for episode in episodes {
        let parent = episode.parent.filter(|parent| known.contains(parent));
        children.entry(parent).or_default().push(episode);
    }
    let mut ordered = Vec::with_capacity(known.len());
    let mut stack = children.remove(&None).unwrap_or_default();
    stack.reverse();
    while let Some(episode) = stack.pop() {
        stack.extend(children.remove(&Some(episode.id)).unwrap_or_default().into_iter().rev());
        ordered.push(episode);
    }
    ordered
}

fn export(store: &Store, output: &mut Output, args: &EpisodeRoot) -> Result<()> {
    let root = root(store, args)?;
    let episodes = store.episode_subtree(root.as_ref())?;
    episodes.iter().try_for_each(|episode| output.record(&EpisodeFields::new(episode)))
}

/// The removed episodes, for `--json`.
#[derive(Serialize)]
struct RemovedFields {
    episodes: Vec<EpisodeId>,
}

fn rm(store: &Store, output: &mut Output, args: &EpisodeRm) -> Result<()> {
    // Each episode to remove with its parent: the named episodes and all their descendants. All names are resolved
    // before any episode is removed, and a descendant of several named episodes is listed once.
    let mut links = BTreeMap::new();
    for text in &args.episodes {
        links.extend(store.episode_links(&names::episode(store, text)?.id)?);
    }
    let links: Vec<EpisodeLink> = links.into_iter().collect();
    store.remove_episode_links(&links)?;
    let episodes = links.into_iter().map(|(id, _)| id).collect();
    if output.is_json() { output.record(&RemovedFields { episodes }) } else { Ok(()) }
}

/// Returns the episode that the command line names; `None` for all searches of the store.
fn root(store: &Store, args: &EpisodeRoot) -> Result<Option<EpisodeId>> {
    args.root.as_ref().map(|text| Ok(names::episode(store, text)?.id)).transpose()
}

/// Prints an episode, in text indented by its depth.
fn print(output: &mut Output, episode: &Episode, depth: usize) -> Result<()> {
    if output.is_json() {
        return output.record(&EpisodeFields::new(episode));
    }
    let indent = "  ".repeat(depth);
    let visits = text::pluralize(episode.visits, "visit", "visits");
    let action = text::first_line(&episode.action);
    output.line(format_args!(
        "{indent}{}  reward {}  {visits}  snapshot {}  {action}",
        episode.id, episode.reward, episode.snapshot
    ))
}
