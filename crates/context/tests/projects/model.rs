//! Random histories of a project, compared with a plain model: maps of paths to contents. A history has workspaces of
//! agents, completions (finished work that is merged into the project), policies, reviews (decisions about conflicts),
//! imports and rollbacks. Compared are each head (the files of the project after a change), the view of each agent (the
//! files that it may read), and the outcome of each completion.
//!
//! Contents are hashes, so that no file looks like another one renamed and edited, and every concurrent change of a file
//! is a conflict. In every second history, agents rename files, too. There, each completion is merged at once, and one is
//! left out if a rename in it or in the head meets another change than that of the content of the same file: what becomes
//! of those is tested one by one elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use workspace_catalog::{Completion, CompletionState, ReviewFilter, ReviewState};
use workspace_context::Access;
use workspace_context::projects::{ProjectError, Resolution, ResolveRequest};
use workspace_state::{Tree, VirtualTree};
use workspace_test_support::{Random, is_full_run};

use crate::crash_check::{check_project, check_store};
use crate::database::DatabaseKind;
use crate::fixture::{ANY_SEQUENCE, Fixture, NOT_FROM_GIT, Workspace, files_of, person};

/// Contents of files by path.
type Files = BTreeMap<String, String>;

const AGENTS: [&str; 3] = ["ann", "bob", "cid"];
const DIRECTORIES: u64 = 3;
/// Number of names of files in each directory.
const FILES: u64 = 4;
const WORKSPACES_MAX: usize = 5;
const LEVELS: [Access; 5] = Access::ALL;

/// Policy: access by agent (an index of [`AGENTS`]) and directory, and by agent and file; and the files at which the
/// agent's version wins in a conflict.
#[derive(Debug, Clone, Default)]
struct Rules {
    /// Access by agent and directory.
    directories: BTreeMap<(usize, String), Access>,
    /// Access by agent and file.
    files: BTreeMap<(usize, String), Access>,
    /// Files at which the agent's version wins.
    agent_wins: BTreeSet<String>,
}

impl Rules {
    fn random(random: &mut Random) -> Self {
        let mut rules = Self::default();
        for agent in 0..AGENTS.len() {
            for directory in 0..DIRECTORIES {
                if random.one_in(2) {
                    rules.directories.insert((agent, format!("d{directory}")), level(random));
                }
            }
            if random.one_in(2) {
                rules.files.insert((agent, any_path(random)), level(random));
            }
        }
        if random.one_in(2) {
            rules.agent_wins.insert(any_path(random));
        }
        rules
    }

    /// Returns the access of an agent (an index of [`AGENTS`]) to a file.
    fn access(&self, agent: usize, path: &str) -> Access {
        let directory = path.split('/').next().unwrap_or_default().to_owned();
        let of_file = self.files.get(&(agent, path.to_owned()));
        of_file.or_else(|| self.directories.get(&(agent, directory))).copied().unwrap_or_default()
    }

    /// Returns true if the agent may only read and add at some path.
    fn is_add_only_somewhere(&self, agent: usize) -> bool {
        let all = self.directories.iter().chain(&self.files);
        all.into_iter().any(|((of, _), access)| *of == agent && *access == Access::ReadAdd)
    }

    /// Returns the view of an agent: the files that it may read.
    fn shown(&self, agent: usize, files: &Files) -> Files {
        let is_shown = |path: &String| self.access(agent, path).can_read();
        files.clone().into_iter().filter(|(path, _)| is_shown(path)).collect()
    }

    /// Returns the policy as JSON.
    fn document(&self) -> Value {
        let directories = self.directories.iter().map(|((agent, directory), access)| {
            json!({"agent": AGENTS[*agent], "path": format!("{directory}/**"), "access": access.name()})
        });
        let files = self.files.iter().map(
            |((agent, path), access)| json!({"agent": AGENTS[*agent], "path": path, "access": access.name()}),
        );
        let wins = self.agent_wins.iter().map(|path| json!({"path": path, "onConflict": "theirs"}));
        json!({ "rules": directories.chain(files).chain(wins).collect::<Vec<_>>() })
    }
}

