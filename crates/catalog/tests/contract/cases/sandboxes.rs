use serde_json::json;
use workspace_catalog::{
    CatalogError, EventKind, Filter, NewCommand, NewSandbox, PAGE_SIZE_MAX, Sandbox, State, VisibleState,
};

use super::{event, ids, insert, new_sandbox, to};
use crate::test_database::TestDatabase;

pub(crate) async fn cursor_neither_repeats_nor_skips(database: TestDatabase) {
    let catalog = database.open().await;
    for (id, created_at) in [("sbx-a", 1), ("sbx-b", 2), ("sbx-c", 2), ("sbx-d", 2), ("sbx-e", 3)] {
        insert(&catalog, NewSandbox { created_at, ..new_sandbox(id) }).await;
    }
    let filter = Filter { owner: Some("alice".to_owned()), limit: 2, ..Filter::default() };
    let first = catalog.sandboxes().list(&filter).await.unwrap().0;
    assert_eq!(ids(&first), ["sbx-e", "sbx-b"]);
    let after =
        |last: &Sandbox| Filter { cursor: Some((last.created_at, last.id.clone())), ..filter.clone() };
    // Newer and removed sandboxes do not shift the next page.
    insert(&catalog, NewSandbox { created_at: 4, ..new_sandbox("sbx-f") }).await;
    catalog.sandboxes().delete("sbx-b", &[]).await.unwrap();
    let (second, total) = catalog.sandboxes().list(&after(&first[1])).await.unwrap();
    assert_eq!((ids(&second), total), (vec!["sbx-c", "sbx-d"], 5));
    let third = catalog.sandboxes().list(&after(&second[1])).await.unwrap().0;
    assert_eq!(ids(&third), ["sbx-a"]);
    assert!(catalog.sandboxes().list(&after(&third[0])).await.unwrap().0.is_empty());
}

pub(crate) async fn inserted_sandbox_is_read_back(database: TestDatabase) {
    let catalog = database.open().await;
    let new = NewSandbox {
        name: Some("first".to_owned()),
        labels: [("team".to_owned(), "red".to_owned())].into(),
        config: json!({ "envs": { "A": "1" }, "limits": [1, 2.5, null, true] }),
        ..new_sandbox("sbx-1")
    };
    let created = event(EventKind::SandboxCreated);
    let sandbox = catalog.sandboxes().insert(&new, std::slice::from_ref(&created)).await.unwrap();
    assert_eq!((sandbox.state, sandbox.version), (State::Starting, 1));
    assert_eq!(sandbox.labels, new.labels);
    assert_eq!(sandbox.config, new.config);
    assert_eq!(catalog.sandboxes().get("sbx-1").await.unwrap(), Some(sandbox));
    assert_eq!(catalog.sandboxes().get("sbx-2").await.unwrap(), None);

    let events = catalog.events().after(0, 10).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].kind.as_str(), events[0].sandbox_id.as_deref()),
        (created.kind.as_str(), Some("sbx-1"))
    );
    assert_eq!(events[0].owner.as_deref(), Some("alice"));
}

pub(crate) async fn duplicate_id_is_rejected(database: TestDatabase) {
    let catalog = database.open().await;
    let first = insert(&catalog, new_sandbox("sbx-1")).await;
    let again = NewSandbox { owner: "bob".to_owned(), ..new_sandbox("sbx-1") };
    let created = event(EventKind::SandboxCreated);
    let error = catalog.sandboxes().insert(&again, std::slice::from_ref(&created)).await.unwrap_err();
    assert!(matches!(&error, CatalogError::Exists { what: "sandbox", id } if id == "sbx-1"), "{error}");
    assert_eq!(catalog.sandboxes().get("sbx-1").await.unwrap(), Some(first));
    assert_eq!(catalog.events().after(0, 10).await.unwrap(), []);
}

pub(crate) async fn sandboxes_of_other_owners_are_not_found(database: TestDatabase) {
    let catalog = database.open().await;
    let alices = insert(&catalog, new_sandbox("sbx-1")).await;
    insert(&catalog, NewSandbox { owner: "bob".to_owned(), ..new_sandbox("sbx-2") }).await;
    assert_eq!(catalog.sandboxes().find("alice", "sbx-1").await.unwrap(), Some(alices));
    assert_eq!(catalog.sandboxes().find("alice", "sbx-2").await.unwrap(), None);
    assert_eq!(catalog.sandboxes().find("", "sbx-2").await.unwrap(), None);
    assert_eq!(catalog.sandboxes().find("ALICE", "sbx-1").await.unwrap(), None);

    let filter = Filter { owner: Some("alice".to_owned()), ..Filter::default() };
    let (found, total) = catalog.sandboxes().list(&filter).await.unwrap();
    assert_eq!((ids(&found), total), (vec!["sbx-1"], 1));
}

