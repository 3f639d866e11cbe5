//! Giving its network to a sandbox that somebody else runs.

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::egress::Egress;
use super::network_daemon::start;
use crate::error::{HostError, Result};
use crate::helper::client;
use crate::namespace::holder::Holder;
use crate::process::Process;

/// What the helper is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    process: Process,
    egress: Egress,
}

/// Gives a sandbox that exists and has run nothing yet its network. `pid` is its first process.
pub fn connect(pid: i32, egress: &Egress) -> Result<()> {
    let pid = Pid::from_raw(pid).ok_or_else(|| HostError::Helper("the sandbox has ended".to_owned()))?;
    let order = Order { process: Process::of(pid)?, egress: egress.clone() };
    client::ask("connect", &order, &[])
}

/// What the helper does.
pub(crate) fn run(order: &Order) -> Result<()> {
    let gone = || HostError::Helper("the sandbox has ended".to_owned());
    start(&order.process.pidfd().ok_or_else(gone)?, &order.egress, &Holder::Machine)
}
