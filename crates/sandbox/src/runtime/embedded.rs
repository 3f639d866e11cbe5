//! The embedded runtime: namespaces of this machine's kernel, without a daemon and without privilege.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use workspace_host::NamespaceHolder;
use workspace_host::dedicated_uids::{self, DedicatedUids};
use workspace_host::launch::{self, Launch, Launched};
use workspace_host::limits::{self, HostSupport, UnenforcedLimit};
use workspace_host::network::traffic;
use workspace_host::{HostError, HostErrorKind, Process, cgroup, freeze};

use super::actions::{FIND_PROCESSES, FOLLOW, SWAP};
use super::built_in_templates::{BASE, list_templates, template_not_found};
use super::container_access;
use super::egress::{check_egress, missing_egress};
use super::process_end::wait_for_exit;
use super::{
    Frozen, LazyMount, OwnerIds, ProcessScope, ResourceUsage, Runtime, RuntimeError, SandboxSpec,
    StartResult, Template, WorkspaceProcess, blocking,
};
use crate::leaf_mutex::LeafMutex;
use crate::sandbox_dir::SandboxDir;
use crate::template::{ImportedTemplate, Templates};

const NAME: &str = "embedded";
const FREEZE: &str = "freeze a sandbox";
/// Missing feature if sandboxes run as the user of the server.
const SHARED: &str = "no dedicated UIDs for sandboxes: they share the kernel's limits per user (inotify, pages in pipes, \
    descriptors in flight) with this user";
/// Missing feature if all sandboxes run as one user.
const SHARED_BY_ALL: &str = "no dedicated UIDs for sandboxes: they share the kernel's limits per user (pages in pipes, \
    descriptors in flight, epoll watches) with each other";
/// Timeout for killed processes to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval for the exit of the holder.
const HOLDER_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Interval at which remaining processes are killed and thawed again.
const KILL_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Runs sandboxes in namespaces.
#[derive(Debug)]
pub struct Embedded {
    /// Directory in which the holder is recorded.
    directory: PathBuf,
    /// Path of the guest agent's program.
    agent: PathBuf,
    /// Imported root filesystems.
    templates: Templates,
    /// Holder of the namespaces in which sandboxes are created.
    holder: LeafMutex<NamespaceHolder>,
    /// UIDs that each belong to one sandbox.
    dedicated_uids: DedicatedUids,
    /// Result of [`dedicated_uids::probe`].
    dedicated_uids_probe: OnceLock<Result<(), String>>,
    /// Requirements that were unmet when the machine was last checked.
    unmet: LeafMutex<Option<Vec<String>>>,
}

impl Embedded {
    /// Starts the runtime with the holder that is recorded in `directory`, or a new one.
    pub async fn start(directory: &Path, agent: &Path) -> Result<Self, RuntimeError> {
        if !agent.is_file() {
            let reason = format!("the guest agent {} does not exist", agent.display());
            return Err(RuntimeError::Unavailable { runtime: NAME, reason });
        }
        let directory = directory.to_owned();
        let path = directory.clone();
        let holder = blocking(move || NamespaceHolder::find_or_start(&path), unavailable).await?;
        let templates = Templates::new(directory.join("templates"));
        templates.remove_leftovers().map_err(|error| failed("remove unfinished templates", &error))?;
        Ok(Self {
            directory,
            agent: agent.to_owned(),
            templates,
            holder: LeafMutex::new(holder),
            dedicated_uids: DedicatedUids::default(),
            dedicated_uids_probe: OnceLock::new(),
            unmet: LeafMutex::default(),
        })
    }

    fn holder(&self) -> NamespaceHolder {
        self.holder.lock().clone()
    }

    /// Starts a new holder, if the present one is gone.
    async fn renew_holder(&self) -> Result<(), RuntimeError> {
        let path = self.directory.clone();
        let holder = blocking(move || NamespaceHolder::find_or_start(&path), unavailable).await?;
        *self.holder.lock() = holder;
        Ok(())
    }

