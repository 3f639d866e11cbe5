//! Commands of a build, each in a sandbox of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use workspace_state::{Cancel, Durability, Expect, NewSnapshot, Snapshot};

use super::progress::Reports;
use crate::command::command_line::CommandLine;
use crate::command::output::{Output, OutputPiece};
use crate::command::run::RunRequest;
use crate::command::running::CommandExit;
use crate::config::{NewSandbox, ResourceRequest};
use crate::error::{Result, SandboxError};
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::create::Creator;
use crate::lifecycle::remove::ReclaimPolicy;
use crate::lineage::Lineage;
use crate::runtime::Network;
use crate::scope::Scope;
use crate::service::Service;

/// Name of the label that sandboxes of builds have. Its value is the name of the template.
const LABEL: &str = "template-build";
/// Bytes of output that are read at once.
const OUTPUT_BATCH: usize = 64 << 10;
/// Time that a sandbox has in addition to the time limit of its build.
const LIFETIME_MARGIN: Duration = Duration::from_secs(60);
/// User of steps. A root filesystem that is being made may have no names of users yet.
const ROOT_UID: &str = "0";
/// Programs that need a network, by which a failed command gets a hint.
const NETWORK_PROGRAMS: [&str; 8] = ["apt", "apk", "pip", "npm", "curl", "wget", "git clone", "cargo"];

/// Command of a step.
#[derive(Debug, Clone)]
pub(super) struct StepCommand<'a> {
    /// Command for a shell.
    pub(super) command: &'a str,
    /// Working directory; `None` for `/workspace`.
    pub(super) workdir: Option<&'a str>,
    /// Sandbox to run it in: root filesystem, environment variables and network.
    pub(super) sandbox: NewSandbox,
    /// User who runs it.
    pub(super) user: StepUser,
    /// Name of the reference to the snapshot that is made after it.
    pub(super) reference: &'a str,
}

/// User who runs the command of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepUser {
    /// Root, or the only user on a server that does not run as root.
    Root,
    /// User of the sandbox.
    Sandbox,
}

/// Outcome of a command.
pub(super) enum Outcome {
    /// It exited with code 0. The snapshot has the files.
    Done(Snapshot),
    /// It failed: message, and exit code if it ran.
    Failed(String, Option<i32>),
}

impl Service {
    /// Returns parameters that are the same for all sandboxes of a build. `created_by` is the name of the key that
    /// requested the build.
    pub(super) fn build_sandbox(&self, template: &str, created_by: Option<String>) -> NewSandbox {
        let settings = &self.0.settings;
        let max = &settings.max_resources;
        NewSandbox {
            timeout: Some((settings.build_timeout + LIFETIME_MARGIN).min(settings.max_lifetime)),
            resources: ResourceRequest {
                cpu_millis: Some(max.cpu_millis),
                memory: Some(max.memory),
                disk: Some(max.disk),
                processes: Some(max.processes),
            },
            labels: BTreeMap::from([(LABEL.to_owned(), template.to_owned())]),
            lineage: Lineage { created_by, ..Lineage::default() },
            // The next server removes it, if this one is stopped.
            template_build: true,
            ..NewSandbox::default()
        }
    }

    /// Runs the command of a step, and commits the files after it. The sandbox is removed in every case.
    pub(super) async fn run_step(
        &self,
        creator: &Creator,
        step: StepCommand<'_>,
        reports: &mut Reports,
        cancel: &Cancel,
    ) -> Result<Outcome> {
        let info = self.create_cancellable(cancel, creator.clone(), step.sandbox.clone()).await?;
        let id = info.sandbox.id.as_str();
        let outcome = self.run_and_commit(id, &step, reports, cancel).await;
        if let Err(error) = self.remove(&Scope::All, id, ReclaimPolicy::Delete).await {
            // The removal may be retried in the background; otherwise the next server does it
            // (`end_interrupted_builds`).
            tracing::warn!(sandbox = id, %error, "failed to remove the sandbox of a template build");
        }
        outcome
    }

    async fn run_and_commit(
        &self,
        id: &str,
        step: &StepCommand<'_>,
        reports: &mut Reports,
        cancel: &Cancel,
    ) -> Result<Outcome> {
        let request = RunRequest {
            command: CommandLine::Shell(step.command.to_owned()),
            cwd: step.workdir.map(str::to_owned),
            // Zero for no timeout: the time limit of the build applies.
            timeout: Some(Duration::ZERO),
            // The command waits for `follow`, so that no output is dropped.
            block_on_unread_output: true,
            user: (step.user == StepUser::Root && self.can_run_as_root(id)?).then(|| ROOT_UID.to_owned()),
            ..RunRequest::default()
        };
        let command = or_cancelled(cancel, self.run(&Scope::All, id, request)).await??;
        let exit = follow(command.output(0).await?, reports, cancel).await?;
        if let Some(reason) = exit.failure_reason {
            return Ok(Outcome::Failed(reason, None));
        }
        if exit.exit_code != 0 {
            let message = exit_message(exit.exit_code, step.command, &step.sandbox.network);
            return Ok(Outcome::Failed(message, Some(exit.exit_code)));
        }
        self.commit_step(id, step.reference, cancel).await.map(Outcome::Done)
    }

    /// Returns true if commands of a sandbox can run as root.
    fn can_run_as_root(&self, id: &str) -> Result<bool> {
        let handle = self.handle(id).ok_or_else(|| SandboxError::NotFound { id: id.to_owned() })?;
        Ok(handle.guest.stream()?.capabilities.switches_users)
    }

    async fn commit_step(&self, id: &str, reference: &str, cancel: &Cancel) -> Result<Snapshot> {
        let operation = self.lock_operation(id, cancel).await?;
        let sandbox = self.read_row(id).await?;
        let access = self.exclusive_access(id, &operation, cancel).await?;
        let new = NewSnapshot {
            author: sandbox.owner.clone(),
            references: vec![(reference.to_owned(), Expect::Absent)],
            durability: Durability::Synced,
            ..NewSnapshot::with_message("step of a template build")
        };
        let commit = self.commit_workspace(id, new, cancel);
        // The sandbox is removed next, so it does not matter whether it continues.
        let (committed, _) = self.while_frozen(&sandbox, &access, commit).await?;
        Ok(committed.snapshot)
    }
}

/// Reports the output of a command until it exits.
async fn follow(mut output: Output, reports: &mut Reports, cancel: &Cancel) -> Result<CommandExit> {
    output.set_batch_size(OUTPUT_BATCH);
    loop {
        // If the output ends before the exit, the service was closed.
        let pieces = or_cancelled(cancel, output.next()).await??.ok_or(SandboxError::Cancelled)?;
        for piece in pieces {
            match piece {
                OutputPiece::Data { stream, data, .. } => reports.output(stream, data).await?,
                OutputPiece::Gap { from, to } => {
                    reports.note(&format!("{} bytes of output were lost", to - from)).await?;
                }
                OutputPiece::Exit(exit) => return Ok(exit),
            }
        }
    }
}

fn exit_message(code: i32, command: &str, network: &Network) -> String {
    let needs_network = NETWORK_PROGRAMS.iter().any(|program| command.contains(program));
    let hint = match network {
        Network::None if needs_network => {
            "; the recipe has no network: if the command needs it, add `network = \"egress\"`"
        }
        _ => "",
    };
    format!("its command exited with code {code}{hint}")
}
