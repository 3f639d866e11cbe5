//! Random histories of agents, policies, completions, reviews, imports and rollbacks against a plain model: the files
//! of each head, of each agent's view, and of the history.
//!
//! Contents are hashes, so that no file looks like another one renamed, and every concurrent change is a conflict.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use workspace_catalog::{Completion, CompletionState, ReviewFilter, ReviewState};
use workspace_context::Access;
use workspace_context::projects::{ProjectError, Resolution, ResolveRequest};
use workspace_state::{Tree, VirtualTree};
use workspace_test_support::{Random, is_full_run};

use crate::crash_check::{check_project, check_store};
use crate::fixture::{Fixture, Workspace, files_of, person};

type Files = BTreeMap<String, String>;

const AGENTS: [&str; 3] = ["ann", "bob", "cid"];
const DIRECTORIES: u64 = 3;
const FILES: u64 = 4;
const WORKSPACES_MAX: usize = 5;
const LEVELS: [Access; 5] = Access::ALL;

/// Policy: access by agent and directory, by agent and file, and files in whose conflicts the agent wins.
#[derive(Debug, Clone, Default)]
struct Rules {
    directories: BTreeMap<(usize, String), Access>,
    files: BTreeMap<(usize, String), Access>,
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

    fn access(&self, agent: usize, path: &str) -> Access {
        let directory = path.split('/').next().unwrap_or_default().to_owned();
        let of_file = self.files.get(&(agent, path.to_owned()));
        of_file.or_else(|| self.directories.get(&(agent, directory))).copied().unwrap_or_default()
    }

    fn is_add_only_somewhere(&self, agent: usize) -> bool {
        let all = self.directories.iter().chain(&self.files);
        all.into_iter().any(|((of, _), access)| *of == agent && *access == Access::ReadAdd)
    }

    fn shown(&self, agent: usize, files: &Files) -> Files {
        let is_shown = |path: &String| self.access(agent, path).can_read();
        files.clone().into_iter().filter(|(path, _)| is_shown(path)).collect()
    }

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

fn level(random: &mut Random) -> Access {
    LEVELS[random.below(5) as usize]
}

fn any_path(random: &mut Random) -> String {
    format!("d{}/f{}", random.below(DIRECTORIES), random.below(FILES))
}

fn noise(random: &mut Random) -> String {
    blake3::hash(&random.next().to_le_bytes()).to_hex().to_string()
}

/// Workspace of an agent, with its files and those of its last completion.
struct ModelWorkspace {
    agent: usize,
    base: Files,
    files: Files,
    real: Workspace,
}

/// Completion that waits, with its expected outcome once it has landed.
struct Queued {
    completion: Completion,
    agent: usize,
    base: Files,
    theirs: Files,
}

/// Conflict that waits for a decision.
#[derive(Debug)]
struct Waiting {
    completion: String,
    path: String,
    theirs: Option<String>,
    /// Sequence at which the review was opened.
    sequence: usize,
}

/// Expected outcome of a completion.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    state: CompletionState,
    sequence: Option<i64>,
    refused: BTreeSet<String>,
    renamed: BTreeMap<String, String>,
}

struct History {
    random: Random,
    fixture: Fixture,
    rules: Rules,
    /// Files by sequence.
    heads: Vec<Files>,
    workspaces: Vec<ModelWorkspace>,
    queued: Vec<Queued>,
    waiting: Vec<Waiting>,
    made: u64,
}

impl History {
    async fn new(seed: u64) -> Self {
        let mut random = Random::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut first = Files::new();
        for directory in 0..DIRECTORIES {
            // Every directory has a file that stays, so that directories are no part of the model.
            first.insert(format!("d{directory}/keep"), noise(&mut random));
        }
        for _ in 0..6 {
            first.insert(any_path(&mut random), noise(&mut random));
        }
        let files: Vec<(&str, &str)> =
            first.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let fixture = Fixture::new(&files).await;
        let (workspaces, queued, waiting) = (Vec::new(), Vec::new(), Vec::new());
        let heads = vec![Files::new(), first];
        Self { random, fixture, rules: Rules::default(), heads, workspaces, queued, waiting, made: 0 }
    }

    fn head(&self) -> &Files {
        self.heads.last().expect("a project has a head")
    }

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
        self.made += 1;
        let real = self.fixture.workspace(AGENTS[agent], &format!("w{}", self.made)).await;
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
        if self.random.one_in(3) && workspace.files.remove(&path).is_some() {
            workspace.real.files.remove(&path).unwrap();
        } else {
            let text = noise(&mut self.random);
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
        let completion = self.fixture.complete(&mut workspace.real).await;
        let (agent, theirs) = (workspace.agent, workspace.files.clone());
        let base = std::mem::replace(&mut workspace.base, theirs.clone());
        self.queued.push(Queued { completion, agent, base, theirs });
        self.workspaces.push(workspace);
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
        // A workspace whose addition got another name has it under the old one: the head may look as if it had been
        // renamed then, which the model does not know.
        let rules = &self.rules;
        self.workspaces.retain(|workspace| !rules.is_add_only_somewhere(workspace.agent));
    }

