//! Limits of the projects of an owner.

use serde_json::json;

use super::SnapshotServer;
use super::archive::Archive;
use super::uploads::incompressible;
use crate::real::test_server::wait_until;
use crate::support::Answer;

impl SnapshotServer {
    fn create_project(&self, name: &str) -> Answer {
        self.call("POST", "projects").json(&json!({ "name": name }).to_string()).send()
    }
}

#[test]
fn the_number_of_projects_of_an_owner_is_limited() {
    let mut fixture = SnapshotServer::with(&[("MAX_PROJECTS_PER_OWNER", "2")]);
    let admin = fixture.key.clone();
    for owner in ["alice", "bob"] {
        fixture.key = fixture.key_of(owner, "user");
        for name in ["one", "two"] {
            assert_eq!(fixture.create_project(name).status, 201);
        }
        let refused = fixture.create_project("three");
        assert_eq!((refused.status, refused.error()), (429, "PROJECT_LIMIT_EXCEEDED".to_owned()));
        let details = &refused.json()["error"]["details"];
        assert_eq!(details, &json!({ "limit": 2, "setting": "MAX_PROJECTS_PER_OWNER" }));
        assert_eq!(fixture.call("DELETE", "projects/one").send().status, 204);
        assert_eq!(fixture.create_project("three").status, 201);
        fixture.key.clone_from(&admin);
    }
    for name in ["one", "two", "three"] {
        assert_eq!(fixture.create_project(name).status, 201, "administrators have no limit");
    }
}

#[test]
fn content_that_only_a_project_keeps_counts_towards_the_quota() {
    let mut fixture = SnapshotServer::with(&[("MAX_SNAPSHOT_BYTES_PER_OWNER", "200k")]);
    let admin = fixture.key.clone();
    fixture.key = fixture.key_of("alice", "user");
    assert_eq!(fixture.create_project("website").status, 201);
    let import = |fixture: &SnapshotServer, seed: u64| {
        let archive = Archive::new().file("a", incompressible(seed, 150_000));
        fixture.call("POST", "projects/website/import").body(&archive.bytes()).send()
    };
    let collect = |fixture: &SnapshotServer| {
        wait_until("garbage is collected", || fixture.call_as(&admin, "POST", "gc").send().status == 200);
    };
    for seed in [1, 2] {
        let imported = import(&fixture, seed);
        assert_eq!(imported.status, 200, "{}", imported.body);
        // The upload itself is removed; the history keeps its content.
        collect(&fixture);
    }
    let refused = import(&fixture, 3);
    assert_eq!((refused.status, refused.error()), (429, "SNAPSHOT_LIMIT_EXCEEDED".to_owned()));
    assert_eq!(fixture.call("DELETE", "projects/website").send().status, 204);
    collect(&fixture);
    assert_eq!(fixture.create_project("website").status, 201);
    assert_eq!(import(&fixture, 4).status, 200);
}
