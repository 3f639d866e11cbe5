//! Projects in ordinary directories: clone, status, pull, push.

use std::fs;
use std::path::{Path, PathBuf};

use crate::server::Server;
use crate::support::Ran;

/// Server with a project `site`, and two clones of it.
struct Fixture {
    server: Server,
    first: PathBuf,
    second: PathBuf,
}

const PAGE: &str = "one\n\ntwo\n\nthree\n";

impl Fixture {
    fn new() -> Self {
        let server = Server::without_sandboxes(&[]);
        let files = server.place.path("files");
        fs::create_dir_all(files.join("docs")).unwrap();
        fs::write(files.join("page.md"), PAGE).unwrap();
        fs::write(files.join("docs/a.md"), "a\n").unwrap();
        server.ok(&["project", "create", "site"]);
        server.ok(&["project", "import", "site", text(&files)]);
        let (first, second) = (server.place.path("first"), server.place.path("second"));
        for clone in [&first, &second] {
            server.ok(&["project", "clone", "site", text(clone)]);
        }
        Self { server, first, second }
    }

    fn status(&self, directory: &Path) -> String {
        self.server.ok(&["project", "status", text(directory)])
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Lets the server show the project to the agent `guest` without `docs`, and returns a key of this agent.
fn key_of_guest(server: &Server) -> String {
    let policy = server.place.path("policy.json");
    fs::write(&policy, r#"{"rules": [{"agent": "guest", "path": "docs/**", "access": "none"}]}"#).unwrap();
    server.ok(&["policy", "set", "site", text(&policy)]);
    let owner = server.json(&["project", "show", "site"])[0]["owner"].as_str().unwrap().to_owned();
    let create = ["key", "create", "guest", "--owner", &owner, "--role", "agent", "--project", "site"];
    server.json(&create)[0]["key"].as_str().unwrap().to_owned()
}

#[test]
fn an_agent_works_in_a_directory_with_a_key_of_its_own() {
    let Fixture { server, first, .. } = &Fixture::new();
    let key = key_of_guest(server);
    let guest =
        |words: &[&str]| Ran::of(&server.workspace(words).env("WORKSPACE_API_KEY", &key).output().unwrap());
    let own = server.place.path("own");
    let cloned = guest(&["project", "clone", "site", text(&own)]);
    assert_eq!(cloned.status, 0, "{}", cloned.stderr);
    assert!(own.join("page.md").exists() && !own.join("docs").exists());
    // A change that the agent does not see does not count for it.
    fs::write(first.join("docs/a.md"), "changed\n").unwrap();
    assert_eq!(server.ok(&["project", "push", text(first)]), "landed as sequence 2\nat sequence 2\n");
    edit(&own, "two", "TWO");
    assert_eq!(
        guest(&["project", "status", text(&own)]).stdout,
        "site at sequence 1, the head\nmodified     page.md\n"
    );
    let pushed = guest(&["project", "push", text(&own), "-m", "from the guest"]);
    assert_eq!(pushed.stdout, "landed as sequence 2\nat sequence 2\n", "{}", pushed.stderr);
    assert_eq!(guest(&["project", "diff", "site"]).stdout, "modified     page.md\n");
    let log = &server.json(&["project", "log", "site"])[0];
    assert_eq!(
        (&log["author"], &log["message"], &log["sequence"]),
        (&"guest".into(), &"from the guest".into(), &3.into())
    );
    // Files that the agent adds where it sees nothing are refused.
    fs::create_dir(own.join("docs")).unwrap();
    fs::write(own.join("docs/a.md"), "mine\n").unwrap();
    let refused = guest(&["project", "push", text(&own)]);
    assert!(refused.stdout.contains("refused   docs/a.md: "), "{}", refused.stdout);
    assert_eq!(server.ok(&["project", "pull", text(first)]), "at sequence 3\n");
    assert_eq!(fs::read_to_string(first.join("docs/a.md")).unwrap(), "changed\n");
}

fn edit(directory: &Path, from: &str, to: &str) {
    let page = directory.join("page.md");
    let content = fs::read_to_string(&page).unwrap();
    fs::write(page, content.replace(from, to)).unwrap();
}

#[test]
fn two_directories_of_a_project_exchange_changes() {
    let fixture = Fixture::new();
    let Fixture { server, first, second } = &fixture;
    assert_eq!(fs::read_to_string(first.join("page.md")).unwrap(), PAGE);
    assert_eq!(fixture.status(first), "site at sequence 1, the head\n");
    edit(first, "one", "ONE");
    fs::remove_file(first.join("docs/a.md")).unwrap();
    fs::write(first.join("new.md"), "new\n").unwrap();
    let status = fixture.status(&first.join("docs"));
    for line in ["removed      docs/a.md", "added        new.md", "modified     page.md"] {
        assert!(status.contains(line), "{status}");
    }
    let pushed = server.ok(&["project", "push", text(first), "-m", "from the first"]);
    assert_eq!(pushed, "landed as sequence 2\nat sequence 2\n");
    assert_eq!(fixture.status(first), "site at sequence 2, the head\n");
    edit(second, "three", "THREE");
    assert!(fixture.status(second).starts_with("site at sequence 1; the head has 2\n"));
    assert_eq!(server.ok(&["project", "pull", text(second)]), "at sequence 2\n");
    assert_eq!(fs::read_to_string(second.join("page.md")).unwrap(), "ONE\n\ntwo\n\nTHREE\n");
    assert!(second.join("new.md").exists() && !second.join("docs/a.md").exists());
    assert_eq!(fixture.status(second), "site at sequence 2, the head\nmodified     page.md\n");
    // The first changes the same file meanwhile: the push merges both, and brings the result back.
    edit(first, "two", "TWO");
    fs::create_dir_all(first.join(".git")).unwrap();
    fs::write(first.join(".git/config"), "c\n").unwrap();
    server.ok(&["project", "push", text(second), "-m", "from the second"]);
    let pushed = server.ok(&["project", "push", text(first), "--agent", "writer"]);
    assert_eq!(pushed, "landed as sequence 4\nat sequence 4\n");
    assert_eq!(fs::read_to_string(first.join("page.md")).unwrap(), "ONE\n\nTWO\n\nTHREE\n");
    assert_eq!(server.ok(&["project", "push", text(first)]), "nothing changed\n");
    let log = server.json(&["project", "log", "site"]);
    assert_eq!((&log[0]["author"], &log[0]["base"]), (&"writer".into(), &2.into()));
    // Nothing of the directories themselves entered the project.
    let copy = server.place.path("copy");
    server.ok(&["project", "export", "site", text(&copy)]);
    assert!(!copy.join(".workspace").exists() && !copy.join(".git").exists());
}

#[test]
fn a_pull_that_conflicts_changes_nothing_unless_markers_are_wanted() {
    let fixture = Fixture::new();
    let Fixture { server, first, second } = &fixture;
    edit(first, "two", "first");
    fs::write(first.join("other.md"), "o\n").unwrap();
    server.ok(&["project", "push", text(first)]);
    edit(second, "two", "second");
    let refused = server.run(&["project", "pull", text(second)]);
    assert_ne!(refused.status, 0);
    assert_eq!(refused.stdout, "conflict  page.md (content)\nat sequence 1\n");
    assert!(refused.stderr.contains("nothing was changed") && refused.stderr.contains("hint: "));
    assert_eq!(fs::read_to_string(second.join("page.md")).unwrap(), "one\n\nsecond\n\nthree\n");
    assert!(!second.join("other.md").exists());
    assert!(fixture.status(second).starts_with("site at sequence 1; the head has 2\n"));
    let marked = server.run(&["project", "pull", text(second), "--conflicts=markers"]);
    assert_eq!(marked.stdout, "conflict  page.md (content)\nat sequence 2\n", "{}", marked.stderr);
    let page = fs::read_to_string(second.join("page.md")).unwrap();
    assert_eq!(page, "one\n\n<<<<<<< directory\nsecond\n=======\nfirst\n>>>>>>> head\n\nthree\n");
    assert!(second.join("other.md").exists());
    fs::write(second.join("page.md"), "one\n\nboth\n\nthree\n").unwrap();
    assert_eq!(server.ok(&["project", "push", text(second)]), "landed as sequence 3\nat sequence 3\n");
}

#[test]
fn a_push_with_conflicts_leaves_the_directory_as_it_is() {
    let fixture = Fixture::new();
    let Fixture { server, first, second } = &fixture;
    edit(first, "two", "first");
    server.ok(&["project", "push", text(first)]);
    edit(second, "two", "second");
    fs::write(second.join("new.md"), "n\n").unwrap();
    let pushed = server.run(&["project", "push", text(second)]);
    assert_eq!(pushed.stdout, "landed as sequence 3, with conflicts\nconflict  page.md (content)\n");
    assert_ne!(pushed.status, 0);
    assert_eq!(fs::read_to_string(second.join("page.md")).unwrap(), "one\n\nsecond\n\nthree\n");
    // The same push again is the same completion.
    let again = server.run(&["project", "push", text(second)]);
    assert_eq!(again.stdout, pushed.stdout);
    assert_eq!(server.json(&["project", "log", "site"]).len(), 3);
    // Uploads are removed.
    assert_eq!(server.json(&["project", "show", "site"])[0]["sequence"], 3);
}

#[test]
fn an_empty_project_is_cloned_and_filled() {
    let server = Server::without_sandboxes(&[]);
    server.ok(&["project", "create", "empty"]);
    let clone = server.place.path("clone");
    server.ok(&["project", "clone", "empty", text(&clone)]);
    fs::write(clone.join("a"), "a\n").unwrap();
    assert_eq!(server.ok(&["project", "push", text(&clone)]), "landed as sequence 1\nat sequence 1\n");
    let again = server.run(&["project", "clone", "empty", text(&clone)]);
    assert!(again.stderr.contains("is not empty"), "{}", again.stderr);
    let outside = server.run(&["project", "status", text(&server.place.path("."))]);
    assert!(outside.stderr.contains("is in no project"), "{}", outside.stderr);
}

#[test]
fn the_record_of_a_directory_does_not_decide_which_server_gets_the_key() {
    let fixture = Fixture::new();
    let record = fixture.first.join(".workspace/project.json");
    let content = fs::read_to_string(&record).unwrap();
    fs::write(&record, content.replace(&fixture.server.url(), "http://127.0.0.1:9")).unwrap();
    for command in ["status", "pull", "push"] {
        edit(&fixture.first, "one", "ONE");
        let refused = fixture.server.run(&["project", command, text(&fixture.first)]);
        assert!(refused.stderr.contains("hint: if you trust that server"), "{}", refused.stderr);
    }
    fs::write(&record, "{").unwrap();
    let damaged = fixture.server.run(&["project", "status", text(&fixture.first)]);
    assert!(damaged.stderr.contains("is damaged"), "{}", damaged.stderr);
}

#[test]
fn an_interrupted_pull_is_told_by_status_and_finished_by_the_next() {
    let fixture = Fixture::new();
    let Fixture { server, first, second } = &fixture;
    edit(first, "one", "ONE");
    fs::write(first.join("new.md"), "new\n").unwrap();
    server.ok(&["project", "push", text(first)]);
    // A pull that was killed after one of two files: the record still has the old base.
    fs::write(second.join("new.md"), "new\n").unwrap();
    assert_eq!(fixture.status(second), "site at sequence 1; the head has 2\nadded        new.md\n");
    assert_eq!(server.ok(&["project", "pull", text(second)]), "at sequence 2\n");
    assert_eq!(fixture.status(second), "site at sequence 2, the head\n");
    assert_eq!(fs::read_to_string(second.join("page.md")).unwrap(), "ONE\n\ntwo\n\nthree\n");
}
