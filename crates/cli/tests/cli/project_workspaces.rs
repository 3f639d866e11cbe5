//! Workspaces of agents that run in containers of their own.

use std::fs;
use std::path::Path;

use crate::server::Server;

#[test]
fn work_in_a_workspace_is_completed_from_the_command_line() {
    let Some(server) = Server::start() else { return };
    let site = server.place.path("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.md"), "# Title\n").unwrap();
    server.ok(&["project", "create", "website"]);
    server.ok(&["project", "import", "website", site.to_str().unwrap()]);
    let workspace = |command: &[&str]| server.ok(&[&["project", "workspace"], command].concat());
    let printed = workspace(&["create", "website", "--agent", "writer"]);
    let path = Path::new(printed.trim_end());
    assert_eq!(fs::read_to_string(path.join("index.md")).unwrap(), "# Title\n");
    assert_eq!(workspace(&["create", "website", "--agent", "writer"]), printed);
    assert_eq!(workspace(&["changes", "website", "writer"]), "");
    fs::write(path.join("new.md"), "new\n").unwrap();
    fs::remove_file(path.join("index.md")).unwrap();
    assert_eq!(workspace(&["changes", "website", "writer"]), "modified  new.md\ndeleted   index.md\n");
    let refused = server.run(&["project", "workspace", "rm", "website", "writer"]);
    assert!(refused.stderr.contains("not completed"), "{}", refused.stderr);
    assert_eq!(workspace(&["complete", "website", "writer", "-m", "write"]), "landed as sequence 2\n");
    fs::write(site.join("more.md"), "more\n").unwrap();
    server.ok(&["project", "import", "website", site.to_str().unwrap()]);
    let synced = server.ok(&["project", "sync", "website"]);
    assert_eq!(synced, "1 of 1 workspaces synced, 0 skipped\n");
    assert_eq!(fs::read_to_string(path.join("more.md")).unwrap(), "more\n");
    assert_eq!(workspace(&["rebase", "website", "writer"]), "already at sequence 3\n");
    fs::write(path.join("more.md"), "mine\n").unwrap();
    fs::write(site.join("other.md"), "other\n").unwrap();
    server.ok(&["project", "import", "website", site.to_str().unwrap()]);
    assert_eq!(workspace(&["rebase", "website", "writer"]), "rebased onto sequence 4\n");
    assert_eq!(fs::read_to_string(path.join("other.md")).unwrap(), "other\n");
    fs::write(site.join("more.md"), "theirs\n").unwrap();
    server.ok(&["project", "import", "website", site.to_str().unwrap()]);
    let conflicted = server.run(&["project", "workspace", "rebase", "website", "writer"]);
    let expected = "not rebased onto sequence 5\nconflict  more.md (content)\n";
    assert_eq!((conflicted.status, conflicted.stdout.as_str()), (3, expected));
    fs::write(path.join("more.md"), "more\n").unwrap();
    let record = &server.json(&["project", "workspace", "rebase", "website", "writer"])[0];
    assert_eq!((&record["state"], &record["workspace"]["sequence"]), (&"rebased".into(), &5.into()));
    let listed = workspace(&["ls", "website"]);
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((&row[..3], row.last()), (&["writer", "ready", "5"][..], path.to_str().as_ref()), "{listed}");
    let shown = workspace(&["show", "website", "writer"]);
    assert!(shown.contains(path.to_str().unwrap()) && shown.contains("user"), "{shown}");
    let record = &server.json(&["project", "workspace", "show", "website", "writer"])[0];
    assert_eq!((&record["sequence"], &record["state"]), (&5.into(), &"ready".into()));
    workspace(&["rm", "website", "writer"]);
    assert!(!path.exists());
    let missing = server.run(&["project", "workspace", "show", "website", "writer"]);
    assert!(missing.stderr.contains("workspace project workspace ls"), "{}", missing.stderr);
}
