//! The directory that becomes the workspace of a sandbox: its owner, and its mount.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::chown;
use std::path::Path;

use crate::error::{Doing as _, Result};
use crate::mount::idmap::Shown;
use crate::mount::mounts::{self, Access};
use crate::namespace::holder::Holder;
use crate::namespace::sandbox_ids::owner;

/// Makes the user inside the owner of a workspace, for a sandbox that runs as this user of its own. Where no superuser launches,
/// that is whoever runs this.
pub(crate) fn give(holder: &Holder, workspace: &Path, user: Option<u32>) -> Result<()> {
    let own = user.filter(|_| mounts::is_overlay(workspace).unwrap_or(false));
    give_to(own.map(|user| (user, user)).or_else(|| owner(holder)), workspace)
}

pub(crate) fn give_to(owner: Option<(u32, u32)>, directory: &Path) -> Result<()> {
    let Some((user, group)) = owner else { return Ok(()) };
    chown(directory, Some(user), Some(group)).doing(format!("give {} to the sandbox", directory.display()))
}

/// Takes up a workspace for a sandbox that runs as this user of its own.
pub(crate) fn take_up(workspace: &Path, user: Option<u32>) -> Result<OwnedFd> {
    let tree = mounts::detached(workspace, Access::Write)?;
    // The layers of an overlay are shown to the user already, and the overlay itself cannot be.
    if let Some(user) = user
        && !mounts::is_overlay(workspace)?
    {
        let shown = Shown::to(user)?.apply(tree.as_fd());
        shown.doing(format!("show {} to the user of the sandbox", workspace.display()))?;
    }
    Ok(tree)
}
