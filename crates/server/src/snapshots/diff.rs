//! What differs between two snapshots.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;
use workspace_state::{
    ChangeCode, Difference as TreeDifference, DifferenceKind, Entry as TreeEntry, EntryInsight, InsightDiff,
    Node, NodeKind, RiskNote, Snapshot, Store, StoreError, Totals, Tree, TreeId, TreePath, diff, insight,
};

use super::patches::Patches;
use super::shape::{DiffQuery, octal};
use super::tree::open;
use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{Json, Path, Query};
use crate::sandboxes::scope;
use crate::store::with_store;

/// Differences that are told when nobody says how many.
pub(crate) const LIMIT: usize = 1_000;
pub(super) const LIMIT_MAX: usize = 10_000;

/// What differs between two trees. With `insight=true` it has all that `docs/insight.md` describes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Diff {
    /// Of the insight diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    /// The tree before.
    #[schema(value_type = String)]
    from: TreeId,
    /// The tree after.
    #[schema(value_type = String)]
    to: TreeId,
    /// Sums over all differences, with `insight=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    totals: Option<Totals>,
    /// Risks of the whole, with `insight=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    notes: Option<Vec<RiskNote>>,
    /// The differences, by path; with `insight=true` each has more fields.
    #[schema(value_type = Vec<Difference>)]
    entries: Entries,
    /// How many there are in all.
    total: usize,
    /// Whether some are left out here.
    truncated: bool,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Entries {
    Plain(Vec<Difference>),
    Judged(Vec<EntryInsight>),
}

/// A difference.
#[derive(Debug, Serialize, ToSchema)]
struct Difference {
    /// Where; for a rename, where it is now. In double quotes with C escapes if it is not plain text.
    #[schema(value_type = String)]
    path: TreePath,
    /// added, removed, modified, type_changed, mode_changed or renamed.
    #[schema(value_type = String, example = "modified")]
    change: ChangeCode,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    renamed_from: Option<TreePath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<Side>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<Side>,
}

/// One side of a difference.
#[derive(Debug, Serialize, ToSchema)]
struct Side {
    /// file, directory or symlink.
    #[schema(value_type = String, example = "file")]
    kind: NodeKind,
    /// Permission bits in octal.
    #[schema(example = "0644")]
    mode: String,
    /// Bytes of a file or of a symlink's target; 0 for a directory.
    size: u64,
}

impl Side {
    fn new(entry: &TreeEntry) -> Self {
        let size = match &entry.node {
            Node::Directory(_) => 0,
            node => node.size(),
        };
        Self { kind: entry.node.kind(), mode: octal(entry.node.mode()), size }
    }
}

impl Difference {
    fn new(difference: TreeDifference) -> Self {
        let (change, renamed_from) = match difference.kind {
            DifferenceKind::Added => (ChangeCode::Added, None),
            DifferenceKind::Removed => (ChangeCode::Removed, None),
            DifferenceKind::Modified => (ChangeCode::Modified, None),
            DifferenceKind::TypeChanged => (ChangeCode::TypeChanged, None),
            DifferenceKind::ModeChanged => (ChangeCode::ModeChanged, None),
            DifferenceKind::Renamed { from } => (ChangeCode::Renamed, Some(TreePath(from))),
        };
        Self {
            path: TreePath(difference.path),
            change,
            renamed_from,
            old: difference.old.as_ref().map(Side::new),
            new: difference.new.as_ref().map(Side::new),
        }
    }
}

impl Diff {
    pub(crate) fn plain(from: &Tree, to: &Tree, limit: usize) -> Result<Self, StoreError> {
        let differences = diff(from, to)?;
        let total = differences.len();
        let entries = differences.into_iter().take(limit).map(Difference::new).collect();
        Ok(Self {
            version: None,
            from: from.id(),
            to: to.id(),
            totals: None,
            notes: None,
            entries: Entries::Plain(entries),
            total,
            truncated: total > limit,
        })
    }

    /// With what to think of it. Sums and risks of the whole are those of all differences.
    pub(crate) fn judged(from: &Tree, to: &Tree, limit: usize) -> Result<Self, StoreError> {
        let InsightDiff { version, from, to, totals, notes, mut entries } = insight(from, to)?;
        let total = entries.len();
        entries.truncate(limit);
        Ok(Self {
            version: Some(version),
            from,
            to,
            totals: Some(totals),
            notes: Some(notes),
            entries: Entries::Judged(entries),
            total,
            truncated: total > limit,
        })
    }
}

/// Compare two snapshots.
#[utoipa::path(get, path = "/api/v1/snapshots/{a}/diff/{b}", tag = "snapshots", operation_id = "diff_snapshots",
    params(("a" = String, Path, description = "Before"), ("b" = String, Path, description = "After"), DiffQuery),
    responses(
        (status = 200, description = "What differs; a patch with `patch=true`, whose header `X-Truncated` says whether differences are left out",
            content((Diff = "application/json"), (String = "text/x-diff"))),
        (status = "default", description = "An error", body = ErrorBody),
    ))]
pub(super) async fn compare(
    State(app): State<App>,
    caller: Caller,
    Path((a, b)): Path<(String, String)>,
    Query(query): Query<DiffQuery>,
) -> Result<Response, ApiError> {
    let limit = query.check()?;
    let scope = scope(&caller);
    let pair = (app.snapshots().find(&scope, &a).await?, app.snapshots().find(&scope, &b).await?);
    let turn = app.turns.comparison(&caller.owner).await;
    if query.patch {
        let patches = with_store(&app.store, move |store| {
            let _turn = turn;
            let (from, to) = both(store, &pair)?;
            Ok(Patches::new(from, to, limit)?)
        });
        return patches.await?.answer(&app.turns, &caller.owner).await;
    }
    let compared = with_store(&app.store, move |store| {
        let _turn = turn;
        let (from, to) = both(store, &pair)?;
        let compared = if query.insight { Diff::judged } else { Diff::plain };
        Ok(compared(&from, &to, limit)?)
    });
    Ok(Json(compared.await?).into_response())
}

fn both(store: &Store, (a, b): &(Snapshot, Snapshot)) -> Result<(Tree, Tree), ApiError> {
    Ok((open(store, a)?, open(store, b)?))
}
