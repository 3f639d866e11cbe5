//! Workspaces of sandboxes on a server: initial content, commits, forks.

use crate::server::Server;

/// A server with a sandbox `work` that began with the project.
fn server() -> Option<Server> {
    let server = Server::start()?;
    server.place.write("project/README.md", "# A project\n");
    server.place.write("project/src/main.rs", "fn main() {}\n");
    server.place.write("project/.workspaceignore", "target/\n");
    server.place.write("project/target/object", "built\n");
    server.ok(&["sandbox", "create", "--name", "work", "--dir", "project"]);
    Some(server)
}

#[test]
fn a_sandbox_begins_with_a_directory_without_what_is_ignored() {
    let Some(server) = server() else { return };
    assert_eq!(
        server.ok(&["exec", "work", "--", "find", ".", "-type", "f", "-name", "[a-zR]*"]).lines().count(),
        2
    );
    assert_eq!(server.ok(&["exec", "work", "--", "cat", "README.md"]), "# A project\n");
    let made = server.json(&["sandbox", "get", "work"]).remove(0);
    let shown = server.ok(&["sandbox", "get", "work"]);
    assert!(shown.contains(&format!("snapshot    {}", made["snapshot"].as_str().unwrap())), "{shown}");
    let ran = server.run(&["sandbox", "create", "--dir", "nowhere"]);
    assert!(ran.status == 1 && ran.stderr.contains("nowhere"), "{}", ran.stderr);
}

#[test]
fn a_sandbox_is_committed_restored_forked_and_compared() {
    let Some(server) = server() else { return };
    assert_eq!(server.ok(&["sandbox", "changes", "work"]), "");
    server.ok(&[
        "exec",
        "work",
        "--",
        "sh",
        "-c",
        "echo more >> README.md; rm -r src; echo new > new; chmod 600 new",
    ]);
    let listed = "modified     README.md\nadded        new\nremoved      src/\nremoved      src/main.rs\n";
    assert_eq!(server.ok(&["sandbox", "changes", "work"]), listed);
    let insight = server.ok(&["sandbox", "changes", "work", "--insight"]);
    assert!(
        insight.contains("modified     README.md  +1 -0\n") && insight.contains("1 added, 2 removed"),
        "{insight}"
    );
    assert_eq!(server.json(&["sandbox", "changes", "work"])[0]["total"], 4);
    let patch = server.ok(&["sandbox", "diff", "work"]);
    assert!(patch.contains("+more\n") && patch.contains("-fn main() {}\n"), "{patch}");
    let first =
        server.ok(&["sandbox", "commit", "work", "-m", "changed", "--label", "step=1"]).trim_end().to_owned();
    let committed = server.json(&["sandbox", "commit", "work", "--buffered"]).remove(0);
    assert_eq!(committed["snapshot"]["parents"][0], first.as_str(), "{committed}");
    let forks =
        server.ok(&["sandbox", "fork", "work", "--count", "2", "--timeout", "10m", "--label", "try=1"]);
    assert_eq!(forks.lines().count(), 2);
    for fork in forks.lines() {
        assert_eq!(server.ok(&["exec", fork, "--", "cat", "new"]), "new\n");
    }
    assert_eq!(server.json(&["sandbox", "ls", "--label", "try=1"]).len(), 2);

    let base = server.json(&["sandbox", "get", forks.lines().next().unwrap()])[0]["snapshot"].clone();
    server.ok(&["exec", "work", "--", "sh", "-c", "rm README.md"]);
    server.ok(&["exec", "-d", "work", "--", "sh", "-c", "mkdir deep; cd deep; exec sleep 1000"]);
    let sleeps = "until cat /proc/[0-9]*/comm | grep -qx sleep; do :; done";
    server.ok(&["exec", "work", "--", "sh", "-c", sleeps]);
    let ran = server.run(&["sandbox", "restore", "work", &first, "--no-force"]);
    assert!(ran.status == 1 && ran.stderr.contains("sleep"), "{}", ran.stderr);
    let ran = server.run(&["sandbox", "restore", "work", &first]);
    assert!(
        ran.status == 0 && ran.stderr.contains("note: killed ") && ran.stderr.contains("sleep"),
        "{}",
        ran.stderr
    );
    assert_eq!(server.ok(&["exec", "work", "--", "cat", "README.md"]), "# A project\nmore\n");
    assert_eq!(server.ok(&["sandbox", "changes", "work"]), "");

    let id = server.ok(&["sandbox", "create", "--snapshot", base.as_str().unwrap(), "--provider", "copy"]);
    assert_eq!(server.json(&["sandbox", "get", id.trim_end()])[0]["provider"], "copy");
    let kept = server.ok(&["sandbox", "rm", "--keep-workspace", "work"]);
    assert_eq!(kept.lines().count(), 1, "{kept}");
}

#[test]
fn a_truncated_list_of_changes_has_a_warning_and_status_3_also_as_json() {
    let Some(server) = server() else { return };
    server.ok(&["exec", "work", "--", "sh", "-c", "seq 10001 | xargs touch"]);
    for words in [&["sandbox", "changes", "work"][..], &["--json", "sandbox", "changes", "work"]] {
        let ran = server.run(words);
        assert!(ran.status == 3 && ran.stderr.contains("these are the first 10000"), "{}", ran.stderr);
    }
}

#[test]
fn errors_of_snapshots_are_explained() {
    let Some(server) = server() else { return };
    let nobody = "0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0";
    for words in [
        &["sandbox", "create", "--snapshot", nobody][..],
        &["sandbox", "restore", "work", nobody],
        &["sandbox", "restore", "work", "nonsense"],
        &["sandbox", "commit", "nobody"],
    ] {
        let ran = server.run(words);
        assert!(ran.status == 1 && ran.stderr.contains("hint: "), "{words:?}: {}", ran.stderr);
    }
    let ran = server.run(&["sandbox", "create", "--snapshot", nobody, "--dir", "project"]);
    assert_eq!(ran.status, 2, "{}", ran.stderr);
}
