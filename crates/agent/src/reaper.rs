//! Reaping of exited processes.
//!
//! The agent is PID 1 and adopts every orphan. A supervisor adopts the orphans of its command, so the agent
//! gets them only if the supervisor is killed. They no longer belong to a command, so they are killed.

use std::io;

use rustix::process::{Pid, Signal, WaitOptions, getpid, wait};
use tokio::signal::unix::{SignalKind, signal};

use crate::agent_state::{AgentState, CommandMessage};
use crate::process_tree;

/// Starts the task that reaps children of the agent, and reports the exit of supervisors to their commands.
pub(crate) fn start(agent: &AgentState) -> io::Result<()> {
    let mut children = signal(SignalKind::child())?;
    let agent = agent.clone();
    tokio::spawn(async move {
        loop {
            children.recv().await;
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                let Some(mailbox) = agent.on_child_exited(pid) else { continue };
                drop(mailbox.send(CommandMessage::SupervisorExited(pid)).await);
                // A supervisor that exits by itself has no descendants.
                if status.signaled() {
                    kill_orphans(&agent);
                }
            }
        }
    });
    Ok(())
}

/// Kills children of the agent that it did not start.
fn kill_orphans(agent: &AgentState) {
    let own_pid = getpid();
    let is_orphan = |pid: &Pid| process_tree::parent_of(*pid) == Some(own_pid) && !agent.is_own_child(*pid);
    for orphan in process_tree::descendants(own_pid).into_iter().filter(is_orphan) {
        // Stopped first, so that it cannot start processes while its descendants are collected.
        process_tree::signal_process(orphan, Signal::STOP);
        process_tree::kill_descendants(orphan);
        process_tree::signal_process(orphan, Signal::KILL);
    }
}
