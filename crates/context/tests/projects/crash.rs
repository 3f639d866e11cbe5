//! Tests that kill servers: all acknowledged work is in the history exactly once, and the catalog and the store agree.
//!
//! Completions are finished work of agents, which the merge daemon of a server merges into the head: the snapshot of
//! the present files of a project. The sequence of a head is the number of changes. A review is a conflict that waits
//! for a decision.
//!
//! `Server` opens a catalog and a store. The checks after a kill are in `crash_check.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use workspace_catalog::{Completion, CompletionState, Operator, Project, ProjectFilter, ReviewFilter};
use workspace_context::projects::{
    ChangeAuthor, Daemon, DirectCompletion, ProjectError, ProjectSettings, RebaseInput, RebasedFiles,
    Resolution, ResolveRequest, RevertInput,
};
use workspace_state::{NewSnapshot, SnapshotId, Tree, VirtualTree};
use workspace_test_support::child::{ChildOutput, ChildProcess, say, text};
use workspace_test_support::{Random, is_full_run};

use crate::crash_check::{
    check_acknowledged, check_no_leftovers, check_project, check_repetitions, check_store, completions,
};
use crate::database::DatabaseKind;
use crate::fixture::{ANY_SEQUENCE, Fixture, NO_LIMIT, NOT_FROM_GIT, PRESENT};
use crate::server::{Server, new_client_snapshot};

/// Maximum time that a client waits until a completion (finished work of an agent) is merged.
const WAIT: Duration = Duration::from_secs(60);
/// Number of rounds of each client, for a child that a failpoint should kill before they end.
const ROUNDS: &str = "12";
/// A short run on PostgreSQL tests each failpoint with the probability of 1 in this number.
const POSTGRES_FAILPOINTS_SHARE: u64 = 4;
/// Greater than the number of projects that killed servers leave behind: at most one each.
const PROJECTS_MAX: u32 = 1_000;
/// Number of files of a large import: so many that their versions are staged (inserted in batches, before the
/// transaction of the import).
const LARGE_IMPORT_FILES: usize = 2_100;

/// Failpoints (named points where a test can kill the process) in the sources of this crate and of the catalog.
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
    "revert-committed",
    "revert-synced",
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

/// Role of a child process: a server and its clients. They complete work, import, roll back, resolve reviews, rebase
/// and delete projects, for a number of rounds or until they are killed.
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
        clients.spawn(client.clone().complete_directly("restricted"));
        clients.spawn(client.clone().change_head());
        clients.spawn(client.clone().resolve_conflicts());
        clients.spawn(client.clone().rebase("restricted"));
        clients.spawn(client.clone().revert("guest"));
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

/// Clients of a server that is going to be killed. They print a line for each acknowledgement.
#[derive(Clone)]
struct Client {
    server: Server,
    /// Id of the project.
    project: String,
    /// Prefix of the ids of this server's clients.
    tag: String,
    /// Number of rounds of each client.
    rounds: u64,
}

impl Client {
    fn person(&self) -> ChangeAuthor {
        ChangeAuthor { name: "alice".to_owned(), operator: Operator::Person }
    }

    /// Prints that a completion was queued, waits until it is merged, and prints its sequence.
    async fn follow(&self, queued: Completion) -> Completion {
        say(&format!("queued {}", queued.completion.id));
        let ended = self.server.projects.wait_for(queued, WAIT).await.unwrap();
        assert_ne!(ended.state, CompletionState::Queued);
        say(&format!("landed {} {}", ended.completion.id, ended.sequence.unwrap_or_default()));
        ended
    }

    /// Completes workspaces. Each adds a file and increments the counter.
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

    /// Completes files that were changed outside of the server. The agent does not see the secret file.
    async fn complete_directly(self, agent: &'static str) {
        for round in 0..self.rounds {
            let project = self.server.project(&self.project).await;
            let id = format!("{}-{agent}-{round}", self.tag);
            let base = self.server.projects.workspace_base(&project, agent).await.unwrap();
            let mut files = self.server.store.restore(&base.snapshot).unwrap();
            assert!(!files.exists("secret").unwrap());
            add_work(&mut files, &id);
            let content = files.commit(new_client_snapshot()).unwrap().id;
            let (agent, message) = (agent.to_owned(), id.clone());
            let new = DirectCompletion { id: Some(id), agent, owner: None, base, content, message };
            let queued = self.server.projects.complete_directly(&project, new).await.unwrap();
            self.follow(queued).await;
        }
    }

