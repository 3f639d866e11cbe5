//! Supervisors without a program, which wait for the next one.
//!
//! A supervisor is a process that starts the program of a command and adopts its orphans (`program_start.rs`). It
//! reports to the agent over a pipe of each program, the report pipe, if the program was started, and how it ended.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal};

use crate::inherited_attributes::{CommandUsers, InheritedAttributes};
use crate::process_tree::signal_process;

/// Maximum number of idle supervisors.
const IDLE_MAX: usize = 16;
/// Maximum number of descriptors of a program: the standard streams, the report pipe and the script.
pub(crate) const DESCRIPTORS_MAX: usize = 5;

/// Supervisor without a program. It exits when the socket is closed.
pub(crate) struct IdleSupervisor {
    pub(crate) pid: Pid,
    /// Socket over which it receives its next program.
    pub(crate) socket: OwnedFd,
}

impl IdleSupervisor {
    /// Sends a program, as `ProgramParts::encode` returns it, with its descriptors. Never blocks.
    ///
    /// An error means that the program is not started, but success does not mean that it is: the supervisor may be
    /// killed before it receives the message. The kernel then closes the descriptors in the message, and the agent sees
    /// the end of the report pipe.
    pub(crate) fn send(&self, encoded: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        // Another process may have stopped the supervisor.
        signal_process(self.pid, Signal::CONT);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("a program has too many descriptors"));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[IoSlice::new(encoded)], &mut control, flags)?;
        Ok(())
    }
}

/// Idle supervisors, the latest last.
#[derive(Default)]
pub(crate) struct IdleSupervisors(Vec<IdleSupervisor>);

impl IdleSupervisors {
    /// Adds a supervisor. If there are enough, it is dropped, so that it exits.
    pub(crate) fn add(&mut self, supervisor: IdleSupervisor) {
        if self.0.len() < IDLE_MAX {
            self.0.push(supervisor);
        }
    }

    /// Removes a supervisor that exited.
    pub(crate) fn remove(&mut self, pid: Pid) {
        self.0.retain(|supervisor| supervisor.pid != pid);
    }

    pub(crate) fn contains(&self, pid: Pid) -> bool {
        self.0.iter().any(|supervisor| supervisor.pid == pid)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the supervisor that became idle last. A supervisor whose inherited attributes (limits, scheduling,
    /// affinity, priorities) a command has changed is killed, because its programs would inherit them. `users` are those
    /// that commands run as: only root can change the OOM score of a supervisor, so otherwise it is not compared.
    pub(crate) fn take(&mut self, users: CommandUsers) -> Option<IdleSupervisor> {
        if self.0.is_empty() {
            return None;
        }
        let expected = InheritedAttributes::own(users);
        while let Some(supervisor) = self.0.pop() {
            if InheritedAttributes::of(supervisor.pid, users) == expected {
                return Some(supervisor);
            }
            signal_process(supervisor.pid, Signal::KILL);
        }
        None
    }
}