    fn land_in_model(&mut self, queued: &Queued) -> Outcome {
        let Queued { completion, agent, base, theirs } = queued;
        let (head, rules) = (self.head().clone(), &self.rules);
        let ours = rules.shown(*agent, &head);
        let (allowed, refused, renamed) = check(rules, *agent, base, theirs, &ours);
        let (mut next, mut conflicts) = (head.clone(), Vec::new());
        let paths: BTreeSet<&String> = base.keys().chain(allowed.keys()).collect();
        for path in paths {
            let [old, our, their] = [base, &ours, &allowed].map(|files| files.get(path));
            if their == old || their == our {
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
        let (sequence, completion) = (self.heads.len() - 1, &completion.completion.id);
        let state = match (conflicts.is_empty(), refused.is_empty() || has_landed) {
            (false, _) => CompletionState::InReview,
            (true, false) => CompletionState::Refused,
            (true, true) => CompletionState::Landed,
        };
        self.waiting.extend(conflicts.into_iter().map(|(path, theirs)| Waiting {
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
                false => next.insert(path, noise(&mut self.random)),
            };
        }
        let files: Vec<(&str, &str)> =
            next.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let content = self.fixture.snapshot(&files).id;
        let (projects, project) = (&self.fixture.projects, &self.fixture.project);
        let done = projects.import(project, content, &person(), "import", None, None).await.unwrap();
        self.changed(next, done.map(|done| done.sequence)).await;
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
        self.changed(next, done.map(|done| done.sequence)).await;
    }

    /// Records the expected files after a change, which is no operation if they are the same as before.
    async fn changed(&mut self, next: Files, sequence: Option<i64>) {
        if next != *self.head() {
            self.heads.push(next);
            assert_eq!(sequence, Some(self.heads.len() as i64 - 1));
        } else {
            assert_eq!(sequence, None);
        }
        self.fixture.refresh().await;
        self.check_head().await;
    }

    async fn resolve(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let index = self.random.below(self.waiting.len() as u64) as usize;
        let Waiting { completion, path, theirs, sequence } = self.waiting.swap_remove(index);
        let (resolution, text) = match self.random.below(4) {
            0 => (Resolution::Ours, self.head().get(&path).cloned()),
            1 => (Resolution::Theirs, theirs.clone()),
            2 => (Resolution::Delete, None),
            _ => {
                let text = noise(&mut self.random);
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
            self.waiting.push(Waiting { completion, path, theirs, sequence });
            return;
        }
        let mut next = self.head().clone();
        match text {
            Some(text) => next.insert(path, text),
            None => next.remove(&path),
        };
        let done = done.unwrap();
        self.changed(next, done.operation.map(|operation| operation.sequence)).await;
        let found = self.fixture.catalog.completions().find(&self.fixture.project.id, &completion).await;
        let is_landed = found.unwrap().unwrap().state == CompletionState::Landed;
        assert_eq!(is_landed, self.waiting.iter().all(|waiting| waiting.completion != completion));
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

/// Returns the files of an agent without the changes that the rules refuse, the refused paths, and additions that got
/// another name.
fn check(
    rules: &Rules,
    agent: usize,
    base: &Files,
    theirs: &Files,
    ours: &Files,
) -> (Files, BTreeSet<String>, BTreeMap<String, String>) {
    let (mut allowed, mut refused, mut renamed) = (theirs.clone(), BTreeSet::new(), BTreeMap::new());
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
        if !is_allowed {
            put_back(&mut allowed, base, path);
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

fn put_back(files: &mut Files, base: &Files, path: &str) {
    match base.get(path) {
        Some(text) => files.insert(path.to_owned(), text.clone()),
        None => files.remove(path),
    };
}

/// Reads the files of a workspace.
fn read(tree: &VirtualTree) -> Files {
    files_of(&tree.clone().preview().unwrap())
}

#[tokio::test]
async fn random_histories_are_those_of_a_plain_model() {
    let (first, histories) = match std::env::var("WORKSPACE_TEST_SEED") {
        Ok(seed) => (seed.parse().unwrap(), 1),
        Err(_) if is_full_run() => (Random::new().next(), 300),
        Err(_) => (Random::new().next(), 8),
    };
    for seed in (0..histories).map(|number| first.wrapping_add(number)) {
        println!("WORKSPACE_TEST_SEED={seed}");
        let mut history = History::new(seed).await;
        for _ in 0..60 {
            history.step().await;
        }
        history.land().await;
        history.check_views().await;
        history.check_history().await;
    }
}
