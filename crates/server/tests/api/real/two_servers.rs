//! Two servers on one catalog and store that merge running sandboxes of one project.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use serde_json::{Value, json};
use workspace_test_support::PostgresDatabase;

use super::projects::Fixture;
use super::test_server::{TestServer, wait_until};
use crate::support::Call;

/// Number of sandboxes on each server.
const SANDBOXES: usize = 2;
/// Rounds of changes in each mode.
const ROUNDS: usize = 3;
/// Maximum number of events that a reader reads at once: few, so that it is often in the middle.
const PAGE: usize = 3;

/// Two servers with sandboxes that all change one counter.
struct Deployment {
    one: Fixture,
    other: TestServer,
    /// Sandboxes of both servers.
    sandboxes: [Vec<String>; 2],
    /// Number of changes that each sandbox has made.
    changes: usize,
}

impl Deployment {
    fn new(url: &str) -> Self {
        let one = Fixture::with(&[("DATABASE_URL", url)], &[("n.crdt.json", "{\"n\": 0}\n")]);
        let store = one.server.path().join("store");
        let other = TestServer::with(&[("DATABASE_URL", url), ("STORE_DIR", store.to_str().unwrap())]);
        let rule = json!({"path": "*.crdt.json", "strategy": "crdt", "schema": {"n": "counter"}});
        let policy = json!({ "rules": [rule] }).to_string();
        assert_eq!(one.call("PUT", "projects/website/policy").json(&policy).send().status, 200);
        let mut deployment = Self { one, other, sandboxes: Default::default(), changes: 0 };
        for server in 0..2 {
            deployment.sandboxes[server] =
                (0..SANDBOXES).map(|number| deployment.create(server, number)).collect();
        }
        deployment
    }

    fn server(&self, server: usize) -> &TestServer {
        if server == 0 { &self.one.server } else { &self.other }
    }

    fn call(&self, server: usize, method: &str, path: &str) -> Call {
        self.server(server).call_as(&self.one.alice, method, &format!("/api/v1/{path}"))
    }

