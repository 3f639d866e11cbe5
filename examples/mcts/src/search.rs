//! The search: expands the most promising state, and now and then another.

use std::collections::HashMap;
use std::error::Error;

use workspace_state::{EpisodeId, Snapshot, TreeId};

use crate::lab::Lab;

/// Exploration constant of UCT: larger values explore more, smaller ones follow the best states.
const EXPLORE: f64 = 0.7;
const DEPTH: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// State of the search: a snapshot with its statistics.
pub(crate) struct State {
    snapshot: Snapshot,
    pub(crate) reward: f64,
    action: String,
    parent: Option<usize>,
    pub(crate) episode: EpisodeId,
    depth: usize,
    visits: u32,
    total: f64,
    untried: Vec<usize>,
    children: Vec<usize>,
}

/// Pseudo-random numbers, the same for the same seed, here and in Python.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }
}

pub(crate) struct Search<'a> {
    lab: &'a Lab,
    edits: Vec<(String, String)>,
    chance: Chance,
    states: Vec<State>,
    by_tree: HashMap<TreeId, usize>,
    /// Number of times that a known tree was reached by another path.
    pub(crate) transpositions: usize,
}

impl<'a> Search<'a> {
    pub(crate) async fn new(lab: &'a Lab, seed: u64) -> Result<Self> {
        let (states, by_tree) = (Vec::new(), HashMap::new());
        let (edits, chance) = (Lab::edits()?, Chance(seed));
        let mut search = Self { lab, edits, chance, states, by_tree, transpositions: 0 };
        let start = lab.start()?;
        let (reward, _) = lab.tested(start.id, "true").await?;
        search.add(start, reward, "start", None)?;
        Ok(search)
    }

    fn add(&mut self, snapshot: Snapshot, reward: f64, action: &str, parent: Option<usize>) -> Result<usize> {
        let before = parent.map(|parent| &self.states[parent]);
        let episode = self.lab.keep(&snapshot, before.map(|state| state.episode), action, reward)?;
        let number = self.states.len();
        let depth = before.map_or(0, |state| state.depth + 1);
        self.by_tree.insert(snapshot.tree, number);
        if let Some(parent) = parent {
            self.states[parent].children.push(number);
        }
        self.states.push(State {
            snapshot,
            reward,
            action: action.to_owned(),
            parent,
            episode,
            depth,
            visits: 0,
            total: 0.0,
            untried: (0..self.edits.len()).collect(),
            children: Vec::new(),
        });
        Ok(number)
    }

    /// Returns the UCT score of a state, from the view of its parent.
    fn worth(&self, number: usize) -> f64 {
        let state = &self.states[number];
        let around = state.parent.map_or(1, |parent| self.states[parent].visits);
        if state.visits == 0 {
            return f64::INFINITY;
        }
        let visits = f64::from(state.visits);
        state.total / visits + EXPLORE * (f64::from(around).ln() / visits).sqrt()
    }

    /// Selects the most promising state, tries an edit there, and updates the rewards of all its ancestors.
    pub(crate) async fn step(&mut self) -> Result<()> {
        let mut at = 0;
        while self.states[at].untried.is_empty() && !self.states[at].children.is_empty() {
            // The first of equal ones, as in Python.
            let children = self.states[at].children.iter().rev().copied();
            at = children.max_by(|a, b| self.worth(*a).total_cmp(&self.worth(*b))).unwrap_or(at);
        }
        if !self.states[at].untried.is_empty() && self.states[at].depth < DEPTH {
            at = self.expand(at).await?;
        }
        let (reward, mut up) = (self.states[at].reward, Some(at));
        while let Some(at) = up {
            self.states[at].visits += 1;
            self.states[at].total += reward;
            up = self.states[at].parent;
        }
        Ok(())
    }

    async fn expand(&mut self, at: usize) -> Result<usize> {
        let place = self.chance.below(self.states[at].untried.len());
        let chosen = self.states[at].untried.remove(place);
        let (name, edit) = self.edits[chosen].clone();
        let before = self.states[at].snapshot.clone();
        let (reward, snapshot) = self.lab.tested(before.id, &edit).await?;
        match self.by_tree.get(&snapshot.tree) {
            Some(known) if *known == at => return Ok(at),
            Some(known) => {
                self.transpositions += 1;
                println!("  {at} + {name}: the tree of {known} again, by another way");
                return Ok(*known);
            }
            None => {}
        }
        let reward = (reward - self.lab.risk(&before, &snapshot)?).max(0.0);
        let new = self.add(snapshot, reward, &name, Some(at))?;
        self.states[new].untried.retain(|edit| *edit != chosen);
        println!("  {at} + {name} -> {new}: {reward:.2}");
        Ok(new)
    }

    /// Returns the best state; among equals the one with the shorter path.
    pub(crate) fn best(&self) -> &State {
        let shorter = |a: &&State, b: &&State| a.reward.total_cmp(&b.reward).then(b.depth.cmp(&a.depth));
        self.states.iter().max_by(shorter).unwrap_or_else(|| unreachable!("there is always a start"))
    }

    pub(crate) fn print_tree(&self) {
        self.print_below(0, "");
    }

    fn print_below(&self, number: usize, indent: &str) {
        let state = &self.states[number];
        let mark = if std::ptr::eq(state, self.best()) { "*" } else { " " };
        let State { action, reward, visits, .. } = state;
        println!("{indent}{mark}{number} {action}: {reward:.2}, {visits} visits");
        for child in &state.children {
            self.print_below(*child, &format!("{indent}  "));
        }
    }
}
