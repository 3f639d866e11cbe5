//! Taking in processes that ended.
//!
//! The agent is the first process: whatever loses its parent becomes its child. Below a supervisor nothing does,
//! unless somebody kills the supervisor. What such a killer leaves behind belongs to no command any more, so it
//! is ended.

use std::io;

use rustix::process::{Pid, Signal, WaitOptions, getpid, wait};
use tokio::signal::unix::{SignalKind, signal};

use crate::guest::{Guest, Order};
use crate::tree;

pub(crate) fn start(guest: &Guest) -> io::Result<()> {
    let mut children = signal(SignalKind::child())?;
    let guest = guest.clone();
    tokio::spawn(async move {
        loop {
            children.recv().await;
            while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
                if let Some(orders) = guest.ended(pid) {
                    drop(orders.send(Order::Gone).await);
                    end_strays(&guest);
                }
            }
        }
    });
    Ok(())
}

/// Ends children of the agent that are no supervisors.
fn end_strays(guest: &Guest) {
    let supervisors = guest.supervisors();
    let me = getpid();
    let is_stray = |pid: &Pid| tree::parent_of(*pid) == Some(me) && !supervisors.contains_key(pid);
    for stray in tree::below(me).into_iter().filter(is_stray) {
        // Stopped first: it could start something else while what is below it is being looked for.
        tree::send(stray, Signal::STOP);
        tree::kill(stray);
        tree::send(stray, Signal::KILL);
    }
}
