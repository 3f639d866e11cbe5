//! Tests of completions (finished work of agents): merges into the head (the present files of the project), conflicts,
//! policies, and that each completion is merged exactly once. `Fixture::complete` queues a completion, and
//! `Fixture::land` merges all queued ones. The sequence of a head is the number of changes of the project.

use serde_json::json;
use workspace_catalog::{CatalogError, CompletionState, OperationFilter, ReviewFilter};
use workspace_context::projects::{Daemon, DirectCompletion, ProjectError};
use workspace_state::{Attributes, Timestamp};

use crate::database::DatabaseKind;
use crate::fixture::Fixture;
use crate::server::new_client_snapshot;

pub(crate) async fn changes_of_many_agents_are_all_merged(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("shared/readme.md", "hello\n")]).await;
    let mut queued = Vec::new();
    for number in 0..30 {
        let mut workspace = fixture.workspace(&format!("agent-{number}"), &format!("w{number}")).await;
        workspace.files.write(format!("own/{number}.txt"), format!("{number}\n")).unwrap();
        queued.push(fixture.complete(&mut workspace).await);
    }
    fixture.land().await;
    assert_eq!(fixture.project.sequence, 31);
    let files = fixture.files().await;
    assert_eq!(files.len(), 31);
    for (number, completion) in queued.iter().enumerate() {
        assert_eq!(files[&format!("own/{number}.txt")], format!("{number}\n"));
        let landed = fixture.state(completion).await;
        assert_eq!((landed.state, landed.sequence), (CompletionState::Landed, Some(number as i64 + 2)));
    }
    let filter = OperationFilter { limit: 100, ..OperationFilter::default() };
    let operations = fixture.catalog.operations().list(&fixture.project.id, &filter).await.unwrap();
    assert_eq!(operations.len(), 31);
}

