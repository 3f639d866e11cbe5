//! Files and directories that a tried program does not get to see.
//!
//! The list is of places where keys, tokens and passwords are by convention. A symlink among them hides what it leads to.
//! The search is bounded: no directory is read deeper than its names, and no more than [`NAMES`] of them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// So many names of a directory are looked at.
const NAMES: usize = 10_000;
/// So much of `/etc/passwd` is read.
const ACCOUNTS: u64 = 1 << 20;
/// First id of people.
const PEOPLE: u32 = 1_000;

/// Below a home. A last component that ends with `*` stands for all names that begin so.
const IN_HOME: &[&str] = &[
    ".Xauthority",
    ".ICEauthority",
    ".age",
    ".ansible/vault*",
    ".anthropic",
    ".aws",
    ".azure",
    ".bash_history",
    ".bitcoin",
    ".boto",
    ".bundle/config",
    ".cargo/credentials*",
    ".cache/elevo-workspace",
    ".cache/gh",
    ".cfg-credentials",
    ".claude.json",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".composer/auth.json",
    ".config/1Password",
    ".config/BraveSoftware",
    ".config/Bitwarden*",
    ".config/Code/User/globalStorage",
    ".config/Cursor/User/globalStorage",
    ".config/Keybase",
    ".config/Signal",
    ".config/Slack",
    ".config/age",
    ".config/chromium",
    ".config/composer/auth.json",
    ".config/configstore",
    ".config/doctl",
    ".config/fish/fish_history",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/git/credentials",
    ".config/google-chrome*",
    ".config/helm/registry.json",
    ".config/heroku",
    ".config/hub",
    ".config/microsoft-edge*",
    ".config/op",
    ".config/opera*",
    ".config/pip/pip.conf",
    ".config/pulumi",
    ".config/pypoetry/auth.toml",
    ".config/rclone",
    ".config/sops",
    ".config/stripe",
    ".config/vivaldi*",
    ".dbshell",
    ".docker/config.json",
    ".docker/contexts",
    ".electrum",
    ".env",
    ".env.*",
    ".ethereum",
    ".flyrc",
    ".fly",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".google_authenticator",
    ".gradle/gradle.properties",
    ".gsutil",
    ".huggingface",
    ".cache/huggingface/token",
    ".irb_history",
    ".kaggle",
    ".kde/share/apps/kwallet",
    ".kube",
    ".lesshst",
    ".local/share/atuin",
    ".local/share/containers/storage",
    ".local/share/elevo-workspace",
    ".local/share/fish/fish_history",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".local/share/TelegramDesktop",
    ".local/share/workspace-server",
    ".local/state/bash/history",
    ".m2/settings*",
    ".minikube",
    ".mozilla",
    ".mysql_history",
    ".my.cnf",
    ".mylogin.cnf",
    ".netlify",
    ".netrc",
    ".node_repl_history",
    ".npmrc",
    ".nuget/NuGet/NuGet.Config",
    ".oci",
    ".openai",
    ".password-store",
    ".pgpass",
    ".pki",
    ".psql_history",
    ".pulumi/credentials.json",
    ".putty",
    ".pypirc",
    ".python_history",
    ".redis-cli_history",
    ".rediscli_history",
    ".s3cfg",
    ".snowsql",
    ".sqlite_history",
    ".ssh",
    ".step",
    ".subversion/auth",
    ".svn/auth",
    ".terraform.d/credentials*",
    ".terraformrc",
    ".thunderbird",
    ".tsh",
    ".vault-token",
    ".vercel",
    ".vnc",
    ".wget-hsts",
    ".yarnrc.yml",
    ".zhistory",
    ".zsh_history",
    "snap/chromium",
    "snap/firefox",
];

/// On the system.
const ON_SYSTEM: &[&str] = &[
    "/boot/grub*/user.cfg",
    "/etc/NetworkManager/system-connections",
    "/etc/gshadow*",
    "/etc/ipsec.secrets",
    "/etc/ipsec.d/private",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/etc/letsencrypt",
    "/etc/openvpn",
    "/etc/ppp/chap-secrets",
    "/etc/ppp/pap-secrets",
    "/etc/rancher",
    "/etc/security/opasswd",
    "/etc/shadow*",
    "/etc/ssh/ssh_host_*",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/wireguard",
    "/etc/wpa_supplicant",
    "/lost+found",
    "/proc/keys",
    "/root",
    "/home",
    "/run/secrets",
    "/srv/workspace-server",
    "/var/backups",
    "/var/cache/debconf/passwords.dat",
    "/var/lib/NetworkManager",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/elevo-workspace",
    "/var/lib/kubelet",
    "/var/lib/lxd",
    "/var/lib/mysql",
    "/var/lib/postgresql",
    "/var/lib/rancher",
    "/var/lib/sss",
    "/var/lib/tailscale",
    "/var/lib/workspace-server",
    "/var/lib/workspace",
    "/var/mail",
    "/var/spool/cron",
    "/var/spool/mail",
];

/// Shown though it is below something hidden: programs that many install there.
const SHOWN: &[&str] = &["/home/linuxbrew/.linuxbrew"];

/// Whose secrets are looked for.
pub(super) struct Owner<'a> {
    /// The directory that `HOME` names, and that of the account, each without symlinks.
    pub(super) homes: &'a [PathBuf],
    /// Data of a server on this machine, and the store.
    pub(super) own: &'a [PathBuf],
}

/// Paths that are hidden, without symlinks, and those below them that are shown all the same.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    pub(super) hidden: BTreeSet<PathBuf>,
    pub(super) shown: BTreeSet<PathBuf>,
}

