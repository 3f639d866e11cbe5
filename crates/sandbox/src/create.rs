//! Making a sandbox.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::geteuid;
use tokio::time::{sleep, timeout};
use workspace_catalog::{Change, EventKind, Filter, Inserted, NewClaim, Sandbox, State};

use crate::config::{Config, NewSandbox};
use crate::door;
use crate::error::{Doing as _, Result, SandboxError};
use crate::live::Live;
use crate::place::remove_tree;
use crate::pool::Ready;
use crate::runtime::{Network, RuntimeError, Start};
use crate::service::{Service, View, event, milliseconds, not_running, now};

/// Between two looks at a sandbox that another request makes.
const LOOK: Duration = Duration::from_millis(20);
/// How much of what a guest said is shown when it did not come up.
const LOG_SHOWN: usize = 2_000;

/// Who wants a sandbox, and how often it may be wanted.
#[derive(Debug, Clone)]
pub struct Wanted {
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
    pub async fn create(&self, wanted: Wanted, new: NewSandbox) -> Result<View> {
        let (mut config, life) = new.check(&self.0.settings)?;
        let expected = self.0.runtime.variables(&new.template).await?;
        config.envs = expected.into_iter().chain(config.envs).collect();
        let service = self.clone();
        let made = tokio::spawn(async move { service.create_now(wanted, new, config, life).await });
        let made = made.await.map_err(|error| SandboxError::Io {
            action: "make a sandbox".to_owned(),
            source: std::io::Error::other(error),
        });
        self.view(made??)
    }

    async fn create_now(
        &self,
        wanted: Wanted,
        new: NewSandbox,
        config: Config,
        life: Duration,
    ) -> Result<Sandbox> {
        let _waiting = Waiting::begin(self)?;
        let ready = match self.take_ready(&new, &config) {
            Some(ready) => ready,
            None => self.unmade()?,
        };
        let sandbox = match self.write_down(&wanted, &new, &config, life, &ready).await {
            Ok(Inserted::New(sandbox)) => *sandbox,
            Ok(Inserted::Repeated { sandbox_id }) => {
                self.give_back(ready).await;
                return self.made_before(&sandbox_id).await;
            }
            Err(error) => {
                self.give_back(ready).await;
                return Err(error);
            }
        };
        let live = ready.live.clone();
        let _work = live.work.lock().await;
        live.give(&sandbox, &config);
        self.add_live(&live);
        let made = self.build(&sandbox, &ready, &config, new.network).await;
        self.fill_pool();
        if made.is_err() {
            self.undo(&sandbox).await;
        }
        made
    }

    /// Writes it down if there is room for one more.
    async fn write_down(
        &self,
        wanted: &Wanted,
        new: &NewSandbox,
        config: &Config,
        life: Duration,
        ready: &Ready,
    ) -> Result<Inserted> {
        let id = &ready.live.id;
        let created_at = now();
        let row = workspace_catalog::NewSandbox {
            workspace_path: self.0.settings.workspaces.join(id).to_string_lossy().into_owned(),
            id: id.clone(),
            name: new.name.clone(),
            owner: wanted.owner.clone(),
            template: new.template.clone(),
            runtime: self.0.runtime.name().to_owned(),
            network: network_word(&new.network).to_owned(),
            token_hash: ready.live.token_hash.clone(),
            labels: new.labels.clone(),
            config: serde_json::to_value(config).unwrap_or_default(),
            created_at,
            expires_at: created_at + milliseconds(life.as_secs()),
        };
        let events = [starting(&row)];
        let sandboxes = self.0.catalog.sandboxes();
        let _counting = self.0.counting.lock().await;
        match &wanted.key {
            None => {
                self.check_room(wanted).await?;
                Ok(Inserted::New(Box::new(sandboxes.insert(&row, &events).await?)))
            }
            Some((key, request_hash)) => {
                let (key, request_hash) = (key.clone(), request_hash.clone());
                let claim = NewClaim { key, request_hash, owner: wanted.owner.clone() };
                let inserted = sandboxes.insert_once(&row, &claim, &events).await?;
                // A repeated request needs no room, so the room is looked at after.
                if let (Inserted::New(made), Err(full)) = (&inserted, self.check_room(wanted).await) {
                    self.take_back(&made.id).await;
                    return Err(full);
                }
                Ok(inserted)
            }
        }
    }

