//! Creating a sandbox.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use workspace_catalog::{
    CatalogError, Change, EventKind, IdempotencyClaim, NewEvent, Sandbox, SandboxInsertion, State,
};
use workspace_state::Cancel;
use workspace_workspace::WorkspaceInfo;

use crate::clock::{milliseconds, now};
use crate::config::{Config, NewSandbox};
use crate::error::{Context as _, Result, SandboxError};
use crate::fair_semaphore::{FairPermit, FairSemaphore};
use crate::guest::handle::SandboxHandle;
use crate::guest::listener;
use crate::hooks::HookedWorkspace;
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::pool::state::UnassignedSandbox;
use crate::lifecycle::reservation::{Reservation, ReservationGuard};
use crate::lock_rank::LockRank;
use crate::runtime::{Egress, Network, RuntimeError, SandboxSpec, Uplink};
use crate::service::{SandboxInfo, Service, event, not_running};

/// Poll interval for the state of a sandbox that an earlier request is creating.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Minimum time between two updates of the progress of a creation.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Caller that creates a sandbox: owner, quota and idempotency key.
#[derive(Debug, Clone)]
pub struct Creator {
    /// Owner of the new sandbox.
    pub owner: String,
    /// True if no quota of the owner applies. The limit of the server still does.
    pub unlimited: bool,
    /// Maximum number of sandboxes of the owner; `None` for the one of the settings.
    pub max_sandboxes: Option<u32>,
    /// Idempotency key of the request, and a hash of the request; `None` if it may be executed twice.
    pub idempotency_key: Option<(String, String)>,
}

impl Service {
    /// Creates a sandbox and waits until it runs. The creation continues if this future is dropped.
    pub async fn create(&self, creator: Creator, new: NewSandbox) -> Result<SandboxInfo> {
        self.create_cancellable(&self.0.cancel, creator, new).await
    }

    /// Creates a sandbox unless it is cancelled before it runs: then everything is undone.
    pub(crate) async fn create_cancellable(
        &self,
        cancel: &Cancel,
        creator: Creator,
        new: NewSandbox,
    ) -> Result<SandboxInfo> {
        let (mut config, lifetime) = new.check(&self.0.settings)?;
        self.check_following(&new)?;
        self.check_new_rebasing(&new)?;
        let new = self.with_template_version(new).await?;
        self.check_root(&new).await?;
        let template_envs = self.template_envs(&new).await?;
        config.envs = template_envs.into_iter().chain(config.envs).collect();
        let (service, cancel) = (self.clone(), cancel.clone());
        // Closing the service waits until a partial creation is undone.
        let operation_guard = self.0.operation_count.begin();
        let creation = tokio::spawn(async move {
            let sandbox = service.create_inner(creator, new, config, lifetime, cancel).await;
            drop(operation_guard);
            sandbox
        });
        let sandbox = creation.await.map_err(|error| SandboxError::task_failed("create a sandbox", error))?;
        self.info(sandbox?)
    }

    /// Checks a request for errors that [`Service::create`] would report immediately.
    pub(crate) async fn check_creatable(&self, new: &NewSandbox) -> Result<()> {
        new.check(&self.0.settings)?;
        self.check_following(new)?;
        self.check_new_rebasing(new)?;
        let new = self.with_template_version(new.clone()).await?;
        self.check_root(&new).await?;
        self.template_envs(&new).await?;
        Ok(())
    }