    fn template(&self, name: &str) -> Result<launch::Template, RuntimeError> {
        if name == BASE {
            return Ok(launch::Template::Base);
        }
        match self.find_template(name)? {
            Some((_, root)) => Ok(launch::Template::Directory(root)),
            None => Err(template_not_found(name)),
        }
    }

    /// Returns a template, and the path of its root filesystem.
    fn find_template(&self, name: &str) -> Result<Option<(ImportedTemplate, PathBuf)>, RuntimeError> {
        self.templates.find(name).map_err(|error| failed("find a template", &error))
    }

    /// Explains why nothing could be started: a machine without isolation has a known reason and solution.
    async fn explain_start_failure(&self, error: &HostError) -> RuntimeError {
        let holder = self.holder();
        match spawn_blocking(move || workspace_host::probe_host(&holder)).await {
            Ok(Ok(HostSupport { namespaces: Err(reason), .. })) => RuntimeError::Isolation(reason),
            _ => failed("start a sandbox", error),
        }
    }

    /// Starts a sandbox with a helper process. The inner result is that of the helper.
    async fn launch(&self, spec: &SandboxSpec<'_>) -> Result<Result<Launched, HostError>, RuntimeError> {
        // Files that an anchor shows belong to the user that all sandboxes share.
        let dedicated_uid = match spec.anchor {
            Some(_) => None,
            None => self.dedicated_uid(spec.id, spec.dir).await?,
        };
        let (holder, agent) = (self.holder(), self.agent.clone());
        let (id, token) = (spec.id.to_owned(), spec.token.to_vec());
        let (workspace, dir) = (spec.workspace.map(Path::to_owned), spec.dir.clone());
        let template = match spec.root {
            Some(root) => launch::Template::Kept(root.to_owned()),
            None => self.template(spec.template)?,
        };
        let limits = spec.limits.clone();
        let egress = spec.egress.cloned();
        let launch = move || {
            launch::launch(&Launch {
                holder: &holder,
                id: &id,
                dedicated_uid,
                agent: &agent,
                template,
                workspace: workspace.as_deref(),
                sockets: &dir.sockets(),
                output: &dir.output(),
                log: &dir.log(),
                process_file: &dir.process(),
                limits,
                egress: egress.as_ref(),
                token: &token,
            })
        };
        spawn_blocking(launch).await.map_err(|error| failed("start a sandbox", &error))
    }
}

/// Returns true if the process that held the namespaces has exited.
fn is_gone(holder: &NamespaceHolder) -> bool {
    matches!(holder, NamespaceHolder::Process(process) if !process.is_running())
}

#[async_trait]
impl Runtime for Embedded {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn mount_holder(&self) -> Result<NamespaceHolder, String> {
        if is_gone(&self.holder()) {
            self.renew_holder().await.map_err(|error| error.to_string())?;
        }
        Ok(self.holder())
    }

    fn file_owner(&self) -> Option<(u32, u32)> {
        launch::shared_sandbox_ids(&self.holder())
    }

    fn kept_root_ids(&self) -> Result<Option<OwnerIds>, String> {
        Ok(launch::root_ids(&self.holder()).map(|(first, count)| OwnerIds { first, count }))
    }

    async fn probe_dedicated_uids(
        &self,
        workspaces: &Path,
        sandboxes: &Path,
        lazy: LazyMount,
    ) -> Result<(), RuntimeError> {
        let (holder, workspaces, sandboxes) = (self.holder(), workspaces.to_owned(), sandboxes.to_owned());
        let probe = move || (dedicated_uids::probe(&holder, &workspaces, lazy), running_users(&sandboxes));
        let probed = spawn_blocking(probe).await;
        let (probe, running) = probed.map_err(|error| failed("probe the host", &error))?;
        for (id, user) in running {
            self.dedicated_uids.record(&id, user);
        }
        match &probe {
            Ok(()) => tracing::info!("enabled dedicated UIDs for sandboxes"),
            Err(reason) => {
                tracing::info!(reason, "sandboxes have no dedicated UIDs; see docs/isolation.md");
            }
        }
        // If this is called again, the first result is kept, because running sandboxes depend on it.
        let _ = self.dedicated_uids_probe.set(probe);
        Ok(())
    }

