//! Merging the changes in workspaces with the present head.

use std::process::{Child, Command};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Fixture, run};
use crate::real::test_server::wait_until;
use crate::support::{Answer, Call};

const TEXT: &str = "one\ntwo\nthree\nfour\nfive\nsix\n";
const PATH: &str = "projects/website/workspaces/writer/rebase";

pub(super) fn rebase(fixture: &Fixture) -> Value {
    let rebased = fixture.post(PATH, &json!({}));
    assert_eq!(rebased.status, 200, "{}", rebased.body);
    rebased.json()
}

fn set_policy(fixture: &Fixture, rules: &Value) {
    let set =
        fixture.send(&fixture.alice, "PUT", "projects/website/policy", Some(&json!({ "rules": rules })));
    assert_eq!(set.status, 200, "{}", set.body);
}

/// Returns the paths that the last change of the project changed.
fn last_change(fixture: &Fixture) -> Vec<String> {
    let diff = fixture.get("projects/website/diff").json();
    let entries = diff["entries"].as_array().unwrap();
    entries.iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
}

fn shown(fixture: &Fixture) -> Value {
    fixture.get("projects/website/workspaces/writer").json()
}

fn snapshots(fixture: &Fixture) -> usize {
    fixture.get("snapshots?limit=100").json()["items"].as_array().unwrap().len()
}

#[test]
fn edits_of_both_sides_are_merged_in_place() {
    let fixture = Fixture::new(&[("a.md", TEXT), ("d/b", "b\n"), ("gone", "gone\n")]);
    let path = fixture.workspace("writer");
    run(
        &path,
        "sed -i s/one/ONE/ a.md; echo mine > mine; rm d/b; mkdir .git; echo index > .git/index; mkfifo pipe",
    );
    fixture
        .import("website", &[("a.md", &TEXT.replace("six", "SIX")), ("d/b", "b\n"), ("theirs", "theirs\n")]);
    let inode = run(&path, "stat -c %i . mine");
    let owned = snapshots(&fixture);
    let rebased = rebase(&fixture);
    assert_eq!((&rebased["state"], &rebased["sequence"]), (&json!("rebased"), &json!(2)), "{rebased}");
    assert_eq!(rebased["merged"], json!([{"path": "a.md", "strategy": "text"}]));
    assert_eq!((&rebased["conflicts"], rebased.get("former")), (&json!([]), None));
    assert_eq!(rebased["workspace"], shown(&fixture));
    let head = fixture.get("projects/website").json()["head"].clone();
    let workspace = &rebased["workspace"];
    assert_eq!((&workspace["state"], &workspace["sequence"]), (&json!("ready"), &json!(2)), "{workspace}");
    assert_eq!(workspace["baseSnapshot"], head);
    let files = run(&path, "cat a.md theirs mine .git/index; ls; test -p pipe");
    assert_eq!(files, "ONE\ntwo\nthree\nfour\nfive\nSIX\ntheirs\nmine\nindex\na.md\nd\nmine\npipe\ntheirs\n");
    assert_eq!(run(&path, "stat -c %i . mine"), inode, "what did not change is not written again");
    assert_eq!(snapshots(&fixture), owned);
    // Compared with the files of the head, only the changes of the agent are left.
    let changes = fixture.changes("writer");
    let modified = changes["modified"].as_array().unwrap().iter().map(|entry| &entry["path"]);
    assert_eq!(modified.collect::<Vec<_>>(), [".git", ".git/index", "a.md", "mine"], "{changes}");
    assert_eq!((&changes["completed"], &changes["sequence"]), (&json!(false), &json!(2)));
    assert_eq!(fixture.server.call("POST", "/api/v1/gc").send().status, 200);
    let landed = fixture.complete("writer");
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(3)), "{landed}");
    assert_eq!(last_change(&fixture), ["a.md", "d/b", "mine"]);
    assert_eq!(fixture.file("a.md"), "ONE\ntwo\nthree\nfour\nfive\nSIX\n");
    // What was completed is not brought again.
    assert_eq!(rebase(&fixture)["state"], "current");
    fixture.import("website", &[("a.md", "new\n"), ("mine", "mine\n")]);
    assert_eq!(rebase(&fixture)["state"], "rebased");
    assert_eq!(run(&path, "cat a.md; ls"), "new\na.md\nmine\npipe\n");
    assert_eq!(fixture.changes("writer")["completed"], false, "`.git` is not a file of the project");
    run(&path, "rm -r .git");
    assert_eq!(fixture.changes("writer")["completed"], true);
}

