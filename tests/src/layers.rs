//! Rules for dependencies between crates.
//!
//! Every crate belongs to a layer and may depend only on crates of lower layers. A confined crate may depend
//! only on the listed ones, and no crate may depend on it. Development dependencies are not restricted.
//!
//! Crates are identified by the name of their directory: `state` is the package `workspace-state`.

use crate::metadata::{DependencyKind, Metadata, Package};

/// Prefix of all package names in this repository.
pub const PREFIX: &str = "workspace-";

/// Rules of this repository, including crates that are planned.
pub const RULES: Rules = Rules {
    layers: &[
        &["failpoint"],
        &["state", "host", "agent-protocol", "api", "test-support"],
        &["mount", "workspace", "merge", "catalog"],
        &["context", "sandbox", "nfs"],
        &["server", "cli"],
        &["bench", "mcts", "tests"],
    ],
    confined: &[("agent", &["agent-protocol"])],
    sideways: &[Sideways {
        from: "workspace",
        to: "mount",
        reason: "the lazy mount is the lowest layer of a workspace whose own are not written yet",
    }],
};

/// Layers of the crates, and exceptions.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Layers, lowest first. Crates of the same layer must not depend on each other.
    pub layers: &'static [&'static [&'static str]],
    /// Crates outside the layers, each with all its allowed dependencies.
    pub confined: &'static [(&'static str, &'static [&'static str])],
    /// Allowed dependencies within a layer.
    pub sideways: &'static [Sideways],
}

/// Dependency between two crates of the same layer.
#[derive(Debug, Clone, Copy)]
pub struct Sideways {
    /// Crate that depends.
    pub from: &'static str,
    /// Crate on which it depends.
    pub to: &'static str,
    /// Reason why neither can be in another layer.
    pub reason: &'static str,
}

/// Crate of this repository with its dependencies in this repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crate {
    /// Name of the directory.
    pub name: String,
    /// Normal and build dependencies.
    pub uses: Vec<String>,
}

/// Dependency that the rules forbid, or a crate without a layer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Violation {
    #[error("crate `{name}` has no place: add it to `RULES` in tests/src/layers.rs")]
    Unknown { name: String },
    #[error("`{from}` (layer {from_layer}) depends on `{to}` (layer {to_layer}): arrows only point down")]
    Upward { from: String, from_layer: usize, to: String, to_layer: usize },
    #[error("`{from}` depends on `{to}` of its own layer: move what they share down, or list the arrow")]
    Sideways { from: String, to: String },
    #[error("`{from}` depends on `{to}`, but may only use: {allowed}")]
    Confined { from: String, to: String, allowed: String },
    #[error("`{from}` depends on `{to}`, which nothing may use")]
    IntoConfined { from: String, to: String },
}

/// Returns the dependency graph of the crates in this repository.
pub fn graph(metadata: &Metadata) -> Vec<Crate> {
    let directory = |package: &str| package.strip_prefix(PREFIX).unwrap_or(package).to_owned();
    let ours = |name: &str| metadata.packages.iter().any(|package| package.name == name);
    let uses = |package: &Package| {
        let built_from = package.dependencies.iter().filter(|it| it.kind != Some(DependencyKind::Dev));
        built_from.filter(|it| ours(&it.name)).map(|it| directory(&it.name)).collect()
    };
    metadata
        .packages
        .iter()
        .map(|package| Crate { name: directory(&package.name), uses: uses(package) })
        .collect()
}

/// Returns everything in `graph` that `rules` forbid.
pub fn violations(rules: &Rules, graph: &[Crate]) -> Vec<Violation> {
    let mut found = Vec::new();
    for it in graph {
        if rules.position(&it.name).is_none() {
            found.push(Violation::Unknown { name: it.name.clone() });
        }
        found.extend(it.uses.iter().filter_map(|to| rules.judge(&it.name, to)));
    }
    found
}

enum Position {
    Layer(usize),
    Confined(&'static [&'static str]),
}

impl Rules {
    fn position(&self, name: &str) -> Option<Position> {
        let confined = self.confined.iter().find(|(it, _)| *it == name);
        let layer = || self.layers.iter().position(|layer| layer.contains(&name));
        confined.map(|(_, uses)| Position::Confined(uses)).or_else(|| layer().map(Position::Layer))
    }

