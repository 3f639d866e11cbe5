//! Types of the values of settings, with their parsers and descriptions of the allowed values.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;
use regex_lite::Regex;
use tracing_subscriber::EnvFilter;
use workspace_nfs::ClientList;
use workspace_sandbox::runtime::parse_cidr;

/// Value of a setting.
pub(super) trait Value: Sized {
    /// Allowed values, for error messages and `docs/settings.md`.
    const ALLOWED: &'static str;
    /// True if output and error messages must not contain the value.
    const SECRET: bool = false;
    /// Separator of the items of a list; `None` if the value is not a list.
    const SEPARATOR: Option<&'static str> = None;

    /// Parses the text of a variable; `None` if it is not allowed.
    fn parse(text: &str) -> Option<Self>;
}

impl Value for PathBuf {
    const ALLOWED: &'static str = "an absolute path";

    fn parse(text: &str) -> Option<Self> {
        let path = Self::from(text);
        path.is_absolute().then_some(path)
    }
}

/// Declares validated string newtypes: name, description of the allowed values, predicate.
macro_rules! string_types {
    ($($(#[$meta:meta])* $name:ident, $allowed:literal, $fits:expr;)+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(pub String);

        impl Value for $name {
            const ALLOWED: &'static str = $allowed;

            fn parse(text: &str) -> Option<Self> {
                let fits: fn(&str) -> bool = $fits;
                fits(text).then(|| Self(text.to_owned()))
            }
        }
    )+};
}

string_types! {
    /// Program, by name or absolute path.
    Program, "a program's name or absolute path, without spaces", |text| {
        text.starts_with('/') == text.contains('/') && !text.starts_with('-') && is_visible(text)
    };
    /// URL of a Docker daemon.
    DockerHost, "unix:///PATH, tcp://HOST:PORT, http://HOST:PORT or https://HOST:PORT", |text| {
        ["unix:///", "tcp://", "http://", "https://"].iter().any(|it| text.starts_with(it)) && is_visible(text)
    };
    /// Name of a Docker network.
    NetworkName, "letters, digits, `_`, `.` and `-`, the first a letter or digit", |text| {
        text.starts_with(|it: char| it.is_ascii_alphanumeric())
            && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"_.-".contains(&it))
    };
    /// Host and port.
    HostPort, "HOST:PORT", |text| host_port(text).is_some();
    /// DNS name.
    DomainName, "a DNS name of at most 180 characters, such as preview.example.org", is_domain;
    /// Host name or address.
    HostName, "a host name or IP address", |text| {
        text.parse::<IpAddr>().is_ok() || is_domain(text)
    };
    /// Log filter of `tracing`.
    LogFilter, "off, error, warn, info, debug, trace, or TARGET=LEVEL separated by commas", |text| {
        // `EnvFilter` accepts any word as a target, also a misspelled level.
        text.split(',').all(is_directive) && EnvFilter::try_new(text).is_ok()
    };
}

/// Returns true if a part of a log filter is `LEVEL` or `TARGET=LEVEL`.
fn is_directive(text: &str) -> bool {
    let level = |word: &str| {
        ["off", "error", "warn", "info", "debug", "trace"]
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known))
    };
    let target = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:.-".contains(&byte))
    };
    match text.split_once('=') {
        Some((name, word)) => target(name) && level(word),
        None => level(text),
    }
}

impl HostPort {
    /// Returns the host (an IPv6 address without brackets) and the port; `None` only if the text is not valid, which
    /// parsing the setting excludes.
    pub fn parts(&self) -> Option<(String, u16)> {
        host_port(&self.0).map(|(host, port)| (host.to_owned(), port))
    }
}

fn host_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    // Guest agents verify the server's certificate for this host, so it must be a DNS name or an IP address. An
    // address with colons needs brackets.
    rustls::pki_types::ServerName::try_from(bare).ok()?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (bare != host || !host.contains(':')).then_some((bare, port))
}

/// Maximum length of a domain of previews. DNS allows 253 characters, and a preview adds a label of at most 63
/// characters and a dot in front: that leaves 189. The rest is a margin.
const DOMAIN_LENGTH_MAX: usize = 180;

/// Returns true if a text is a DNS name of at most [`DOMAIN_LENGTH_MAX`] characters.
fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    // A name that ends with a number would be an IP address.
    text.len() <= DOMAIN_LENGTH_MAX
        && text.split('.').all(is_label)
        && !text.rsplit('.').next().is_some_and(is_number)
}