/// Returns a random level of access.
fn level(random: &mut Random) -> Access {
    LEVELS[random.below(5) as usize]
}

/// Returns a random path of a file.
fn any_path(random: &mut Random) -> String {
    format!("d{}/f{}", random.below(DIRECTORIES), random.below(FILES))
}

/// Returns a random content.
fn random_content(random: &mut Random) -> String {
    blake3::hash(&random.next().to_le_bytes()).to_hex().to_string()
}

/// Workspace of an agent in the model, with the real one.
struct ModelWorkspace {
    /// Index of [`AGENTS`].
    agent: usize,
    /// Files of the last completion, or else those that the workspace was made from.
    base: Files,
    /// Present files.
    files: Files,
    /// Workspace in the real project.
    real: Workspace,
}

/// Queued completion, with the files from which the model computes its outcome.
struct Queued {
    completion: Completion,
    /// Index of [`AGENTS`].
    agent: usize,
    base: Files,
    theirs: Files,
}

/// Review: a conflict that waits for a decision.
#[derive(Debug)]
struct OpenReview {
    /// Id of the completion.
    completion: String,
    path: String,
    /// Content in the workspace; `None` if the agent removed the file.
    theirs: Option<String>,
    /// Sequence at which the review was opened.
    sequence: usize,
}

/// Expected outcome of a completion.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    state: CompletionState,
    /// Sequence of the new head (number of changes of the project); `None` if the head does not change.
    sequence: Option<i64>,
    /// Paths of the refused changes.
    refused: BTreeSet<String>,
    /// New paths, by old path, of the additions that got another name.
    renamed: BTreeMap<String, String>,
}

/// Project and its model.
struct History {
    random: Random,
    fixture: Fixture,
    rules: Rules,
    /// Files by sequence.
    heads: Vec<Files>,
    workspaces: Vec<ModelWorkspace>,
    queued: Vec<Queued>,
    open_reviews: Vec<OpenReview>,
    /// Number of workspaces so far.
    workspaces_made: u64,
    /// True if agents rename files.
    has_renames: bool,
    /// Number of completions with a rename that were merged, and of those in which one side renamed a file that the
    /// other had changed.
    renames_merged: (u64, u64),
}

impl History {
    async fn new(database: DatabaseKind, seed: u64) -> Self {
        let mut random = Random::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut first = Files::new();
        for directory in 0..DIRECTORIES {
            // Every directory has a file that stays, so that directories are no part of the model.
            first.insert(format!("d{directory}/keep"), random_content(&mut random));
        }
        for _ in 0..6 {
            first.insert(any_path(&mut random), random_content(&mut random));
        }
        let files: Vec<(&str, &str)> =
            first.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let fixture = Fixture::new(database, &files).await;
        Self {
            random,
            fixture,
            rules: Rules::default(),
            heads: vec![Files::new(), first],
            workspaces: Vec::new(),
            queued: Vec::new(),
            open_reviews: Vec::new(),
            workspaces_made: 0,
            has_renames: seed % 2 == 1,
            renames_merged: (0, 0),
        }
    }

    fn head(&self) -> &Files {
        self.heads.last().expect("a project has a head")
    }

    /// Performs a random operation.
    async fn step(&mut self) {
        match self.random.below(20) {
            0..=3 => self.open_workspace().await,
            4..=9 => self.edit(),
            10..=12 => self.complete().await,
            13..=14 => self.land().await,
            15 => self.set_policy().await,
            16 => self.import().await,
            17 => self.roll_back().await,
            18 => self.resolve().await,
            _ => self.check_views().await,
        }
    }

    async fn open_workspace(&mut self) {
        if self.workspaces.len() >= WORKSPACES_MAX {
            return;
        }
        let agent = self.random.below(AGENTS.len() as u64) as usize;
        self.workspaces_made += 1;
        let real = self.fixture.workspace(AGENTS[agent], &format!("w{}", self.workspaces_made)).await;
        let files = self.rules.shown(agent, self.head());
        assert_eq!(read(&real.files), files, "the view of {}", AGENTS[agent]);
        self.workspaces.push(ModelWorkspace { agent, base: files.clone(), files, real });
    }

