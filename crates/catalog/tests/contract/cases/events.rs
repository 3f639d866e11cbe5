use workspace_catalog::EventKind;

use super::event;
use crate::test_database::TestDatabase;

pub(crate) async fn events_are_read_in_order_from_any_sequence(database: TestDatabase) {
    let catalog = database.open().await;
    for (n, &kind) in (1..).zip(EventKind::ALL) {
        let sandbox = (n % 2 == 0).then_some("sbx-1");
        assert_eq!(catalog.events().insert(sandbox, &event(kind)).await.unwrap(), n);
    }
    let all = catalog.events().after(0, 100).await.unwrap();
    assert_eq!(all.iter().map(|it| it.kind).collect::<Vec<_>>(), EventKind::ALL);
    assert_eq!((all[0].sandbox_id.as_deref(), all[1].sandbox_id.as_deref()), (None, Some("sbx-1")));
    assert_eq!(all[2].data, event(all[2].kind).data);
    assert!(all[0].created_at > 0);

    assert_eq!(catalog.events().after(3, 2).await.unwrap(), all[3..5]);
    assert_eq!(catalog.events().after(9, 100).await.unwrap(), []);
    assert_eq!(catalog.events().after(0, 0).await.unwrap(), []);
}

pub(crate) async fn reader_sees_every_event_of_concurrent_writers(database: TestDatabase) {
    const WRITERS: i64 = 8;
    const EACH: i64 = 25;
    let catalog = database.open().await;
    let write = |catalog: workspace_catalog::Catalog| async move {
        for _ in 0..EACH {
            catalog.events().insert(None, &event(EventKind::SandboxRunning)).await.unwrap();
        }
    };
    let writers: Vec<_> = (0..WRITERS).map(|_| tokio::spawn(write(catalog.clone()))).collect();
    let mut seen: Vec<i64> = Vec::new();
    loop {
        // Checked before reading: after the end of all writers, a read is complete.
        let over = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let last = seen.last().copied().unwrap_or(0);
        let new = catalog.events().after(last, 1_000).await.unwrap();
        seen.extend(new.iter().map(|it| it.sequence));
        if over {
            break;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(seen.into_iter().eq(1..=WRITERS * EACH));
}

pub(crate) async fn deleting_events_keeps_the_sequence(database: TestDatabase) {
    let catalog = database.open().await;
    for _ in 0..3 {
        catalog.events().insert(None, &event(EventKind::SandboxRunning)).await.unwrap();
    }
    let written = catalog.events().after(0, 10).await.unwrap();
    assert_eq!(catalog.events().delete_before(written[0].created_at).await.unwrap(), 0);
    assert_eq!(catalog.events().delete_before(i64::MAX).await.unwrap(), 3);
    assert_eq!(catalog.events().after(0, 10).await.unwrap(), []);
    assert_eq!(catalog.events().insert(None, &event(EventKind::SandboxRunning)).await.unwrap(), 4);
}

/// Inserts events of a sandbox, numbered from 1.
async fn fill(database: &TestDatabase, sandbox: &str, count: i64) {
    let insert = format!(
        "INSERT INTO events (sequence, type, sandbox_id, data, created_at)
         WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
         SELECT n, 'sandbox.running', '{sandbox}', '{{}}', n FROM numbers"
    );
    database.tamper(&insert).await;
    database.tamper(&format!("UPDATE event_sequence SET last = {count}")).await;
}

pub(crate) async fn events_per_sandbox_are_limited(database: TestDatabase) {
    let catalog = database.open().await;
    fill(&database, "sbx-1", 1_000).await;
    let running = event(EventKind::SandboxRunning);
    catalog.events().insert(Some("sbx-2"), &running).await.unwrap();
    catalog.events().insert(None, &running).await.unwrap();
    let numbers = async || {
        let all = catalog.events().after(0, 10_000).await.unwrap();
        all.iter().map(|it| it.sequence).collect::<Vec<_>>()
    };
    assert!(numbers().await.into_iter().eq(1..=1_002), "none is one too many");
    catalog.events().insert(Some("sbx-1"), &running).await.unwrap();
    catalog.events().insert(Some("sbx-1"), &running).await.unwrap();
    assert!(numbers().await.into_iter().eq(3..=1_004));
}

pub(crate) async fn total_events_are_limited(database: TestDatabase) {
    let catalog = database.open().await;
    let running = event(EventKind::SandboxRunning);
    for sandbox in ["sbx-1", "sbx-2", "sbx-3"] {
        catalog.events().insert(Some(sandbox), &running).await.unwrap();
    }
    database.tamper("UPDATE event_sequence SET last = 1000001").await;
    assert_eq!(catalog.events().insert(None, &running).await.unwrap(), 1_000_002);
    let left = catalog.events().after(0, 10).await.unwrap();
    assert_eq!(left.iter().map(|it| it.sequence).collect::<Vec<_>>(), [3, 1_000_002]);
}

pub(crate) async fn many_old_events_are_deleted_in_batches(database: TestDatabase) {
    let catalog = database.open().await;
    fill(&database, "sbx-1", 20_100).await;
    assert_eq!(catalog.events().delete_before(20_050).await.unwrap(), 20_049);
    let left = catalog.events().after(0, 1_000).await.unwrap();
    assert!(left.iter().map(|it| it.sequence).eq(20_050..=20_100));
}
