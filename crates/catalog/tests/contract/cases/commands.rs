use workspace_catalog::{
    COMMAND_SHOWN_MAX, CatalogError, CommandEnd, CommandInsertion, CommandState, IdempotencyClaim, NewCommand,
};

use super::{insert, new_sandbox};
use crate::test_database::TestDatabase;

/// Undoes the migration that added arguments, tags and PIDs.
pub(crate) async fn remove_arguments(database: &TestDatabase) {
    for column in ["argv", "tag", "pid"] {
        database.tamper(&format!("ALTER TABLE commands DROP COLUMN {column}")).await;
    }
}

fn command(id: &str) -> NewCommand {
    NewCommand {
        id: id.to_owned(),
        sandbox_id: "sbx-1".to_owned(),
        command: "make test".to_owned(),
        argv: None,
        cwd: Some("/workspace".to_owned()),
        tag: None,
        started_at: 1_000,
    }
}

const END: CommandEnd =
    CommandEnd { exited: true, exit_code: Some(-9), timed_out: true, pid: Some(42), ended_at: 1_500 };

pub(crate) async fn command_ends_once(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    catalog.commands().insert(&command("cmd-1")).await.unwrap();
    let running = catalog.commands().get("cmd-1").await.unwrap().unwrap();
    assert_eq!((running.command.as_str(), running.cwd.as_deref()), ("make test", Some("/workspace")));
    assert_eq!((running.state, running.exit_code, running.ended_at), (CommandState::Running, None, None));
    assert_eq!((running.timed_out, running.pid, running.argv, running.tag), (false, None, None, None));

    catalog.commands().finish("sbx-1", "cmd-1", END).await.unwrap();
    let ended = catalog.commands().get("cmd-1").await.unwrap().unwrap();
    assert_eq!((ended.state, ended.exit_code, ended.ended_at), (CommandState::Exited, Some(-9), Some(1_500)));
    assert_eq!((ended.timed_out, ended.pid), (true, Some(42)));

    let later = CommandEnd { exited: false, exit_code: None, timed_out: false, pid: None, ended_at: 2_000 };
    let error = catalog.commands().finish("sbx-1", "cmd-1", later).await.unwrap_err();
    assert_eq!(error.to_string(), "command `cmd-1` has already ended");
    assert_eq!(catalog.commands().get("cmd-1").await.unwrap(), Some(ended));

    let lost = NewCommand { cwd: None, ..command("cmd-2") };
    catalog.commands().insert(&lost).await.unwrap();
    catalog.commands().finish("sbx-1", "cmd-2", later).await.unwrap();
    let lost = catalog.commands().get("cmd-2").await.unwrap().unwrap();
    assert_eq!((lost.state, lost.exit_code, lost.cwd), (CommandState::Failed, None, None));
}

pub(crate) async fn command_needs_an_existing_sandbox(database: TestDatabase) {
    let catalog = database.open().await;
    let error = catalog.commands().insert(&command("cmd-1")).await.unwrap_err();
    assert!(matches!(&error, CatalogError::NotFound { what: "sandbox", id } if id == "sbx-1"), "{error}");
    let error = catalog.commands().finish("sbx-1", "cmd-1", END).await.unwrap_err();
    assert!(matches!(&error, CatalogError::NotFound { what: "command", .. }), "{error}");

    insert(&catalog, new_sandbox("sbx-1")).await;
    catalog.commands().insert(&command("cmd-1")).await.unwrap();
    let error = catalog.commands().insert(&command("cmd-1")).await.unwrap_err();
    assert!(matches!(&error, CatalogError::Exists { what: "command", .. }), "{error}");
}

/// A guest reports which of its commands ended, and may report anything.
pub(crate) async fn command_is_finished_only_by_its_sandbox(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    insert(&catalog, new_sandbox("sbx-2")).await;
    catalog.commands().insert(&command("cmd-1")).await.unwrap();
    let error = catalog.commands().finish("sbx-2", "cmd-1", END).await.unwrap_err();
    assert!(matches!(&error, CatalogError::NotFound { what: "command", .. }), "{error}");
    assert_eq!(catalog.commands().get("cmd-1").await.unwrap().unwrap().state, CommandState::Running);
    catalog.commands().finish("sbx-1", "cmd-1", END).await.unwrap();
    let error = catalog.commands().finish("sbx-2", "cmd-1", END).await.unwrap_err();
    assert!(matches!(&error, CatalogError::NotFound { what: "command", .. }), "{error}");
}

fn claim(hash: &str) -> IdempotencyClaim {
    IdempotencyClaim { key: "once".to_owned(), owner: "alice".to_owned(), request_hash: hash.to_owned() }
}

