//! Tests of projects as agents see them: an agent counts only the changes that it can see (the number of a change), and
//! gets its own ids of files. The sequence of a change counts all changes of the project.
//!
//! Helpers of `Fixture`: `set_policy` replaces the policy of the project, and `replace_files` all of its files in one
//! change.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use serde_json::json;

use crate::database::DatabaseKind;
use crate::fixture::Fixture;

/// Creates a project with a hidden file.
async fn project_with_hidden_file(database: DatabaseKind) -> Fixture {
    let mut fixture = Fixture::new(database, &[("a.txt", "1\n"), ("secret/key", "1\n")]).await;
    fixture.set_policy(json!({"rules": [{"path": "secret/**", "access": "none"}]})).await;
    fixture
}

/// Polls a future. Drops it, and returns `None`, if it is still pending after `waits` more polls.
async fn drop_after<F: Future>(future: F, waits: usize) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), waits);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

pub(crate) async fn change_numbers_of_an_agent_stay_correct_when_requests_are_dropped(
    database: DatabaseKind,
) {
    let mut fixture = project_with_hidden_file(database).await;
    fixture.replace_files(&[("a.txt", "1\n"), ("secret/key", "2\n")]).await;
    fixture.replace_files(&[("a.txt", "2\n"), ("secret/key", "2\n")]).await;
    let mut waits = 0;
    let view = loop {
        match drop_after(fixture.projects.agent_view(&fixture.project, "agent"), waits).await {
            Some(view) => break view.unwrap(),
            None => waits += 1,
        }
    };
    assert!(waits > 0, "no request was dropped");
    assert_eq!(view.sequence(), 2);
    assert_eq!([1, 2, 3].map(|number| view.sequence_of(number)), [Some(1), Some(3), None]);
}

pub(crate) async fn a_file_keeps_its_id_if_it_has_more_versions_than_are_returned(database: DatabaseKind) {
    let mut fixture = project_with_hidden_file(database).await;
    let mut ids = Vec::new();
    for round in 2..6 {
        fixture.replace_files(&[("a.txt", &format!("{round}\n")), ("secret/key", "1\n")]).await;
        let view = fixture.projects.agent_view(&fixture.project, "agent").await.unwrap();
        let found = fixture.projects.agent_versions(&view, b"a.txt", 2).await.unwrap();
        let numbers: Vec<i64> = found.iter().map(|version| version.sequence).collect();
        assert_eq!(numbers, [round, round - 1]);
        ids.extend(found.into_iter().map(|version| version.version.file_id));
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    // It has the same form as for agents that see all files.
    let digits = ids[0].strip_prefix("file-").unwrap();
    assert!(digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{ids:?}");
}