fn is_visible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Value for IpAddr {
    const ALLOWED: &'static str = "an IP address";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Value for u16 {
    const ALLOWED: &'static str = "a port: 0 (any free one) to 65535";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Value for u32 {
    const ALLOWED: &'static str = "a whole number from 1 to 1000000";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number| (1..=1_000_000).contains(number))
    }
}

/// Number that may be 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountOrZero(pub u32);

impl CountOrZero {
    /// Returns the number as a limit; `None` for 0, which means unlimited.
    pub(crate) fn limit(self) -> Option<u64> {
        (self.0 > 0).then_some(u64::from(self.0))
    }
}

impl Value for CountOrZero {
    const ALLOWED: &'static str = "a whole number from 0 to 1000000";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|count| *count <= 1_000_000).map(Self)
    }
}

impl Value for Duration {
    const ALLOWED: &'static str = "seconds: a whole number from 1 to 31536000";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|seconds| (1..=31_536_000).contains(seconds)).map(Self::from_secs)
    }
}

/// Duration that is given in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milliseconds(pub Duration);

impl Value for Milliseconds {
    const ALLOWED: &'static str = "milliseconds: a whole number from 1 to 86400000";

    fn parse(text: &str) -> Option<Self> {
        let number = text.parse().ok().filter(|number| (1..=86_400_000).contains(number))?;
        Some(Self(Duration::from_millis(number)))
    }
}

/// Number of bytes, written like `512m` or `2g`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// Parses `512m`, `2g`, `1.5G`, `100k` or a number of bytes. Units are powers of 1024.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let text = text.strip_suffix("ib").or(text.strip_suffix('b')).unwrap_or(&text);
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit: u64 = match &text[digits.len()..] {
            "" => 1,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            "t" => 1 << 40,
            _ => return None,
        };
        let bytes = plain_decimal(digits)? * unit as f64;
        (1.0..=(1_u64 << 53) as f64).contains(&bytes).then_some(Self(bytes as u64))
    }
}

impl Value for Size {
    const ALLOWED: &'static str = "a size such as 512m or 2g (units k, m, g, t)";

    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

/// Number of CPU cores, in thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(pub u32);

impl Cpus {
    /// Parses a number of cores such as `2` or `0.5`.
    pub fn parse(text: &str) -> Option<Self> {
        let thousandths = plain_decimal(text)? * 1000.0;
        (10.0..=1_024_000.0).contains(&thousandths).then_some(Self(thousandths.round() as u32))
    }
}

impl Value for Cpus {
    const ALLOWED: &'static str = "a number of cores from 0.01 to 1024, such as 2 or 0.5";

    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

/// Parses digits with at most one point: `f64` would also accept `1e3` and `inf`.
fn plain_decimal(text: &str) -> Option<f64> {
    let plain = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns the text. Do not log it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("(hidden)")
    }
}

impl Value for Secret {
    const ALLOWED: &'static str = "16 to 200 visible ASCII characters";
    const SECRET: bool = true;

    fn parse(text: &str) -> Option<Self> {
        let fits = (16..=200).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(text.to_owned()))
    }
}

/// URL of the catalog. It may contain a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseUrl(pub Secret);

impl DatabaseUrl {
    /// Returns the kind of database, which is not secret.
    pub fn kind(&self) -> &'static str {
        if self.0.reveal().starts_with("sqlite:") { "SQLite" } else { "PostgreSQL" }
    }
}

impl Value for DatabaseUrl {
    const ALLOWED: &'static str = "sqlite:///PATH or postgres://USER@HOST/DATABASE";
    const SECRET: bool = true;

    fn parse(text: &str) -> Option<Self> {
        let known = ["sqlite://", "postgres://", "postgresql://"];
        known.iter().any(|scheme| text.starts_with(scheme)).then(|| Self(Secret(text.to_owned())))
    }
}

/// Boolean setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch(pub bool);

impl Value for Switch {
    const ALLOWED: &'static str = "on or off";

    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" => Some(Self(true)),
            "off" | "false" | "no" | "0" => Some(Self(false)),
            _ => None,
        }
    }
}

