//! Authors of the files of a head (the present files of a project), for the conflict rule `priority`. That rule
//! compares the agent whose work is merged with the author of the version in the head.

use std::collections::{BTreeSet, HashMap};

use tokio::runtime::Handle;
use workspace_catalog::Catalog;
use workspace_merge::Author;
use workspace_state::{Difference, DifferenceKind, Tree, diff};

use super::error::Result;
use crate::policy::{AgentPolicy, Policy};

/// Lookup of the authors of the files of a head. Its methods block.
pub(super) struct HeadAuthors {
    runtime: Handle,
    catalog: Catalog,
    /// Id of the project.
    project: String,
    /// Authors of the paths that earlier completions (finished work of agents) of the same transaction changed. The
    /// catalog does not have them yet.
    newer: HashMap<Vec<u8>, String>,
}

impl HeadAuthors {
    /// Creates a lookup without newer authors. The caller must be in the Tokio runtime that the catalog uses.
    pub(super) fn new(catalog: &Catalog, project: &str) -> Self {
        let (catalog, project) = (catalog.clone(), project.to_owned());
        Self { runtime: Handle::current(), catalog, project, newer: HashMap::new() }
    }

    /// Records the changes of a completion that was merged into the head.
    pub(super) fn add(&mut self, agent: &str, differences: &[Difference]) {
        for path in paths_of(differences) {
            self.newer.insert(path, agent.to_owned());
        }
    }

    /// Returns the authors of our entries at the paths that both sides changed, with the priorities that the policy
    /// gives them there. Their time is 0, so they count as earlier than the author of a completion.
    pub(super) fn of_conflicts(
        &self,
        (base, ours, theirs): (&Tree, &Tree, &Tree),
        policy: &Policy,
    ) -> Result<HashMap<Vec<u8>, Author>> {
        let their_paths: BTreeSet<Vec<u8>> = paths_of(&diff(base, theirs)?).collect();
        let (mut authors, mut policies) = (HashMap::new(), HashMap::<String, AgentPolicy>::new());
        for path in paths_of(&diff(base, ours)?).filter(|path| their_paths.contains(path)) {
            let Some((path, name)) = self.author(path)? else { continue };
            let agent = policies.entry(name).or_insert_with_key(|name| policy.for_agent(name));
            let priority = agent.conflict_settings(&path).priority;
            authors.insert(path, Author { priority, ..Author::default() });
        }
        Ok(authors)
    }

    /// Returns the author of the newest version of the file that has a path, or was the last one to have it, and the
    /// present path of that file. Returns `None` if the path has no history.
    fn author(&self, path: Vec<u8>) -> Result<Option<(Vec<u8>, String)>> {
        if let Some(name) = self.newer.get(&path) {
            return Ok(Some((path, name.clone())));
        }
        let versions = self.catalog.file_versions();
        let found = self.runtime.block_on(versions.of_path(&self.project, &path, None, 1))?;
        Ok(found.into_iter().next().map(|found| (found.version.path, found.version.author)))
    }
}

/// Iterates over the paths of differences, including the former paths of renamed entries.
fn paths_of(differences: &[Difference]) -> impl Iterator<Item = Vec<u8>> {
    differences.iter().flat_map(|difference| {
        let from = match &difference.kind {
            DifferenceKind::Renamed { from } => Some(from.clone()),
            _ => None,
        };
        [difference.path.clone()].into_iter().chain(from)
    })
}