    async fn dedicated_uid(&self, id: &str, dir: &SandboxDir) -> Result<Option<u32>, RuntimeError> {
        // A running sandbox keeps the UID that it was started with; an earlier server may have assigned none.
        if let Some(process) = recorded_process(dir)?.filter(Process::is_running) {
            return dedicated_uids::uid_of(&process)
                .map_err(|error| failed("read the UID of a sandbox", &error));
        }
        let is_supported = self.dedicated_uids_probe.get().is_some_and(Result::is_ok);
        Ok(is_supported.then(|| self.dedicated_uids.allocate(id)))
    }

    async fn missing_features(&self) -> Result<Vec<String>, RuntimeError> {
        let shared = if self.file_owner().is_none() { SHARED } else { SHARED_BY_ALL };
        let reason = self.dedicated_uids_probe.get().and_then(|probe| probe.as_ref().err());
        let shared = reason.map(|reason| format!("{shared} ({reason})"));
        Ok(self.unmet_requirements().await?.into_iter().chain(missing_egress()).chain(shared).collect())
    }

    async fn unmet_requirements(&self) -> Result<Vec<String>, RuntimeError> {
        let holder = self.holder();
        if is_gone(&holder) {
            // The next sandbox starts another holder. The last result is used until then.
            let unmet = self.unmet.lock().clone();
            if let Some(unmet) = unmet {
                return Ok(unmet);
            }
            self.renew_holder().await?;
        }
        let holder = self.holder();
        let probe = move || workspace_host::probe_host(&holder);
        let capabilities = blocking(probe, |error| failed("probe the host", error)).await?;
        let namespaces =
            capabilities.namespaces.as_ref().err().map(|reason| format!("no namespaces: {reason}"));
        let unmet: Vec<_> =
            namespaces.into_iter().chain(limits::describe_missing(&capabilities.missing())).collect();
        *self.unmet.lock() = Some(unmet.clone());
        Ok(unmet)
    }

    async fn start(&self, spec: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        if spec.egress.is_some() {
            check_egress()?;
        }
        let mut launched = self.launch(spec).await?;
        if matches!(&launched, Err(HostError::Helper(error)) if error.kind != HostErrorKind::Network) {
            // Perhaps the holder was killed: tries again with a new one.
            self.renew_holder().await?;
            launched = self.launch(spec).await?;
        }
        let launched = match launched {
            Ok(launched) => launched,
            Err(error) if error.kind() == HostErrorKind::Network => {
                return Err(RuntimeError::Network(error.to_string()));
            }
            Err(error) => return Err(self.explain_start_failure(&error).await),
        };
        if let Some(anchor) = spec.anchor {
            self.attach_follower(spec.id, spec.dir, anchor).await?;
        }
        Ok(StartResult { not_applied: describe_missing(&launched.missing) })
    }

    fn supports_warm_pool(&self) -> bool {
        true
    }

    fn supports_quotas(&self) -> bool {
        true
    }

    async fn attach(&self, _id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        let process = recorded_process(dir)?
            .ok_or_else(|| failed("attach a workspace", &"the sandbox is not running"))?;
        let (holder, workspace) = (self.holder(), workspace.to_owned());
        let attach = move || workspace_host::attach_workspace(&holder, &process, &workspace);
        blocking(attach, |error| failed("attach a workspace", error)).await
    }

    fn check_following(&self) -> Result<(), String> {
        workspace_host::anchor::check_kernel().map_err(|error| error.to_string())
    }

