//! Keys of steps: hashes of everything that the result of a step depends on.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use workspace_state::{SnapshotRoot, TreeId};

use crate::runtime::Network;

/// Version of the execution of steps. To be increased when steps are executed differently, so that results that are
/// kept are not used any more.
const VERSION: u32 = 1;

/// Snapshot that a step starts from.
#[derive(Debug, Clone)]
pub(super) struct Parent<'a> {
    /// Root filesystem, with the template that its sandboxes are created from.
    pub(super) root: &'a SnapshotRoot,
    /// Files of the workspace.
    pub(super) workspace: TreeId,
}

impl Parent<'_> {
    fn key(&self, step: &Value) -> String {
        hash(&json!({
            "version": VERSION,
            "template": self.root.template,
            "root": self.root.tree.to_string(),
            "workspace": self.workspace.to_string(),
            "step": step,
        }))
    }

    /// Returns the key of a command.
    pub(super) fn of_run(
        &self,
        command: &str,
        workdir: &str,
        envs: &BTreeMap<String, String>,
        network: &Network,
    ) -> String {
        self.key(
            &json!({ "run": command, "workdir": workdir, "envs": envs, "network": network_text(network) }),
        )
    }

    /// Returns the key of a copy. `copied` is the tree that consists of the sources.
    pub(super) fn of_copy(&self, copied: TreeId, sources: &[String], to: &str) -> String {
        self.key(&json!({ "copy": copied.to_string(), "sources": sources, "to": to }))
    }

    /// Returns the key of a new directory.
    pub(super) fn of_directory(&self, path: &str) -> String {
        self.key(&json!({ "directory": path }))
    }
}

/// Returns the key of a command that makes a root filesystem.
pub(super) fn of_bootstrap(command: &str, network: &Network) -> String {
    hash(&json!({ "version": VERSION, "bootstrap": command, "network": network_text(network) }))
}

/// Returns a text that differs for networks that differ.
fn network_text(network: &Network) -> String {
    format!("{network:?}")
}

fn hash(value: &Value) -> String {
    blake3::hash(value.to_string().as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use workspace_state::NodeId;

    use super::*;

    /// Returns a root filesystem; `tree` is each byte of the id of its tree.
    fn root(tree: u8, template: &str) -> SnapshotRoot {
        let (tree, times) = (NodeId::from_bytes([tree; 32]).into(), NodeId::from_bytes([9; 32]));
        SnapshotRoot { tree, times, template: template.to_owned() }
    }

    #[test]
    fn every_input_changes_the_key() {
        let tree = |byte: u8| TreeId::from(NodeId::from_bytes([byte; 32]));
        let (one, two, other) = (root(1, "a"), root(2, "a"), root(1, "b"));
        let parent = |root, workspace| Parent { root, workspace: tree(workspace) };
        let envs = |value: &str| BTreeMap::from([("A".to_owned(), value.to_owned())]);
        let egress = Network::Egress { allow: None };
        let limited = Network::Egress { allow: Some(vec!["example.org".parse().unwrap()]) };
        let first = parent(&one, 1);
        let none = Network::None;
        let keys = [
            first.of_run("x", "/", &envs("1"), &none),
            parent(&two, 1).of_run("x", "/", &envs("1"), &none),
            parent(&other, 1).of_run("x", "/", &envs("1"), &none),
            parent(&one, 2).of_run("x", "/", &envs("1"), &none),
            first.of_run("y", "/", &envs("1"), &none),
            first.of_run("x", "/a", &envs("1"), &none),
            first.of_run("x", "/", &envs("2"), &none),
            first.of_run("x", "/", &envs("1"), &egress),
            first.of_run("x", "/", &envs("1"), &limited),
            first.of_copy(tree(3), &["a".to_owned()], "/x"),
            first.of_copy(tree(4), &["a".to_owned()], "/x"),
            first.of_copy(tree(3), &["b".to_owned()], "/x"),
            first.of_copy(tree(3), &["a".to_owned()], "/x/"),
            first.of_directory("/x"),
            of_bootstrap("x", &none),
            of_bootstrap("y", &none),
            of_bootstrap("x", &egress),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], parent(&root(1, "a"), 1).of_run("x", "/", &envs("1"), &Network::None));
    }
}
