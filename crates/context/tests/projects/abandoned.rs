//! Tests of snapshots that a server has made and not recorded in the catalog. Those of a killed server are removed;
//! those of a running server stay.
//!
//! `Fixture::land` merges all queued completions: finished work of agents. A role is a function that a child process
//! runs in place of the tests. It prints lines for its parent.
//!
//! `check_no_leftovers` removes the snapshots of killed servers, and fails if others have no reference or pin.
//! `check_project` checks head, history, completions and references of a project. Snapshots of `new_client_snapshot`
//! have a label by which these checks ignore them.
//!
//! Failpoints (but for `advance-before-commit`) are named after the step that has just succeeded: `view`, `head` and
//! `direct` are the snapshots of a view, a head and a push, `protected` means that the reference is set, and `advance`
//! is the transaction that moves the head.

use std::path::Path;

use rustix::process::Signal;
use serde_json::json;
use workspace_catalog::{Completion, CompletionState, Operator, Project};
use workspace_context::projects::{ChangeAuthor, DirectCompletion};
use workspace_state::SnapshotId;
use workspace_test_support::child::{ChildProcess, say, text, wait_for_parent};

use crate::crash_check::{check_no_leftovers, check_project, completions};
use crate::database::DatabaseKind;
use crate::fixture::{ANY_SEQUENCE, Fixture, NOT_FROM_GIT, PRESENT};
use crate::server::{Server, new_client_snapshot};

/// Last argument of [`Fixture::start`] for a process that is not killed at a failpoint.
const NO_FAILPOINT: Option<&str> = None;

/// Role: reads the view that an agent has of each earlier head (the former files of the project), and waits.
pub(crate) fn read_earlier_heads(arguments: &[&str]) {
    let [home, url, project] = arguments else { panic!("directory, catalog, project") };
    runtime().block_on(async {
        let server = Server::with_catalog(Path::new(home), url).await;
        let project = server.project(project).await;
        let view = server.projects.agent_view(&project, "agent").await.unwrap();
        for number in 0..view.sequence() {
            server.projects.agent_head(&view, Some(number)).await.unwrap().unwrap();
        }
        say("ready");
        wait_for_parent();
    });
}

/// Sequence of the head (number of changes of the project) that [`project_with_hidden_file`] makes.
const BASE_SEQUENCE: i64 = 3;

/// Role: imports a snapshot, and then completes it as the work of an agent (a push).
pub(crate) fn import_and_complete(arguments: &[&str]) {
    let [home, url, project, content] = arguments else { panic!("directory, catalog, project, content") };
    runtime().block_on(async {
        let server = Server::with_catalog(Path::new(home), url).await;
        let project = server.project(project).await;
        let content = content.parse().unwrap();
        let base = server.projects.workspace_base_at(&project, "agent", BASE_SEQUENCE).await.unwrap();
        let person = ChangeAuthor { name: "alice".to_owned(), operator: Operator::Person };
        // Changes nothing if the role runs again.
        server
            .projects
            .import(&project, content, &person, "import", ANY_SEQUENCE, NOT_FROM_GIT)
            .await
            .unwrap();
        let (id, agent) = (Some("push".to_owned()), "agent".to_owned());
        let new = DirectCompletion { id, agent, owner: None, base, content, message: "push".to_owned() };
        server.projects.complete_directly(&project, new).await.unwrap();
    });
}