    fn create(&self, server: usize, number: usize) -> String {
        let agent = format!("agent-{server}-{number}");
        let body = json!({"template": "base", "project": "website", "agent": agent}).to_string();
        let made = self.call(server, "POST", "sandboxes").json(&body).send();
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    fn all(&self) -> impl Iterator<Item = (usize, &String)> {
        let of = |server: usize| self.sandboxes[server].iter().map(move |id| (server, id));
        of(0).chain(of(1))
    }

    fn set_merge(&self, merge: &Value) {
        let body = json!({ "merge": merge }).to_string();
        assert_eq!(self.one.call("PATCH", "projects/website").json(&body).send().status, 200);
    }

    /// Changes the counter and a file in all sandboxes at once.
    fn change(&mut self) {
        self.changes += 1;
        let changes = self.changes;
        scope(|threads| {
            for (server, id) in self.all() {
                let command = format!("echo '{{\"n\": {changes}}}' > n.crdt.json; echo {changes} > {id}.txt");
                let call = self.call(server, "POST", &format!("sandboxes/{id}/process/run"));
                let body = json!({ "command": command }).to_string();
                threads.spawn(move || assert_eq!(call.json(&body).send().json()["exitCode"], 0));
            }
        });
    }

    /// Waits until all changes landed, each once.
    fn wait_for_changes(&self) {
        let content = format!("{}\n", self.changes);
        wait_until("all landed", || self.all().all(|(_, id)| self.one.file(&format!("{id}.txt")) == content));
        let counter: Value = serde_json::from_str(&self.one.file("n.crdt.json")).unwrap();
        assert_eq!(counter["n"], self.changes * 2 * SANDBOXES, "each sandbox added each change once");
    }

    /// Waits until the sandboxes of a restarted server can run commands.
    fn wait_for_guests(&self) {
        let is_connected =
            |(server, id): (usize, &String)| self.server(server).sandbox(id)["agentConnected"] == true;
        wait_until("all are connected", || self.all().all(is_connected));
    }

    /// Checks completions, history and events.
    fn check(&self, followed: &[BTreeSet<u64>; 2]) {
        let all = self.one.get("projects/website/completions?limit=1000").json();
        let all = all["items"].as_array().unwrap();
        for (_, id) in self.all() {
            let own: Vec<_> = all.iter().filter(|one| one["sandbox"] == *id).collect();
            assert_eq!(own.len(), self.changes, "{own:?}");
        }
        assert!(all.iter().all(|one| one["state"] == "landed"), "{all:?}");
        let sequences: BTreeSet<u64> = all.iter().map(|one| one["sequence"].as_u64().unwrap()).collect();
        assert_eq!(sequences, (2..2 + all.len() as u64).collect(), "one change of the head for each");
        let events = self.one.get("projects/website/events?limit=1000").json();
        let events = events["items"].as_array().unwrap();
        for kind in ["completion.queued", "completion.landed"] {
            let of_kind: Vec<&Value> = events.iter().filter(|event| event["type"] == kind).collect();
            let ids: BTreeSet<&str> =
                of_kind.iter().map(|event| event["data"]["completionId"].as_str().unwrap()).collect();
            assert_eq!((of_kind.len(), ids.len()), (all.len(), all.len()), "{kind}");
        }
        let expected: BTreeSet<u64> = events.iter().map(|event| event["id"].as_u64().unwrap()).collect();
        for followed in followed {
            assert_eq!(*followed, expected, "a reader missed an event, or has one twice");
        }
    }
}

/// Reads the events of the project in order, until `is_done` is set and there are no more. Repeats requests that get no
/// response. Returns the ids of the events.
fn follow(call: impl Fn(&str) -> Call, is_done: &AtomicBool) -> BTreeSet<u64> {
    let (mut after, mut found) = (0, BTreeSet::new());
    loop {
        let is_last = is_done.load(Ordering::SeqCst);
        let path = format!("projects/website/events?after={after}&limit={PAGE}");
        let Some(answer) = call(&path).try_send() else { continue };
        let page = answer.json();
        for event in page["items"].as_array().unwrap() {
            assert!(found.insert(event["id"].as_u64().unwrap()), "{event} came twice");
        }
        after = page["next"].as_u64().unwrap();
        if page["items"] == json!([]) && is_last {
            return found;
        }
    }
}

fn merge_on_two_servers(url: &str) {
    let mut deployment = Deployment::new(url);
    let is_done = AtomicBool::new(false);
    let alice = deployment.one.alice.clone();
    let addresses = [0, 1].map(|server| deployment.server(server).address());
    let reader = |address| {
        let (alice, is_done) = (&alice, &is_done);
        move || follow(|path| Call::new(address, "GET", &format!("/api/v1/{path}")).key(alice), is_done)
    };
    let followed = scope(|threads| {
        let readers = addresses.map(|address| threads.spawn(reader(address)));
        for merge in [json!({"mode": "periodic", "interval": 1}), json!({"mode": "write"})] {
            deployment.set_merge(&merge);
            for _ in 0..ROUNDS {
                deployment.change();
                deployment.wait_for_changes();
            }
        }
        is_done.store(true, Ordering::SeqCst);
        readers.map(|reader| reader.join().unwrap())
    });
    deployment.check(&followed);

    // A server is killed while both merge; the other one, or its successor, lands what it recorded.
    for _ in 0..ROUNDS {
        deployment.change();
        deployment.other.restart();
        deployment.wait_for_changes();
        deployment.wait_for_guests();
    }
    let all = follow(|path| deployment.call(0, "GET", path), &AtomicBool::new(true));
    deployment.check(&[all.clone(), all]);
    for (server, id) in deployment.all() {
        let removed = deployment.call(server, "DELETE", &format!("sandboxes/{id}")).send();
        assert_eq!(removed.status, 204, "nothing is left to complete: {}", removed.body);
    }
}

#[test]
fn merges_of_two_servers_on_postgresql_are_neither_lost_nor_doubled() {
    if !PostgresDatabase::is_available() {
        return;
    }
    let database = PostgresDatabase::new();
    merge_on_two_servers(&database.url());
}

#[test]
fn merges_of_two_servers_on_sqlite_are_neither_lost_nor_doubled() {
    let directory = tempfile::tempdir().unwrap();
    merge_on_two_servers(&workspace_catalog::sqlite_url(&directory.path().join("catalog.db")));
}
