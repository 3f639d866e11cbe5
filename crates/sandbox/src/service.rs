//! All sandboxes of a server.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use workspace_catalog::{Catalog, CatalogError, Change, EventKind, Filter, NewEvent, Sandbox, State};
use workspace_state::Cancel;
use workspace_workspace::Workspaces;

use crate::clock::{milliseconds, now};
use crate::config::{Config, check_labels};
use crate::disk::full_disk::state::FullDisk;
use crate::disk::fullness::Fullness;
use crate::disk::open::open;
use crate::disk::scan::{DiskScans, SCANS_AT_ONCE};
use crate::error::{Context as _, Result, SandboxError};
use crate::fair_semaphore::FairSemaphore;
use crate::guest::handle::SandboxHandle;
use crate::guest::tcp::{GuestPort, Reach};
use crate::leaf_mutex::LeafMutex;
use crate::lifecycle::cleanup_queue::CleanupQueue;
use crate::lifecycle::operation_count::OperationCount;
use crate::lifecycle::operation_lock::OperationLocks;
use crate::lifecycle::pool::state::Pool;
use crate::lifecycle::reservation::Reservations;
use crate::runtime::{Runtime, Template};
use crate::sandbox_dir::SandboxDir;
use crate::scope::Scope;
use crate::settings::Settings;
use crate::template::{ImportOptions, ImportedTemplate, TemplateError, Templates};

/// Longest time that closing waits for operations that were cancelled, and for the files of deleted sandboxes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Sandboxes that are removed at the same time for requests that name several; half of them for one owner.
const BATCH_REMOVALS_AT_ONCE: u32 = 16;
/// Scans of workspaces at the same time for requests.
const REQUESTED_SCANS_AT_ONCE: u32 = 4;

/// Makes sandboxes, runs what is wanted in them, and ends them. Clones are the same service.
#[derive(Debug, Clone)]
pub struct Service(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) catalog: Catalog,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) workspaces: Arc<Workspaces>,
    handles: RwLock<HashMap<String, Arc<SandboxHandle>>>,
    /// Stops long operations: the settings', or that of [`Service::close`].
    pub(crate) cancel: Cancel,
    /// Operations that are not over.
    pub(crate) under_way: OperationCount,
    /// One operation on a sandbox at a time.
    pub(crate) operations: OperationLocks,
    /// Sandboxes that are being started.
    pub(crate) starts: FairSemaphore,
    /// Workspaces that are being filled from a snapshot.
    pub(crate) fills: FairSemaphore,
    pub(crate) waiting: FairSemaphore,
    /// Held for reading by who makes a sandbox, for writing by who ends what is there only for sandboxes.
    pub(crate) making: tokio::sync::RwLock<()>,
    /// When it was seen first that there is no sandbox; none if there is one.
    pub(crate) idle_since: LeafMutex<Option<Instant>>,
    /// Held by who counts the sandboxes and writes down one more.
    pub(crate) counting: Mutex<()>,
    /// Deleted sandboxes whose files are being removed.
    pub(crate) cleanup: CleanupQueue,
    /// Places for sandboxes that are being made.
    pub(crate) reserved: Reservations,
    /// Sandboxes that were started for nobody yet.
    pub(crate) pool: Pool,
    /// How many there were in each state when somebody looked last.
    counts: RwLock<Vec<(State, u64)>>,
    /// Looks at workspaces that are under way: by the server itself, and for requests.
    pub(crate) scans: DiskScans,
    pub(crate) requested_scans: FairSemaphore,
    /// Removals for requests that name several sandboxes.
    pub(crate) batch_removals: FairSemaphore,
    /// How full the disk was when files without a name were looked for.
    pub(crate) fullness: Fullness,
    pub(crate) full_disk: FullDisk,
    /// When events that are too old were forgotten last.
    pub(crate) retained: LeafMutex<Option<Instant>>,
    /// How guests reach the port, if there is one.
    reach: Option<Reach>,
    /// What lets guests in there.
    port: Mutex<Option<JoinHandle<()>>>,
}

/// A sandbox as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// What the catalog says.
    pub sandbox: Sandbox,
    /// The rest of what it was made with.
    pub config: Config,
    /// Whether its guest agent is there.
    pub agent_connected: bool,
}

impl Service {
    /// Takes up all sandboxes that the catalog knows of, and removes what nobody knows of.
    pub async fn start(settings: Settings, catalog: Catalog, runtime: Arc<dyn Runtime>) -> Result<Self> {
        Self::start_with(settings, catalog, runtime, None).await
    }