    async fn attach_follower(&self, _id: &str, dir: &SandboxDir, anchor: &Path) -> Result<(), RuntimeError> {
        let (holder, process, anchor) = (self.holder(), running_process(dir, FOLLOW)?, anchor.to_owned());
        let attach = move || workspace_host::anchor::attach_follower(&holder, &process, &anchor);
        blocking(attach, |error| failed(FOLLOW, error)).await
    }

    async fn is_running(&self, _id: &str, dir: &SandboxDir) -> Result<bool, RuntimeError> {
        Ok(recorded_process(dir)?.is_some_and(|process| process.is_running()))
    }

    async fn not_applied(&self, _id: &str, dir: &SandboxDir) -> Result<Vec<String>, RuntimeError> {
        let missing = launch::unenforced_limits(&dir.process());
        missing
            .map(|missing| describe_missing(&missing))
            .map_err(|error| failed("read the limits that are not enforced", &error))
    }

    async fn wait_for_exit(&self, _id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        let Some(process) = recorded_process(dir)?.and_then(|process| process.pidfd()) else { return Ok(()) };
        wait_for_exit(process).await.map_err(|error| failed("watch a sandbox", &error))
    }

    async fn freeze(&self, id: &str, dir: &SandboxDir) -> Result<Frozen, RuntimeError> {
        let process = running_process(dir, FREEZE)?;
        let (id, record) = (id.to_owned(), dir.freeze_record());
        blocking(move || freeze::freeze(&id, &process, &record), |error| failed(FREEZE, error)).await
    }

    async fn thaw(&self, _id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        let record = dir.freeze_record();
        blocking(move || freeze::thaw(&record), |error| failed("thaw a sandbox", error)).await
    }

    fn has_holder(&self) -> bool {
        matches!(self.holder(), NamespaceHolder::Process(_))
    }

    async fn release_holder(&self) -> Result<(), RuntimeError> {
        let NamespaceHolder::Process(process) = self.holder() else { return Ok(()) };
        process.kill();
        let exited = async {
            while process.is_running() {
                sleep(HOLDER_POLL_INTERVAL).await;
            }
        };
        let still_running = |_| failed("stop the namespace holder", &"the namespace holder did not exit");
        timeout(EXIT_TIMEOUT, exited).await.map_err(still_running)
    }

    fn can_swap_workspace(&self) -> bool {
        true
    }

    async fn workspace_processes(
        &self,
        _id: &str,
        dir: &SandboxDir,
        terminate: Option<(ProcessScope, Duration)>,
    ) -> Result<Vec<WorkspaceProcess>, RuntimeError> {
        let (holder, process, dir) = (self.holder(), running_process(dir, FIND_PROCESSES)?, dir.clone());
        let list = move || container_access::workspace_processes(&holder, &process, &dir, terminate);
        blocking(list, |error| failed(FIND_PROCESSES, error)).await
    }

    async fn deleted_open_bytes(&self, _id: &str, dir: &SandboxDir) -> Result<u64, RuntimeError> {
        let (holder, process) = (self.holder(), running_process(dir, FIND_PROCESSES)?);
        blocking(
            move || container_access::deleted_open_bytes(&holder, &process),
            |error| failed(FIND_PROCESSES, error),
        )
        .await
    }

    async fn swap(&self, _id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        let (holder, process, workspace) = (self.holder(), running_process(dir, SWAP)?, workspace.to_owned());
        let swap = move || workspace_host::swap_workspace(&holder, &process, &workspace);
        blocking(swap, |error| failed(SWAP, error)).await
    }

    async fn settle_swap(&self, _id: &str, dir: &SandboxDir, workspace: &Path) -> Result<bool, RuntimeError> {
        let (holder, process, workspace) = (self.holder(), running_process(dir, SWAP)?, workspace.to_owned());
        let settle = move || workspace_host::settle_workspace_swap(&holder, &process, &workspace);
        blocking(settle, |error| failed(SWAP, error)).await
    }

