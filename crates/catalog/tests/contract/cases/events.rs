use workspace_catalog::{Catalog, EventFilter, EventKind};

use super::event;
use crate::test_database::TestDatabase;

/// Removes the migration that gave events an owner.
pub(crate) async fn remove_owners(database: &TestDatabase) {
    database.tamper("DROP INDEX events_owner").await;
    database.tamper("DROP INDEX events_type").await;
    database.tamper("ALTER TABLE events DROP COLUMN owner").await;
    database.tamper("DROP TABLE event_owners").await;
}

async fn insert(catalog: &Catalog, owner: &str, sandbox: &str, kind: EventKind) -> i64 {
    catalog.events().insert(Some(owner), Some(sandbox), &event(kind)).await.unwrap()
}

fn of_owner(owner: &str) -> EventFilter {
    EventFilter { owner: Some(owner.to_owned()), ..EventFilter::default() }
}

/// Returns the numbers of the events that match a filter, after a number.
async fn numbers(catalog: &Catalog, filter: &EventFilter, after: i64) -> Vec<i64> {
    let found = catalog.events().read(filter, after, 1_000_000).await.unwrap();
    found.events.iter().map(|it| it.number).collect()
}

pub(crate) async fn events_are_read_in_order_from_any_sequence(database: TestDatabase) {
    let catalog = database.open().await;
    for (n, &kind) in (1..).zip(EventKind::ALL) {
        let sandbox = (n % 2 == 0).then_some("sbx-1");
        assert_eq!(catalog.events().insert(None, sandbox, &event(kind)).await.unwrap(), n);
    }
    let all = catalog.events().after(0, 100).await.unwrap();
    let kinds = all.iter().map(|it| it.kind.as_str());
    assert!(kinds.eq(EventKind::ALL.iter().map(|kind| kind.as_str())));
    assert_eq!((all[0].sandbox_id.as_deref(), all[1].sandbox_id.as_deref()), (None, Some("sbx-1")));
    assert_eq!(all[2].data, event(EventKind::ALL[2]).data);
    assert!(all[0].created_at > 0);

    assert_eq!(catalog.events().after(3, 2).await.unwrap(), all[3..5]);
    let last = all.last().unwrap().number;
    assert_eq!(catalog.events().newest().await.unwrap(), last);
    assert_eq!(catalog.events().after(last, 100).await.unwrap(), []);
    assert_eq!(catalog.events().after(0, 0).await.unwrap(), []);
}

