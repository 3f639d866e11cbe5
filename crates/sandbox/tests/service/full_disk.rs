//! Freeing space when the disk of the workspaces is nearly full.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service.

use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::State;
use workspace_sandbox::{Creator, NewCommit, SandboxInfo, Scope, Service};

use crate::home::{TestHome, base, creator, request, wait_until};
use crate::snapshots::small_disk;
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        owner_with_the_largest_usage_is_stopped_on_a_full_disk,
        sandbox_stopped_for_the_disk_is_removed_after_a_while,
    ]
}

fn scope(owner: &str) -> Scope {
    Scope::Owner(owner.to_owned())
}

/// Creates a sandbox with a file of so many MiB in its workspace.
async fn create_filled(service: &Service, owner: &str, megabytes: u64) -> SandboxInfo {
    let info = service.create(Creator { owner: owner.to_owned(), ..creator() }, base()).await.unwrap();
    let (scope, id) = (scope(owner), info.sandbox.id.as_str());
    service.run(&scope, id, request(&format!("fallocate -l {megabytes}m held"))).await.unwrap();
    wait_until("it is written", async || {
        service.stats(&scope, id).await.is_ok_and(|stats| stats.disk >= megabytes << 20)
    })
    .await;
    info
}

/// Two sandboxes of the owner with the largest usage of a disk of 200 MiB, with a reserve of 20 MiB, and one
/// of another owner who wrote last.
struct TwoOwners {
    of_first_owner: [SandboxInfo; 2],
    /// Sandbox of the other owner.
    last: SandboxInfo,
}

impl TwoOwners {
    async fn new(service: &Service) -> Self {
        let of_first_owner =
            [create_filled(service, "alice", 70).await, create_filled(service, "alice", 30).await];
        Self { of_first_owner, last: create_filled(service, "bob", 85).await }
    }

    /// Waits until a sandbox of the first owner is in this state, or removed if it is `None`, and checks that no other
    /// one was stopped. It can be either of the two: a sandbox that has grown since the last check of the disk is
    /// stopped before a larger one.
    async fn wait_until_one_of_first_owner_is(
        &self,
        service: &Service,
        state: Option<State>,
    ) -> &SandboxInfo {
        let state_of = async |info: &SandboxInfo, owner| {
            let found = service.get(&scope(owner), &info.sandbox.id).await;
            found.ok().map(|info| info.sandbox.state)
        };
        wait_until("a sandbox of the first owner is stopped or removed", async || {
            let [one, other] = &self.of_first_owner;
            [state_of(one, "alice").await, state_of(other, "alice").await].contains(&state)
        })
        .await;
        let [one, other] = &self.of_first_owner;
        let (found, stays) = if state_of(one, "alice").await == state { (one, other) } else { (other, one) };
        assert_eq!(state_of(stays, "alice").await, Some(State::Running));
        assert_eq!(state_of(&self.last, "bob").await, Some(State::Running));
        found
    }
}

/// Starts a service on a small disk, which keeps sandboxes that were stopped on a full disk for the time `kept`. `None`
/// if such a disk cannot be mounted.
async fn start(home: &TestHome, kept: Duration) -> Option<Service> {
    let small = small_disk(home, "size=200m")?;
    let change = |settings: &mut workspace_sandbox::Settings| {
        settings.workspaces_dir = small.join("workspaces");
        settings.disk_interval = Duration::from_millis(50);
        settings.stopped_retention = kept;
    };
    Some(home.start_with(change).await)
}

async fn owner_with_the_largest_usage_is_stopped_on_a_full_disk(home: &TestHome) {
    let Some(service) = start(home, Duration::from_secs(600)).await else { return };
    let sandboxes = TwoOwners::new(&service).await;
    let stopped =
        sandboxes.wait_until_one_of_first_owner_is(&service, Some(State::Stopped)).await.sandbox.id.as_str();
    let reason = service.get(&scope("alice"), stopped).await.unwrap().sandbox.state_reason.unwrap();
    assert!(reason.contains("must stay free"), "{reason}");
    // Its files are kept.
    service.commit(&scope("alice"), stopped, NewCommit::default()).await.unwrap();
}

async fn sandbox_stopped_for_the_disk_is_removed_after_a_while(home: &TestHome) {
    let Some(service) = start(home, Duration::ZERO).await else { return };
    let sandboxes = TwoOwners::new(&service).await;
    sandboxes.wait_until_one_of_first_owner_is(&service, None).await;
    // There is enough space again.
    let more = create_filled(&service, "bob", 10).await;
    assert_eq!(more.sandbox.state, State::Running);
    sandboxes.wait_until_one_of_first_owner_is(&service, None).await;
}
