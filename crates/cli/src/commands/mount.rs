//! `workspace mount` and `workspace umount`

use std::env;
use std::io;
use std::path::Path;
use std::process::Command;

use workspace_mount::{LazyMount, MountError, MountOptions, daemon_main, detach, spawn_daemon, unmount};

use crate::args::{Mount, ServeLazyMount, Umount};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};

/// Hidden command that calls [`serve`]: this program is started again with it as the daemon of a lazy mount.
pub(crate) const SERVE_COMMAND: &str = "serve-lazy-mount";

pub(crate) fn mount(context: &mut Context, args: &Mount) -> Result<Outcome> {
    // Opened first, so that errors of the store are reported as by every command.
    let store = context.store()?;
    let options = MountOptions::default();
    if args.foreground {
        LazyMount::mount(store.path(), &args.directory, &options)?.serve_until_stopped()?;
    } else {
        let program = env::current_exe().map_err(|error| {
            CommandError::failed(format!("cannot find this program: {error}"))
                .hint("`--foreground` serves the mount without starting this program again")
        })?;
        let mut command = Command::new(program);
        workspace_host::limits::reset_open_files_limit(&mut command);
        command.arg(SERVE_COMMAND);
        spawn_daemon(command, store.path(), &args.directory, &options)?;
    }
    Ok(Outcome::Done)
}

pub(crate) fn umount(args: &Umount) -> Result<Outcome> {
    let unmounted = if args.lazy { detach(&args.directory) } else { unmount(&args.directory) };
    unmounted.map_err(|error| not_mounted(error, &args.directory))?;
    Ok(Outcome::Done)
}

/// Maps the error for a directory that does not exist to that for one that is not mounted.
fn not_mounted(error: MountError, directory: &Path) -> MountError {
    match error {
        MountError::Mountpoint { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            MountError::NotMounted { path: directory.to_owned() }
        }
        error => error,
    }
}

/// Serves a lazy mount in this process.
pub(crate) fn serve(args: ServeLazyMount) -> Result<Outcome> {
    daemon_main(args.words)?;
    Ok(Outcome::Done)
}
