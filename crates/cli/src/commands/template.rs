//! `workspace template`

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use hyper::Method;
use serde_json::Value;

use super::table;
use crate::args::TemplateCommand;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, Place, block_on};

pub(crate) fn run(context: &mut Context, command: &TemplateCommand) -> Result<Outcome> {
    match command {
        TemplateCommand::Ls { server } => list(context, &Client::new(Place::new(server)?)),
        TemplateCommand::Import { name, source, server } => {
            import(context, &Client::new(Place::new(server)?), name, source)
        }
        TemplateCommand::Rm { names, server } => remove(&Client::new(Place::new(server)?), names),
    }
}

fn list(context: &mut Context, client: &Client) -> Result<Outcome> {
    let answer = block_on(client.call(Method::GET, "/api/v1/templates", None))?;
    let templates = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    if context.output.json() {
        templates.iter().try_for_each(|template| context.output.record(template))?;
    } else {
        let rows: Vec<_> = templates.iter().map(row).collect();
        table::print(&mut context.output, &["NAME", "HERE", "DESCRIPTION"], &rows)?;
    }
    Ok(Outcome::Done)
}

fn row(template: &Value) -> Vec<String> {
    let here = if template["present"] == true { "yes" } else { "no" };
    let mut description = table::text(template, "description");
    if let Some(fetch) = template["fetch"].as_str() {
        description.push_str(&format!(" ({fetch})"));
    }
    vec![table::text(template, "name"), here.to_owned(), description]
}

fn import(context: &mut Context, client: &Client, name: &str, source: &Path) -> Result<Outcome> {
    let unreadable =
        |error: io::Error| CommandError::failed(format!("cannot read {}: {error}", source.display()));
    let archive = open(source).map_err(unreadable)?;
    let template = block_on(client.upload(&Method::PUT, &path(name), archive))?;
    if context.output.json() {
        context.output.record(&template)?;
    } else {
        let size = template["size"].as_u64().unwrap_or_default();
        context.output.line(format!("{} {size} bytes", table::text(&template, "name")))?;
    }
    Ok(Outcome::Done)
}

/// The archive, wherever it is.
fn open(source: &Path) -> io::Result<Box<dyn Read + Send>> {
    if source == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(source)?;
    if !file.metadata()?.is_dir() {
        return Ok(Box::new(file));
    }
    let (reader, writer) = io::pipe()?;
    let directory = source.to_owned();
    std::thread::spawn(move || {
        let mut archive = tar::Builder::new(writer);
        archive.follow_symlinks(false);
        // Whoever reads sees an archive that is cut short, and says so.
        drop(archive.append_dir_all("", directory).and_then(|()| archive.finish()));
    });
    Ok(Box::new(reader))
}

fn remove(client: &Client, names: &[String]) -> Result<Outcome> {
    for name in names {
        block_on(client.call(Method::DELETE, &path(name), None))?;
    }
    Ok(Outcome::Done)
}

/// A name may hold slashes, which mean something in a path.
fn path(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let escaped = name
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    format!("/api/v1/templates/{}", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(path("team/python:3.12"), "/api/v1/templates/team%2Fpython%3A3.12");
        assert_eq!(path("../x y"), "/api/v1/templates/..%2Fx%20y");
    }
}
