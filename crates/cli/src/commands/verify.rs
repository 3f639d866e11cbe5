//! `workspace verify`

use serde::Serialize;
use workspace_state::{Damage, SnapshotId, TreePath, VerifyReport, quote_path};

use crate::args::Verify;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::output::Output;
use crate::text::{counted, print_stderr, shown_bytes, shown_text};

#[derive(Serialize)]
struct Report<'a> {
    repaired: bool,
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
    let report = store.verify(&context.progress)?;
    if context.output.json() {
        context.output.record(&record(args.repair, &report))?;
    } else {
        print(&mut context.output, &report)?;
    }
    let damaged = !report.damage.is_empty();
    if damaged {
        let places = counted(report.damage.len() as u64, "damaged place", "damaged places");
        print_stderr(&format!("warning: {places} found"));
        if !args.repair {
            print_stderr(
                "hint: `workspace verify --repair` rebuilds the index, in case only that is damaged",
            );
        }
    }
    Ok(Outcome::with_reservations_if(damaged))
}

fn record(repaired: bool, report: &VerifyReport) -> Report<'_> {
    let damage = report.damage.iter().map(|damage| DamageFields {
        snapshot: damage.snapshot,
        path: damage.path.clone().map(TreePath),
        problem: &damage.problem,
    });
    Report {
        repaired,
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
