//! Sandboxes, templates, keys and the server itself.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::server::Server;
use crate::support::Ran;

fn fields(record: &Value) -> String {
    record.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_sandbox_is_made_labelled_extended_and_ended() {
    let Some(server) = Server::start() else { return };
    let words =
        ["sandbox", "create", "--name", "work", "--label", "a=1", "--memory", "300m", "--timeout", "2h"];
    let id = server.ok(&words).trim_end().to_owned();
    let sandbox = server.json(&["sandbox", "get", "work"]).remove(0);
    assert_eq!(
        (&sandbox["id"], &sandbox["resources"]["memory"]),
        (&Value::from(id.as_str()), &Value::from(300 << 20))
    );
    assert_eq!(server.ok(&["sandbox", "label", "work", "b=2", "a-"]), "b=2\n");
    assert_eq!(server.ok(&["sandbox", "label", "work"]), "b=2\n");
    assert_eq!(server.json(&["sandbox", "ls", "--label", "b=2"]).len(), 1);
    assert_eq!(server.json(&["sandbox", "ls", "--label", "b=3"]).len(), 0);
    assert_eq!(server.json(&["sandbox", "ls", "--state", "running"]).len(), 1);
    let later = server.json(&["sandbox", "extend", "work", "30m"]).remove(0);
    assert!(later["expiresAt"].as_str() > sandbox["expiresAt"].as_str(), "{later}");
    let earlier = server.json(&["sandbox", "timeout", "work", "30m"]).remove(0);
    assert!(earlier["expiresAt"].as_str() < sandbox["expiresAt"].as_str(), "{earlier}");
    let short = &id[..id.len() - 6];
    assert_eq!(
        server.json(&["sandbox", "stats", short])[0]["sandboxId"],
        id.as_str(),
        "an id prefix is enough"
    );
    assert!(server.ok(&["sandbox", "get", &id]).contains("connected"));
    let kept = server.ok(&["sandbox", "rm", "--keep-workspace", "work"]);
    assert!(std::path::Path::new(kept.trim_end()).is_dir(), "{kept}");
    assert_eq!(server.ok(&["sandbox", "ls"]), "");
}

#[test]
fn a_sandbox_is_paused_and_resumed() {
    let Some(server) = Server::start() else { return };
    server.ok(&["sandbox", "create", "--name", "work", "--on-timeout", "pause"]);
    server.ok(&["exec", "work", "--", "sh", "-c", "echo kept > file"]);
    for words in [&["sandbox", "pause", "work"][..], &["sandbox", "pause", "--memory", "work"]] {
        assert!(server.ok(words).starts_with("paused; deleted at "));
        assert!(server.ok(&["sandbox", "ls", "--state", "paused"]).contains("paused"));
        let refused = server.run(&["exec", "work", "--", "true"]);
        assert!(refused.status != 0 && refused.stderr.contains("paused; resume it"), "{}", refused.stderr);
        assert!(server.ok(&["sandbox", "resume", "work", "--timeout", "1h"]).starts_with("expires "));
    }
    assert_eq!(server.ok(&["exec", "work", "--", "cat", "file"]), "kept\n");
    assert!(server.ok(&["sandbox", "get", "work"]).contains("paused"), "it will be when it expires");
    server.ok(&["sandbox", "pause", "work"]);
    server.ok(&["sandbox", "rm", "work"]);
}

#[test]
fn the_records_have_stable_fields() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    server.ok(&["exec", "work", "--", "true"]);
    let commands: [&[&str]; 9] = [
        &["ps"],
        &["ps", "work"],
        &["sandbox", "get", "work"],
        &["sandbox", "stats", "work"],
        &["template", "ls"],
        &["key", "ls"],
        &["token", "create", "work", "--right", "process"],
        &["whoami"],
        &["status"],
    ];
    let shown = commands.map(|words| format!("{}: {}\n", words.join(" "), fields(&server.json(words)[0])));
    insta::assert_snapshot!(shown.concat());
    for words in
        [&["run", "--", "true"][..], &["exec", "work", "--", "true"], &["logs", "work"], &["shell", "work"]]
    {
        assert_eq!(server.run(&[&["--json"], words].concat()).status, 2, "{words:?}");
    }
}

