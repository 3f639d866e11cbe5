use serde_json::json;
use workspace_catalog::{CatalogError, Change, EventKind, Filter, PauseStep, State};

use super::{event, insert, new_sandbox, to};
use crate::test_database::TestDatabase;

/// Returns the transitions that lead a new sandbox to a state.
fn path_to(state: State) -> &'static [State] {
    match state {
        State::Starting => &[],
        State::Running => &[State::Running],
        State::Stopping => &[State::Stopping],
        State::Stopped => &[State::Stopped],
        State::Error => &[State::Error],
    }
}

pub(crate) async fn only_allowed_transitions_succeed(database: TestDatabase) {
    let catalog = database.open().await;
    for &from in State::ALL {
        for &next in State::ALL {
            let id = format!("sbx-{from}-{next}");
            let mut sandbox = insert(&catalog, new_sandbox(&id)).await;
            for &step in path_to(from) {
                sandbox = catalog.sandboxes().change(&id, sandbox.version, to(step), &[]).await.unwrap();
            }
            let changed = catalog.sandboxes().change(&id, sandbox.version, to(next), &[]).await;
            let stored = catalog.sandboxes().get(&id).await.unwrap().unwrap();
            if from.can_become(next) {
                assert_eq!(stored, changed.unwrap());
                assert_eq!((stored.state, stored.version), (next, sandbox.version + 1));
            } else {
                let error = changed.unwrap_err().to_string();
                assert_eq!(error, format!("sandbox `{id}` is {from} and cannot become {next}"));
                assert_eq!(stored, sandbox);
            }
        }
    }
}

pub(crate) async fn change_keeps_unset_fields(database: TestDatabase) {
    let catalog = database.open().await;
    let created = insert(&catalog, new_sandbox("sbx-1")).await;
    let all = Change {
        state: Some(State::Error),
        state_reason: Some("the guest agent is gone".to_owned()),
        process: Some(json!({ "pid": 7, "start": 12_345_678_901_u64 })),
        workspace_path: Some("/elsewhere".to_owned()),
        token_hash: Some("u".repeat(64)),
        config: Some(json!({ "cpu": "2" })),
        expires_at: Some(9_000),
        labels: Some([("team".to_owned(), "red".to_owned())].into()),
        pause: Some(Some(PauseStep::Committed)),
        pause_snapshot: Some(Some("a snapshot".to_owned())),
        remaining_ms: Some(Some(7)),
    };
    let changed = catalog.sandboxes().change("sbx-1", 1, all.clone(), &[]).await.unwrap();
    assert_eq!((&changed.state_reason, &changed.process), (&all.state_reason, &all.process));
    assert_eq!((&changed.workspace_path, &changed.token_hash), (&"/elsewhere".to_owned(), &"u".repeat(64)));
    assert_eq!((changed.config.clone(), changed.expires_at), (json!({ "cpu": "2" }), 9_000));
    assert_eq!(Some(&changed.labels), all.labels.as_ref());
    assert_eq!((changed.pause, changed.remaining_ms), (Some(PauseStep::Committed), Some(7)));
    assert_eq!(Some(&changed.pause_snapshot), all.pause_snapshot.as_ref());
    let red = Filter { labels: changed.labels.clone(), ..Filter::default() };
    assert_eq!(catalog.sandboxes().list(&red).await.unwrap().1, 1);
    assert!(changed.updated_at > created.updated_at);

    let same = catalog.sandboxes().change("sbx-1", 2, Change::default(), &[]).await.unwrap();
    let (version, updated_at) = (3, same.updated_at);
    assert_eq!(same, workspace_catalog::Sandbox { version, updated_at, ..changed });

    // The reason belonged to the old state.
    let running = catalog.sandboxes().change("sbx-1", 3, to(State::Running), &[]).await.unwrap();
    assert_eq!(running.state_reason, None);
    assert_eq!(catalog.sandboxes().get("sbx-1").await.unwrap(), Some(running));
}