    fn edit(&mut self) {
        if self.workspaces.is_empty() {
            return;
        }
        let index = self.random.below(self.workspaces.len() as u64) as usize;
        let workspace = &mut self.workspaces[index];
        let path = any_path(&mut self.random);
        let to = any_path(&mut self.random);
        let is_unchanged =
            workspace.files.contains_key(&path) && workspace.files.get(&path) == workspace.base.get(&path);
        let is_free = [&workspace.files, &workspace.base].iter().all(|files| !files.contains_key(&to));
        if self.has_renames && is_unchanged && is_free && self.random.one_in(2) {
            workspace.real.files.rename(&path, &to).unwrap();
            let text = workspace.files.remove(&path).expect("the file exists");
            workspace.files.insert(to, text);
        } else if self.random.one_in(3) && workspace.files.remove(&path).is_some() {
            workspace.real.files.remove(&path).unwrap();
        } else {
            let text = random_content(&mut self.random);
            workspace.real.files.write(&path, text.as_str()).unwrap();
            workspace.files.insert(path, text);
        }
    }

    async fn complete(&mut self) {
        if self.workspaces.is_empty() {
            return;
        }
        let index = self.random.below(self.workspaces.len() as u64) as usize;
        let mut workspace = self.workspaces.remove(index);
        if self.has_renames {
            self.land().await;
            let ours = self.rules.shown(workspace.agent, self.head());
            if is_entangled(&self.rules, workspace.agent, [&workspace.base, &ours, &workspace.files]) {
                return;
            }
        }
        let completion = self.fixture.complete(&mut workspace.real).await;
        let (agent, theirs) = (workspace.agent, workspace.files.clone());
        let base = std::mem::replace(&mut workspace.base, theirs.clone());
        self.queued.push(Queued { completion, agent, base, theirs });
        self.workspaces.push(workspace);
        if self.has_renames {
            self.land().await;
        }
    }

    async fn land(&mut self) {
        let queued = std::mem::take(&mut self.queued);
        let outcomes: Vec<Outcome> = queued.iter().map(|queued| self.land_in_model(queued)).collect();
        self.fixture.land().await;
        self.check_head().await;
        for (queued, outcome) in queued.iter().zip(outcomes) {
            let found = self.fixture.state(&queued.completion).await;
            let report = self.fixture.report(&queued.completion).await;
            // Directories are no part of the model.
            let refused = report.refused.into_iter().map(|refused| refused.path);
            let refused = refused.filter(|path| path.contains('/')).collect();
            let renamed = report.renamed.into_iter().map(|renamed| (renamed.from, renamed.to)).collect();
            let found = Outcome { state: found.state, sequence: found.sequence, refused, renamed };
            assert_eq!(found, outcome, "{:?} under {:?}", queued.completion.completion.agent, self.rules);
        }
        // If an addition got another name in the head, the workspace still has its old name. A later merge may take
        // that for a rename, which the model does not know.
        let rules = &self.rules;
        self.workspaces.retain(|workspace| !rules.is_add_only_somewhere(workspace.agent));
    }