    async fn check_room(&self, wanted: &Wanted) -> Result<()> {
        let settings = &self.0.settings;
        let count = async |owner: Option<String>| -> Result<u64> {
            let filter = Filter { owner, limit: 1, ..Filter::default() };
            Ok(self.0.catalog.sandboxes().list(&filter).await?.1)
        };
        // One more than is allowed may be the one that was just written.
        let spare = u64::from(wanted.key.is_some());
        let limit = settings.sandboxes_max;
        if count(None).await? >= u64::from(limit) + spare {
            return Err(SandboxError::TooMany {
                what: "this server".to_owned(),
                limit,
                setting: "MAX_SANDBOXES",
            });
        }
        let limit = wanted.most.unwrap_or(settings.sandboxes_per_owner);
        let own = async || count(Some(wanted.owner.clone())).await;
        if !wanted.unlimited && own().await? >= u64::from(limit) + spare {
            let what = format!("`{}`", wanted.owner);
            return Err(SandboxError::TooMany { what, limit, setting: "MAX_SANDBOXES_PER_OWNER" });
        }
        Ok(())
    }

    /// Waits for the sandbox that an earlier request of the same key made, or makes.
    async fn made_before(&self, id: &str) -> Result<Sandbox> {
        loop {
            let found = self.0.catalog.sandboxes().get(id).await?;
            let sandbox = found.ok_or_else(|| SandboxError::NotFound { id: id.to_owned() })?;
            if sandbox.state != State::Starting {
                return Ok(sandbox);
            }
            sleep(LOOK).await;
        }
    }

    async fn build(
        &self,
        sandbox: &Sandbox,
        ready: &Ready,
        config: &Config,
        network: Network,
    ) -> Result<Sandbox> {
        let _maker = self.0.makers.acquire().await.map_err(|_| SandboxError::QueueFull { waiting: 0 })?;
        self.still_wanted(sandbox).await?;
        let workspace = self.0.settings.workspaces.join(&sandbox.id);
        make_workspace(&workspace).doing(|| format!("make {}", workspace.display()))?;
        let missing = match self.attach(ready, &workspace).await {
            Some(missing) => missing,
            None => self.start_cold(sandbox, ready, &workspace, config, network).await?,
        };
        if self.0.settings.strict && !missing.is_empty() {
            let hint = "REQUIRE_ISOLATION=best-effort makes do with what there is";
            let message = format!("{}; {hint}", missing.join("; "));
            return Err(RuntimeError::Isolation(message).into());
        }
        self.set_running(&sandbox.id, Some(Config { missing, ..config.clone() })).await
    }

    /// What is missing of one that was not started before.
    async fn start_cold(
        &self,
        sandbox: &Sandbox,
        ready: &Ready,
        workspace: &Path,
        config: &Config,
        network: Network,
    ) -> Result<Vec<String>> {
        self.open_door(&ready.live)?;
        let start = Start {
            id: &sandbox.id,
            template: &sandbox.template,
            workspace: Some(workspace),
            place: &ready.live.place,
            token: ready.token.as_bytes(),
            limits: &config.limits,
            network,
        };
        let started = self.0.runtime.start(&start).await?;
        self.wait_for_guest(&ready.live).await?;
        Ok(started.missing)
    }

