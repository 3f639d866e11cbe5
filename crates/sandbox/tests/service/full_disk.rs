//! Freeing space when the disk of the workspaces is nearly full.

use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::State;
use workspace_sandbox::{Creator, NewCommit, Scope, Service, View};

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

/// Makes a sandbox whose workspace has so many MiB.
async fn holding(service: &Service, owner: &str, megabytes: u64) -> View {
    let view = service.create(Creator { owner: owner.to_owned(), ..creator() }, base()).await.unwrap();
    let (scope, id) = (scope(owner), view.sandbox.id.as_str());
    service.run(&scope, id, request(&format!("fallocate -l {megabytes}m held"))).await.unwrap();
    wait_until("it is written", async || {
        service.stats(&scope, id).await.is_ok_and(|stats| stats.disk >= megabytes << 20)
    })
    .await;
    view
}

/// Two sandboxes of the owner with the largest usage of a disk of 200 MiB, with a reserve of 20 MiB, and one
/// of another owner who wrote last.
struct Crowd {
    hers: [View; 2],
    last: View,
}

impl Crowd {
    async fn new(service: &Service) -> Self {
        let hers = [holding(service, "alice", 70).await, holding(service, "alice", 30).await];
        Self { hers, last: holding(service, "bob", 85).await }
    }

    /// Waits until one of the first owner's is in that state, or gone, and checks that nobody else was
    /// stopped. Which one depends on whether the disk was checked between the two: one that writes goes
    /// before a larger one.
    async fn one_of_hers_is(&self, service: &Service, state: Option<State>) -> &View {
        let state_of = async |view: &View, owner| {
            let found = service.get(&scope(owner), &view.sandbox.id).await;
            found.ok().map(|view| view.sandbox.state)
        };
        wait_until("one of hers makes room", async || {
            let [one, other] = &self.hers;
            [state_of(one, "alice").await, state_of(other, "alice").await].contains(&state)
        })
        .await;
        let [one, other] = &self.hers;
        let (found, stays) = if state_of(one, "alice").await == state { (one, other) } else { (other, one) };
        assert_eq!(state_of(stays, "alice").await, Some(State::Running));
        assert_eq!(state_of(&self.last, "bob").await, Some(State::Running));
        found
    }
}

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
    let crowd = Crowd::new(&service).await;
    let stopped = crowd.one_of_hers_is(&service, Some(State::Stopped)).await.sandbox.id.as_str();
    let reason = service.get(&scope("alice"), stopped).await.unwrap().sandbox.state_reason.unwrap();
    assert!(reason.contains("must stay free"), "{reason}");
    // Its files are kept.
    service.commit(&scope("alice"), stopped, NewCommit::default()).await.unwrap();
}

async fn sandbox_stopped_for_the_disk_is_removed_after_a_while(home: &TestHome) {
    let Some(service) = start(home, Duration::ZERO).await else { return };
    let crowd = Crowd::new(&service).await;
    crowd.one_of_hers_is(&service, None).await;
    // There is enough space again.
    let more = holding(&service, "bob", 10).await;
    assert_eq!(more.sandbox.state, State::Running);
    crowd.one_of_hers_is(&service, None).await;
}
