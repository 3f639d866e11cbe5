//! Containers that the server did not start.

use std::process::Command;

use serde_json::json;
use workspace_test_support::{Docker, requires};

use super::Fixture;
use crate::real::test_server::agent_program;

#[test]
fn work_of_a_container_in_namespaces_of_its_own_lands() {
    // If the test runs as root, it switches to the user that owns the files. Any other user owns them already, and is
    // mapped to root in the container.
    let is_root = rustix::process::geteuid().is_root();
    let namespaces: &[&str] = if is_root { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] };
    let tried = Command::new("unshare").args(namespaces).arg("true").status();
    if !requires(tried.is_ok_and(|status| status.success()), "`unshare` and namespaces") {
        return;
    }
    let fixture = Fixture::new(&[("a", "a\n")]);
    let made = fixture.post("projects/website/workspaces", &json!({"agent": "writer"})).json();
    let (uid, gid) = made["user"].as_str().unwrap().split_once(':').unwrap();
    let work = "cat a; echo b > b; echo more >> a; mkdir d; ln -s ../a d/l";
    let script = match is_root {
        true => format!("setpriv --reuid {uid} --regid {gid} --clear-groups sh -ec '{work}'"),
        false => work.to_owned(),
    };
    let script = format!("mount --bind \"$1\" /mnt; cd /mnt; {script}");
    let mut container = Command::new("unshare");
    container.args(namespaces).args(["--pid", "--fork", "sh", "-ec", &script, "sh"]);
    let output = container.arg(made["path"].as_str().unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\n");
    assert_eq!(fixture.complete("writer")["state"], "landed");
    assert_eq!((fixture.file("a"), fixture.file("b")), ("a\nmore\n".to_owned(), "b\n".to_owned()));
}

#[test]
fn work_of_a_docker_container_lands() {
    if !Docker::is_available() {
        return;
    }
    let docker = Docker::start(&[agent_program()]);
    let fixture = Fixture::new(&[("a", "a\n")]);
    let made = fixture.post("projects/website/workspaces", &json!({"agent": "writer"})).json();
    let volume = format!("{}:/workspace", made["path"].as_str().unwrap());
    // The user that the response names, without capabilities, network or a writable root.
    let container = |script: &str| {
        docker.run(&[
            "run",
            "--rm",
            "--read-only",
            "--cap-drop",
            "ALL",
            "--network",
            "none",
            "--user",
            made["user"].as_str().unwrap(),
            "--volume",
            &volume,
            "--workdir",
            "/workspace",
            "workspace-base",
            "sh",
            "-ec",
            script,
        ])
    };
    assert_eq!(
        container("cat a; echo b > b; echo more >> a; touch /x 2>&1 || true").lines().next(),
        Some("a")
    );
    let landed = fixture.complete("writer");
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(2)), "{landed}");
    assert_eq!((fixture.file("a"), fixture.file("b")), ("a\nmore\n".to_owned(), "b\n".to_owned()));
    // The container stays, and sees the files of the next head in place.
    fixture.import("website", &[("a", "new\n")]);
    let synced = fixture.post("projects/website/sync", &json!({})).json();
    assert_eq!((&synced["synced"], &synced["total"]), (&json!(1), &json!(1)), "{synced}");
    assert_eq!(container("cat a; ls"), "new\na\n");
}