    /// The same with a port, which the guests of sandboxes that have a network dial if the runtime can tell them to.
    pub async fn start_with(
        settings: Settings,
        catalog: Catalog,
        runtime: Arc<dyn Runtime>,
        port: Option<GuestPort>,
    ) -> Result<Self> {
        for directory in [&settings.sandboxes, &settings.workspaces] {
            private_directory(directory).context(|| format!("make {}", directory.display()))?;
        }
        let workspaces = Arc::new(open(&settings, &runtime).await?);
        let turns = || FairSemaphore::new(settings.creations_at_once);
        let (starts, fills) = (turns(), turns());
        let waiting =
            FairSemaphore::new(settings.creations_waiting.saturating_add(settings.creations_at_once));
        let service = Self(Arc::new(Inner {
            cancel: settings.cancel.child(),
            under_way: OperationCount::default(),
            settings,
            catalog,
            runtime,
            workspaces,
            handles: RwLock::default(),
            operations: OperationLocks::default(),
            starts,
            fills,
            waiting,
            making: tokio::sync::RwLock::default(),
            idle_since: LeafMutex::default(),
            counting: Mutex::default(),
            cleanup: CleanupQueue::default(),
            reserved: Reservations::default(),
            pool: Pool::default(),
            counts: RwLock::default(),
            scans: DiskScans::new(SCANS_AT_ONCE),
            requested_scans: FairSemaphore::new(REQUESTED_SCANS_AT_ONCE),
            batch_removals: FairSemaphore::new(BATCH_REMOVALS_AT_ONCE),
            fullness: Fullness::default(),
            full_disk: FullDisk::default(),
            retained: LeafMutex::default(),
            reach: port.as_ref().map(GuestPort::reach),
            port: Mutex::default(),
        }));
        service.0.catalog.sandboxes().adopt(&service.0.settings.node).await?;
        service.recover().await?;
        // Guests that dialled meanwhile wait: before, they would have been refused.
        *service.0.port.lock().await = port.map(|port| port.open(Arc::new(service.clone())));
        service.watch();
        service.fill_pool();
        Ok(service)
    }

    /// Closes the lines to all guests, and cancels operations that are under way. The sandboxes go on; another service
    /// finds them.
    pub async fn close(&self) {
        self.0.cancel.cancel();
        self.0.starts.close();
        self.0.fills.close();
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        if !self.0.under_way.idle(CLOSE_TIMEOUT).await {
            tracing::warn!("operations did not end in time, and may not have undone what they did in part");
        }
        self.empty_pool().await;
        // What is left after that the next start removes.
        self.files_removed(deadline.saturating_duration_since(Instant::now())).await;
        let handles = std::mem::take(&mut *self.0.handles.write().unwrap_or_else(PoisonError::into_inner));
        for handle in handles.values() {
            handle.close();
        }
        if let Err(error) = self.on_workspaces(Workspaces::close).await {
            tracing::warn!(%error, "whoever comes next waits for the workspaces");
        }
        if let Some(port) = self.0.port.lock().await.take() {
            port.abort();
            // Whoever comes next may listen there.
            drop(port.await);
        }
    }

    /// How guests reach the port, if there is one.
    pub(crate) fn reach(&self) -> Option<&Reach> {
        self.0.reach.as_ref()
    }

    /// How many sandboxes there are in each state, as of a moment ago.
    pub fn counts(&self) -> Vec<(State, u64)> {
        self.0.counts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) async fn count(&self) -> Result<()> {
        let counts = self.0.catalog.sandboxes().counts(&self.0.settings.node).await?;
        *self.0.counts.write().unwrap_or_else(PoisonError::into_inner) = counts;
        Ok(())
    }

    /// What it was started with.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The workspaces of the sandboxes.
    pub fn workspaces(&self) -> &Arc<Workspaces> {
        &self.0.workspaces
    }

