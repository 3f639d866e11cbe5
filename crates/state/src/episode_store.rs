//! Episodes of a store: adding, querying and removing them. An episode is one step of a search, with the step before it
//! as its parent; episodes without a parent are the starts of searches.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::codec::DecodeError;
use crate::commit_options::Durability;
use crate::episode::{Episode, EpisodeLink, EpisodeSummary, decode, parent_of};
use crate::error::{Result, StoreError};
use crate::id::EpisodeId;
use crate::index::episode_key;
use crate::log_record::Change;
use crate::store::Store;

impl Store {
    /// Adds an episode, or replaces the one with the same id (for example to count visits). Fails if the snapshot or
    /// the parent does not exist, or if the replaced episode has another parent.
    pub fn put_episode(&self, episode: &Episode, durability: Durability) -> Result<()> {
        if !episode.reward.is_finite() {
            return Err(StoreError::Refused(format!("reward {} is not a finite number", episode.reward)));
        }
        if self.find_snapshot(&episode.snapshot)?.is_none() {
            return Err(StoreError::UnknownSnapshot(episode.snapshot));
        }
        if let Some(parent) = episode.parent {
            self.existing_episode(&parent)?;
        }
        let record = serde_json::to_vec(episode)
            .map_err(|error| StoreError::Refused(format!("the episode cannot be written: {error}")))?;
        let change = Change::PutEpisode { id: episode.id, parent: episode.parent, record };
        self.commit_changes(vec![change], durability)
    }

    /// Returns the episode with this id; `None` if there is none.
    pub fn episode(&self, id: &EpisodeId) -> Result<Option<Episode>> {
        let txn = self.inner.index.read()?;
        let record = self.inner.index.episodes.get(&txn, id.as_bytes())?;
        record.map(decode).transpose().map_err(undecodable)
    }

    /// Returns those of `ids` that are not the id of an episode.
    pub fn missing_episodes(&self, ids: &[EpisodeId]) -> Result<Vec<EpisodeId>> {
        let txn = self.inner.index.read()?;
        let mut missing = Vec::new();
        for id in ids {
            if self.inner.index.episodes.get(&txn, id.as_bytes())?.is_none() {
                missing.push(*id);
            }
        }
        Ok(missing)
    }

    /// Returns the children of an episode, or the starts of all searches if `parent` is `None`; oldest first.
    pub fn episode_children(&self, parent: Option<&EpisodeId>) -> Result<Vec<Episode>> {
        let mut children = Vec::new();
        for id in self.episode_children_ids(parent)? {
            children.extend(self.episode(&id)?);
        }
        Ok(children)
    }

    /// Returns the ids of the children of an episode, or of the starts of all searches if `parent` is `None`; oldest
    /// first.
    pub fn episode_children_ids(&self, parent: Option<&EpisodeId>) -> Result<Vec<EpisodeId>> {
        self.cancel_flag().check()?;
        // A key is the id of the parent, or sixteen zero bytes, and the id of the child.
        let prefix = parent.map_or([0; 16], |parent| *parent.as_bytes());
        let txn = self.inner.index.read()?;
        let mut ids = Vec::new();
        for entry in self.inner.index.episode_children.prefix_iter(&txn, &prefix)? {
            let (key, _) = entry?;
            ids.extend(key[16..].try_into().ok().map(EpisodeId::from_bytes));
        }
        Ok(ids)
    }

    /// Returns the ids and parents of the episode and all its descendants, parents before children and siblings oldest
    /// first. Decodes only the record of the episode itself.
    pub fn episode_links(&self, root: &EpisodeId) -> Result<Vec<EpisodeLink>> {
        let mut links = vec![(*root, self.existing_episode(root)?.parent)];
        let mut index = 0;
        while let Some((id, _)) = links.get(index).copied() {
            links.extend(self.episode_children_ids(Some(&id))?.into_iter().map(|child| (child, Some(id))));
            index += 1;
        }
        Ok(links)
    }

