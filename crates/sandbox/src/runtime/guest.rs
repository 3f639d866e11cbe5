//! What a sandbox in a container looks like from inside, whichever runtime made the container.

use std::io;
use std::os::unix::fs::chown;

use rustix::process::{getegid, geteuid};
use workspace_host::launch::SOCKETS;
use workspace_host::limits::system_v_bounds;

use super::Start;

/// Where the guest agent's program is, inside.
pub(super) const AGENT: &str = "/.workspace-agent";
/// What every program inside finds in its environment; commands get more.
pub(super) const ENVIRONMENT: [&str; 3] = ["HOME=/home/sandbox", "USER=sandbox", "LANG=C.UTF-8"];
/// The user of a sandbox that the superuser starts.
const USER: u32 = 1000;

/// As whom everything in a sandbox runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl User {
    /// Nobody the machine knows, if this is the superuser; else whoever this is, because he can give his files to
    /// nobody else.
    pub(super) fn of_sandboxes() -> Self {
        if geteuid().is_root() {
            return Self { uid: USER, gid: USER };
        }
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }

    /// Makes him the owner of what he writes to.
    pub(super) fn own(self, order: &Start<'_>) -> io::Result<()> {
        if !geteuid().is_root() {
            return Ok(());
        }
        let output = order.dir.output();
        for directory in order.workspace.into_iter().chain([output.as_path()]) {
            chown(directory, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }
}

/// What the guest agent is started with. What is secret is given to it later; so is where the server is, unless it
/// `dials_socket`.
pub(super) fn arguments(id: &str, dials_socket: bool) -> Vec<String> {
    let (socket, start) =
        (format!("{SOCKETS}/agent.sock"), format!("{SOCKETS}/{}", crate::sandbox_dir::START));
    let socket = ["--socket", &socket];
    let socket = if dials_socket { &socket[..] } else { &[] };
    [&["--sandbox", id][..], socket, &["--start", &start]].concat().into_iter().map(str::to_owned).collect()
}

/// A directory in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) path: &'static str,
    pub(super) mode: u32,
    /// Whether it is the user's own.
    pub(super) owned: bool,
    /// The part of the memory limit that it may hold, as a divisor.
    part: u64,
}

/// Where something can be written beside the workspace. A container's runtime gives each a filesystem of its own, so
/// their parts and that of `/dev/shm` add up to half of the memory limit; in the embedded runtime they share that half.
pub(super) const IN_MEMORY: [Memory; 4] = [
    Memory { path: "/tmp", mode: 0o1777, owned: false, part: 4 },
    Memory { path: "/var/tmp", mode: 0o1777, owned: false, part: 16 },
    // Nobody inside may write there.
    Memory { path: "/run", mode: 0o755, owned: false, part: 1024 },
    Memory { path: "/home/sandbox", mode: 0o755, owned: true, part: 8 },
];

impl Memory {
    /// How it is mounted.
    pub(super) fn options(&self, user: User, order: &Start<'_>) -> Vec<String> {
        let mut options: Vec<String> = ["rw", "exec", "nosuid", "nodev"].map(str::to_owned).into();
        options.push(format!("mode={:o}", self.mode));
        if let Some(room) = room(order, self.part) {
            options.push(format!("size={room}"));
            options.push(format!("nr_inodes={}", (room / PAGE).max(FILES_LEAST)));
        }
        if self.owned {
            options.extend([format!("uid={}", user.uid), format!("gid={}", user.gid)]);
        }
        options
    }
}

const PAGE: u64 = 4096;
/// So many files there may be in a directory in memory at least.
const FILES_LEAST: u64 = 256;
/// The part of the memory limit that `/dev/shm` may hold, as a divisor.
const SHARED: u64 = 16;

/// How much a directory in memory may hold. All of them full must leave room for processes: they would be killed
/// otherwise, and what fills them would stay. No size would be no bound.
fn room(order: &Start<'_>, part: u64) -> Option<u64> {
    order.limits.memory_bytes.map(|memory| (memory / part).max(PAGE))
}

/// How much `/dev/shm` may hold.
pub(super) fn shared_memory(order: &Start<'_>) -> Option<u64> {
    room(order, SHARED)
}

/// Bounds of System V shared memory and messages. Not for Docker: a daemon without root refuses to start a container with
/// them on kernels before 5.19.
pub(super) fn bounds(order: &Start<'_>) -> Vec<(String, String)> {
    let Some(memory) = order.limits.memory_bytes else { return Vec::new() };
    system_v_bounds(memory).map(|(name, value)| (format!("kernel.{name}"), value.to_string())).into()
}

/// Ids and names become parts of paths and of other programs' arguments.
pub(super) fn is_harmless(name: &str) -> bool {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(harmless)
}