    async fn kill(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        let process = recorded_process(dir)?;
        let killing = async {
            loop {
                if let Some(process) = &process {
                    process.kill();
                }
                // A frozen process may not exit before it is thawed. Removing its cgroups thaws it, too.
                if self.thaw(id, dir).await.is_err() {
                    remove_cgroups(id).await?;
                }
                if let Ok(exited) = timeout(KILL_RETRY_INTERVAL, self.wait_for_exit(id, dir)).await {
                    return exited;
                }
            }
        };
        let late = format!("its processes did not exit within {} s", EXIT_TIMEOUT.as_secs());
        timeout(EXIT_TIMEOUT, killing).await.map_err(|_| failed("kill a sandbox", &late))??;
        self.dedicated_uids.release(id);
        remove_cgroups(id).await
    }

    async fn usage(&self, id: &str, dir: &SandboxDir) -> Result<ResourceUsage, RuntimeError> {
        let (id, process) = (id.to_owned(), dir.process());
        let measure = move || {
            let usage = cgroup::usage(&id)?;
            let network = Process::read(&process)?.and_then(|process| traffic(&process));
            Ok::<_, HostError>(ResourceUsage { network, ..usage })
        };
        blocking(measure, |error| failed("measure the resource usage of a sandbox", error)).await
    }

    /// Returns no ids: a sandbox always has a directory, which is made first and removed last.
    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn templates(&self) -> Result<Vec<Template>, RuntimeError> {
        list_templates(&self.templates).map_err(|error| failed("list templates", &error))
    }

    async fn variables(&self, template: &str) -> Result<BTreeMap<String, String>, RuntimeError> {
        Ok(self.find_template(template)?.map(|(template, _)| template.envs).unwrap_or_default())
    }

    fn imported_templates(&self) -> Option<&Templates> {
        Some(&self.templates)
    }
}

async fn remove_cgroups(id: &str) -> Result<(), RuntimeError> {
    let id = id.to_owned();
    blocking(move || cgroup::remove(&id), |error| failed("remove the cgroups of a sandbox", error)).await
}

/// Formats limits that are not applied, for people.
fn describe_missing(missing: &[UnenforcedLimit]) -> Vec<String> {
    limits::describe_missing(missing).into_iter().collect()
}

/// Lists the dedicated UIDs of running sandboxes, each with the id of its sandbox.
fn running_users(sandboxes: &Path) -> Vec<(String, u32)> {
    let directories = std::fs::read_dir(sandboxes).into_iter().flatten().flatten();
    let user = |dir: std::fs::DirEntry| {
        let process = Process::read(&SandboxDir::new(dir.path()).process()).ok()??;
        Some((dir.file_name().into_string().ok()?, dedicated_uids::uid_of(&process).ok().flatten()?))
    };
    directories.filter_map(user).collect()
}

/// Returns the first process of a sandbox, which may have ended; `None` if none was started.
fn recorded_process(dir: &SandboxDir) -> Result<Option<Process>, RuntimeError> {
    Process::read(&dir.process()).map_err(|error| failed("read the recorded process of a sandbox", &error))
}

/// Returns the first process of a sandbox, for an action on it.
fn running_process(dir: &SandboxDir, action: &'static str) -> Result<Process, RuntimeError> {
    let process = recorded_process(dir)?.filter(Process::is_running);
    process.ok_or_else(|| failed(action, &"the sandbox is not running"))
}

fn unavailable(error: &dyn std::fmt::Display) -> RuntimeError {
    RuntimeError::Unavailable { runtime: NAME, reason: error.to_string() }
}

fn failed(action: &'static str, error: &dyn std::fmt::Display) -> RuntimeError {
    RuntimeError::Failed { runtime: NAME, action, reason: error.to_string() }
}
