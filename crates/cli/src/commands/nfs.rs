//! `workspace nfs`

use workspace_api::nfs::{NfsExport, NfsExports};

use super::table;
use crate::args::NfsCommand;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, ServerUrl, block_on};
use crate::text;

pub(crate) fn run(context: &mut Context, command: &NfsCommand) -> Result<Outcome> {
    let NfsCommand::Ls { server } = command;
    let client = Client::new(ServerUrl::new(server)?);
    let exports: NfsExports = block_on(client.get("/api/v1/nfs/exports"))?;
    if exports.mode == "off" {
        text::print_stderr("note: the server has no NFS (NFS_MODE=off)");
    }
    list(context, &exports.items)?;
    Ok(Outcome::Done)
}

fn list(context: &mut Context, exports: &[NfsExport]) -> Result<()> {
    if context.output.is_json() {
        return exports.iter().try_for_each(|export| context.output.record(export));
    }
    let row = |export: &NfsExport| {
        vec![
            export.sandbox.clone(),
            export.nfs.host.clone(),
            export.nfs.port.to_string(),
            export.nfs.path.clone(),
            if export.read_only { "read" } else { "read, write" }.to_owned(),
            export.mounts.to_string(),
        ]
    };
    let rows: Vec<_> = exports.iter().map(row).collect();
    table::print(&mut context.output, &["SANDBOX", "HOST", "PORT", "PATH", "ACCESS", "MOUNTS"], &rows)
}
