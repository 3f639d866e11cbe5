//! Sandbox service in a temporary directory, with its own catalog, runtime and workspaces.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use workspace_catalog::{Catalog, sqlite_url};
use workspace_host::NamespaceHolder;
use workspace_host::overlay;
use workspace_sandbox::runtime::Embedded;
use workspace_sandbox::template::Templates;
use workspace_sandbox::{
    CommitResult, Creator, LazyCommand, Materialize, NewCommit, NewSandbox, ReclaimPolicy, Resources,
    SandboxError, Service, Settings, WorkspaceError,
};
use workspace_state::{SnapshotId, Store};

use super::leftovers::{self, DirLock, ServiceRecord};
use super::{ALL_OWNERS, OWNER};
use crate::commands::mount::SERVE_COMMAND;
use crate::error::{CommandError, Result, io_hint};
use crate::remote::local_server_data_dir;
use crate::signals::Signals;

/// Parent of the temporary directories, below the XDG cache directory.
const PARENT_DIR: &str = "elevo-workspace/try";
/// File name of the guest agent.
const AGENT: &str = "workspace-agent";
/// Lifetime of a sandbox, longer than a user takes to decide whether to keep its changes.
const LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// More than any machine has: only the limits of the user apply.
const UNLIMITED_BYTES: u64 = 1 << 50;
const PROCESSES_MAX: u32 = 32_768;
/// Template that the service makes itself from the programs of this machine.
const BASE_TEMPLATE: &str = "base";
/// Name of the store in the temporary directory of a service that does not use the store of the user.
const OWN_STORE: &str = "store";

/// Sandbox service of this process, and its temporary directory.
pub(crate) struct LocalService {
    directory: PathBuf,
    service: Service,
    catalog: Catalog,
    /// Lock that shows other processes that this one is alive.
    _lock: DirLock,
}

impl LocalService {
    /// Starts a service for a sandbox from a snapshot of a store, in a directory outside `excluded`. Removes
    /// leftovers of killed processes.
    pub(crate) async fn start(store: &Store, snapshot: SnapshotId, excluded: &Path) -> Result<Self> {
        let (directory, lock) = new_directory(Some(excluded))?;
        Self::start_with(
            directory,
            lock,
            ServiceRecord { store: absolute(store.path()), snapshot: Some(snapshot) },
        )
        .await
    }

    /// Starts a service for an empty sandbox, with a store in its own directory. Removes leftovers of killed
    /// processes.
    pub(crate) async fn start_empty() -> Result<Self> {
        let (directory, lock) = new_directory(None)?;
        let store = directory.join(OWN_STORE);
        Self::start_with(directory, lock, ServiceRecord { store, snapshot: None }).await
    }

    /// Writes the record, starts the service, and then removes leftovers. Removes the directory if the start fails.
    async fn start_with(directory: PathBuf, lock: DirLock, record: ServiceRecord) -> Result<Self> {
        let recorded = record.write(&directory).map_err(|error| {
            CommandError::failed(format!("cannot write below {}: {error}", directory.display()))
                .hint(io_hint(&error))
        });
        let started = match recorded {
            Ok(()) => Self::start_in(&directory, &record.store).await,
            Err(error) => Err(error),
        };
        if started.is_err()
            && let Ok(holder) = NamespaceHolder::find_or_start(&directory)
        {
            // An error of the removal is ignored; the one of the start is reported.
            drop(remove_directory(&holder, &directory));
        }
        let (service, catalog) = started?;
        if let Some(parent) = directory.parent() {
            Self::remove_leftovers(parent).await;
        }
        Ok(Self { directory, service, catalog, _lock: lock })
    }

    /// Removes the temporary directories of processes that were killed. One that cannot be removed is left to the next
    /// process.
    async fn remove_leftovers(parent: &Path) {
        for (directory, lock) in leftovers::find_and_lock(parent) {
            let Some(record) = ServiceRecord::read(&directory) else { continue };
            // The user may have removed the store in the meantime, and the service would create it again.
            if record.snapshot.is_some() && !record.store.exists() {
                continue;
            }
            let Ok((service, catalog)) = Self::start_in(&directory, &record.store).await else { continue };
            let local_service = Self { directory, service, catalog, _lock: lock };
            if local_service.shut_down().await.is_ok()
                && let Some(snapshot) = record.snapshot
                && let Ok(store) = Store::open(&record.store)
                && store.find_snapshot(&snapshot).is_ok_and(|found| found.is_some())
            {
                // Fails if a reference points to the snapshot, which then stays.
                drop(store.remove_snapshots(&[snapshot]));
            }
        }
    }

