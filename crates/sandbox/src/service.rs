//! All sandboxes of a server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use workspace_catalog::{
    Catalog, CatalogError, Change, EventKind, Filter, NewEvent, PauseStep, Sandbox, State, VisibleState,
    agents_prefix,
};
use workspace_state::Cancel;
use workspace_workspace::Workspaces;

use crate::build::state::Builds;
use crate::clock::{milliseconds, now};
use crate::config::{Config, check_labels};
use crate::disk::deleted_file_search::DeletedFileSearch;
use crate::disk::full_disk::state::FullDisk;
use crate::disk::open_workspaces::open_workspaces;
use crate::disk::scan::{DiskScans, SCANS_AT_ONCE};
use crate::error::{Context as _, Result, SandboxError};
use crate::fair_semaphore::FairSemaphore;
use crate::gate::Gates;
use crate::guest::endpoint::ServerEndpoint;
use crate::guest::handle::SandboxHandle;
use crate::guest::tcp::GuestPort;
use crate::leaf_mutex::LeafMutex;
use crate::lifecycle::cleanup_queue::CleanupQueue;
use crate::lifecycle::operation_count::OperationCount;
use crate::lifecycle::operation_lock::OperationLocks;
use crate::lifecycle::pool::state::Pool;
use crate::lifecycle::reservation::Reservations;
use crate::lifecycle::work_lock::WorkLocks;
use crate::lock_rank::LockRank;
use crate::measurements::sampler::Sampler;
use crate::root::roots::Roots;
use crate::runtime::{Runtime, Template};
use crate::sandbox_dir::SandboxDir;
use crate::scope::Scope;
use crate::settings::Settings;
use crate::template::{ImportOptions, ImportedTemplate, TemplateError, Templates};

/// Maximum time that closing waits for operations that were cancelled, for a start of a sandbox for the warm
/// pool, and for the files of deleted sandboxes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time that requests wait for a guest agent to reconnect, after the server has recovered its sandbox.
/// Agents try once per second.
pub(crate) const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of sandboxes that are removed at the same time for requests that name several; half of them
/// for one owner.
const BATCH_REMOVALS_AT_ONCE: u32 = 16;
/// Maximum number of concurrent scans of workspaces for requests.
const REQUESTED_SCANS_AT_ONCE: u32 = 4;

/// Creates sandboxes, runs commands in them, and removes them. Clones share one service.
#[derive(Debug, Clone)]
pub struct Service(pub(crate) Arc<Inner>);

/// State that all clones of a [`Service`] share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) catalog: Catalog,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) workspaces: Arc<Workspaces>,
    /// Kept root filesystems.
    pub(crate) roots: Roots,
    /// Handles of the sandboxes whose guest agent may connect, by id of the sandbox.
    handles: LeafMutex<HashMap<String, Arc<SandboxHandle>>>,
    /// Cancels long operations. [`Service::close`] sets it, and it is set together with [`Settings::cancel`].
    pub(crate) cancel: Cancel,
    /// Operations in progress, which closing the service waits for.
    pub(crate) operation_count: OperationCount,
    /// At most one operation on a sandbox at a time.
    pub(crate) operation_locks: OperationLocks,
    /// At most one completion of the work in a sandbox is recorded at a time.
    pub(crate) work_locks: WorkLocks,
    /// Locks between operations on a workspace and writers outside its sandbox.
    pub(crate) gates: Gates,
    /// Sandboxes whose removal is tried again in the background, by id.
    pub(crate) removal_retries: LeafMutex<HashSet<String>>,
    /// Limits sandboxes that start at the same time.
    pub(crate) start_permits: FairSemaphore,
    /// Limits workspaces that are created from a snapshot at the same time.
    pub(crate) workspace_permits: FairSemaphore,
    /// Limits creations and resumes, those that wait included; further requests are refused.
    pub(crate) queue_permits: FairSemaphore,
    /// Held for reading while a sandbox is created, and for writing while the lazy mount and the namespace
    /// holder are released (`lifecycle/idle.rs`).
    pub(crate) creation_lock: tokio::sync::RwLock<()>,
    /// Time since when there has been no sandbox; `None` while there is one.
    pub(crate) idle_since: LeafMutex<Option<Instant>>,
    /// Held from counting the sandboxes for a quota until the next one is reserved or in the catalog.
    pub(crate) quota_lock: Mutex<()>,
    /// Deleted sandboxes whose files are being removed.
    pub(crate) cleanup_queue: CleanupQueue,
    /// Reservations for sandboxes that are being created and are not in the catalog yet.
    pub(crate) reservations: Reservations,
    /// Sandboxes that were started before a request needed one.
    pub(crate) pool: Pool,
    /// Number of sandboxes in each state at the last count.
    counts: LeafMutex<Vec<(VisibleState, u64)>>,
    /// Scans of workspaces that the server makes by itself.
    pub(crate) scans: DiskScans,
    /// Scans of workspaces for requests.
    pub(crate) requested_scans: FairSemaphore,
    /// Removals for requests that name several sandboxes.
    pub(crate) batch_removals: FairSemaphore,
    /// Highest free disk space since the last search for deleted files that are still open.
    pub(crate) deleted_file_search: DeletedFileSearch,
    /// State of freeing space on a full disk.
    pub(crate) full_disk: FullDisk,
    /// Time of the last removal of old events.
    pub(crate) last_retention: LeafMutex<Option<Instant>>,
    /// Measures running sandboxes.
    pub(crate) sampler: Arc<Sampler>,
    /// Template builds in progress.
    pub(crate) builds: Builds,
    /// Address at which guest agents reach the TCP port; `None` if there is none.
    endpoint: Option<ServerEndpoint>,
    /// Task that accepts connections on that port.
    port_task: Mutex<Option<JoinHandle<()>>>,
}

