//! Mounting a view and serving it.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fuser::{Config, Session, SessionACL};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use workspace_state::Store;

use crate::device::{self, Mounting};
use crate::error::MountError;
use crate::mountpoint::{self, MountState};
use crate::options::ViewOptions;
use crate::requests::Requests;
use crate::serving::Serving;

/// Threads unless the caller says how many. More than a few only wait for each other.
const THREADS_MAX: usize = 8;

/// A mounted view. The kernel's questions wait until it is served; dropped unserved, it is unmounted.
pub struct View {
    session: Session<Serving>,
    place: Place,
    requests: Requests,
}

impl View {
    /// Mounts the snapshots of the store in `store` on the empty directory `mountpoint`. A view there whose
    /// process has died is replaced.
    pub fn mount(
        store: impl AsRef<Path>,
        mountpoint: impl AsRef<Path>,
        options: &ViewOptions,
    ) -> Result<Self, MountError> {
        let store = Store::open(store)?;
        let path = mountpoint::prepare(mountpoint.as_ref())?;
        let requests = Requests::default();
        let notifier = Arc::new(OnceLock::new());
        let owner = format!("lazy view on {}", path.display());
        let serving = Serving::new(store.clone(), owner, options, requests.clone(), Arc::clone(&notifier))
            .map_err(|error| MountError::io("start a thread", error))?;
        let mounting = Mounting { store: store.path(), mountpoint: &path, allow_other: options.allow_other };
        let connection = mounting.mount()?;
        let place = Place { path, mounted: true };
        // Who may look is the kernel's business (`allow_other`), so the session lets everyone pass.
        let session = Session::from_fd(serving, connection, SessionACL::All, session_config(options))
            .map_err(|error| MountError::io("talk to the kernel", error))?;
        // The cell is new, so this cannot fail.
        drop(notifier.set(session.notifier()));
        Ok(Self { session, place, requests })
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.place.path
    }

    /// Counts what the kernel asks.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Answers until the view is unmounted.
    pub fn serve(self) -> Result<(), MountError> {
        let Self { session, mut place, requests: _ } = self;
        session.run().map_err(|error| MountError::io("serve the view", error))?;
        // The kernel ended it because it is unmounted; what is there now is not ours.
        place.mounted = false;
        Ok(())
    }

    /// Like [`View::serve`], and unmounts when the process is asked to end (SIGTERM, SIGINT). Who still uses
    /// the view then is served until they are done.
    pub fn serve_until_stopped(self) -> Result<(), MountError> {
        let mut signals =
            Signals::new([SIGTERM, SIGINT]).map_err(|error| MountError::io("wait for signals", error))?;
        let stop = signals.handle();
        let path = self.place.path.clone();
        let waiter = std::thread::spawn(move || {
            for _ in &mut signals {
                if let Err(error) = mountpoint::detach(&path) {
                    eprintln!("lazy view: {error}");
                }
            }
        });
        let served = self.serve();
        stop.close();
        // It only waits for signals, and waits no longer.
        drop(waiter.join());
        served
    }
}

fn session_config(options: &ViewOptions) -> Config {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = options.threads.map_or(processors.clamp(2, THREADS_MAX), NonZero::get);
    let mut config = Config::default();
    config.n_threads = Some(threads);
    config.clone_fd = device::can_clone();
    config
}

/// Where a view is mounted; unmounts it unless someone else did.
struct Place {
    path: PathBuf,
    mounted: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.mounted {
            return;
        }
        // By now nobody answers there, unless it was unmounted and another view mounted.
        if matches!(mountpoint::mount_state(&self.path), Ok(MountState::Dead { .. }))
            && let Err(error) = mountpoint::detach(&self.path)
        {
            eprintln!("lazy view: {error}");
        }
    }
}