    /// Starts the service in a directory, with an embedded runtime and a SQLite catalog.
    async fn start_in(directory: &Path, store: &Path) -> Result<(Service, Catalog)> {
        let program = std::env::current_exe().map_err(|error| {
            CommandError::failed(format!("cannot find this program: {error}"))
                .hint("start it by a path that exists")
        })?;
        let runtime = Embedded::start(directory, &find_agent(&program)?).await?;
        let url = sqlite_url(&directory.join("catalog.db"));
        let catalog = Catalog::open(&url).await.map_err(SandboxError::from)?;
        let settings = settings(directory, store, program);
        let service = Service::start(settings, catalog.clone(), Arc::new(runtime)).await?;
        Ok((service, catalog))
    }

    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Creates a sandbox and returns its id. A signal stops the creation.
    pub(crate) async fn create(&self, new: NewSandbox, signals: &mut Signals) -> Result<String> {
        let creation = self.create_uninterrupted(new);
        tokio::pin!(creation);
        tokio::select! {
            created = &mut creation => created,
            signal = signals.next() => {
                // A sandbox that is being created cannot be removed yet; `shut_down` removes it.
                drop(creation.await);
                Err(CommandError::interrupted(signal))
            }
        }
    }

    async fn create_uninterrupted(&self, new: NewSandbox) -> Result<String> {
        self.link_template(&new.template)?;
        let creator =
            Creator { owner: OWNER.to_owned(), unlimited: true, max_sandboxes: None, idempotency_key: None };
        let new = NewSandbox { timeout: Some(LIFETIME), ..new };
        let created = match self.service.create(creator.clone(), new.clone()).await {
            // Without a lazy mount all files are written first.
            Err(SandboxError::Workspace(WorkspaceError::Lazy(_))) => {
                let new = NewSandbox { materialize: Materialize::Full, ..new };
                self.service.create(creator, new).await
            }
            created => created,
        };
        Ok(created?.sandbox.id)
    }

    /// Commits the workspace of a sandbox to the store.
    pub(crate) async fn commit(&self, sandbox: &str, new: NewCommit) -> Result<CommitResult> {
        Ok(self.service.commit(&ALL_OWNERS, sandbox, new).await?.committed)
    }

    /// Links a template of a server on this machine into the directory of this service. Does nothing if there is none
    /// of that name: the creation of the sandbox then reports it.
    fn link_template(&self, name: &str) -> Result<()> {
        let Some(data) = local_server_data_dir().filter(|_| name != BASE_TEMPLATE) else { return Ok(()) };
        let links = self.directory.join("templates");
        let link = || -> io::Result<()> {
            let Some((_, root)) = Templates::new(data.join("templates")).find(name)? else { return Ok(()) };
            let Some((template, dir_name)) = root.parent().and_then(|dir| Some((dir, dir.file_name()?)))
            else {
                return Ok(());
            };
            fs::create_dir_all(&links)?;
            symlink(fs::canonicalize(template)?, links.join(dir_name))
        };
        link().map_err(|error| {
            CommandError::failed(format!("cannot use the template `{name}`: {error}")).hint(io_hint(&error))
        })
    }

    /// Removes all sandboxes and the directory.
    pub(crate) async fn shut_down(self) -> Result<()> {
        let Self { directory, service, catalog, _lock } = self;
        let holder = service.runtime().mount_holder().await.unwrap_or(NamespaceHolder::None);
        let (sandboxes, _) = service.list(&ALL_OWNERS, workspace_catalog::Filter::default()).await?;
        for view in sandboxes {
            service.remove(&ALL_OWNERS, &view.sandbox.id, ReclaimPolicy::Delete).await?;
        }
        service.close().await;
        catalog.close().await;
        let path = directory.clone();
        let removed = tokio::task::spawn_blocking(move || remove_directory(&holder, &path)).await;
        let removed = removed.map_err(|error| error.to_string()).and_then(|result| result);
        removed.map_err(|error| {
            CommandError::failed(format!("cannot remove {}: {error}", directory.display()))
                .hint("remove it yourself; it is no longer needed")
        })
    }
}

