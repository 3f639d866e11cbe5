use workspace_catalog::{Catalog, CatalogError, EventKind, Filter, State, VisibleState};

use super::{event, insert, new_sandbox, to};
use crate::test_database::TestDatabase;

pub(crate) async fn data_survives_reopening(database: TestDatabase) {
    let catalog = database.open().await;
    let created = event(EventKind::SandboxCreated);
    let sandbox =
        catalog.sandboxes().insert(&new_sandbox("sbx-1"), std::slice::from_ref(&created)).await.unwrap();
    catalog.close().await;

    let catalog = database.open().await;
    assert_eq!(catalog.sandboxes().get("sbx-1").await.unwrap(), Some(sandbox));
    assert_eq!(catalog.events().insert(None, None, &created).await.unwrap(), 2);
}

pub(crate) async fn concurrent_opens_migrate_once(database: TestDatabase) {
    let opened = (0..6).map(|_| {
        let url = database.url.clone();
        tokio::spawn(async move { Catalog::open(&url).await.unwrap() })
    });
    for (n, opened) in opened.collect::<Vec<_>>().into_iter().enumerate() {
        insert(&opened.await.unwrap(), new_sandbox(&format!("sbx-{n}"))).await;
    }
    let (_, total) = database.open().await.sandboxes().list(&Filter::default()).await.unwrap();
    assert_eq!(total, 6);
}

pub(crate) async fn newer_schema_is_rejected(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    catalog.close().await;
    database.tamper("INSERT INTO schema_versions (version, applied_at) VALUES (1000, 0)").await;
    let error = Catalog::open(&database.url).await.unwrap_err();
    assert!(matches!(error, CatalogError::NewerSchema { found: 1000, .. }), "{error}");

    database.tamper("DELETE FROM schema_versions WHERE version = 1000").await;
    assert!(database.open().await.sandboxes().get("sbx-1").await.unwrap().is_some());
}

pub(crate) async fn damaged_rows_are_errors(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    database.tamper("UPDATE sandboxes SET config = '{'").await;
    let error = catalog.sandboxes().get("sbx-1").await.unwrap_err();
    assert!(matches!(error, CatalogError::Json { column: "config", .. }), "{error}");

    catalog.events().insert(None, None, &event(EventKind::SandboxError)).await.unwrap();
    // A newer server on the same database may have written it.
    database.tamper("UPDATE events SET type = 'sandbox.unheard'").await;
    assert_eq!(catalog.events().after(0, 1).await.unwrap()[0].kind, "sandbox.unheard");
    database.tamper("UPDATE events SET data = '{'").await;
    let error = catalog.events().after(0, 1).await.unwrap_err();
    assert!(matches!(error, CatalogError::Json { column: "data", .. }), "{error}");
}

/// Half of the tasks have their own catalog, as another process would.
pub(crate) async fn concurrent_writers_succeed(database: TestDatabase) {
    let shared = database.open().await;
    let mut tasks = Vec::new();
    for n in 0..20 {
        let catalog = if n % 2 == 0 { shared.clone() } else { database.open().await };
        tasks.push(tokio::spawn(async move {
            for step in 0..5 {
                let id = format!("sbx-{n}-{step}");
                let recorded = event(EventKind::SandboxRunning);
                let sandbox = catalog.sandboxes().insert(&new_sandbox(&id), &[]).await.unwrap();
                let change = to(State::Running);
                catalog
                    .sandboxes()
                    .change(&id, sandbox.version, change, std::slice::from_ref(&recorded))
                    .await
                    .unwrap();
            }
            if n % 2 == 1 {
                catalog.close().await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    // A filter takes the state that clients see. It is the stored state, except for paused sandboxes.
    let running = Filter { state: Some(VisibleState::Running), ..Filter::default() };
    assert_eq!(shared.sandboxes().list(&running).await.unwrap().1, 100);
    let events = shared.events().after(0, 1_000).await.unwrap();
    assert!(events.iter().map(|it| it.number).eq(1..=100));
}