#[test]
fn a_workspace_with_everything_of_the_head_is_current() {
    let fixture = Fixture::new(&[("a", "a\n")]);
    let path = fixture.workspace("writer");
    run(&path, "echo mine > mine");
    let before = shown(&fixture);
    let rebased = rebase(&fixture);
    assert_eq!((&rebased["state"], &rebased["sequence"]), (&json!("current"), &json!(1)), "{rebased}");
    assert_eq!((&rebased["workspace"], shown(&fixture)), (&before, before.clone()));
    assert_eq!(fixture.changes("writer")["total"], 1);
    assert_eq!(run(&path, "cat a mine"), "a\nmine\n");
}

#[test]
fn a_conflict_leaves_everything_as_it_was() {
    let fixture = Fixture::new(&[("a", "a\n"), ("b", "b\n")]);
    let path = fixture.workspace("writer");
    run(&path, "echo mine > a; echo mine > mine");
    fixture.import("website", &[("a", "theirs\n"), ("b", "B\n")]);
    let (before, owned) = (shown(&fixture), snapshots(&fixture));
    let conflicted = rebase(&fixture);
    assert_eq!(
        (&conflicted["state"], &conflicted["sequence"]),
        (&json!("conflicts"), &json!(2)),
        "{conflicted}"
    );
    assert_eq!(conflicted["conflicts"], json!([{"path": "a", "class": "content"}]));
    assert_eq!((&conflicted["workspace"], &conflicted["merged"]), (&before, &json!([])));
    assert_eq!((run(&path, "cat a b; ls"), shown(&fixture)), ("mine\nb\na\nb\nmine\n".to_owned(), before));
    assert_eq!(snapshots(&fixture), owned);
    // After the completion, the conflict waits as a review, and the file is as the project has it.
    assert_eq!(fixture.complete("writer")["state"], "in_review");
    assert_eq!(rebase(&fixture)["state"], "rebased");
    assert_eq!(run(&path, "cat a b mine"), "theirs\nB\nmine\n");
    assert_eq!(fixture.changes("writer")["total"], 0);
}

#[test]
fn refused_changes_are_taken_back_and_hidden_files_do_not_appear() {
    let fixture = Fixture::new(&[("a", "a\n"), ("fixed", "fixed\n"), ("secret/b", "b\n")]);
    set_policy(
        &fixture,
        &json!([
            {"agent": "writer", "path": "secret/**", "access": "none"},
            {"agent": "writer", "path": "fixed", "access": "R"},
        ]),
    );
    let writer = fixture.agent_key(&["website"], &["writer"]);
    let path = fixture.workspace("writer");
    run(&path, "echo mine > mine; echo mine > fixed; mkdir secret; echo mine > secret/b");
    let refused = fixture.complete("writer");
    assert_eq!(refused["refused"].as_array().unwrap().len(), 3, "{refused}");
    let rebased = fixture.send(&writer, "POST", PATH, None);
    assert_eq!((rebased.status, &rebased.json()["state"]), (200, &json!("rebased")), "{}", rebased.body);
    assert_eq!(run(&path, "cat fixed mine; find . -type f | sort"), "fixed\nmine\n./a\n./fixed\n./mine\n");
    // A change of hidden files is no newer head for the agent, and its sequence does not count it.
    fixture.import("website", &[("a", "a\n"), ("fixed", "fixed\n"), ("mine", "mine\n"), ("secret/c", "c\n")]);
    let rebased = fixture.send(&writer, "POST", PATH, None).json();
    assert_eq!((&rebased["state"], &rebased["sequence"]), (&json!("current"), &json!(2)), "{rebased}");
    fixture.import("website", &[("a", "A\n"), ("fixed", "fixed\n"), ("mine", "mine\n"), ("secret/c", "C\n")]);
    let rebased = fixture.send(&writer, "POST", PATH, None).json();
    assert_eq!((&rebased["state"], &rebased["sequence"]), (&json!("rebased"), &json!(3)), "{rebased}");
    assert_eq!(rebased["workspace"]["sequence"], 3);
    assert_eq!(run(&path, "cat a; find . -type f | sort"), "A\n./a\n./fixed\n./mine\n");
    // Files that are hidden by now go away.
    let hidden = |path: &str| json!({"agent": "writer", "path": path, "access": "none"});
    set_policy(&fixture, &json!([hidden("secret/**"), hidden("fixed")]));
    assert_eq!(rebase(&fixture)["state"], "rebased");
    assert_eq!(run(&path, "find . -type f | sort"), "./a\n./mine\n");
}

