//! Exports: directories that clients may mount, their settings, and the addresses that users are told.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::clients::ClientList;
use crate::error::NfsError;
use crate::hooks::{DiskLimit, Gate, NoGate, NoLimit};

/// Maximum length of the name of an export and of a mount secret, in bytes.
const NAME_MAX: usize = 128;

/// Minimum length of a mount secret, in bytes.
const SECRET_MIN: usize = 16;

/// Permission of clients to change an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Clients may read; changes fail with ROFS.
    ReadOnly,
    /// Clients may read and write.
    ReadWrite,
}

/// User and group as which all clients of an export act. Files that clients create belong to this user, and the kernel
/// checks this user's permissions. If the server does not run as root, this must be the user of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// User id, as `stat` reports it to this process for files below the root of the export.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Identity {
    /// Returns the identity of this process.
    pub fn own() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }
}

/// Secret that a client must know to mount an export: its path is `/{name}.{secret}`.
#[derive(Clone, PartialEq, Eq)]
pub struct MountSecret(String);

impl MountSecret {
    /// Creates a secret from a text of 16 to 128 characters: ASCII letters, digits, `-` and `_`. Fails for other texts.
    pub fn new(secret: impl Into<String>) -> Result<Self, NfsError> {
        let secret = secret.into();
        let is_valid = (SECRET_MIN..=NAME_MAX).contains(&secret.len()) && secret.bytes().all(is_plain);
        if is_valid { Ok(Self(secret)) } else { Err(NfsError::InvalidSecret) }
    }

    /// Creates a secret of 128 random bits.
    pub fn random() -> Self {
        let bytes = crate::random::random_bytes::<16>();
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the secret as text. The `Debug` output does not contain it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns true if a text is the secret. The time of the comparison does not depend on the secret.
    pub(crate) fn matches(&self, given: &[u8]) -> bool {
        blake3::hash(self.0.as_bytes()) == blake3::hash(given)
    }
}

impl fmt::Debug for MountSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MountSecret(..)")
    }
}

/// Directory to export, with its settings.
pub struct Export {
    pub(crate) name: String,
    pub(crate) root: OwnedFd,
    pub(crate) identity: Identity,
    pub(crate) revision: String,
    pub(crate) access: Access,
    pub(crate) clients: ClientList,
    pub(crate) secret: Option<MountSecret>,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) disk_limit: Arc<dyn DiskLimit>,
}

impl Export {
    /// Creates an export that every client may mount and change.
    ///
    /// `name` is the path that clients mount, without the slash. `root` is the directory, open for reading or with
    /// `O_PATH`.
    pub fn new(name: impl Into<String>, root: OwnedFd, identity: Identity) -> Self {
        Self {
            name: name.into(),
            root,
            identity,
            revision: String::new(),
            access: Access::ReadWrite,
            clients: ClientList::any(),
            secret: None,
            gate: Arc::new(NoGate),
            disk_limit: Arc::new(NoLimit),
        }
    }

    /// Sets the revision of the directory: a text that the caller changes when old file handles must become stale, for
    /// example after the content was replaced. File handles from an earlier server stay valid if neither the revision
    /// nor the inode of the root has changed.
    #[must_use]
    pub fn revision(mut self, revision: impl Into<String>) -> Self {
        self.revision = revision.into();
        self
    }

    /// Sets the permission of clients to change files.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets the addresses of the clients that may use the export.
    #[must_use]
    pub fn clients(mut self, clients: ClientList) -> Self {
        self.clients = clients;
        self
    }

    /// Sets the secret that is part of the path to mount; `None` for an export without a secret.
    #[must_use]
    pub fn secret(mut self, secret: Option<MountSecret>) -> Self {
        self.secret = secret;
        self
    }

    /// Sets the gate, with which the owner of the directory can exclude operations.
    #[must_use]
    pub fn gate(mut self, gate: Arc<dyn Gate>) -> Self {
        self.gate = gate;
        self
    }

    /// Sets the limit of disk space.
    #[must_use]
    pub fn disk_limit(mut self, disk_limit: Arc<dyn DiskLimit>) -> Self {
        self.disk_limit = disk_limit;
        self
    }

    /// Fails if the name is not allowed.
    pub(crate) fn check_name(&self) -> Result<(), NfsError> {
        let name = &self.name;
        if is_name(name) { Ok(()) } else { Err(NfsError::InvalidName { name: name.clone() }) }
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Export")
            .field("name", &self.name)
            .field("identity", &self.identity)
            .field("revision", &self.revision)
            .field("access", &self.access)
            .field("clients", &self.clients)
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}

/// Address of an export, for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsExportInfo {
    /// Host name or address.
    pub host: String,
    /// TCP port of NFS and MOUNT.
    pub port: u16,
    /// Path to mount, with the secret if there is one.
    pub path: String,
    /// Command that mounts the export at `/mnt` on Linux by NFSv3.
    pub mount_command: String,
    /// Command that mounts the export at `/mnt` on Linux by NFSv4; `None` if the server does not support that.
    pub mount_command_v4: Option<String>,
    /// Command that mounts the export at `/mnt` on macOS.
    pub mount_command_macos: String,
}