#[test]
fn events_are_printed_and_followed() {
    let Some(server) = Server::start() else { return };
    let id = server.sandbox("work");
    let created = server.ok(&["events", "--sandbox", "work", "--type", "sandbox.created"]);
    assert_eq!(created.lines().count(), 1, "{created}");
    assert!(created.contains(&id) && created.contains("name=work state=running"), "{created}");
    let events = server.json(&["events", "--sandbox", &id]);
    assert!(events.len() > 1 && events.iter().all(|event| event["sandboxId"] == id.as_str()), "{events:?}");
    let last = events.last().unwrap()["id"].to_string();
    assert_eq!(server.ok(&["events", "--sandbox", &id, "--after", &last]), "");
    let words = ["--json", "events", "--follow", "--sandbox", &id, "--after", &last];
    let mut follower = server.workspace(&words).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    server.ok(&["sandbox", "rm", &id]);
    let events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut ids = vec![last.parse::<u64>().unwrap()];
    for event in events {
        ids.push(event["id"].as_u64().unwrap());
        if event["type"] == "sandbox.deleted" {
            break;
        }
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    let wrong = server.run(&["events", "--type", "nonsense"]);
    assert!(wrong.status == 1 && wrong.stderr.contains("is not a type of events"), "{}", wrong.stderr);
}

#[test]
fn a_key_opens_the_server_until_it_is_revoked() {
    let server = Server::without_sandboxes(&[]);
    let made = server.json(&["key", "create", "ci", "--role", "read-only"]).remove(0);
    let with = |words: &[&str]| {
        let mut command = server.workspace(words);
        Ran::of(&command.env("WORKSPACE_API_KEY", made["key"].as_str().unwrap()).output().unwrap())
    };
    assert_eq!(with(&["ps"]).status, 0);
    let refused = with(&["run", "--", "true"]);
    assert_eq!(refused.status, 125);
    assert!(refused.stderr.contains("workspace key create"), "{}", refused.stderr);
    server.ok(&["key", "rm", made["id"].as_str().unwrap()]);
    assert_eq!(with(&["ps"]).status, 1);
    assert!(server.ok(&["key", "ls"]).contains("read_only"));
}

#[test]
fn a_token_works_like_a_key_in_its_sandbox_only() {
    let Some(server) = Server::start() else { return };
    let (id, other) = (server.sandbox("work"), server.sandbox("other"));
    let token = server.ok(&["token", "create", "work", "--right", "process", "--expires", "15m"]);
    assert!(token.starts_with("wst_"), "{token}");
    let with = |words: &[&str]| {
        let mut command = server.workspace(words);
        Ran::of(&command.env("WORKSPACE_API_KEY", token.trim_end()).output().unwrap())
    };
    let ran = with(&["exec", &id, "--", "echo", "hello"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "hello\n"), "{}", ran.stderr);
    let shown = with(&["whoami"]).stdout;
    assert!(
        shown.contains(&format!("sandbox     {id}\n")) && shown.contains("rights      process\n"),
        "{shown}"
    );
    assert_eq!(with(&["exec", &other, "--", "true"]).status, 125);
    for refused in [&["sandbox", "rm", &id][..], &["ps"], &["token", "create", &id, "--right", "process"]] {
        assert_eq!(with(refused).status, 1, "{refused:?}");
    }
    assert_eq!(server.run(&["token", "create", "work"]).status, 2, "no right");
    assert_eq!(server.run(&["token", "create", "work", "--right", "all"]).status, 2);
}

#[test]
fn the_command_shows_the_key_that_it_uses() {
    let server = Server::without_sandboxes(&[]);
    let shown = server.ok(&["whoami"]);
    assert!(shown.contains("role        admin\n") && shown.contains("rates       unlimited\n"), "{shown}");
    let made = server.json(&["key", "create", "ci", "--owner", "acme"]).remove(0);
    let mut command = server.workspace(&["whoami"]);
    let ran = Ran::of(&command.env("WORKSPACE_API_KEY", made["key"].as_str().unwrap()).output().unwrap());
    assert!(ran.stdout.contains("owner       acme\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("sandboxes   0 of 10\n"), "{}", ran.stdout);
}

#[test]
fn errors_of_servers_are_explained() {
    let server = Server::without_sandboxes(&[]);
    let nowhere = "http://127.0.0.1:9";
    let shown = server.transcript(&[
        &["ps", "--server", nowhere],
        &["ps", "--server", "127.0.0.1:8080"],
        &["ps", "--api-key", "wrong"],
        &["run", "--server", nowhere, "--", "true"],
        &["exec", "work", "--", "true"],
        &["sandbox", "get", "sbx-00000000000000000000000000000000"],
        &["sandbox", "label", "work", "nonsense"],
        &["sandbox", "extend", "work", "soon"],
        &["run", "--template", "none", "--", "true"],
        &["run", "--memory", "lots", "--", "true"],
        &["key", "rm", "key-1"],
        &["key", "rm", "../x"],
    ]);
    insta::assert_snapshot!(shown);
    let with_path = format!("{}/api", server.url());
    for command in ["ps", "status"] {
        let ran = server.run(&[command, "--server", &with_path]);
        let hint = format!(
            "hint: unless a proxy serves the API below /api, specify the server without a path: {}\n",
            server.url()
        );
        assert!(ran.status == 1 && ran.stderr.ends_with(&hint), "{command}: {}", ran.stderr);
    }
    let mut keyless = server.workspace(&["ps"]);
    let ran = Ran::of(&keyless.env_remove("DATA_DIR").output().unwrap());
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("home/.local/share/workspace-server/api-key"), "{}", ran.stderr);
}

#[test]
fn a_server_says_whether_it_works() {
    let server = Server::without_sandboxes(&[]);
    let status = server.json(&["status"]).remove(0);
    assert_eq!((&status["ready"], &status["url"]), (&Value::from(true), &Value::from(server.url())));
    let text = server.ok(&["status"]);
    assert!(text.contains("ready       yes\n") && text.contains("catalog"), "{text}");
    assert!(text.contains("key         accepted\n"), "{text}");
}

#[test]
fn status_says_that_the_key_is_rejected_and_how_to_set_it() {
    let server = Server::without_sandboxes(&[]);
    let ran = server.run(&["status", "--api-key", "wrong-key"]);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(ran.stdout.contains("ready       yes\nkey         REJECTED\n"), "{}", ran.stdout);
    assert!(ran.stderr.contains("the key is not known"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: pass a key with --api-key or WORKSPACE_API_KEY"), "{}", ran.stderr);
    let ran = server.run(&["--json", "status", "--api-key", "wrong-key"]);
    let record: Value = serde_json::from_str(&ran.stdout).unwrap();
    let expected = (1, &Value::from(true), &Value::from(false));
    assert_eq!((ran.status, &record["ready"], &record["authorized"]), expected);
}

/// A root filesystem of busybox alone, as a directory.
pub(crate) fn busybox_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bin")).unwrap();
    let program =
        ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| std::path::Path::new(path).exists());
    std::fs::copy(program.expect("the package busybox-static"), root.path().join("bin/busybox")).unwrap();
    for name in ["sh", "ls", "cat", "echo"] {
        std::os::unix::fs::symlink("busybox", root.path().join("bin").join(name)).unwrap();
    }
    std::fs::write(root.path().join("mark"), "of the template\n").unwrap();
    copy_libraries(root.path());
    root
}

/// Libraries of the guest agent, which is linked statically only in releases.
fn copy_libraries(root: &std::path::Path) {
    let agent = std::path::Path::new(env!("CARGO_BIN_EXE_workspace")).with_file_name("workspace-agent");
    let listed = std::process::Command::new("ldd").arg(agent).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for library in listed.split_ascii_whitespace().filter(|word| word.starts_with('/')) {
        let copy = root.join(library.trim_start_matches('/'));
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(library, copy).unwrap();
    }
}

#[test]
fn a_template_is_imported_used_and_removed() {
    let Some(server) = Server::start() else { return };
    let root = busybox_root();
    let directory = root.path().to_str().unwrap();
    assert!(server.ok(&["template", "import", "team/busybox:1", directory]).starts_with("team/busybox:1 "));
    let listed = server.json(&["template", "ls"]);
    assert!(listed.iter().any(|one| one["name"] == "team/busybox:1" && one["present"] == true), "{listed:?}");
    assert!(listed.iter().any(|one| one["name"] == "python:3.12" && one["present"] == false), "{listed:?}");
    let words = ["run", "--template", "team/busybox:1", "--", "cat", "/mark"];
    assert_eq!(server.ok(&words), "of the template\n");
    server.place.write("project/a", "a\n");
    let words = ["try", "--dir", "project", "--template", "team/busybox:1", "--", "cat", "/mark", "a"];
    assert_eq!(server.ok(&words), "of the template\na\n");
    let ran = server.run(&["try", "--dir", "project", "--template", "team/none", "--", "true"]);
    assert!(ran.status == 125 && ran.stderr.contains("`workspace template ls`"), "{}", ran.stderr);
    let twice = server.run(&["template", "import", "team/busybox:1", directory]);
    assert!(twice.status == 1 && twice.stderr.contains("already"), "{}", twice.stderr);
    assert!(twice.stderr.contains("hint: choose another name"), "{}", twice.stderr);
    assert!(twice.stderr.contains("`workspace template rm team/busybox:1`"), "{}", twice.stderr);
    let broken = server.run(&["template", "import", "broken", "/etc/hostname"]);
    assert!(broken.status == 1 && broken.stderr.contains("cannot be imported"), "{}", broken.stderr);
    assert!(broken.stderr.contains("hint: accepted: a tar"), "{}", broken.stderr);
    let missing = server.run(&["template", "import", "missing", "/no/such/file"]);
    assert!(missing.stderr.contains("hint: check the spelling"), "{}", missing.stderr);
    server.ok(&["template", "rm", "team/busybox:1"]);
    assert_eq!(server.run(&["template", "rm", "team/busybox:1"]).status, 1);
}

#[test]
fn a_directory_that_cannot_be_read_whole_leaves_no_template() {
    let Some(server) = Server::start() else { return };
    let root = busybox_root();
    let directory = root.path().to_str().unwrap();
    // An archive cannot have sockets.
    let socket = std::os::unix::net::UnixListener::bind(root.path().join("socket")).unwrap();
    let failed = server.run(&["template", "import", "part", directory]);
    assert!(failed.status == 1 && failed.stderr.contains("cannot read"), "{}", failed.stderr);
    assert_eq!(server.run(&["template", "show", "part"]).status, 1);
    drop(socket);
    std::fs::remove_file(root.path().join("socket")).unwrap();
    assert!(server.ok(&["template", "import", "part", directory]).starts_with("part "));
}

#[test]
fn a_name_that_another_sandbox_has_is_refused_unless_allowed() {
    let Some(server) = Server::start() else { return };
    let create = ["sandbox", "create", "--name", "work"];
    let first = server.ok(&create).trim_end().to_owned();
    let refused = server.run(&create);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains(&format!("named `work` already exists: {first}")), "{}", refused.stderr);
    assert!(refused.stderr.contains("`--allow-duplicate-name`"), "{}", refused.stderr);
    assert_eq!(server.run(&["run", "--name", "work", "--", "true"]).status, 125);
    server.ok(&[&create[..], &["--allow-duplicate-name"]].concat());
    server.ok(&["sandbox", "create"]);
    // Of several at once, one gets the name.
    let made = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| server.run(&["sandbox", "create", "--name", "race"]).status))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).filter(|status| *status == 0).count()
    });
    assert_eq!(made, 1);
}
