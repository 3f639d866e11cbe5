//! Root filesystems that a recipe makes with the programs of the server's machine.

use workspace_state::{
    Cancel, Expect, NewSnapshot, Node, Snapshot, Store, Tree, TreeError, TreeId, VirtualTree,
};
use workspace_workspace::WorkspaceError;

use super::cache::{new_step_reference, remove_reference};
use super::progress::Reports;
use super::run_step::{Outcome, StepCommand, StepUser};
use crate::blocking::blocking;
use crate::config::NewSandbox;
use crate::error::Result;
use crate::lifecycle::create::Creator;
use crate::root::skeleton;
use crate::service::Service;

/// Template that consists of the programs of the server's machine.
const MACHINE: &str = "base";
/// Name of the template that a root filesystem records if it was made by a recipe and not from a template.
const NO_TEMPLATE: &str = "bootstrap";
/// Directory in the workspace that becomes the root filesystem.
const ROOT: &str = "root";

impl Service {
    /// Runs `command` in a sandbox with the programs of the machine, and commits the directory that it made at
    /// `/workspace/root` as a root filesystem. `reference` is the name of the reference to the new snapshot.
    pub(super) async fn make_root(
        &self,
        creator: &Creator,
        (command, sandbox, reference): (&str, NewSandbox, &str),
        reports: &mut Reports,
        cancel: &Cancel,
    ) -> Result<Outcome> {
        let files_reference = new_step_reference();
        let step = StepCommand {
            command,
            workdir: None,
            sandbox: NewSandbox { template: MACHINE.to_owned(), ..sandbox },
            user: StepUser::Sandbox,
            reference: &files_reference,
        };
        let files = match self.run_step(creator, step, reports, cancel).await? {
            Outcome::Done(snapshot) => snapshot,
            failed @ Outcome::Failed(..) => return Ok(failed),
        };
        let store = self.0.workspaces.store().with_cancel(cancel.clone());
        let reference = reference.to_owned();
        let convert = move || {
            let root = convert(&store, &files, &reference);
            // Also after an error or a cancellation: the snapshot of the workspace is not needed any more.
            remove_reference(&store.with_cancel(Cancel::new()), &files_reference, files.id)?;
            Ok::<_, WorkspaceError>(root?)
        };
        match blocking(convert).await?? {
            Some(snapshot) => Ok(Outcome::Done(snapshot)),
            None => {
                let message = format!("its command made no directory `/workspace/{ROOT}`");
                Ok(Outcome::Failed(message, None))
            }
        }
    }
}

/// Commits a directory of a workspace as a root filesystem; `None` if there is none.
fn convert(
    store: &Store,
    files: &Snapshot,
    reference: &str,
) -> std::result::Result<Option<Snapshot>, TreeError> {
    let tree = Tree::of_snapshot(store, files)?;
    let Some(Node::Directory(directory)) = tree.entry(ROOT)?.map(|entry| entry.node) else { return Ok(None) };
    let root = Tree::open(store, TreeId::from(directory.id), directory.times)?;
    let mut root = VirtualTree::over(&root)?;
    root.chmod("", 0o755)?;
    skeleton::add(&mut root)?;
    let new = NewSnapshot {
        root: Some(root.into_root(NO_TEMPLATE)?),
        references: vec![(reference.to_owned(), Expect::Absent)],
        ..NewSnapshot::with_message("root of a template build")
    };
    Ok(Some(store.empty_tree()?.commit(new)?))
}
