//! Servers that are killed between the steps of an operation.

use std::path::{Path, PathBuf};
use std::thread;

use serde_json::json;
use workspace_catalog::{Catalog, NewAgentWorkspace, WorkspaceHead, sqlite_url};

use super::{Fixture, run};
use crate::real::test_server::{TIMEOUT, wait_until};
use crate::support::Call;

/// Runs work on the catalog of a server that does not run.
fn in_catalog<T>(data: &Path, work: impl AsyncFnOnce(&Catalog) -> T) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let catalog = Catalog::open(&sqlite_url(&data.join("catalog.db"))).await.unwrap();
        let done = work(&catalog).await;
        catalog.close().await;
        done
    })
}

/// Returns files of a project whose creation as a workspace takes a while.
fn many_files(content: &str) -> Vec<(String, String)> {
    (0..3_000).map(|n| (format!("d{}/f{n}", n % 50), format!("{content} {n}\n"))).collect()
}

fn import(fixture: &Fixture, files: &[(String, String)]) {
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
    fixture.import("website", &files);
}

/// Sends a request in the background. The server may be killed before it responds.
fn send_in_background(fixture: &Fixture, method: &str, path: &str, body: &str) -> thread::JoinHandle<()> {
    let call = Call::new(fixture.server.address(), method, &format!("/api/v1/{path}"));
    let call = call.key(&fixture.alice).json(body);
    thread::spawn(move || drop(call.try_send()))
}

#[test]
fn workspaces_and_their_changes_survive_a_killed_server() {
    let mut fixture = Fixture::new(&[("a", "a\n")]);
    let path = fixture.workspace("writer");
    run(&path, "echo b > b");
    let before = fixture.get("projects/website/workspaces/writer").json();
    fixture.server.kill();
    // The agent goes on while the server is down.
    run(&path, "echo c > c");
    std::fs::create_dir(path.ancestors().nth(3).unwrap().join("wsp-orphan")).unwrap();
    fixture.server.start();
    assert_eq!(fixture.get("projects/website/workspaces/writer").json(), before);
    assert_eq!(fixture.server.call("POST", "/api/v1/gc").send().status, 200);
    let id = before["id"].as_str().unwrap();
    assert_eq!(fixture.server.workspaces(), [id], "only the directory without a row is removed");
    assert_eq!(run(&path, "cat b c"), "b\nc\n");
    assert_eq!(fixture.changes("writer")["total"], 2);
    // A completion that was acknowledged lands, and is not applied again.
    let queued = fixture.post("projects/website/workspaces/writer/complete", &json!({}));
    assert_eq!(queued.status, 202, "{}", queued.body);
    fixture.server.restart();
    let landed = fixture.complete("writer");
    assert_eq!((&landed["id"], &landed["sequence"]), (&queued.json()["id"], &json!(2)), "{landed}");
    assert_eq!((fixture.sequence(), fixture.file("c")), (2, "c\n".to_owned()));
}

#[test]
fn a_creation_that_was_killed_leaves_nothing() {
    let mut fixture = Fixture::new(&[]);
    import(&fixture, &many_files("one"));
    let creation =
        send_in_background(&fixture, "POST", "projects/website/workspaces", r#"{"agent":"writer"}"#);
    let root = fixture.server.path().join("workspaces");
    let is_being_written = || {
        let trees = std::fs::read_dir(&root).unwrap().flatten().map(|entry| entry.path().join("1/tree"));
        trees.filter_map(|tree| std::fs::read_dir(tree).ok()).any(|mut entries| entries.next().is_some())
    };
    wait_until("files are written", is_being_written);
    fixture.server.kill();
    creation.join().unwrap();
    let rows = in_catalog(fixture.server.path(), async |catalog| {
        catalog.agent_workspaces().existing(&fixture.server.workspaces()).await.unwrap().len()
    });
    assert_eq!(rows, fixture.server.workspaces().len(), "each directory has a row");
    fixture.server.start();
    assert_eq!(fixture.server.workspaces(), [""; 0]);
    assert_eq!(fixture.get("projects/website/workspaces").json()["items"], json!([]));
    let path = fixture.workspace("writer");
    assert_eq!(run(&path, "cat d*/f* | wc -l").trim(), "3000");
}

#[test]
fn creations_and_removals_are_recovered_at_each_step() {
    let mut fixture = Fixture::new(&[("a", "a\n")]);
    let (kept, removed) = (fixture.workspace("kept"), fixture.workspace("removed"));
    let id =
        |path: &PathBuf| path.ancestors().nth(2).unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let project = fixture.get("projects/website").json();
    let text = |name: &str| project[name].as_str().unwrap().to_owned();
    let row = fixture.get("projects/website/workspaces/kept").json();
    let server = row["server"].as_str().unwrap().to_owned();
    fixture.server.kill();
    let new = |id: &str, agent: &str| NewAgentWorkspace {
        id: id.to_owned(),
        project: text("id"),
        agent: agent.to_owned(),
        owner: "alice".to_owned(),
        server: server.clone(),
        base: WorkspaceHead { snapshot: text("head"), sequence: 1, policy_version: 0 },
    };
    in_catalog(fixture.server.path(), async |catalog| {
        let workspaces = catalog.agent_workspaces();
        // Killed before the directory of one was made, while that of another was made, and before one was removed.
        workspaces.insert(&new("wsp-early", "early"), None).await.unwrap();
        workspaces.insert(&new("wsp-half", "half"), None).await.unwrap();
        workspaces.begin_removal(&id(&removed)).await.unwrap().unwrap();
        // Killed after one was removed, and before its row was.
        workspaces.insert(&new("wsp-late", "late"), None).await.unwrap();
        workspaces.begin_removal("wsp-late").await.unwrap().unwrap();
        // A workspace of another server, which must stay.
        let foreign = NewAgentWorkspace { server: "there".to_owned(), ..new("wsp-there", "there") };
        workspaces.insert(&foreign, None).await.unwrap();
    });
    let root = fixture.server.path().join("workspaces");
    std::fs::create_dir_all(root.join("wsp-half/1/tree")).unwrap();
    std::fs::write(root.join("wsp-half/1/tree/a"), "a").unwrap();
    fixture.server.start();
    assert_eq!(fixture.server.workspaces(), [id(&kept)]);
    let listed = fixture.get("projects/website/workspaces").json();
    let agents: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| &item["agent"]).collect();
    assert_eq!(agents, ["kept", "there"], "{listed}");
    assert_eq!(run(&kept, "cat a"), "a\n");
    for agent in ["early", "half", "removed", "late"] {
        fixture.workspace(agent);
    }
    for (method, path) in
        [("GET", "/changes"), ("POST", "/complete"), ("POST", "/rebase"), ("DELETE", "?discard=true")]
    {
        let elsewhere =
            fixture.send(&fixture.alice, method, &format!("projects/website/workspaces/there{path}"), None);
        assert_eq!((elsewhere.status, elsewhere.error().as_str()), (421, "WORKSPACE_ELSEWHERE"));
    }
    assert_eq!(fixture.get("projects/website/workspaces/there").json()["state"], "creating");
}

