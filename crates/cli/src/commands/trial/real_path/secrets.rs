//! Files and directories that are hidden from the program.
//!
//! These are conventional paths of keys, tokens and passwords, paths in environment variables, home directories of
//! other users, data of servers, and sockets. The target of a symlink is hidden, too, unless it is in the target
//! directory of the trial and the symlink is not. A file is hidden in all mounts of its filesystem. The search is
//! bounded: directories are not read recursively, and at most [`ENTRIES_MAX`] entries of each are examined.

mod mounts;
mod sockets;
mod variables;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use crate::text::print_stderr;
use mounts::MountTable;
pub(super) use variables::{hidden_variables, hides_variable};

/// Maximum number of entries of a directory that are examined.
const ENTRIES_MAX: usize = 10_000;
/// Maximum number of bytes that are read from `/etc/passwd`.
const PASSWD_BYTES_MAX: u64 = 1 << 20;
/// First UID of regular users.
const REGULAR_UID_MIN: u32 = 1_000;

/// Secret paths below a home directory. A component that ends with `*` matches all names with that prefix.
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
    ".1password",
    ".colima",
    ".config/containers/auth.json",
    ".config/github-copilot",
    ".databrickscfg",
    ".docker/desktop",
    ".docker/run",
    ".dockercfg",
    ".gemini",
    ".lima",
    ".var/app",
];

/// Secret paths of the system.
const SYSTEM_SECRETS: &[&str] = &[
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
    "/var/lib/incus",
    "/var/snap/lxd/common/lxd",
    "/var/spool/postfix",
];

/// Paths below hidden ones that are visible: common locations of programs.
const VISIBLE_PATHS: &[&str] = &["/home/linuxbrew/.linuxbrew"];

/// Maximum number of sockets that are hidden, and of paths of hidden files through other mounts.
const HIDDEN_PATHS_MAX: usize = 1_000;

/// Parameters of the search for secrets.
pub(super) struct SecretSearch<'a> {
    /// `HOME` and the home directory of the account, with symlinks resolved.
    pub(super) homes: &'a [PathBuf],
    /// Data directory of a server on this machine, and the store of the user.
    pub(super) own_data: &'a [PathBuf],
    /// Target directory. Its files are visible, even if a variable, or a symlink outside of the directory, points to
    /// them. Those at a path of [`IN_HOME`] or [`SYSTEM_SECRETS`] are hidden.
    pub(super) directory: Option<&'a Path>,
    /// Directories in which the program reaches no socket of the machine: those that it gets empty (`PRIVATE_DIRS` in
    /// `host_view.rs`), and overlays, where a socket is another inode.
    pub(super) without_sockets: &'a [PathBuf],
}

impl SecretSearch<'_> {
    /// Returns true if a symlink at `path` does not hide its target, because it leads from outside into the target
    /// directory.
    fn leads_into_directory(&self, path: &Path, target: &Path) -> bool {
        self.directory.is_some_and(|directory| target.starts_with(directory) && !path.starts_with(directory))
    }
}

/// Hidden paths, with symlinks resolved, and visible paths below them.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    pub(super) hidden: BTreeSet<PathBuf>,
    pub(super) shown: BTreeSet<PathBuf>,
    /// All known sockets of the machine. Those outside of [`SecretSearch::without_sockets`] are in `hidden`, too.
    /// `host_view.rs` hides of them those that the program could reach, and the rest of `hidden` always: so a socket of
    /// `--hide` is only in `hidden`.
    pub(super) sockets: BTreeSet<PathBuf>,
}

