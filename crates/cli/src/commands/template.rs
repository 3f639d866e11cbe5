//! `workspace template`

use hyper::Method;
use serde_json::Value;

use super::table;
use crate::args::TemplateCommand;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, Place, block_on};

pub(crate) fn run(context: &mut Context, command: &TemplateCommand) -> Result<Outcome> {
    let TemplateCommand::Ls { server } = command;
    let client = Client::new(Place::new(server)?);
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
