use crate::test_database::TestDatabase;

const HOUR: i64 = 3_600_000;

pub(crate) async fn lease_has_one_holder_until_it_ends(database: TestDatabase) {
    let catalog = database.open().await;
    let leases = catalog.leases();
    let first = leases.acquire("projects/1", "one", HOUR).await.unwrap().unwrap();
    assert_eq!((first.server.as_str(), first.epoch), ("one", 1));
    for server in ["one", "two"] {
        assert_eq!(leases.acquire("projects/1", server, HOUR).await.unwrap(), None);
    }
    assert_eq!(leases.acquire("projects/2", "two", HOUR).await.unwrap().unwrap().epoch, 1);

    // A lease that has ended is renewed, unless somebody else has taken it over.
    let ended = leases.renew(&first, 0).await.unwrap().unwrap();
    let renewed = leases.renew(&ended, HOUR).await.unwrap().unwrap();
    assert_eq!((renewed.epoch, renewed.until > ended.until), (1, true));
    leases.renew(&renewed, 0).await.unwrap().unwrap();
    let second = leases.acquire("projects/1", "two", HOUR).await.unwrap().unwrap();
    assert_eq!((second.server.as_str(), second.epoch), ("two", 2));
    assert_eq!(leases.renew(&renewed, HOUR).await.unwrap(), None);
    leases.release(&renewed).await.unwrap();
    assert_eq!(leases.acquire("projects/1", "one", HOUR).await.unwrap(), None);

    leases.release(&second).await.unwrap();
    assert_eq!(leases.renew(&second, HOUR).await.unwrap(), None);
    assert_eq!(leases.acquire("projects/1", "one", HOUR).await.unwrap().unwrap().epoch, 3);
}

pub(crate) async fn concurrent_servers_acquire_a_lease_once(database: TestDatabase) {
    let (one, two) = (database.open().await, database.open().await);
    for round in 1..=3 {
        let tasks: Vec<_> = (0..10)
            .map(|n| {
                let catalog = if n % 2 == 0 { one.clone() } else { two.clone() };
                tokio::spawn(async move {
                    catalog.leases().acquire("projects/1", &n.to_string(), HOUR).await.unwrap()
                })
            })
            .collect();
        let mut acquired = Vec::new();
        for task in tasks {
            acquired.extend(task.await.unwrap());
        }
        assert_eq!(acquired.iter().map(|lease| lease.epoch).collect::<Vec<_>>(), [round]);
        one.leases().release(&acquired[0]).await.unwrap();
    }
}
