//! Environment variables with secrets, or with paths of secret files.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::IN_HOME;

/// Parts of the names of variables with secrets.
const SECRET_NAMES: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "AUTH_KEY",
    "SESSION_KEY",
    "_DSN",
    "DATABASE_URL",
    "CONNECTION_STRING",
    "COOKIE",
    "SSHPASS",
];
/// Suffixes of the names of variables with secrets.
const SECRET_SUFFIXES: &[&str] = &["_KEY", "_PAT", "_PWD", "_PASS", "_AUTH", "_JWT"];
/// Variables with paths or addresses that do not exist in the sandbox.
const UNUSABLE_VARIABLES: &[&str] = &[
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "GPG_AGENT_INFO",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "TEMP",
    "TMP",
    "TMPDIR",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
];
/// Variables with one or several colon-separated paths, and the secret paths below each; an empty one is the path
/// itself.
const PATH_VARIABLES: &[(&str, &[&str])] = &[
    ("AWS_CONFIG_FILE", &[""]),
    ("AWS_SHARED_CREDENTIALS_FILE", &[""]),
    ("AZURE_CONFIG_DIR", &[""]),
    ("BUNDLE_USER_CONFIG", &[""]),
    ("CARGO_HOME", &["credentials", "credentials.toml"]),
    ("CLOUDSDK_CONFIG", &[""]),
    ("COMPOSER_HOME", &["auth.json"]),
    ("DOCKER_CONFIG", &["config.json", "contexts"]),
    ("GH_CONFIG_DIR", &[""]),
    ("GNUPGHOME", &[""]),
    ("GOOGLE_APPLICATION_CREDENTIALS", &[""]),
    ("GRADLE_USER_HOME", &["gradle.properties"]),
    ("HF_HOME", &["token"]),
    ("HISTFILE", &[""]),
    ("KUBECONFIG", &[""]),
    ("MYSQL_HISTFILE", &[""]),
    ("NETRC", &[""]),
    ("NPM_CONFIG_USERCONFIG", &[""]),
    ("PASSWORD_STORE_DIR", &[""]),
    ("PGPASSFILE", &[""]),
    ("PIP_CONFIG_FILE", &[""]),
    ("PSQL_HISTORY", &[""]),
    ("REGISTRY_AUTH_FILE", &[""]),
];
/// Variables with a directory of the user, and its default below the home directory. The secret paths below it are
/// those that [`IN_HOME`] has below the default.
const XDG_VARIABLES: &[(&str, &str)] = &[
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
];
/// Maximum number of paths of one variable that are examined.
const PATHS_PER_VARIABLE_MAX: usize = 100;

/// Returns true if a variable is hidden: by its name or value it has a secret, or it does not work in the sandbox.
pub(in super::super) fn hides_variable(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
        || SECRET_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || UNUSABLE_VARIABLES.contains(&name.as_str())
        || has_password(value)
}

/// Returns the sorted names of the hidden variables of this process.
pub(in super::super) fn hidden_variables() -> Vec<String> {
    let hidden = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_string_lossy().into_owned();
        hides_variable(&name, &value.to_string_lossy()).then_some(name)
    });
    let mut names: Vec<String> = hidden.collect();
    names.sort();
    names
}

/// Returns true if a text has a URL with a password: `scheme://user:password@host/`.
fn has_password(text: &str) -> bool {
    text.match_indices("://").any(|(offset, separator)| {
        let authority = text[offset + separator.len()..].split('/').next().unwrap_or_default();
        authority.rsplit_once('@').is_some_and(|(user_info, _)| user_info.contains(':'))
    })
}

/// Returns the secret paths of variables: a directory and a pattern below it, as in [`IN_HOME`]; an empty pattern is
/// the path itself. They may not exist.
pub(super) fn patterns(variable: impl Fn(&str) -> Option<OsString>) -> Vec<(PathBuf, &'static str)> {
    // npm reads its variable in upper and in lower case.
    let value = |name: &str| variable(name).or_else(|| variable(&name.to_ascii_lowercase()));
    let mut found = Vec::new();
    for (name, below) in PATH_VARIABLES {
        let paths = value(name).map(|value| absolute_paths(&value)).unwrap_or_default();
        found.extend(paths.iter().flat_map(|path| below.iter().map(move |pattern| (path.clone(), *pattern))));
    }
    for (name, default) in XDG_VARIABLES {
        let paths = value(name).map(|value| absolute_paths(&value)).unwrap_or_default();
        let below = || IN_HOME.iter().filter_map(move |path| path.strip_prefix(default)?.strip_prefix('/'));
        found.extend(paths.iter().flat_map(|path| below().map(move |pattern| (path.clone(), pattern))));
    }
    found
}

/// Returns the absolute paths of a colon-separated list.
fn absolute_paths(value: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(value).filter(|path| path.is_absolute()).take(PATHS_PER_VARIABLE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_with_secrets_are_hidden() {
        for name in [
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "MyPassword",
            "SSH_AUTH_SOCK",
            "MYSQL_PWD",
            "RAILS_MASTER_KEY",
            "GH_PAT",
            "SSHPASS",
            "STRIPE_KEY",
            "my_jwt",
            "NPM_AUTH",
            "DB_PASS",
        ] {
            assert!(hides_variable(name, "x"), "{name}");
        }
        for name in ["PATH", "HOME", "VIRTUAL_ENV", "LANG", "CARGO_HOME", "PWD", "OLDPWD", "KEYMAP"] {
            assert!(!hides_variable(name, "x"), "{name}");
        }
    }

    #[test]
    fn variables_with_passwords_in_urls_are_hidden() {
        for value in
            ["redis://:pw@h", "https://u:p@h/simple", "a https://h/ and http://u:p@h:80", "x://u:p@@h"]
        {
            assert!(hides_variable("URL", value), "{value}");
        }
        for value in ["https://h:80/a@b", "ssh://git@h/a:b", "u:p@h", "https://h", "://", "é://é"] {
            assert!(!hides_variable("URL", value), "{value}");
        }
    }

    #[test]
    fn paths_are_read_from_variables() {
        let variable = |name: &str| match name {
            "KUBECONFIG" => Some("/a/one:/a/two:relative".into()),
            "CARGO_HOME" => Some("/cargo".into()),
            "npm_config_userconfig" => Some("/npmrc".into()),
            _ => None,
        };
        let expected = [
            ("/cargo", "credentials"),
            ("/cargo", "credentials.toml"),
            ("/a/one", ""),
            ("/a/two", ""),
            ("/npmrc", ""),
        ];
        assert_eq!(patterns(variable), expected.map(|(path, pattern)| (PathBuf::from(path), pattern)));
    }

    #[test]
    fn a_configuration_directory_in_a_variable_has_all_secrets_of_the_default_one() {
        let variable = |name: &str| (name == "XDG_CONFIG_HOME").then(|| "/etc/xdg".into());
        let found = patterns(variable);
        assert_eq!(found.len(), IN_HOME.iter().filter(|path| path.starts_with(".config/")).count());
        for pattern in ["google-chrome*", "microsoft-edge*", "Bitwarden*", "git/credentials"] {
            assert!(found.contains(&(PathBuf::from("/etc/xdg"), pattern)), "{pattern}: {found:?}");
        }
    }
}
