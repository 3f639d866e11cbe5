//! `workspace ports`

use workspace_api::ports::{ListeningPort, PortList};

use super::table;
use crate::args::Ports;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{find_sandbox, with_client};

pub(crate) fn run(context: &mut Context, args: &Ports) -> Result<Outcome> {
    let ports = with_client(&args.server, async |client| {
        let sandbox = find_sandbox(client, &args.sandbox).await?;
        Ok(client.get::<PortList>(&format!("/api/v1/sandboxes/{sandbox}/ports")).await?.items)
    })?;
    if context.output.is_json() {
        ports.iter().try_for_each(|port| context.output.record(port))?;
        return Ok(Outcome::Done);
    }
    let row = |port: &ListeningPort| {
        vec![
            port.port.to_string(),
            port.address.clone(),
            port.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            port.program.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = ports.iter().map(row).collect();
    table::print(&mut context.output, &["PORT", "ADDRESS", "PID", "PROGRAM"], &rows)?;
    Ok(Outcome::Done)
}