    /// Merges a completion in the model, and returns the expected outcome.
    fn land_in_model(&mut self, queued: &Queued) -> Outcome {
        let Queued { completion, agent, base, theirs } = queued;
        let (head, rules) = (self.head().clone(), &self.rules);
        let ours = rules.shown(*agent, &head);
        let (allowed, refused, renamed) = check(rules, *agent, base, theirs, &ours);
        let (mut next, mut conflicts) = (head.clone(), Vec::new());
        let [of_ours, of_theirs] = [&ours, &allowed].map(|files| renames(base, files));
        let mut met = 0;
        let paths: BTreeSet<&String> = base.keys().chain(allowed.keys()).collect();
        for path in paths {
            let [old, our, their] = [base, &ours, &allowed].map(|files| files.get(path));
            if their == old || their == our {
                continue;
            }
            // A change follows the file to its new path, whoever renamed it.
            if let (Some(to), Some(text)) = (of_ours.get(path), their) {
                next.insert(to.clone(), text.clone());
                met += 1;
                continue;
            }
            if let (Some(to), Some(text)) = (of_theirs.get(path), our.filter(|_| our != old)) {
                let text = text.clone();
                next.remove(path);
                next.insert(to.clone(), text);
                met += 1;
                continue;
            }
            let is_target_of_change =
                of_theirs.iter().any(|(from, to)| to == path && ours.get(from) != base.get(from));
            if is_target_of_change {
                continue;
            }
            if our != old && !rules.agent_wins.contains(path) {
                conflicts.push((path.clone(), their.cloned()));
                continue;
            }
            match their {
                Some(text) => next.insert(path.clone(), text.clone()),
                None => next.remove(path),
            };
        }
        let has_landed = next != head;
        if has_landed {
            self.heads.push(next);
        }
        self.renames_merged.0 += u64::from(!of_theirs.is_empty());
        self.renames_merged.1 += met;
        let (sequence, completion) = (self.heads.len() - 1, &completion.completion.id);
        let state = match (conflicts.is_empty(), refused.is_empty() || has_landed) {
            (false, _) => CompletionState::InReview,
            (true, false) => CompletionState::Refused,
            (true, true) => CompletionState::Landed,
        };
        self.open_reviews.extend(conflicts.into_iter().map(|(path, theirs)| OpenReview {
            completion: completion.clone(),
            path,
            theirs,
            sequence,
        }));
        Outcome { state, sequence: has_landed.then_some(sequence as i64), refused, renamed }
    }

    async fn set_policy(&mut self) {
        self.rules = Rules::random(&mut self.random);
        self.fixture.set_policy(self.rules.document()).await;
    }

    async fn import(&mut self) {
        let mut next = self.head().clone();
        for _ in 0..self.random.below(4) {
            let path = any_path(&mut self.random);
            match self.random.one_in(3) {
                true => next.remove(&path),
                false => next.insert(path, random_content(&mut self.random)),
            };
        }
        let files: Vec<(&str, &str)> =
            next.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let content = self.fixture.snapshot(&files).id;
        let (projects, project) = (&self.fixture.projects, &self.fixture.project);
        let done =
            projects.import(project, content, &person(), "import", ANY_SEQUENCE, NOT_FROM_GIT).await.unwrap();
        self.record_change(next, done.map(|done| done.sequence)).await;
    }

    async fn roll_back(&mut self) {
        let to = 1 + self.random.below(self.heads.len() as u64 - 1) as usize;
        let former = self.heads[to].clone();
        let path = match self.random.below(3) {
            0 => None,
            1 => Some(format!("d{}", self.random.below(DIRECTORIES))),
            _ => Some(any_path(&mut self.random)),
        };
        let is_in = |found: &str| {
            path.as_deref().is_none_or(|path| found == path || found.starts_with(&format!("{path}/")))
        };
        let mut next = self.head().clone();
        next.retain(|path, _| !is_in(path));
        next.extend(former.into_iter().filter(|(path, _)| is_in(path)));
        let path = path.clone().map(String::into_bytes);
        let (projects, project) = (&self.fixture.projects, &self.fixture.project);
        let done = projects.rollback(project, to as i64, path, &person(), "rollback").await.unwrap();
        self.record_change(next, done.map(|done| done.sequence)).await;
    }

    /// Records the expected files after a change, and checks its sequence: `None` if the files are the same as before.
    async fn record_change(&mut self, next: Files, sequence: Option<i64>) {
        if next != *self.head() {
            self.heads.push(next);
            assert_eq!(sequence, Some(self.heads.len() as i64 - 1));
        } else {
            assert_eq!(sequence, None);
        }
        self.fixture.refresh().await;
        self.check_head().await;
    }