    /// Returns summaries of the episode and all its descendants, parents before children.
    pub fn episode_summaries(&self, root: &EpisodeId) -> Result<Vec<EpisodeSummary>> {
        let mut summaries = Vec::new();
        for (id, _) in self.episode_links(root)? {
            self.cancel_flag().check()?;
            let txn = self.inner.index.read()?;
            if let Some(record) = self.inner.index.episodes.get(&txn, id.as_bytes())? {
                let summary = serde_json::from_slice(record);
                summaries.push(summary.map_err(|_| undecodable(DecodeError("not an episode")))?);
            }
        }
        Ok(summaries)
    }

    /// Returns the episodes with these ids in the same order, until their records exceed `bytes` together; at least
    /// one. Skips ids that do not exist.
    pub fn episodes_within(&self, ids: &[EpisodeId], bytes: usize) -> Result<Vec<Episode>> {
        let (mut episodes, mut total) = (Vec::new(), 0);
        for id in ids {
            if self.add_within(id, bytes, &mut total, &mut episodes)?.is_break() {
                break;
            }
        }
        Ok(episodes)
    }

    /// Returns the last `limit` steps of the path to this episode, inclusive, until their records exceed
    /// `bytes` together; at least one.
    pub fn episode_path_end(&self, id: &EpisodeId, limit: usize, bytes: usize) -> Result<Vec<Episode>> {
        let (mut path, mut total, mut next) = (Vec::new(), 0, Some(*id));
        while let Some(id) = next.filter(|_| path.len() < limit) {
            if self.add_within(&id, bytes, &mut total, &mut path)?.is_break() {
                break;
            }
            next = path.last().filter(|last| last.id == id).and_then(|last| last.parent);
        }
        path.reverse();
        Ok(path)
    }

