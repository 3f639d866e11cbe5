//! Which crate may depend on which.
//!
//! Every crate stands in a layer and may use crates of lower layers only. A crate that is confined uses the
//! named ones and nothing else, and nobody uses it. Development dependencies are free: a test may look at
//! whatever it needs.
//!
//! Crates go by the name of their directory here: `state` is the package `workspace-state`.

use crate::metadata::{DependencyKind, Metadata, Package};

/// What every package name of this repository starts with.
pub const PREFIX: &str = "workspace-";

/// The rule of this repository; a crate that does not exist yet has its place already.
pub const RULES: Rules = Rules {
    layers: &[
        &["state", "host", "agent-protocol", "api"],
        &["mount", "workspace", "merge", "catalog"],
        &["context", "sandbox", "nfs"],
        &["server", "cli"],
        &["bench", "mcts", "tests"],
    ],
    confined: &[("agent", &["agent-protocol"])],
    sideways: &[Sideways {
        from: "workspace",
        to: "mount",
        reason: "the lazy view is the lowest layer of a workspace whose own are not written yet",
    }],
};

/// Where crates stand, lowest layer first.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Crates of one layer know nothing of each other.
    pub layers: &'static [&'static [&'static str]],
    /// Crates outside the layers, each with all it may use.
    pub confined: &'static [(&'static str, &'static [&'static str])],
    /// Arrows allowed within one layer.
    pub sideways: &'static [Sideways],
}

/// An arrow between two crates of one layer.
#[derive(Debug, Clone, Copy)]
pub struct Sideways {
    /// The crate that depends.
    pub from: &'static str,
    /// The crate it depends on.
    pub to: &'static str,
    /// Why neither can move to another layer.
    pub reason: &'static str,
}

/// A crate of this repository and the crates of this repository that it is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crate {
    /// The directory's name.
    pub name: String,
    /// Ordinary and build dependencies.
    pub uses: Vec<String>,
}

/// A dependency that the rules do not allow, or a crate they do not know.
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

/// The arrows between the crates of this repository.
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

/// Everything in `graph` that `rules` forbid.
pub fn violations(rules: &Rules, graph: &[Crate]) -> Vec<Violation> {
    let mut found = Vec::new();
    for it in graph {
        if rules.place(&it.name).is_none() {
            found.push(Violation::Unknown { name: it.name.clone() });
        }
        found.extend(it.uses.iter().filter_map(|to| rules.judge(&it.name, to)));
    }
    found
}

enum Place {
    Layer(usize),
    Confined(&'static [&'static str]),
}

impl Rules {
    fn place(&self, name: &str) -> Option<Place> {
        let confined = self.confined.iter().find(|(it, _)| *it == name);
        let layer = || self.layers.iter().position(|layer| layer.contains(&name));
        confined.map(|(_, uses)| Place::Confined(uses)).or_else(|| layer().map(Place::Layer))
    }

    /// An end without a place is no violation here: [`violations`] reports it once, for the crate itself.
    fn judge(&self, from: &str, to: &str) -> Option<Violation> {
        let places = (self.place(from)?, self.place(to)?);
        let listed = self.lists(from, to);
        let (from, to) = (from.to_owned(), to.to_owned());
        match places {
            (Place::Confined(allowed), _) if allowed.contains(&to.as_str()) => None,
            (Place::Confined(allowed), _) => {
                Some(Violation::Confined { from, to, allowed: allowed.join(", ") })
            }
            (Place::Layer(_), Place::Confined(_)) => Some(Violation::IntoConfined { from, to }),
            (Place::Layer(above), Place::Layer(below)) if above > below => None,
            (Place::Layer(one), Place::Layer(same)) if one == same => {
                (!listed).then_some(Violation::Sideways { from, to })
            }
            (Place::Layer(from_layer), Place::Layer(to_layer)) => {
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
    fn arrows_that_point_down_are_allowed_however_far() {
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
    fn an_arrow_turned_round_is_caught() {
        assert_eq!(
            messages(&RULES, &[using("state", &["mount"])]),
            ["`state` (layer 0) depends on `mount` (layer 1): arrows only point down"]
        );
    }

    #[test]
    fn an_arrow_within_a_layer_is_caught_unless_listed() {
        let graph = [using("server", &["cli"])];
        let arrow = Violation::Sideways { from: "server".into(), to: "cli".into() };
        assert_eq!(violations(&RULES, &graph), [arrow]);

        let listed =
            Rules { sideways: &[Sideways { from: "server", to: "cli", reason: "for this test" }], ..RULES };
        assert_eq!(violations(&listed, &graph), []);
    }

    #[test]
    fn a_listed_arrow_is_not_listed_the_other_way() {
        let listed =
            Rules { sideways: &[Sideways { from: "server", to: "cli", reason: "for this test" }], ..RULES };
        let arrow = Violation::Sideways { from: "cli".into(), to: "server".into() };
        assert_eq!(violations(&listed, &[using("cli", &["server"])]), [arrow]);
    }

    #[test]
    fn the_guest_agent_uses_nothing_but_its_protocol_and_nothing_uses_it() {
        assert_eq!(
            messages(&RULES, &[using("agent", &["agent-protocol", "state"]), using("server", &["agent"])]),
            [
                "`agent` depends on `state`, but may only use: agent-protocol",
                "`server` depends on `agent`, which nothing may use",
            ]
        );
    }

    #[test]
    fn a_crate_without_a_place_is_reported_once_with_what_to_do() {
        let graph = [using("surprise", &["state"]), using("cli", &["surprise"])];
        assert_eq!(
            messages(&RULES, &graph),
            ["crate `surprise` has no place: add it to `RULES` in tests/src/layers.rs"]
        );
    }

    #[test]
    fn no_crate_has_two_places() {
        let layered = RULES.layers.iter().flat_map(|layer| layer.iter().copied());
        let mut names: Vec<_> = layered.chain(RULES.confined.iter().map(|(name, _)| *name)).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn the_graph_has_ordinary_and_build_arrows_between_our_crates_but_no_development_ones() {
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
