//! The oci runtime: any program that runs OCI bundles from the command line, such as `runc`, `crun` or
//! `runsc`.
//!
//! A sandbox's bundle is in its directory; the state of the program is in a directory of this server, so
//! sandboxes are found again through the program.

mod bundle;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;
use workspace_host::NamespaceHolder;
use workspace_host::limits::reset_open_files_limit;
use workspace_host::{Process, cgroup, freeze};

use super::actions::{FIND_PROCESSES, NO_MOUNT_ACCESS, SWAP};
use super::built_in_templates::{BASE, list_templates, template_not_found};
use super::container_access::{self, Container, local_process};
use super::egress::{HandoverError, check_egress, hand_over, missing_egress};
use super::guest::{User, is_safe_name};
use super::process_end::wait_for_exit;
use super::{
    Frozen, ProcessScope, ResourceUsage, Runtime, RuntimeError, SandboxSpec, StartResult, Template,
    WorkspaceProcess, blocking, pause_record,
};
use crate::guest::handover::Handover;
use crate::sandbox_dir::SandboxDir;
use crate::template::{ImportedTemplate, Templates};

const NAME: &str = "oci";
const FREEZE: &str = "freeze a sandbox";
const THAW: &str = "thaw a sandbox";
const STATE: &str = "read the state of a sandbox";
/// Timeout for the program, and for a started guest agent to connect to the socket on which it gets its token.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs sandboxes with an OCI runtime.
#[derive(Debug)]
pub struct Oci {
    /// Path of the runtime's program.
    program: String,
    /// Directory of the program's state.
    state: PathBuf,
    /// Path of the guest agent's program.
    agent: PathBuf,
    templates: Templates,
}

/// State of a sandbox as the program reports it.
#[derive(Debug, Deserialize)]
struct State {
    status: String,
    #[serde(default)]
    pid: i32,
}

impl Oci {
    /// Starts the runtime with `program`, which is looked up in `PATH` and keeps its state in `directory`.
    pub async fn start(
        program: &str,
        directory: &Path,
        agent: &Path,
        templates: &Path,
    ) -> Result<Self, RuntimeError> {
        let unavailable = |reason: String| RuntimeError::Unavailable { runtime: NAME, reason };
        if !agent.is_file() {
            return Err(unavailable(format!("the guest agent {} does not exist", agent.display())));
        }
        if !geteuid().is_root() {
            let reason = "only root can run containers with limits; use the embedded runtime";
            return Err(unavailable(reason.to_owned()));
        }
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| unavailable(error.to_string()));
        let oci = Self {
            program: program.to_owned(),
            state: absolute(directory)?,
            agent: absolute(agent)?,
            templates: Templates::new(absolute(templates)?),
        };
        oci.templates
            .remove_leftovers()
            .map_err(|error| oci.failed("remove unfinished templates", &error))?;
        std::fs::create_dir_all(&oci.state)
            .map_err(|error| unavailable(format!("{} cannot be created: {error}", oci.state.display())))?;
        match oci.run_program(&["--version"]).await {
            Ok(Ok(version)) => {
                let version = version.lines().next().unwrap_or_default().to_owned();
                tracing::info!(program, version, "using an OCI runtime");
                Ok(oci)
            }
            Ok(Err(reason)) => Err(unavailable(format!("`{program} --version` failed: {reason}"))),
            Err(error) => Err(unavailable(format!("{error}; install `{program}`, or set OCI_RUNTIME"))),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(&self.state).args(arguments);
        command.env_clear().env("PATH", search_path()).stdin(Stdio::null()).kill_on_drop(true);
        reset_open_files_limit(command.as_std_mut());
        command
    }

    /// Runs the program. The inner result is its output, or its error message if it failed; the outer error means that
    /// it could not be run, or timed out.
    async fn run_program(&self, arguments: &[&str]) -> Result<Result<String, String>, RuntimeError> {
        let output = timeout(PROGRAM_TIMEOUT, self.command(arguments).output()).await;
        let output = output.map_err(|_| self.failed("be run", &"it timed out"))?;
        let output = output.map_err(|error| self.failed("be run", &error))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
    }

    fn failed(&self, action: &'static str, error: &dyn std::fmt::Display) -> RuntimeError {
        failed(&self.program, action, error)
    }

