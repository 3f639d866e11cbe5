//! URL of the server, and its API key.

use std::env;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use hyper::Uri;

use crate::args::Server;
use crate::error::{CommandError, Result};

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// Server and API key.
pub(crate) struct ServerUrl {
    /// URL for messages.
    pub(crate) url: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    /// Prefix of the paths of the API.
    pub(crate) prefix: String,
    pub(crate) key: Option<String>,
    /// Path at which the key of a local server was expected but does not exist, for a hint.
    pub(crate) missing_key: Option<PathBuf>,
    /// True if a URL or a key was given by an option or a variable.
    pub(crate) is_configured: bool,
}

impl ServerUrl {
    /// Resolves server and key from options, environment and files.
    pub(crate) fn new(server: &Server) -> Result<Self> {
        let url = server.server.clone().or_else(|| read_variable("WORKSPACE_SERVER"));
        let mut resolved = Self::parse(url.as_deref().unwrap_or(DEFAULT_URL))?;
        resolved.key = server.api_key.clone().or_else(|| read_variable("WORKSPACE_API_KEY"));
        resolved.is_configured = url.is_some() || resolved.key.is_some();
        // The key of the local server is never sent to another machine.
        if resolved.key.is_none() && resolved.is_local() {
            resolved.read_local_key()?;
        }
        // The message does not show the key, which is a secret even if it has a typo.
        if resolved.key.as_ref().is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(CommandError::usage("the key has invalid characters")
                .hint("keys are printable ASCII, without spaces and newlines"));
        }
        Ok(resolved)
    }

    pub(super) fn parse(url: &str) -> Result<Self> {
        let invalid_url = || {
            CommandError::usage(format!("`{url}` is not the URL of a server"))
                .hint("for instance http://127.0.0.1:8080 or https://workspace.example.com")
        };
        let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| invalid_url())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(invalid_url()),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or_else(invalid_url)?;
        if uri.query().is_some() || authority.host().is_empty() {
            return Err(invalid_url());
        }
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            tls,
            prefix: uri.path().trim_end_matches('/').to_owned(),
            key: None,
            missing_key: None,
            is_configured: false,
        })
    }

    /// Returns the URL of a WebSocket at a path of the API, with its query.
    pub(crate) fn websocket_url(&self, path: &str) -> String {
        let scheme = if self.tls { "wss" } else { "ws" };
        format!("{scheme}://{}{}{path}", self.authority(), self.prefix)
    }

    /// Returns true if the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        let address: Option<IpAddr> = self.host.parse().ok();
        address.map_or(self.host == "localhost", |address| address.is_loopback())
    }

    /// Returns the value of the header `Host`.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns a hint about the path in the URL, if it has one: only a proxy may serve the API below a path.
    pub(crate) fn path_hint(&self) -> Option<String> {
        let scheme = if self.tls { "https" } else { "http" };
        let hint = || {
            format!(
                "unless a proxy serves the API below {}, specify the server without a path: {scheme}://{}",
                self.prefix,
                self.authority()
            )
        };
        (!self.prefix.is_empty()).then(hint)
    }

    /// Reads the key that a server on this machine wrote to its data directory.
    fn read_local_key(&mut self) -> Result<()> {
        let Some(path) = local_server_data_dir().map(|data| data.join("api-key")) else { return Ok(()) };
        match std::fs::read_to_string(&path) {
            Ok(text) => self.key = Some(text.trim().to_owned()).filter(|key| !key.is_empty()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.missing_key = Some(path),
            Err(error) => return Err(unreadable(&path, &error)),
        }
        Ok(())
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("cannot read the key in {}: {error}", path.display()))
        .hint("the server may belong to another user; pass a key with --api-key or WORKSPACE_API_KEY")
}

/// Returns the data directory of a server on this machine: DATA_DIR, or the default.
pub(crate) fn local_server_data_dir() -> Option<PathBuf> {
    let absolute = |name: &str| read_variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user_data =
        || absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    read_variable("DATA_DIR")
        .map(PathBuf::from)
        .or_else(|| user_data().map(|data| data.join("workspace-server")))
}

/// Reads an environment variable; an empty one is treated as unset.
fn read_variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let server = ServerUrl::parse("http://127.0.0.1:8080/").unwrap();
        assert_eq!(
            (server.authority().as_str(), server.tls, server.is_local()),
            ("127.0.0.1:8080", false, true)
        );
        let server = ServerUrl::parse("https://[::1]/below/").unwrap();
        assert_eq!((server.authority().as_str(), server.prefix.as_str()), ("[::1]:443", "/below"));
        assert!(server.tls && server.is_local());
        assert!(!ServerUrl::parse("http://example.com").unwrap().is_local());
        assert!(!ServerUrl::parse("http://127.0.0.1.example.com").unwrap().is_local());
        for url in ["", "127.0.0.1:8080", "ftp://host", "http://", "http://user@host", "http://host/?x"] {
            assert!(ServerUrl::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_key_that_cannot_be_sent_is_not_taken_for_a_missing_server() {
        let with = |key: &str| Server { server: Some(DEFAULT_URL.to_owned()), api_key: Some(key.to_owned()) };
        assert!(ServerUrl::new(&with("a-key-of-somebody")).is_ok());
        for key in ["a-key\n", "a key", "clé"] {
            assert!(ServerUrl::new(&with(key)).is_err(), "{key:?}");
        }
    }
}