#[test]
fn a_version_that_a_rule_drops_is_kept() {
    let fixture = Fixture::new(&[("a", "a\n")]);
    set_policy(&fixture, &json!([{"path": "a", "onConflict": "ours"}]));
    let path = fixture.workspace("writer");
    run(&path, "echo mine > a");
    fixture.import("website", &[("a", "theirs\n")]);
    let rebased = rebase(&fixture);
    assert_eq!(
        (&rebased["state"], run(&path, "cat a")),
        (&json!("rebased"), "theirs\n".to_owned()),
        "{rebased}"
    );
    let former = rebased["former"].as_str().unwrap();
    assert_eq!(fixture.get(&format!("snapshots/{former}/files/a")).body, "mine\n");
}

/// Sends the request in the background.
fn rebase_in_background(fixture: &Fixture) -> thread::JoinHandle<Answer> {
    let call = Call::new(fixture.server.address(), "POST", &format!("/api/v1/{PATH}"));
    let call = call.key(&fixture.alice);
    thread::spawn(move || call.send())
}

/// Waits until a failpoint has stopped the server, runs a script in a workspace, and lets the server continue.
fn at_stop(fixture: &Fixture, work: impl FnOnce()) {
    let stat = format!("/proc/{}/stat", fixture.server.pid());
    wait_until("the server is stopped", || {
        std::fs::read_to_string(&stat).unwrap().rsplit(") ").next().unwrap().starts_with('T')
    });
    work();
    fixture.server.signal(Signal::CONT);
}

/// Changes a file of a workspace while a rebase is at a step. Returns the answer and the content of both files.
fn edit_at(step: &str, script: &str) -> (Value, String) {
    let mut fixture = Fixture::new(&[("a.md", TEXT), ("d/b.md", TEXT), ("n.crdt.json", "{\"n\": 0}\n")]);
    set_policy(&fixture, &json!([{"path": "*.crdt.json", "strategy": "crdt", "schema": {"n": "counter"}}]));
    let made =
        fixture.post("projects/website/workspaces", &json!({"agent": "writer", "provider": "copy"})).json();
    let path = std::path::PathBuf::from(made["path"].as_str().unwrap());
    run(&path, "sed -i s/one/ONE/ a.md d/b.md; echo '{\"n\": 1}' > n.crdt.json");
    let theirs = TEXT.replace("six", "SIX");
    fixture.import("website", &[("a.md", &theirs), ("d/b.md", &theirs), ("n.crdt.json", "{\"n\": 10}\n")]);
    fixture.server.kill();
    fixture.server.set("WORKSPACE_FAILPOINT", &format!("{step}=stop"));
    fixture.server.start();
    let answer = rebase_in_background(&fixture);
    at_stop(&fixture, || drop(run(&path, script)));
    let answer = answer.join().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    (answer.json(), run(&path, "cat a.md d/b.md n.crdt.json | tr -d ' \\n'"))
}