    /// Returns the state of a sandbox; `None` if the program does not have it.
    async fn state(&self, id: &str) -> Result<Option<State>, RuntimeError> {
        if !is_safe_name(id) {
            return Ok(None);
        }
        match self.run_program(&["state", id]).await? {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| self.failed(STATE, &error)),
            Err(message) if self.has_state(id)? => Err(self.failed(STATE, &message)),
            Err(_) => Ok(None),
        }
    }

    /// Returns true if the program has stored the state of a sandbox. Programs fail alike for an unknown
    /// sandbox and for other reasons, and differ in their messages.
    fn has_state(&self, id: &str) -> Result<bool, RuntimeError> {
        for file in state_files(id) {
            if self.state.join(file).try_exists().map_err(|error| self.failed(STATE, &error))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns a pidfd of the first process, if it runs.
    async fn pidfd(&self, id: &str) -> Result<Option<OwnedFd>, RuntimeError> {
        let Some(pid) = self.running_pid(id).await? else { return Ok(None) };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(None) };
        // Checks the PID again, because it may have been reused before it was opened.
        Ok((self.running_pid(id).await? == Some(pid)).then_some(process))
    }

    async fn running_pid(&self, id: &str) -> Result<Option<Pid>, RuntimeError> {
        let state = self.state(id).await?;
        let running = state.filter(|state| matches!(state.status.as_str(), "running" | "paused"));
        Ok(running.and_then(|state| Pid::from_raw(state.pid)))
    }

    /// Returns the first process of a sandbox, for an action on it.
    async fn first_process(
        &self,
        id: &str,
        dir: &SandboxDir,
        action: &'static str,
    ) -> Result<Process, RuntimeError> {
        let not_running = || self.failed(action, &"the sandbox is not running");
        let pid = self.running_pid(id).await?.ok_or_else(not_running)?;
        let process = local_process(pid.as_raw_nonzero().get(), dir);
        let process = process.map_err(|error| self.failed(action, &error))?;
        process.ok_or_else(|| self.failed(action, &NO_MOUNT_ACCESS))
    }

    /// Returns the container of a running sandbox, for an action on it.
    async fn container(
        &self,
        id: &str,
        dir: &SandboxDir,
        action: &'static str,
    ) -> Result<Container, RuntimeError> {
        let (process, program) = (self.first_process(id, dir, action).await?, self.program.clone());
        Ok(Container::new(process, dir, Box::new(move |action, error| failed(&program, action, error))))
    }

    /// Pauses a sandbox with the program.
    async fn pause(&self, id: &str, dir: &SandboxDir) -> Result<Frozen, RuntimeError> {
        pause_record::write(dir).map_err(|error| self.failed(FREEZE, &error))?;
        let paused = self.run_program(&["pause", id]).await;
        let paused = paused.and_then(|output| output.map_err(|message| self.failed(FREEZE, &message)));
        if let Err(error) = paused {
            self.resume(id, dir).await?;
            return Err(error);
        }
        Ok(Frozen { method: freeze::FreezeMethod::Cgroup, processes: None })
    }

    /// Resumes a sandbox with the program, if it is paused.
    async fn resume(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        let state = self.state(id).await?;
        if state.is_some_and(|state| state.status == "paused") {
            let resumed = self.run_program(&["resume", id]).await?;
            resumed.map_err(|message| self.failed(THAW, &message))?;
        }
        pause_record::remove(dir).map_err(|error| self.failed(THAW, &error))
    }

    async fn run(&self, spec: &SandboxSpec<'_>) -> Result<(), RuntimeError> {
        let start_error = |error: std::io::Error| self.failed("start a sandbox", &error);
        let bundle = self.bundle(spec)?;
        let log = File::options().create(true).append(true).open(spec.dir.log()).map_err(start_error)?;
        let stderr = log.try_clone().map_err(start_error)?;
        let mut command = self.command(&["run", "--detach", "--bundle"]);
        command.arg(&bundle).arg(spec.id).stdout(log).stderr(stderr);
        let handover = Handover::open(spec.dir).map_err(start_error)?;
        let run = timeout(PROGRAM_TIMEOUT, command.status()).await;
        let run = run.map_err(|_| self.failed("start a sandbox", &"it timed out"))?.map_err(start_error)?;
        if !run.success() {
            return Err(self.failed("start a sandbox", &spec.dir.log_tail()));
        }
        let reason = tokio::select! {
            sent = timeout(PROGRAM_TIMEOUT, hand_over(handover, spec.token, spec.egress.cloned())) => match sent {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(HandoverError::Network(error))) => return Err(error),
                Ok(Err(HandoverError::Io(error))) => error.to_string(),
                Err(_) => format!("the guest agent did not connect within {} s", PROGRAM_TIMEOUT.as_secs()),
            },
            exited = self.wait_for_exit(spec.id, spec.dir) => {
                exited?;
                format!("the guest agent exited immediately: {}", spec.dir.log_tail())
            }
        };
        Err(self.failed("start the guest agent", &reason))
    }

    /// Refuses programs whose sandboxes do not use the kernel's network: the policy would not apply to them.
    fn check_network(&self) -> Result<(), RuntimeError> {
        let name = Path::new(&self.program).file_name().unwrap_or_default().to_string_lossy();
        if !["runsc", "kata"].iter().any(|other| name.starts_with(other)) {
            return Ok(());
        }
        let reason =
            format!("sandboxes of `{name}` have their own network stack and no egress; use runc for egress");
        Err(RuntimeError::Network(reason))
    }

    fn bundle(&self, spec: &SandboxSpec<'_>) -> Result<PathBuf, RuntimeError> {
        let template = self.template(spec.template)?;
        let user = User::of_sandboxes();
        user.take_ownership(spec)
            .map_err(|error| self.failed("change the owner of the directories of a sandbox", &error))?;
        let bundle = bundle::Bundle { guest_agent: &self.agent, template: template.as_deref(), user };
        bundle.write(spec).map_err(|error| self.failed("write a bundle", &error))
    }

    /// Returns the directory of a template; `None` for `base`.
    fn template(&self, name: &str) -> Result<Option<PathBuf>, RuntimeError> {
        if name == BASE {
            return Ok(None);
        }
        match self.find_template(name)? {
            Some((_, root)) => Ok(Some(root)),
            None => Err(template_not_found(name)),
        }
    }

    /// Returns a template, and the path of its root filesystem.
    fn find_template(&self, name: &str) -> Result<Option<(ImportedTemplate, PathBuf)>, RuntimeError> {
        self.templates.find(name).map_err(|error| self.failed("find a template", &error))
    }
}