pub(crate) async fn repeated_request_starts_one_command(database: TestDatabase) {
    let catalog = database.open().await;
    let claims = catalog.command_claims();
    let missing = claims.insert(&claim("a"), &command("cmd-1")).await.unwrap_err();
    assert!(matches!(&missing, CatalogError::NotFound { what: "sandbox", .. }), "{missing}");
    insert(&catalog, new_sandbox("sbx-1")).await;
    insert(&catalog, new_sandbox("sbx-2")).await;
    assert_eq!(claims.insert(&claim("a"), &command("cmd-1")).await.unwrap(), CommandInsertion::New);
    let again = claims.insert(&claim("a"), &command("cmd-2")).await.unwrap();
    assert_eq!(again, CommandInsertion::Existing { command_id: "cmd-1".to_owned() });
    assert_eq!(catalog.commands().get("cmd-2").await.unwrap(), None, "a repeated request writes nothing");
    assert_eq!(claims.find(&claim("a"), "sbx-1").await.unwrap().as_deref(), Some("cmd-1"));
    assert_eq!(claims.find(&claim("a"), "sbx-2").await.unwrap(), None, "a key is for one sandbox");
    let other = claims.insert(&claim("b"), &command("cmd-2")).await.unwrap_err();
    assert_eq!(other.to_string(), "idempotency key `once` was used for another request");

    claims.release("sbx-2", "cmd-1").await.unwrap();
    assert_eq!(
        claims.find(&claim("a"), "sbx-1").await.unwrap().as_deref(),
        Some("cmd-1"),
        "another sandbox's"
    );
    claims.release("sbx-1", "cmd-1").await.unwrap();
    assert_eq!(claims.insert(&claim("b"), &command("cmd-2")).await.unwrap(), CommandInsertion::New);
    assert_eq!(claims.delete_before(1_000).await.unwrap(), 0);
    assert_eq!(claims.delete_before(i64::MAX).await.unwrap(), 1);
    claims.insert(&claim("c"), &command("cmd-3")).await.unwrap();
    catalog.sandboxes().delete("sbx-1", &[]).await.unwrap();
    assert_eq!(claims.find(&claim("c"), "sbx-1").await.unwrap(), None, "it goes with its sandbox");
}

pub(crate) async fn concurrent_requests_start_one_command(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    let requests = (0..12).map(|n| {
        let catalog = catalog.clone();
        tokio::spawn(async move {
            catalog.command_claims().insert(&claim("a"), &command(&format!("cmd-{n}"))).await.unwrap()
        })
    });
    let mut new = 0;
    for request in requests.collect::<Vec<_>>() {
        new += usize::from(request.await.unwrap() == CommandInsertion::New);
    }
    assert_eq!((new, catalog.commands().list("sbx-1", None, 100).await.unwrap().len()), (1, 1));
}

pub(crate) async fn commands_are_listed_newest_first(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    insert(&catalog, new_sandbox("sbx-2")).await;
    for (n, sandbox) in [(1, "sbx-1"), (2, "sbx-2"), (3, "sbx-1"), (4, "sbx-1")] {
        let (sandbox_id, started_at) = (sandbox.to_owned(), 1_000 + n);
        let new = NewCommand { sandbox_id, started_at, ..command(&format!("cmd-{n}")) };
        catalog.commands().insert(&new).await.unwrap();
    }
    for (limit, expected) in
        [(100, vec!["cmd-4", "cmd-3", "cmd-1"]), (2, vec!["cmd-4", "cmd-3"]), (0, vec![])]
    {
        let found = catalog.commands().list("sbx-1", None, limit).await.unwrap();
        assert_eq!(found.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), expected);
    }
    assert_eq!(catalog.commands().list("sbx-3", None, 100).await.unwrap(), []);
}

pub(crate) async fn commands_are_listed_by_tag(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    insert(&catalog, new_sandbox("sbx-2")).await;
    for (n, sandbox, tag) in
        [(1, "sbx-1", Some("a")), (2, "sbx-2", Some("a")), (3, "sbx-1", None), (4, "sbx-1", Some("a"))]
    {
        let (sandbox_id, started_at, tag) = (sandbox.to_owned(), n, tag.map(str::to_owned));
        let new = NewCommand { sandbox_id, started_at, tag, ..command(&format!("cmd-{n}")) };
        catalog.commands().insert(&new).await.unwrap();
    }
    for (tag, limit, expected) in
        [("a", 100, vec!["cmd-4", "cmd-1"]), ("a", 1, vec!["cmd-4"]), ("A", 9, vec![])]
    {
        let found = catalog.commands().list("sbx-1", Some(tag), limit).await.unwrap();
        assert_eq!(found.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), expected, "{tag}");
        assert!(found.iter().all(|it| it.tag.as_deref() == Some(tag)));
    }
}