pub(crate) async fn reader_sees_every_event_of_concurrent_writers(database: TestDatabase) {
    const WRITERS: i64 = 8;
    const EACH: i64 = 25;
    let catalog = database.open().await;
    let write = |catalog: Catalog, owner: String| async move {
        for _ in 0..EACH {
            let running = event(EventKind::SandboxRunning);
            catalog.events().insert(Some(&owner), None, &running).await.unwrap();
        }
    };
    let writers: Vec<_> =
        (0..WRITERS).map(|n| tokio::spawn(write(catalog.clone(), (n % 2).to_string()))).collect();
    let (mut seen, mut of_one): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    loop {
        // Checked before reading: after the end of all writers, a read is complete.
        let over = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let last = |seen: &[i64]| seen.last().copied().unwrap_or(0);
        let (after, after_of_one) = (last(&seen), last(&of_one));
        seen.extend(numbers(&catalog, &EventFilter::default(), after).await);
        of_one.extend(numbers(&catalog, &of_owner("1"), after_of_one).await);
        if over {
            break;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(seen.into_iter().eq(1..=WRITERS * EACH));
    assert_eq!(of_one.len() as i64, WRITERS / 2 * EACH);
    assert!(of_one.is_sorted_by(|one, next| one < next));
}

pub(crate) async fn deleting_events_keeps_the_sequence(database: TestDatabase) {
    let catalog = database.open().await;
    for _ in 0..3 {
        insert(&catalog, "alice", "sbx-1", EventKind::SandboxRunning).await;
    }
    let written = catalog.events().after(0, 10).await.unwrap();
    assert_eq!(catalog.events().delete_before(written[0].created_at).await.unwrap(), 0);
    assert_eq!(catalog.events().delete_before(i64::MAX).await.unwrap(), 3);
    assert_eq!(catalog.events().after(0, 10).await.unwrap(), []);
    assert_eq!(insert(&catalog, "alice", "sbx-1", EventKind::SandboxRunning).await, 4);
}

/// Inserts events of an owner, numbered from 1. `sandbox` is SQL, in which `n` is the number.
async fn fill(database: &TestDatabase, owner: &str, sandbox: &str, count: i64) {
    let insert = format!(
        "INSERT INTO events (sequence, type, owner, sandbox_id, data, created_at)
         WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
         SELECT n, 'sandbox.running', '{owner}', {sandbox}, '{{}}', n FROM numbers"
    );
    database.tamper(&insert).await;
    database.tamper(&format!("UPDATE event_sequence SET last = {count}")).await;
    let owners = format!("INSERT INTO event_owners (owner, events, dropped) VALUES ('{owner}', {count}, 0)");
    database.tamper(&owners).await;
}

pub(crate) async fn events_per_sandbox_are_limited(database: TestDatabase) {
    let catalog = database.open().await;
    fill(&database, "alice", "'sbx-1'", 1_000).await;
    insert(&catalog, "alice", "sbx-2", EventKind::SandboxRunning).await;
    catalog.events().insert(None, None, &event(EventKind::SandboxRunning)).await.unwrap();
    let all = EventFilter::default();
    assert!(numbers(&catalog, &all, 0).await.into_iter().eq(1..=1_002), "none is one too many");
    insert(&catalog, "alice", "sbx-1", EventKind::SandboxRunning).await;
    insert(&catalog, "alice", "sbx-1", EventKind::SandboxRunning).await;
    assert!(numbers(&catalog, &all, 0).await.into_iter().eq(3..=1_004));
    assert_eq!(catalog.events().read(&of_owner("alice"), 0, 1).await.unwrap().last_deleted, 2);
}

pub(crate) async fn events_per_owner_are_limited(database: TestDatabase) {
    const MAX: i64 = 100_000;
    let catalog = database.open().await;
    fill(&database, "alice", "'sbx-' || n", MAX).await;
    let bobs = insert(&catalog, "bob", "sbx-b", EventKind::SandboxRunning).await;
    assert_eq!(numbers(&catalog, &of_owner("alice"), 0).await.len() as i64, MAX);
    for _ in 0..3 {
        insert(&catalog, "alice", "sbx-a", EventKind::SandboxRunning).await;
    }
    let alices = numbers(&catalog, &of_owner("alice"), 0).await;
    assert!(alices.into_iter().eq((4..=MAX).chain(bobs + 1..=bobs + 3)), "her oldest are deleted");
    assert_eq!(numbers(&catalog, &of_owner("bob"), 0).await, [bobs], "his are not");
    let last_deleted =
        async |filter: EventFilter| catalog.events().read(&filter, 0, 1).await.unwrap().last_deleted;
    assert_eq!((last_deleted(of_owner("alice")).await, last_deleted(of_owner("bob")).await), (3, 0));
    assert_eq!(last_deleted(EventFilter::default()).await, 3);
}

pub(crate) async fn many_old_events_are_deleted_in_batches(database: TestDatabase) {
    let catalog = database.open().await;
    fill(&database, "alice", "'sbx-1'", 20_100).await;
    assert_eq!(catalog.events().delete_before(20_050).await.unwrap(), 20_049);
    let left = catalog.events().read(&EventFilter::default(), 0, 1_000).await.unwrap();
    assert!(left.events.iter().map(|it| it.number).eq(20_050..=20_100));
    assert_eq!((left.last_deleted, left.newest), (20_049, 20_100));
}

pub(crate) async fn owner_reads_only_its_own_events(database: TestDatabase) {
    let catalog = database.open().await;
    catalog.events().insert(None, Some("sbx-1"), &event(EventKind::SandboxError)).await.unwrap();
    let hers = insert(&catalog, "alice", "sbx-1", EventKind::SandboxCreated).await;
    let his = insert(&catalog, "bob", "sbx-2", EventKind::SandboxCreated).await;
    assert_eq!(numbers(&catalog, &of_owner("alice"), 0).await, [hers]);
    assert_eq!(numbers(&catalog, &of_owner("bob"), 0).await, [his]);
    for nobody in ["", "ALICE", "carol", "alice' OR '1'='1"] {
        assert_eq!(numbers(&catalog, &of_owner(nobody), 0).await, [0; 0], "{nobody}");
    }
    let theirs = EventFilter { sandbox_id: Some("sbx-2".to_owned()), ..of_owner("alice") };
    assert_eq!(numbers(&catalog, &theirs, 0).await, [0; 0]);
    let owners = catalog.events().owners_after(0, 10).await.unwrap();
    assert_eq!(owners, [(1, None), (hers, Some("alice".to_owned())), (his, Some("bob".to_owned()))]);
    assert_eq!(catalog.events().owners_after(hers, 10).await.unwrap(), owners[2..]);
    assert_eq!(catalog.events().owners_after(0, 1).await.unwrap(), owners[..1]);
}

pub(crate) async fn filters_restrict_events(database: TestDatabase) {
    let catalog = database.open().await;
    let (created, deleted) = (EventKind::SandboxCreated, EventKind::SandboxDeleted);
    for (sandbox, kind) in [("sbx-1", created), ("sbx-2", created), ("sbx-1", deleted), ("sbx-2", deleted)] {
        insert(&catalog, "alice", sandbox, kind).await;
    }
    let sandbox_id = Some("sbx-1".to_owned());
    for owner in [Some("alice".to_owned()), None] {
        let filter = EventFilter { owner, ..EventFilter::default() };
        let of_sandbox = EventFilter { sandbox_id: sandbox_id.clone(), ..filter.clone() };
        for (filter, expected) in [
            (filter.clone(), vec![1, 2, 3, 4]),
            (of_sandbox.clone(), vec![1, 3]),
            (EventFilter { kind: Some(deleted), ..filter.clone() }, vec![3, 4]),
            (EventFilter { kind: Some(deleted), ..of_sandbox }, vec![3]),
            (EventFilter { kind: Some(EventKind::SandboxError), ..filter }, vec![]),
        ] {
            assert_eq!(numbers(&catalog, &filter, 0).await, expected, "{filter:?}");
            let later: Vec<i64> = expected.into_iter().filter(|number| *number > 2).collect();
            assert_eq!(numbers(&catalog, &filter, 2).await, later, "{filter:?}");
        }
    }
}

pub(crate) async fn reader_behind_deleted_events_is_told(database: TestDatabase) {
    let catalog = database.open().await;
    for owner in ["alice", "bob", "alice"] {
        insert(&catalog, owner, "sbx-1", EventKind::SandboxRunning).await;
    }
    let read = async |filter: EventFilter| catalog.events().read(&filter, 0, 10).await.unwrap();
    assert_eq!(read(of_owner("alice")).await.last_deleted, 0);
    catalog.events().delete_before(i64::MAX).await.unwrap();
    let left = read(of_owner("alice")).await;
    assert_eq!((left.events, left.last_deleted, left.newest), (vec![], 3, 3));
    assert_eq!(read(of_owner("bob")).await.last_deleted, 2);
    assert_eq!(read(of_owner("carol")).await.last_deleted, 0);
    assert_eq!(read(EventFilter::default()).await.last_deleted, 3);
    insert(&catalog, "bob", "sbx-1", EventKind::SandboxRunning).await;
    assert_eq!(read(of_owner("bob")).await.last_deleted, 2, "a later insertion does not change it");
}

pub(crate) async fn insertions_wake_subscribers(database: TestDatabase) {
    let catalog = database.open().await;
    let mut inserted = catalog.events().subscribe();
    let has_changed = |inserted: &mut tokio::sync::watch::Receiver<()>| {
        let has_changed = inserted.has_changed().unwrap();
        inserted.mark_unchanged();
        has_changed
    };
    let created = event(EventKind::SandboxCreated);
    let created = std::slice::from_ref(&created);
    let sandboxes = catalog.sandboxes();
    sandboxes.insert(&super::new_sandbox("sbx-0"), &[]).await.unwrap();
    assert!(!has_changed(&mut inserted), "there was no event");
    sandboxes.insert(&super::new_sandbox("sbx-1"), created).await.unwrap();
    assert!(has_changed(&mut inserted));
    let running = super::to(workspace_catalog::State::Running);
    sandboxes.change("sbx-1", 1, running, created).await.unwrap();
    assert!(has_changed(&mut inserted));
    sandboxes.delete("sbx-1", created).await.unwrap();
    assert!(has_changed(&mut inserted));
    catalog.snapshots().add_owner("alice", "a", None, 0).await.unwrap();
    assert!(has_changed(&mut inserted));
    catalog.events().insert(None, None, &created[0]).await.unwrap();
    assert!(has_changed(&mut inserted) && !has_changed(&mut inserted));
}

pub(crate) async fn events_of_an_earlier_version_are_for_admins(database: TestDatabase) {
    let catalog = database.open().await;
    for _ in 0..3 {
        insert(&catalog, "alice", "sbx-1", EventKind::SandboxRunning).await;
    }
    catalog.close().await;
    super::lineage::remove_lineage(&database).await;
    remove_owners(&database).await;
    database.tamper("DELETE FROM events WHERE sequence = 1").await;
    super::commands::remove_arguments(&database).await;
    super::pauses::remove_pauses(&database).await;
    database.tamper("DROP TABLE template_steps").await;
    super::projects::remove_projects(&database).await;
    database.tamper("DELETE FROM schema_versions WHERE version >= 12").await;

    let catalog = database.open().await;
    let all = catalog.events().read(&EventFilter::default(), 0, 10).await.unwrap();
    assert_eq!(
        all.events.iter().map(|it| (it.number, it.owner.clone())).collect::<Vec<_>>(),
        [(2, None), (3, None)]
    );
    assert_eq!(all.last_deleted, 1);
    let hers = catalog.events().read(&of_owner("alice"), 0, 10).await.unwrap();
    assert_eq!((hers.events, hers.last_deleted), (vec![], 0));
    assert_eq!(insert(&catalog, "alice", "sbx-1", EventKind::SandboxRunning).await, 4);
    assert_eq!(numbers(&catalog, &of_owner("alice"), 0).await, [4]);
    assert_eq!(catalog.events().delete_before(i64::MAX).await.unwrap(), 3);
}

/// Adds a sandbox with events of one transaction, as a change of a sandbox does. Returns its id.
async fn insert_in_transaction(catalog: &Catalog, id: &str, events: &[EventKind]) -> String {
    let events: Vec<_> = events.iter().map(|kind| event(*kind)).collect();
    catalog.sandboxes().insert(&super::new_sandbox(id), &events).await.unwrap();
    id.to_owned()
}

/// Half of the writers and the reader have a catalog of their own, as another process would.
pub(crate) async fn no_event_of_a_transaction_is_skipped_or_moved(database: TestDatabase) {
    const WRITERS: usize = 6;
    const EACH: usize = 30;
    let shared = database.open().await;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let catalog = if writer % 2 == 0 { shared.clone() } else { database.open().await };
        writers.push(tokio::spawn(async move {
            for number in 0..EACH {
                let kinds =
                    [EventKind::SandboxStarting, EventKind::SandboxRunning, EventKind::SandboxCreated];
                insert_in_transaction(&catalog, &format!("sbx-{writer}-{number}"), &kinds).await;
                if number % 7 == 0 {
                    // With a number of its own at once, between those of transactions.
                    insert(&catalog, "alice", &format!("sbx-{writer}-x"), EventKind::AgentConnected).await;
                }
            }
        }));
    }
    let readers = [shared, database.open().await];
    let mut seen = [Vec::new(), Vec::new()];
    loop {
        // Checked before reading: after the end of all writers, a read is complete.
        let over = writers.iter().all(tokio::task::JoinHandle::is_finished);
        for (reader, seen) in readers.iter().zip(&mut seen) {
            let after = seen.last().map_or(0, |last: &workspace_catalog::Event| last.number);
            seen.extend(reader.events().after(after, 50).await.unwrap());
        }
        let newest = readers[0].events().newest().await.unwrap();
        if over && seen.iter().all(|seen| seen.last().is_some_and(|last| last.number == newest)) {
            break;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].iter().map(|event| event.number).eq(1..=seen[0].len() as i64));
    // Those of one transaction are together and in their order, those of one writer in the order of its transactions.
    let of_writer = |writer: usize| {
        let prefix = format!("sbx-{writer}-");
        let own = seen[0].iter().filter(move |event| {
            let sandbox = event.sandbox_id.as_deref().unwrap_or_default();
            sandbox.starts_with(&prefix)
        });
        own.map(|event| (event.sandbox_id.clone().unwrap(), event.kind.clone())).collect::<Vec<_>>()
    };
    for writer in 0..WRITERS {
        let mut expected = Vec::new();
        for number in 0..EACH {
            for kind in ["sandbox.starting", "sandbox.running", "sandbox.created"] {
                expected.push((format!("sbx-{writer}-{number}"), kind.to_owned()));
            }
            if number % 7 == 0 {
                expected.push((format!("sbx-{writer}-x"), "agent.connected".to_owned()));
            }
        }
        assert_eq!(of_writer(writer), expected, "of writer {writer}");
    }
}

/// On SQLite there is one writer at a time, so a long transaction holds up the others.
pub(crate) async fn a_long_transaction_holds_up_no_other_and_its_events_come_later(database: TestDatabase) {
    let catalog = database.open().await;
    if !catalog.can_be_shared() {
        return;
    }
    let insert = "INSERT INTO event_queue (type, owner, sandbox_id, data, created_at)
                  VALUES ('sandbox.running', 'alice', 'sbx-long', '{}', 1)";
    // One transaction gets its row before all others, one in between, and one is rolled back.
    let pool = sqlx::AnyPool::connect(&database.url).await.unwrap();
    let mut long = pool.begin().await.unwrap();
    sqlx::Executor::execute(&mut *long, insert).await.unwrap();
    insert_in_transaction(&catalog, "sbx-1", &[EventKind::SandboxRunning]).await;
    let mut next = pool.begin().await.unwrap();
    sqlx::Executor::execute(&mut *next, insert).await.unwrap();
    let mut lost = pool.begin().await.unwrap();
    sqlx::Executor::execute(&mut *lost, insert).await.unwrap();
    insert_in_transaction(&catalog, "sbx-2", &[EventKind::SandboxRunning]).await;
    let read = async |after: i64| {
        let found = catalog.events().after(after, 10).await.unwrap();
        let ids = found.iter().map(|it| (it.number, it.sandbox_id.clone().unwrap()));
        ids.collect::<Vec<_>>()
    };
    let expected = |events: &[(i64, &str)]| {
        events.iter().map(|(number, id)| (*number, (*id).to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(read(0).await, expected(&[(1, "sbx-1"), (2, "sbx-2")]));
    next.commit().await.unwrap();
    lost.rollback().await.unwrap();
    assert_eq!(read(2).await, expected(&[(3, "sbx-long")]));
    insert_in_transaction(&catalog, "sbx-3", &[EventKind::SandboxRunning]).await;
    long.commit().await.unwrap();
    // Read in one publication: by the order of their insertion.
    assert_eq!(read(3).await.len(), 2);
    assert_eq!(read(0).await.len(), 5);
    assert_eq!(catalog.events().newest().await.unwrap(), 5);
    pool.close().await;
}

pub(crate) async fn limits_hold_for_events_of_transactions(database: TestDatabase) {
    let catalog = database.open().await;
    fill(&database, "alice", "'sbx-1'", 1_000).await;
    let running = [EventKind::SandboxRunning, EventKind::SandboxRunning];
    // Of an owner and of a sandbox: `sbx-1` belongs to the owner of `new_sandbox`.
    insert_in_transaction(&catalog, "sbx-1", &running).await;
    insert_in_transaction(&catalog, "sbx-2", &running).await;
    let all = EventFilter::default();
    assert!(numbers(&catalog, &all, 0).await.into_iter().eq(3..=1_004));
    assert_eq!(catalog.events().read(&of_owner("alice"), 0, 1).await.unwrap().last_deleted, 2);
    assert_eq!(catalog.events().delete_before(i64::MAX).await.unwrap(), 1_002);
    assert_eq!(catalog.events().newest().await.unwrap(), 1_004);
}

pub(crate) async fn insertions_of_other_processes_wake_subscribers(database: TestDatabase) {
    let (writer, reader) = (database.open().await, database.open().await);
    if !writer.can_be_shared() {
        return;
    }
    let mut inserted = reader.events().subscribe();
    // The reader may not be connected yet, so the writer goes on until it is woken.
    let mut number = 0;
    let woken = async {
        while tokio::time::timeout(std::time::Duration::from_millis(200), inserted.changed()).await.is_err() {
            number += 1;
            insert_in_transaction(&writer, &format!("sbx-{number}"), &[EventKind::SandboxRunning]).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), woken).await.expect("the reader is woken");
    assert_eq!(reader.events().newest().await.unwrap(), number);
}

/// A server of an earlier version, which numbers events in its transactions, may share the database.
pub(crate) async fn numbers_of_an_earlier_version_go_on(database: TestDatabase) {
    let catalog = database.open().await;
    insert_in_transaction(&catalog, "sbx-1", &[EventKind::SandboxRunning]).await;
    assert_eq!(catalog.events().newest().await.unwrap(), 1);
    fill_more(&database, 2).await;
    insert_in_transaction(&catalog, "sbx-2", &[EventKind::SandboxRunning]).await;
    assert_eq!(numbers(&catalog, &EventFilter::default(), 0).await, [1, 2, 3]);
}

/// Inserts the event with a number, as a server of an earlier version does.
async fn fill_more(database: &TestDatabase, number: i64) {
    database.tamper(&format!("UPDATE event_sequence SET last = {number}")).await;
    let insert = format!(
        "INSERT INTO events (sequence, type, owner, sandbox_id, data, created_at)
         VALUES ({number}, 'sandbox.running', 'alice', 'sbx-0', '{{}}', 1)"
    );
    database.tamper(&insert).await;
    database.tamper("UPDATE event_owners SET events = events + 1 WHERE owner = 'alice'").await;
}