impl Secrets {
    /// Finds the secrets that exist.
    pub(super) fn find(search: &SecretSearch<'_>, show: &[PathBuf], hide: &[PathBuf]) -> Self {
        let mut secrets = Self::default();
        for home in search.homes {
            for name in IN_HOME {
                secrets.hide_matching(home, name, search);
            }
        }
        for path in SYSTEM_SECRETS {
            secrets.hide_matching(Path::new("/"), path, search);
        }
        for (directory, pattern) in variables::patterns(|name| std::env::var_os(name)) {
            for path in matching(&directory, pattern) {
                let Ok(path) = fs::canonicalize(path) else { continue };
                if !search.directory.is_some_and(|directory| path.starts_with(directory)) {
                    secrets.hide_unlisted(path, search);
                }
            }
        }
        for home in other_homes(search.homes) {
            secrets.hide(&home);
        }
        for path in search.own_data {
            secrets.hide(path);
        }
        secrets.find_sockets(search.without_sockets);
        for path in VISIBLE_PATHS.iter().map(Path::new).filter_map(|path| fs::canonicalize(path).ok()) {
            secrets.shown.insert(path);
        }
        // The home directory of the user is visible, even below a hidden path.
        secrets.hidden.retain(|path| path.parent().is_some() && !search.homes.contains(path));
        secrets.shown.extend(search.homes.iter().cloned());
        let show: Vec<PathBuf> = show.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
        for path in &show {
            secrets.hidden.retain(|hidden| !hidden.starts_with(path));
            secrets.sockets.retain(|socket| !socket.starts_with(path));
            secrets.shown.insert(path.clone());
        }
        for path in hide.iter().filter_map(|path| fs::canonicalize(path).ok()) {
            secrets.shown.retain(|shown| !shown.starts_with(&path));
            secrets.sockets.remove(&path);
            secrets.hidden.insert(path);
        }
        secrets.hide_link_targets(search, &show);
        secrets.hide_in_other_mounts(&MountTable::read(), search, &show);
        // Other visible paths need no mount to show them.
        let hidden = secrets.hidden.clone();
        secrets.shown.retain(|shown| hidden.iter().any(|hidden| shown.starts_with(hidden)));
        secrets
    }

    /// Returns true if a path is hidden: the nearest hidden or visible path at or above it decides.
    pub(super) fn hides(&self, path: &Path) -> bool {
        let nearest_depth = |paths: &BTreeSet<PathBuf>| {
            paths.iter().filter(|it| path.starts_with(it)).map(|it| it.components().count()).max()
        };
        nearest_depth(&self.hidden)
            .is_some_and(|hidden| nearest_depth(&self.shown).is_none_or(|shown| shown < hidden))
    }

    /// Hides a path with symlinks resolved, if it exists.
    fn hide(&mut self, path: &Path) {
        // The target of a symlink is hidden; a dangling symlink has no content.
        if let Ok(path) = fs::canonicalize(path) {
            self.hidden.insert(path);
        }
    }

    /// Hides the paths below a directory that match a pattern of a list.
    fn hide_matching(&mut self, directory: &Path, pattern: &str, search: &SecretSearch<'_>) {
        for path in matching(directory, pattern) {
            let Ok(target) = fs::canonicalize(&path) else { continue };
            // The target directory itself is in the list, so that the user is told that it is visible.
            if search.directory == Some(target.as_path()) || !search.leads_into_directory(&path, &target) {
                self.hidden.insert(target);
            }
        }
    }

    /// Hides a path that a variable or a symlink names, and not a list of this file. It can be any path, so some are
    /// not hidden: parents of a home, directories at the root, and devices. Symlinks in `path` must be resolved.
    fn hide_unlisted(&mut self, path: PathBuf, search: &SecretSearch<'_>) {
        let contains_home = search.homes.iter().any(|home| home.starts_with(&path));
        let is_directory = path.is_dir() && path.components().count() > 2 && !contains_home;
        if is_directory || path.is_file() {
            self.hidden.insert(path);
        }
    }

