//! Snapshots that a server has made and not recorded: those of a killed one go, those of a living one stay.

use std::path::Path;

use rustix::process::Signal;
use serde_json::json;
use workspace_catalog::{Completion, CompletionState, Operator, Project};
use workspace_context::projects::{ChangeAuthor, DirectCompletion};
use workspace_state::SnapshotId;
use workspace_test_support::child::{ChildProcess, say, text, wait_for_parent};

use crate::crash_check::{check_no_leftovers, check_project, completions};
use crate::fixture::Fixture;
use crate::server::{Server, of_client};

/// Role: reads earlier heads as an agent sees them, and waits.
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

/// Sequence of the head of [`project_with_a_secret`].
const BASE: i64 = 3;

/// Role: imports a snapshot, and completes it for an agent.
pub(crate) fn import_and_complete(arguments: &[&str]) {
    let [home, url, project, content] = arguments else { panic!("directory, catalog, project, content") };
    runtime().block_on(async {
        let server = Server::with_catalog(Path::new(home), url).await;
        let project = server.project(project).await;
        let content = content.parse().unwrap();
        let base = server.projects.workspace_base_at(&project, "agent", BASE).await.unwrap();
        let person = ChangeAuthor { name: "alice".to_owned(), operator: Operator::Person };
        // A repeated import changes nothing.
        server.projects.import(&project, content, &person, "import", None, None).await.unwrap();
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

/// Creates a project with a file that `agent` does not see, and that changes twice.
async fn project_with_a_secret() -> Fixture {
    let mut fixture = Fixture::new(&[("a.txt", "1\n"), ("secret/key", "1\n")]).await;
    let rules = json!([{"agent": "agent", "path": "secret/**", "access": "none"}]);
    fixture.set_policy(json!({ "rules": rules })).await;
    for round in ["2\n", "3\n"] {
        fixture.import(&[("a.txt", round), ("secret/key", round)]).await;
    }
    fixture
}

impl Fixture {
    fn snapshots(&self) -> Vec<SnapshotId> {
        self.store.snapshots().unwrap().iter().map(|snapshot| snapshot.id).collect()
    }

    fn start(&self, role: &str, more: &[&str], failpoint: Option<&str>) -> ChildProcess {
        let arguments = [text(self.path()), &self.url, &self.project.id];
        let arguments: Vec<&str> = arguments.into_iter().chain(more.iter().copied()).collect();
        match failpoint {
            Some(failpoint) => ChildProcess::start_failing(role, &arguments, failpoint),
            None => ChildProcess::start(role, &arguments),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn views_of_earlier_heads_do_not_outlive_their_server() {
    let fixture = project_with_a_secret().await;
    let before = fixture.snapshots();
    let mut server = fixture.start("read-earlier-heads", &[], None);
    server.expect_line("ready");
    assert_eq!(fixture.projects.remove_abandoned().await.unwrap(), 0, "the server is using them");
    let made = fixture.snapshots().len() - before.len();
    assert!(made >= 3, "{made}");
    server.kill();
    server.finish();
    assert_eq!(fixture.projects.remove_abandoned().await.unwrap(), made);
    assert_eq!(fixture.snapshots(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_has_the_same_snapshot_on_every_server_and_after_a_restart() {
    let mut fixture = project_with_a_secret().await;
    let base = fixture.projects.workspace_base(&fixture.project, "agent").await.unwrap().snapshot;
    let before = fixture.snapshots();
    let other = fixture.other_server().await;
    assert_eq!(other.workspace_base(&fixture.project, "agent").await.unwrap().snapshot, base);
    assert_eq!(fixture.snapshots(), before);
    // Also if only hidden files changed meanwhile.
    let head = fixture.projects.head(&fixture.project, None).await.unwrap().unwrap();
    let mut files = fixture.store.restore(&head.id).unwrap();
    files.write("secret/key", "4\n").unwrap();
    let content = files.commit(of_client()).unwrap().id;
    fixture.import_snapshot(content).await;
    let restarted = fixture.other_server().await;
    assert_eq!(restarted.workspace_base(&fixture.project, "agent").await.unwrap().snapshot, base);
    let everybody = restarted.workspace_base(&fixture.project, "another").await.unwrap().snapshot;
    assert_eq!(Some(everybody.to_string()), fixture.project.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_suspended_server_is_not_abandoned() {
    for failpoint in ["view-committed", "head-committed", "direct-committed", "completion-protected"] {
        let mut fixture = project_with_a_secret().await;
        let mut files = fixture.store.empty_tree().unwrap();
        files.write("a.txt", "new\n").unwrap();
        let content = files.commit(of_client()).unwrap().id.to_string();
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

#[tokio::test(flavor = "multi_thread")]
async fn a_large_import_that_came_too_late_removes_its_snapshot() {
    let mut fixture = project_with_a_secret().await;
    let mut files = fixture.store.empty_tree().unwrap();
    // So many that their versions are staged.
    (0..2_500).for_each(|number| files.write(format!("{}/{number}", number % 10), "new\n").unwrap());
    let content = files.commit(of_client()).unwrap().id.to_string();
    let server = fixture.start("import-and-complete", &[&content], Some("head-committed=stop"));
    server.wait_until_stopped();
    fixture.import(&[("a.txt", "meanwhile\n")]).await;
    server.signal(Signal::CONT);
    server.finish().assert_success();
    fixture.refresh().await;
    assert_eq!(fixture.project.sequence, BASE + 2, "it was imported on top of the other one");
    assert_eq!(fixture.store.abandoned_snapshots().unwrap(), []);
    fixture.land().await;
    check_project(&fixture.server(), &fixture.project.id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_server_did_not_record_is_removed_and_what_it_recorded_stays() {
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
        let mut fixture = project_with_a_secret().await;
        let mut files = fixture.store.empty_tree().unwrap();
        files.write("a.txt", "new\n").unwrap();
        let content = files.commit(of_client()).unwrap().id.to_string();
        let server = fixture.start("import-and-complete", &[&content], Some(&format!("{failpoint}=kill")));
        assert!(server.finish().was_killed(), "{failpoint}");
        // Two servers may look at once.
        let (first, second) = (fixture.projects.clone(), fixture.other_server().await);
        let (first, second) = tokio::join!(first.remove_abandoned(), second.remove_abandoned());
        println!("{failpoint}: removed {} and {}", first.unwrap(), second.unwrap());
        fixture.refresh().await;
        let head = fixture.projects.head(&fixture.project, None).await.unwrap();
        assert!(head.is_some(), "{failpoint}: a recorded head is never removed");
        repair(&fixture).await;
        check_no_leftovers(&fixture.server()).await;
        check_protected(&fixture).await;
        check_project(&fixture.server(), &fixture.project.id).await;
        // A repeat works.
        fixture.start("import-and-complete", &[&content], None).finish().assert_success();
        fixture.land().await;
        let pushed = fixture.catalog.completions().find(&fixture.project.id, "push").await.unwrap().unwrap();
        assert_eq!(pushed.state, CompletionState::Landed, "{failpoint}");
        assert_eq!(fixture.files().await.into_iter().collect::<Vec<_>>(), [("a.txt".into(), "new\n".into())]);
        check_no_leftovers(&fixture.server()).await;
        check_protected(&fixture).await;
        check_project(&fixture.server(), &fixture.project.id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_of_a_project_are_removed_also_if_another_server_looks_while_it_is_deleted() {
    for failpoint in ["reference-removed", "deletion-unprotected"] {
        let fixture = project_with_a_secret().await;
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

/// Starts a server, which sets missing references and lands what is queued.
async fn repair(fixture: &Fixture) {
    let server = fixture.server();
    server.end_leases().await;
    let daemon = tokio::spawn(fixture.daemon().run());
    let is_protected = |project: &Project| {
        let name = format!("projects/{}/{:012}", project.id, project.sequence);
        server.store.reference(&name).unwrap().is_some()
    };
    while !server.catalog.completions().projects_with_queued(None, 1).await.unwrap().is_empty()
        || !is_protected(&server.project(&fixture.project.id).await)
    {
        tokio::task::yield_now().await;
    }
    daemon.abort();
    drop(daemon.await);
    server.end_leases().await;
}

/// Checks that the protected snapshots which are no heads are views, or the work of completions.
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