pub(crate) async fn concurrent_changes_of_one_version_conflict(database: TestDatabase) {
    let catalog = database.open().await;
    for round in 0..20 {
        let id = format!("sbx-{round}");
        insert(&catalog, new_sandbox(&id)).await;
        let change = |state| {
            let (catalog, id) = (catalog.clone(), id.clone());
            let recorded = event(EventKind::SandboxRunning);
            tokio::spawn(async move {
                catalog.sandboxes().change(&id, 1, to(state), std::slice::from_ref(&recorded)).await
            })
        };
        let (one, other) = (change(State::Running), change(State::Stopping));
        let (one, other) = (one.await.unwrap(), other.await.unwrap());
        let (won, lost) = if one.is_ok() { (one, other) } else { (other, one) };
        let error = lost.unwrap_err();
        assert!(matches!(error, CatalogError::Conflict { expected: 1, .. }), "{error}");
        assert_eq!(catalog.sandboxes().get(&id).await.unwrap(), Some(won.unwrap()));
    }
    assert_eq!(catalog.events().after(0, 100).await.unwrap().len(), 20);
}

pub(crate) async fn changing_a_missing_sandbox_fails(database: TestDatabase) {
    let catalog = database.open().await;
    let error = catalog.sandboxes().change("sbx-1", 1, to(State::Running), &[]).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no sandbox `sbx-1`");
}

pub(crate) async fn change_and_event_are_atomic(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    let recorded = event(EventKind::SandboxRunning);
    catalog
        .sandboxes()
        .change("sbx-1", 1, to(State::Running), std::slice::from_ref(&recorded))
        .await
        .unwrap();
    // A rejected change records no event.
    catalog
        .sandboxes()
        .change("sbx-1", 1, to(State::Error), std::slice::from_ref(&recorded))
        .await
        .unwrap_err();
    catalog
        .sandboxes()
        .change("sbx-1", 2, to(State::Starting), std::slice::from_ref(&recorded))
        .await
        .unwrap_err();
    let events = catalog.events().after(0, 10).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].kind.as_str(), &events[0].data), (recorded.kind.as_str(), &recorded.data));
    assert_eq!(events[0].owner.as_deref(), Some("alice"));
    assert_eq!(events[0].sandbox_id.as_deref(), Some("sbx-1"));
}

pub(crate) async fn change_is_rolled_back_if_its_event_fails(database: TestDatabase) {
    let catalog = database.open().await;
    let before = insert(&catalog, new_sandbox("sbx-1")).await;
    // Into this table, transactions insert their events.
    let table = if catalog.can_be_shared() { "event_queue" } else { "events" };
    database.tamper(&format!("ALTER TABLE {table} RENAME TO {table}_elsewhere")).await;
    let recorded = event(EventKind::SandboxRunning);
    let sandboxes = catalog.sandboxes();
    for error in [
        sandboxes.change("sbx-1", 1, to(State::Running), std::slice::from_ref(&recorded)).await.unwrap_err(),
        sandboxes.insert(&new_sandbox("sbx-2"), std::slice::from_ref(&recorded)).await.unwrap_err(),
        sandboxes.delete("sbx-1", std::slice::from_ref(&recorded)).await.unwrap_err(),
    ] {
        assert!(matches!(error, CatalogError::Database { .. }), "{error}");
    }
    assert_eq!(sandboxes.get("sbx-1").await.unwrap(), Some(before));
    assert_eq!(sandboxes.get("sbx-2").await.unwrap(), None);

    database.tamper(&format!("ALTER TABLE {table}_elsewhere RENAME TO {table}")).await;
    sandboxes.change("sbx-1", 1, to(State::Running), std::slice::from_ref(&recorded)).await.unwrap();
    // The sequence numbers of rolled back events are used again.
    assert_eq!(catalog.events().after(0, 10).await.unwrap()[0].number, 1);
}
