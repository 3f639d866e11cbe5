//! Tests of snapshots and episodes, through HTTP.

pub(crate) mod archive;
mod concurrent_changes;
mod content;
mod downloads;
mod episodes;
mod hostile;
mod owners;
mod project_limits;
mod references;
pub(crate) mod uploads;

use serde_json::Value;

use crate::real::test_server::TestServer;
use crate::support::{Answer, Call, KEY};
use archive::Archive;

/// Server with a client for snapshots.
struct SnapshotServer {
    server: TestServer,
    key: String,
}

impl SnapshotServer {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(variables: &[(&str, &str)]) -> Self {
        let server = TestServer::with(variables);
        Self { server, key: KEY.to_owned() }
    }

    fn call(&self, method: &str, path: &str) -> Call {
        Call::new(self.server.address(), method, &format!("/api/v1/{path}")).key(&self.key)
    }

    fn get(&self, path: &str) -> Answer {
        self.call("GET", path).send()
    }

    /// Gets a resource that must exist.
    #[track_caller]
    fn get_json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    fn upload(&self, query: &str, archive: &[u8]) -> Answer {
        self.call("POST", &format!("snapshots{query}")).body(archive).send()
    }

    /// Uploads a snapshot and returns its id.
    #[track_caller]
    fn create_snapshot(&self, archive: &Archive) -> String {
        let answer = self.upload("", &archive.bytes());
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path).json(&body.to_string()).send()
    }

    /// Creates a key of an owner.
    fn key_of(&self, owner: &str, role: &str) -> String {
        self.server.key(owner, role)
    }

    fn call_as(&self, key: &str, method: &str, path: &str) -> Call {
        Call::new(self.server.address(), method, &format!("/api/v1/{path}")).key(key)
    }
}
