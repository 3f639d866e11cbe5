//! Creation a sandbox.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use workspace_catalog::{CatalogError, Change, EventKind, Inserted, NewClaim, NewEvent, Sandbox, State};
use workspace_state::Cancel;
use workspace_workspace::{Kind, Made as Workspace};

use crate::clock::{milliseconds, now};
use crate::config::{Config, NewSandbox};
use crate::error::{Context as _, Result, SandboxError};
use crate::fair_semaphore::{FairPermit, FairSemaphore};
use crate::guest::handle::SandboxHandle;
use crate::guest::listener;
use crate::lifecycle::cancellable::until;
use crate::lifecycle::pool::state::Ready;
use crate::lifecycle::reservation::{Reservation, ReservationGuard};
use crate::runtime::{Egress, Network, RuntimeError, Start, Uplink};
use crate::service::{Service, View, event, not_running};

/// Between two looks at a sandbox that another request makes.
const LOOK: Duration = Duration::from_millis(20);
/// Between two words on what is being done.
const TELL: Duration = Duration::from_millis(500);
/// How much of what a guest said is shown when it did not come up.
const LOG_SHOWN: usize = 2_000;

/// Who wants a sandbox, and how often it may be wanted.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose it will be.
    pub owner: String,
    /// Whether the owner may have any number.
    pub unlimited: bool,
    /// How many the owner may have, if that is not what the settings say.
    pub most: Option<u32>,
    /// What the client sends again with the same request, and the hash of the request.
    pub key: Option<(String, String)>,
}

impl Service {
    /// Makes a sandbox; it runs when this is answered. Goes on when nobody waits for it any more.
    pub async fn create(&self, wanted: Caller, new: NewSandbox) -> Result<View> {
        self.create_until(&self.0.cancel, wanted, new).await
    }

    /// The same, unless it is cancelled before it runs: then nothing is left of it.
    pub(crate) async fn create_until(
        &self,
        cancel: &Cancel,
        wanted: Caller,
        new: NewSandbox,
    ) -> Result<View> {
        let (mut config, life) = new.check(&self.0.settings)?;
        let expected = self.0.runtime.variables(&new.template).await?;
        config.envs = expected.into_iter().chain(config.envs).collect();
        let (service, cancel) = (self.clone(), cancel.clone());
        // Whoever closes the service waits until what was made in part is taken back.
        let counted = self.0.under_way.begin();
        let made = tokio::spawn(async move {
            let made = service.create_now(wanted, new, config, life, cancel).await;
            drop(counted);
            made
        });
        let made = made.await.map_err(|error| SandboxError::Io {
            action: "make a sandbox".to_owned(),
            source: std::io::Error::other(error),
        });
        self.view(made??)
    }

    /// Refuses what [`Service::create`] would refuse without having tried.
    pub(crate) async fn must_be_possible(&self, new: &NewSandbox) -> Result<()> {
        new.check(&self.0.settings)?;
        self.0.runtime.variables(&new.template).await?;
        Ok(())
    }

    async fn create_now(
        &self,
        wanted: Caller,
        new: NewSandbox,
        config: Config,
        life: Duration,
        cancel: Cancel,
    ) -> Result<Sandbox> {
        let _waiting = self.queue(&wanted.owner)?;
        // The namespaces that it is made in are not ended meanwhile.
        let _making = self.0.making.read().await;
        *self.0.idle_since.lock() = None;
        let claim = wanted.claim();
        let reservation = loop {
            cancel.check()?;
            match self.reserve(&wanted, claim.as_ref(), &new).await? {
                Reserve::Made(reservation) => break reservation,
                Reserve::Replayed(made) => return self.made_before(&made, &cancel).await,
                Reserve::InProgress => sleep(LOOK).await,
            }
        };
        let creation = Creation { wanted, new, config, life, claim, cancel };
        let made = match self.take_ready(&creation.new, &creation.config) {
            Some(ready) => self.give_ready(&creation, ready, reservation).await,
            None => self.make(&creation, self.unmade()?, reservation).await,
        };
        if made.is_ok() {
            self.was_wanted(&creation.new, &creation.config);
        }
        self.fill_pool();
        match made? {
            Created::New(sandbox) => Ok(*sandbox),
            Created::Existing(id) => self.made_before(&id, &creation.cancel).await,
        }
    }