pub(crate) async fn lines_are_merged_and_counters_are_exact(database: DatabaseKind) {
    let counter = r#"{"visits": 0}"#;
    let lines: String = (0..40).map(|line| format!("line {line}\n")).collect();
    let mut fixture = Fixture::new(database, &[("count.crdt.json", counter), ("text.txt", &lines)]).await;
    let rule = json!({"path": "**/*.crdt.json", "strategy": "crdt", "schema": {"visits": "counter"}});
    fixture.set_policy(json!({"rules": [rule]})).await;
    let mut workspaces = Vec::new();
    for number in 0..10 {
        let mut workspace = fixture.workspace(&format!("agent-{number}"), &format!("w{number}")).await;
        let text = lines.replace(&format!("line {}\n", number * 4), &format!("changed by {number}\n"));
        workspace.files.write("text.txt", text).unwrap();
        workspace.files.write("count.crdt.json", r#"{"visits": 1}"#).unwrap();
        fixture.complete(&mut workspace).await;
        workspaces.push(workspace);
    }
    fixture.land().await;
    // The same workspaces complete work again: only changes since their first completions count.
    for workspace in &mut workspaces {
        workspace.files.write("count.crdt.json", r#"{"visits": 2}"#).unwrap();
        fixture.complete(workspace).await;
    }
    fixture.land().await;
    let files = fixture.files().await;
    let visits: serde_json::Value = serde_json::from_str(&files["count.crdt.json"]).unwrap();
    assert_eq!(visits["visits"], 20, "{visits}");
    for number in 0..10 {
        assert!(
            files["text.txt"].contains(&format!("changed by {number}\n")),
            "{number}: {}",
            files["text.txt"]
        );
    }
}

pub(crate) async fn a_conflict_waits_for_a_review_and_other_changes_are_merged(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n"), ("b.txt", "two\n")]).await;
    let mut first = fixture.workspace("first", "w1").await;
    let mut second = fixture.workspace("second", "w2").await;
    first.files.write("a.txt", "from the first\n").unwrap();
    second.files.write("a.txt", "from the second\n").unwrap();
    second.files.write("c.txt", "new\n").unwrap();
    let (first, second) = (fixture.complete(&mut first).await, fixture.complete(&mut second).await);
    fixture.land().await;
    assert_eq!(fixture.state(&first).await.state, CompletionState::Landed);
    let waiting = fixture.state(&second).await;
    assert_eq!((waiting.state, waiting.sequence), (CompletionState::InReview, Some(3)));
    let files = fixture.files().await;
    assert_eq!((files["a.txt"].as_str(), files["c.txt"].as_str()), ("from the first\n", "new\n"));
    let filter = ReviewFilter { limit: 10, ..ReviewFilter::default() };
    let reviews = fixture.catalog.reviews().list(&fixture.project.id, &filter).await.unwrap();
    assert_eq!(reviews.len(), 1);
    assert_eq!(
        (reviews[0].opened.path.as_slice(), reviews[0].opened.class.as_str()),
        (&b"a.txt"[..], "content")
    );
}

pub(crate) async fn the_policy_hides_files_and_refuses_changes(database: DatabaseKind) {
    let files = [("open.txt", "open\n"), ("secret/key.pem", "key\n"), ("locked/rules.md", "rules\n")];
    let mut fixture = Fixture::new(database, &files).await;
    fixture
        .set_policy(json!({"rules": [
            {"agent": "worker", "path": "secret/**", "access": "none"},
            {"agent": "worker", "path": "locked/**", "access": "R"},
        ]}))
        .await;
    let mut workspace = fixture.workspace("worker", "w1").await;
    assert!(!workspace.files.exists("secret").unwrap());
    workspace.files.write("open.txt", "changed\n").unwrap();
    workspace.files.write("locked/rules.md", "no rules\n").unwrap();
    workspace.files.write("secret/key.pem", "mine\n").unwrap();
    let completion = fixture.complete(&mut workspace).await;
    fixture.land().await;
    let head = fixture.files().await;
    assert_eq!(head["open.txt"], "changed\n");
    assert_eq!((head["locked/rules.md"].as_str(), head["secret/key.pem"].as_str()), ("rules\n", "key\n"));
    let report = fixture.report(&completion).await;
    let refused: Vec<&str> = report.refused.iter().map(|refused| refused.path.as_str()).collect();
    assert_eq!(refused, ["locked/rules.md", "secret", "secret/key.pem"]);
    // With only refused changes, the head stays.
    let mut again = fixture.workspace("worker", "w2").await;
    again.files.write("locked/rules.md", "none\n").unwrap();
    let completion = fixture.complete(&mut again).await;
    let sequence = fixture.project.sequence;
    fixture.land().await;
    assert_eq!(fixture.state(&completion).await.state, CompletionState::Refused);
    assert_eq!(fixture.project.sequence, sequence);
}

pub(crate) async fn a_repeated_completion_lands_once(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
    let mut workspace = fixture.workspace("agent", "w1").await;
    workspace.files.write("a.txt", "two\n").unwrap();
    let new = fixture.completion(&mut workspace);
    fixture.projects.complete(new.clone()).await.unwrap();
    fixture.projects.complete(new.clone()).await.unwrap();
    fixture.land().await;
    let again = fixture.projects.complete(new).await.unwrap();
    assert_eq!((again.state, again.sequence), (CompletionState::Landed, Some(2)));
    fixture.land().await;
    assert_eq!(fixture.project.sequence, 2);
}

pub(crate) async fn two_servers_land_each_completion_exactly_once(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
    for number in 0..40 {
        let mut workspace = fixture.workspace("agent", &format!("w{number}")).await;
        workspace.files.write(format!("{number}.txt"), format!("{number}")).unwrap();
        fixture.complete(&mut workspace).await;
    }
    let other = Daemon::new(fixture.other_server().await, "server-2".to_owned());
    let daemon = fixture.daemon();
    let (first, second) = tokio::join!(daemon.land_all(), other.land_all());
    first.and(second).unwrap();
    // The last completions may be left: one server had the lease when the other one looked for completions.
    fixture.land().await;
    assert_eq!(fixture.project.sequence, 41);
    assert_eq!(fixture.files().await.len(), 41);
}

pub(crate) async fn a_completion_that_cannot_be_merged_does_not_delay_others(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
    let mut broken = fixture.workspace("agent", "w1").await;
    broken.files.write("b.txt", "two\n").unwrap();
    let mut new = fixture.completion(&mut broken);
    // No store has this base.
    new.base_snapshot = workspace_state::SnapshotId::from_bytes([7; 16]).to_string();
    let broken = fixture.catalog.completions().insert(&new, &[]).await.unwrap();
    let workspace_catalog::CompletionInsertion::New(broken) = broken else { panic!("{broken:?}") };
    let mut good = fixture.workspace("agent", "w2").await;
    good.files.write("c.txt", "three\n").unwrap();
    let good = fixture.complete(&mut good).await;
    fixture.land().await;
    assert_eq!(fixture.state(&good).await.state, CompletionState::Landed);
    for _ in 0..4 {
        assert_eq!(fixture.state(&broken).await.state, CompletionState::Queued);
        fixture.land().await;
    }
    let failed = fixture.state(&broken).await;
    assert_eq!((failed.state, failed.attempts), (CompletionState::Failed, 5));
    assert!(failed.error.unwrap().contains("is not in the store"));
}

pub(crate) async fn work_on_an_empty_project_lands(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[]).await;
    let mut workspace = fixture.workspace("agent", "w1").await;
    workspace.files.write("first.txt", "first\n").unwrap();
    fixture.complete(&mut workspace).await;
    fixture.land().await;
    assert_eq!(fixture.project.sequence, 1);
    assert_eq!(fixture.files().await["first.txt"], "first\n");
}

pub(crate) async fn a_rename_by_another_agent_does_not_move_a_change_to_a_protected_path(
    database: DatabaseKind,
) {
    let text: String = (0..20).map(|line| format!("line {line}\n")).collect();
    let mut fixture = Fixture::new(database, &[("draft.txt", &text)]).await;
    fixture.set_policy(json!({"rules": [{"agent": "writer", "path": "final/**", "access": "R"}]})).await;
    let mut writer = fixture.workspace("writer", "w1").await;
    let mut editor = fixture.workspace("editor", "w2").await;
    editor.files.mkdir("final").unwrap();
    editor.files.rename("draft.txt", "final/text.txt").unwrap();
    writer.files.write("draft.txt", text.replace("line 3\n", "changed\n")).unwrap();
    fixture.complete(&mut editor).await;
    let changed = fixture.complete(&mut writer).await;
    fixture.land().await;
    assert_eq!(fixture.files().await["final/text.txt"], text);
    let report = fixture.report(&changed).await;
    assert_eq!(report.refused.len(), 1, "{report:?}");
    assert_eq!(report.refused[0].path, "final/text.txt");
}

pub(crate) async fn a_git_repository_stays_in_its_workspace(database: DatabaseKind) {
    let mut fixture =
        Fixture::new(database, &[("a.txt", "one\n"), (".git/HEAD", "ref: refs/heads/main\n")]).await;
    assert_eq!(fixture.files().await.keys().collect::<Vec<_>>(), ["a.txt"]);
    let mut workspace = fixture.workspace("agent", "w1").await;
    workspace.files.write(".git/index", "index").unwrap();
    let only_git = fixture.complete(&mut workspace).await;
    fixture.land().await;
    let landed = fixture.state(&only_git).await;
    assert_eq!((landed.state, landed.sequence), (CompletionState::Landed, None));
    workspace.files.write(".git/index", "another").unwrap();
    workspace.files.write("a.txt", "two\n").unwrap();
    fixture.complete(&mut workspace).await;
    fixture.land().await;
    assert_eq!(
        fixture.files().await.into_iter().collect::<Vec<_>>(),
        [("a.txt".to_owned(), "two\n".to_owned())]
    );
    assert_eq!(fixture.project.sequence, 2);
}

pub(crate) async fn a_push_with_the_id_of_other_work_fails(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
    let base = fixture.projects.workspace_base(&fixture.project, "agent").await.unwrap();
    let push = async |agent: &str, content: &str| {
        let mut files = fixture.store.empty_tree().unwrap();
        files.write("a.txt", content).unwrap();
        let content = files.commit(new_client_snapshot()).unwrap().id;
        let (id, agent) = (Some("key".to_owned()), agent.to_owned());
        let new = DirectCompletion { id, agent, owner: None, base, content, message: String::new() };
        fixture.projects.complete_directly(&fixture.project, new).await
    };
    let first = push("agent", "two\n").await.unwrap();
    assert_eq!(push("agent", "two\n").await.unwrap().completion, first.completion);
    for (agent, content) in [("agent", "three\n"), ("other", "two\n")] {
        let refused = push(agent, content).await.unwrap_err();
        let is_conflict = matches!(refused, ProjectError::Catalog(CatalogError::IdempotencyConflict { .. }));
        assert!(is_conflict, "{refused:?}");
    }
    fixture.land().await;
    assert_eq!(fixture.files().await["a.txt"], "two\n");
}

/// Time of files that are older than all others, in nanoseconds since 1970.
const LONG_AGO: Timestamp = Timestamp(1_000_000_000);

/// Makes several agents change one file, and lands their completions in this order, each as a batch of its own, or all
/// at once. The files of later completions have older times. Returns the content that the head has then.
async fn content_after_conflicts(fixture: &mut Fixture, agents: &[&str], at_once: bool) -> String {
    let mut workspaces = Vec::new();
    for (number, agent) in agents.iter().enumerate() {
        let mut workspace = fixture.workspace(agent, &format!("{agent}-{}", fixture.project.sequence)).await;
        let modified = Some(Timestamp(LONG_AGO.0 - number as i64));
        let attributes = Attributes { mode: 0o644, modified, ..Attributes::default() };
        workspace.files.put_content("a.txt", format!("{agent}\n").into_bytes(), attributes).unwrap();
        workspaces.push(workspace);
    }
    for workspace in &mut workspaces {
        let completion = fixture.complete(workspace).await;
        if !at_once {
            fixture.land().await;
            assert_eq!(fixture.state(&completion).await.state, CompletionState::Landed);
        }
    }
    fixture.land().await;
    fixture.files().await["a.txt"].clone()
}

pub(crate) async fn the_last_writer_is_the_agent_that_completed_last_regardless_of_file_times(
    database: DatabaseKind,
) {
    for at_once in [false, true] {
        let mut fixture = Fixture::new(database, &[("a.txt", "base\n")]).await;
        fixture.set_policy(json!({"rules": [{"path": "**", "onConflict": "lww"}]})).await;
        assert_eq!(content_after_conflicts(&mut fixture, &["one", "two", "three"], at_once).await, "three\n");
        assert_eq!(content_after_conflicts(&mut fixture, &["three", "two", "one"], at_once).await, "one\n");
    }
}

pub(crate) async fn the_agent_with_the_highest_priority_wins_in_any_order_of_completions(
    database: DatabaseKind,
) {
    let rule = |agent: &str, priority: i64| json!({"agent": agent, "path": "**", "priority": priority});
    let by_priority = json!({"path": "**", "onConflict": "priority"});
    let rules = json!([by_priority, rule("boss", 10), rule("senior", 5), rule("junior", 1)]);
    for at_once in [false, true] {
        let mut fixture = Fixture::new(database, &[("a.txt", "base\n")]).await;
        fixture.set_policy(json!({ "rules": rules })).await;
        for agents in
            [["boss", "senior", "junior"], ["junior", "boss", "senior"], ["senior", "junior", "boss"]]
        {
            assert_eq!(
                content_after_conflicts(&mut fixture, &agents, at_once).await,
                "boss\n",
                "{agents:?} {at_once}"
            );
            fixture.replace_files(&[("a.txt", &format!("{agents:?}\n"))]).await;
        }
        // Among equals, the later one wins.
        assert_eq!(content_after_conflicts(&mut fixture, &["some", "other"], at_once).await, "other\n");
    }
}

/// Regression test: the daemon kept the lease, so the completions of the project waited until it ended.
pub(crate) async fn the_lease_of_a_project_is_released_if_it_cannot_be_renewed(database: DatabaseKind) {
    let fixture = Fixture::new(database, &[("a.txt", "1\n")]).await;
    let mut workspace = fixture.workspace("agent", "ws-1").await;
    workspace.files.write("a.txt", "2\n").unwrap();
    fixture.complete(&mut workspace).await;
    fixture.server().forbid_renewals_of_leases().await;
    fixture.daemon().land_all().await.unwrap();
    let leases = fixture.catalog.leases();
    let lease = leases.acquire(&format!("merge/{}", fixture.project.id), "server-2", 1000).await;
    assert!(lease.unwrap().is_some(), "the lease was released");
}
