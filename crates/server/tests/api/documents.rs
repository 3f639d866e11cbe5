//! Generated documents, and the stability of error codes.

use std::path::Path;

use serde_json::Value;
use workspace_api::error_codes::{ErrorCode, RANGES, TABLE};

fn checked_in(name: &str) -> String {
    std::fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).join(name)).unwrap()
}

#[test]
fn generated_documents_are_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    workspace_server::write_generated_docs(directory.path()).unwrap();
    for name in ["settings.md", "errors.md", "openapi.json"] {
        let fresh = std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(fresh == checked_in(name), "docs/{name} is out of date: run `make generate`");
    }
}

#[test]
fn the_description_is_openapi_3_1_with_one_form_of_errors() {
    let description: Value = serde_json::from_str(&checked_in("openapi.json")).unwrap();
    assert_eq!(description["openapi"], "3.1.0");
    let mut ids = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let error = &operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"];
            assert_eq!(error, "#/components/schemas/ErrorBody", "{method} {path}");
            assert!(operation["summary"].is_string(), "{method} {path}");
            ids.push(operation["operationId"].clone());
        }
    }
    let count = ids.len();
    ids.sort_by_key(ToString::to_string);
    ids.dedup();
    assert_eq!(ids.len(), count, "operation ids are unique");
}

#[test]
fn error_numbers_are_unique_and_in_a_range() {
    assert!(TABLE.is_sorted_by(|one, next| one.number < next.number));
    for code in TABLE {
        assert!(RANGES.iter().any(|(from, to, _)| (*from..=*to).contains(&code.number)), "{}", code.name);
        assert!((400..600).contains(&code.status), "{}", code.name);
    }
}

/// Number, name and status of all published errors. Add lines, but never change one.
const FROZEN: &str = include_str!("errors.txt");

#[test]
fn errors_never_change() {
    let row = |code: &ErrorCode| format!("{} {} {}\n", code.number, code.name, code.status);
    let table: String = TABLE.iter().map(row).collect();
    assert_eq!(table, FROZEN);
}
