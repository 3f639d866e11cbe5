use workspace_catalog::{Catalog, CatalogError, Change, Filter, PauseStep, Sandbox, State, VisibleState};

use super::{ids, insert, new_sandbox, to};
use crate::test_database::TestDatabase;

/// Undoes the migration that added pauses.
pub(crate) async fn remove_pauses(database: &TestDatabase) {
    for column in ["pause", "pause_snapshot", "remaining_ms"] {
        database.tamper(&format!("ALTER TABLE sandboxes DROP COLUMN {column}")).await;
    }
}

/// Inserts a sandbox with a state and a step of a pause.
async fn with_step(catalog: &Catalog, id: &str, state: State, step: PauseStep) -> Sandbox {
    let mut sandbox = insert(catalog, new_sandbox(id)).await;
    if state == State::Stopped {
        sandbox = catalog.sandboxes().change(id, sandbox.version, to(State::Running), &[]).await.unwrap();
    }
    let change = Change { pause: Some(Some(step)), remaining_ms: Some(Some(5_000)), ..to(state) };
    catalog.sandboxes().change(id, sandbox.version, change, &[]).await.unwrap()
}

pub(crate) async fn paused_sandboxes_are_listed_and_counted_as_such(database: TestDatabase) {
    let catalog = database.open().await;
    with_step(&catalog, "sbx-1", State::Running, PauseStep::Memory).await;
    with_step(&catalog, "sbx-2", State::Stopped, PauseStep::Disk).await;
    with_step(&catalog, "sbx-3", State::Running, PauseStep::Pausing).await;
    insert(&catalog, new_sandbox("sbx-4")).await;
    catalog.sandboxes().change("sbx-4", 1, to(State::Stopped), &[]).await.unwrap();
    for (state, expected) in [
        (VisibleState::Paused, vec!["sbx-1", "sbx-2"]),
        (VisibleState::Running, vec!["sbx-3"]),
        (VisibleState::Stopped, vec!["sbx-4"]),
        (VisibleState::Starting, vec![]),
    ] {
        let filter = Filter { state: Some(state), ..Filter::default() };
        let (found, total) = catalog.sandboxes().list(&filter).await.unwrap();
        assert_eq!((ids(&found), total), (expected.clone(), expected.len() as u64), "{state}");
        assert!(found.iter().all(|sandbox| sandbox.visible_state() == state));
        let counts = catalog.sandboxes().count_by_state("here").await.unwrap();
        assert!(counts.contains(&(state, expected.len() as u64)), "{counts:?}");
    }
    // A sandbox that is paused on disk counts for its own quota only.
    assert_eq!(catalog.sandboxes().count_for_quota("here", "alice").await.unwrap(), (3, 3));
    assert_eq!(catalog.sandboxes().count_on_disk("alice").await.unwrap(), 2);
    assert_eq!(catalog.sandboxes().count_on_disk("bob").await.unwrap(), 0);
}

pub(crate) async fn only_a_sandbox_paused_on_disk_can_be_resumed(database: TestDatabase) {
    let catalog = database.open().await;
    let sandboxes = catalog.sandboxes();
    let resuming = || Change { pause: Some(Some(PauseStep::Resuming)), ..to(State::Starting) };
    for (id, step) in [("sbx-1", PauseStep::Committed), ("sbx-2", PauseStep::Resuming)] {
        let stopped = with_step(&catalog, id, State::Stopped, step).await;
        let error = sandboxes.change(id, stopped.version, resuming(), &[]).await.unwrap_err();
        assert!(matches!(error, CatalogError::Transition { .. }), "{error}");
    }
    let paused = with_step(&catalog, "sbx-3", State::Stopped, PauseStep::Disk).await;
    let error = sandboxes.change("sbx-3", paused.version, to(State::Starting), &[]).await.unwrap_err();
    assert!(matches!(error, CatalogError::Transition { .. }), "{error}");
    let starting = sandboxes.change("sbx-3", paused.version, resuming(), &[]).await.unwrap();
    assert_eq!((starting.state, starting.pause), (State::Starting, Some(PauseStep::Resuming)));
    let undone = Change { pause: Some(Some(PauseStep::Disk)), ..to(State::Stopped) };
    let undone = sandboxes.change("sbx-3", starting.version, undone, &[]).await.unwrap();
    assert!(undone.is_paused());
    let removed = sandboxes.change("sbx-3", undone.version, to(State::Stopping), &[]).await.unwrap();
    assert_eq!((removed.visible_state(), removed.pause), (VisibleState::Stopping, Some(PauseStep::Disk)));
}

pub(crate) async fn a_pause_in_memory_ends_with_its_processes(database: TestDatabase) {
    let catalog = database.open().await;
    for (id, step) in [("sbx-1", PauseStep::Memory), ("sbx-2", PauseStep::Pausing)] {
        let paused = with_step(&catalog, id, State::Running, step).await;
        let lost = catalog.sandboxes().change(id, paused.version, to(State::Error), &[]).await.unwrap();
        assert_eq!((lost.pause, lost.remaining_ms), (None, None));
        assert!(lost.expires_at > paused.expires_at, "the rest of its lifetime continues");
        assert_eq!(catalog.sandboxes().get(id).await.unwrap(), Some(lost));
    }
    // The snapshot of a pause to disk is not lost with the processes.
    let committed = with_step(&catalog, "sbx-3", State::Running, PauseStep::Committed).await;
    let lost = catalog.sandboxes().change("sbx-3", committed.version, to(State::Error), &[]).await.unwrap();
    assert_eq!(lost.pause, Some(PauseStep::Committed));
}