impl NfsExportInfo {
    pub(crate) fn new(host: String, port: u16, name: &str, secret: Option<&MountSecret>) -> Self {
        let path = match secret {
            Some(secret) => format!("/{name}.{}", secret.reveal()),
            None => format!("/{name}"),
        };
        let server = server_in_command(&host);
        let linux = format!("mount -t nfs -o vers=3,tcp,nolock,port={port},mountport={port}");
        let macos = format!("mount_nfs -o vers=3,tcp,nolocks,port={port},mountport={port}");
        Self {
            mount_command: format!("{linux} {server}:{path} /mnt"),
            mount_command_v4: None,
            mount_command_macos: format!("{macos} {server}:{path} /mnt"),
            host,
            port,
            path,
        }
    }

    /// Returns the address of a directory that the kernel exports by its path. The server tells clients its other ports
    /// by rpcbind.
    pub(crate) fn of_system(host: String, port: u16, path: &str) -> Self {
        let source = shell_quoted(&format!("{}:{path}", server_in_command(&host)));
        Self {
            mount_command: format!("mount -t nfs -o vers=3,tcp {source} /mnt"),
            mount_command_v4: Some(format!("mount -t nfs4 {source} /mnt")),
            // The kernel accepts only requests from ports below 1024.
            mount_command_macos: format!("mount_nfs -o vers=3,tcp,resvport {source} /mnt"),
            host,
            port,
            path: path.to_owned(),
        }
    }
}

/// Returns a host as it is written before a path: an IPv6 address needs brackets.
fn server_in_command(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Returns a word of a shell command, in quotes if it has characters that a shell may interpret.
fn shell_quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%=[]".contains(&byte);
    if word.bytes().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Entry in a list of exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSummary {
    /// Name of the export.
    pub name: String,
    /// Permission of clients.
    pub access: Access,
    /// Clients that may use the export.
    pub clients: ClientList,
    /// Number of clients that have mounted the export and have not announced an unmount.
    pub mounts: usize,
}

/// Returns true if this can be the name of an export: 1 to 128 ASCII letters, digits, `-` and `_`.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Returns true for the characters of names and secrets: ASCII letters, digits, `-` and `_`.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_commands_name_the_port_twice_and_the_secret() {
        let secret = MountSecret::new("0123456789abcdef").unwrap();
        let info = NfsExportInfo::new("10.0.0.1".to_owned(), 3049, "sbx-1", Some(&secret));
        assert_eq!(info.path, "/sbx-1.0123456789abcdef");
        assert_eq!(
            info.mount_command,
            "mount -t nfs -o vers=3,tcp,nolock,port=3049,mountport=3049 10.0.0.1:/sbx-1.0123456789abcdef /mnt"
        );
        let ipv6 = NfsExportInfo::new("fd00::1".to_owned(), 2049, "sbx-1", None);
        assert!(ipv6.mount_command.ends_with(" [fd00::1]:/sbx-1 /mnt"), "{}", ipv6.mount_command);
    }

    #[test]
    fn mount_commands_of_the_kernels_server_quote_odd_paths() {
        let info = NfsExportInfo::of_system("10.0.0.1".to_owned(), 2049, "/data/sbx-1");
        assert_eq!(info.mount_command, "mount -t nfs -o vers=3,tcp 10.0.0.1:/data/sbx-1 /mnt");
        assert_eq!(info.mount_command_v4.unwrap(), "mount -t nfs4 10.0.0.1:/data/sbx-1 /mnt");
        let odd = NfsExportInfo::of_system("fd00::1".to_owned(), 2049, "/it's $here");
        assert_eq!(odd.mount_command, r"mount -t nfs -o vers=3,tcp '[fd00::1]:/it'\''s $here' /mnt");
    }

    #[test]
    fn short_secrets_are_refused_and_debug_output_has_no_secret() {
        assert!(MountSecret::new("short").is_err());
        assert!(MountSecret::new("0123456789abcde/").is_err());
        let secret = MountSecret::random();
        assert!(MountSecret::new(secret.reveal()).unwrap().matches(secret.reveal().as_bytes()));
        assert!(!secret.matches(b"0123456789abcdef"));
        assert!(!format!("{secret:?}").contains(secret.reveal()));
    }
}
