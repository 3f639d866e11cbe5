//! Memory of transfers, which is limited for each owner.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::collections::HashMap;
use std::sync::Arc;

use libtest_mimic::Trial;
use parking_lot::Mutex;
use rustix::process::{Signal, kill_process};
use tokio::sync::Semaphore;
use workspace_sandbox::{
    Bytes, Creator, FileRead, MemoryGuard, SandboxError, SandboxInfo, Scope, Service, TransferMemory,
};

use crate::files::{new_file, noise, path, worker};
use crate::home::{FOLLOW, TO_THE_END, TestHome, alice, base, create, creator, sh, wait_until};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![stalled_transfers_of_an_owner_use_bounded_memory, queued_bytes_count_until_the_sandbox_has_them]
}

/// Budget of 8 MiB for each owner: four transfers.
#[derive(Debug, Default)]
struct Budget(Mutex<HashMap<String, Arc<Semaphore>>>);

impl Budget {
    fn semaphore(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.0.lock();
        owners.entry(owner.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(8 << 20))).clone()
    }

    fn used(&self, owner: &str) -> usize {
        (8 << 20) - self.semaphore(owner).available_permits()
    }
}

impl TransferMemory for Budget {
    fn reserve_transfer(&self, owner: &str, bytes: usize) -> Option<MemoryGuard> {
        let permit = self.semaphore(owner).try_acquire_many_owned(u32::try_from(bytes).unwrap());
        permit.ok().map(|permit| -> MemoryGuard { Box::new(permit) })
    }
}

async fn start(home: &TestHome) -> (Service, Arc<Budget>) {
    let budget = Arc::new(Budget::default());
    let memory = budget.clone();
    (home.start_with(|settings| settings.transfer_memory = Some(memory)).await, budget)
}

async fn begin_read(service: &Service, scope: &Scope, info: &SandboxInfo) -> Result<FileRead, SandboxError> {
    service.read_file(scope, &info.sandbox.id, &path("/workspace/large"), 0, TO_THE_END).await
}

async fn stalled_transfers_of_an_owner_use_bounded_memory(home: &TestHome) {
    let (service, budget) = start(home).await;
    let bob = Scope::Owner("bob".to_owned());
    let of_bob = service.create(Creator { owner: "bob".to_owned(), ..creator() }, base()).await.unwrap();
    let (first, second) = (create(&service).await, create(&service).await);
    for info in [&first, &second] {
        sh(&service, info, "head -c 8000000 /dev/zero > large").await;
    }
    let content = Bytes::from(vec![0; 8_000_000]);
    service.write_file(&bob, &of_bob.sandbox.id, &new_file("/workspace/large"), content).await.unwrap();
    let mut stalled = Vec::new();
    for info in [&first, &second, &first, &second] {
        stalled.push(begin_read(&service, &alice(), info).await.unwrap());
    }
    for info in [&first, &second] {
        let refused = begin_read(&service, &alice(), info).await.unwrap_err();
        assert!(matches!(refused, SandboxError::TransferMemory), "{refused}");
        let port = service.connect_port(&alice(), &info.sandbox.id, 1).await.unwrap_err();
        assert!(matches!(port, SandboxError::TransferMemory), "{port}");
    }
    // Requests without a transfer, and other owners, are served.
    service.stat_file(&alice(), &first.sandbox.id, &path("/workspace/large"), FOLLOW).await.unwrap();
    begin_read(&service, &bob, &of_bob).await.unwrap();
    stalled.pop();
    let mut read = begin_read(&service, &alice(), &first).await.unwrap();
    let mut len = 0;
    while let Some(piece) = read.next().await.unwrap() {
        len += piece.len();
    }
    assert_eq!(len, 8_000_000);
    drop((read, stalled));
    assert_eq!((budget.used("alice"), budget.used("bob")), (0, 0));
}

/// The sandbox is stopped, so that nothing leaves the queue to it.
async fn queued_bytes_count_until_the_sandbox_has_them(home: &TestHome) {
    let (service, budget) = start(home).await;
    let info = create(&service).await;
    let (id, file) = (info.sandbox.id.as_str(), new_file("/workspace/file"));
    service.write_file(&alice(), id, &file, Bytes::from_static(b"old")).await.unwrap();
    let worker = worker(home, &info).await;
    kill_process(worker, Signal::STOP).unwrap();
    // More than the connection to the worker accepts, and fewer messages than the queue holds.
    let writing: Vec<_> = (0..40)
        .map(|_| {
            let (service, id, file) = (service.clone(), id.to_owned(), file.clone());
            tokio::spawn(
                async move { service.write_file(&alice(), &id, &file, Bytes::from(noise(60_000))).await },
            )
        })
        .collect();
    // The first ones leave the queue: the connection accepts them. Fewer would all fit into it.
    wait_until("they are queued", async || budget.used("alice") > 1_500_000).await;
    for one in &writing {
        one.abort();
    }
    for one in writing {
        assert!(one.await.unwrap_err().is_cancelled());
    }
    // Nobody waits for them any more, but the queue has them.
    let queued = budget.used("alice");
    assert!(queued > 0, "they count until they are sent");
    kill_process(worker, Signal::CONT).unwrap();
    wait_until("they were sent", async || budget.used("alice") == 0).await;
    // The worker may still write what it received, to files with other names.
    wait_until("only the file is left", async || sh(&service, &info, "ls -A").await.stdout == "file\n").await;
    let size = sh(&service, &info, "wc -c < file").await.stdout;
    assert!(["3\n", "60000\n"].contains(&size.as_str()), "{size}");
}
