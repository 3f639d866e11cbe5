//! Differences between two trees.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;
use workspace_api::diff::{
    Cause, ChangeKind, Diff, DiffQuery, DiffTotals, Difference, DifferenceInsight, DifferenceSide, RiskNote,
    SnapshotDiffQuery,
};
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::notes::Note;
use workspace_api::snapshots::EntryKind;
use workspace_sandbox::{Scope, TRACE_COMMAND_LABEL, TRACE_SHARED_LABEL};
use workspace_state::{
    self as state, ChangeCode, Difference as TreeDifference, DifferenceKind, Entry, EntryCode, EntryInsight,
    EntrySummary, InsightDiff, Node, Snapshot, SnapshotId, Store, StoreError, Totals, Tree, TreePath, diff,
    insight, quote_path,
};

use super::conversion::{check_diff, kind_to_api, octal};
use super::patches::Patches;
use super::tree::open_tree;
use super::why::{Causes, EntryPaths, find_causes};
use crate::app::App;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::notes::note_to_api;
use crate::store::with_store;
use crate::time::format_store_time;

/// Default number of differences in a response.
pub(crate) const LIMIT_DEFAULT: usize = 1_000;
pub(super) const LIMIT_MAX: usize = 10_000;

/// Maximum time for finding the causes of differences.
const CAUSES_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number and total size in bytes of the agents' notes about all causes.
const NOTES_MAX: usize = 1_000;
const NOTE_BYTES_MAX: u64 = 1 << 20;

/// Returns the first `limit` differences, without insight.
pub(crate) fn plain_diff(from: &Tree, to: &Tree, limit: usize) -> Result<Diff, StoreError> {
    Ok(plain_diff_with_paths(from, to, limit)?.0)
}

/// Returns the first `limit` differences, with insight. Totals and risk notes are those of all differences.
pub(crate) fn insight_diff(from: &Tree, to: &Tree, limit: usize) -> Result<Diff, StoreError> {
    Ok(insight_diff_with_paths(from, to, limit)?.0)
}

/// Returns the path of a difference, and the former path if it is a rename.
pub(super) fn entry_paths(difference: &TreeDifference) -> EntryPaths {
    let from = match &difference.kind {
        DifferenceKind::Renamed { from } => Some(from.clone()),
        _ => None,
    };
    (difference.path.clone(), from)
}

fn plain_diff_with_paths(
    from: &Tree,
    to: &Tree,
    limit: usize,
) -> Result<(Diff, Vec<EntryPaths>), StoreError> {
    let differences = diff(from, to)?;
    let total = differences.len();
    let paths = differences.iter().take(limit).map(entry_paths).collect();
    let diff = Diff {
        version: None,
        from: from.id().to_string(),
        to: to.id().to_string(),
        totals: None,
        notes: None,
        entries: differences.iter().take(limit).map(difference_to_api).collect(),
        total,
        truncated: total > limit,
        causes: None,
        causes_complete: None,
    };
    Ok((diff, paths))
}