/// Time at which a sandbox expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Time in milliseconds since 1970.
    At(i64),
    /// Seconds from now.
    After(u64),
}

/// Sandbox with its present state.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxInfo {
    /// Row of the catalog.
    pub sandbox: Sandbox,
    /// Configuration that the catalog keeps as JSON.
    pub config: Config,
    /// True if its guest agent is connected.
    pub agent_connected: bool,
    /// Sequence of its project's head that it shows; `None` if it belongs to no project. A sandbox that does not follow
    /// shows its base: the head that it was made from, or last rebased onto.
    pub sequence: Option<i64>,
}

impl Service {
    /// Starts the service. Recovers all sandboxes that the catalog lists for this server, and removes orphans:
    /// processes and files of sandboxes that it does not list.
    pub async fn start(settings: Settings, catalog: Catalog, runtime: Arc<dyn Runtime>) -> Result<Self> {
        Self::start_with(settings, catalog, runtime, None).await
    }

    /// Starts the service like [`Self::start`], with a TCP port to which guest agents of sandboxes with a network
    /// connect if the runtime can give them its address.
    pub async fn start_with(
        settings: Settings,
        catalog: Catalog,
        runtime: Arc<dyn Runtime>,
        port: Option<GuestPort>,
    ) -> Result<Self> {
        for directory in [&settings.sandboxes_dir, &settings.workspaces_dir] {
            create_private_directory(directory).context(|| format!("create {}", directory.display()))?;
        }
        let workspaces = Arc::new(open_workspaces(&settings, &runtime).await?);
        let roots = Roots::new(&settings, &runtime, workspaces.store()).await?;
        let permits = || FairSemaphore::new(settings.creations_at_once);
        let (start_permits, workspace_permits) = (permits(), permits());
        let queue_permits =
            FairSemaphore::new(settings.creations_waiting.saturating_add(settings.creations_at_once));
        let gates = Gates::new(settings.shared_access_timeout, settings.exclusive_access_timeout);
        let sampler = Arc::new(Sampler::new(settings.measurement_interval));
        let builds = Builds::new(settings.builds_at_once);
        let service = Self(Arc::new(Inner {
            cancel: settings.cancel.child(),
            operation_count: OperationCount::default(),
            settings,
            catalog,
            runtime,
            workspaces,
            roots,
            handles: LeafMutex::default(),
            operation_locks: OperationLocks::default(),
            work_locks: WorkLocks::default(),
            gates,
            removal_retries: LeafMutex::default(),
            start_permits,
            workspace_permits,
            queue_permits,
            creation_lock: tokio::sync::RwLock::default(),
            idle_since: LeafMutex::default(),
            quota_lock: Mutex::default(),
            cleanup_queue: CleanupQueue::default(),
            reservations: Reservations::default(),
            pool: Pool::default(),
            counts: LeafMutex::default(),
            scans: DiskScans::new(SCANS_AT_ONCE),
            requested_scans: FairSemaphore::new(REQUESTED_SCANS_AT_ONCE),
            batch_removals: FairSemaphore::new(BATCH_REMOVALS_AT_ONCE),
            deleted_file_search: DeletedFileSearch::default(),
            full_disk: FullDisk::default(),
            last_retention: LeafMutex::default(),
            sampler,
            builds,
            endpoint: port.as_ref().map(GuestPort::endpoint),
            port_task: Mutex::default(),
        }));
        // Sandboxes of versions without names of servers have none.
        service.0.catalog.sandboxes().adopt(&service.0.settings.server).await?;
        service.recover().await?;
        // Earlier connections wait in the backlog of the listener: before the recovery, their sandboxes are
        // unknown, and they would be rejected.
        *service.0.port_task.lock().await = port.map(|port| port.open(Arc::new(service.clone())));
        service.end_interrupted_builds().await?;
        service.start_periodic_tasks();
        service.fill_pool();
        Ok(service)
    }

