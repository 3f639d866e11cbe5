//! Commands that must not outlive the request that started them.

use workspace_sandbox::{CommandHandle, Scope, Service};

const SIGKILL: i32 = 9;

/// Guard that kills a command when it is dropped, which happens when the client disconnects.
pub(crate) struct KillOnDrop {
    service: Service,
    scope: Scope,
    sandbox: String,
    command: String,
    armed: bool,
}

impl KillOnDrop {
    pub(crate) fn new(service: &Service, scope: Scope, sandbox: String, command: &CommandHandle) -> Self {
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
            drop(service.kill(&scope, &sandbox, &command, SIGKILL).await);
        });
    }
}
