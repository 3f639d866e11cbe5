//! Killed servers: everything acknowledged is in the history exactly once, and catalog and store agree.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use workspace_catalog::{Completion, CompletionState, Operator, Project, ReviewFilter};
use workspace_context::projects::{
    ChangeAuthor, Daemon, DirectCompletion, ProjectError, ProjectSettings, RebaseInput, RebasedFiles,
    Resolution, ResolveRequest,
};
use workspace_state::{NewSnapshot, SnapshotId, Tree, VirtualTree};
use workspace_test_support::child::{ChildOutput, ChildProcess, say, text};
use workspace_test_support::{Random, is_full_run};

use crate::crash_check::{
    check_acknowledged, check_no_leftovers, check_project, check_repetitions, check_store, completions,
};
use crate::fixture::Fixture;
use crate::server::{Server, of_client};
use crate::servers::is_on_postgres;

/// Time that a client waits for a completion; longer than any round.
const WAIT: Duration = Duration::from_secs(60);
/// Number of rounds of each client of a child that a failpoint should kill.
const ROUNDS: &str = "12";
/// A short run on PostgreSQL tests one failpoint of so many.
const POSTGRES_FAILPOINTS_SHARE: u64 = 4;
/// Number of files of an import whose versions are staged.
const LARGE: usize = 2_100;

/// Failpoints of the sources, with the number of visits that a child surely makes.
const FAILPOINTS: &[&str] = &[
    "advance-before-commit",
    "advance-committed",
    "advance-inserted",
    "advance-moved",
    "advance-recorded",
    "completion-inserted",
    "completion-protected",
    "completion-queued",
    "deletion-batch",
    "deletion-before-commit",
    "deletion-committed",
    "deletion-unprotected",
    "direct-committed",
    "head-advanced",
    "head-committed",
    "merge-advanced",
    "merge-cleaned",
    "merge-committed",
    "merge-synced",
    "rebase-merged",
    "rebase-synced",
    "reference-removed",
    "reference-set",
    "versions-staged",
    "view-committed",
    "view-protected",
];

#[test]
fn every_failpoint_of_the_sources_is_tested() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut open) = (BTreeSet::new(), vec![crates.join("src"), crates.join("../catalog/src")]);
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        for part in fs::read_to_string(&path).unwrap().split("failpoint::hit(\"").skip(1) {
            found.insert(part.split('"').next().unwrap().to_owned());
        }
    }
    let listed: BTreeSet<String> = FAILPOINTS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found, listed, "the list of failpoints and the sources differ");
}