fn insight_diff_with_paths(
    from: &Tree,
    to: &Tree,
    limit: usize,
) -> Result<(Diff, Vec<EntryPaths>), StoreError> {
    let InsightDiff { version, from, to, totals, notes, entries } = insight(from, to)?;
    let total = entries.len();
    let paths =
        |entry: &EntryInsight| (entry.path.0.clone(), entry.renamed_from.as_ref().map(|path| path.0.clone()));
    let paths = entries.iter().take(limit).map(paths).collect();
    let diff = Diff {
        version: Some(version),
        from: from.to_string(),
        to: to.to_string(),
        totals: Some(totals_to_api(totals)),
        notes: Some(risk_notes_to_api(&notes)),
        entries: entries.iter().take(limit).map(insight_to_api).collect(),
        total,
        truncated: total > limit,
        causes: None,
        causes_complete: None,
    };
    Ok((diff, paths))
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
        causes: None,
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
        causes: None,
        insight: Some(DifferenceInsight {
            content: entry.content.map(code_name),
            lines_added: entry.lines_added,
            lines_removed: entry.lines_removed,
            too_large: entry.too_large,
            size_change: entry.size_change,
            notes: risk_notes_to_api(&entry.notes),
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

fn risk_notes_to_api(notes: &[state::RiskNote]) -> Vec<RiskNote> {
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
///
/// With `why=true`, each difference names the snapshots between the two in which the entry changed, with the command that
/// made it and the notes of agents.
#[utoipa::path(get, path = "/api/v1/snapshots/{a}/diff/{b}", tag = "snapshots", operation_id = "diff_snapshots",
    params(("a" = String, Path, description = "Id of the old snapshot"), ("b" = String, Path, description = "Id of the new snapshot"), SnapshotDiffQuery),
    responses(
        (status = 200, description = "Differences; with `patch=true`, a patch, whose header `X-Truncated` is `true` if it does not contain all differences",
            content((Diff = "application/json"), (String = "text/x-diff"))),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn compare(
    State(app): State<App>,
    caller: Caller,
    Path((a, b)): Path<(String, String)>,
    Query(query): Query<SnapshotDiffQuery>,
) -> Result<Response, ApiError> {
    if query.why && query.patch {
        let message = "`why` and `patch` cannot be combined";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "patch"));
    }
    let SnapshotDiffQuery { insight, patch, limit, why } = query;
    let limit = check_diff(&DiffQuery { insight, patch, limit })?;
    let scope = scope(&caller);
    let pair = (app.snapshots().find(&scope, &a).await?, app.snapshots().find(&scope, &b).await?);
    if patch {
        return patch_response(&app, &caller, limit, move |store| open_both(store, &pair)).await;
    }
    let compared = comparison(&app, &caller, move |store| {
        let (from, to) = open_both(store, &pair)?;
        let compare = if insight { insight_diff_with_paths } else { plain_diff_with_paths };
        let (diff, paths) = compare(&from, &to, limit)?;
        let deadline = Instant::now() + CAUSES_TIMEOUT;
        let causes =
            why.then(|| find_causes(store, (&pair.0, &pair.1), &paths, &|_| true, deadline)).transpose()?;
        Ok((diff, causes))
    });
    let (mut diff, causes) = compared.await?;
    if let Some(causes) = causes {
        add_causes(&app, &scope, &mut diff, causes).await?;
    }
    Ok(Json(diff).into_response())
}

/// Answers with a patch of two trees, which `open` opens.
pub(crate) async fn patch_response(
    app: &App,
    caller: &Caller,
    limit: usize,
    open: impl FnOnce(&Store) -> Result<(Tree, Tree), ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let patches = comparison(app, caller, move |store| {
        let (from, to) = open(store)?;
        Ok(Patches::new(from, to, limit)?)
    });
    patches.await?.into_response(&app.work_limits, &caller.owner).await
}

/// Compares trees in a thread, under a permit of the caller.
pub(crate) async fn comparison<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    compare: impl FnOnce(&Store) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let permit = app.work_limits.comparison(&caller.owner).await;
    with_store(&app.store, move |store| {
        let _permit = permit;
        compare(store)
    })
    .await
}

/// Adds the causes of differences that are visible in the scope.
async fn add_causes(app: &App, scope: &Scope, diff: &mut Diff, found: Causes) -> Result<(), ApiError> {
    let visible = VisibleCauses::read(app, scope, found).await?;
    for (entry, causes) in diff.entries.iter_mut().zip(visible.of_entries) {
        entry.causes = Some(causes.iter().map(SnapshotId::to_string).collect());
    }
    diff.causes = Some(visible.causes);
    diff.causes_complete = Some(visible.is_complete);
    Ok(())
}

/// Returns the causes of the change of one entry between two snapshots of a project that are visible in a scope, and
/// true if there are no others. Former paths of the entry for which `shows` returns false are not followed.
pub(crate) async fn causes_of(
    app: &App,
    caller: &Caller,
    scope: &Scope,
    (a, b): (SnapshotId, SnapshotId),
    paths: EntryPaths,
    shows: impl Fn(&[u8]) -> bool + Send + 'static,
) -> Result<(Vec<Cause>, bool), ApiError> {
    let found = comparison(app, caller, move |store| {
        let (Some(a), Some(b)) = (store.find_snapshot(&a)?, store.find_snapshot(&b)?) else {
            return Ok(Causes { steps: Vec::new(), of_entries: Vec::new(), is_complete: false });
        };
        Ok(find_causes(store, (&a, &b), &[paths], &shows, Instant::now() + CAUSES_TIMEOUT)?)
    });
    let visible = VisibleCauses::read(app, scope, found.await?).await?;
    Ok((visible.causes, visible.is_complete))
}

/// Causes of differences that are visible in a scope.
struct VisibleCauses {
    causes: Vec<Cause>,
    of_entries: Vec<Vec<SnapshotId>>,
    /// False if there may be other causes.
    is_complete: bool,
}

impl VisibleCauses {
    /// Leaves out causes that are not visible, and reads the agents' notes about the others.
    async fn read(app: &App, scope: &Scope, found: Causes) -> Result<Self, ApiError> {
        let ids: Vec<SnapshotId> = found.steps.iter().map(|step| step.id).collect();
        let visible = app.snapshots().visible(scope, &ids).await?;
        let is_all_visible = ids.iter().all(|id| visible.contains(id));
        let of_entry = |causes: Vec<usize>| {
            causes.into_iter().map(|index| ids[index]).filter(|id| visible.contains(id)).collect()
        };
        let of_entries = found.of_entries.into_iter().map(of_entry).collect();
        let steps: Vec<Snapshot> =
            found.steps.into_iter().filter(|step| visible.contains(&step.id)).collect();
        let names: Vec<String> = steps.iter().map(|step| step.id.to_string()).collect();
        let (notes, is_cut) =
            app.catalog.notes().of_snapshots(scope.owner(), &names, NOTES_MAX, NOTE_BYTES_MAX).await?;
        let mut by_snapshot = HashMap::<String, Vec<Note>>::new();
        for note in notes {
            let snapshot = note.snapshot.clone().unwrap_or_default();
            by_snapshot.entry(snapshot).or_default().push(note_to_api(note)?);
        }
        let causes = steps.into_iter().zip(names).map(|(step, name)| {
            let notes = by_snapshot.remove(&name).unwrap_or_default();
            cause_to_api(step, notes)
        });
        let causes = causes.collect::<Result<_, ApiError>>()?;
        let is_complete = found.is_complete && is_all_visible && !is_cut;
        Ok(Self { causes, of_entries, is_complete })
    }
}

fn cause_to_api(mut step: Snapshot, notes: Vec<Note>) -> Result<Cause, ApiError> {
    // The snapshot may contain changes that its command did not make. The label has their origins.
    let shared = step.labels.remove(TRACE_SHARED_LABEL).unwrap_or_default();
    Ok(Cause {
        snapshot: step.id.to_string(),
        time: format_store_time(step.time)?,
        message: step.message,
        command: step.labels.remove(TRACE_COMMAND_LABEL),
        shared_with: shared.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
        notes,
    })
}

fn open_both(store: &Store, (a, b): &(Snapshot, Snapshot)) -> Result<(Tree, Tree), ApiError> {
    Ok((open_tree(store, a)?, open_tree(store, b)?))
}