#[test]
fn a_file_that_a_process_changes_meanwhile_is_not_overwritten() {
    for step in ["files-read", "rebase-merged", "move-begun", "move-committed", "checkout-started"] {
        let (answer, content) = edit_at(step, "sed -i s/two/TWO/ a.md");
        assert_eq!(answer["state"], "rebased", "{step}: {answer}");
        assert_eq!(content, "ONETWOthreefourfiveSIXONEtwothreefourfiveSIX{\"n\":11}", "{step}");
        let (answer, content) = edit_at(step, "sed -i s/six/mine/ a.md");
        assert_eq!(answer["conflicts"], json!([{"path": "a.md", "class": "content"}]), "{step}: {answer}");
        assert_eq!(content, "ONEtwothreefourfivemineONEtwothreefourfivesix{\"n\":1}", "{step}");
    }
}

/// The files of the root are replaced before those of its directories.
#[test]
fn a_rebase_that_finds_a_change_halfway_is_undone_and_repeated() {
    let (answer, content) = edit_at("checkout-file", "sed -i s/two/TWO/ d/b.md");
    assert_eq!(answer["state"], "rebased", "{answer}");
    assert_eq!(content, "ONEtwothreefourfiveSIXONETWOthreefourfiveSIX{\"n\":11}");
    let (answer, content) = edit_at("checkout-file", "sed -i s/six/mine/ d/b.md");
    assert_eq!(answer["conflicts"], json!([{"path": "d/b.md", "class": "content"}]), "{answer}");
    assert_eq!(content, "ONEtwothreefourfivesixONEtwothreefourfivemine{\"n\":1}");
}

/// Process that keeps writing to a workspace until it is dropped.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn nothing_that_a_running_process_writes_is_lost() {
    let fixture = Fixture::new(&[("a", "0\n"), ("log", "")]);
    let path = fixture.workspace("writer");
    let mut writer = Command::new("sh");
    let script = "i=0; while :; do i=$((i+1)); echo $i >> log; [ $((i%200)) != 0 ] || sleep 0.5; done";
    let writer = Writer(writer.args(["-c", script]).current_dir(&path).spawn().unwrap());
    for round in 1..=4 {
        fixture.import("website", &[("a", &format!("{round}\n")), ("log", ""), ("theirs", "theirs\n")]);
        wait_until("it is rebased", || {
            let answer = fixture.post(PATH, &json!({}));
            match answer.status {
                200 => assert_eq!(answer.json()["state"], "rebased", "{}", answer.body),
                _ => assert_eq!(answer.error(), "WORKSPACE_CHANGING", "{}", answer.body),
            }
            answer.status == 200
        });
        assert_eq!(run(&path, "cat a"), format!("{round}\n"));
    }
    drop(writer);
    assert_eq!(run(&path, "seq $(wc -l < log) | cmp - log && echo complete"), "complete\n");
    let log = run(&path, "cat log");
    assert_eq!(fixture.complete("writer")["state"], "landed");
    assert_eq!((fixture.file("log"), fixture.file("a")), (log, "4\n".to_owned()));
}

#[test]
fn rebases_of_the_same_workspace_and_other_requests_exclude_each_other() {
    let fixture = Fixture::new(&[("a", "a\n")]);
    let path = fixture.workspace("writer");
    run(&path, "echo mine > mine");
    fixture.import("website", &[("a", "A\n")]);
    let mut states: Vec<String> = thread::scope(|scope| {
        let sent: Vec<_> = (0..4).map(|_| scope.spawn(|| rebase(&fixture)["state"].to_string())).collect();
        let synced = scope.spawn(|| fixture.post("projects/website/sync", &json!({})).json());
        let states = sent.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(synced.join().unwrap()["total"], 1);
        states
    });
    states.sort();
    assert_eq!(states, ["\"current\"", "\"current\"", "\"current\"", "\"rebased\""]);
    assert_eq!(run(&path, "cat a mine"), "A\nmine\n");
    assert_eq!(
        fixture.post("projects/website/workspaces/nobody/rebase", &json!({})).error(),
        "WORKSPACE_NOT_FOUND"
    );
}