    /// Decides a random review in a random way.
    async fn resolve(&mut self) {
        if self.open_reviews.is_empty() {
            return;
        }
        let index = self.random.below(self.open_reviews.len() as u64) as usize;
        let OpenReview { completion, path, theirs, sequence } = self.open_reviews.swap_remove(index);
        let (resolution, text) = match self.random.below(4) {
            0 => (Resolution::Ours, self.head().get(&path).cloned()),
            1 => (Resolution::Theirs, theirs.clone()),
            2 => (Resolution::Delete, None),
            _ => {
                let text = random_content(&mut self.random);
                (Resolution::Content(text.clone().into_bytes()), Some(text))
            }
        };
        let is_outdated =
            resolution != Resolution::Ours && self.head().get(&path) != self.heads[sequence].get(&path);
        let filter = ReviewFilter {
            completion: Some(completion.clone()),
            path: Some(path.clone().into_bytes()),
            limit: 10,
            ..ReviewFilter::default()
        };
        let reviews = self.fixture.catalog.reviews();
        let found = reviews.list(&self.fixture.project.id, &filter).await.unwrap();
        assert_eq!((found.len(), found[0].state), (1, ReviewState::Open), "{path}");
        let request = ResolveRequest { resolution, expect: None, message: "decided".to_owned() };
        let (projects, project) = (&self.fixture.projects, &self.fixture.project);
        let done = projects.resolve_review(project, &found[0].opened.id, &person(), request).await;
        if is_outdated {
            assert!(matches!(done, Err(ProjectError::ReviewOutdated { .. })), "{done:?}");
            self.open_reviews.push(OpenReview { completion, path, theirs, sequence });
            return;
        }
        let mut next = self.head().clone();
        match text {
            Some(text) => next.insert(path, text),
            None => next.remove(&path),
        };
        let done = done.unwrap();
        self.record_change(next, done.operation.map(|operation| operation.sequence)).await;
        let found = self.fixture.catalog.completions().find(&self.fixture.project.id, &completion).await;
        let is_landed = found.unwrap().unwrap().state == CompletionState::Landed;
        assert_eq!(is_landed, self.open_reviews.iter().all(|review| review.completion != completion));
    }

    async fn check_head(&self) {
        assert_eq!(self.fixture.project.sequence, self.heads.len() as i64 - 1);
        assert_eq!(&self.fixture.files().await, self.head());
    }

    async fn check_views(&self) {
        for (agent, name) in AGENTS.iter().enumerate() {
            let base = self.fixture.projects.workspace_base(&self.fixture.project, name).await.unwrap();
            let files = read(&self.fixture.store.restore(&base.snapshot).unwrap());
            assert_eq!(files, self.rules.shown(agent, self.head()), "the view of {name}");
        }
    }

    async fn check_history(&self) {
        let (projects, project) = (&self.fixture.projects, &self.fixture.project);
        for (sequence, files) in self.heads.iter().enumerate().skip(1) {
            let head = projects.head(project, Some(sequence as i64)).await.unwrap().unwrap();
            assert_eq!(&files_of(&Tree::of_snapshot(&self.fixture.store, &head).unwrap()), files);
        }
        let server = self.fixture.server();
        check_project(&server, &project.id).await;
        check_store(&server);
    }
}

/// Checks the changes of an agent between `base` and `theirs`. Returns its files without the refused changes, the
/// refused paths, and the new paths of additions that got another name because `ours`, its view of the head, has the
/// name.
fn check(
    rules: &Rules,
    agent: usize,
    base: &Files,
    theirs: &Files,
    ours: &Files,
) -> (Files, BTreeSet<String>, BTreeMap<String, String>) {
    let (mut allowed, mut refused, mut renamed) = (theirs.clone(), BTreeSet::new(), BTreeMap::new());
    let moved = renames(base, theirs);
    let paths: BTreeSet<&String> = base.keys().chain(theirs.keys()).collect();
    for path in paths {
        let (old, new, access) = (base.get(path), theirs.get(path), rules.access(agent, path));
        let is_allowed = match (old, new) {
            (None, Some(_)) => access.can_add(),
            (Some(_), None) => access.can_delete(),
            (Some(old), Some(new)) => old == new || access.can_change(),
            (None, None) => true,
        };
        let is_taken = is_allowed
            && old.is_none()
            && access == Access::ReadAdd
            && ours.get(path).is_some_and(|text| Some(text) != new);
        // A file whose new name is refused keeps its old one.
        let is_refused_rename = moved.get(path).is_some_and(|to| !rules.access(agent, to).can_add());
        if !is_allowed || is_refused_rename {
            revert(&mut allowed, base, path);
            refused.insert(path.clone());
        } else if is_taken {
            let is_free = |to: &String| [theirs, base, ours].iter().all(|files| !files.contains_key(to));
            let to = (2..).map(|number| format!("{path}~{number}")).find(is_free).expect("a free name");
            let text = allowed.remove(path).expect("an addition");
            if rules.access(agent, &to).can_add() {
                allowed.insert(to.clone(), text);
                renamed.insert(path.clone(), to);
            } else {
                refused.insert(path.clone());
            }
        }
    }
    (allowed, refused, renamed)
}