#[async_trait]
impl Runtime for Oci {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns the namespaces of the host: the program sees all mounts there. If anything else is missing,
    /// the start of a sandbox fails.
    async fn mount_holder(&self) -> Result<NamespaceHolder, String> {
        Ok(NamespaceHolder::None)
    }

    fn file_owner(&self) -> Option<(u32, u32)> {
        let User { uid, gid } = User::of_sandboxes();
        Some((uid, gid))
    }

    async fn missing_features(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(missing_egress().into_iter().collect())
    }

    async fn unmet_requirements(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn start(&self, spec: &SandboxSpec<'_>) -> Result<StartResult, RuntimeError> {
        if spec.egress.is_some() {
            check_egress()?;
            self.check_network()?;
        }
        self.run(spec).await?;
        Ok(StartResult::default())
    }

    async fn is_running(&self, id: &str, _dir: &SandboxDir) -> Result<bool, RuntimeError> {
        Ok(self.running_pid(id).await?.is_some())
    }

    async fn wait_for_exit(&self, id: &str, _dir: &SandboxDir) -> Result<(), RuntimeError> {
        let Some(process) = self.pidfd(id).await? else { return Ok(()) };
        wait_for_exit(process).await.map_err(|error| self.failed("watch a sandbox", &error))
    }

    async fn freeze(&self, id: &str, dir: &SandboxDir) -> Result<Frozen, RuntimeError> {
        // Sandboxes of some programs have no process on the host; the program stops them itself.
        let Ok(process) = self.first_process(id, dir, FREEZE).await else { return self.pause(id, dir).await };
        let (group, record) = (id.to_owned(), dir.freeze_record());
        let freeze = move || freeze::freeze_cgroup(&group, &process, &record);
        match blocking(freeze, |error| self.failed(FREEZE, error)).await? {
            Some(frozen) => Ok(frozen),
            None => self.pause(id, dir).await,
        }
    }

    async fn thaw(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        if pause_record::exists(dir).map_err(|error| self.failed(THAW, &error))? {
            return self.resume(id, dir).await;
        }
        let record = dir.freeze_record();
        blocking(move || freeze::thaw(&record), |error| self.failed(THAW, error)).await
    }

    fn can_swap_workspace(&self) -> bool {
        container_access::can_enter()
    }

    async fn workspace_processes(
        &self,
        id: &str,
        dir: &SandboxDir,
        terminate: Option<(ProcessScope, Duration)>,
    ) -> Result<Vec<WorkspaceProcess>, RuntimeError> {
        self.container(id, dir, FIND_PROCESSES).await?.workspace_processes(terminate).await
    }

    async fn deleted_open_bytes(&self, id: &str, dir: &SandboxDir) -> Result<u64, RuntimeError> {
        self.container(id, dir, FIND_PROCESSES).await?.deleted_open_bytes().await
    }

    async fn swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<(), RuntimeError> {
        self.container(id, dir, SWAP).await?.swap(workspace).await
    }

    async fn settle_swap(&self, id: &str, dir: &SandboxDir, workspace: &Path) -> Result<bool, RuntimeError> {
        self.container(id, dir, SWAP).await?.settle_swap(workspace).await
    }

    async fn kill(&self, id: &str, dir: &SandboxDir) -> Result<(), RuntimeError> {
        if !is_safe_name(id) {
            return Ok(());
        }
        let process = self.pidfd(id).await?;
        if let Some(process) = process.as_ref().filter(|_| dir.freeze_record().exists()) {
            // A frozen process may not exit before it is thawed. An error means that it has exited already.
            let _ = pidfd_send_signal(process, Signal::KILL);
            self.thaw(id, dir).await?;
        }
        // Also without a state: a start that was interrupted leaves files of the program.
        if let Err(message) = self.run_program(&["delete", "--force", id]).await?
            && self.has_state(id)?
        {
            return Err(self.failed("remove a sandbox", &message));
        }
        if let Some(process) = process {
            let exited = timeout(PROGRAM_TIMEOUT, wait_for_exit(process)).await;
            let exited =
                exited.map_err(|_| self.failed("remove a sandbox", &"its processes did not exit"))?;
            exited.map_err(|error| self.failed("watch a sandbox", &error))?;
        }
        let bundle = bundle::bundle_path(dir);
        crate::sandbox_dir::remove_tree(&bundle).map_err(|error| self.failed("remove a bundle", &error))
    }

    /// Does not measure the network: the PID of a container is only known to the program.
    async fn usage(&self, id: &str, _dir: &SandboxDir) -> Result<ResourceUsage, RuntimeError> {
        let id = id.to_owned();
        blocking(
            move || cgroup::usage(&id),
            |error| self.failed("measure the resource usage of a sandbox", error),
        )
        .await
    }

    async fn known_ids(&self) -> Result<Vec<String>, RuntimeError> {
        let listed = self.run_program(&["list", "--quiet"]).await?;
        let listed = listed.map_err(|message| self.failed("list sandboxes", &message))?;
        Ok(listed.lines().map(|line| line.trim().to_owned()).filter(|id| is_safe_name(id)).collect())
    }

    async fn templates(&self) -> Result<Vec<Template>, RuntimeError> {
        list_templates(&self.templates).map_err(|error| self.failed("list templates", &error))
    }

    async fn variables(&self, template: &str) -> Result<BTreeMap<String, String>, RuntimeError> {
        Ok(self.find_template(template)?.map(|(template, _)| template.envs).unwrap_or_default())
    }

    fn imported_templates(&self) -> Option<&Templates> {
        Some(&self.templates)
    }
}

/// Returns the files, below the directory of a program's state, of which one exists for each of its sandboxes: that
/// of `runc`, of `crun` and of `runsc`.
fn state_files(id: &str) -> [String; 3] {
    [format!("{id}/state.json"), format!("{id}/status"), format!("{id}_sandbox:{id}.state")]
}

fn failed(program: &str, action: &'static str, error: &dyn std::fmt::Display) -> RuntimeError {
    RuntimeError::Failed { runtime: NAME, action, reason: format!("{program}: {error}") }
}

/// Returns `PATH` of the program: that of the server and the `sbin` directories, which often only root's has.
fn search_path() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    path
}
