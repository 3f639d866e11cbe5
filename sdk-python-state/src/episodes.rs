//! The classes `Episode` and `Episodes`.

use std::sync::Arc;
use std::time::SystemTime;

use pyo3::prelude::*;
use serde_json::Value;
use workspace_state::{Episode as StateEpisode, EpisodeId, Store};

use crate::error::{Failure, Result};
use crate::handle::Handle;
use crate::snapshot::{DurabilityArgument, SnapshotArgument, system_time};

/// One step of a search: its action, the snapshot that it resulted in, and its reward.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct Episode(StateEpisode);

#[pymethods]
impl Episode {
    /// Id of the step.
    #[getter]
    fn id(&self) -> String {
        self.0.id.to_string()
    }

    /// Id of the snapshot that the step resulted in.
    #[getter]
    fn snapshot(&self) -> String {
        self.0.snapshot.to_string()
    }

    /// Id of the previous step; `None` for the first step of a search.
    #[getter]
    fn parent(&self) -> Option<String> {
        self.0.parent.map(|id| id.to_string())
    }

    /// Action, free text.
    #[getter]
    fn action(&self) -> &str {
        &self.0.action
    }

    /// Reward of the step.
    #[getter]
    fn reward(&self) -> f64 {
        self.0.reward
    }

    /// Number of visits, counted by the search.
    #[getter]
    fn visits(&self) -> u64 {
        self.0.visits
    }

    /// Time at which the step was recorded.
    #[getter]
    fn time(&self) -> SystemTime {
        system_time(self.0.time)
    }

    /// Data of the search that was stored with the step; `None` if there is none.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        parse_json(py, &self.0.data.to_string())
    }

    fn __repr__(&self) -> String {
        format!("Episode(id='{}', action={:?}, reward={})", self.0.id, self.0.action, self.0.reward)
    }
}

/// Steps of searches.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct Episodes(pub(crate) Arc<Handle>);

impl Episodes {
    /// Calls `work` with the store and the id of an episode that exists.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        episode: &str,
        work: impl FnOnce(&Store, &EpisodeId) -> Result<T> + Send,
    ) -> Result<T> {
        let id = parse(episode)?;
        self.0.detached(py, |store| {
            if store.episode_link(&id)?.is_none() {
                return Err(Failure::NoEpisode(id.to_string()));
            }
            work(store, &id)
        })
    }
}

#[pymethods]
impl Episodes {
    /// Records a step.
    #[pyo3(signature = (snapshot, action, reward, *, parent = None, visits = 1, data = None, durability = "buffered"))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn create(
        &self,
        py: Python<'_>,
        snapshot: SnapshotArgument,
        action: String,
        reward: f64,
        parent: Option<&str>,
        visits: u64,
        data: Option<&Bound<'_, PyAny>>,
        durability: &str,
    ) -> Result<Episode> {
        let parent = parent.map(parse).transpose()?;
        let data = data.map(to_json).transpose()?.unwrap_or_default();
        let durability: DurabilityArgument = durability.parse()?;
        let episode = self.0.detached(py, |store| {
            if let Some(parent) = parent
                && store.episode_link(&parent)?.is_none()
            {
                return Err(Failure::NoEpisode(parent.to_string()));
            }
            let new = StateEpisode::new(snapshot.resolve(store)?, parent, action, reward);
            let episode = StateEpisode { visits, data, ..new };
            store.put_episode(&episode, durability.0)?;
            Ok(episode)
        })?;
        Ok(Episode(episode))
    }

    /// Changes reward, visits or data of a step; `None` leaves them.
    #[pyo3(signature = (episode, *, reward = None, visits = None, data = None, durability = "buffered"))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn update(
        &self,
        py: Python<'_>,
        episode: &str,
        reward: Option<f64>,
        visits: Option<u64>,
        data: Option<&Bound<'_, PyAny>>,
        durability: &str,
    ) -> Result<Episode> {
        let data = data.map(to_json).transpose()?;
        let durability: DurabilityArgument = durability.parse()?;
        let updated = self.with(py, episode, |store, id| {
            let old = existing(store, id)?;
            let new = StateEpisode {
                reward: reward.unwrap_or(old.reward),
                visits: visits.unwrap_or(old.visits),
                data: data.unwrap_or(old.data),
                ..old
            };
            store.put_episode(&new, durability.0)?;
            Ok(new)
        })?;
        Ok(Episode(updated))
    }

    /// Returns a step.
    fn get(&self, py: Python<'_>, episode: &str) -> Result<Episode> {
        self.with(py, episode, existing).map(Episode)
    }

    /// Returns the first steps of all searches, oldest first.
    fn list(&self, py: Python<'_>) -> Result<Vec<Episode>> {
        let found = self.0.detached(py, |store| Ok(store.episode_children(None)?))?;
        Ok(found.into_iter().map(Episode).collect())
    }

    /// Returns the next steps, oldest first.
    fn children(&self, py: Python<'_>, episode: &str) -> Result<Vec<Episode>> {
        let found = self.with(py, episode, |store, id| Ok(store.episode_children(Some(id))?))?;
        Ok(found.into_iter().map(Episode).collect())
    }

    /// Returns the steps from the first one to this.
    fn path(&self, py: Python<'_>, episode: &str) -> Result<Vec<Episode>> {
        let found = self.with(py, episode, |store, id| Ok(store.episode_path(id)?))?;
        Ok(found.into_iter().map(Episode).collect())
    }

    /// Returns a step and all steps below it, parents before children.
    fn subtree(&self, py: Python<'_>, episode: &str) -> Result<Vec<Episode>> {
        let found = self.with(py, episode, |store, id| Ok(store.episode_subtree(Some(id))?))?;
        Ok(found.into_iter().map(Episode).collect())
    }

    /// Returns the last step with the highest reward below a step, or that step.
    fn best(&self, py: Python<'_>, episode: &str) -> Result<Episode> {
        let found = self.with(py, episode, |store, id| {
            store.best_episode(Some(id))?.ok_or_else(|| Failure::NoEpisode(id.to_string()))
        })?;
        Ok(Episode(found))
    }

    /// Deletes a step and those below it.
    fn delete(&self, py: Python<'_>, episode: &str) -> Result<()> {
        self.with(py, episode, |store, id| Ok(store.remove_episodes(id).map(drop)?))
    }
}

fn parse(episode: &str) -> Result<EpisodeId> {
    episode.parse().map_err(|_| Failure::NoEpisode(episode.to_owned()))
}

fn existing(store: &Store, id: &EpisodeId) -> Result<StateEpisode> {
    store.episode(id)?.ok_or_else(|| Failure::NoEpisode(id.to_string()))
}

pub(crate) fn parse_json<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (text,))
}

/// Converts an object as `json.dumps` does.
fn to_json(object: &Bound<'_, PyAny>) -> Result<Value> {
    let text: String = object.py().import("json")?.call_method1("dumps", (object,))?.extract()?;
    serde_json::from_str(&text).map_err(|error| Failure::Invalid(format!("the data is not JSON: {error}")))
}
