use serde_json::json;
use workspace_catalog::{
    COMMAND_SHOWN_MAX, CatalogError, Change, Filter, IdempotencyClaim, NewCommand, NewSandbox,
};

use super::{insert, new_sandbox};
use crate::test_database::TestDatabase;

const HOSTILE: &[&str] = &[
    "'; DROP TABLE sandboxes; --",
    "\" OR \"1\"=\"1",
    "$1 ?1 :name @name %s {}",
    "\\' \\x00 \\",
    "line\nbreak\ttab\r\u{1b}[31m",
    "\u{feff}\u{202e}𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \u{10ffff}",
    "",
];

pub(crate) async fn hostile_text_round_trips(database: TestDatabase) {
    let catalog = database.open().await;
    for text in HOSTILE {
        let text = (*text).to_owned();
        let new = NewSandbox {
            id: format!("sbx-{text}"),
            name: Some(text.clone()),
            owner: text.clone(),
            workspace_path: text.clone(),
            labels: [(text.clone(), text.clone())].into(),
            config: json!({ text.clone(): [text.clone(), "\0"] }),
            ..new_sandbox("")
        };
        let sandbox = insert(&catalog, new).await;
        let reason = Change { state_reason: Some(text.clone()), ..Change::default() };
        let (version, no_events) = (1, &[]);
        let changed = catalog.sandboxes().change(&sandbox.id, version, reason, no_events).await.unwrap();
        assert_eq!(changed.state_reason.as_ref(), Some(&text));

        let found = catalog.sandboxes().find(&text, &sandbox.id).await.unwrap();
        assert_eq!(found, Some(changed.clone()), "{text:?}");
        let filter = Filter {
            owner: Some(text.clone()),
            name_prefix: Some(text.clone()),
            labels: changed.labels.clone(),
            ..Filter::default()
        };
        assert_eq!(catalog.sandboxes().list(&filter).await.unwrap(), (vec![changed], 1), "{text:?}");
    }
    let (_, total) = catalog.sandboxes().list(&Filter::default()).await.unwrap();
    assert_eq!(total, HOSTILE.len() as u64);
}

pub(crate) async fn megabyte_texts_round_trip(database: TestDatabase) {
    let catalog = database.open().await;
    let long = "é".repeat(1 << 19);
    let new = NewSandbox {
        name: Some(long.clone()),
        labels: [("long".to_owned(), long.clone())].into(),
        config: json!({ "long": long }),
        ..new_sandbox("sbx-1")
    };
    let sandbox = insert(&catalog, new).await;
    let (name_prefix, labels) = (Some(long.clone()), sandbox.labels.clone());
    let filter = Filter { name_prefix, labels, ..Filter::default() };
    assert_eq!(catalog.sandboxes().list(&filter).await.unwrap(), (vec![sandbox], 1));

    let command = NewCommand {
        id: "cmd-1".to_owned(),
        sandbox_id: "sbx-1".to_owned(),
        command: long.clone(),
        argv: None,
        cwd: None,
        tag: None,
        started_at: 1,
    };
    catalog.commands().insert(&command).await.unwrap();
    let shown = catalog.commands().get("cmd-1").await.unwrap().unwrap().command;
    assert!(long.starts_with(&shown) && shown.len() > COMMAND_SHOWN_MAX - 4, "{}", shown.len());
}

pub(crate) async fn nul_is_rejected_naming_the_field(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    let sandboxes = catalog.sandboxes();
    let bad = || "a\0b".to_owned();
    let reason = Change { state_reason: Some(bad()), ..Change::default() };
    let labels = [("team".to_owned(), bad())].into();
    let claim = IdempotencyClaim { key: bad(), owner: "alice".to_owned(), request_hash: String::new() };
    let filter = Filter { name_prefix: Some(bad()), ..Filter::default() };
    let named = NewSandbox { name: Some(bad()), ..new_sandbox("sbx-2") };
    let owned = NewSandbox { owner: bad(), ..new_sandbox("sbx-2") };
    let labelled = NewSandbox { labels, ..new_sandbox("sbx-2") };
    let (version, no_events) = (1, &[]);
    // Each call with the field that the error names.
    let refused = [
        ("name", sandboxes.insert(&named, no_events).await.err()),
        ("owner", sandboxes.insert(&owned, no_events).await.err()),
        ("label", sandboxes.insert(&labelled, no_events).await.err()),
        ("state_reason", sandboxes.change("sbx-1", version, reason, no_events).await.err()),
        ("id", sandboxes.get(&bad()).await.err()),
        ("owner", sandboxes.find(&bad(), "sbx-1").await.err()),
        ("id", sandboxes.delete(&bad(), no_events).await.err()),
        ("name_prefix", sandboxes.list(&filter).await.err()),
        ("hash", catalog.api_keys().find_by_hash(&bad()).await.err()),
        ("id", catalog.commands().get(&bad()).await.err()),
        ("key", sandboxes.insert_once(&new_sandbox("sbx-2"), &claim, no_events).await.err()),
    ];
    for (expected, error) in refused {
        assert!(
            matches!(error, Some(CatalogError::Nul { field }) if field == expected),
            "{expected}: {error:?}"
        );
    }
    assert_eq!(sandboxes.get("sbx-2").await.unwrap(), None);
    assert_eq!(sandboxes.get("sbx-1").await.unwrap().unwrap().version, 1);
}