pub(crate) async fn pages_list_every_sandbox_once_newest_first(database: TestDatabase) {
    let catalog = database.open().await;
    let mut expected = Vec::new();
    for n in 0..7 {
        // Two of each age: equal ages need an order too.
        insert(&catalog, NewSandbox { created_at: 1_000 - n / 2, ..new_sandbox(&format!("sbx-{n}")) }).await;
        expected.push(format!("sbx-{n}"));
    }
    let mut seen = Vec::new();
    for page in 1..=4 {
        let filter = Filter { page, limit: 3, ..Filter::default() };
        let (found, total) = catalog.sandboxes().list(&filter).await.unwrap();
        assert_eq!(total, 7);
        assert_eq!(found.len(), [3, 3, 1, 0][page as usize - 1]);
        seen.extend(found.into_iter().map(|it| it.id));
    }
    assert_eq!(seen, expected);

    // Values out of range are clamped.
    for (page, limit, length) in [(0, 3, 3), (1, 0, 1), (1, u32::MAX, 7), (u32::MAX, PAGE_SIZE_MAX, 0)] {
        let filter = Filter { page, limit, ..Filter::default() };
        let (found, _) = catalog.sandboxes().list(&filter).await.unwrap();
        assert_eq!(found.len(), length, "page {page} of {limit}");
    }
}

pub(crate) async fn filters_restrict_lists(database: TestDatabase) {
    let catalog = database.open().await;
    for (id, owner, name) in [
        ("sbx-1", "alice", "web-a"),
        ("sbx-2", "alice", "web-b"),
        ("sbx-3", "alice", "job"),
        ("sbx-4", "bob", "web-c"),
    ] {
        let (owner, name) = (owner.to_owned(), Some(name.to_owned()));
        insert(&catalog, NewSandbox { owner, name, ..new_sandbox(id) }).await;
    }
    insert(&catalog, new_sandbox("sbx-5")).await;
    catalog.sandboxes().change("sbx-2", 1, to(State::Running), &[]).await.unwrap();

    let owner = Some("alice".to_owned());
    let name_prefix = Some("web-".to_owned());
    let state = Some(VisibleState::Starting);
    for (filter, expected) in [
        (Filter::default(), vec!["sbx-1", "sbx-2", "sbx-3", "sbx-4", "sbx-5"]),
        (Filter { name_prefix: name_prefix.clone(), ..Filter::default() }, vec!["sbx-1", "sbx-2", "sbx-4"]),
        (Filter { state: Some(VisibleState::Running), ..Filter::default() }, vec!["sbx-2"]),
        (Filter { state: Some(VisibleState::Error), ..Filter::default() }, vec![]),
        (Filter { owner, name_prefix, state, ..Filter::default() }, vec!["sbx-1"]),
    ] {
        let (found, total) = catalog.sandboxes().list(&filter).await.unwrap();
        assert_eq!((ids(&found), total), (expected.clone(), expected.len() as u64), "{filter:?}");
    }
}

pub(crate) async fn name_prefix_is_literal(database: TestDatabase) {
    let catalog = database.open().await;
    for (id, name) in
        [("sbx-1", "a%b"), ("sbx-2", "axb"), ("sbx-3", "A%b"), ("sbx-4", "a_b"), ("sbx-5", "größe")]
    {
        insert(&catalog, NewSandbox { name: Some(name.to_owned()), ..new_sandbox(id) }).await;
    }
    for (prefix, expected) in [
        ("a%", vec!["sbx-1"]),
        ("a_", vec!["sbx-4"]),
        ("A", vec!["sbx-3"]),
        ("größ", vec!["sbx-5"]),
        ("gro", vec![]),
        ("a%b and more", vec![]),
        ("", vec!["sbx-1", "sbx-2", "sbx-3", "sbx-4", "sbx-5"]),
    ] {
        let filter = Filter { name_prefix: Some(prefix.to_owned()), ..Filter::default() };
        let (found, _) = catalog.sandboxes().list(&filter).await.unwrap();
        assert_eq!(ids(&found), expected, "{prefix:?}");
    }
}