/// Removes the directory of a service with the privileges of its namespace holder, then ends the holder.
fn remove_directory(holder: &NamespaceHolder, directory: &Path) -> std::result::Result<(), String> {
    // Mount point of the lazy mount of the workspaces.
    let unmounted = overlay::unmount(holder, &directory.join("layers/view"));
    let removed = unmounted.and_then(|_| overlay::remove_tree(holder, directory));
    holder.kill();
    removed.map_err(|error| error.to_string())
}

/// Returns the path of the guest agent: `AGENT_PROGRAM`, or else the file beside this program.
fn find_agent(program: &Path) -> Result<PathBuf> {
    let configured = std::env::var_os("AGENT_PROGRAM").filter(|path| !path.is_empty());
    let agent = configured.map_or_else(|| program.with_file_name(AGENT), PathBuf::from);
    if agent.is_file() {
        return Ok(agent);
    }
    Err(CommandError::failed(format!("the guest agent {} does not exist", agent.display()))
        .hint(
            "`make up` builds it beside `workspace`; beside a `workspace` that `cargo install` installed, \
             `cargo install --locked --path crates/agent` installs it",
        )
        .hint("AGENT_PROGRAM selects another one"))
}

fn settings(directory: &Path, store: &Path, program: PathBuf) -> Settings {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let resources = Resources {
        cpu_millis: u32::try_from(processors).unwrap_or(u32::MAX).saturating_mul(1_000),
        memory: UNLIMITED_BYTES,
        disk: UNLIMITED_BYTES,
        processes: PROCESSES_MAX,
    };
    Settings {
        store_dir: store.to_owned(),
        lazy: Some(LazyCommand { program, args: vec![SERVE_COMMAND.into()] }),
        default_lifetime: LIFETIME,
        max_lifetime: LIFETIME,
        default_resources: resources,
        max_resources: resources,
        max_pool_size: 0,
        ..Settings::new(directory)
    }
}

fn absolute(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Creates and locks a temporary directory outside of `excluded`, in the cache directory of the user if possible.
pub(crate) fn new_directory(excluded: Option<&Path>) -> Result<(PathBuf, DirLock)> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let mut failed = None;
    for parent in cache.into_iter().chain([std::env::temp_dir()]) {
        match create_below(&parent.join(PARENT_DIR), excluded) {
            Ok(Some(created)) => return Ok(created),
            Ok(None) => {}
            Err(error) => failed = Some((parent, error)),
        }
    }
    Err(match (failed, excluded) {
        (Some((parent, error)), _) => {
            CommandError::failed(format!("cannot create a directory below {}: {error}", parent.display()))
                .hint(io_hint(&error))
        }
        (None, Some(excluded)) => CommandError::failed(format!(
            "there is no directory for temporary files outside {}",
            excluded.display()
        ))
        .hint("set XDG_CACHE_HOME to one, or try a smaller directory"),
        (None, None) => CommandError::failed("there is no directory for temporary files")
            .hint("set XDG_CACHE_HOME to one"),
    })
}

/// Creates and locks a directory below `parent`, which is created, too. `None` if `parent` is inside `excluded`.
fn create_below(parent: &Path, excluded: Option<&Path>) -> io::Result<Option<(PathBuf, DirLock)>> {
    let is_inside = |path: &Path| excluded.is_some_and(|excluded| path.starts_with(excluded));
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    if is_inside(parent) {
        return Ok(None);
    }
    builder.recursive(true).create(parent)?;
    let parent = fs::canonicalize(parent)?;
    if is_inside(&parent) {
        return Ok(None);
    }
    builder.recursive(false);
    for number in 0.. {
        let path = parent.join(format!("{}-{number}", std::process::id()));
        match builder.create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created?,
        }
        // Another process that removes leftovers may have locked it first.
        if let Some(lock) = DirLock::new(&path)? {
            return Ok(Some((path, lock)));
        }
    }
    Ok(None)
}