    /// Makes one from nothing. It is written down first: whatever is left of one that was not finished belongs to
    /// somebody.
    async fn make(
        &self,
        creation: &Creation,
        ready: Ready,
        reservation: ReservationGuard<'_>,
    ) -> Result<Created> {
        let handle = ready.handle.clone();
        let _operation = self.0.operations.lock(&handle.id).await;
        let row = creation.row(self, &handle, State::Starting, &creation.config);
        let events = [told_of(&row, EventKind::SandboxStarting)];
        let sandbox = match self.write_down(creation, &row, &events, reservation).await? {
            Inserted::New(sandbox) => *sandbox,
            Inserted::Repeated { sandbox_id } => return Ok(Created::Existing(sandbox_id)),
        };
        handle.assign(&sandbox.owner, sandbox.expires_at, &creation.config);
        self.add_handle(&handle);
        match self.build(creation, &sandbox, &ready).await {
            Ok(sandbox) => Ok(Created::New(Box::new(sandbox))),
            Err(error) => {
                self.undo(&sandbox).await;
                Err(error)
            }
        }
    }

    /// Gives away one that was started ahead. Until all is done it belongs to the pool, so it is written down once,
    /// as one that runs.
    async fn give_ready(
        &self,
        creation: &Creation,
        ready: Ready,
        reservation: ReservationGuard<'_>,
    ) -> Result<Created> {
        let handle = ready.handle.clone();
        let (missing, provider) = match self.attach_new(creation, &ready).await {
            Ok(Some(attached)) => attached,
            unusable => {
                self.discard(&handle).await;
                unusable?;
                return self.make(creation, self.unmade()?, reservation).await;
            }
        };
        let written = self.give_attached(creation, &handle, (missing, provider), reservation).await;
        if !matches!(written, Ok(Created::New(_))) {
            self.remove_handle(&handle.id);
            self.discard(&handle).await;
        }
        written
    }

    async fn attach_new(&self, creation: &Creation, ready: &Ready) -> Result<Option<(Vec<String>, Kind)>> {
        let workspace = self.fill_workspace(creation, &ready.handle).await?;
        let _turn = self.turn(&self.0.starts, creation).await?;
        let missing = self.attach(ready, &workspace.path).await;
        Ok(missing.map(|missing| (missing, workspace.provider)))
    }

    async fn give_attached(
        &self,
        creation: &Creation,
        handle: &Arc<SandboxHandle>,
        (missing, provider): (Vec<String>, Kind),
        reservation: ReservationGuard<'_>,
    ) -> Result<Created> {
        self.must_be_strict(&missing)?;
        let _operation = self.0.operations.lock(&handle.id).await;
        let config = Config { missing, provider: Some(provider), ..creation.config.clone() };
        let row = creation.row(self, handle, State::Running, &config);
        let events = [
            EventKind::SandboxStarting,
            EventKind::AgentConnected,
            EventKind::SandboxRunning,
            EventKind::SandboxCreated,
        ];
        let events = events.map(|kind| told_of(&row, kind));
        // Whoever finds the row finds the sandbox.
        handle.assign(&row.owner, row.expires_at, &config);
        self.add_handle(handle);
        match self.write_down(creation, &row, &events, reservation).await? {
            Inserted::New(sandbox) => {
                self.0.pool.leave(&handle.id);
                self.is_made(handle);
                Ok(Created::New(sandbox))
            }
            Inserted::Repeated { sandbox_id } => Ok(Created::Existing(sandbox_id)),
        }
    }

    /// Leaves nothing of one that was taken from the pool and is nobody's after all.
    async fn discard(&self, handle: &SandboxHandle) {
        self.end_ready(handle).await;
        if let Err(error) = self.remove_workspace(&handle.id).await {
            tracing::error!(sandbox = handle.id, %error, "a workspace that nobody has could not be removed");
        }
    }

    async fn write_down(
        &self,
        creation: &Creation,
        row: &workspace_catalog::NewSandbox,
        events: &[NewEvent],
        reservation: ReservationGuard<'_>,
    ) -> Result<Inserted> {
        let sandboxes = self.0.catalog.sandboxes();
        // Whoever counts meanwhile would count the place and the row.
        let _counting = self.0.counting.lock().await;
        let written = match &creation.claim {
            None => sandboxes.insert(row, events).await.map(|made| Inserted::New(Box::new(made))),
            Some(claim) => sandboxes.insert_once(row, claim, events).await,
        };
        drop(reservation);
        match written {
            // Another server on the same catalog took it since it was looked for.
            Err(CatalogError::NameTaken { name }) => {
                let sandbox = sandboxes.find_named(&row.owner, &name).await?;
                Err(SandboxError::NameTaken { name, sandbox })
            }
            written => Ok(written?),
        }
    }