impl Secrets {
    /// Looks for what is there.
    pub(super) fn find(owner: &Owner<'_>, show: &[PathBuf], hide: &[PathBuf]) -> Self {
        let mut secrets = Self::default();
        for home in owner.homes {
            for name in IN_HOME {
                secrets.hide_matching(&home.join(name));
            }
        }
        for path in ON_SYSTEM {
            secrets.hide_matching(Path::new(path));
        }
        for home in other_homes(owner.homes) {
            secrets.hide(&home);
        }
        for path in owner.own {
            secrets.hide(path);
        }
        for path in SHOWN.iter().map(Path::new).filter_map(|path| fs::canonicalize(path).ok()) {
            secrets.shown.insert(path);
        }
        // One's own home is seen, wherever it is.
        secrets.hidden.retain(|path| path.parent().is_some() && !owner.homes.contains(path));
        secrets.shown.extend(owner.homes.iter().cloned());
        for path in show.iter().filter_map(|path| fs::canonicalize(path).ok()) {
            secrets.hidden.retain(|hidden| !hidden.starts_with(&path));
            secrets.shown.insert(path);
        }
        for path in hide.iter().filter_map(|path| fs::canonicalize(path).ok()) {
            secrets.shown.retain(|shown| !shown.starts_with(&path));
            secrets.hidden.insert(path);
        }
        let hidden = secrets.hidden.clone();
        secrets.shown.retain(|shown| hidden.iter().any(|hidden| shown.starts_with(hidden)));
        secrets
    }

    /// Tells if a path is hidden, itself or by what it is in.
    pub(super) fn hides(&self, path: &Path) -> bool {
        let nearest = |paths: &BTreeSet<PathBuf>| {
            paths.iter().filter(|it| path.starts_with(it)).map(|it| it.components().count()).max()
        };
        nearest(&self.hidden).is_some_and(|hidden| nearest(&self.shown).is_none_or(|shown| shown < hidden))
    }

    fn hide(&mut self, path: &Path) {
        // What is a symlink leads to what is hidden; what leads nowhere tells nothing.
        if let Ok(path) = fs::canonicalize(path) {
            self.hidden.insert(path);
        }
    }

    fn hide_matching(&mut self, pattern: &Path) {
        let name = pattern.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (Some(beginning), Some(parent)) = (name.strip_suffix('*'), pattern.parent()) else {
            return self.hide(pattern);
        };
        let names = fs::read_dir(parent).into_iter().flatten().flatten().take(NAMES);
        let matching = names.filter(|entry| entry.file_name().to_string_lossy().starts_with(beginning));
        for entry in matching {
            let public = entry.file_name().to_string_lossy().ends_with(".pub");
            if !public {
                self.hide(&entry.path());
            }
        }
    }
}

/// Homes of other people that are not below `/home`, as `/etc/passwd` knows them.
fn other_homes(own: &[PathBuf]) -> Vec<PathBuf> {
    let mut text = Vec::new();
    let read = fs::File::open("/etc/passwd").and_then(|file| file.take(ACCOUNTS).read_to_end(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    homes_of_people(&String::from_utf8_lossy(&text))
        .filter_map(|home| fs::canonicalize(home).ok())
        .filter(|home| home.components().count() > 2 && !own.iter().any(|own| own.starts_with(home)))
        .take(NAMES)
        .collect()
}

/// Field 6 of `name:password:uid:gid:comment:home:shell`.
fn homes_of_people(accounts: &str) -> impl Iterator<Item = PathBuf> {
    accounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, uid, _, _, home, ..] = fields[..] else { return None };
        let is_person = uid.parse::<u32>().is_ok_and(|uid| uid >= PEOPLE && uid != 65_534);
        (is_person && home.starts_with('/')).then(|| PathBuf::from(home))
    })
}

/// The home that `/etc/passwd` has for a user.
pub(super) fn account_home(user: u32) -> Option<PathBuf> {
    let mut text = Vec::new();
    fs::File::open("/etc/passwd").ok()?.take(ACCOUNTS).read_to_end(&mut text).ok()?;
    String::from_utf8_lossy(&text).lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, uid, _, _, home, ..] = fields[..] else { return None };
        (uid.parse() == Ok(user) && home.starts_with('/')).then(|| PathBuf::from(home))
    })
}

/// Parts of names of variables that hold secrets.
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
];
/// Variables that lead to something which is not there inside.
const AWAY: &[&str] = &[
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

/// Tells if a variable stays outside: it holds a secret by its name, or leads to what is not there.
pub(super) fn hides_variable(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_NAMES.iter().any(|part| name.contains(part)) || AWAY.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_a_hidden_one_is_hidden_unless_it_is_shown() {
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let secrets = Secrets { hidden: paths(&["/home", "/home/a/b/c"]), shown: paths(&["/home/a"]) };
        for (path, hidden) in [
            ("/home/x", true),
            ("/home/a/b", false),
            ("/home/a/b/c/d", true),
            ("/homes", false),
            ("/", false),
        ] {
            assert_eq!(secrets.hides(Path::new(path)), hidden, "{path}");
        }
    }

    #[test]
    fn homes_are_those_of_people() {
        let accounts =
            "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/data/ada:/bin/sh\nbad\nx:y:1001:1::relative:\n";
        assert_eq!(homes_of_people(accounts).collect::<Vec<_>>(), [PathBuf::from("/data/ada")]);
    }

    #[test]
    fn variables_with_secrets_stay_outside() {
        for name in ["GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "MyPassword", "SSH_AUTH_SOCK"] {
            assert!(hides_variable(name), "{name}");
        }
        for name in ["PATH", "HOME", "VIRTUAL_ENV", "LANG", "CARGO_HOME"] {
            assert!(!hides_variable(name), "{name}");
        }
    }
}
