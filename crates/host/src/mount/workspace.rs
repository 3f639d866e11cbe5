//! Workspace directory of a sandbox: its owner and its mount.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::error::{Context as _, Result};
use crate::mount::idmap::IdMap;
use crate::mount::mounts::{self, Access};
use crate::namespace::holder::NamespaceHolder;
use crate::namespace::sandbox_ids::shared_sandbox_ids;

/// Makes the sandbox user the owner of a workspace. On an overlay, whose layers are id-mapped, that is the
/// dedicated UID of the sandbox on the host, if it has one. Otherwise it is the UID that all sandboxes share
/// ([`shared_sandbox_ids`]). Does nothing without root: then the current user is the sandbox user.
pub(crate) fn chown_to_sandbox(
    holder: &NamespaceHolder,
    workspace: &Path,
    dedicated_uid: Option<u32>,
) -> Result<()> {
    let uid_in_overlay = dedicated_uid.filter(|_| mounts::is_overlay(workspace).unwrap_or(false));
    chown(uid_in_overlay.map(|uid| (uid, uid)).or_else(|| shared_sandbox_ids(holder)), workspace)
}

/// Sets user and group of a directory. Does nothing for `None`, or if the directory has this owner already: a read-only
/// overlay refuses even a change to the same owner.
pub(crate) fn chown(owner: Option<(u32, u32)>, directory: &Path) -> Result<()> {
    let Some((user, group)) = owner else { return Ok(()) };
    let action = || format!("change the owner of {}", directory.display());
    let found = std::fs::symlink_metadata(directory).context(action())?;
    if (found.uid(), found.gid()) == (user, group) {
        return Ok(());
    }
    std::os::unix::fs::chown(directory, Some(user), Some(group)).context(action())
}

/// Clones the mount of a workspace for a sandbox, id-mapped to its dedicated UID if it has one.
pub(crate) fn clone_workspace(workspace: &Path, dedicated_uid: Option<u32>) -> Result<OwnedFd> {
    let tree = mounts::clone_tree(workspace, Access::Write)?;
    // The layers of an overlay are id-mapped already, and the overlay itself cannot be.
    if let Some(uid) = dedicated_uid
        && !mounts::is_overlay(workspace)?
    {
        let mapped = IdMap::for_dedicated_uid(uid)?.apply(tree.as_fd());
        mapped.context(format!("map the ids of {}", workspace.display()))?;
    }
    Ok(tree)
}