    /// Closes the connections to all guest agents, and cancels operations in progress. The sandboxes
    /// keep running; the next service recovers them.
    pub async fn close(&self) {
        self.0.cancel.cancel();
        self.0.start_permits.close();
        self.0.workspace_permits.close();
        self.0.sampler.close();
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        if !self.0.operation_count.wait_until_idle(CLOSE_TIMEOUT).await {
            tracing::warn!("operations did not finish in time and may have left partial work behind");
        }
        let remaining = || deadline.saturating_duration_since(Instant::now());
        self.close_pool(remaining()).await;
        // The next start removes the rest.
        self.wait_for_removed_files(remaining()).await;
        let handles = std::mem::take(&mut *self.0.handles.lock());
        for handle in handles.values() {
            handle.close();
        }
        if let Err(error) = self.on_workspaces(Workspaces::close).await {
            tracing::warn!(%error, "failed to close the workspaces; the next server has to wait for them");
        }
        if let Err(error) = self.on_kept_roots(Workspaces::close).await {
            tracing::warn!(%error, "failed to close the roots; the next server has to wait for them");
        }
        if let Some(port) = self.0.port_task.lock().await.take() {
            port.abort();
            // The next server may listen on this port.
            drop(port.await);
        }
    }

    /// Returns the address at which guest agents reach the TCP port; `None` if there is none.
    pub(crate) fn endpoint(&self) -> Option<&ServerEndpoint> {
        self.0.endpoint.as_ref()
    }

    /// Returns the number of sandboxes in each state, as of the last count a moment ago.
    pub fn state_counts(&self) -> Vec<(VisibleState, u64)> {
        self.0.counts.lock().clone()
    }

    /// Counts the sandboxes in each state, for [`Self::state_counts`].
    pub(crate) async fn update_counts(&self) -> Result<()> {
        let counts = self.0.catalog.sandboxes().count_by_state(&self.0.settings.server).await?;
        *self.0.counts.lock() = counts;
        Ok(())
    }

    /// Returns the settings that the service was started with.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Returns the workspaces of the sandboxes.
    pub fn workspaces(&self) -> &Arc<Workspaces> {
        &self.0.workspaces
    }

    /// Returns the workspaces that hold the kept root filesystems; `None` if there are none yet.
    pub fn roots(&self) -> Option<&Arc<Workspaces>> {
        self.0.roots.get()
    }

