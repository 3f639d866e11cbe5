//! `workspace sandbox metrics`

use workspace_api::sandbox_metrics::{MetricSample, MetricSeries};

use crate::args::SandboxMetrics;
use crate::commands::table;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{find_sandbox, with_client};
use crate::text::format_bytes;
use crate::time;

const COLUMNS: [&str; 7] = ["TIME", "CPU", "MEMORY", "DISK", "PROCESSES", "RECEIVED", "SENT"];
/// Text for a value that was not measured.
const MISSING: &str = "-";

/// Prints the measurements of a sandbox, oldest first.
pub(super) fn run(context: &mut Context, args: &SandboxMetrics) -> Result<Outcome> {
    let mut query = String::new();
    for (index, (name, time)) in
        [("from", args.since), ("to", args.until)].into_iter().filter_map(with_time).enumerate()
    {
        query.push(if index == 0 { '?' } else { '&' });
        query.push_str(&format!("{name}={}", time::rfc3339(time)));
    }
    let series: MetricSeries = with_client(&args.server, async |client| {
        let id = find_sandbox(client, &args.sandbox).await?;
        client.get(&format!("/api/v1/sandboxes/{id}/metrics{query}")).await
    })?;
    if context.output.is_json() {
        series.samples.iter().try_for_each(|sample| context.output.record(sample))?;
    } else {
        let rows: Vec<_> = series.samples.iter().map(row).collect();
        table::print(&mut context.output, &COLUMNS, &rows)?;
    }
    Ok(Outcome::Done)
}

/// Returns the name with its time; `None` for an option that was not given.
fn with_time<T>((name, time): (&'static str, Option<T>)) -> Option<(&'static str, T)> {
    time.map(|time| (name, time))
}

fn row(sample: &MetricSample) -> Vec<String> {
    let bytes = |value: Option<u64>| value.map_or_else(|| MISSING.to_owned(), format_bytes);
    vec![
        table::time(&sample.time),
        sample.cpu_percent.map_or_else(|| MISSING.to_owned(), |percent| format!("{percent:.1} %")),
        bytes(sample.memory),
        bytes(sample.disk),
        sample.processes.map_or_else(|| MISSING.to_owned(), |number| number.to_string()),
        bytes(sample.rx_bytes),
        bytes(sample.tx_bytes),
    ]
}
