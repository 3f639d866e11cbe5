//! Policy for external crates: licences, sources, bans.
//!
//! `deny.toml` contains the lists, in the format of cargo-deny, which checks more than the manifest of a
//! crate (licence texts, advisories) but is slow to build. This check needs nothing installed and always
//! runs.

use serde::Deserialize;
use spdx::{Expression, LicenseReq, Licensee, ParseMode};

use crate::metadata::Package;

/// Settings of `deny.toml` that this check enforces.
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

// A setting about which cargo-deny and this check would disagree, such as an exception, is rejected.
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

/// Error of reading `deny.toml`.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PolicyError {
    #[error("deny.toml cannot be read: {source}")]
    Parse { source: toml::de::Error },
    #[error("deny.toml allows `{licence}`, which is no SPDX licence: {source}")]
    Licence { licence: String, source: spdx::ParseError },
}

/// External crate that must not be used.
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
    /// Parses the text of `deny.toml`.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        toml::from_str(text).map_err(|source| PolicyError::Parse { source })
    }

    /// Returns the platforms for which the product is built.
    pub fn targets(&self) -> &[String] {
        &self.graph.targets
    }

    /// Returns everything in `packages` that this policy forbids.
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
    // Lax, because old crates still use `MIT/Apache-2.0`.
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
    fn or_needs_one_allowed_licence_and_needs_all() {
        for fine in ["MIT", "GPL-3.0-only OR MIT", "MIT/Apache-2.0", "(MIT OR GPL-2.0-only) AND Unicode-3.0"]
        {
            assert_eq!(under(fine), [""; 0], "{fine}");
        }
        for refused in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT AND (GPL-2.0-only OR GPL-3.0-only)"] {
            assert_eq!(under(refused).len(), 1, "{refused}");
        }
    }

    #[test]
    fn licence_exceptions_are_distinct_licences() {
        assert_eq!(
            under("Apache-2.0 WITH LLVM-exception"),
            [
                "some 1.0.0 is under `Apache-2.0 WITH LLVM-exception`, and deny.toml allows no way to satisfy that"
            ]
        );
    }

    #[test]
    fn missing_or_unknown_licences_are_rejected() {
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
    fn only_listed_registries_and_the_repository_are_allowed() {
        assert_eq!(messages(&package("ours", Some("MIT"), None)), [""; 0]);
        for origin in ["git+https://example.org/some?rev=1#1", "registry+https://example.org/index"] {
            assert_eq!(
                messages(&package("some", Some("MIT"), Some(origin))),
                [format!("some 1.0.0 comes from `{origin}`, which deny.toml does not allow")]
            );
        }
    }

    #[test]
    fn banned_crates_are_rejected_with_the_reason() {
        assert_eq!(
            messages(&package("openssl", Some("MIT"), Some(CRATES_IO))),
            ["openssl 1.0.0 is banned: rustls does it"]
        );
    }

    #[test]
    fn settings_unknown_to_this_check_are_rejected() {
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