    /// Returns the runtime that runs the sandboxes.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.0.runtime
    }

    /// Lists the templates that sandboxes can be created from.
    pub async fn templates(&self) -> Result<Vec<Template>> {
        Ok(self.0.runtime.templates().await?)
    }

    /// Opens an unnamed file, into which the caller writes an archive for [`Self::import_template`].
    pub fn receive_template(&self) -> Result<std::fs::File> {
        self.imported_templates()?.receive().context(|| "prepare the import of a template".to_owned())
    }

    /// Imports a template from an archive, in a file of [`Self::receive_template`]. The import is cancelled when the
    /// future is dropped.
    pub async fn import_template(
        &self,
        name: &str,
        archive: std::fs::File,
        options: ImportOptions,
    ) -> Result<ImportedTemplate> {
        let (templates, name) = (self.imported_templates()?.clone(), name.to_owned());
        let cancel_guard = options.cancel.drop_guard();
        let import = move || templates.import(&name, archive, &options);
        let imported = tokio::task::spawn_blocking(import).await;
        cancel_guard.disarm();
        Ok(imported.map_err(TemplateError::task_failed)??)
    }

    /// Removes a template over which no sandbox runs.
    pub async fn remove_template(&self, name: &str) -> Result<()> {
        let templates = self.imported_templates()?.clone();
        // Held, so that no creation reserves a sandbox of this template meanwhile.
        let _quota_lock = LockRank::Quota.wait(self.0.quota_lock.lock()).await;
        let sandboxes = self.0.catalog.sandboxes().all(&self.0.settings.server).await?;
        let used_by =
            sandboxes.into_iter().find(|sandbox| sandbox.template == name).map(|sandbox| sandbox.id);
        let in_creation = || self.0.reservations.uses(name).then(|| "one that is being created".to_owned());
        if let Some(sandbox) = used_by.or_else(in_creation) {
            return Err(SandboxError::TemplateUsed { name: name.to_owned(), sandbox });
        }
        self.kill_pooled_of_template(name).await;
        let template = name.to_owned();
        let removed = tokio::task::spawn_blocking(move || templates.remove(&template)).await;
        // The pool may have started another one from the template before it was removed.
        self.kill_pooled_of_template(name).await;
        match removed.map_err(TemplateError::task_failed)?? {
            true => {
                self.forget_template(name).await;
                Ok(())
            }
            false => Err(self.no_template_to_remove(name)),
        }
    }

    /// Returns the imported templates. Fails if the runtime does not support imports.
    pub(crate) fn imported_templates(&self) -> Result<&Templates> {
        self.0
            .runtime
            .imported_templates()
            .ok_or_else(|| SandboxError::NoImports { runtime: self.0.runtime.name() })
    }

    /// Returns the sandbox with this id.
    pub async fn get(&self, scope: &Scope, id: &str) -> Result<SandboxInfo> {
        self.info(self.find(scope, id).await?)
    }

    /// Lists one page of the sandboxes that match the filter, newest first, and returns how many match in
    /// all.
    pub async fn list(&self, scope: &Scope, filter: Filter) -> Result<(Vec<SandboxInfo>, u64)> {
        let filter = match scope {
            Scope::Owner(owner) => {
                // Those of AI agents only within a project: there is an index for that.
                let agent_owner_prefix = filter.project_name.as_ref().map(|_| agents_prefix(owner));
                Filter { owner: Some(owner.clone()), agent_owner_prefix, ..filter }
            }
            Scope::Sandbox { .. } => return Ok((Vec::new(), 0)),
            Scope::All => filter,
        };
        let (sandboxes, total) = self.0.catalog.sandboxes().list(&filter).await?;
        let infos = sandboxes.into_iter().map(|sandbox| self.info(sandbox)).collect::<Result<_>>()?;
        Ok((infos, total))
    }

    /// Replaces the labels of a sandbox.
    pub async fn relabel(
        &self,
        scope: &Scope,
        id: &str,
        labels: std::collections::BTreeMap<String, String>,
    ) -> Result<SandboxInfo> {
        check_labels(&labels)?;
        self.find(scope, id).await?;
        let change = Change { labels: Some(labels), ..Change::default() };
        self.info(self.change(id, |_| Some(change.clone()), &[]).await?)
    }

    /// Extends the lifetime of a sandbox.
    pub async fn extend(&self, scope: &Scope, id: &str, seconds: u64) -> Result<SandboxInfo> {
        let max = self.0.settings.max_extension.as_secs();
        if seconds == 0 || seconds > max {
            let message = format!("must be between 1 and {max} seconds");
            return Err(SandboxError::Invalid { field: "seconds", message });
        }
        let sandbox = self.find_on_this_server(scope, id).await?;
        let from = sandbox.expires_at;
        self.change_expiry(&sandbox, from, |sandbox| sandbox.expires_at + milliseconds(seconds)).await
    }

    /// Sets the time at which a sandbox expires. It may be earlier than before.
    pub async fn set_expiry(&self, scope: &Scope, id: &str, expiry: Expiry) -> Result<SandboxInfo> {
        let now = now();
        let (field, expires_at) = match expiry {
            Expiry::At(time) => ("expiresAt", time),
            Expiry::After(seconds) => ("timeoutSeconds", now.saturating_add(milliseconds(seconds))),
        };
        if expires_at <= now {
            let message = "must be in the future; to end a sandbox at once, delete it".to_owned();
            return Err(SandboxError::Invalid { field, message });
        }
        let sandbox = self.find_on_this_server(scope, id).await?;
        self.change_expiry(&sandbox, now, |_| expires_at).await
    }

    /// Changes the expiry of a sandbox to the time that `expiry` returns. If its lifetime would be too long, the error
    /// has the time that is left after `from`.
    async fn change_expiry(
        &self,
        sandbox: &Sandbox,
        from: i64,
        expiry: impl Fn(&Sandbox) -> i64,
    ) -> Result<SandboxInfo> {
        let id = sandbox.id.as_str();
        // A sandbox that is paused expires only later.
        let is_live = |sandbox: &Sandbox| {
            matches!(sandbox.visible_state(), VisibleState::Starting | VisibleState::Running)
        };
        if !is_live(sandbox) {
            return Err(not_running(sandbox));
        }
        if sandbox.state == State::Running && sandbox.expires_at <= now() {
            return Err(SandboxError::Expired { id: id.to_owned() });
        }
        let limit = self.0.settings.max_lifetime.as_secs();
        let latest = config_of(sandbox)?.resumed_at.unwrap_or(sandbox.created_at) + milliseconds(limit);
        if expiry(sandbox) > latest {
            let left = u64::try_from((latest - from) / 1_000).unwrap_or(0);
            return Err(SandboxError::Lifetime { limit, left });
        }
        // If the sandbox expires at the same time, only the first of the two changes applies.
        let change = |sandbox: &Sandbox| {
            let expires_at = Some(expiry(sandbox)).filter(|time| *time <= latest && is_live(sandbox))?;
            Some(Change { expires_at: Some(expires_at), ..Change::default() })
        };
        let sandbox = self.change(id, change, &[]).await?;
        if !is_live(&sandbox) {
            return Err(not_running(&sandbox));
        }
        if let Some(handle) = self.handle(id) {
            handle.set_expires_at(sandbox.expires_at);
        }
        self.info(sandbox)
    }

    /// Finds a sandbox in the scope, on any server.
    pub(crate) async fn find(&self, scope: &Scope, id: &str) -> Result<Sandbox> {
        let not_found = || SandboxError::NotFound { id: id.to_owned() };
        if !scope.covers_id(id) {
            return Err(not_found());
        }
        let found = match self.0.catalog.sandboxes().get(id).await {
            // No sandbox has an id with a NUL.
            Err(CatalogError::Nul { .. }) => None,
            found => found?,
        };
        found.filter(|found| scope.covers(id, Some(&found.owner))).ok_or_else(not_found)
    }

    /// Finds a sandbox that this server runs. Fails with [`SandboxError::Elsewhere`] if another server does.
    pub(crate) async fn find_on_this_server(&self, scope: &Scope, id: &str) -> Result<Sandbox> {
        let sandbox = self.find(scope, id).await?;
        self.check_is_here(&sandbox)?;
        Ok(sandbox)
    }

    /// Fails if another server manages a sandbox.
    pub(crate) fn check_is_here(&self, sandbox: &Sandbox) -> Result<()> {
        if sandbox.server == self.0.settings.server {
            return Ok(());
        }
        Err(SandboxError::Elsewhere { id: sandbox.id.clone(), server: sandbox.server.clone() })
    }

    /// Adds to a row of the catalog the state that only the service has.
    pub(crate) fn info(&self, sandbox: Sandbox) -> Result<SandboxInfo> {
        let config = config_of(&sandbox)?;
        let agent_connected = self.handle(&sandbox.id).is_some_and(|handle| handle.guest.is_connected());
        let sequence = self.shown_sequence(&sandbox.id, &config);
        Ok(SandboxInfo { sandbox, config, agent_connected, sequence })
    }

    /// Changes the row of a sandbox, and retries when another change came first. `change` returns `None` to leave the
    /// row as it is. An event of each kind in `events` is recorded in the transaction of the change. Returns the row
    /// after the change.
    pub(crate) async fn change(
        &self,
        id: &str,
        change: impl Fn(&Sandbox) -> Option<Change>,
        events: &[EventKind],
    ) -> Result<Sandbox> {
        let with_events = |sandbox: &Sandbox| {
            let change = change(sandbox)?;
            let events = events.iter().map(|kind| event(*kind, sandbox, &change)).collect();
            Some((change, events))
        };
        self.change_with(id, with_events).await
    }

    /// Changes the row of a sandbox like [`Self::change`]. `change` returns the events as well.
    pub(crate) async fn change_with(
        &self,
        id: &str,
        change: impl Fn(&Sandbox) -> Option<(Change, Vec<NewEvent>)>,
    ) -> Result<Sandbox> {
        loop {
            let found = self.0.catalog.sandboxes().get(id).await?;
            let sandbox = found.ok_or_else(|| SandboxError::NotFound { id: id.to_owned() })?;
            let Some((change, events)) = change(&sandbox) else { return Ok(sandbox) };
            match self.0.catalog.sandboxes().change(id, sandbox.version, change, &events).await {
                Err(CatalogError::Conflict { .. }) => {}
                changed => return Ok(changed?),
            }
        }
    }

    pub(crate) fn dir(&self, id: &str) -> SandboxDir {
        SandboxDir::new(self.0.settings.sandboxes_dir.join(id))
    }

    /// Returns the handle of a sandbox; `None` if the sandbox neither runs nor is being started on this server.
    pub(crate) fn handle(&self, id: &str) -> Option<Arc<SandboxHandle>> {
        self.0.handles.lock().get(id).cloned()
    }

    /// Returns the handle of a sandbox; `None` if there is none, or the sandbox is not in the scope.
    pub(crate) fn handle_in(&self, scope: &Scope, id: &str) -> Option<Arc<SandboxHandle>> {
        self.handle(id).filter(|handle| scope.covers(id, handle.owner()))
    }

    /// Returns false if the sandbox of a handle was ended, or has another handle since a resume or restore.
    pub(crate) fn is_current(&self, handle: &Arc<SandboxHandle>) -> bool {
        self.handle(&handle.id).is_some_and(|current| Arc::ptr_eq(&current, handle))
    }

    pub(crate) fn handles(&self) -> Vec<Arc<SandboxHandle>> {
        self.0.handles.lock().values().cloned().collect()
    }

    pub(crate) fn add_handle(&self, handle: &Arc<SandboxHandle>) {
        self.0.handles.lock().insert(handle.id.clone(), handle.clone());
    }

    pub(crate) fn remove_handle(&self, id: &str) -> Option<Arc<SandboxHandle>> {
        self.0.handles.lock().remove(id)
    }

    /// Finds a sandbox in which a command can be run now. Does not query the catalog while the guest agent is
    /// connected. Waits for an agent that is expected to reconnect after a restart of the server.
    pub(crate) async fn find_running(&self, scope: &Scope, id: &str) -> Result<Arc<SandboxHandle>> {
        self.find_running_within(scope, id, RECONNECT_TIMEOUT).await
    }

    /// Finds a sandbox like [`Self::find_running`], but waits at most `max_wait` for its guest agent.
    pub(crate) async fn find_running_within(
        &self,
        scope: &Scope,
        id: &str,
        max_wait: Duration,
    ) -> Result<Arc<SandboxHandle>> {
        let handle = self.handle_in(scope, id);
        if let Some(handle) = &handle {
            handle.check_not_paused()?;
            if handle.has_expired(now()) {
                return Err(SandboxError::Expired { id: id.to_owned() });
            }
        }
        if let Some(handle) = handle.as_ref().filter(|handle| handle.guest.is_connected()) {
            return Ok(handle.clone());
        }
        let sandbox = self.find_on_this_server(scope, id).await?;
        match (sandbox.state, handle) {
            (State::Running, Some(handle)) => match handle.guest.wait_until_connected(max_wait).await {
                true => Ok(handle),
                false => Err(SandboxError::AgentAway { id: id.to_owned() }),
            },
            _ => Err(not_running(&sandbox)),
        }
    }
}

