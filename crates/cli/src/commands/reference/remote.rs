//! References on a server.

use hyper::header::{IF_MATCH, IF_NONE_MATCH};
use serde::Serialize;
use workspace_api::error_codes;
use workspace_api::references::{Reference, ReferenceList, SetReference};

use crate::args::{RefSet, Server};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, find_snapshot, percent_encode, reference_path, with_client};
use crate::text::escape_controls;

const PAGE_SIZE: usize = 1_000;

/// A reference that was created or moved.
#[derive(Serialize)]
struct MovedFields<'a> {
    #[serde(flatten)]
    reference: &'a Reference,
    /// Target before the move; `None` for a new reference.
    previous: Option<String>,
}

pub(super) fn list(context: &mut Context, server: &Server) -> Result<Outcome> {
    let all = with_client(server, async |client| list_all(client).await)?;
    for reference in &all {
        if context.output.is_json() {
            context.output.record(reference)?;
        } else {
            print(context, reference)?;
        }
    }
    Ok(Outcome::Done)
}

async fn list_all(client: &Client) -> Result<Vec<Reference>> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page: ReferenceList =
            client.get(&format!("/api/v1/references?limit={PAGE_SIZE}{cursor}")).await?;
        all.extend(page.items);
        let Some(next) = page.next else { return Ok(all) };
        cursor = format!("&cursor={}", percent_encode(next.as_bytes()));
    }
}

fn print(context: &mut Context, reference: &Reference) -> Result<()> {
    let line = format!("{}  {}", reference.snapshot, reference.name);
    context.output.line(escape_controls(&line))
}

pub(super) fn get(context: &mut Context, server: &Server, name: &str) -> Result<Outcome> {
    let reference = with_client(server, async |client| get_existing(client, name).await)?;
    if context.output.is_json() {
        context.output.record(&reference)?;
    } else {
        context.output.line(&reference.snapshot)?;
    }
    Ok(Outcome::Done)
}

pub(super) fn set(context: &mut Context, server: &Server, args: &RefSet) -> Result<Outcome> {
    let (reference, previous) = with_client(server, async |client| set_on(client, args).await)?;
    if context.output.is_json() {
        context.output.record(&MovedFields { reference: &reference, previous })?;
    } else {
        print(context, &reference)?;
    }
    Ok(Outcome::Done)
}

/// Sets a reference. Returns it, and its previous target.
async fn set_on(client: &Client, args: &RefSet) -> Result<(Reference, Option<String>)> {
    let snapshot = find_snapshot(client, &args.snapshot).await?;
    let previous = find(client, &args.name).await?.map(|reference| reference.snapshot);
    let expected = match &args.expect {
        Some(text) => Some(find_snapshot(client, text).await?),
        None => previous.clone().filter(|_| !args.new),
    };
    let condition = match expected {
        Some(id) => (IF_MATCH, entity_tag(&id)),
        None => (IF_NONE_MATCH, "*".to_owned()),
    };
    let path = reference_path(&args.name);
    let set = client.put_with_header(&path, &SetReference { snapshot }, condition).await?;
    Ok((set, previous))
}

/// Removes references: all of them, or none if one does not exist.
pub(super) fn remove(context: &mut Context, server: &Server, names: &[String]) -> Result<Outcome> {
    let removed = with_client(server, async |client| remove_all(client, names).await)?;
    if context.output.is_json() {
        removed.iter().try_for_each(|reference| context.output.record(reference))?;
    }
    Ok(Outcome::Done)
}

async fn remove_all(client: &Client, names: &[String]) -> Result<Vec<Reference>> {
    let mut found: Vec<Reference> = Vec::with_capacity(names.len());
    for name in names {
        if found.iter().any(|other| other.name == *name) {
            continue;
        }
        found.push(get_existing(client, name).await?);
    }
    remove_found(client, &found).await?;
    Ok(found)
}

/// Removes references that still point to the same snapshots.
pub(in crate::commands) async fn remove_found(client: &Client, references: &[Reference]) -> Result<()> {
    for reference in references {
        let condition = (IF_MATCH, entity_tag(&reference.snapshot));
        match client.try_delete(&reference_path(&reference.name), Some(condition)).await {
            Ok(()) => {}
            // Another client removed it in the meantime.
            Err(failure) if failure.is(error_codes::REFERENCE_NOT_FOUND) => {}
            Err(failure) => return Err(client.explain(failure)),
        }
    }
    Ok(())
}

/// Returns a reference. Fails if there is none with that name.
pub(in crate::commands) async fn get_existing(client: &Client, name: &str) -> Result<Reference> {
    find(client, name).await?.ok_or_else(|| {
        CommandError::failed(format!("there is no reference `{name}`"))
            .hint("`workspace ref ls --server URL` lists your references")
    })
}

/// Finds a reference; `None` if there is none with that name.
async fn find(client: &Client, name: &str) -> Result<Option<Reference>> {
    match client.try_get(&reference_path(name)).await {
        Ok(reference) => Ok(Some(reference)),
        Err(failure) if failure.is(error_codes::REFERENCE_NOT_FOUND) => Ok(None),
        Err(failure) => Err(client.explain(failure)),
    }
}

/// Returns the entity tag of a reference to this snapshot.
fn entity_tag(snapshot: &str) -> String {
    format!("\"{snapshot}\"")
}