/// Returns the new paths, by old path, of the files that were renamed between `base` and `files`.
fn renames(base: &Files, files: &Files) -> BTreeMap<String, String> {
    let removed = base.iter().filter(|(path, _)| !files.contains_key(*path));
    let renamed = removed.filter_map(|(from, text)| {
        let mut added = files.iter().filter(|(path, found)| !base.contains_key(*path) && *found == text);
        added.next().map(|(to, _)| (from.clone(), to.clone()))
    });
    renamed.collect()
}

/// Returns true if a rename in a completion, or in the view of the head, meets another change than that of the content of
/// the same file; or if it is not clear what was renamed, because two files are equal.
fn is_entangled(rules: &Rules, agent: usize, [base, ours, theirs]: [&Files; 3]) -> bool {
    let sides = [(theirs, ours), (ours, theirs)];
    let all: Vec<BTreeMap<String, String>> = sides.iter().map(|(files, _)| renames(base, files)).collect();
    if all.iter().all(BTreeMap::is_empty) {
        return false;
    }
    let is_unique = |text: &String| {
        [base, ours, theirs].iter().all(|files| files.values().filter(|found| *found == text).count() <= 1)
    };
    let is_clear = |(from, to): (&String, &String), other: &Files| {
        // The other side still has the file, with any content, and nothing in its new place.
        let stays = other.contains_key(from) && !other.contains_key(to);
        let has_changed = other.get(from) != base.get(from);
        let is_renamed_whole =
            rules.access(agent, to) != Access::ReadAdd && base.get(from).is_some_and(is_unique);
        // Otherwise the change is refused at the new path, or the rename in part.
        let is_allowed = [from, to].iter().all(|path| rules.access(agent, path) == Access::Full);
        stays && is_renamed_whole && (!has_changed || is_allowed)
    };
    sides.iter().zip(&all).any(|((_, other), renames)| !renames.iter().all(|rename| is_clear(rename, other)))
}

/// Reverts the change at a path.
fn revert(files: &mut Files, base: &Files, path: &str) {
    match base.get(path) {
        Some(text) => files.insert(path.to_owned(), text.clone()),
        None => files.remove(path),
    };
}

/// Reads the files of a workspace.
fn read(tree: &VirtualTree) -> Files {
    files_of(&tree.clone().preview().unwrap())
}

pub(crate) async fn random_histories_are_those_of_a_plain_model(database: DatabaseKind) {
    let (first, histories) = match std::env::var("WORKSPACE_TEST_SEED") {
        Ok(seed) => (seed.parse().unwrap(), 1),
        Err(_) if is_full_run() => (Random::new().next(), 300),
        Err(_) => (Random::new().next(), 8),
    };
    let mut renames_merged = (0, 0);
    for seed in (0..histories).map(|number| first.wrapping_add(number)) {
        println!("WORKSPACE_TEST_SEED={seed}");
        let mut history = History::new(database, seed).await;
        for _ in 0..60 {
            history.step().await;
        }
        history.land().await;
        history.check_views().await;
        history.check_history().await;
        renames_merged.0 += history.renames_merged.0;
        renames_merged.1 += history.renames_merged.1;
    }
    println!("{renames_merged:?} renames were merged, and met changes");
    assert!(histories < 300 || renames_merged.0 > 10, "{renames_merged:?}");
}
