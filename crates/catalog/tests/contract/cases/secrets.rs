use crate::test_database::TestDatabase;

pub(crate) async fn first_secret_is_kept(database: TestDatabase) {
    let catalog = database.open().await;
    let secrets = catalog.secrets();
    assert_eq!(secrets.get_or_insert("tokens", "one").await.unwrap(), "one");
    assert_eq!(secrets.get_or_insert("tokens", "two").await.unwrap(), "one");
    assert_eq!(secrets.get_or_insert("others", "two").await.unwrap(), "two");
    catalog.close().await;
    let again = database.open().await;
    assert_eq!(again.secrets().get_or_insert("tokens", "three").await.unwrap(), "one");
}

/// Every task has its own catalog, as another server would.
pub(crate) async fn concurrent_servers_share_one_secret(database: TestDatabase) {
    let mut tasks = Vec::new();
    for n in 0..8 {
        let catalog = database.open().await;
        tasks.push(tokio::spawn(async move {
            let secret = catalog.secrets().get_or_insert("tokens", &format!("secret {n}")).await.unwrap();
            catalog.close().await;
            secret
        }));
    }
    let mut secrets = Vec::new();
    for task in tasks {
        secrets.push(task.await.unwrap());
    }
    assert!(secrets.iter().all(|secret| *secret == secrets[0]), "{secrets:?}");
}
