//! Reviews: list, show, and every way to resolve them.

use std::fs;

use crate::server::Server;
use crate::support::Ran;

/// Starts a server with a project in which the changes of two agents to these files conflict. Returns the ids of the
/// reviews in the order of the files.
fn conflicts(files: &[&str]) -> Option<(Server, Vec<String>)> {
    let server = Server::start()?;
    let site = server.place.path("site");
    fs::create_dir(&site).unwrap();
    for file in files {
        fs::write(site.join(file), "first\nmiddle\nlast\n").unwrap();
    }
    server.ok(&["project", "create", "website"]);
    server.ok(&["project", "import", "website", site.to_str().unwrap()]);
    for agent in ["writer", "editor"] {
        server.ok(&["sandbox", "create", "--name", agent, "--project", "website", "--agent", agent]);
        let change = format!("sed -i 's/middle/by the {agent}/' *");
        server.ok(&["exec", agent, "--", "sh", "-c", &change]);
    }
    server.ok(&["complete", "writer", "-m", "write"]);
    assert_eq!(server.run(&["complete", "editor", "-m", "edit"]).status, 3);
    let ids = server.json(&["review", "ls", "website"]);
    let ids = ids.iter().map(|review| review["id"].as_str().unwrap().to_owned()).collect();
    Some((server, ids))
}

fn content(server: &Server, file: &str) -> String {
    let copy = server.place.path(format!("copy-{}", unique_number()));
    server.ok(&["project", "export", "website", copy.to_str().unwrap()]);
    fs::read_to_string(copy.join(file)).unwrap_or_default()
}

/// Returns a number that no other call returns.
fn unique_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Resolves a review in an editor.
fn edit(server: &Server, review: &str, editor: &str) -> Ran {
    let mut command = server.workspace(&["review", "resolve", "website", review, "--edit"]);
    Ran::of(&command.env_remove("VISUAL").env("EDITOR", editor).output().unwrap())
}

#[test]
fn reviews_are_listed_and_shown_side_by_side() {
    let Some((server, ids)) = conflicts(&["a.txt", "b.txt"]) else { return };
    let list = server.ok(&["review", "ls", "website"]);
    let rows: Vec<&str> = list.lines().collect();
    assert!(
        rows[0].starts_with("ID") && rows[1].starts_with(&ids[0]) && rows[1].ends_with("a.txt"),
        "{list}"
    );
    assert!(rows[1].contains("open") && rows[1].contains("content") && rows[1].contains("editor"), "{list}");
    assert_eq!(server.json(&["review", "ls", "website", "--path", "b.txt"]).len(), 1);
    assert_eq!(server.json(&["review", "ls", "website", "--state", "resolved"]).len(), 0);
    let shown = server.ok(&["review", "show", "website", &ids[0]]);
    for words in [
        "path        a.txt\n",
        "agent       editor\n",
        "head changed by: writer (merge as sequence 2)  write\n",
        "conflict in lines 2 of base, 2 of ours, 2 of theirs\n",
        "--ours, --theirs",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let row = shown.lines().find(|line| line.contains("by the writer")).unwrap();
    assert!(row.contains(" | by the editor"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "no colours in a file: {shown}");
    assert_eq!(
        server.ok(&["review", "show", "website", &ids[0], "--side", "theirs"]),
        "first\nby the editor\nlast\n"
    );
    assert_eq!(server.json(&["review", "show", "website", &ids[0]])[0]["theirs"]["present"], true);
    let missing = server.run(&["review", "show", "website", "rev-x"]);
    assert!(missing.stderr.contains("hint: `workspace review ls PROJECT`"), "{}", missing.stderr);
}

#[test]
fn reviews_are_resolved_by_options() {
    let Some((server, ids)) = conflicts(&["a.txt", "b.txt", "c.txt", "d.txt"]) else { return };
    let resolve =
        |id: &str, words: &[&str]| server.run(&[&["review", "resolve", "website", id], words].concat());
    assert_eq!(resolve(&ids[0], &[]).status, 2, "a choice is needed");
    assert_eq!(resolve(&ids[0], &["--ours", "--theirs"]).status, 2, "only one");
    let strategy = resolve(&ids[0], &["--strategy", "text"]);
    assert!(strategy.stderr.contains("cannot merge `a.txt`"), "{}", strategy.stderr);
    assert_eq!(resolve(&ids[0], &["--ours"]).stdout, "resolved a.txt; the head stays as it is\n");
    assert_eq!(resolve(&ids[1], &["--theirs", "-m", "better"]).stdout, "resolved b.txt as sequence 3\n");
    assert_eq!(content(&server, "b.txt"), "first\nby the editor\nlast\n");
    let file = server.place.path("new.txt");
    fs::write(&file, "by hand\n").unwrap();
    assert_eq!(resolve(&ids[2], &["--file", file.to_str().unwrap()]).status, 0);
    assert_eq!(content(&server, "c.txt"), "by hand\n");
    let done = server.json(&["review", "resolve", "website", &ids[3], "--delete"]);
    assert_eq!(done[0]["review"]["resolution"]["choice"], "delete");
    assert_eq!(content(&server, "d.txt"), "");
    let again = resolve(&ids[3], &["--ours"]);
    assert!(again.stderr.contains("already") && again.stderr.contains("hint:"), "{}", again.stderr);
    assert_eq!(server.ok(&["review", "ls", "website"]), "");
    assert_eq!(server.json(&["review", "ls", "website", "--all"]).len(), 4);
}

#[test]
fn a_review_is_resolved_in_an_editor() {
    let Some((server, ids)) = conflicts(&["a.txt"]) else { return };
    let unchanged = edit(&server, &ids[0], "true");
    assert!(unchanged.stderr.contains("was not changed"), "{}", unchanged.stderr);
    let failed = edit(&server, &ids[0], "false");
    assert!(failed.stderr.contains("the editor `false` failed"), "{}", failed.stderr);
    let marked = edit(&server, &ids[0], "sed -i '1i more'");
    assert!(marked.stderr.contains("is a conflict marker"), "{}", marked.stderr);
    let kept = marked.stderr.split('`').find(|word| word.ends_with("/a.txt")).unwrap();
    let text = fs::read_to_string(kept).unwrap();
    assert!(
        text.contains("<<<<<<< head\nby the writer\n") && text.contains("by the editor\n>>>>>>> agent\n"),
        "{text}"
    );
    fs::remove_dir_all(std::path::Path::new(kept).parent().unwrap()).unwrap();
    // Another change of the file while the editor is open is not overwritten, and the text is not lost.
    let other = server.place.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("a.txt"), "later\n").unwrap();
    let (program, url) = (env!("CARGO_BIN_EXE_workspace"), server.url());
    let editor = format!(
        "f() {{ {program} project import website {} --server {url} >&2; sed -i '/^[<|=>]/d' \"$1\"; }}; f",
        other.display()
    );
    let outdated = edit(&server, &ids[0], &editor);
    assert!(outdated.stderr.contains("another version of `a.txt`"), "{}", outdated.stderr);
    let kept = outdated.stderr.split('`').find(|word| word.ends_with("/a.txt")).unwrap();
    fs::remove_dir_all(std::path::Path::new(kept).parent().unwrap()).unwrap();
    let done = edit(&server, &ids[0], "sed -i '/^[<|=>]/d'");
    assert_eq!(done.stdout, "resolved a.txt as sequence 4\n", "{}", done.stderr);
    assert!(content(&server, "a.txt").contains("later\n"));
}