    /// Appends an episode to `episodes` if it exists, and the size of its record to `total`. Returns `Break` if `total`
    /// exceeds `bytes` and `episodes` is not empty.
    fn add_within(
        &self,
        id: &EpisodeId,
        bytes: usize,
        total: &mut usize,
        episodes: &mut Vec<Episode>,
    ) -> Result<ControlFlow<()>> {
        self.cancel_flag().check()?;
        let txn = self.inner.index.read()?;
        let Some(record) = self.inner.index.episodes.get(&txn, id.as_bytes())? else {
            return Ok(ControlFlow::Continue(()));
        };
        *total += record.len();
        if *total > bytes && !episodes.is_empty() {
            return Ok(ControlFlow::Break(()));
        }
        episodes.push(decode(record).map_err(undecodable)?);
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the ids of an episode and of its parent, without decoding the rest of its record; `None` if there is no
    /// such episode.
    pub fn episode_link(&self, id: &EpisodeId) -> Result<Option<EpisodeLink>> {
        let txn = self.inner.index.read()?;
        let record = self.inner.index.episodes.get(&txn, id.as_bytes())?;
        let parent = record.map(parent_of).transpose().map_err(undecodable)?;
        Ok(parent.map(|parent| (*id, parent)))
    }

    /// Returns ids of an episode and its descendants, level by level: at most `limit` ids, and at most `depth` levels
    /// below the episode. The second result is true if there are more descendants. Empty if there is no such episode.
    pub fn episode_levels(
        &self,
        root: &EpisodeId,
        depth: u32,
        limit: usize,
    ) -> Result<(Vec<EpisodeId>, bool)> {
        if self.episode_link(root)?.is_none() {
            return Ok((Vec::new(), false));
        }
        let (mut ids, mut level_start) = (vec![*root], 0);
        for _ in 0..depth {
            let level: Vec<EpisodeId> = ids[level_start..].to_vec();
            if level.is_empty() {
                return Ok((ids, false));
            }
            level_start = ids.len();
            for id in level {
                for child in self.episode_children_ids(Some(&id))? {
                    if ids.len() >= limit {
                        return Ok((ids, true));
                    }
                    ids.push(child);
                }
            }
        }
        for id in &ids[level_start..] {
            if self.has_children(id)? {
                return Ok((ids, true));
            }
        }
        Ok((ids, false))
    }

    /// Returns true if `step` is an ancestor of the episode `id`, or that episode itself.
    pub fn episode_leads_to(&self, step: &EpisodeId, id: &EpisodeId) -> Result<bool> {
        let mut next = Some(*id);
        while let Some(id) = next {
            if id == *step {
                return Ok(true);
            }
            self.cancel_flag().check()?;
            let txn = self.inner.index.read()?;
            let record = self.inner.index.episodes.get(&txn, id.as_bytes())?;
            next = record.map(parent_of).transpose().map_err(undecodable)?.flatten();
        }
        Ok(false)
    }

    /// Returns all episodes of the store, parents before children.
    pub fn all_episodes(&self) -> Result<Vec<Episode>> {
        self.episode_subtree(None)
    }

    /// Returns the episode and all its descendants, parents before children; all episodes if `root` is `None`.
    pub fn episode_subtree(&self, root: Option<&EpisodeId>) -> Result<Vec<Episode>> {
        let mut queue: VecDeque<Episode> = match root {
            Some(root) => VecDeque::from([self.existing_episode(root)?]),
            None => self.episode_children(None)?.into(),
        };
        let mut all = Vec::new();
        while let Some(episode) = queue.pop_front() {
            queue.extend(self.episode_children(Some(&episode.id))?);
            all.push(episode);
        }
        Ok(all)
    }

    /// Returns the steps from the start of the search to this episode.
    pub fn episode_path(&self, id: &EpisodeId) -> Result<Vec<Episode>> {
        let mut path = vec![self.existing_episode(id)?];
        while let Some(parent) = path.last().and_then(|episode| episode.parent) {
            path.push(self.existing_episode(&parent)?);
        }
        path.reverse();
        Ok(path)
    }

    /// Returns the leaf (episode without children) with the highest reward among `root` and its descendants; among all
    /// episodes if `root` is `None`. Of equal rewards the one with more visits wins, then the newer id.
    pub fn best_episode(&self, root: Option<&EpisodeId>) -> Result<Option<Episode>> {
        let mut best: Option<Episode> = None;
        for episode in self.episode_subtree(root)? {
            let better = best.as_ref().is_none_or(|best| {
                let key = |episode: &Episode| (episode.visits, episode.id);
                episode.reward.total_cmp(&best.reward).then_with(|| key(&episode).cmp(&key(best))).is_gt()
            });
            if better && !self.has_children(&episode.id)? {
                best = Some(episode);
            }
        }
        Ok(best)
    }

    /// Removes an episode and all its descendants. Returns their number.
    pub fn remove_episodes(&self, root: &EpisodeId) -> Result<usize> {
        let links = self.episode_links(root)?;
        self.remove_episode_links(&links)?;
        Ok(links.len())
    }

    /// Removes these episodes in one commit. Fails if one of them has a child that is not among them, for instance
    /// because it was added since the links were read: this is checked when the changes are committed.
    pub fn remove_episode_links(&self, links: &[EpisodeLink]) -> Result<()> {
        let change = |&(id, parent): &EpisodeLink| Change::RemoveEpisode { id, parent };
        let changes: Vec<Change> = links.iter().map(change).collect();
        // On a full disk, removals use disk space that is reserved for them (`reserve.rs`).
        self.retry_with_disk_reserve(|| self.commit_changes(changes.clone(), Durability::Synced))
    }

    fn existing_episode(&self, id: &EpisodeId) -> Result<Episode> {
        self.episode(id)?.ok_or_else(|| StoreError::Refused(format!("episode `{id}` not found")))
    }

    fn has_children(&self, id: &EpisodeId) -> Result<bool> {
        let txn = self.inner.index.read()?;
        let key = episode_key(Some(id.as_bytes()), &[0; 16]);
        Ok(self.inner.index.episode_children.prefix_iter(&txn, &key[..16])?.next().is_some())
    }
}

fn undecodable(source: DecodeError) -> StoreError {
    StoreError::Undecodable { what: "an episode".to_owned(), source }
}