    /// Creates a sandbox, in a task that continues when the request is dropped.
    async fn create_inner(
        &self,
        creator: Creator,
        new: NewSandbox,
        config: Config,
        lifetime: Duration,
        cancel: Cancel,
    ) -> Result<Sandbox> {
        let _queue_slot = self.acquire_queue_slot(&creator.owner)?;
        // Prevents that the namespace holder is released meanwhile (`idle.rs`).
        let _creation_lock = self.0.creation_lock.read().await;
        *self.0.idle_since.lock() = None;
        let claim = creator.claim();
        let reservation = loop {
            cancel.check()?;
            match self.reserve(&creator, claim.as_ref(), &new).await? {
                ReserveResult::New(reservation) => break reservation,
                ReserveResult::Existing(id) => return self.wait_for_existing(&id, &cancel).await,
                ReserveResult::InProgress => sleep(POLL_INTERVAL).await,
            }
        };
        let creation = Creation { creator, new, config, lifetime, claim, cancel };
        let result = match self.take_pooled(&creation.new, &creation.config) {
            Some(unassigned) => self.create_from_pool(&creation, unassigned, reservation).await,
            None => self.create_from_scratch(&creation, self.new_unassigned()?, reservation).await,
        };
        if result.is_ok() {
            self.record_demand(&creation.new, &creation.config);
        }
        self.fill_pool();
        match result? {
            CreateResult::New(sandbox) => Ok(*sandbox),
            CreateResult::Existing(id) => self.wait_for_existing(&id, &creation.cancel).await,
        }
    }

    /// Creates a sandbox from scratch. Its row is inserted first, so that everything it leaves behind belongs
    /// to a row.
    async fn create_from_scratch(
        &self,
        creation: &Creation,
        unassigned: UnassignedSandbox,
        reservation: ReservationGuard<'_>,
    ) -> Result<CreateResult> {
        let handle = unassigned.handle.clone();
        let _operation = self.0.operation_locks.lock(&handle.id).await;
        let row = creation.row(self, &handle, State::Starting, &creation.config);
        let events = [new_sandbox_event(&row, EventKind::SandboxStarting)];
        let sandbox = match self.insert_row(creation, &row, &events, reservation).await? {
            SandboxInsertion::New(sandbox) => *sandbox,
            SandboxInsertion::Existing { sandbox_id } => return Ok(CreateResult::Existing(sandbox_id)),
        };
        handle.assign(&sandbox.owner, sandbox.expires_at, &creation.config);
        self.add_handle(&handle);
        match self.prepare_and_start(creation, &sandbox, &unassigned).await {
            Ok(sandbox) => Ok(CreateResult::New(Box::new(sandbox))),
            Err(error) => {
                self.undo_creation(&sandbox).await;
                Err(error)
            }
        }
    }

    /// Creates a sandbox from one of the warm pool. It belongs to the pool until all is done, so its row is
    /// inserted once, in state `running`.
    async fn create_from_pool(
        &self,
        creation: &Creation,
        unassigned: UnassignedSandbox,
        reservation: ReservationGuard<'_>,
    ) -> Result<CreateResult> {
        let handle = unassigned.handle.clone();
        let (not_applied, workspace) = match self.prepare_and_attach(creation, &unassigned).await {
            Ok(Some(attached)) => attached,
            // `Ok(None)`: the sandbox of the pool cannot be used, so another one is started. An error ends the
            // creation.
            unusable => {
                self.discard_pooled(&handle).await;
                unusable?;
                return self.create_from_scratch(creation, self.new_unassigned()?, reservation).await;
            }
        };
        let result = self.assign_pooled(creation, &handle, (not_applied, &workspace), reservation).await;
        if !matches!(result, Ok(CreateResult::New(_))) {
            self.remove_handle(&handle.id);
            self.discard_pooled(&handle).await;
        }
        result
    }

    /// Prepares a workspace and attaches it to a sandbox of the pool. Returns the limits that are not applied
    /// to the sandbox, and the workspace; `None` if the sandbox can no longer be used.
    async fn prepare_and_attach(
        &self,
        creation: &Creation,
        unassigned: &UnassignedSandbox,
    ) -> Result<Option<(Vec<String>, WorkspaceInfo)>> {
        let workspace = self.prepare_workspace(creation, &unassigned.handle).await?;
        let _permit = self.acquire_permit(&self.0.start_permits, creation).await?;
        let not_applied = self.attach_pooled(unassigned, &workspace.path).await;
        Ok(not_applied.map(|not_applied| (not_applied, workspace)))
    }