    /// Makes its place, and lets its guest in.
    pub(crate) fn open_door(&self, live: &Arc<Live>) -> Result<()> {
        live.place.make()?;
        let socket = live.place.listen().doing(|| "listen for the guest agent".to_owned())?;
        door::open(socket, live, Arc::new(self.clone()));
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
    pub(crate) async fn wait_for_guest(&self, live: &Live) -> Result<()> {
        let mut line = live.follow_line();
        let limit = self.0.settings.start_timeout;
        let outcome = tokio::select! {
            connected = timeout(limit, line.wait_for(Option::is_some)) => match connected {
                Ok(_) => return Ok(()),
                Err(_) => format!("did not connect within {} s", limit.as_secs()),
            },
            ended = self.0.runtime.ended(&live.id, &live.place) => {
                ended?;
                "ended before it connected".to_owned()
            }
        };
        let said = std::fs::read_to_string(live.place.log()).unwrap_or_default();
        let said = said.trim();
        let said = said.char_indices().rev().nth(LOG_SHOWN).map_or(said, |(at, _)| &said[at..]);
        let message = format!("the guest agent {outcome}{}{said}", if said.is_empty() { "" } else { ": " });
        Err(SandboxError::Refused { message })
    }

    /// Its guest is there.
    pub(crate) async fn set_running(&self, id: &str, config: Option<Config>) -> Result<Sandbox> {
        let config = config.map(|config| serde_json::to_value(config).unwrap_or_default());
        let change = |sandbox: &Sandbox| {
            sandbox.state.may_become(State::Running).then(|| Change {
                state: Some(State::Running),
                config: config.clone(),
                ..Change::default()
            })
        };
        let events = [EventKind::AgentConnected, EventKind::SandboxRunning, EventKind::SandboxCreated];
        let sandbox = self.change(id, change, &events).await?;
        if sandbox.state != State::Running {
            return Err(not_running(&sandbox));
        }
        if let Some(live) = self.live(id) {
            live.is_being_made.store(false, Ordering::SeqCst);
            self.watch_end(&live);
        }
        Ok(sandbox)
    }

    /// Leaves nothing of one that could not be made.
    async fn undo(&self, sandbox: &Sandbox) {
        self.remove_live(&sandbox.id);
        let place = self.place(&sandbox.id);
        if let Err(error) = self.0.runtime.end(&sandbox.id, &place).await {
            tracing::error!(sandbox = sandbox.id, %error, "a sandbox that failed could not be ended");
        }
        let workspace = self.0.settings.workspaces.join(&sandbox.id);
        for removed in [place.remove(), remove_tree(&workspace).doing(|| "remove a workspace".to_owned())] {
            if let Err(error) = removed {
                tracing::error!(sandbox = sandbox.id, %error, "a sandbox that failed left something");
            }
        }
        self.take_back(&sandbox.id).await;
    }

    /// Forgets a sandbox that was never made, so that the request may come again.
    async fn take_back(&self, id: &str) {
        let released = self.0.catalog.idempotency().release(id).await;
        let change = Change { state: Some(State::Error), ..Change::default() };
        let failed = match self.0.catalog.sandboxes().get(id).await {
            Ok(Some(sandbox)) => vec![event(EventKind::SandboxError, &sandbox, &change)],
            _ => Vec::new(),
        };
        let deleted = self.0.catalog.sandboxes().delete(id, &failed).await;
        if let Err(error) = released.and(deleted.map(|_| ())) {
            tracing::error!(sandbox = id, %error, "a sandbox that failed could not be forgotten");
        }
    }
}

fn starting(row: &workspace_catalog::NewSandbox) -> workspace_catalog::NewEvent {
    let data = serde_json::json!({
        "sandboxId": row.id,
        "name": row.name,
        "owner": row.owner,
        "state": State::Starting.as_str(),
        "template": row.template,
        "createdAt": row.created_at,
        "expiresAt": row.expires_at,
    });
    workspace_catalog::NewEvent { kind: EventKind::SandboxStarting, data }
}

fn network_word(network: &Network) -> &'static str {
    match network {
        Network::None => "none",
        Network::Egress => "egress",
    }
}

/// The workspace is the sandbox's own; as the superuser, the runtime gives it away.
fn make_workspace(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let mode = if geteuid().is_root() { 0o755 } else { 0o700 };
    std::fs::DirBuilder::new().mode(mode).create(path)
}

/// Counts those who wait.
struct Waiting<'a>(&'a Service);

impl<'a> Waiting<'a> {
    fn begin(service: &'a Service) -> Result<Self> {
        let limit = service.0.settings.creations_waiting.saturating_add(service.0.settings.creations_at_once);
        let waiting = service.0.waiting.fetch_add(1, Ordering::SeqCst);
        let counted = Self(service);
        if waiting >= limit {
            return Err(SandboxError::QueueFull { waiting });
        }
        Ok(counted)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