    /// Imports a new version of a file, and rolls it back.
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
                // Other clients change the head at the same time.
                Err(ProjectError::Contended { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Imports the head with another `scratch.txt`. Returns the project before the change, and the message.
    async fn import_next(&self, message: &str) -> (Project, String) {
        let server = &self.server;
        loop {
            let project = server.project(&self.project).await;
            let head = server.projects.head(&project, PRESENT).await.unwrap().unwrap();
            let mut files = server.store.restore(&head.id).unwrap();
            files.write("scratch.txt", message).unwrap();
            let content = files.commit(new_client_snapshot()).unwrap().id;
            let expected = Some(project.sequence);
            let person = self.person();
            let done =
                server.projects.import(&project, content, &person, message, expected, NOT_FROM_GIT).await;
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

    /// Rebases the work of an agent onto the newest head, as the server of its sandbox does, and removes the result.
    async fn rebase(self, agent: &'static str) {
        for round in 0..self.rounds {
            let (server, id) = (&self.server, format!("{}-rebase-{round}", self.tag));
            let project = server.project(&self.project).await;
            let base = server.projects.workspace_base(&project, agent).await.unwrap();
            let mut files = server.store.restore(&base.snapshot).unwrap();
            files.write(format!("rebased/{id}"), id.as_str()).unwrap();
            let theirs = files.commit(new_client_snapshot()).unwrap().id;
            let project = server.project(&self.project).await;
            let target = server.projects.rebase_target(&project, agent).await.unwrap();
            let new = NewSnapshot { pending: true, ..NewSnapshot::with_message(id) };
            let input = RebaseInput { from: base.snapshot, theirs, new };
            let rebased = server.projects.rebase(&target, input).await.unwrap();
            let RebasedFiles::Merged { snapshot, .. } = rebased else { panic!("{rebased:?}") };
            server.store.remove_snapshots(&[snapshot.id]).unwrap();
        }
    }

    /// Completes work with a refused change, and reverts the change, as the server of the sandbox does. Removes the
    /// result.
    async fn revert(self, agent: &'static str) {
        for round in 0..self.rounds {
            let (server, id) = (&self.server, format!("{}-{agent}-{round}", self.tag));
            let project = server.project(&self.project).await;
            let base = server.projects.workspace_base(&project, agent).await.unwrap();
            let mut files = server.store.restore(&base.snapshot).unwrap();
            add_work(&mut files, &id);
            files.write("scratch.txt", "refused").unwrap();
            let queued = server.complete(&project, agent, &id, &base, &mut files).await;
            let ended = self.follow(queued).await;
            let round_id = ended.completion.round_id.unwrap();
            let refused =
                server.projects.refused_changes(&project.id, &round_id, base.snapshot).await.unwrap();
            let theirs = ended.completion.theirs_snapshot.parse().unwrap();
            let new = NewSnapshot { pending: true, ..NewSnapshot::with_message(id.clone()) };
            let input = RevertInput { workspace: id, base: base.snapshot, theirs, new };
            let made = server.projects.revert(&refused.unwrap(), input).await.unwrap().unwrap();
            assert_eq!(made.reverted, ["scratch.txt"]);
            server.store.remove_snapshots(&[made.snapshot.id, made.base]).unwrap();
        }
    }

    /// Makes two agents change one file, and decides the review of the conflict.
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
                files.write("conflict.txt", id.as_str()).unwrap();
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
                server.projects.create("alice", &name, ProjectSettings::default(), NO_LIMIT).await.unwrap();
            say(&format!("created {}", project.id));
            let content = self.temporary_content(round);
            let person = self.person();
            let done = server
                .projects
                .import(&project, content, &person, &name, ANY_SEQUENCE, NOT_FROM_GIT)
                .await
                .unwrap();
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

    /// Commits the first files of a project. Some rounds have so many files that their versions are staged.
    fn temporary_content(&self, round: u64) -> SnapshotId {
        let mut files = self.server.store.empty_tree().unwrap();
        files.write("file.txt", format!("{} {round}", self.tag)).unwrap();
        let is_large = self.tag.contains("versions-staged") || round % 40 == 39;
        for number in 0..if is_large { LARGE_IMPORT_FILES } else { 0 } {
            files.write(format!("{}/{number}", number % 20), format!("{number}")).unwrap();
        }
        files.commit(new_client_snapshot()).unwrap().id
    }
}

/// Makes the changes that every completion has: adds a file named by its id, and increments the counter.
fn add_work(files: &mut VirtualTree, id: &str) {
    let counter: Value = serde_json::from_slice(&files.read("count.crdt.json").unwrap()).unwrap();
    let visits = counter["visits"].as_i64().unwrap() + 1;
    files.write("count.crdt.json", json!({ "visits": visits }).to_string()).unwrap();
    files.write(format!("done/{id}"), id).unwrap();
}

/// Catalog and store with a project, whose servers are killed.
pub(crate) struct Deployment {
    pub(crate) fixture: Fixture,
    /// Number of servers that were started.
    starts: u64,
}

impl Deployment {
    pub(crate) async fn new(database: DatabaseKind) -> Self {
        let counter = r#"{"visits":0}"#;
        let files = [
            ("count.crdt.json", counter),
            ("scratch.txt", "first"),
            ("conflict.txt", "first"),
            ("secret/key", "key"),
        ];
        let mut fixture = Fixture::new(database, &files).await;
        fixture
            .set_policy(json!({"rules": [
                {"path": "**/*.crdt.json", "strategy": "crdt", "schema": {"visits": "counter"}},
                {"agent": "restricted", "path": "secret/**", "access": "none"},
                {"agent": "guest", "path": "scratch.txt", "access": "R"},
            ]}))
            .await;
        Self { fixture, starts: 0 }
    }

    /// Starts a server in a child process.
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

    /// Starts the next server, waits until it has repaired and merged everything, and checks the project. Returns the
    /// number of acknowledgements of the killed server.
    pub(crate) async fn check(&mut self, ended: &ChildOutput) -> usize {
        self.starts += 1;
        let server = Server::with_catalog(self.fixture.path(), &self.fixture.url).await;
        server.end_leases().await;
        let name = format!("{}-check", self.starts);
        let daemon = tokio::spawn(Daemon::new(server.projects.clone(), format!("server-{name}")).run());
        // The daemon sets missing references before it merges this completion.
        let project = server.project(&self.fixture.project.id).await;
        let base = server.projects.workspace_base(&project, "reader").await.unwrap();
        let mut files = server.store.restore(&base.snapshot).unwrap();
        add_work(&mut files, &name);
        let queued = server.complete(&project, "reader", &name, &base, &mut files).await;
        let landed = server.projects.wait_for(queued, WAIT).await.unwrap();
        assert_eq!(landed.state, CompletionState::Landed, "{landed:?}");
        let (no_cursor, limit) = (None, 1);
        while !server.catalog.completions().projects_with_queued(no_cursor, limit).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        // The daemon finishes interrupted deletions while it merges.
        while !server.catalog.projects().unfinished_deletions().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        // The daemon also merges completions of projects that the killed server created. The reference of a head is set
        // after the transaction of the merge.
        let filter = ProjectFilter { limit: PROJECTS_MAX, ..ProjectFilter::default() };
        let (projects, _) = server.catalog.projects().list(&filter).await.unwrap();
        for Project { id, sequence, .. } in projects.into_iter().filter(|project| project.sequence > 0) {
            let reference = format!("projects/{id}/{sequence:012}");
            while server.store.reference(&reference).unwrap().is_none() {
                tokio::task::yield_now().await;
            }
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

/// Checks that every completion added its file and incremented the counter once.
async fn check_counter(server: &Server, project: &str) {
    let project = server.project(project).await;
    let head = server.projects.head(&project, PRESENT).await.unwrap().unwrap();
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

/// Returns all failpoints; on PostgreSQL, whose servers start slowly, a random part of them unless the run is a full
/// one.
fn selected_failpoints(database: DatabaseKind, random: &mut Random) -> Vec<&'static str> {
    let is_short = database == DatabaseKind::Postgres && !is_full_run();
    FAILPOINTS.iter().copied().filter(|_| !is_short || random.one_in(POSTGRES_FAILPOINTS_SHARE)).collect()
}

pub(crate) async fn after_a_kill_at_each_failpoint_acknowledged_work_is_recorded_once(
    database: DatabaseKind,
) {
    let mut deployment = Deployment::new(database).await;
    let mut random = Random::new();
    for failpoint in selected_failpoints(database, &mut random) {
        let visits = if is_full_run() { 1..8 } else { 1..2 };
        for visit in visits {
            // A short run takes one of the first three visits. A child visits every failpoint once in each round.
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

pub(crate) async fn after_a_kill_at_any_moment_acknowledged_work_is_recorded_once(database: DatabaseKind) {
    let (mut random, mut acknowledged) = (Random::new(), 0);
    let kills = match (is_full_run(), database) {
        (true, _) => 500,
        (false, DatabaseKind::Sqlite) => 20,
        (false, DatabaseKind::Postgres) => 5,
    };
    // Microseconds. Requests to PostgreSQL take longer.
    let kill_delay_max = if database == DatabaseKind::Postgres { 2_000_000 } else { 250_000 };
    let mut deployment = Deployment::new(database).await;
    for round in 1..=kills {
        let (rounds, no_failpoint) = ("1000000", None);
        let mut child = deployment.start("random", rounds, no_failpoint);
        if !random.one_in(8) {
            assert!(child.next_line().is_some());
        }
        std::thread::sleep(Duration::from_micros(random.below(kill_delay_max)));
        child.kill();
        let ended = child.finish();
        ended.assert_killed();
        acknowledged += deployment.check(&ended).await;
        if round % 25 == 0 || round == kills {
            // Checks take longer the longer the history is.
            check_store(&deployment.fixture.server());
            deployment = Deployment::new(database).await;
        }
    }
    assert!(acknowledged > kills, "{acknowledged} acknowledgements in {kills} rounds prove nothing");
}
