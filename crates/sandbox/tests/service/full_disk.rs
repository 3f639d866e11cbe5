//! Making room when the disk of the workspaces is nearly full.

use std::time::Duration;

use libtest_mimic::Trial;
use workspace_catalog::State;
use workspace_sandbox::{Caller, NewCommit, Scope, Service, View};

use crate::home::{Home, base, request, soon, wanted};
use crate::snapshots::small_disk;
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        the_owner_who_holds_most_is_stopped_and_not_who_wrote_last,
        what_was_stopped_for_the_disk_makes_room_after_a_while,
    ]
}

fn scope(owner: &str) -> Scope {
    Scope::Owner(owner.to_owned())
}

/// A sandbox whose workspace holds so many MiB.
async fn holding(service: &Service, owner: &str, megabytes: u64) -> View {
    let view = service.create(Caller { owner: owner.to_owned(), ..wanted() }, base()).await.unwrap();
    let (scope, id) = (scope(owner), view.sandbox.id.as_str());
    service.run(&scope, id, request(&format!("fallocate -l {megabytes}m held"))).await.unwrap();
    soon("it is written", async || {
        service.stats(&scope, id).await.is_ok_and(|stats| stats.disk >= megabytes << 20)
    })
    .await;
    view
}

/// Two of an owner who holds most of a disk of 200 MiB, of which 20 are kept free, and one of another who wrote last.
struct Crowd {
    hers: [View; 2],
    last: View,
}

impl Crowd {
    async fn new(service: &Service) -> Self {
        let hers = [holding(service, "alice", 70).await, holding(service, "alice", 30).await];
        Self { hers, last: holding(service, "bob", 85).await }
    }

    /// Waits until one of hers is in that state, or gone, and checks that nobody else was stopped. Which of hers it is depends
    /// on whether the server looked at the disk between her two: one that writes goes before one that is larger.
    async fn one_of_hers_is(&self, service: &Service, state: Option<State>) -> &View {
        let state_of = async |view: &View, owner| {
            let found = service.get(&scope(owner), &view.sandbox.id).await;
            found.ok().map(|view| view.sandbox.state)
        };
        soon("one of hers makes room", async || {
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

async fn start(home: &Home, kept: Duration) -> Option<Service> {
    let small = small_disk(home, "size=200m")?;
    let change = |settings: &mut workspace_sandbox::Settings| {
        settings.workspaces = small.join("workspaces");
        settings.disk_interval = Duration::from_millis(50);
        settings.stopped_kept = kept;
    };
    Some(home.start_with(change).await)
}

async fn the_owner_who_holds_most_is_stopped_and_not_who_wrote_last(home: &Home) {
    let Some(service) = start(home, Duration::from_secs(600)).await else { return };
    let crowd = Crowd::new(&service).await;
    let stopped = crowd.one_of_hers_is(&service, Some(State::Stopped)).await.sandbox.id.as_str();
    let told = service.get(&scope("alice"), stopped).await.unwrap().sandbox.state_reason.unwrap();
    assert!(told.contains("kept free"), "{told}");
    // What it holds is not lost.
    service.commit(&scope("alice"), stopped, NewCommit::default()).await.unwrap();
}

async fn what_was_stopped_for_the_disk_makes_room_after_a_while(home: &Home) {
    let Some(service) = start(home, Duration::ZERO).await else { return };
    let crowd = Crowd::new(&service).await;
    crowd.one_of_hers_is(&service, None).await;
    // There is room again.
    let more = holding(&service, "bob", 10).await;
    assert_eq!(more.sandbox.state, State::Running);
    crowd.one_of_hers_is(&service, None).await;
}