pub(crate) async fn arguments_are_stored_unless_they_are_long(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    let argv = ["", "a b", "'\"\\\n\u{1}\u{1f600}", "[]"].map(str::to_owned).to_vec();
    for (id, text, stored) in [
        ("cmd-1", "x".to_owned(), Some(argv.clone())),
        ("cmd-2", "x".repeat(COMMAND_SHOWN_MAX), Some(argv.clone())),
        ("cmd-3", "x".repeat(COMMAND_SHOWN_MAX + 1), None),
    ] {
        let new = NewCommand { command: text, argv: Some(argv.clone()), ..command(id) };
        catalog.commands().insert(&new).await.unwrap();
        assert_eq!(catalog.commands().get(id).await.unwrap().unwrap().argv, stored, "{id}");
    }
}

pub(crate) async fn long_commands_are_truncated(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    let most = COMMAND_SHOWN_MAX;
    // Text, returned length, whether it is truncated. A character of three bytes may span the limit.
    let cases = [
        ("x".repeat(most), most, false),
        ("x".repeat(most + 1), most, true),
        ("x".repeat(1 << 20), most, true),
        (format!("{}\u{20ac}{}", "x".repeat(most - 1), "y".repeat(1000)), most - 1, true),
        ("\u{1f600}".repeat(100_000), most, true),
    ];
    for (n, (text, ..)) in cases.iter().enumerate() {
        let new =
            NewCommand { command: text.clone(), started_at: -(n as i64), ..command(&format!("cmd-{n}")) };
        catalog.commands().insert(&new).await.unwrap();
    }
    let listed = catalog.commands().list("sbx-1", None, 100).await.unwrap();
    assert_eq!(listed.len(), cases.len());
    for (listed, (text, shown, truncated)) in listed.iter().zip(&cases) {
        assert!(text.starts_with(&listed.command), "{}", listed.id);
        assert_eq!((listed.command.len(), listed.command_truncated), (*shown, *truncated), "{}", listed.id);
        assert_eq!(catalog.commands().get(&listed.id).await.unwrap().as_ref(), Some(listed));
    }
    assert_eq!(catalog.commands().newest_ids("sbx-1", 2).await.unwrap(), ["cmd-0", "cmd-1"]);
}

pub(crate) async fn only_ended_commands_are_deleted(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    insert(&catalog, new_sandbox("sbx-2")).await;
    for n in 0..6 {
        let id = format!("cmd-{n}");
        let new = NewCommand { started_at: n, ..command(&id) };
        catalog.commands().insert(&new).await.unwrap();
        if n != 1 {
            catalog.commands().finish("sbx-1", &id, END).await.unwrap();
        }
    }
    let other = NewCommand { sandbox_id: "sbx-2".to_owned(), ..command("cmd-9") };
    catalog.commands().insert(&other).await.unwrap();
    catalog.commands().finish("sbx-2", "cmd-9", END).await.unwrap();
    let old = async |keep| catalog.commands().old_ended_ids("sbx-1", keep).await.unwrap();
    assert_eq!(old(3).await, ["cmd-2", "cmd-0"]);
    assert!(old(5).await.is_empty());
    let ids = ["cmd-0", "cmd-1", "cmd-none"].map(str::to_owned);
    catalog.commands().delete_ended(&ids).await.unwrap();
    catalog.commands().delete_ended(&[]).await.unwrap();
    assert!(catalog.commands().get("cmd-0").await.unwrap().is_none());
    assert!(catalog.commands().get("cmd-1").await.unwrap().is_some(), "it runs");
    assert_eq!(old(0).await.len(), 4);
}

/// If one write fails, the others succeed, each with its own result.
pub(crate) async fn concurrent_writes_get_their_own_results(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    let writes = (0..60).map(|n| {
        let catalog = catalog.clone();
        tokio::spawn(async move {
            let id = format!("cmd-{n}");
            let sandbox_id = if n % 3 == 0 { "sbx-none" } else { "sbx-1" }.to_owned();
            let inserted = catalog.commands().insert(&NewCommand { sandbox_id, ..command(&id) }).await;
            (inserted, catalog.commands().finish("sbx-1", &id, END).await)
        })
    });
    for (n, write) in writes.collect::<Vec<_>>().into_iter().enumerate() {
        let (inserted, finished) = write.await.unwrap();
        if n % 3 == 0 {
            assert!(matches!(inserted, Err(CatalogError::NotFound { what: "sandbox", .. })), "{inserted:?}");
            assert!(matches!(finished, Err(CatalogError::NotFound { what: "command", .. })), "{finished:?}");
        } else {
            inserted.unwrap();
            finished.unwrap();
        }
    }
    // Acknowledged writes are there after reopening.
    catalog.close().await;
    let listed = database.open().await.commands().list("sbx-1", None, 100).await.unwrap();
    assert_eq!(listed.len(), 40);
    assert!(listed.iter().all(|command| command.state == CommandState::Exited));
    let error = catalog.commands().insert(&command("cmd-late")).await.unwrap_err();
    assert!(matches!(error, CatalogError::Database { .. }), "{error}");
}