    /// Assigns a sandbox of the pool to the creator: inserts its row, in state `running`.
    async fn assign_pooled(
        &self,
        creation: &Creation,
        handle: &Arc<SandboxHandle>,
        (not_applied, workspace): (Vec<String>, &WorkspaceInfo),
        reservation: ReservationGuard<'_>,
    ) -> Result<CreateResult> {
        self.check_isolation(&not_applied)?;
        let _operation = self.0.operation_locks.lock(&handle.id).await;
        let (provider, read_only) = (Some(workspace.provider), workspace.read_only);
        let config = Config { not_applied, provider, read_only, ..creation.config.clone() };
        let row = creation.row(self, handle, State::Running, &config);
        let events = [
            EventKind::SandboxStarting,
            EventKind::AgentConnected,
            EventKind::SandboxRunning,
            EventKind::SandboxCreated,
        ];
        let events = events.map(|kind| new_sandbox_event(&row, kind));
        // A client that finds the row must find the handle.
        handle.assign(&row.owner, row.expires_at, &config);
        self.add_handle(handle);
        match self.insert_row(creation, &row, &events, reservation).await? {
            SandboxInsertion::New(sandbox) => {
                self.0.pool.release(&handle.id);
                self.watch_started_sandbox(handle);
                Ok(CreateResult::New(sandbox))
            }
            SandboxInsertion::Existing { sandbox_id } => Ok(CreateResult::Existing(sandbox_id)),
        }
    }

    /// Kills a sandbox that was taken from the pool and could not be assigned, and removes its workspace.
    async fn discard_pooled(&self, handle: &SandboxHandle) {
        self.kill_pooled(handle).await;
        if let Err(error) = self.discard_workspace(&handle.id).await {
            tracing::error!(sandbox = handle.id, %error, "failed to remove the workspace of an unassigned sandbox");
        }
    }

    /// Inserts the row of a sandbox, and releases the reservation.
    async fn insert_row(
        &self,
        creation: &Creation,
        row: &workspace_catalog::NewSandbox,
        events: &[NewEvent],
        reservation: ReservationGuard<'_>,
    ) -> Result<SandboxInsertion> {
        let sandboxes = self.0.catalog.sandboxes();
        // Held until the reservation is dropped: a concurrent creation would count both the reservation and the row.
        let _quota_lock = LockRank::Quota.wait(self.0.quota_lock.lock()).await;
        let insertion = match &creation.claim {
            None => {
                sandboxes.insert(row, events).await.map(|sandbox| SandboxInsertion::New(Box::new(sandbox)))
            }
            Some(claim) => sandboxes.insert_once(row, claim, events).await,
        };
        drop(reservation);
        match insertion {
            // Another server on the same catalog took the name since it was checked.
            Err(CatalogError::NameTaken { name }) => {
                let sandbox = sandboxes.find_named(&row.owner, &name).await?;
                Err(SandboxError::NameTaken { name, sandbox })
            }
            insertion => Ok(insertion?),
        }
    }

