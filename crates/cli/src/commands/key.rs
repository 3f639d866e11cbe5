//! `workspace key`

use hyper::Method;
use serde_json::{Value, json};

use super::table;
use crate::args::KeyCommand;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, Place, block_on, check_id};
use crate::text;

const PATH: &str = "/api/v1/keys";

pub(crate) fn run(context: &mut Context, command: &KeyCommand) -> Result<Outcome> {
    match command {
        KeyCommand::Ls { server } => {
            let client = Client::new(Place::new(server)?);
            list(context, &block_on(client.call(Method::GET, PATH, None))?)?;
        }
        KeyCommand::Create(args) => {
            let client = Client::new(Place::new(&args.server)?);
            let owner = args.owner.as_ref().unwrap_or(&args.name);
            let body = json!({ "name": args.name, "owner": owner, "role": args.role.as_str() });
            let made = block_on(client.call(Method::POST, PATH, Some(&body)))?;
            if context.output.json() {
                context.output.record(&made)?;
            } else {
                context.output.line(table::text(&made, "key"))?;
                text::print_stderr(&format!("note: its id is {}", table::text(&made, "id")));
            }
        }
        KeyCommand::Rm { keys, server } => {
            let client = Client::new(Place::new(server)?);
            for key in keys {
                let path = format!("{PATH}/{}", check_id("key", key)?);
                block_on(client.call(Method::DELETE, &path, None))?;
            }
        }
    }
    Ok(Outcome::Done)
}

fn list(context: &mut Context, answer: &Value) -> Result<()> {
    let keys = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if context.output.json() {
        return keys.iter().try_for_each(|key| context.output.record(key));
    }
    let row = |key: &Value| {
        let mut row = ["id", "name", "owner", "role"].map(|field| table::text(key, field)).to_vec();
        row.extend([table::time(key, "createdAt"), table::time(key, "revokedAt")]);
        row
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    table::print(&mut context.output, &["ID", "NAME", "OWNER", "ROLE", "MADE", "REVOKED"], &rows)
}