#[cfg(test)]
impl Service {
    /// Starts a service in the directory `home` that can run no sandboxes.
    pub(crate) async fn start_without_runtime(home: &std::path::Path) -> Self {
        let url = workspace_catalog::sqlite_url(&home.join("catalog.db"));
        let catalog = Catalog::open(&url).await.unwrap();
        let runtime = crate::runtime::Unavailable::new("none", "for a test".to_owned());
        Self::start(Settings::new(home), catalog, Arc::new(runtime)).await.unwrap()
    }

    /// Adds the row of a sandbox with the id `sbx-1` and a state to the catalog, and returns it as it is read.
    pub(crate) async fn insert_sandbox(&self, state: State) -> Sandbox {
        let row = workspace_catalog::NewSandbox {
            id: "sbx-1".to_owned(),
            server: self.settings().server.clone(),
            state,
            name: None,
            unique_name: false,
            owner: "alice".to_owned(),
            template: "base".to_owned(),
            runtime: "none".to_owned(),
            network: "none".to_owned(),
            workspace_path: String::new(),
            token_hash: String::new(),
            labels: std::collections::BTreeMap::new(),
            config: serde_json::json!({}),
            created_at: now(),
            expires_at: now() + milliseconds(3_600),
        };
        self.0.catalog.sandboxes().insert(&row, &[]).await.unwrap();
        self.read_row(&row.id).await.unwrap()
    }
}

