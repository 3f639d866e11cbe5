//! Tests of projects as agents see them: numbers of changes, and ids of files.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use serde_json::json;

use crate::fixture::Fixture;

/// Creates a project with a hidden file.
async fn project_with_a_secret() -> Fixture {
    let mut fixture = Fixture::new(&[("a.txt", "1\n"), ("secret/key", "1\n")]).await;
    fixture.set_policy(json!({"rules": [{"path": "secret/**", "access": "none"}]})).await;
    fixture
}

/// Polls a future, and drops it when it waits for the time after `waits`. Returns `None` if it was dropped.
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

#[tokio::test]
async fn numbers_of_an_agent_stay_right_when_requests_for_them_are_dropped() {
    let mut fixture = project_with_a_secret().await;
    fixture.import(&[("a.txt", "1\n"), ("secret/key", "2\n")]).await;
    fixture.import(&[("a.txt", "2\n"), ("secret/key", "2\n")]).await;
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

#[tokio::test]
async fn the_id_of_a_file_with_more_versions_than_are_read_stays() {
    let mut fixture = project_with_a_secret().await;
    let mut ids = Vec::new();
    for round in 2..6 {
        fixture.import(&[("a.txt", &format!("{round}\n")), ("secret/key", "1\n")]).await;
        let view = fixture.projects.agent_view(&fixture.project, "agent").await.unwrap();
        let found = fixture.projects.agent_versions(&view, b"a.txt", 2).await.unwrap();
        let numbers: Vec<i64> = found.iter().map(|version| version.sequence).collect();
        assert_eq!(numbers, [round, round - 1]);
        ids.extend(found.into_iter().map(|version| version.version.file_id));
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
}
