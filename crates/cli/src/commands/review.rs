//! `workspace review`

mod edit;
mod show;
mod side_by_side;

use std::fs;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use workspace_api::reviews::{
    ResolveReview, ResolvedReview, Review, ReviewDetails, ReviewList, ReviewState, ReviewVersion,
};

use super::project::project_path;
use super::table;
use crate::args::{ReviewCommand, ReviewLs, ReviewResolve, ReviewShow, Server, StateFilter};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::remote::files::download;
use crate::remote::{Client, percent_encode, with_client};
use crate::text;

/// Number of reviews per request.
const PAGE_SIZE: u32 = 1_000;
/// Maximum size in bytes of a version that is read at once.
const CONTENT_MAX: usize = 16 << 20;

pub(crate) fn run(context: &mut Context, command: &ReviewCommand) -> Result<Outcome> {
    match command {
        ReviewCommand::Ls(args) => list(context, args),
        ReviewCommand::Show(args) => show(context, args),
        ReviewCommand::Resolve(args) => resolve(context, args),
    }
}

fn list(context: &mut Context, args: &ReviewLs) -> Result<Outcome> {
    let mut query = format!("limit={PAGE_SIZE}");
    for (name, value) in [
        ("assigned", args.assigned.as_deref()),
        ("path", args.path.as_deref()),
        ("completion", args.completion.as_deref()),
    ] {
        if let Some(value) = value {
            query.push_str(&format!("&{name}={}", percent_encode(value.as_bytes())));
        }
    }
    let path = format!("{}/reviews?{query}", project_path(&args.project));
    let states = match args.state {
        Some(state) => vec![format!("&state={}", state_name(state))],
        None if args.all => vec![String::new()],
        None => vec!["&state=open".to_owned(), "&state=escalated".to_owned()],
    };
    let mut reviews = with_client(&args.server, async |client| {
        let mut all = Vec::new();
        for state in states {
            read_pages(client, &format!("{path}{state}"), &mut all).await?;
        }
        Ok(all)
    })?;
    reviews.sort_by(|a, b| a.id.cmp(&b.id));
    // One that was escalated between the requests is in both.
    reviews.dedup_by(|a, b| a.id == b.id);
    if context.output.is_json() {
        reviews.iter().try_for_each(|review| context.output.record(review))?;
        return Ok(Outcome::Done);
    }
    let row = |review: &Review| {
        vec![
            review.id.clone(),
            name_of(review.state).to_owned(),
            review.class.clone(),
            review.agent.clone(),
            table::time(&review.created_at),
            review.path.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = reviews.iter().map(row).collect();
    table::print(&mut context.output, &["ID", "STATE", "KIND", "AGENT", "OPENED", "PATH"], &rows)?;
    Ok(Outcome::Done)
}

async fn read_pages(client: &Client, path: &str, all: &mut Vec<Review>) -> Result<()> {
    let mut cursor = String::new();
    loop {
        let page: ReviewList = client.get(&format!("{path}{cursor}")).await?;
        all.extend(page.items);
        let Some(next) = page.next else { return Ok(()) };
        cursor = format!("&cursor={}", percent_encode(next.as_bytes()));
    }
}

fn state_name(state: StateFilter) -> &'static str {
    name_of(match state {
        StateFilter::Open => ReviewState::Open,
        StateFilter::Escalated => ReviewState::Escalated,
        StateFilter::Resolved => ReviewState::Resolved,
        StateFilter::Expired => ReviewState::Expired,
    })
}

fn name_of(state: ReviewState) -> &'static str {
    match state {
        ReviewState::Open => "open",
        ReviewState::Escalated => "escalated",
        ReviewState::Resolved => "resolved",
        ReviewState::Expired => "expired",
    }
}

fn review_path(project: &str, review: &str) -> String {
    format!("{}/reviews/{}", project_path(project), percent_encode(review.as_bytes()))
}

