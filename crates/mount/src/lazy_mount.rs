//! A lazy mount (a read-only FUSE mount that loads content on first read) in this process: mounting, serving and
//! unmounting.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fuser::{Config, Session, SessionACL};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use workspace_state::Store;

use crate::device::{self, MountRequest};
use crate::error::MountError;
use crate::mountpoint::{self, MountState};
use crate::options::MountOptions;
use crate::requests::RequestCounter;
use crate::responses::FuseServer;

/// Maximum number of threads by default. More would only wait for each other.
const THREADS_MAX: usize = 8;

/// A lazy mount. Requests of the kernel wait until [`Self::serve`] runs. A mount that is dropped before that is
/// unmounted.
pub struct LazyMount {
    session: Session<FuseServer>,
    /// Dropped after the session.
    guard: MountGuard,
    requests: RequestCounter,
}

impl LazyMount {
    /// Mounts the snapshots of the store in `store` on the empty directory `mountpoint`. An existing mount
    /// whose process has died is replaced.
    pub fn mount(
        store: impl AsRef<Path>,
        mountpoint: impl AsRef<Path>,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let store = Store::open(store)?;
        let path = mountpoint::prepare(mountpoint.as_ref())?;
        let requests = RequestCounter::default();
        // The server writes to the kernel's cache through it. It comes from the session, which needs the server first.
        let kernel_notifier = Arc::new(OnceLock::new());
        let pin_holder = format!("lazy mount on {}", path.display());
        let server = FuseServer::new(
            store.clone(),
            pin_holder,
            options,
            requests.clone(),
            Arc::clone(&kernel_notifier),
        )
        .map_err(|error| MountError::io("start a thread", error))?;
        let request =
            MountRequest { store: store.path(), mountpoint: &path, allow_other: options.allow_other };
        let connection = request.mount()?;
        let guard = MountGuard { path, mounted: true };
        // The kernel checks access (`allow_other`), so the session allows everyone.
        let session = Session::from_fd(server, connection, SessionACL::All, session_config(options))
            .map_err(|error| MountError::io("open the FUSE session", error))?;
        // The cell is new, so this cannot fail.
        drop(kernel_notifier.set(session.notifier()));
        Ok(Self { session, guard, requests })
    }

    /// Returns the mountpoint.
    pub fn mountpoint(&self) -> &Path {
        &self.guard.path
    }

    /// Returns the counter of requests.
    pub fn requests(&self) -> RequestCounter {
        self.requests.clone()
    }

    /// Serves until the file system is unmounted.
    pub fn serve(self) -> Result<(), MountError> {
        let Self { session, mut guard, requests: _ } = self;
        session.run().map_err(|error| MountError::io("serve the lazy mount", error))?;
        // The kernel ended the session because the file system was unmounted. A mount that is there now is another
        // one.
        guard.mounted = false;
        Ok(())
    }

    /// Serves like [`LazyMount::serve`], and detaches the mount (`MNT_DETACH`) on SIGTERM and SIGINT. Open files
    /// are served until they are closed.
    pub fn serve_until_stopped(self) -> Result<(), MountError> {
        let mut signals =
            Signals::new([SIGTERM, SIGINT]).map_err(|error| MountError::io("wait for signals", error))?;
        let stop = signals.handle();
        let path = self.guard.path.clone();
        let waiter = std::thread::spawn(move || {
            for _ in &mut signals {
                if let Err(error) = mountpoint::detach(&path) {
                    eprintln!("lazy mount: {error}");
                }
            }
        });
        let served = self.serve();
        stop.close();
        // The thread only waited for signals, and ends now.
        drop(waiter.join());
        served
    }
}

fn session_config(options: &MountOptions) -> Config {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = options.threads.map_or(processors.clamp(2, THREADS_MAX), NonZero::get);
    let mut config = Config::default();
    config.n_threads = Some(threads);
    config.clone_fd = device::can_open_device();
    config
}

/// Mountpoint; unmounts on drop unless the file system is already unmounted.
struct MountGuard {
    path: PathBuf,
    /// False once the file system was unmounted.
    mounted: bool,
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        if !self.mounted {
            return;
        }
        // The session was dropped before this, which closed the FUSE device, so our mount is dead. A mount that
        // responds is another one.
        if matches!(mountpoint::mount_state(&self.path), Ok(MountState::Dead { .. }))
            && let Err(error) = mountpoint::detach(&self.path)
        {
            eprintln!("lazy mount: {error}");
        }
    }
}
