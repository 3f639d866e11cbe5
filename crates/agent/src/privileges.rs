//! Capabilities of the agent.
//!
//! In a sandbox whose root filesystem is kept, commands may run as other users. There the agent is started with
//! capabilities over files, users and processes, which it may pass on to commands of root. It uses only the one
//! to signal processes of other users itself. Elsewhere it has none. `no_new_privs` is set in both cases, so that
//! a command never gets more than the agent gave it.

use std::io;

use linux_raw_sys::general::{_LINUX_CAPABILITY_VERSION_3, CAP_KILL, CAP_SETGID, CAP_SETUID};

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`, for 32 capabilities.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Capabilities that are permitted to the agent, among the first 32. All others are not kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Privileges {
    permitted: u32,
}

impl Privileges {
    /// Determines the capabilities of this process, and stops using them, except for signals. An agent that runs
    /// as root, as in tests, is left as it is.
    pub(crate) fn read_and_lower() -> io::Result<Self> {
        if rustix::process::getuid().is_root() {
            return Ok(Self::default());
        }
        let permitted = get()?.permitted;
        if permitted != 0 {
            // SAFETY: the call takes integers.
            check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) })?;
        }
        let privileges = Self { permitted };
        privileges.lower()?;
        Ok(privileges)
    }

    /// Returns true if commands can run as other users.
    pub(crate) fn can_switch_users(self) -> bool {
        let needed = 1 << CAP_SETUID | 1 << CAP_SETGID;
        self.permitted & needed == needed
    }

    /// Calls a function with all permitted capabilities.
    pub(crate) fn with_all<T>(self, function: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.raise()?;
        let result = function();
        self.lower()?;
        result
    }

    /// Stops using the capabilities, except for signals.
    fn lower(self) -> io::Result<()> {
        let Self { permitted } = self;
        if permitted == 0 {
            return Ok(());
        }
        set(Capabilities { effective: permitted & (1 << CAP_KILL), permitted, inheritable: 0 })
    }

    /// Starts to use all permitted capabilities.
    pub(crate) fn raise(self) -> io::Result<()> {
        set(Capabilities { effective: self.permitted, permitted: self.permitted, inheritable: 0 })
    }

    /// Drops all capabilities of this process, irrevocably.
    pub(crate) fn drop_all(self) -> io::Result<()> {
        if self.permitted == 0 { Ok(()) } else { set(Capabilities::default()) }
    }
}

fn get() -> io::Result<Capabilities> {
    let header = Header { version: _LINUX_CAPABILITY_VERSION_3, pid: 0 };
    // The second structure has the capabilities from 32 on.
    let mut sets = [Capabilities::default(); 2];
    // SAFETY: the structures have the layout of this version, and outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) };
    if done == 0 { Ok(sets[0]) } else { Err(io::Error::last_os_error()) }
}

fn set(first: Capabilities) -> io::Result<()> {
    let header = Header { version: _LINUX_CAPABILITY_VERSION_3, pid: 0 };
    let sets = [first, Capabilities::default()];
    // SAFETY: the structures have the layout of this version, and outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
