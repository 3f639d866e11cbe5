//! Network of a sandbox that another runtime runs.

use std::os::fd::OwnedFd;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::egress::Egress;
use super::network_daemon::start;
use crate::error::{HostError, Result};
use crate::helper;
use crate::helper::protocol::Task;
use crate::namespace::holder::NamespaceHolder;
use crate::process::Process;

/// Sets up the network of a sandbox that another runtime started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ConnectTask {
    process: Process,
    egress: Egress,
}

/// Sets up the network of a sandbox that exists but has not run any program yet. `pid` is its first process.
pub fn connect(pid: i32, egress: &Egress) -> Result<()> {
    let pid = Pid::from_raw(pid).ok_or_else(HostError::sandbox_ended)?;
    let task = ConnectTask { process: Process::of(pid)?, egress: egress.clone() };
    helper::client::call(&task, &[])
}

impl Task for ConnectTask {
    const NAME: &'static str = "connect";
    type Reply = ();

    fn run(self, _fds: Vec<OwnedFd>) -> Result<()> {
        let process = self.process.pidfd().ok_or_else(HostError::sandbox_ended)?;
        start(&process, &self.egress, &NamespaceHolder::None)
    }
}