    /// What runs the sandboxes.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.0.runtime
    }

    /// What sandboxes can be made from.
    pub async fn templates(&self) -> Result<Vec<Template>> {
        Ok(self.0.runtime.templates().await?)
    }

    /// Where an archive is put that is to be imported.
    pub fn receive_template(&self) -> Result<std::fs::File> {
        self.imported()?.receive().context(|| "make room for a template".to_owned())
    }

    /// Makes a template of an archive that was received. The import stops when the future is dropped.
    pub async fn import_template(
        &self,
        name: &str,
        archive: std::fs::File,
        options: ImportOptions,
    ) -> Result<ImportedTemplate> {
        let (templates, name) = (self.imported()?.clone(), name.to_owned());
        let stop = options.cancel.on_drop();
        let import = move || templates.import(&name, archive, &options);
        let imported = tokio::task::spawn_blocking(import).await;
        stop.disarm();
        Ok(imported.map_err(TemplateError::lost)??)
    }

    /// Removes a template over which no sandbox runs.
    pub async fn remove_template(&self, name: &str) -> Result<()> {
        let templates = self.imported()?.clone();
        // Nobody may make one meanwhile.
        let _counting = self.0.counting.lock().await;
        let used = self.0.catalog.sandboxes().all(&self.0.settings.node).await?;
        let user = used.into_iter().find(|sandbox| sandbox.template == name).map(|sandbox| sandbox.id);
        let coming = || self.0.reserved.uses(name).then(|| "one that is being made".to_owned());
        if let Some(sandbox) = user.or_else(coming) {
            return Err(SandboxError::TemplateUsed { name: name.to_owned(), sandbox });
        }
        self.end_ready_of(name).await;
        let (wanted, remove) = (name.to_owned(), name.to_owned());
        let removed = tokio::task::spawn_blocking(move || templates.remove(&remove)).await;
        match removed.map_err(TemplateError::lost)?? {
            true => Ok(()),
            false => Err(SandboxError::NoTemplate { name: wanted, hint: String::new() }),
        }
    }

    fn imported(&self) -> Result<&Templates> {
        self.0.runtime.imported().ok_or_else(|| SandboxError::NoImports { runtime: self.0.runtime.name() })
    }

    /// The sandbox of that id.
    pub async fn get(&self, scope: &Scope, id: &str) -> Result<View> {
        self.view(self.find(scope, id).await?)
    }

    /// A page of those that fit the filter, newest first, and how many fit in all.
    pub async fn list(&self, scope: &Scope, filter: Filter) -> Result<(Vec<View>, u64)> {
        let filter = match scope {
            Scope::Owner(owner) => Filter { owner: Some(owner.clone()), ..filter },
            Scope::All => filter,
        };
        let (sandboxes, total) = self.0.catalog.sandboxes().list(&filter).await?;
        let views = sandboxes.into_iter().map(|sandbox| self.view(sandbox)).collect::<Result<_>>()?;
        Ok((views, total))
    }

    /// Gives a sandbox other labels.
    pub async fn relabel(
        &self,
        scope: &Scope,
        id: &str,
        labels: std::collections::BTreeMap<String, String>,
    ) -> Result<View> {
        check_labels(&labels)?;
        self.find(scope, id).await?;
        let change = Change { labels: Some(labels), ..Change::default() };
        self.view(self.change(id, |_| Some(change.clone()), &[]).await?)
    }

    /// Lets a sandbox live so much longer.
    pub async fn extend(&self, scope: &Scope, id: &str, seconds: u64) -> Result<View> {
        let settings = &self.0.settings;
        let most = settings.extension.as_secs();
        if seconds == 0 || seconds > most {
            let message = format!("1 to {most} seconds are allowed");
            return Err(SandboxError::Invalid { field: "seconds", message });
        }
        let sandbox = self.find_here(scope, id).await?;
        if !matches!(sandbox.state, State::Starting | State::Running) {
            return Err(not_running(&sandbox));
        }
        if sandbox.state == State::Running && sandbox.expires_at <= now() {
            return Err(SandboxError::Expired { id: id.to_owned() });
        }
        let limit = settings.lifetime.as_secs();
        let latest = sandbox.created_at + milliseconds(limit);
        let wanted = |sandbox: &Sandbox| sandbox.expires_at + milliseconds(seconds);
        if wanted(&sandbox) > latest {
            let left = u64::try_from((latest - sandbox.expires_at) / 1_000).unwrap_or(0);
            return Err(SandboxError::Lifetime { limit, left });
        }
        // Of an extension and an expiry at the same moment one wins.
        let handles = |sandbox: &Sandbox| matches!(sandbox.state, State::Starting | State::Running);
        let change = |sandbox: &Sandbox| {
            let expires_at = Some(wanted(sandbox)).filter(|wanted| *wanted <= latest && handles(sandbox))?;
            Some(Change { expires_at: Some(expires_at), ..Change::default() })
        };
        let sandbox = self.change(id, change, &[]).await?;
        if !handles(&sandbox) {
            return Err(not_running(&sandbox));
        }
        if let Some(handle) = self.handle(id) {
            handle.set_expires_at(sandbox.expires_at);
        }
        self.view(sandbox)
    }

    pub(crate) async fn find(&self, scope: &Scope, id: &str) -> Result<Sandbox> {
        let found = match scope {
            Scope::Owner(owner) => self.0.catalog.sandboxes().find(owner, id).await,
            Scope::All => self.0.catalog.sandboxes().get(id).await,
        };
        let not_found = || SandboxError::NotFound { id: id.to_owned() };
        match found {
            // An id that cannot be, is not.
            Err(CatalogError::Nul { .. }) => Err(not_found()),
            found => found?.ok_or_else(not_found),
        }
    }

    /// The sandbox of that id, if this server looks after it.
    pub(crate) async fn find_here(&self, scope: &Scope, id: &str) -> Result<Sandbox> {
        let sandbox = self.find(scope, id).await?;
        if sandbox.node == self.0.settings.node {
            return Ok(sandbox);
        }
        Err(SandboxError::Elsewhere { id: sandbox.id, node: sandbox.node })
    }

    pub(crate) fn view(&self, sandbox: Sandbox) -> Result<View> {
        let config = config_of(&sandbox)?;
        let agent_connected = self.handle(&sandbox.id).is_some_and(|handle| handle.guest.is_connected());
        Ok(View { sandbox, config, agent_connected })
    }

    /// Changes a sandbox as it is now, however often others change it meanwhile. None leaves it as it is.
    pub(crate) async fn change(
        &self,
        id: &str,
        change: impl Fn(&Sandbox) -> Option<Change>,
        events: &[EventKind],
    ) -> Result<Sandbox> {
        loop {
            let found = self.0.catalog.sandboxes().get(id).await?;
            let sandbox = found.ok_or_else(|| SandboxError::NotFound { id: id.to_owned() })?;
            let Some(change) = change(&sandbox) else { return Ok(sandbox) };
            let events: Vec<_> = events.iter().map(|kind| event(*kind, &sandbox, &change)).collect();
            match self.0.catalog.sandboxes().change(id, sandbox.version, change, &events).await {
                Err(CatalogError::Conflict { .. }) => {}
                changed => return Ok(changed?),
            }
        }
    }

    pub(crate) fn dir(&self, id: &str) -> SandboxDir {
        SandboxDir::new(self.0.settings.sandboxes.join(id))
    }

    pub(crate) fn handle(&self, id: &str) -> Option<Arc<SandboxHandle>> {
        self.0.handles.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(crate) fn handles(&self) -> Vec<Arc<SandboxHandle>> {
        self.0.handles.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn add_handle(&self, handle: &Arc<SandboxHandle>) {
        let mut handles = self.0.handles.write().unwrap_or_else(PoisonError::into_inner);
        handles.insert(handle.id.clone(), handle.clone());
    }

    pub(crate) fn remove_handle(&self, id: &str) -> Option<Arc<SandboxHandle>> {
        self.0.handles.write().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    /// The sandbox of that id, if something can be run in it now. Needs no look into the catalog as long as the
    /// guest is there.
    pub(crate) async fn running(&self, scope: &Scope, id: &str) -> Result<Arc<SandboxHandle>> {
        let handle = self.handle(id).filter(|handle| scope.covers(handle.owner()));
        if handle.as_ref().is_some_and(|handle| handle.has_expired(now())) {
            return Err(SandboxError::Expired { id: id.to_owned() });
        }
        if let Some(handle) = handle.as_ref().filter(|handle| handle.guest.is_connected()) {
            return Ok(handle.clone());
        }
        let sandbox = self.find_here(scope, id).await?;
        match (sandbox.state, handle) {
            (State::Running, Some(_)) => Err(SandboxError::AgentAway { id: id.to_owned() }),
            _ => Err(not_running(&sandbox)),
        }
    }
}

pub(crate) fn not_running(sandbox: &Sandbox) -> SandboxError {
    let (id, state, reason) = (sandbox.id.clone(), sandbox.state, sandbox.state_reason.clone());
    SandboxError::NotRunning { id, state, reason }
}

pub(crate) fn config_of(sandbox: &Sandbox) -> Result<Config> {
    serde_json::from_value(sandbox.config.clone())
        .map_err(|source| CatalogError::Json { column: "config", source }.into())
}

/// What receivers of an event are told of the sandbox.
pub(crate) fn event(kind: EventKind, sandbox: &Sandbox, change: &Change) -> NewEvent {
    let data = json!({
        "sandboxId": sandbox.id,
        "name": sandbox.name,
        "owner": sandbox.owner,
        "state": change.state.unwrap_or(sandbox.state).as_str(),
        "reason": change.state_reason,
        "template": sandbox.template,
        "createdAt": sandbox.created_at,
        "expiresAt": change.expires_at.unwrap_or(sandbox.expires_at),
    });
    NewEvent { kind, data }
}

fn private_directory(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