    /// Checks a dependency. A crate without a layer is not a violation here: [`violations`] reports it once,
    /// for the crate itself.
    fn judge(&self, from: &str, to: &str) -> Option<Violation> {
        let positions = (self.position(from)?, self.position(to)?);
        let listed = self.lists(from, to);
        let (from, to) = (from.to_owned(), to.to_owned());
        match positions {
            (Position::Confined(allowed), _) if allowed.contains(&to.as_str()) => None,
            (Position::Confined(allowed), _) => {
                Some(Violation::Confined { from, to, allowed: allowed.join(", ") })
            }
            (Position::Layer(_), Position::Confined(_)) => Some(Violation::IntoConfined { from, to }),
            (Position::Layer(above), Position::Layer(below)) if above > below => None,
            (Position::Layer(one), Position::Layer(same)) if one == same => {
                (!listed).then_some(Violation::Sideways { from, to })
            }
            (Position::Layer(from_layer), Position::Layer(to_layer)) => {
                Some(Violation::Upward { from, from_layer, to, to_layer })
            }
        }
    }

    fn lists(&self, from: &str, to: &str) -> bool {
        self.sideways.iter().any(|arrow| arrow.from == from && arrow.to == to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn using(name: &str, uses: &[&str]) -> Crate {
        Crate { name: name.into(), uses: uses.iter().map(|&it| it.into()).collect() }
    }

    fn messages(rules: &Rules, graph: &[Crate]) -> Vec<String> {
        violations(rules, graph).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_on_lower_layers_are_allowed() {
        let graph = [
            using("state", &[]),
            using("mount", &["state", "host"]),
            using("sandbox", &["workspace", "agent-protocol", "state"]),
            using("server", &["sandbox", "catalog", "state"]),
            using("agent", &["agent-protocol"]),
        ];
        assert_eq!(messages(&RULES, &graph), [""; 0]);
    }

    #[test]
    fn upward_dependency_is_reported() {
        assert_eq!(
            messages(&RULES, &[using("state", &["mount"])]),
            ["`state` (layer 1) depends on `mount` (layer 2): arrows only point down"]
        );
    }

    #[test]
    fn dependency_within_a_layer_is_reported_unless_listed() {
        let graph = [using("server", &["cli"])];
        let arrow = Violation::Sideways { from: "server".into(), to: "cli".into() };
        assert_eq!(violations(&RULES, &graph), [arrow]);

        let listed =
            Rules { sideways: &[Sideways { from: "server", to: "cli", reason: "for this test" }], ..RULES };
        assert_eq!(violations(&listed, &graph), []);
    }

    #[test]
    fn listed_dependency_is_directed() {
        let listed =
            Rules { sideways: &[Sideways { from: "server", to: "cli", reason: "for this test" }], ..RULES };
        let arrow = Violation::Sideways { from: "cli".into(), to: "server".into() };
        assert_eq!(violations(&listed, &[using("cli", &["server"])]), [arrow]);
    }

    #[test]
    fn confined_crate_is_isolated_in_both_directions() {
        assert_eq!(
            messages(&RULES, &[using("agent", &["agent-protocol", "state"]), using("server", &["agent"])]),
            [
                "`agent` depends on `state`, but may only use: agent-protocol",
                "`server` depends on `agent`, which nothing may use",
            ]
        );
    }

    #[test]
    fn unknown_crate_is_reported_once() {
        let graph = [using("surprise", &["state"]), using("cli", &["surprise"])];
        assert_eq!(
            messages(&RULES, &graph),
            ["crate `surprise` has no place: add it to `RULES` in tests/src/layers.rs"]
        );
    }

    #[test]
    fn no_crate_is_listed_twice() {
        let layered = RULES.layers.iter().flat_map(|layer| layer.iter().copied());
        let mut names: Vec<_> = layered.chain(RULES.confined.iter().map(|(name, _)| *name)).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn graph_excludes_external_and_development_dependencies() {
        let metadata = serde_json::from_str(
            r#"{"packages": [
                {"name": "workspace-state", "version": "1.0.0", "source": null, "license": null,
                 "manifest_path": "/r/crates/state/Cargo.toml", "dependencies": [
                    {"name": "workspace-state", "kind": "dev"},
                    {"name": "workspace-cli", "kind": "dev"}]},
                {"name": "workspace-cli", "version": "1.0.0", "source": null, "license": null,
                 "manifest_path": "/r/crates/cli/Cargo.toml", "dependencies": [
                    {"name": "workspace-state", "kind": null},
                    {"name": "workspace-host", "kind": "build"},
                    {"name": "serde", "kind": null}]},
                {"name": "workspace-host", "version": "1.0.0", "source": null, "license": null,
                 "manifest_path": "/r/crates/host/Cargo.toml", "dependencies": []}]}"#,
        )
        .unwrap();
        assert_eq!(
            graph(&metadata),
            [using("state", &[]), using("cli", &["state", "host"]), using("host", &[])]
        );
    }
}
