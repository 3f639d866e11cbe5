//! Differences between two trees.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;
use workspace_api::diff::{
    ChangeKind, Diff, DiffQuery, DiffTotals, Difference, DifferenceInsight, DifferenceSide, RiskNote,
};
use workspace_api::error::ErrorBody;
use workspace_api::snapshots::EntryKind;
use workspace_state::{
    self as state, ChangeCode, Difference as TreeDifference, DifferenceKind, Entry, EntryCode, EntryInsight,
    EntrySummary, InsightDiff, Node, Snapshot, Store, StoreError, Totals, Tree, TreePath, diff, insight,
    quote_path,
};

use super::conversion::{check_diff, kind_to_api, octal};
use super::patches::Patches;
use super::tree::open;
use crate::app::App;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::store::with_store;

/// Default number of differences in a response.
pub(crate) const LIMIT_DEFAULT: usize = 1_000;
pub(super) const LIMIT_MAX: usize = 10_000;

/// Returns the first `limit` differences, without insight.
pub(crate) fn plain_diff(from: &Tree, to: &Tree, limit: usize) -> Result<Diff, StoreError> {
    let differences = diff(from, to)?;
    let total = differences.len();
    Ok(Diff {
        version: None,
        from: from.id().to_string(),
        to: to.id().to_string(),
        totals: None,
        notes: None,
        entries: differences.iter().take(limit).map(difference_to_api).collect(),
        total,
        truncated: total > limit,
    })
}

/// Returns the first `limit` differences, with insight. Totals and notes are those of all differences.
pub(crate) fn insight_diff(from: &Tree, to: &Tree, limit: usize) -> Result<Diff, StoreError> {
    let InsightDiff { version, from, to, totals, notes, entries } = insight(from, to)?;
    let total = entries.len();
    Ok(Diff {
        version: Some(version),
        from: from.to_string(),
        to: to.to_string(),
        totals: Some(totals_to_api(totals)),
        notes: Some(notes_to_api(&notes)),
        entries: entries.iter().take(limit).map(insight_to_api).collect(),
        total,
        truncated: total > limit,
    })
}

fn difference_to_api(difference: &TreeDifference) -> Difference {
    let (change, renamed_from) = match &difference.kind {
        DifferenceKind::Added => (ChangeKind::Added, None),
        DifferenceKind::Removed => (ChangeKind::Removed, None),
        DifferenceKind::Modified => (ChangeKind::Modified, None),
        DifferenceKind::TypeChanged => (ChangeKind::TypeChanged, None),
        DifferenceKind::ModeChanged => (ChangeKind::ModeChanged, None),
        DifferenceKind::Renamed { from } => (ChangeKind::Renamed, Some(quote_path(from).into_owned())),
    };
    Difference {
        path: quote_path(&difference.path).into_owned(),
        change,
        renamed_from,
        old: difference.old.as_ref().map(side_to_api),
        new: difference.new.as_ref().map(side_to_api),
        insight: None,
    }
}

fn side_to_api(entry: &Entry) -> DifferenceSide {
    let size = match &entry.node {
        Node::Directory(_) => 0,
        node => node.size(),
    };
    DifferenceSide { kind: kind_to_api(entry.node.kind()), mode: octal(entry.node.mode()), size }
}

fn insight_to_api(entry: &EntryInsight) -> Difference {
    let change = match entry.change {
        ChangeCode::Added => ChangeKind::Added,
        ChangeCode::Removed => ChangeKind::Removed,
        ChangeCode::Modified => ChangeKind::Modified,
        ChangeCode::TypeChanged => ChangeKind::TypeChanged,
        ChangeCode::ModeChanged => ChangeKind::ModeChanged,
        ChangeCode::Renamed => ChangeKind::Renamed,
    };
    Difference {
        path: path_to_api(&entry.path),
        change,
        renamed_from: entry.renamed_from.as_ref().map(path_to_api),
        old: entry.old.map(summary_to_api),
        new: entry.new.map(summary_to_api),
        insight: Some(DifferenceInsight {
            content: entry.content.map(code_name),
            lines_added: entry.lines_added,
            lines_removed: entry.lines_removed,
            too_large: entry.too_large,
            size_change: entry.size_change,
            notes: notes_to_api(&entry.notes),
        }),
    }
}

fn summary_to_api(summary: EntrySummary) -> DifferenceSide {
    let kind = match summary.kind {
        EntryCode::File => EntryKind::File,
        EntryCode::Directory => EntryKind::Directory,
        EntryCode::Symlink => EntryKind::Symlink,
    };
    DifferenceSide { kind, mode: octal(summary.mode), size: summary.size }
}

fn notes_to_api(notes: &[state::RiskNote]) -> Vec<RiskNote> {
    let note = |note: &state::RiskNote| RiskNote {
        code: code_name(note.code),
        line: note.line,
        pattern: note.pattern.map(code_name),
        path: note.path.as_ref().map(path_to_api),
    };
    notes.iter().map(note).collect()
}

fn totals_to_api(totals: Totals) -> DiffTotals {
    DiffTotals {
        added: totals.added,
        removed: totals.removed,
        modified: totals.modified,
        type_changed: totals.type_changed,
        mode_changed: totals.mode_changed,
        renamed: totals.renamed,
        files_removed: totals.files_removed,
        lines_added: totals.lines_added,
        lines_removed: totals.lines_removed,
        binary: totals.binary,
        too_large: totals.too_large,
        size_change: totals.size_change,
        notes: totals.notes.into_iter().map(|(code, count)| (code_name(code), count)).collect(),
    }
}

fn path_to_api(path: &TreePath) -> String {
    quote_path(&path.0).into_owned()
}

/// Returns the name of a code of the insight diff, which the state engine defines for JSON.
fn code_name(code: impl Serialize) -> String {
    match serde_json::to_value(code) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}

/// Compare two snapshots.
#[utoipa::path(get, path = "/api/v1/snapshots/{a}/diff/{b}", tag = "snapshots", operation_id = "diff_snapshots",
    params(("a" = String, Path, description = "Id of the old snapshot"), ("b" = String, Path, description = "Id of the new snapshot"), DiffQuery),
    responses(
        (status = 200, description = "Differences; with `patch=true`, a patch, whose header `X-Truncated` is `true` if it does not contain all differences",
            content((Diff = "application/json"), (String = "text/x-diff"))),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn compare(
    State(app): State<App>,
    caller: Caller,
    Path((a, b)): Path<(String, String)>,
    Query(query): Query<DiffQuery>,
) -> Result<Response, ApiError> {
    let limit = check_diff(&query)?;
    let scope = scope(&caller);
    let pair = (app.snapshots().find(&scope, &a).await?, app.snapshots().find(&scope, &b).await?);
    let permit = app.work_limits.comparison(&caller.owner).await;
    if query.patch {
        let patches = with_store(&app.store, move |store| {
            let _permit = permit;
            let (from, to) = open_both(store, &pair)?;
            Ok(Patches::new(from, to, limit)?)
        });
        return patches.await?.into_response(&app.work_limits, &caller.owner).await;
    }
    let compared = with_store(&app.store, move |store| {
        let _permit = permit;
        let (from, to) = open_both(store, &pair)?;
        let compare = if query.insight { insight_diff } else { plain_diff };
        Ok(compare(&from, &to, limit)?)
    });
    Ok(Json(compared.await?).into_response())
}

fn open_both(store: &Store, (a, b): &(Snapshot, Snapshot)) -> Result<(Tree, Tree), ApiError> {
    Ok((open(store, a)?, open(store, b)?))
}