#[test]
fn a_move_that_was_killed_is_finished() {
    let mut fixture = Fixture::new(&[]);
    import(&fixture, &many_files("one"));
    let path = fixture.workspace("writer");
    import(&fixture, &many_files("two"));
    let sync = send_in_background(&fixture, "POST", "projects/website/sync", "{}");
    let has = |word: &str| run(&path, &format!("grep -rl {word} . | wc -l")).trim().parse::<u32>().unwrap();
    let began = std::time::Instant::now();
    while has("two") == 0 {
        assert!(began.elapsed() < TIMEOUT, "no file was replaced: {}", fixture.server.log());
    }
    fixture.server.kill();
    sync.join().unwrap();
    fixture.server.start();
    assert_eq!((has("one"), has("two")), (0, 3_000));
    let shown = fixture.get("projects/website/workspaces/writer").json();
    assert_eq!((&shown["state"], &shown["sequence"]), (&json!("ready"), &json!(3)), "{shown}");
    assert_eq!(fixture.changes("writer")["total"], 0);
    // The work after it is merged with the new base.
    run(&path, "echo mine > mine");
    assert_eq!(fixture.complete("writer")["sequence"], 4);
    assert_eq!(fixture.file("d1/f1"), "two 1\n");
}

#[test]
fn a_move_that_was_begun_keeps_changes_of_the_agent() {
    let mut fixture = Fixture::new(&[("a", "a\n"), ("b", "b\n")]);
    let (easy, hard) = (fixture.workspace("easy"), fixture.workspace("hard"));
    fixture.import("website", &[("a", "A\n"), ("b", "b\n")]);
    let project = fixture.get("projects/website").json();
    let ids: Vec<String> = ["easy", "hard"]
        .map(|agent| fixture.get(&format!("projects/website/workspaces/{agent}")).json()["id"].to_string())
        .map(|id| id.trim_matches('"').to_owned())
        .into();
    fixture.server.kill();
    let snapshot = project["head"].as_str().unwrap().to_owned();
    in_catalog(fixture.server.path(), async |catalog| {
        for id in &ids {
            let head = WorkspaceHead { snapshot: snapshot.clone(), sequence: 2, policy_version: 0 };
            catalog.agent_workspaces().begin_move(id, &head, None).await.unwrap().unwrap();
        }
    });
    run(&easy, "echo mine > b");
    run(&hard, "echo mine > a");
    fixture.server.start();
    let sequence = |agent: &str| {
        let shown = fixture.get(&format!("projects/website/workspaces/{agent}")).json();
        assert_eq!(shown["state"], "ready", "{shown}");
        shown["sequence"].as_u64().unwrap()
    };
    assert_eq!((sequence("easy"), run(&easy, "cat a b")), (2, "A\nmine\n".to_owned()));
    assert_eq!((sequence("hard"), run(&hard, "cat a b")), (1, "mine\nb\n".to_owned()));
    assert_eq!(fixture.complete("easy")["state"], "landed");
    assert_eq!(fixture.complete("hard")["state"], "in_review");
}
