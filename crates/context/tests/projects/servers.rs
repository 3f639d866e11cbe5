//! Several servers on one database, and the tests of this program on PostgreSQL.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use sqlx::{AnyPool, Executor};
use workspace_catalog::{Catalog, CompletionState, Event, EventFilter};
use workspace_context::projects::{Daemon, ProjectError};
use workspace_test_support::Postgres;
use workspace_test_support::child::{ChildProcess, say, text};

use crate::crash::Deployment;
use crate::fixture::Fixture;
use crate::server::Server;

/// URL of the PostgreSQL server on which the fixtures make their databases; without it, they use SQLite.
const POSTGRES: &str = "WORKSPACE_TEST_POSTGRES";
/// Modules of tests that depend on the database.
const MODULES: [&str; 10] = [
    "abandoned::",
    "agent_views::",
    "completions::",
    "crash::",
    "hidden_names::",
    "history::",
    "matrix::",
    "model::",
    "reviews::",
    "servers::",
];
/// Time that a test waits for another server.
const WAIT: Duration = Duration::from_secs(60);

/// Returns true if the fixtures make their databases on PostgreSQL.
pub(crate) fn is_on_postgres() -> bool {
    std::env::var_os(POSTGRES).is_some()
}

/// Returns the URL of a new database on the PostgreSQL server that the environment names; `None` if it names none.
pub(crate) async fn new_postgres_database() -> Option<String> {
    let server = std::env::var(POSTGRES).ok()?;
    let name = format!("projects_{}", uuid::Uuid::now_v7().simple());
    sqlx::any::install_default_drivers();
    let admin = AnyPool::connect(&server).await.unwrap();
    admin.execute(format!("CREATE DATABASE {name}").as_str()).await.unwrap();
    admin.close().await;
    Some(server.replacen("/postgres?", &format!("/{name}?"), 1))
}

#[test]
fn the_tests_of_projects_pass_on_postgresql() {
    if is_on_postgres() {
        return;
    }
    let Some(server) = Postgres::start() else { return };
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(MODULES).arg("--test-threads=4").env(POSTGRES, server.url("postgres"));
    let output = tests.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(!out.contains("running 0 tests"), "{out}");
}

/// Role: reads events of all owners in order, until there were none after the parent said so, and reports them.
pub(crate) fn follow_events(arguments: &[&str]) {
    let [url] = arguments else { panic!("catalog") };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let catalog = Catalog::open(url).await.unwrap();
        say("ready");
        let stop = tokio::task::spawn_blocking(workspace_test_support::child::wait_for_parent);
        let mut after = 0;
        loop {
            let is_last = stop.is_finished();
            // A small page, so that readers are often in the middle.
            let slice = catalog.events().read(&EventFilter::default(), after, 7).await.unwrap();
            for event in &slice.events {
                say(&format!("event {}", event.number));
            }
            after = slice.events.last().map_or(after, |last| last.number);
            if slice.events.is_empty() && is_last {
                break;
            }
        }
    });
}

/// Role: lands what is queued.
pub(crate) fn land(arguments: &[&str]) {
    let [home, url] = arguments else { panic!("directory, catalog") };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let server = Server::with_catalog(Path::new(home), url).await;
        Daemon::new(server.projects, "server-2".to_owned()).land_all().await.unwrap();
    });
}

