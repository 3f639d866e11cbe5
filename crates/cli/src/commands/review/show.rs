//! Output of `workspace review show`.

use workspace_api::reviews::{ReviewChange, ReviewDetails, ReviewRegion, ReviewState, ReviewVersion};

use super::side_by_side::{SideBySide, Titles};
use super::{name_of, read_text};
use crate::commands::table;
use crate::context::Context;
use crate::error::Result;
use crate::output::Output;
use crate::remote::Client;
use crate::text;

/// Maximum number of regions that are listed.
const REGIONS_MAX: usize = 20;

/// Texts to print side by side.
pub(super) struct Sides {
    left: Vec<u8>,
    right: Vec<u8>,
}

/// Reads the texts to compare: the head, or for a decided review its version of then, and that of the agent. `None` if
/// one is no text.
pub(super) async fn read_sides(
    client: &Client,
    path: &str,
    details: &ReviewDetails,
) -> Result<Option<Sides>> {
    let (name, version) = if is_open(details) { ("head", &details.head) } else { ("ours", &details.ours) };
    let left = read_text(client, path, name, version).await?;
    let right = read_text(client, path, "theirs", &details.theirs).await?;
    Ok(left.zip(right).map(|(left, right)| Sides { left, right }))
}

fn is_open(details: &ReviewDetails) -> bool {
    matches!(details.review.state, ReviewState::Open | ReviewState::Escalated)
}

pub(super) fn print(context: &mut Context, details: &ReviewDetails, sides: Option<&Sides>) -> Result<()> {
    table::print_fields(&mut context.output, &fields(details))?;
    let output = &mut context.output;
    print_change(output, "head changed by", &details.ours_change)?;
    print_change(output, "agent changed by", &details.theirs_change)?;
    for region in details.regions.iter().take(REGIONS_MAX) {
        output.line(text::escape_controls(&region_line(region)))?;
    }
    output.line("")?;
    match sides {
        Some(sides) => print_sides(output, details, sides),
        None => output.line("not all versions are text; `--side NAME` prints one of them"),
    }
}

fn fields(details: &ReviewDetails) -> Vec<(&'static str, String)> {
    let review = &details.review;
    let optional = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let mut fields = vec![
        ("review", review.id.clone()),
        ("path", review.path.clone()),
        ("kind", review.class.clone()),
        ("state", name_of(review.state).to_owned()),
        ("agent", review.agent.clone()),
        ("sandbox", optional(&details.sandbox)),
        ("completion", optional(&review.completion)),
        ("opened", table::time(&review.created_at)),
    ];
    if let Some(reason) = &details.reason {
        fields.push(("reason", reason.clone()));
    }
    if let Some(reviewers) = &review.reviewers {
        fields.push(("reviewers", reviewers.join(", ")));
    }
    if let Some(name) = &review.escalated_to {
        fields.push(("escalated", format!("to {name}")));
    }
    if let Some(time) = &review.expires_at {
        fields.push(("expires", table::time(time)));
    }
    if let (Some(by), Some(resolution)) = (&review.resolved_by, &review.resolution) {
        let strategy = resolution.strategy.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        fields.push(("decision", format!("{}{strategy}, by {by}", resolution.choice)));
    }
    for (name, version) in [
        ("base", &details.base),
        ("ours", &details.ours),
        ("theirs", &details.theirs),
        ("head", &details.head),
    ] {
        fields.push((name, version_line(version)));
    }
    if is_open(details) {
        fields.push(("choices", choices_line(details)));
    }
    fields
}

fn version_line(version: &ReviewVersion) -> String {
    let (Some(kind), Some(size), Some(mode)) = (version.kind, version.size, &version.mode) else {
        return format!("none  ({})", version.version);
    };
    let content = match version.text {
        Some(true) => " text",
        Some(false) => " binary",
        None => "",
    };
    let kind = format!("{kind:?}").to_lowercase();
    format!("{kind} {mode} {}{content}  ({})", text::format_bytes(size), version.version)
}

fn choices_line(details: &ReviewDetails) -> String {
    let choice = |choice: &workspace_api::reviews::ReviewChoice| match &choice.strategy {
        Some(strategy) => format!("--strategy {strategy}"),
        None => format!("--{}", choice.choice),
    };
    let choices = details.choices.iter().map(choice);
    let always = ["--file FILE", "--delete", "--edit"].map(str::to_owned);
    choices.chain(always).collect::<Vec<_>>().join(", ")
}

fn print_change(output: &mut Output, name: &str, change: &ReviewChange) -> Result<()> {
    if let Some(operation) = &change.operation {
        let line = format!(
            "{name}: {} ({} as sequence {})  {}",
            operation.author,
            operation.operation,
            operation.sequence,
            text::first_line(&operation.message)
        );
        output.line(text::escape_controls(&line))?;
    }
    for cause in &change.causes {
        let line = format!("{name}: {}  {}", table::time(&cause.time), text::first_line(&cause.message));
        output.line(text::escape_controls(&line))?;
        for note in &cause.notes {
            output.line(text::escape_controls(&format!("  note: {}", text::first_line(&note.text))))?;
        }
    }
    Ok(())
}

fn region_line(region: &ReviewRegion) -> String {
    match region {
        ReviewRegion::Lines { base, ours, theirs } => {
            let lines =
                |range: &workspace_api::reviews::LineRange| match range.end.saturating_sub(range.start) {
                    0 => "none".to_owned(),
                    1 => format!("{}", range.start + 1),
                    _ => format!("{}-{}", range.start + 1, range.end),
                };
            format!(
                "conflict in lines {} of base, {} of ours, {} of theirs",
                lines(base),
                lines(ours),
                lines(theirs)
            )
        }
        ReviewRegion::Value { path, base, ours, theirs } => {
            let value = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
            format!(
                "conflict in {path}: base {}, ours {}, theirs {}",
                value(base),
                value(ours),
                value(theirs)
            )
        }
    }
}

fn print_sides(output: &mut Output, details: &ReviewDetails, sides: &Sides) -> Result<()> {
    let left = match is_open(details) {
        true => format!("head (sequence {})", details.sequence),
        false => "ours".to_owned(),
    };
    let titles = Titles { left, right: format!("theirs ({})", details.review.agent) };
    let Some(comparison) = SideBySide::new(&sides.left, &sides.right) else {
        return output.line("the versions have too many lines to compare; `--side NAME` prints one of them");
    };
    comparison.lines(&titles).try_for_each(|line| output.line(line))
}