/// Declares a setting with fixed values: name, description of the allowed values, and the values as settings spell
/// them.
macro_rules! choices {
    ($(#[$meta:meta])* $name:ident, $allowed:literal: $($(#[$doc:meta])* $variant:ident = $word:literal),+) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant),+
        }

        impl $name {
            /// Returns the value as settings spell it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl Value for $name {
            const ALLOWED: &'static str = $allowed;

            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

choices! {
    /// Provider of workspaces.
    ProviderChoice, "auto, overlay, clone or copy":
    /// The first of the others that works.
    Auto = "auto",
    /// Overlay mounts over shared layers.
    Overlay = "overlay",
    /// Files that share blocks (reflinks).
    Clone = "clone",
    /// Full copies.
    Copy = "copy"
}

choices! {
    /// Implementation of NFS.
    NfsMode, "embedded, system or off":
    /// Server in this process.
    Embedded = "embedded",
    /// NFS server of the kernel.
    System = "system",
    /// None.
    Off = "off"
}

choices! {
    /// Runtime of sandboxes.
    RuntimeKind, "embedded, docker or oci":
    /// The server's built-in launcher.
    Embedded = "embedded",
    /// Docker daemon.
    Docker = "docker",
    /// Program that implements the OCI runtime specification.
    Oci = "oci"
}

choices! {
    /// Transport between guest agents and the server.
    GuestTransport, "unix or tcp":
    /// Unix socket in a directory that is mounted into the sandbox.
    Unix = "unix",
    /// TCP with TLS.
    Tcp = "tcp"
}

choices! {
    /// Policy for machines that lack an isolation feature.
    Isolation, "strict or best-effort":
    /// No sandbox is created.
    Strict = "strict",
    /// The sandbox is created, and the response names the missing features.
    BestEffort = "best-effort"
}

choices! {
    /// Format of log lines.
    LogFormat, "json or text":
    /// One JSON object per line.
    Json = "json",
    /// Plain text.
    Text = "text"
}

/// Web origins, as in the header `Origin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origins(pub Vec<String>);

impl Value for Origins {
    const ALLOWED: &'static str = "origins such as https://example.org, separated by commas, or *";
    const SEPARATOR: Option<&'static str> = Some(",");

    fn parse(text: &str) -> Option<Self> {
        if text.trim() == ANY_ORIGIN {
            return Some(Self(vec![ANY_ORIGIN.to_owned()]));
        }
        parts(text, ',').map(|part| is_origin(part).then(|| part.to_owned())).collect::<Option<_>>().map(Self)
    }
}

impl Origins {
    /// Returns true if every origin is allowed.
    pub fn is_any(&self) -> bool {
        self.0.iter().any(|origin| origin == ANY_ORIGIN)
    }
}

/// Value of `CORS_ORIGINS` that allows every origin.
const ANY_ORIGIN: &str = "*";

fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@*\"".contains(&byte))
    })
}

/// Patterns of text to redact.
#[derive(Debug, Clone)]
pub struct Patterns(pub Vec<Regex>);

impl Value for Patterns {
    const ALLOWED: &'static str = "regular expressions, one per line";
    const SEPARATOR: Option<&'static str> = Some("\n");

    fn parse(text: &str) -> Option<Self> {
        parts(text, '\n').map(|part| Regex::new(part).ok()).collect::<Option<_>>().map(Self)
    }
}

impl Value for SocketAddr {
    const ALLOWED: &'static str = "an address and a port, such as 10.0.0.2:53";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|address: &Self| address.port() > 0)
    }
}

/// Ranges of IPv4 addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges(pub Vec<Ipv4Net>);

impl Value for Ranges {
    const ALLOWED: &'static str = "none, or IPv4 networks such as 169.254.0.0/16, separated by commas";
    const SEPARATOR: Option<&'static str> = Some(",");

    fn parse(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self(Vec::new()));
        }
        parts(text, ',').map(|part| parse_cidr(part).ok()).collect::<Option<_>>().map(Self)
    }
}

/// Addresses of NFS clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsClients(pub ClientList);

impl Value for NfsClients {
    const ALLOWED: &'static str = "`*`, or networks and addresses such as 10.0.0.0/8, separated by commas";
    const SEPARATOR: Option<&'static str> = Some(",");

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

/// File of exports(5) that `exportfs` reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportsFile(pub PathBuf);

/// Main file of exports(5).
const EXPORTS_FILE: &str = "/etc/exports";
/// Directory of further files of exports(5), and the suffix of their names.
const EXPORTS_DIRECTORY: (&str, &str) = ("/etc/exports.d/", ".exports");

impl Value for ExportsFile {
    const ALLOWED: &'static str = "/etc/exports, or a file /etc/exports.d/NAME.exports";