    /// Reserves a slot in the quota for one more sandbox.
    async fn reserve(
        &self,
        creator: &Creator,
        claim: Option<&IdempotencyClaim>,
        new: &NewSandbox,
    ) -> Result<ReserveResult<'_>> {
        let key = creator.idempotency_key.as_ref().map(|(key, _)| key.clone());
        let (owner, template) = (creator.owner.clone(), new.template.clone());
        let reservation = Reservation { owner, template, name: new.name.clone(), key };
        let _quota_lock = LockRank::Quota.wait(self.0.quota_lock.lock()).await;
        if let Some(claim) = claim
            && let Some(id) = self.0.catalog.idempotency().find(claim).await?
        {
            return Ok(ReserveResult::Existing(id));
        }
        // Checked before the reservation, which has the name itself. A failure is returned after it, so that a repeated
        // request waits for the first one and does not conflict with it.
        let name_check = self.check_name(creator, new).await;
        let Some(guard) = self.0.reservations.reserve(reservation) else {
            return Ok(ReserveResult::InProgress);
        };
        name_check?;
        // No more, because the reservation itself is counted.
        self.check_quota(creator, 0).await?;
        Ok(ReserveResult::New(guard))
    }

    /// Fails if the name has to be unique and the owner has another sandbox of that name.
    async fn check_name(&self, creator: &Creator, new: &NewSandbox) -> Result<()> {
        let Some(name) = new.name.as_deref().filter(|_| new.unique_name) else { return Ok(()) };
        let sandbox = self.0.catalog.sandboxes().find_named(&creator.owner, name).await?;
        if sandbox.is_some() || self.0.reservations.is_named(&creator.owner, name) {
            return Err(SandboxError::NameTaken { name: name.to_owned(), sandbox });
        }
        Ok(())
    }

    /// Checks that the quota allows `more` sandboxes beside those that exist or are being created.
    pub(crate) async fn check_capacity(&self, creator: &Creator, more: u32) -> Result<()> {
        let _quota_lock = LockRank::Quota.wait(self.0.quota_lock.lock()).await;
        self.check_quota(creator, more).await
    }

    /// Checks like [`Self::check_capacity`], for the holder of the quota lock.
    pub(crate) async fn check_quota(&self, creator: &Creator, more: u32) -> Result<()> {
        let settings = &self.0.settings;
        let (of_server, of_owner) =
            self.0.catalog.sandboxes().count_for_quota(&settings.server, &creator.owner).await?;
        let (reserved, reserved_by_owner) = self.0.reservations.counts(&creator.owner);
        let of_server = of_server + reserved as u64 + u64::from(more);
        let of_owner = of_owner + reserved_by_owner as u64 + u64::from(more);
        let limit = settings.max_sandboxes;
        if of_server > u64::from(limit) {
            return Err(SandboxError::TooMany {
                what: "this server".to_owned(),
                limit,
                setting: "MAX_SANDBOXES",
            });
        }
        let (limit, setting) = match creator.max_sandboxes {
            Some(limit) => (limit, "limits.maxSandboxes of the key"),
            None => (settings.sandboxes_per_owner, "MAX_SANDBOXES_PER_OWNER"),
        };
        if !creator.unlimited && of_owner > u64::from(limit) {
            let what = format!("`{}`", creator.owner);
            return Err(SandboxError::TooMany { what, limit, setting });
        }
        Ok(())
    }

    /// Takes a slot in the queue of creations, without waiting.
    pub(crate) fn acquire_queue_slot(&self, owner: &str) -> Result<FairPermit> {
        let queue = &self.0.queue_permits;
        queue.try_acquire(owner).ok_or_else(|| SandboxError::QueueFull { waiting: queue.used(owner) })
    }

    /// Waits for a permit of the owner.
    async fn acquire_permit(&self, semaphore: &FairSemaphore, creation: &Creation) -> Result<FairPermit> {
        let permit = or_cancelled(&creation.cancel, semaphore.acquire(&creation.creator.owner)).await?;
        // The semaphore is closed with the service.
        permit.map_err(|_| SandboxError::Cancelled)
    }

    /// Creates and measures the workspace of a sandbox, and notifies the hooks
    /// ([`WorkspaceHooks`](crate::WorkspaceHooks)). Writing a large snapshot is slow, so it has its own semaphore, and
    /// sandboxes without a snapshot do not wait for it.
    async fn prepare_workspace(&self, creation: &Creation, handle: &SandboxHandle) -> Result<WorkspaceInfo> {
        let is_filled = creation.new.snapshot.is_some() || !creation.new.root.is_discarded();
        let permit = match is_filled {
            true => Some(self.acquire_permit(&self.0.workspace_permits, creation).await?),
            false => None,
        };
        let (owner, disk) = (&creation.creator.owner, creation.config.disk);
        let workspace =
            self.create_workspace(&handle.id, owner, &creation.new, disk, &creation.cancel).await?;
        self.measure_new(handle, &creation.new).await;
        creation.cancel.check()?;
        drop(permit);
        let hooked = HookedWorkspace {
            id: &handle.id,
            owner,
            is_read_only: creation.new.read_only,
            follows_head: creation.new.follow.is_some(),
            outside_clients: creation.new.outside_clients.as_deref(),
        };
        or_cancelled(&creation.cancel, self.notify_hooks_of_creation(hooked)).await??;
        Ok(workspace)
    }

    /// Fails if limits or isolation are not applied and the settings are strict.
    pub(crate) fn check_isolation(&self, not_applied: &[String]) -> Result<()> {
        if !self.0.settings.strict || not_applied.is_empty() {
            return Ok(());
        }
        let hint = "REQUIRE_ISOLATION=best-effort accepts the isolation that is available";
        Err(RuntimeError::Isolation(format!("{}; {hint}", not_applied.join("; "))).into())
    }

    /// Waits for the sandbox of an earlier request with the same idempotency key.
    async fn wait_for_existing(&self, id: &str, cancel: &Cancel) -> Result<Sandbox> {
        loop {
            cancel.check()?;
            let found = self.0.catalog.sandboxes().get(id).await?;
            let sandbox = found.ok_or_else(|| SandboxError::NotFound { id: id.to_owned() })?;
            if sandbox.state != State::Starting {
                return Ok(sandbox);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Prepares the workspace of a sandbox and starts the sandbox over it.
    async fn prepare_and_start(
        &self,
        creation: &Creation,
        sandbox: &Sandbox,
        unassigned: &UnassignedSandbox,
    ) -> Result<Sandbox> {
        let workspace = self.prepare_workspace(creation, &unassigned.handle).await?;
        let (_permit, cancel) =
            (self.acquire_permit(&self.0.start_permits, creation).await?, &creation.cancel);
        self.check_still_starting(sandbox).await?;
        self.open_guest_socket(&unassigned.handle)?;
        let config = &creation.config;
        let egress = self.egress(&creation.new.network);
        let progress = self.publish_progress(&sandbox.id);
        let root = self.0.roots.path(&sandbox.id);
        let start = SandboxSpec {
            id: &sandbox.id,
            template: &sandbox.template,
            workspace: workspace.anchor.is_none().then_some(workspace.path.as_path()),
            anchor: workspace.anchor.as_deref(),
            root: root.as_deref(),
            dir: &unassigned.handle.dir,
            token: unassigned.token.as_bytes(),
            limits: &config.limits,
            progress: &progress,
            egress: egress.as_ref(),
            endpoint: self.endpoint(),
        };
        let not_applied = self.0.runtime.start(&start).await?.not_applied;
        or_cancelled(cancel, self.wait_for_guest(&unassigned.handle)).await??;
        self.check_isolation(&not_applied)?;
        let (provider, read_only) = (Some(workspace.provider), workspace.read_only);
        let config = Config { not_applied, provider, read_only, ..config.clone() };
        self.set_running(&sandbox.id, &config).await
    }

    /// Writes progress messages into the state reason of a sandbox that is starting, until the returned
    /// sender is dropped.
    pub(crate) fn publish_progress(&self, id: &str) -> watch::Sender<String> {
        let (sender, mut receiver) = watch::channel(String::new());
        let (service, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move {
            while receiver.changed().await.is_ok() {
                let state_reason = Some(receiver.borrow_and_update().clone());
                let change = |sandbox: &Sandbox| {
                    let starting = sandbox.state == State::Starting;
                    starting.then(|| Change { state_reason: state_reason.clone(), ..Change::default() })
                };
                if let Err(error) = service.change(&id, change, &[]).await {
                    tracing::debug!(sandbox = id, %error, "failed to record the progress of a creation");
                }
                sleep(PROGRESS_INTERVAL).await;
            }
        });
        sender
    }

    /// Returns the egress policy of a sandbox; `None` for a sandbox without a network.
    pub(crate) fn egress(&self, network: &Network) -> Option<Egress> {
        let Network::Egress { allow } = network else { return None };
        let settings = &self.0.settings;
        let (allow, deny, dns) = (allow.clone(), settings.egress_deny.clone(), settings.egress_dns);
        Some(Egress { allow, deny, except: Vec::new(), dns, uplink: Uplink::UserMode })
    }

    /// Creates the directory of a sandbox, and listens for its guest agent there.
    pub(crate) fn open_guest_socket(&self, handle: &Arc<SandboxHandle>) -> Result<()> {
        handle.dir.make().context(|| "create the directory of a sandbox".to_owned())?;
        self.listen_for_guest(handle)
    }

    /// Listens for the guest agent of a sandbox in its directory.
    pub(crate) fn listen_for_guest(&self, handle: &Arc<SandboxHandle>) -> Result<()> {
        let socket = handle.dir.listen().context(|| "listen for the guest agent".to_owned())?;
        listener::open(socket, handle, Arc::new(self.clone()));
        Ok(())
    }

    /// Fails if the sandbox was removed while its creation waited.
    pub(crate) async fn check_still_starting(&self, sandbox: &Sandbox) -> Result<()> {
        match self.0.catalog.sandboxes().get(&sandbox.id).await? {
            Some(found) if found.state == State::Starting => Ok(()),
            Some(found) => Err(not_running(&found)),
            None => Err(SandboxError::NotFound { id: sandbox.id.clone() }),
        }
    }

    /// Waits until the guest agent is connected. Fails if the sandbox exits before that, or after a timeout.
    pub(crate) async fn wait_for_guest(&self, handle: &SandboxHandle) -> Result<()> {
        let mut stream = handle.guest.subscribe();
        let limit = self.0.settings.start_timeout;
        let failure = tokio::select! {
            connected = timeout(limit, stream.wait_for(Option::is_some)) => match connected {
                Ok(_) => return Ok(()),
                Err(_) => format!("did not connect within {} s", limit.as_secs()),
            },
            exited = self.0.runtime.wait_for_exit(&handle.id, &handle.dir) => {
                exited?;
                "exited before it connected".to_owned()
            }
        };
        let log = self.0.runtime.agent_log(&handle.id, &handle.dir).await;
        let message = format!("the guest agent {failure}{}{log}", if log.is_empty() { "" } else { ": " });
        Err(SandboxError::Refused { message })
    }

    /// Records that a sandbox is `running`: its guest agent has connected.
    pub(crate) async fn set_running(&self, id: &str, config: &Config) -> Result<Sandbox> {
        let config = serde_json::to_value(config).unwrap_or_default();
        let change = |sandbox: &Sandbox| {
            sandbox.state.can_become(State::Running).then(|| Change {
                state: Some(State::Running),
                config: Some(config.clone()),
                // Its lifetime starts now, regardless of how long an image took to pull.
                expires_at: Some(now() + (sandbox.expires_at - sandbox.created_at)),
                ..Change::default()
            })
        };
        let events = [EventKind::AgentConnected, EventKind::SandboxRunning, EventKind::SandboxCreated];
        let sandbox = self.change(id, change, &events).await?;
        if sandbox.state != State::Running {
            return Err(not_running(&sandbox));
        }
        if let Some(handle) = self.handle(id) {
            handle.set_expires_at(sandbox.expires_at);
            self.watch_started_sandbox(&handle);
        }
        Ok(sandbox)
    }

    /// Ends the creation of a sandbox that was created, resumed or started again, and starts to monitor it.
    pub(crate) fn watch_started_sandbox(&self, handle: &Arc<SandboxHandle>) {
        handle.is_being_created.store(false, Ordering::SeqCst);
        self.watch_exit(handle);
    }

    /// Removes everything of a sandbox that could not be created.
    async fn undo_creation(&self, sandbox: &Sandbox) {
        self.remove_handle(&sandbox.id);
        let dir = self.dir(&sandbox.id);
        if let Err(error) = self.kill_sandbox(&sandbox.id, &dir).await {
            tracing::error!(sandbox = sandbox.id, %error, "failed to kill a sandbox that could not be created");
        }
        for removed in [self.remove_dir(&sandbox.id).await, self.discard_workspace(&sandbox.id).await] {
            if let Err(error) = removed {
                tracing::error!(sandbox = sandbox.id, %error, "failed to remove files of a sandbox that could not be created");
            }
        }
        self.delete_failed_row(&sandbox.id).await;
    }

    /// Deletes the row of a sandbox that could not be created, so that the request may be repeated. Retries
    /// where the catalog cannot be written, as on a full disk: the row counts for the owner's quota, and
    /// nothing else removes it.
    async fn delete_failed_row(&self, id: &str) {
        let Err(error) = self.try_delete_failed_row(id).await else { return };
        tracing::error!(sandbox = id, %error, "failed to delete the row of a failed creation, trying again");
        let id = id.to_owned();
        self.retry(move |service| {
            let id = id.clone();
            async move { service.try_delete_failed_row(&id).await }
        });
    }

    async fn try_delete_failed_row(&self, id: &str) -> Result<()> {
        let sandboxes = self.0.catalog.sandboxes();
        self.0.catalog.idempotency().release(id).await?;
        let change = Change { state: Some(State::Error), ..Change::default() };
        let Some(sandbox) = sandboxes.get(id).await? else { return Ok(()) };
        sandboxes.delete(id, &[event(EventKind::SandboxError, &sandbox, &change)]).await?;
        Ok(())
    }
}

/// Request for a sandbox, validated and with a reservation.
struct Creation {
    /// Caller, and its quota.
    creator: Creator,
    /// Parameters of the request.
    new: NewSandbox,
    config: Config,
    /// Time from the start until the sandbox expires.
    lifetime: Duration,
    /// Idempotency key of the request; `None` if the request may be executed twice.
    claim: Option<IdempotencyClaim>,
    cancel: Cancel,
}

/// Result of [`Service::reserve`].
enum ReserveResult<'a> {
    New(ReservationGuard<'a>),
    /// An earlier request with the same idempotency key created the sandbox with this id.
    Existing(String),
    /// An earlier request with the same idempotency key is creating the sandbox.
    InProgress,
}

/// Result of a creation.
enum CreateResult {
    New(Box<Sandbox>),
    /// An earlier request with the same idempotency key created the sandbox with this id.
    Existing(String),
}

impl Creator {
    /// Returns the claim that the catalog records for the idempotency key; `None` without a key.
    fn claim(&self) -> Option<IdempotencyClaim> {
        let (key, request_hash) = self.idempotency_key.clone()?;
        Some(IdempotencyClaim { key, request_hash, owner: self.owner.clone() })
    }
}

impl Creation {
    /// Returns the row of the new sandbox.
    fn row(
        &self,
        service: &Service,
        handle: &SandboxHandle,
        state: State,
        config: &Config,
    ) -> workspace_catalog::NewSandbox {
        let settings = &service.0.settings;
        let created_at = now();
        workspace_catalog::NewSandbox {
            workspace_path: settings.workspaces_dir.join(&handle.id).to_string_lossy().into_owned(),
            id: handle.id.clone(),
            server: settings.server.clone(),
            state,
            name: self.new.name.clone(),
            unique_name: self.new.unique_name,
            owner: self.creator.owner.clone(),
            template: self.new.template.clone(),
            runtime: service.0.runtime.name().to_owned(),
            network: network_name(&self.new.network).to_owned(),
            token_hash: handle.token_hash.clone(),
            labels: self.new.labels.clone(),
            config: serde_json::to_value(config).unwrap_or_default(),
            created_at,
            expires_at: created_at + milliseconds(self.lifetime.as_secs()),
        }
    }
}

/// Returns an event about a sandbox that is not in the catalog yet.
fn new_sandbox_event(row: &workspace_catalog::NewSandbox, kind: EventKind) -> NewEvent {
    let state = if kind == EventKind::SandboxStarting { State::Starting } else { row.state };
    let data = serde_json::json!({
        "sandboxId": row.id,
        "name": row.name,
        "owner": row.owner,
        "state": state.as_str(),
        "template": row.template,
        "project": row.config["lineage"]["project"],
        "createdAt": row.created_at,
        "expiresAt": row.expires_at,
    });
    NewEvent { kind, data }
}

fn network_name(network: &Network) -> &'static str {
    match network {
        Network::None => "none",
        Network::Egress { .. } => "egress",
    }
}
