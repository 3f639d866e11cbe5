//! `workspace key`

use workspace_api::keys::{CreateKey, Key, KeyLimits, KeyList, NewKey};

use super::table;
use crate::args::KeyCommand;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, ServerUrl, block_on, check_id};
use crate::text;

const KEYS_PATH: &str = "/api/v1/keys";

pub(crate) fn run(context: &mut Context, command: &KeyCommand) -> Result<Outcome> {
    match command {
        KeyCommand::Ls { server } => {
            let client = Client::new(ServerUrl::new(server)?);
            list(context, &block_on(client.get::<KeyList>(KEYS_PATH))?.items)?;
        }
        KeyCommand::Create(args) => {
            let client = Client::new(ServerUrl::new(&args.server)?);
            let body = CreateKey {
                name: args.name.clone(),
                owner: args.owner.as_ref().unwrap_or(&args.name).clone(),
                role: args.role.into(),
                projects: args.projects.clone(),
                agents: args.agents.clone(),
                limits: KeyLimits::default(),
            };
            let created: NewKey = block_on(client.post(KEYS_PATH, &body))?;
            if context.output.is_json() {
                context.output.record(&created)?;
            } else {
                context.output.line(&created.key)?;
                text::print_stderr(&format!("note: its id is {}", created.id));
            }
        }
        KeyCommand::Rm { keys, server } => {
            let client = Client::new(ServerUrl::new(server)?);
            for key in keys {
                let path = format!("{KEYS_PATH}/{}", check_id("key", key)?);
                block_on(client.delete::<()>(&path))?;
            }
        }
    }
    Ok(Outcome::Done)
}

fn list(context: &mut Context, keys: &[Key]) -> Result<()> {
    if context.output.is_json() {
        return keys.iter().try_for_each(|key| context.output.record(key));
    }
    let row = |key: &Key| {
        vec![
            key.id.clone(),
            key.name.clone(),
            key.owner.clone(),
            key.role.as_str().to_owned(),
            table::time(&key.created_at),
            key.revoked_at.as_deref().map(table::time).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    table::print(&mut context.output, &["ID", "NAME", "OWNER", "ROLE", "MADE", "REVOKED"], &rows)
}