    /// Keeps a place for one more, if there is room.
    async fn reserve(
        &self,
        wanted: &Caller,
        claim: Option<&NewClaim>,
        new: &NewSandbox,
    ) -> Result<Reserve<'_>> {
        let key = wanted.key.as_ref().map(|(key, _)| key.clone());
        let (owner, template) = (wanted.owner.clone(), new.template.clone());
        let reservation = Reservation { owner, template, name: new.name.clone(), key };
        let _counting = self.0.counting.lock().await;
        if let Some(claim) = claim
            && let Some(made) = self.0.catalog.idempotency().find(claim).await?
        {
            return Ok(Reserve::Replayed(made));
        }
        // Before the place is kept, which has the name itself. A request that comes again is no other sandbox.
        let taken = self.check_name(wanted, new).await;
        let Some(reserved) = self.0.reserved.reserve(reservation) else { return Ok(Reserve::InProgress) };
        taken?;
        self.check_quota(wanted, 0).await?;
        Ok(Reserve::Made(reserved))
    }

    /// Refuses a name that is to be the only one, and is not.
    async fn check_name(&self, wanted: &Caller, new: &NewSandbox) -> Result<()> {
        let Some(name) = new.name.as_deref().filter(|_| new.unique_name) else { return Ok(()) };
        let sandbox = self.0.catalog.sandboxes().find_named(&wanted.owner, name).await?;
        if sandbox.is_some() || self.0.reserved.is_named(&wanted.owner, name) {
            return Err(SandboxError::NameTaken { name: name.to_owned(), sandbox });
        }
        Ok(())
    }

    /// Refuses so many sandboxes more than there are, and are being made, if that is too much.
    pub(crate) async fn must_have_room(&self, wanted: &Caller, more: u32) -> Result<()> {
        let _counting = self.0.counting.lock().await;
        self.check_quota(wanted, more).await
    }

    async fn check_quota(&self, wanted: &Caller, more: u32) -> Result<()> {
        let settings = &self.0.settings;
        let (here, own) = self.0.catalog.sandboxes().total(&settings.node, &wanted.owner).await?;
        let (coming, own_coming) = self.0.reserved.counts(&wanted.owner);
        let (coming, own_coming) = (coming as u64 + u64::from(more), own_coming as u64 + u64::from(more));
        let limit = settings.sandboxes_max;
        if here + coming > u64::from(limit) {
            return Err(SandboxError::TooMany {
                what: "this server".to_owned(),
                limit,
                setting: "MAX_SANDBOXES",
            });
        }
        let (limit, setting) = match wanted.most {
            Some(limit) => (limit, "limits.maxSandboxes of the key"),
            None => (settings.sandboxes_per_owner, "MAX_SANDBOXES_PER_OWNER"),
        };
        if !wanted.unlimited && own + own_coming > u64::from(limit) {
            let what = format!("`{}`", wanted.owner);
            return Err(SandboxError::TooMany { what, limit, setting });
        }
        Ok(())
    }

    /// A place among those who wait for a sandbox.
    fn queue(&self, owner: &str) -> Result<FairPermit> {
        let queue = &self.0.waiting;
        queue.try_acquire(owner).ok_or_else(|| SandboxError::QueueFull { waiting: queue.used(owner) })
    }

    /// Waits for a turn of the owner of a sandbox.
    async fn turn(&self, turns: &FairSemaphore, creation: &Creation) -> Result<FairPermit> {
        let turn = until(&creation.cancel, turns.acquire(&creation.wanted.owner)).await?;
        turn.map_err(|_| SandboxError::QueueFull { waiting: 0 })
    }

    /// Makes the workspace of a sandbox. Writing a large snapshot takes long, so it has turns of its own: meanwhile others
    /// start what needs none.
    async fn fill_workspace(&self, creation: &Creation, handle: &SandboxHandle) -> Result<Workspace> {
        let _turn = match creation.new.snapshot {
            Some(_) => Some(self.turn(&self.0.fills, creation).await?),
            None => None,
        };
        let (owner, disk) = (&creation.wanted.owner, creation.config.disk);
        let workspace = self.make_workspace(&handle.id, owner, &creation.new, disk, &creation.cancel).await?;
        self.measure_new(handle, &creation.new).await;
        creation.cancel.check()?;
        Ok(workspace)
    }

    /// Refuses what is not limited as was asked for, where that must not be.
    pub(crate) fn must_be_strict(&self, missing: &[String]) -> Result<()> {
        if !self.0.settings.strict || missing.is_empty() {
            return Ok(());
        }
        let hint = "REQUIRE_ISOLATION=best-effort makes do with what there is";
        Err(RuntimeError::Isolation(format!("{}; {hint}", missing.join("; "))).into())
    }

    /// Waits for the sandbox that an earlier request of the same key made, or makes.
    async fn made_before(&self, id: &str, cancel: &Cancel) -> Result<Sandbox> {
        loop {
            cancel.check()?;
            let found = self.0.catalog.sandboxes().get(id).await?;
            let sandbox = found.ok_or_else(|| SandboxError::NotFound { id: id.to_owned() })?;
            if sandbox.state != State::Starting {
                return Ok(sandbox);
            }
            sleep(LOOK).await;
        }
    }

    async fn build(&self, creation: &Creation, sandbox: &Sandbox, ready: &Ready) -> Result<Sandbox> {
        self.still_wanted(sandbox).await?;
        let workspace = self.fill_workspace(creation, &ready.handle).await?;
        let (_turn, cancel) = (self.turn(&self.0.starts, creation).await?, &creation.cancel);
        self.still_wanted(sandbox).await?;
        self.open_guest_socket(&ready.handle)?;
        let config = &creation.config;
        let egress = self.egress(&creation.new.network);
        let progress = self.tell_progress(&sandbox.id);
        let start = Start {
            id: &sandbox.id,
            template: &sandbox.template,
            workspace: Some(&workspace.path),
            dir: &ready.handle.dir,
            token: ready.token.as_bytes(),
            limits: &config.limits,
            progress: &progress,
            egress: egress.as_ref(),
            reach: self.reach(),
        };
        let missing = self.0.runtime.start(&start).await?.missing;
        until(cancel, self.wait_for_guest(&ready.handle)).await??;
        self.must_be_strict(&missing)?;
        self.set_running(
            &sandbox.id,
            &Config { missing, provider: Some(workspace.provider), ..config.clone() },
        )
        .await
    }

    /// Takes down, as the reason of its state, what is being done for a sandbox that is not there yet. Ends with what is
    /// returned.
    fn tell_progress(&self, id: &str) -> watch::Sender<String> {
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
                    tracing::debug!(sandbox = id, %error, "what is being done could not be written down");
                }
                sleep(TELL).await;
            }
        });
        sender
    }

    /// What a sandbox may reach in such a network of this server's.
    fn egress(&self, network: &Network) -> Option<Egress> {
        let Network::Egress { allow } = network else { return None };
        let settings = &self.0.settings;
        let (allow, deny, dns) = (allow.clone(), settings.egress_deny.clone(), settings.egress_dns);
        Some(Egress { allow, deny, except: Vec::new(), dns, uplink: Uplink::Program })
    }

    /// Makes its place, and lets its guest in.
    pub(crate) fn open_guest_socket(&self, handle: &Arc<SandboxHandle>) -> Result<()> {
        handle.dir.make().context(|| "make the directory of a sandbox".to_owned())?;
        let socket = handle.dir.listen().context(|| "listen for the guest agent".to_owned())?;
        listener::open(socket, handle, Arc::new(self.clone()));
        Ok(())
    }

    /// Somebody may have removed it while it waited.
    async fn still_wanted(&self, sandbox: &Sandbox) -> Result<()> {
        match self.0.catalog.sandboxes().get(&sandbox.id).await? {
            Some(found) if found.state == State::Starting => Ok(()),
            Some(found) => Err(not_running(&found)),
            None => Err(SandboxError::NotFound { id: sandbox.id.clone() }),
        }
    }

    /// Waits until the guest agent is there. One that ends before that never will be.
    pub(crate) async fn wait_for_guest(&self, handle: &SandboxHandle) -> Result<()> {
        let mut line = handle.guest.subscribe();
        let limit = self.0.settings.start_timeout;
        let outcome = tokio::select! {
            connected = timeout(limit, line.wait_for(Option::is_some)) => match connected {
                Ok(_) => return Ok(()),
                Err(_) => format!("did not connect within {} s", limit.as_secs()),
            },
            ended = self.0.runtime.ended(&handle.id, &handle.dir) => {
                ended?;
                "ended before it connected".to_owned()
            }
        };
        let said = self.0.runtime.agent_log(&handle.id, &handle.dir).await;
        let said = said.trim();
        let said = said.char_indices().rev().nth(LOG_SHOWN).map_or(said, |(at, _)| &said[at..]);
        let message = format!("the guest agent {outcome}{}{said}", if said.is_empty() { "" } else { ": " });
        Err(SandboxError::Refused { message })
    }

    /// Its guest is there.
    pub(crate) async fn set_running(&self, id: &str, config: &Config) -> Result<Sandbox> {
        let config = serde_json::to_value(config).unwrap_or_default();
        let change = |sandbox: &Sandbox| {
            sandbox.state.may_become(State::Running).then(|| Change {
                state: Some(State::Running),
                config: Some(config.clone()),
                // Its time begins now, however long an image took to come.
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
            self.is_made(&handle);
        }
        Ok(sandbox)
    }

    /// From now on it is looked after.
    fn is_made(&self, handle: &Arc<SandboxHandle>) {
        handle.is_being_made.store(false, Ordering::SeqCst);
        self.watch_end(handle);
    }

    /// Leaves nothing of one that could not be made.
    async fn undo(&self, sandbox: &Sandbox) {
        self.remove_handle(&sandbox.id);
        let dir = self.dir(&sandbox.id);
        if let Err(error) = self.end(&sandbox.id, &dir).await {
            tracing::error!(sandbox = sandbox.id, %error, "a sandbox that failed could not be ended");
        }
        for removed in [self.remove_dir(&sandbox.id).await, self.remove_workspace(&sandbox.id).await] {
            if let Err(error) = removed {
                tracing::error!(sandbox = sandbox.id, %error, "a sandbox that failed left something");
            }
        }
        self.take_back(&sandbox.id).await;
    }

    /// Forgets a sandbox that was never made, so that the request may come again. Where that cannot be written, as on a full
    /// disk, it is tried again: such a row counts for its owner, and nobody else removes it.
    async fn take_back(&self, id: &str) {
        let Err(error) = self.forget_unmade(id).await else { return };
        tracing::error!(sandbox = id, %error, "a sandbox that failed could not be forgotten; it is tried again");
        let id = id.to_owned();
        self.retry(move |service| {
            let id = id.clone();
            async move { service.forget_unmade(&id).await }
        });
    }

    async fn forget_unmade(&self, id: &str) -> Result<()> {
        let sandboxes = self.0.catalog.sandboxes();
        self.0.catalog.idempotency().release(id).await?;
        let change = Change { state: Some(State::Error), ..Change::default() };
        let Some(sandbox) = sandboxes.get(id).await? else { return Ok(()) };
        sandboxes.delete(id, &[event(EventKind::SandboxError, &sandbox, &change)]).await?;
        Ok(())
    }
}

/// What is to be made.
struct Creation {
    wanted: Caller,
    new: NewSandbox,
    config: Config,
    life: Duration,
    claim: Option<NewClaim>,
    cancel: Cancel,
}

/// Where one more may go.
enum Reserve<'a> {
    Made(ReservationGuard<'a>),
    /// The same request made the one of this id before.
    Replayed(String),
    /// The same request is under way.
    InProgress,
}

/// What came of it.
enum Created {
    New(Box<Sandbox>),
    /// The same request made the one of this id before.
    Existing(String),
}

impl Caller {
    fn claim(&self) -> Option<NewClaim> {
        let (key, request_hash) = self.key.clone()?;
        Some(NewClaim { key, request_hash, owner: self.owner.clone() })
    }
}

impl Creation {
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
            workspace_path: settings.workspaces.join(&handle.id).to_string_lossy().into_owned(),
            id: handle.id.clone(),
            node: settings.node.clone(),
            state,
            name: self.new.name.clone(),
            unique_name: self.new.unique_name,
            owner: self.wanted.owner.clone(),
            template: self.new.template.clone(),
            runtime: service.0.runtime.name().to_owned(),
            network: network_word(&self.new.network).to_owned(),
            token_hash: handle.token_hash.clone(),
            labels: self.new.labels.clone(),
            config: serde_json::to_value(config).unwrap_or_default(),
            created_at,
            expires_at: created_at + milliseconds(self.life.as_secs()),
        }
    }
}

/// What receivers of an event are told of a sandbox that is new.
fn told_of(row: &workspace_catalog::NewSandbox, kind: EventKind) -> NewEvent {
    let state = if kind == EventKind::SandboxStarting { State::Starting } else { row.state };
    let data = serde_json::json!({
        "sandboxId": row.id,
        "name": row.name,
        "owner": row.owner,
        "state": state.as_str(),
        "template": row.template,
        "createdAt": row.created_at,
        "expiresAt": row.expires_at,
    });
    NewEvent { kind, data }
}

fn network_word(network: &Network) -> &'static str {
    match network {
        Network::None => "none",
        Network::Egress { .. } => "egress",
    }
}