fn show(context: &mut Context, args: &ReviewShow) -> Result<Outcome> {
    let path = review_path(&args.project, &args.review);
    if let Some(side) = args.side {
        let path = format!("{path}/versions/{}", side.name());
        let output = &mut context.output;
        with_client(&args.server, async |client| {
            download(client, &path, async |bytes| output.bytes(bytes)).await
        })?;
        return Ok(Outcome::Done);
    }
    let (details, sides) = with_client(&args.server, async |client| {
        let details: ReviewDetails = client.get(&path).await?;
        let sides = match context.output.is_json() {
            true => None,
            false => show::read_sides(client, &path, &details).await?,
        };
        Ok((details, sides))
    })?;
    if context.output.is_json() {
        context.output.record(&details)?;
    } else {
        show::print(context, &details, sides.as_ref())?;
    }
    Ok(Outcome::Done)
}

/// Returns the content of a version.
async fn read_content(client: &Client, path: &str) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    download(client, path, async |bytes| {
        content.extend_from_slice(bytes);
        match content.len() <= CONTENT_MAX {
            true => Ok(()),
            // The head got a larger version meanwhile.
            false => {
                Err(CommandError::failed("a version is too large to show").hint("`--side NAME` prints it"))
            }
        }
    })
    .await?;
    Ok(content)
}

/// Returns the text of a version, which is empty if there is no entry; `None` if it is no text.
async fn read_text(
    client: &Client,
    path: &str,
    side: &str,
    version: &ReviewVersion,
) -> Result<Option<Vec<u8>>> {
    match (&version.content, version.present, version.text) {
        (Some(content), _, Some(_)) => Ok(Some(content.clone().into_bytes())),
        (None, false, _) => Ok(Some(Vec::new())),
        (None, true, Some(true)) if version.size.is_some_and(|size| size <= CONTENT_MAX as u64) => {
            read_content(client, &format!("{path}/versions/{side}")).await.map(Some)
        }
        _ => Ok(None),
    }
}

fn resolve(context: &mut Context, args: &ReviewResolve) -> Result<Outcome> {
    let path = review_path(&args.project, &args.review);
    let mut request = ResolveReview {
        expect: args.expect.clone(),
        message: args.message.clone(),
        ..ResolveReview::default()
    };
    let choice = &args.choice;
    if choice.edit {
        let edited = edit::edit(&args.server, &path)?;
        request.expect.get_or_insert(edited.version.clone());
        set_content(&mut request, edited.content.clone());
        let resolved = send(&args.server, &path, &request).map_err(|error| edited.keep(error))?;
        return print_resolved(context, &resolved);
    }
    if let Some(file) = &choice.file {
        set_content(&mut request, read_file(file)?);
    } else {
        let choices = [(choice.ours, "ours"), (choice.theirs, "theirs"), (choice.delete, "delete")];
        let chosen = choices.iter().find(|(is_chosen, _)| *is_chosen).map_or("strategy", |(_, name)| name);
        request.choice = Some(chosen.to_owned());
        request.strategy.clone_from(&choice.strategy);
    }
    let resolved = send(&args.server, &path, &request)?;
    print_resolved(context, &resolved)
}

fn send(server: &Server, path: &str, request: &ResolveReview) -> Result<ResolvedReview> {
    with_client(server, async |client| client.post(&format!("{path}/resolve"), request).await)
}

fn set_content(request: &mut ResolveReview, content: Vec<u8>) {
    match String::from_utf8(content) {
        Ok(text) => request.content = Some(text),
        Err(error) => request.content_base64 = Some(BASE64_STANDARD.encode(error.into_bytes())),
    }
}

fn read_file(file: &Path) -> Result<Vec<u8>> {
    let read = if file == Path::new("-") {
        let mut content = Vec::new();
        std::io::stdin().read_to_end(&mut content).map(|_| content)
    } else {
        fs::read(file)
    };
    read.map_err(|error| {
        let shown = file.display();
        CommandError::failed(format!("cannot read `{shown}`: {error}")).hint(io_hint(&error))
    })
}

fn print_resolved(context: &mut Context, resolved: &ResolvedReview) -> Result<Outcome> {
    if context.output.is_json() {
        context.output.record(resolved)?;
        return Ok(Outcome::Done);
    }
    let path = text::escape_controls(&resolved.review.path).into_owned();
    match &resolved.operation {
        Some(operation) => {
            context.output.line(format!("resolved {path} as sequence {}", operation.sequence))?;
        }
        None => context.output.line(format!("resolved {path}; the head stays as it is"))?,
    }
    Ok(Outcome::Done)
}
