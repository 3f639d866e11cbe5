//! User, arguments and directories of the guest agent in a container, the same for docker and oci.

use std::io;
use std::os::unix::fs::chown;

use rustix::process::{getegid, geteuid};
use workspace_host::launch::SOCKETS;
use workspace_host::limits::system_v_ipc_limits;

use super::SandboxSpec;

/// Path of the guest agent's program inside.
pub(super) const AGENT: &str = "/.workspace-agent";
/// Environment of every program inside; commands get more.
pub(super) const ENVIRONMENT: [&str; 3] = ["HOME=/home/sandbox", "USER=sandbox", "LANG=C.UTF-8"];
/// UID and GID of everything in a sandbox if the server runs as root.
const USER: u32 = 1000;

/// User and group of everything in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl User {
    /// Returns user 1000 if this process is root, even if that id belongs to a user of the host; otherwise the user of
    /// this process, since only root can change the owner of files.
    pub(super) fn of_sandboxes() -> Self {
        if geteuid().is_root() {
            return Self { uid: USER, gid: USER };
        }
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }

    /// Makes the user the owner of directories that it writes to.
    pub(super) fn take_ownership(self, spec: &SandboxSpec<'_>) -> io::Result<()> {
        if !geteuid().is_root() {
            return Ok(());
        }
        let output = spec.dir.output();
        for directory in spec.workspace.into_iter().chain([output.as_path()]) {
            chown(directory, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }
}

/// Transport over which a guest agent connects to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentTransport {
    /// The Unix socket in the directory of the sandbox.
    Socket,
    /// TCP, to an address in the start parameters of the guest agent.
    Tcp,
}

/// Returns the arguments of the guest agent. They contain no secret: the agent gets its token over a socket
/// (`handover.rs`).
pub(super) fn arguments(id: &str, transport: AgentTransport) -> Vec<String> {
    let (socket, start) =
        (format!("{SOCKETS}/agent.sock"), format!("{SOCKETS}/{}", crate::sandbox_dir::START_SOCKET));
    let socket = ["--socket", &socket];
    let socket = match transport {
        AgentTransport::Socket => &socket[..],
        AgentTransport::Tcp => &[],
    };
    [&["--sandbox", id][..], socket, &["--start", &start]].concat().into_iter().map(str::to_owned).collect()
}

/// A directory in memory (tmpfs).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemoryDirectory {
    pub(super) path: &'static str,
    pub(super) mode: u32,
    /// True if it belongs to the user of the sandbox, false if it belongs to root.
    pub(super) owned: bool,
    /// Divisor: the maximum size of the directory is the memory limit divided by this.
    part: u64,
}

/// Directories in memory, beside the workspace. A container's runtime gives each its own filesystem, so
/// their parts and that of `/dev/shm` add up to about half of the memory limit; in the embedded runtime they share
/// one half.
pub(super) const IN_MEMORY: [MemoryDirectory; 4] = [
    MemoryDirectory { path: "/tmp", mode: 0o1777, owned: false, part: 4 },
    MemoryDirectory { path: "/var/tmp", mode: 0o1777, owned: false, part: 16 },
    // No user inside may write there.
    MemoryDirectory { path: "/run", mode: 0o755, owned: false, part: 1024 },
    MemoryDirectory { path: "/home/sandbox", mode: 0o755, owned: true, part: 8 },
];

impl MemoryDirectory {
    /// Returns the mount options.
    pub(super) fn options(&self, user: User, spec: &SandboxSpec<'_>) -> Vec<String> {
        let mut options: Vec<String> = ["rw", "exec", "nosuid", "nodev"].map(str::to_owned).into();
        options.push(format!("mode={:o}", self.mode));
        if let Some(bytes) = memory_share(spec, self.part) {
            options.push(format!("size={bytes}"));
            options.push(format!("nr_inodes={}", (bytes / PAGE).max(FILES_MIN)));
        }
        if self.owned {
            options.extend([format!("uid={}", user.uid), format!("gid={}", user.gid)]);
        }
        options
    }
}

const PAGE: u64 = 4096;
/// Minimum for the limit of files in a directory in memory.
const FILES_MIN: u64 = 256;
/// Divisor: the maximum size of `/dev/shm` is the memory limit divided by this.
const SHM_PART: u64 = 16;

/// Returns the maximum size of a directory in memory; `None` without a memory limit. When all directories are
/// full, processes must have memory left: otherwise they would be killed, and the files would stay.
fn memory_share(spec: &SandboxSpec<'_>, part: u64) -> Option<u64> {
    spec.limits.memory_bytes.map(|memory| (memory / part).max(PAGE))
}

/// Returns the size of `/dev/shm`; `None` without a memory limit.
pub(super) fn shared_memory(spec: &SandboxSpec<'_>) -> Option<u64> {
    memory_share(spec, SHM_PART)
}

/// Returns the limits of System V shared memory and messages. Not for Docker: a daemon without root refuses
/// to start a container with them on kernels before 5.19.
pub(super) fn system_v_limits(spec: &SandboxSpec<'_>) -> Vec<(String, String)> {
    let Some(memory) = spec.limits.memory_bytes else { return Vec::new() };
    system_v_ipc_limits(memory).map(|(name, value)| (format!("kernel.{name}"), value.to_string())).into()
}

/// Returns true for a valid id or name. They become parts of paths and of other programs' arguments.
pub(super) fn is_safe_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_allowed)
}