    fn parse(text: &str) -> Option<Self> {
        let (directory, suffix) = EXPORTS_DIRECTORY;
        let name = text.strip_prefix(directory).and_then(|name| name.strip_suffix(suffix));
        let is_read =
            name.is_some_and(|name| !name.is_empty() && !name.starts_with('.') && !name.contains('/'));
        (text == EXPORTS_FILE || is_read).then(|| Self(text.into()))
    }
}

fn parts(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator).map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        let sizes = [("1", 1), ("100k", 102_400), ("512m", 512 << 20), ("2G", 2 << 30), ("1.5gib", 3 << 29)];
        for (text, bytes) in sizes {
            assert_eq!(Size::parse(text), Some(Size(bytes)), "{text}");
        }
        for text in ["", "0", "g", "-1g", "1e9", "inf", "2x", "1.2.3m", "9999999999t"] {
            assert_eq!(Size::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_files_that_exportfs_reads_are_files_of_exports() {
        for read in ["/etc/exports", "/etc/exports.d/workspace.exports"] {
            assert_eq!(ExportsFile::parse(read), Some(ExportsFile(read.into())));
        }
        for other in [
            "",
            "/etc/exports.d",
            "/etc/exports.d/a",
            "/etc/exports.d/.exports",
            "/etc/exports.d/.a.exports",
            "/etc/exports.d/../a.exports",
            "/srv/a.exports",
        ] {
            assert_eq!(ExportsFile::parse(other), None, "{other}");
        }
    }

    #[test]
    fn cores_are_kept_in_thousandths() {
        assert_eq!(Cpus::parse("0.5"), Some(Cpus(500)));
        assert_eq!(Cpus::parse("2"), Some(Cpus(2000)));
        // 1000.9999999999999 thousandths, as a binary fraction.
        assert_eq!(Cpus::parse("1.001"), Some(Cpus(1001)));
        for text in ["0", "-1", "NaN", "two", "2000"] {
            assert_eq!(Cpus::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        assert_eq!(Origins::parse("https://a.org, http://b:80").map(|it| it.0.len()), Some(2));
        for text in
            ["*, https://a.org", "https://*.a.org", "a.org", "https://a.org/", "https://", "https://u@a.org"]
        {
            assert_eq!(Origins::parse(text), None, "{text}");
        }
        assert_eq!(Origins::parse(" * ").map(|it| it.is_any()), Some(true));
        assert_eq!(Origins::parse("").map(|it| (it.is_any(), it.0.len())), Some((false, 0)));
    }

    #[test]
    fn string_types_reject_invalid_values() {
        let advertised = ["host:50051", "[::1]:1"].map(|text| HostPort::parse(text).is_some());
        assert_eq!(advertised, [true; 2]);
        let refused =
            ["host", ":1", "host:0", "a b:1", "::1:1", "a/b:1"].map(|text| HostPort::parse(text).is_some());
        assert_eq!(refused, [false; 6]);
        let parts = HostPort::parse("[::1]:50051").and_then(|advertised| advertised.parts());
        assert_eq!(parts, Some(("::1".to_owned(), 50_051)));
        assert!(Program::parse("runc").is_some() && Program::parse("/usr/bin/crun").is_some());
        assert!(Program::parse("bin/crun").is_none() && Program::parse("-v").is_none());
        let filters =
            ["info", "INFO,sqlx=warn", "off,hyper::proto=debug"].map(|it| LogFilter::parse(it).is_some());
        assert_eq!(filters, [true; 3]);
        let refused = ["bogus!!", "bogus", "infoo", "a=b=c", "a=", "=info", "info,,warn", "a b=info", "a=5"];
        assert_eq!(refused.map(|it| LogFilter::parse(it).is_some()), [false; 9]);
        assert!(DockerHost::parse("/var/run/docker.sock").is_none());
        let domains = ["localhost", "preview.example.org", "A-1.example"];
        assert_eq!(domains.map(|text| DomainName::parse(text).is_some()), [true; 3]);
        let refused = [
            "",
            ".",
            "a..b",
            "example.org.",
            "*.example.org",
            "-a.org",
            "127.0.0.1",
            "::1",
            "a.org:80",
            "a b",
        ];
        assert_eq!(refused.map(|text| DomainName::parse(text).is_some()), [false; 10]);
        assert!(NetworkName::parse("--privileged").is_none());
    }

    #[test]
    fn denied_addresses_are_ranges_or_none() {
        assert_eq!(Ranges::parse("none"), Some(Ranges(Vec::new())));
        assert_eq!(Ranges::parse("10.0.0.0/8, 192.168.1.1").map(|it| it.0.len()), Some(2));
        for text in ["10.0.0.1/8", "::1", "example.com", "none,10.0.0.0/8"] {
            assert_eq!(Ranges::parse(text), None, "{text}");
        }
        assert!(
            <SocketAddr as Value>::parse("10.0.0.2:53").is_some()
                && <SocketAddr as Value>::parse("dns:53").is_none()
        );
    }
}
