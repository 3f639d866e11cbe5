//! Which outside crates may be used: licences, sources, bans.
//!
//! `deny.toml` holds the lists, in the format of cargo-deny, which reads more into a crate than its manifest
//! (licence texts, advisories) but is slow to build. This check needs nothing installed and always runs.

use serde::Deserialize;
use spdx::{Expression, LicenseReq, Licensee, ParseMode};

use crate::metadata::Package;

/// What of `deny.toml` this check enforces.
#[derive(Debug, Deserialize)]
pub struct Policy {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Graph {
    targets: Vec<String>,
}

// A setting that would make cargo-deny and this check disagree, such as an exception, is refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
    #[serde(rename = "confidence-threshold")]
    _confidence_threshold: f64,
    #[serde(rename = "unused-allowed-license")]
    _unused_allowed_license: String,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

/// Why `deny.toml` cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PolicyError {
    #[error("deny.toml cannot be read: {source}")]
    Parse { source: toml::de::Error },
    #[error("deny.toml allows `{licence}`, which is no SPDX licence: {source}")]
    Licence { licence: String, source: spdx::ParseError },
}

/// An outside crate that may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Violation {
    #[error("{package} names no licence in its manifest")]
    NoLicence { package: String },
    #[error("{package} has a licence that is no SPDX expression: `{licence}`")]
    BadLicence { package: String, licence: String },
    #[error("{package} is under `{licence}`, and deny.toml allows no way to satisfy that")]
    Licence { package: String, licence: String },
    #[error("{package} comes from `{origin}`, which deny.toml does not allow")]
    Source { package: String, origin: String },
    #[error("{package} is banned: {reason}")]
    Banned { package: String, reason: String },
}

impl Policy {
    /// Reads the text of `deny.toml`.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        toml::from_str(text).map_err(|source| PolicyError::Parse { source })
    }

    /// The platforms the product is built for.
    pub fn targets(&self) -> &[String] {
        &self.graph.targets
    }

    /// Everything in `packages` that this policy forbids.
    pub fn violations(&self, packages: &[Package]) -> Result<Vec<Violation>, PolicyError> {
        let allowed = self.allowed()?;
        let judge = |package| {
            let verdicts = [self.source(package), self.banned(package), licence(package, &allowed)];
            verdicts.into_iter().flatten()
        };
        Ok(packages.iter().flat_map(judge).collect())
    }

    fn allowed(&self) -> Result<Vec<Licensee>, PolicyError> {
        let parse = |licence: &String| {
            Licensee::parse(licence)
                .map_err(|source| PolicyError::Licence { licence: licence.clone(), source })
        };
        self.licenses.allow.iter().map(parse).collect()
    }

    fn source(&self, package: &Package) -> Option<Violation> {
        let origin = package.source.clone()?;
        let registry = origin.strip_prefix("registry+").or_else(|| origin.strip_prefix("sparse+"));
        let allowed = |url: &str| self.sources.allow_registry.iter().any(|it| it == url);
        (!registry.is_some_and(allowed)).then(|| Violation::Source { package: title(package), origin })
    }

    fn banned(&self, package: &Package) -> Option<Violation> {
        let ban = self.bans.deny.iter().find(|ban| ban.name == package.name)?;
        Some(Violation::Banned { package: title(package), reason: ban.reason.clone() })
    }
}

fn licence(package: &Package, allowed: &[Licensee]) -> Option<Violation> {
    let title = title(package);
    let Some(licence) = package.license.clone() else {
        return Some(Violation::NoLicence { package: title });
    };
    // Lax, because old crates still write `MIT/Apache-2.0`.
    let Ok(expression) = Expression::parse_mode(&licence, ParseMode::LAX) else {
        return Some(Violation::BadLicence { package: title, licence });
    };
    let satisfied = |request: &LicenseReq| allowed.iter().any(|it| it.satisfies(request));
    (!expression.evaluate(satisfied)).then_some(Violation::Licence { package: title, licence })
}

fn title(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

    fn policy() -> Policy {
        Policy::parse(
            r#"
            [graph]
            targets = ["x86_64-unknown-linux-gnu"]
            [licenses]
            allow = ["MIT", "Apache-2.0", "Unicode-3.0"]
            confidence-threshold = 0.9
            unused-allowed-license = "warn"
            [bans]
            deny = [{ crate = "openssl", reason = "rustls does it" }]
            [sources]
            allow-registry = ["https://github.com/rust-lang/crates.io-index"]
            "#,
        )
        .unwrap()
    }

    fn package(name: &str, licence: Option<&str>, source: Option<&str>) -> Package {
        Package {
            name: name.into(),
            version: "1.0.0".into(),
            source: source.map(Into::into),
            license: licence.map(Into::into),
            manifest_path: "Cargo.toml".into(),
            dependencies: Vec::new(),
        }
    }

    fn under(licence: &str) -> Vec<String> {
        messages(&package("some", Some(licence), Some(CRATES_IO)))
    }

    fn messages(package: &Package) -> Vec<String> {
        let found = policy().violations(std::slice::from_ref(package)).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_allowed_choice_is_enough_and_every_demand_counts() {
        for fine in ["MIT", "GPL-3.0-only OR MIT", "MIT/Apache-2.0", "(MIT OR GPL-2.0-only) AND Unicode-3.0"]
        {
            assert_eq!(under(fine), [""; 0], "{fine}");
        }
        for refused in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT AND (GPL-2.0-only OR GPL-3.0-only)"] {
            assert_eq!(under(refused).len(), 1, "{refused}");
        }
    }

    #[test]
    fn an_exception_makes_another_licence() {
        assert_eq!(
            under("Apache-2.0 WITH LLVM-exception"),
            [
                "some 1.0.0 is under `Apache-2.0 WITH LLVM-exception`, and deny.toml allows no way to satisfy that"
            ]
        );
    }

    #[test]
    fn a_missing_or_unknown_licence_is_refused() {
        assert_eq!(
            messages(&package("some", None, Some(CRATES_IO))),
            ["some 1.0.0 names no licence in its manifest"]
        );
        assert_eq!(
            under("do what you like"),
            ["some 1.0.0 has a licence that is no SPDX expression: `do what you like`"]
        );
    }

    #[test]
    fn only_the_listed_registry_and_the_repository_itself_are_sources() {
        assert_eq!(messages(&package("ours", Some("MIT"), None)), [""; 0]);
        for origin in ["git+https://example.org/some?rev=1#1", "registry+https://example.org/index"] {
            assert_eq!(
                messages(&package("some", Some("MIT"), Some(origin))),
                [format!("some 1.0.0 comes from `{origin}`, which deny.toml does not allow")]
            );
        }
    }

    #[test]
    fn a_banned_crate_is_refused_with_the_reason() {
        assert_eq!(
            messages(&package("openssl", Some("MIT"), Some(CRATES_IO))),
            ["openssl 1.0.0 is banned: rustls does it"]
        );
    }

    #[test]
    fn a_setting_that_only_cargo_deny_would_honour_is_refused() {
        let text = r#"
            graph.targets = []
            bans.deny = []
            sources.allow-registry = []
            [licenses]
            allow = []
            confidence-threshold = 0.9
            unused-allowed-license = "warn"
            exceptions = [{ allow = ["GPL-3.0-only"], crate = "some" }]
        "#;
        let error = Policy::parse(text).unwrap_err().to_string();
        assert!(error.contains("unknown field `exceptions`"), "{error}");
    }
}