/// Returns the error for an operation that the state of a sandbox does not allow.
pub(crate) fn not_running(sandbox: &Sandbox) -> SandboxError {
    // A pause with the step `committed` is not undone any more: the processes are being killed.
    if sandbox.is_paused()
        || (sandbox.pause == Some(PauseStep::Committed) && sandbox.state != State::Stopping)
    {
        return SandboxError::Paused { id: sandbox.id.clone() };
    }
    let (id, state, reason) = (sandbox.id.clone(), sandbox.state, sandbox.state_reason.clone());
    SandboxError::NotRunning { id, state, reason }
}

/// Parses the configuration in the row of a sandbox.
pub(crate) fn config_of(sandbox: &Sandbox) -> Result<Config> {
    serde_json::from_value(sandbox.config.clone())
        .map_err(|source| CatalogError::Json { column: "config", source }.into())
}

/// Returns a change to `state` with a reason, for [`Service::change`]. It does not change a sandbox whose state does
/// not allow the transition.
pub(crate) fn transition(state: State, reason: &str) -> impl Fn(&Sandbox) -> Option<Change> + '_ {
    move |sandbox| {
        sandbox.can_become(state).then(|| Change {
            state: Some(state),
            state_reason: Some(reason.to_owned()),
            ..Change::default()
        })
    }
}

