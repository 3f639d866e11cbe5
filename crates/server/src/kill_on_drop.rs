//! Commands that must not outlive the request that started them.

use rustix::process::Signal;
use tokio::sync::oneshot;
use workspace_catalog::IdempotencyClaim;
use workspace_sandbox::{CommandHandle, CommandStart, RunRequest, Scope, Service};

use crate::error::ApiError;

/// Starts a command that must not outlive its request. It is also killed if the request is dropped while it starts.
/// With the `claim` of an idempotency key, the command of an earlier request with the key is returned instead.
pub(crate) async fn start(
    service: &Service,
    scope: &Scope,
    sandbox: &str,
    run: RunRequest,
    claim: Option<IdempotencyClaim>,
) -> Result<(CommandStart, KillOnDrop), ApiError> {
    let (sender, receiver) = oneshot::channel();
    let (service, scope, sandbox) = (service.clone(), scope.clone(), sandbox.to_owned());
    tokio::spawn(async move {
        let started = service.run_once(&scope, &sandbox, run, claim).await;
        let guarded = started.map(|start| {
            let guard = KillOnDrop::new(&service, scope, sandbox, start.command());
            (start, guard)
        });
        // Nobody waits if the request was dropped; dropping the guard kills the command.
        drop(sender.send(guarded));
    });
    let started = receiver.await.map_err(|_| ApiError::internal("the start of a command panicked"))?;
    Ok(started?)
}

/// Guard that kills a command when it is dropped, which happens when the client disconnects.
pub(crate) struct KillOnDrop {
    service: Service,
    scope: Scope,
    sandbox: String,
    command: String,
    /// False after [`KillOnDrop::disarm`].
    armed: bool,
}

impl KillOnDrop {
    fn new(service: &Service, scope: Scope, sandbox: String, command: &CommandHandle) -> Self {
        Self { service: service.clone(), scope, sandbox, command: command.id.clone(), armed: true }
    }

    /// Lets the command, or processes that it has left, run on.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (service, scope) = (self.service.clone(), self.scope.clone());
        let (sandbox, command) = (std::mem::take(&mut self.sandbox), std::mem::take(&mut self.command));
        tokio::spawn(async move {
            // An error means that the command has already ended.
            drop(service.kill(&scope, &sandbox, &command, Signal::KILL.as_raw()).await);
        });
    }
}