    /// Hides the targets of symlinks in hidden directories of homes, for instance of `~/.ssh/id` to a file in a
    /// repository with configuration files. `show` are paths that stay visible.
    fn hide_link_targets(&mut self, search: &SecretSearch<'_>, show: &[PathBuf]) {
        let in_home =
            |path: &&PathBuf| search.homes.iter().any(|home| *path != home && path.starts_with(home));
        let directories: Vec<PathBuf> = self.hidden.iter().filter(in_home).cloned().collect();
        for directory in directories {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten().take(ENTRIES_MAX) {
                if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                    continue;
                }
                let Ok(target) = fs::canonicalize(entry.path()) else { continue };
                let is_visible = is_system_file(&target)
                    || show.iter().any(|it| target.starts_with(it))
                    || search.leads_into_directory(&entry.path(), &target);
                if !is_visible {
                    self.hide_unlisted(target, search);
                }
            }
        }
    }

    /// Finds sockets, because a read-only mount does not prevent connections to them.
    fn find_sockets(&mut self, without_sockets: &[PathBuf]) {
        let (sockets, omitted) = sockets::find(without_sockets, HIDDEN_PATHS_MAX);
        if omitted {
            print_stderr(&format!(
                "warning: this machine has more than {HIDDEN_PATHS_MAX} sockets in its directories: the program can connect to some of them; \
                 `--hide PATH` hides a directory"
            ));
        }
        self.add_sockets(sockets, without_sockets);
    }

    /// Hides the other paths of hidden files whose filesystem is mounted more than once.
    fn hide_in_other_mounts(&mut self, mounts: &MountTable, search: &SecretSearch<'_>, show: &[PathBuf]) {
        // The closure is asked about mounts of directories below a hidden path; nothing is below a socket.
        let mut files = mounts.other_paths(&self.hidden, |path| self.hides(path), HIDDEN_PATHS_MAX);
        let mut sockets = mounts.other_paths(&self.sockets, |_| false, HIDDEN_PATHS_MAX);
        if files.len() > HIDDEN_PATHS_MAX || sockets.len() > HIDDEN_PATHS_MAX {
            print_stderr(&format!(
                "warning: what is hidden has more than {HIDDEN_PATHS_MAX} other paths, because its filesystem is mounted more than once: the program \
                 can use some of them; `--hide PATH` hides a mount"
            ));
        }
        let is_shown =
            |path: &PathBuf| search.homes.contains(path) || show.iter().any(|it| path.starts_with(it));
        files.retain(|path| !is_shown(path));
        sockets.retain(|path| !is_shown(path) && !self.sockets.contains(path));
        self.hidden.extend(files.difference(&sockets).cloned());
        self.add_sockets(sockets, search.without_sockets);
    }

    /// Adds sockets, and hides those that are outside of the directories `without_sockets`.
    fn add_sockets(&mut self, sockets: BTreeSet<PathBuf>, without_sockets: &[PathBuf]) {
        let hidden = sockets.iter().filter(|path| !without_sockets.iter().any(|it| path.starts_with(it)));
        self.hidden.extend(hidden.cloned());
        self.sockets.extend(sockets);
    }
}

/// Returns the paths below a directory that match a pattern, as in [`IN_HOME`]. Only components with `*` are checked
/// for existence.
fn matching(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    for part in Path::new(pattern).components() {
        found = match part {
            Component::Normal(name) if name.as_encoded_bytes().ends_with(b"*") => {
                let name = name.to_string_lossy();
                found.iter().flat_map(|parent| with_prefix(parent, name.trim_end_matches('*'))).collect()
            }
            part => found.into_iter().map(|parent| parent.join(part)).collect(),
        };
    }
    found
}

/// Returns the entries of a directory whose names have a prefix, except public keys.
fn with_prefix(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let matching = names.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(prefix) && !name.ends_with(".pub")
    });
    matching.map(|entry| entry.path()).collect()
}

/// Returns true for a system file, which a symlink in a browser profile may point to.
fn is_system_file(path: &Path) -> bool {
    ["/usr", "/bin", "/lib", "/lib64", "/opt", "/etc", "/snap", "/nix"].iter().any(|it| path.starts_with(it))
}

/// Returns the home directories of other regular users in `/etc/passwd`, except directories at the root.
fn other_homes(own_homes: &[PathBuf]) -> Vec<PathBuf> {
    let mut text = Vec::new();
    let read =
        fs::File::open("/etc/passwd").and_then(|file| file.take(PASSWD_BYTES_MAX).read_to_end(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    regular_homes(&String::from_utf8_lossy(&text))
        .filter_map(|home| fs::canonicalize(home).ok())
        .filter(|home| home.components().count() > 2 && !own_homes.iter().any(|own| own.starts_with(home)))
        .take(ENTRIES_MAX)
        .collect()
}

/// Parses home directories of regular users, without `nobody` (65534): field 6 of
/// `name:password:uid:gid:comment:home:shell`.
fn regular_homes(accounts: &str) -> impl Iterator<Item = PathBuf> {
    accounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, uid, _, _, home, ..] = fields[..] else { return None };
        let is_regular = uid.parse::<u32>().is_ok_and(|uid| uid >= REGULAR_UID_MIN && uid != 65_534);
        (is_regular && home.starts_with('/')).then(|| PathBuf::from(home))
    })
}