/// Returns an event about a sandbox after a change. The event of a restore, of a rebase, of reverted changes, and of a
/// pause to disk has the id of the snapshot.
pub(crate) fn event(kind: EventKind, sandbox: &Sandbox, change: &Change) -> NewEvent {
    let mut data = json!({
        "sandboxId": sandbox.id,
        "name": sandbox.name,
        "owner": sandbox.owner,
        "state": VisibleState::of(
            change.state.unwrap_or(sandbox.state),
            change.pause.unwrap_or(sandbox.pause),
        ).as_str(),
        "reason": change.state_reason,
        "template": sandbox.template,
        "project": sandbox.config["lineage"]["project"],
        "createdAt": sandbox.created_at,
        "expiresAt": change.expires_at.unwrap_or(sandbox.expires_at),
    });
    let config = change.config.as_ref().unwrap_or(&sandbox.config);
    let has_other_files =
        [EventKind::SandboxRestored, EventKind::SandboxRebased, EventKind::SandboxChangesReverted];
    if has_other_files.contains(&kind) {
        data["snapshotId"] = config["snapshot"].clone();
    }
    if kind == EventKind::SandboxChangesReverted {
        data["reverted"] = config["lineage"]["project_base"]["reverted"].clone();
    }
    if kind == EventKind::SandboxPaused && change.pause == Some(Some(PauseStep::Disk)) {
        data["snapshotId"] = json!(sandbox.pause_snapshot);
    }
    NewEvent { kind, data }
}

/// Creates a directory that only the user of the server may enter, unless it exists.
fn create_private_directory(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