pub(crate) async fn find_named_returns_the_newest_sandbox(database: TestDatabase) {
    let catalog = database.open().await;
    for (id, owner, created_at) in
        [("sbx-1", "alice", 1_000), ("sbx-2", "alice", 2_000), ("sbx-3", "bob", 3_000)]
    {
        let (owner, name) = (owner.to_owned(), Some("work".to_owned()));
        insert(&catalog, NewSandbox { owner, name, created_at, ..new_sandbox(id) }).await;
    }
    let found = async |owner: &str, name: &str| catalog.sandboxes().find_named(owner, name).await.unwrap();
    assert_eq!(found("alice", "work").await.as_deref(), Some("sbx-2"));
    assert_eq!(found("bob", "work").await.as_deref(), Some("sbx-3"));
    assert_eq!(found("alice", "wor").await, None);
    assert_eq!(found("carol", "work").await, None);
}

/// Each task has its own catalog, as a server would.
pub(crate) async fn unique_name_is_given_once_under_concurrency(database: TestDatabase) {
    let named = |id: String, owner: &str, unique_name: bool| {
        let (owner, name) = (owner.to_owned(), Some("work".to_owned()));
        NewSandbox { owner, name, unique_name, ..new_sandbox(&id) }
    };
    let mut tasks = Vec::new();
    for n in 0..6 {
        let catalog = database.open().await;
        let new = named(format!("sbx-{n}"), "alice", true);
        tasks.push(tokio::spawn(async move { catalog.sandboxes().insert(&new, &[]).await }));
    }
    let mut made = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(sandbox) => made.push(sandbox.id),
            Err(error) => {
                assert!(matches!(&error, CatalogError::NameTaken { name } if name == "work"), "{error}");
            }
        }
    }
    assert_eq!(made.len(), 1, "{made:?}");

    let catalog = database.open().await;
    // Other owners, and sandboxes without the flag, may use the name.
    insert(&catalog, named("sbx-bob".to_owned(), "bob", true)).await;
    insert(&catalog, named("sbx-too".to_owned(), "alice", false)).await;
    // The name is free again after its sandbox is deleted.
    assert!(catalog.sandboxes().delete(&made[0], &[]).await.unwrap());
    insert(&catalog, named("sbx-next".to_owned(), "alice", true)).await;
}

pub(crate) async fn label_filters_are_conjunctive(database: TestDatabase) {
    let catalog = database.open().await;
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    for (id, pairs) in [
        ("sbx-1", vec![("team", "red"), ("kind", "test")]),
        ("sbx-2", vec![("team", "red"), ("kind", "it's \"quoted\"")]),
        ("sbx-3", vec![("red", "team")]),
        ("sbx-4", vec![]),
    ] {
        insert(&catalog, NewSandbox { labels: labels(&pairs), ..new_sandbox(id) }).await;
    }
    for (pairs, expected) in [
        (vec![("team", "red")], vec!["sbx-1", "sbx-2"]),
        (vec![("team", "red"), ("kind", "test")], vec!["sbx-1"]),
        (vec![("kind", "it's \"quoted\"")], vec!["sbx-2"]),
        (vec![("team", "re")], vec![]),
        (vec![("team", "red"), ("absent", "")], vec![]),
    ] {
        let filter = Filter { labels: labels(&pairs), ..Filter::default() };
        let (found, total) = catalog.sandboxes().list(&filter).await.unwrap();
        assert_eq!((ids(&found), total), (expected.clone(), expected.len() as u64), "{pairs:?}");
    }
}

pub(crate) async fn expired_sandboxes_are_listed(database: TestDatabase) {
    let catalog = database.open().await;
    for (id, expires_at) in [("sbx-1", 3_000), ("sbx-2", 1_000), ("sbx-3", 2_000)] {
        insert(&catalog, NewSandbox { expires_at, ..new_sandbox(id) }).await;
    }
    for (now, expected) in
        [(999, vec![]), (2_000, vec!["sbx-2", "sbx-3"]), (i64::MAX, vec!["sbx-2", "sbx-3", "sbx-1"])]
    {
        assert_eq!(ids(&catalog.sandboxes().expired("here", now).await.unwrap()), expected, "at {now}");
    }
}

