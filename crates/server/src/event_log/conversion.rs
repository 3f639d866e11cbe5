//! Conversion of events of the catalog into events of the API.

use serde_json::Value;
use workspace_api::event_log::{Event, EventData, EventGap};

use crate::error::ApiError;
use crate::time::format_millis;

/// Converts an event. `id` is the one under which the reader sees it.
pub(super) fn event_to_api(event: workspace_catalog::Event, id: u64) -> Result<Event, ApiError> {
    Ok(Event {
        id,
        kind: event.kind,
        time: format_millis(event.created_at)?,
        owner: event.owner,
        sandbox_id: event.sandbox_id,
        data: data_to_api(&event.data)?,
    })
}

/// Converts the payload of an event. Its times are milliseconds since 1970.
fn data_to_api(data: &Value) -> Result<EventData, ApiError> {
    let text = |name: &str| data[name].as_str().map(str::to_owned);
    let time = |name: &str| data[name].as_i64().map(format_millis).transpose();
    Ok(EventData {
        name: text("name"),
        state: text("state"),
        reason: text("reason"),
        template: text("template"),
        project: text("project"),
        project_id: text("projectId"),
        created_at: time("createdAt")?,
        expires_at: time("expiresAt")?,
        snapshot_id: text("snapshotId"),
        bytes: data["bytes"].as_u64(),
        sequence: data["sequence"].as_u64(),
        policy_version: data["policyVersion"].as_u64(),
        agent: text("agent"),
        completion_id: text("completionId"),
        review_id: text("reviewId"),
        escalated_to: text("escalatedTo"),
        by: text("by"),
        choice: text("choice"),
        conflicts: serde_json::from_value(data["conflicts"].clone()).unwrap_or_default(),
        reverted: serde_json::from_value(data["reverted"].clone()).unwrap_or_default(),
    })
}

/// Returns the gap for a reader that has the events up to `after`; `None` unless the last deleted event is a later one.
pub(super) fn gap(after: i64, last_deleted: i64) -> Option<EventGap> {
    let missed = || EventGap { from: event_id(after.saturating_add(1)), to: event_id(last_deleted) };
    (last_deleted > after).then(missed)
}

/// Converts the number of an event, which is never negative, into its id in the API.
pub(super) fn event_id(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(data: Value) -> workspace_catalog::Event {
        workspace_catalog::Event {
            number: 17,
            kind: "sandbox.created".to_owned(),
            owner: Some("alice".to_owned()),
            sandbox_id: None,
            data,
            created_at: 1_000,
        }
    }

    #[test]
    fn payloads_lose_nulls_and_unknown_fields_and_get_readable_times() {
        let data = json!({
            "name": null, "state": "running", "createdAt": 0, "expiresAt": 61_000, "sandboxId": "sbx-1", "more": [1],
        });
        let converted = serde_json::to_value(event_to_api(event(data), 17).unwrap()).unwrap();
        let expected = json!({
            "id": 17,
            "type": "sandbox.created",
            "time": "1970-01-01T00:00:01.000Z",
            "owner": "alice",
            "data": {
                "state": "running",
                "createdAt": "1970-01-01T00:00:00.000Z",
                "expiresAt": "1970-01-01T00:01:01.000Z",
            },
        });
        assert_eq!(converted, expected);
        for odd in [json!(null), json!([]), json!("x"), json!({"name": 1, "bytes": -1})] {
            assert_eq!(event_to_api(event(odd.clone()), 17).unwrap().data, EventData::default(), "{odd}");
        }
    }

    #[test]
    fn events_of_projects_have_the_id_of_the_project() {
        let data = json!({"project": "website", "projectId": "prj-1", "sequence": 2, "previousSequence": 1});
        let converted = serde_json::to_value(event_to_api(event(data), 17).unwrap().data).unwrap();
        assert_eq!(converted, json!({"project": "website", "projectId": "prj-1", "sequence": 2}));
    }

    #[test]
    fn reviews_say_by_whom_they_were_decided_and_to_whom_they_were_escalated() {
        let data = json!({"reviewId": "rev-1", "by": "lead", "choice": "theirs", "escalatedTo": "boss", "path": "a"});
        let converted = serde_json::to_value(event_to_api(event(data), 17).unwrap().data).unwrap();
        let expected = json!({"reviewId": "rev-1", "by": "lead", "choice": "theirs", "escalatedTo": "boss"});
        assert_eq!(converted, expected);
    }

    #[test]
    fn only_a_reader_behind_deleted_events_has_a_gap() {
        assert_eq!(gap(3, 7), Some(EventGap { from: 4, to: 7 }));
        for (after, last_deleted) in [(7, 7), (8, 7), (0, 0), (i64::MAX, i64::MAX)] {
            assert_eq!(gap(after, last_deleted), None);
        }
    }
}
