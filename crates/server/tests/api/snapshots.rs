//! Snapshots and episodes over HTTP, of the program as its clients see it.

pub(crate) mod archive;
mod beside;
mod content;
mod episodes;
mod hostile;
mod owners;
mod uploads;

use serde_json::Value;

use crate::real::house::House;
use crate::support::{Answer, Call, KEY};
use archive::Archive;

/// A server, and what a client of snapshots does with it.
struct Shop {
    house: House,
    key: String,
}

impl Shop {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(variables: &[(&str, &str)]) -> Self {
        let house = House::with(variables);
        Self { house, key: KEY.to_owned() }
    }

    fn call(&self, method: &str, path: &str) -> Call {
        Call::new(self.house.address(), method, &format!("/api/v1/{path}")).key(&self.key)
    }

    fn get(&self, path: &str) -> Answer {
        self.call("GET", path).send()
    }

    /// What is there.
    #[track_caller]
    fn found(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    fn upload(&self, query: &str, archive: &[u8]) -> Answer {
        self.call("POST", &format!("snapshots{query}")).body(archive).send()
    }

    /// Makes a snapshot; its id.
    #[track_caller]
    fn made(&self, archive: &Archive) -> String {
        let answer = self.upload("", &archive.bytes());
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path).json(&body.to_string()).send()
    }

    /// The same server for somebody else.
    fn key_of(&self, owner: &str, role: &str) -> String {
        self.house.key(owner, role)
    }

    fn call_as(&self, key: &str, method: &str, path: &str) -> Call {
        Call::new(self.house.address(), method, &format!("/api/v1/{path}")).key(key)
    }
}