/// Returns the home directory of a user in `/etc/passwd`.
pub(super) fn account_home(user_id: u32) -> Option<PathBuf> {
    let mut text = Vec::new();
    fs::File::open("/etc/passwd").ok()?.take(PASSWD_BYTES_MAX).read_to_end(&mut text).ok()?;
    String::from_utf8_lossy(&text).lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, uid, _, _, home, ..] = fields[..] else { return None };
        (uid.parse() == Ok(user_id) && home.starts_with('/')).then(|| PathBuf::from(home))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_a_hidden_one_is_hidden_unless_it_is_shown() {
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let secrets = Secrets {
            hidden: paths(&["/home", "/home/a/b/c"]),
            shown: paths(&["/home/a"]),
            ..Secrets::default()
        };
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
    fn homes_are_those_of_regular_users() {
        let accounts =
            "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/data/ada:/bin/sh\nbad\nx:y:1001:1::relative:\n";
        assert_eq!(regular_homes(accounts).collect::<Vec<_>>(), [PathBuf::from("/data/ada")]);
    }

    #[test]
    fn a_star_at_the_end_of_any_component_matches_a_prefix() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        for name in ["grub", "grub2", "other"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("user.cfg"), "").unwrap();
            fs::write(root.join(name).join("user.pub"), "").unwrap();
        }
        let search = SecretSearch { homes: &[], own_data: &[], directory: None, without_sockets: &[] };
        let mut secrets = Secrets::default();
        secrets.hide_matching(&root, "grub*/user.cfg", &search);
        let expected = ["grub/user.cfg", "grub2/user.cfg"].map(|name| root.join(name));
        assert_eq!(secrets.hidden, BTreeSet::from(expected));
        secrets.hide_matching(&root, "other/user*", &search);
        assert!(secrets.hidden.contains(&root.join("other/user.cfg")), "{:?}", secrets.hidden);
        assert!(!secrets.hidden.contains(&root.join("other/user.pub")), "public keys are visible");
    }

    #[test]
    fn files_of_the_target_directory_are_hidden_at_listed_paths_only() {
        let temporary = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(temporary.path()).unwrap();
        fs::create_dir_all(home.join("dotfiles/ssh")).unwrap();
        fs::create_dir(home.join(".ssh")).unwrap();
        for name in ["dotfiles/npmrc", "dotfiles/ssh/id"] {
            fs::write(home.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("dotfiles/npmrc", home.join(".npmrc")).unwrap();
        std::os::unix::fs::symlink("../dotfiles/ssh/id", home.join(".ssh/id")).unwrap();
        let (homes, dotfiles) = ([home.clone()], home.join("dotfiles"));
        let hidden = |directory: Option<&Path>| {
            let search = SecretSearch { homes: &homes, own_data: &[], directory, without_sockets: &[] };
            let mut secrets = Secrets::default();
            for name in [".npmrc", ".ssh"] {
                secrets.hide_matching(&home, name, &search);
            }
            secrets.hide_link_targets(&search, &[]);
            secrets.hidden
        };
        let in_dotfiles = ["npmrc", "ssh/id"].map(|name| dotfiles.join(name));
        let all: BTreeSet<PathBuf> = in_dotfiles.into_iter().chain([home.join(".ssh")]).collect();
        assert_eq!(hidden(None), all);
        assert_eq!(hidden(Some(dotfiles.as_path())), BTreeSet::from([home.join(".ssh")]));
        // The symlinks are in the target directory, too.
        assert_eq!(hidden(Some(home.as_path())), all);
    }
}