/// Role: deletes a project.
pub(crate) fn delete_project(arguments: &[&str]) {
    let [home, url, project] = arguments else { panic!("directory, catalog, project") };
    runtime().block_on(async {
        let server = Server::with_catalog(Path::new(home), url).await;
        let project = server.project(project).await;
        server.projects.delete(&project).await.unwrap();
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

/// Creates a project with a file that `agent` does not see. All its files change twice.
async fn project_with_hidden_file(database: DatabaseKind) -> Fixture {
    let mut fixture = Fixture::new(database, &[("a.txt", "1\n"), ("secret/key", "1\n")]).await;
    let rules = json!([{"agent": "agent", "path": "secret/**", "access": "none"}]);
    fixture.set_policy(json!({ "rules": rules })).await;
    for round in ["2\n", "3\n"] {
        fixture.replace_files(&[("a.txt", round), ("secret/key", round)]).await;
    }
    fixture
}

impl Fixture {
    /// Returns the ids of all snapshots in the store.
    fn snapshots(&self) -> Vec<SnapshotId> {
        self.store.snapshots().unwrap().iter().map(|snapshot| snapshot.id).collect()
    }

    /// Starts a child process with the directory, the catalog and the project, and then `more`, as arguments.
    fn start(&self, role: &str, more: &[&str], failpoint: Option<&str>) -> ChildProcess {
        let arguments = [text(self.path()), &self.url, &self.project.id];
        let arguments: Vec<&str> = arguments.into_iter().chain(more.iter().copied()).collect();
        match failpoint {
            Some(failpoint) => ChildProcess::start_failing(role, &arguments, failpoint),
            None => ChildProcess::start(role, &arguments),
        }
    }
}

pub(crate) async fn views_of_earlier_heads_do_not_outlive_their_server(database: DatabaseKind) {
    let fixture = project_with_hidden_file(database).await;
    let before = fixture.snapshots();
    let mut server = fixture.start("read-earlier-heads", &[], NO_FAILPOINT);
    server.expect_line("ready");
    assert_eq!(fixture.projects.remove_abandoned().await.unwrap(), 0, "the server is using them");
    let made = fixture.snapshots().len() - before.len();
    assert!(made >= 3, "{made}");
    server.kill();
    server.finish();
    assert_eq!(fixture.projects.remove_abandoned().await.unwrap(), made);
    assert_eq!(fixture.snapshots(), before);
}

pub(crate) async fn a_view_has_the_same_snapshot_on_every_server_and_after_a_restart(database: DatabaseKind) {
    let mut fixture = project_with_hidden_file(database).await;
    let base = fixture.projects.workspace_base(&fixture.project, "agent").await.unwrap().snapshot;
    let before = fixture.snapshots();
    let other = fixture.other_server().await;
    assert_eq!(other.workspace_base(&fixture.project, "agent").await.unwrap().snapshot, base);
    assert_eq!(fixture.snapshots(), before);
    // The snapshot is the same, too, if only hidden files changed meanwhile.
    let head = fixture.projects.head(&fixture.project, PRESENT).await.unwrap().unwrap();
    let mut files = fixture.store.restore(&head.id).unwrap();
    files.write("secret/key", "4\n").unwrap();
    let content = files.commit(new_client_snapshot()).unwrap().id;
    fixture.import_snapshot(content).await;
    let restarted = fixture.other_server().await;
    assert_eq!(restarted.workspace_base(&fixture.project, "agent").await.unwrap().snapshot, base);
    let everybody = restarted.workspace_base(&fixture.project, "another").await.unwrap().snapshot;
    assert_eq!(Some(everybody.to_string()), fixture.project.head);
}

pub(crate) async fn snapshots_of_a_stopped_server_are_not_removed(database: DatabaseKind) {
    for failpoint in ["view-committed", "head-committed", "direct-committed", "completion-protected"] {
        let mut fixture = project_with_hidden_file(database).await;
        let mut files = fixture.store.empty_tree().unwrap();
        files.write("a.txt", "new\n").unwrap();
        let content = files.commit(new_client_snapshot()).unwrap().id.to_string();
        let server = fixture.start("import-and-complete", &[&content], Some(&format!("{failpoint}=stop")));
        server.wait_until_stopped();
        assert!(!fixture.store.pins().unwrap().is_empty(), "{failpoint}: something is pending");
        assert_eq!(fixture.projects.remove_abandoned().await.unwrap(), 0, "{failpoint}");
        server.signal(Signal::CONT);
        server.finish().assert_success();
        fixture.land().await;
        let pushed = fixture.catalog.completions().find(&fixture.project.id, "push").await.unwrap().unwrap();
        assert_eq!(pushed.state, CompletionState::Landed, "{failpoint}");
        check_project(&fixture.server(), &fixture.project.id).await;
        check_no_leftovers(&fixture.server()).await;
    }
}

pub(crate) async fn a_large_import_onto_a_head_that_moved_leaves_no_snapshot(database: DatabaseKind) {
    let mut fixture = project_with_hidden_file(database).await;
    let mut files = fixture.store.empty_tree().unwrap();
    // So many files that the import inserts their versions in batches, before the transaction.
    (0..2_500).for_each(|number| files.write(format!("{}/{number}", number % 10), "new\n").unwrap());
    let content = files.commit(new_client_snapshot()).unwrap().id.to_string();
    let server = fixture.start("import-and-complete", &[&content], Some("head-committed=stop"));
    server.wait_until_stopped();
    fixture.replace_files(&[("a.txt", "meanwhile\n")]).await;
    server.signal(Signal::CONT);
    server.finish().assert_success();
    fixture.refresh().await;
    assert_eq!(fixture.project.sequence, BASE_SEQUENCE + 2, "it was imported on top of the other one");
    assert_eq!(fixture.store.abandoned_snapshots().unwrap(), []);
    fixture.land().await;
    check_project(&fixture.server(), &fixture.project.id).await;
}

pub(crate) async fn snapshots_of_a_killed_server_are_removed_unless_it_recorded_them(database: DatabaseKind) {
    for failpoint in [
        "view-committed",
        "view-protected",
        "head-committed",
        "advance-before-commit",
        "advance-committed",
        "head-advanced",
        "direct-committed",
        "completion-protected",
        "completion-inserted",
        "completion-queued",
    ] {
        let mut fixture = project_with_hidden_file(database).await;
        let mut files = fixture.store.empty_tree().unwrap();
        files.write("a.txt", "new\n").unwrap();
        let content = files.commit(new_client_snapshot()).unwrap().id.to_string();
        let server = fixture.start("import-and-complete", &[&content], Some(&format!("{failpoint}=kill")));
        assert!(server.finish().was_killed(), "{failpoint}");
        // Two servers may remove them at the same time.
        let (first, second) = (fixture.projects.clone(), fixture.other_server().await);
        let (first, second) = tokio::join!(first.remove_abandoned(), second.remove_abandoned());
        println!("{failpoint}: removed {} and {}", first.unwrap(), second.unwrap());
        fixture.refresh().await;
        let head = fixture.projects.head(&fixture.project, PRESENT).await.unwrap();
        assert!(head.is_some(), "{failpoint}: a recorded head is never removed");
        repair(&fixture).await;
        check_no_leftovers(&fixture.server()).await;
        check_protected(&fixture).await;
        check_project(&fixture.server(), &fixture.project.id).await;
        // The same work can be done again.
        fixture.start("import-and-complete", &[&content], NO_FAILPOINT).finish().assert_success();
        fixture.land().await;
        let pushed = fixture.catalog.completions().find(&fixture.project.id, "push").await.unwrap().unwrap();
        assert_eq!(pushed.state, CompletionState::Landed, "{failpoint}");
        assert_eq!(fixture.files().await.into_iter().collect::<Vec<_>>(), [("a.txt".into(), "new\n".into())]);
        check_no_leftovers(&fixture.server()).await;
        check_protected(&fixture).await;
        check_project(&fixture.server(), &fixture.project.id).await;
    }
}

pub(crate) async fn a_deleted_project_leaves_no_snapshots_if_another_server_removes_abandoned_ones_meanwhile(
    database: DatabaseKind,
) {
    for failpoint in ["reference-removed", "deletion-unprotected"] {
        let fixture = project_with_hidden_file(database).await;
        fixture.projects.workspace_base(&fixture.project, "agent").await.unwrap();
        let server = fixture.start("delete-project", &[], Some(&format!("{failpoint}=stop")));
        server.wait_until_stopped();
        fixture.projects.remove_abandoned().await.unwrap();
        server.signal(Signal::CONT);
        server.finish().assert_success();
        check_no_leftovers(&fixture.server()).await;
        assert!(fixture.store.references().unwrap().is_empty(), "{failpoint}");
    }
}

/// Runs the merge daemon until it has set the missing references and merged all queued completions.
async fn repair(fixture: &Fixture) {
    let server = fixture.server();
    server.end_leases().await;
    let daemon = tokio::spawn(fixture.daemon().run());
    let is_protected = |project: &Project| {
        let name = format!("projects/{}/{:012}", project.id, project.sequence);
        server.store.reference(&name).unwrap().is_some()
    };
    let (no_cursor, limit) = (None, 1);
    while !server.catalog.completions().projects_with_queued(no_cursor, limit).await.unwrap().is_empty()
        || !is_protected(&server.project(&fixture.project.id).await)
    {
        tokio::task::yield_now().await;
    }
    daemon.abort();
    drop(daemon.await);
    server.end_leases().await;
}

/// Checks that each snapshot with a reference, other than the heads, is a view or belongs to a completion.
async fn check_protected(fixture: &Fixture) {
    let prefix = format!("projects/{}/snapshots/", fixture.project.id);
    let completions = completions(&fixture.server(), &fixture.project.id).await;
    for (name, id) in fixture.store.references_with_prefix(&prefix).unwrap() {
        let is_view = fixture.store.snapshot(&id).unwrap().labels.contains_key("view");
        let id = id.to_string();
        let is_used = |completion: &Completion| {
            [&completion.completion.theirs_snapshot, &completion.completion.base_snapshot].contains(&&id)
        };
        assert!(is_view || completions.iter().any(is_used), "{name}");
    }
}
