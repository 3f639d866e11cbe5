//! `workspace verify`

use serde::Serialize;
use workspace_state::{
    Damage, IndexCounts, Loss, LostReference, LostSnapshot, RebuildReport, SnapshotId, TreePath,
    VerifyReport, quote_path,
};

use crate::args::Verify;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::output::Output;
use crate::text::{escape_controls, first_line, format_bytes, pluralize, print_stderr};
use crate::time;

#[derive(Serialize)]
struct Report<'a> {
    repaired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<IndexCounts>,
    /// Records that the repair lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<&'a Loss>,
    /// Rows of the index that the repair corrected.
    #[serde(skip_serializing_if = "Option::is_none")]
    mended: Option<Vec<DamageFields<'a>>>,
    /// Directory of the index as it was before the repair, if it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_index: Option<String>,
    snapshots: u64,
    directories: u64,
    files: u64,
    chunks: u64,
    bytes: u64,
    damage: Vec<DamageFields<'a>>,
}

#[derive(Serialize)]
struct DamageFields<'a> {
    snapshot: Option<SnapshotId>,
    path: Option<TreePath>,
    problem: &'a str,
}

pub(crate) fn run(context: &mut Context, args: &Verify) -> Result<Outcome> {
    let store = if args.repair { context.rebuild_and_open_store()? } else { context.store()? };
    let rebuilt = if args.repair { store.rebuild_report() } else { None };
    let report = store.verify(&context.progress)?;
    if context.output.is_json() {
        context.output.record(&record(rebuilt, &report))?;
    } else {
        rebuilt.iter().try_for_each(|rebuilt| print_rebuilt(&mut context.output, rebuilt))?;
        print(&mut context.output, &report)?;
    }
    if let Some(rebuilt) = rebuilt {
        warn_of_loss(rebuilt);
    }
    if !report.damage.is_empty() {
        warn(&report, args.repair);
    }
    let lost = rebuilt.is_some_and(has_lost);
    Ok(Outcome::with_warnings_if(lost || !report.damage.is_empty()))
}

/// Returns true if records were lost in the repair, or may have been lost because the log is damaged or the
/// old index could not be read.
fn has_lost(rebuilt: &RebuildReport) -> bool {
    !rebuilt.lost.is_empty() || rebuilt.log_damaged || rebuilt.old_unreadable
}

fn warn_of_loss(rebuilt: &RebuildReport) {
    for problem in rebuilt.problems() {
        print_stderr(&format!("warning: {problem}"));
    }
    if let Some(old) = &rebuilt.old_index {
        print_stderr(&format!("hint: remove {} when you no longer need it", old.display()));
    }
}

fn warn(report: &VerifyReport, repaired: bool) {
    let paths = pluralize(report.damage.len() as u64, "damaged path", "damaged paths");
    if repaired {
        print_stderr(&format!(
            "warning: {paths} could not be repaired: the content is no longer in the packs"
        ));
        print_stderr("hint: `workspace snapshot` of a directory that still has the content stores it again");
        print_stderr("hint: `workspace rm` deletes a damaged snapshot");
    } else {
        print_stderr(&format!("warning: {paths} found"));
        print_stderr("hint: `workspace verify --repair` rebuilds the index, in case only that is damaged");
    }
}

fn print_rebuilt(output: &mut Output, rebuilt: &RebuildReport) -> Result<()> {
    let counts = &rebuilt.index;
    output.line(format_args!(
        "rebuilt the index from the packs: {}, {}, {}, {}",
        pluralize(counts.objects, "object", "objects"),
        pluralize(counts.snapshots, "snapshot", "snapshots"),
        pluralize(counts.references, "reference", "references"),
        pluralize(counts.episodes, "episode", "episodes"),
    ))?;
    let lost = &rebuilt.lost;
    lost.snapshots.iter().try_for_each(|it| output.line(format_lost_snapshot(it)))?;
    lost.references.iter().try_for_each(|it| output.line(format_lost_reference(it)))?;
    lost.episodes.iter().try_for_each(|id| output.line(format_args!("lost  episode {id}")))?;
    rebuilt.wrong_rows.iter().try_for_each(|it| output.line(format_damage("mended", it)))
}

fn format_lost_snapshot(lost: &LostSnapshot) -> String {
    let time = lost.time.map(time::format).unwrap_or_default();
    let message = lost.message.as_deref().map(first_line).unwrap_or_default();
    format!("lost  snapshot {}  {time}  {message}", lost.id).trim_end().to_owned()
}

fn format_lost_reference(lost: &LostReference) -> String {
    let id_or_nothing = |id: Option<SnapshotId>| id.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
    format!(
        "lost  reference {}: was {}, is {}",
        escape_controls(&lost.name),
        id_or_nothing(lost.was),
        id_or_nothing(lost.is)
    )
}

fn record<'a>(rebuilt: Option<&'a RebuildReport>, report: &'a VerifyReport) -> Report<'a> {
    Report {
        repaired: rebuilt.is_some(),
        index: rebuilt.map(|rebuilt| rebuilt.index),
        lost: rebuilt.map(|rebuilt| &rebuilt.lost),
        mended: rebuilt.map(|rebuilt| damage_fields(&rebuilt.wrong_rows)),
        old_index: rebuilt.and_then(|rebuilt| Some(rebuilt.old_index.as_ref()?.display().to_string())),
        snapshots: report.snapshots,
        directories: report.directories,
        files: report.files,
        chunks: report.chunks,
        bytes: report.bytes,
        damage: damage_fields(&report.damage),
    }
}

fn damage_fields(damage: &[Damage]) -> Vec<DamageFields<'_>> {
    damage
        .iter()
        .map(|Damage { snapshot, path, problem }| DamageFields {
            snapshot: *snapshot,
            path: path.clone().map(TreePath),
            problem,
        })
        .collect()
}

fn print(output: &mut Output, report: &VerifyReport) -> Result<()> {
    report.damage.iter().try_for_each(|damage| output.line(format_damage("damaged", damage)))?;
    output.line(format_args!(
        "read {}: {}, {}, {}, {}",
        pluralize(report.snapshots, "snapshot", "snapshots"),
        pluralize(report.directories, "directory", "directories"),
        pluralize(report.files, "file", "files"),
        pluralize(report.chunks, "chunk", "chunks"),
        format_bytes(report.bytes)
    ))?;
    if report.damage.is_empty() { output.line("no damage found") } else { Ok(()) }
}

fn format_damage(state: &str, damage: &Damage) -> String {
    let mut line = String::from(state);
    if let Some(snapshot) = damage.snapshot {
        line.push_str(&format!("  snapshot {snapshot}"));
    }
    if let Some(path) = &damage.path {
        line.push_str(&format!("  {}", quote_path(path)));
    }
    format!("{line}: {}", escape_controls(&damage.problem))
}