/// Role: a server and its clients, who complete, import, roll back, resolve and delete until killed, or for a number
/// of rounds.
pub(crate) fn work(arguments: &[&str]) {
    let [home, url, project, tag, rounds] = arguments else {
        panic!("directory, catalog, project, tag, rounds")
    };
    let rounds = rounds.parse().unwrap();
    runtime().block_on(async {
        let server = Server::with_catalog(Path::new(home), url).await;
        let daemon = Daemon::new(server.projects.clone(), format!("server-{tag}"));
        let client = Client { server, project: (*project).to_owned(), tag: (*tag).to_owned(), rounds };
        let daemon = tokio::spawn(daemon.run());
        say("ready");
        let mut clients = JoinSet::new();
        clients.spawn(client.clone().complete("reader"));
        clients.spawn(client.clone().complete_directly("blind"));
        clients.spawn(client.clone().change_head());
        clients.spawn(client.clone().resolve_conflicts());
        clients.spawn(client.clone().rebase("blind"));
        clients.spawn(client.delete_projects());
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
        daemon.abort();
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Client of a server that is going to be killed. It reports what was acknowledged.
#[derive(Clone)]
struct Client {
    server: Server,
    project: String,
    tag: String,
    rounds: u64,
}

impl Client {
    fn person(&self) -> ChangeAuthor {
        ChangeAuthor { name: "alice".to_owned(), operator: Operator::Person }
    }

    /// Reports a completion, and its end.
    async fn follow(&self, queued: Completion) -> Completion {
        say(&format!("queued {}", queued.completion.id));
        let ended = self.server.projects.wait_for(queued, WAIT).await.unwrap();
        assert_ne!(ended.state, CompletionState::Queued);
        say(&format!("landed {} {}", ended.completion.id, ended.sequence.unwrap_or_default()));
        ended
    }

    /// Completes workspaces, each with a new file and one more visit.
    async fn complete(self, agent: &'static str) {
        for round in 0..self.rounds {
            let project = self.server.project(&self.project).await;
            let id = format!("{}-{agent}-{round}", self.tag);
            let base = self.server.projects.workspace_base(&project, agent).await.unwrap();
            let mut files = self.server.store.restore(&base.snapshot).unwrap();
            add_work(&mut files, &id);
            let queued = self.server.complete(&project, agent, &id, &base, &mut files).await;
            self.follow(queued).await;
        }
    }

    /// Completes files that were changed elsewhere.
    async fn complete_directly(self, agent: &'static str) {
        for round in 0..self.rounds {
            let project = self.server.project(&self.project).await;
            let id = format!("{}-{agent}-{round}", self.tag);
            let base = self.server.projects.workspace_base(&project, agent).await.unwrap();
            let mut files = self.server.store.restore(&base.snapshot).unwrap();
            assert!(!files.exists("secret").unwrap());
            add_work(&mut files, &id);
            let content = files.commit(of_client()).unwrap().id;
            let (agent, message) = (agent.to_owned(), id.clone());
            let new = DirectCompletion { id: Some(id), agent, owner: None, base, content, message };
            let queued = self.server.projects.complete_directly(&project, new).await.unwrap();
            self.follow(queued).await;
        }
    }

    /// Imports a new version of a file, and takes it back.
    async fn change_head(self) {
        for round in 0..self.rounds {
            let (project, message) = self.import_next(&format!("import-{}-{round}", self.tag)).await;
            let person = self.person();
            let path = Some(b"scratch.txt".to_vec());
            let message = message.replace("import", "rollback");
            let done =
                self.server.projects.rollback(&project, project.sequence, path, &person, &message).await;
            match done {
                Ok(Some(done)) => say(&format!("changed rollback {} {message}", done.sequence)),
                // Others change the head at the same time.
                Err(ProjectError::Contended { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Imports the head with another `scratch.txt`. Returns the project before the change.
    async fn import_next(&self, message: &str) -> (Project, String) {
        let server = &self.server;
        loop {
            let project = server.project(&self.project).await;
            let head = server.projects.head(&project, None).await.unwrap().unwrap();
            let mut files = server.store.restore(&head.id).unwrap();
            files.write("scratch.txt", message).unwrap();
            let content = files.commit(of_client()).unwrap().id;
            let expected = Some(project.sequence);
            let person = self.person();
            let done = server.projects.import(&project, content, &person, message, expected, None).await;
            match done {
                Ok(Some(done)) => {
                    say(&format!("changed import {} {message}", done.sequence));
                    return (project, message.to_owned());
                }
                Err(ProjectError::Moved { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Rebases the work of an agent onto the newest head, as the server of its sandbox does, and forgets it.
    async fn rebase(self, agent: &'static str) {
        for round in 0..self.rounds {
            let (server, id) = (&self.server, format!("{}-rebase-{round}", self.tag));
            let project = server.project(&self.project).await;
            let base = server.projects.workspace_base(&project, agent).await.unwrap();
            let mut files = server.store.restore(&base.snapshot).unwrap();
            files.write(format!("rebased/{id}"), id.as_str()).unwrap();
            let theirs = files.commit(of_client()).unwrap().id;
            let project = server.project(&self.project).await;
            let target = server.projects.rebase_target(&project, agent).await.unwrap();
            let new = NewSnapshot { pending: true, ..NewSnapshot::with_message(id) };
            let input = RebaseInput { from: base.snapshot, theirs, new };
            let rebased = server.projects.rebase(&target, input).await.unwrap();
            let RebasedFiles::Merged { snapshot, .. } = rebased else { panic!("{rebased:?}") };
            server.store.remove_snapshots(&[snapshot.id]).unwrap();
        }
    }

    /// Makes two agents change one file, and decides the review.
    async fn resolve_conflicts(self) {
        for round in 0..self.rounds {
            let server = &self.server;
            let project = server.project(&self.project).await;
            let base = server.projects.workspace_base(&project, "reader").await.unwrap();
            let mut conflicting = Vec::new();
            for agent in ["left", "right"] {
                let id = format!("{}-{agent}-{round}", self.tag);
                let mut files = server.store.restore(&base.snapshot).unwrap();
                add_work(&mut files, &id);
                files.write("fight.txt", id.as_str()).unwrap();
                let queued = server.complete(&project, agent, &id, &base, &mut files).await;
                conflicting.push(self.follow(queued).await);
            }
            assert_eq!(conflicting[1].state, CompletionState::InReview);
            let completion = Some(conflicting[1].completion.id.clone());
            let filter = ReviewFilter { completion, limit: 10, ..ReviewFilter::default() };
            let reviews = server.catalog.reviews().list(&project.id, &filter).await.unwrap();
            assert_eq!(reviews.len(), 1);
            let id = &reviews[0].opened.id;
            let decided = format!("decided {id}").into_bytes();
            let resolution = if round % 3 == 2 { Resolution::Ours } else { Resolution::Content(decided) };
            let request = ResolveRequest { resolution, expect: None, message: format!("resolve-{id}") };
            match server.projects.resolve_review(&project, id, &self.person(), request).await {
                Ok(done) => {
                    let sequence = done.operation.map_or(0, |operation| operation.sequence);
                    say(&format!("resolved {id} {sequence}"));
                }
                // Another server changed the file.
                Err(ProjectError::ReviewOutdated { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Creates projects and deletes them.
    async fn delete_projects(self) {
        for round in 0..self.rounds {
            let server = &self.server;
            let name = format!("temporary-{}-{round}", self.tag);
            let project =
                server.projects.create("alice", &name, ProjectSettings::default(), None).await.unwrap();
            say(&format!("created {}", project.id));
            let content = self.temporary_content(round);
            let person = self.person();
            let done = server.projects.import(&project, content, &person, &name, None, None).await.unwrap();
            let project = server.project(&project.id).await;
            assert_eq!(done.unwrap().sequence, project.sequence);
            let base = server.projects.workspace_base(&project, "reader").await.unwrap();
            let mut files = server.store.restore(&base.snapshot).unwrap();
            files.write("more.txt", name.as_str()).unwrap();
            let queued = server.complete(&project, "reader", &name, &base, &mut files).await;
            server.projects.wait_for(queued, WAIT).await.unwrap();
            server.projects.delete(&project).await.unwrap();
            say(&format!("deleted {}", project.id));
        }
    }

    /// Commits the first files of a project: now and then so many that their versions are staged.
    fn temporary_content(&self, round: u64) -> SnapshotId {
        let mut files = self.server.store.empty_tree().unwrap();
        files.write("file.txt", format!("{} {round}", self.tag)).unwrap();
        let is_large = self.tag.contains("versions-staged") || round % 40 == 39;
        for number in 0..if is_large { LARGE } else { 0 } {
            files.write(format!("{}/{number}", number % 20), format!("{number}")).unwrap();
        }
        files.commit(of_client()).unwrap().id
    }
}

/// Adds what every completion adds: a file of its own, and a visit to the counter.
fn add_work(files: &mut VirtualTree, id: &str) {
    let counter: Value = serde_json::from_slice(&files.read("count.crdt.json").unwrap()).unwrap();
    let visits = counter["visits"].as_i64().unwrap() + 1;
    files.write("count.crdt.json", json!({ "visits": visits }).to_string()).unwrap();
    files.write(format!("done/{id}"), id).unwrap();
}

/// Deployment whose servers are killed.
pub(crate) struct Deployment {
    pub(crate) fixture: Fixture,
    starts: u64,
}

impl Deployment {
    pub(crate) async fn new() -> Self {
        let counter = r#"{"visits":0}"#;
        let files = [
            ("count.crdt.json", counter),
            ("scratch.txt", "first"),
            ("fight.txt", "first"),
            ("secret/key", "key"),
        ];
        let mut fixture = Fixture::new(&files).await;
        fixture
            .set_policy(json!({"rules": [
                {"path": "**/*.crdt.json", "strategy": "crdt", "schema": {"visits": "counter"}},
                {"agent": "blind", "path": "secret/**", "access": "none"},
            ]}))
            .await;
        Self { fixture, starts: 0 }
    }

    pub(crate) fn start(&mut self, name: &str, rounds: &str, failpoint: Option<&str>) -> ChildProcess {
        self.starts += 1;
        let tag = format!("{}-{name}", self.starts);
        let home = text(self.fixture.path());
        let arguments = [home, &self.fixture.url, &self.fixture.project.id, &tag, rounds];
        match failpoint {
            Some(failpoint) => ChildProcess::start_failing("work", &arguments, failpoint),
            None => ChildProcess::start("work", &arguments),
        }
    }

    /// Starts the next server, lets it land what is queued, and checks everything. Returns the number of things that
    /// were acknowledged.
    pub(crate) async fn check(&mut self, ended: &ChildOutput) -> usize {
        self.starts += 1;
        let server = Server::with_catalog(self.fixture.path(), &self.fixture.url).await;
        server.end_leases().await;
        let name = format!("{}-proof", self.starts);
        let daemon = tokio::spawn(Daemon::new(server.projects.clone(), format!("server-{name}")).run());
        // The daemon has repaired everything before it merges.
        let project = server.project(&self.fixture.project.id).await;
        let base = server.projects.workspace_base(&project, "reader").await.unwrap();
        let mut files = server.store.restore(&base.snapshot).unwrap();
        add_work(&mut files, &name);
        let queued = server.complete(&project, "reader", &name, &base, &mut files).await;
        let landed = server.projects.wait_for(queued, WAIT).await.unwrap();
        assert_eq!(landed.state, CompletionState::Landed, "{landed:?}");
        while !server.catalog.completions().projects_with_queued(None, 1).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        // The reference is the last step of a landing.
        let reference = |sequence: i64| {
            server.store.reference(&format!("projects/{}/{sequence:012}", project.id)).unwrap()
        };
        while reference(server.project(&project.id).await.sequence).is_none() {
            tokio::task::yield_now().await;
        }
        // The daemon ends interrupted deletions while it merges.
        while !server.catalog.projects().unfinished_deletions().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        daemon.abort();
        drop(daemon.await);
        server.end_leases().await;

        check_project(&server, &project.id).await;
        check_counter(&server, &project.id).await;
        let acknowledged = check_acknowledged(&server, &project.id, &ended.lines).await;
        check_repetitions(&server, &project.id).await;
        check_no_leftovers(&server).await;
        acknowledged
    }
}

/// Checks that every landed completion added one visit and its own file.
async fn check_counter(server: &Server, project: &str) {
    let project = server.project(project).await;
    let head = server.projects.head(&project, None).await.unwrap().unwrap();
    let tree = Tree::of_snapshot(&server.store, &head).unwrap();
    let files = crate::fixture::files_of(&tree);
    let counter: Value = serde_json::from_str(&files["count.crdt.json"]).unwrap();
    let completions = completions(server, &project.id).await;
    assert_eq!(counter["visits"], completions.len(), "{files:?}");
    for Completion { completion, .. } in &completions {
        assert_eq!(files.get(&format!("done/{}", completion.id)), Some(&completion.id));
    }
    assert_eq!(files["secret/key"], "key");
}

/// Returns all failpoints; on PostgreSQL, whose servers start slowly, a random part of them unless the run is a full one.
fn selected_failpoints(random: &mut Random) -> Vec<&'static str> {
    let is_short = is_on_postgres() && !is_full_run();
    FAILPOINTS.iter().copied().filter(|_| !is_short || random.one_in(POSTGRES_FAILPOINTS_SHARE)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_failpoint_everything_acknowledged_is_there_once() {
    let mut deployment = Deployment::new().await;
    let mut random = Random::new();
    for failpoint in selected_failpoints(&mut random) {
        let visits = if is_full_run() { 1..8 } else { 1..2 };
        for visit in visits {
            // Not always the first visit; each is reached in every round, but for staged versions.
            let visit = if visit == 1 { 1 + random.below(3) } else { visit };
            let plan = format!("{failpoint}=kill@{visit}");
            let ended = deployment.start(failpoint, ROUNDS, Some(&plan)).finish();
            assert!(ended.was_killed(), "{plan} was not reached: {}", ended.stderr);
            println!("{plan}");
            deployment.check(&ended).await;
        }
    }
    check_store(&deployment.fixture.server());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_everything_acknowledged_is_there_once() {
    let (mut random, mut acknowledged) = (Random::new(), 0);
    let kills = match (is_full_run(), is_on_postgres()) {
        (true, _) => 500,
        (false, false) => 20,
        (false, true) => 5,
    };
    // Requests to PostgreSQL take longer.
    let longest = if is_on_postgres() { 2_000_000 } else { 250_000 };
    let mut deployment = Deployment::new().await;
    for round in 1..=kills {
        let mut child = deployment.start("random", "1000000", None);
        if !random.one_in(8) {
            assert!(child.next_line().is_some());
        }
        std::thread::sleep(Duration::from_micros(random.below(longest)));
        child.kill();
        let ended = child.finish();
        ended.assert_killed();
        acknowledged += deployment.check(&ended).await;
        if round % 25 == 0 || round == kills {
            // Checks take longer the longer the history is.
            check_store(&deployment.fixture.server());
            deployment = Deployment::new().await;
        }
    }
    assert!(acknowledged > kills, "{acknowledged} acknowledgements in {kills} rounds prove nothing");
}