async fn all_events(catalog: &Catalog) -> Vec<Event> {
    catalog.events().read(&EventFilter::default(), 0, 1_000_000).await.unwrap().events
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_change_one_project_and_readers_miss_no_event() {
    let mut deployment = Deployment::new().await;
    let url = deployment.fixture.url.clone();
    let mut readers: Vec<_> = (0..2).map(|_| ChildProcess::start("follow-events", &[&url])).collect();
    readers.iter_mut().for_each(|reader| reader.expect_line("ready"));
    let servers = ["one", "two"].map(|name| deployment.start(name, "3", None));
    let mut lines = Vec::new();
    for server in servers {
        let ended = server.finish();
        ended.assert_success();
        lines.push(ended);
    }
    for ended in &lines {
        let acknowledged = deployment.check(ended).await;
        assert!(acknowledged > 30, "{acknowledged}");
    }
    let expected: Vec<String> = all_events(&deployment.fixture.catalog)
        .await
        .iter()
        .map(|event| format!("event {}", event.number))
        .collect();
    for mut reader in readers {
        reader.resume();
        let ended = reader.finish();
        ended.assert_success();
        assert_eq!(ended.lines, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_that_is_deleted_before_its_new_head_is_protected_leaves_no_references() {
    let mut fixture = Fixture::new(&[("a.txt", "one\n")]).await;
    let mut workspace = fixture.workspace("agent", "w1").await;
    workspace.files.write("a.txt", "two\n").unwrap();
    fixture.complete(&mut workspace).await;
    let arguments = [text(fixture.path()), &fixture.url];
    let other = ChildProcess::start_failing("land", &arguments, "merge-advanced=stop");
    other.wait_until_stopped();
    fixture.refresh().await;
    assert_eq!(fixture.project.sequence, 2);
    fixture.projects.delete(&fixture.project).await.unwrap();
    other.signal(Signal::CONT);
    other.finish();
    assert_eq!(fixture.store.references_with_prefix("projects/").unwrap(), []);
    // Nor does a completion of a client that has not learned of it.
    let error = fixture.projects.complete(fixture.completion(&mut workspace)).await.unwrap_err();
    assert!(matches!(error, ProjectError::NotFound { .. }), "{error}");
    assert_eq!(fixture.store.references_with_prefix("projects/").unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_that_comes_during_a_merge_is_merged_by_the_same_attempt() {
    let fixture = Fixture::new(&[("a.txt", "one\n")]).await;
    let mut first = fixture.workspace("agent", "w1").await;
    first.files.write("a.txt", "two\n").unwrap();
    let mut second = fixture.workspace("other", "w2").await;
    second.files.write("b.txt", "new\n").unwrap();
    let first = fixture.complete(&mut first).await;
    let server =
        ChildProcess::start_failing("land", &[text(fixture.path()), &fixture.url], "merge-advanced=stop");
    server.wait_until_stopped();
    assert_eq!(fixture.state(&first).await.state, CompletionState::Landed);
    let second = fixture.complete(&mut second).await;
    server.signal(Signal::CONT);
    server.finish().assert_success();
    assert_eq!(fixture.state(&second).await.state, CompletionState::Landed);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_lands_a_completion_and_the_waiting_client_learns_of_it() {
    let fixture = Fixture::new(&[("a.txt", "one\n")]).await;
    let other = Server::with_catalog(fixture.path(), &fixture.url).await;
    let daemon = tokio::spawn(Daemon::new(other.projects.clone(), "server-2".to_owned()).run());
    let mut workspace = fixture.workspace("agent", "w1").await;
    workspace.files.write("a.txt", "two\n").unwrap();
    let queued = fixture.complete(&mut workspace).await;
    let landed = fixture.projects.wait_for(queued, WAIT).await.unwrap();
    assert_eq!((landed.state, landed.sequence), (CompletionState::Landed, Some(2)));
    daemon.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_landing_wakes_readers_of_events_when_it_is_visible() {
    let mut fixture = Fixture::new(&[("a.txt", "one\n")]).await;
    let mut workspace = fixture.workspace("agent", "w1").await;
    workspace.files.write("a.txt", "two\n").unwrap();
    let completion = fixture.complete(&mut workspace).await;
    let before = fixture.catalog.events().newest().await.unwrap();
    let mut events = fixture.catalog.events().subscribe();
    events.mark_unchanged();
    let catalog = fixture.catalog.clone();
    let woken = tokio::spawn(async move {
        events.changed().await.unwrap();
        catalog.events().read(&EventFilter::default(), before, 100).await.unwrap().events
    });
    fixture.land().await;
    let kinds: Vec<String> = woken.await.unwrap().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["completion.landed", "project.advanced"]);
    assert_eq!(fixture.state(&completion).await.state, CompletionState::Landed);
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_change_a_head_at_once_lose_nothing() {
    let mut fixture = Fixture::new(&[("a.txt", "one\n")]).await;
    let content: Vec<_> = (0..12).map(|number| fixture.snapshot(&[(&format!("{number}"), "x")]).id).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (number, content) in content.into_iter().enumerate() {
        let server = Server::with_catalog(fixture.path(), &fixture.url).await;
        let (project, message) = (fixture.project.clone(), format!("import {number}"));
        tasks.spawn(async move {
            let person = crate::fixture::person();
            server.projects.import(&project, content, &person, &message, None, None).await.unwrap().unwrap()
        });
    }
    let mut sequences: Vec<i64> = tasks.join_all().await.iter().map(|done| done.sequence).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (2..14).collect::<Vec<_>>());
    fixture.refresh().await;
    crate::crash_check::check_project(&fixture.server(), &fixture.project.id).await;
}
