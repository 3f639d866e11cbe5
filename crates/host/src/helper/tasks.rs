//! All tasks that a helper can run.

use std::os::fd::OwnedFd;

use super::protocol::{Task, handle};
use crate::mount::anchor::{AnchorTask, AttachFollowerTask};
use crate::mount::attach::AttachTask;
use crate::mount::open_as_holder::OpenFilesAsHolderTask;
use crate::mount::overlay::open_root::OpenRootTask;
use crate::mount::overlay::read_only::ReadOnlyOverlayTask;
use crate::mount::overlay::task::OverlayTask;
use crate::mount::swap::{FinishOrRevertSwapTask, SwapWorkspaceTask};
use crate::namespace::holder::StartHolderTask;
use crate::network::connect::ConnectTask;
use crate::resources::disk_usage::MeasureDiskUsageTask;
use crate::sandbox::launch::LaunchTask;
use crate::sandbox::probe::ProbeTask;
use crate::sandbox::read_only_host::ReadOnlyHostProgram;
use crate::sandbox::workspace_processes::{MeasureDeletedFilesTask, WorkspaceProcessesTask};

/// Function that runs a task given as JSON, and returns its reply as JSON.
pub(super) type Handler = fn(&[u8], Vec<OwnedFd>) -> Vec<u8>;

const TASKS: [(&str, Handler); 17] = [
    task::<AnchorTask>(),
    task::<AttachFollowerTask>(),
    task::<AttachTask>(),
    task::<ConnectTask>(),
    task::<MeasureDeletedFilesTask>(),
    task::<ReadOnlyHostProgram>(),
    task::<LaunchTask>(),
    task::<MeasureDiskUsageTask>(),
    task::<OpenRootTask>(),
    task::<OverlayTask>(),
    task::<ProbeTask>(),
    task::<ReadOnlyOverlayTask>(),
    task::<OpenFilesAsHolderTask>(),
    task::<FinishOrRevertSwapTask>(),
    task::<StartHolderTask>(),
    task::<SwapWorkspaceTask>(),
    task::<WorkspaceProcessesTask>(),
];

const fn task<T: Task>() -> (&'static str, Handler) {
    (T::NAME, handle::<T>)
}

/// Returns the handler of the task with this name.
pub(super) fn find(name: &str) -> Option<Handler> {
    TASKS.iter().find(|(task, _)| *task == name).map(|(_, handler)| *handler)
}

#[cfg(test)]
mod tests {
    use super::super::protocol::TASK_NAME_MAX;
    use super::*;

    #[test]
    fn task_names_are_unique_and_fit_into_a_request() {
        for (index, (name, _)) in TASKS.iter().enumerate() {
            assert!(!name.is_empty() && name.len() < TASK_NAME_MAX, "{name}");
            assert!(TASKS[..index].iter().all(|(other, _)| other != name), "{name}");
        }
        assert!(find("launch").is_some() && find("nothing").is_none());
    }
}
