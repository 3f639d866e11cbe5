//! Tests of several servers on one database. `Fixture::complete` queues finished work of an agent (a completion);
//! `Fixture::land` and the merge daemon of a server merge it into the head (the present files of the project). The
//! sequence of a head is the number of changes.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use workspace_catalog::{Catalog, CompletionState, Event, EventFilter};
use workspace_context::projects::{Daemon, ProjectError};
use workspace_test_support::child::{ChildProcess, say, text};

use crate::crash::Deployment;
use crate::database::DatabaseKind;
use crate::fixture::{ANY_SEQUENCE, Fixture, NOT_FROM_GIT};
use crate::server::Server;

/// Time that a test waits for another server.
const WAIT: Duration = Duration::from_secs(60);

/// Role of a child process: reads the events of all owners in order, and reports them. Ends when the parent has resumed
/// it and there are no more events.
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
            // A small page, so that readers are often in the middle of the events of a transaction.
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

/// Role of a child process: merges all queued completions (finished work of agents).
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

pub(crate) async fn two_processes_change_one_project_and_readers_miss_no_event(database: DatabaseKind) {
    let mut deployment = Deployment::new(database).await;
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

pub(crate) async fn a_project_deleted_before_its_new_head_has_a_reference_leaves_no_references(
    database: DatabaseKind,
) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
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
    // A completion of a client that does not know of the deletion leaves none either.
    let error = fixture.projects.complete(fixture.completion(&mut workspace)).await.unwrap_err();
    assert!(matches!(error, ProjectError::NotFound { .. }), "{error}");
    assert_eq!(fixture.store.references_with_prefix("projects/").unwrap(), []);
}

pub(crate) async fn a_completion_that_comes_during_a_merge_is_merged_by_the_same_attempt(
    database: DatabaseKind,
) {
    let fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
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

pub(crate) async fn a_client_that_waits_is_told_of_a_merge_by_another_server(database: DatabaseKind) {
    let fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
    let other = Server::with_catalog(fixture.path(), &fixture.url).await;
    let daemon = tokio::spawn(Daemon::new(other.projects.clone(), "server-2".to_owned()).run());
    let mut workspace = fixture.workspace("agent", "w1").await;
    workspace.files.write("a.txt", "two\n").unwrap();
    let queued = fixture.complete(&mut workspace).await;
    let landed = fixture.projects.wait_for(queued, WAIT).await.unwrap();
    assert_eq!((landed.state, landed.sequence), (CompletionState::Landed, Some(2)));
    daemon.abort();
}

pub(crate) async fn a_merge_wakes_readers_of_events_after_its_events_are_visible(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
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

pub(crate) async fn concurrent_imports_by_several_servers_are_all_recorded(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
    let content: Vec<_> = (0..12).map(|number| fixture.snapshot(&[(&format!("{number}"), "x")]).id).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (number, content) in content.into_iter().enumerate() {
        let server = Server::with_catalog(fixture.path(), &fixture.url).await;
        let (project, message) = (fixture.project.clone(), format!("import {number}"));
        tasks.spawn(async move {
            let person = crate::fixture::person();
            server
                .projects
                .import(&project, content, &person, &message, ANY_SEQUENCE, NOT_FROM_GIT)
                .await
                .unwrap()
                .unwrap()
        });
    }
    let mut sequences: Vec<i64> = tasks.join_all().await.iter().map(|done| done.sequence).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (2..14).collect::<Vec<_>>());
    fixture.refresh().await;
    crate::crash_check::check_project(&fixture.server(), &fixture.project.id).await;
}