pub(crate) async fn delete_removes_commands_and_labels(database: TestDatabase) {
    let catalog = database.open().await;
    let labels: std::collections::BTreeMap<_, _> = [("team".to_owned(), "red".to_owned())].into();
    insert(&catalog, NewSandbox { labels: labels.clone(), ..new_sandbox("sbx-1") }).await;
    let command = NewCommand {
        id: "cmd-1".to_owned(),
        sandbox_id: "sbx-1".to_owned(),
        command: "true".to_owned(),
        argv: None,
        cwd: None,
        tag: None,
        started_at: 1,
    };
    catalog.commands().insert(&command).await.unwrap();

    let deleted = event(EventKind::SandboxDeleted);
    assert!(catalog.sandboxes().delete("sbx-1", std::slice::from_ref(&deleted)).await.unwrap());
    assert!(!catalog.sandboxes().delete("sbx-1", std::slice::from_ref(&deleted)).await.unwrap());
    assert_eq!(catalog.sandboxes().get("sbx-1").await.unwrap(), None);
    assert_eq!(catalog.commands().get("cmd-1").await.unwrap(), None);
    assert_eq!(catalog.events().after(0, 10).await.unwrap().len(), 1);

    // The labels are deleted too: a new sandbox with this id has none.
    insert(&catalog, new_sandbox("sbx-1")).await;
    let (found, _) = catalog.sandboxes().list(&Filter { labels, ..Filter::default() }).await.unwrap();
    assert_eq!(found, []);
}

pub(crate) async fn sandboxes_are_counted_by_state(database: TestDatabase) {
    let catalog = database.open().await;
    for id in ["sbx-1", "sbx-2", "sbx-3"] {
        insert(&catalog, new_sandbox(id)).await;
    }
    catalog.sandboxes().change("sbx-2", 1, to(State::Running), &[]).await.unwrap();
    let counts = catalog.sandboxes().count_by_state("here").await.unwrap();
    let of = |wanted: VisibleState| counts.iter().find(|(state, _)| *state == wanted).unwrap().1;
    assert_eq!((of(VisibleState::Starting), of(VisibleState::Running), of(VisibleState::Error)), (2, 1, 0));
}

pub(crate) async fn queries_are_limited_to_the_server(database: TestDatabase) {
    let catalog = database.open().await;
    let of = |server: &str, id: &str| NewSandbox { server: server.to_owned(), ..new_sandbox(id) };
    for new in [of("here", "sbx-1"), of("there", "sbx-2"), of("", "sbx-3")] {
        insert(&catalog, new).await;
    }
    let sandboxes = catalog.sandboxes();
    for (server, expected) in [("here", vec!["sbx-1"]), ("there", vec!["sbx-2"]), ("nowhere", vec![])] {
        assert_eq!(ids(&sandboxes.all(server).await.unwrap()), expected);
        assert_eq!(ids(&sandboxes.expired(server, i64::MAX).await.unwrap()), expected);
        let counted: u64 =
            sandboxes.count_by_state(server).await.unwrap().iter().map(|(_, count)| count).sum();
        assert_eq!(counted, expected.len() as u64);
    }
    let owner = new_sandbox("").owner;
    assert_eq!(sandboxes.count_for_quota("here", &owner).await.unwrap(), (1, 3));
    assert_eq!(sandboxes.count_for_quota("here", "nobody").await.unwrap(), (1, 0));
    // A sandbox without a server is adopted by the first one that asks.
    assert_eq!(sandboxes.adopt("there").await.unwrap(), 1);
    assert_eq!(sandboxes.adopt("here").await.unwrap(), 0);
    assert_eq!(ids(&sandboxes.all("there").await.unwrap()), ["sbx-2", "sbx-3"]);
}

pub(crate) async fn servers_are_looked_up_in_bulk_by_owner(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, NewSandbox { owner: "alice".to_owned(), ..new_sandbox("sbx-1") }).await;
    insert(
        &catalog,
        NewSandbox { owner: "bob".to_owned(), server: "there".to_owned(), ..new_sandbox("sbx-2") },
    )
    .await;
    let ids: Vec<String> = (0..1_200).rev().map(|number| format!("sbx-{number}")).collect();
    let servers = async |owner: Option<&'static str>| {
        let mut found: Vec<_> = catalog.sandboxes().servers(owner, &ids).await.unwrap().into_iter().collect();
        found.sort();
        found
    };
    let pair = |id: &str, server: &str| (id.to_owned(), server.to_owned());
    let own = pair("sbx-1", &new_sandbox("sbx-1").server);
    assert_eq!(servers(None).await, [own.clone(), pair("sbx-2", "there")]);
    assert_eq!(servers(Some("alice")).await, [own]);
    assert_eq!(servers(Some("carol")).await, []);
}
