//! `workspace verify`

use serde::Serialize;
use workspace_state::{Damage, IndexCounts, SnapshotId, TreePath, VerifyReport, quote_path};

use crate::args::Verify;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::output::Output;
use crate::text::{counted, print_stderr, shown_bytes, shown_text};

#[derive(Serialize)]
struct Report<'a> {
    repaired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<IndexCounts>,
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
    let store = if args.repair { context.repaired_store()? } else { context.store()? };
    let rebuilt = if args.repair { Some(store.index_counts()?) } else { None };
    let report = store.verify(&context.progress)?;
    if context.output.json() {
        context.output.record(&record(rebuilt, &report))?;
    } else {
        rebuilt.iter().try_for_each(|counts| print_rebuilt(&mut context.output, counts))?;
        print(&mut context.output, &report)?;
    }
    if !report.damage.is_empty() {
        warn(&report, args.repair);
    }
    Ok(Outcome::with_reservations_if(!report.damage.is_empty()))
}

fn warn(report: &VerifyReport, repaired: bool) {
    let places = counted(report.damage.len() as u64, "damaged place", "damaged places");
    if repaired {
        print_stderr(&format!(
            "warning: {places} could not be repaired: what belongs there is not in the packs any more"
        ));
        print_stderr("hint: `workspace snapshot` of a directory that still has the content stores it again");
        print_stderr("hint: `workspace rm` gives up a damaged snapshot");
    } else {
        print_stderr(&format!("warning: {places} found"));
        print_stderr("hint: `workspace verify --repair` rebuilds the index, in case only that is damaged");
    }
}

fn print_rebuilt(output: &mut Output, counts: &IndexCounts) -> Result<()> {
    output.line(format_args!(
        "rebuilt the index from the packs: {}, {}, {}, {}",
        counted(counts.objects, "object", "objects"),
        counted(counts.snapshots, "snapshot", "snapshots"),
        counted(counts.references, "reference", "references"),
        counted(counts.episodes, "episode", "episodes"),
    ))
}

fn record(rebuilt: Option<IndexCounts>, report: &VerifyReport) -> Report<'_> {
    let damage = report.damage.iter().map(|damage| DamageFields {
        snapshot: damage.snapshot,
        path: damage.path.clone().map(TreePath),
        problem: &damage.problem,
    });
    Report {
        repaired: rebuilt.is_some(),
        index: rebuilt,
        snapshots: report.snapshots,
        directories: report.directories,
        files: report.files,
        chunks: report.chunks,
        bytes: report.bytes,
        damage: damage.collect(),
    }
}

fn print(output: &mut Output, report: &VerifyReport) -> Result<()> {
    report.damage.iter().try_for_each(|damage| output.line(shown_damage(damage)))?;
    output.line(format_args!(
        "read {}: {}, {}, {}, {}",
        counted(report.snapshots, "snapshot", "snapshots"),
        counted(report.directories, "directory", "directories"),
        counted(report.files, "file", "files"),
        counted(report.chunks, "chunk", "chunks"),
        shown_bytes(report.bytes)
    ))?;
    if report.damage.is_empty() { output.line("no damage found") } else { Ok(()) }
}

fn shown_damage(damage: &Damage) -> String {
    let mut line = String::from("damaged");
    if let Some(snapshot) = damage.snapshot {
        line.push_str(&format!("  snapshot {snapshot}"));
    }
    if let Some(path) = &damage.path {
        line.push_str(&format!("  {}", quote_path(path)));
    }
    format!("{line}: {}", shown_text(&damage.problem))
}
