//! `workspace port-forward`

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use workspace_api::ports::PortList;

use crate::args::{PortForward, PortPair};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::remote::{Client, ServerUrl, block_on, find_sandbox, port_forward};
use crate::signals::Signals;
use crate::text;

/// Maximum number of connections at a time. Others wait until one ends.
const CONNECTIONS_MAX: usize = 256;
/// Pause after a failure to accept a connection, such as too many open files.
const ACCEPT_RETRY_BACKOFF: Duration = Duration::from_millis(100);

/// Ports that are forwarded, for `--json`.
#[derive(Serialize)]
struct ForwardFields<'a> {
    local: SocketAddr,
    sandbox: &'a str,
    port: u16,
}

pub(crate) fn run(context: &mut Context, args: &PortForward) -> Result<Outcome> {
    let client = Client::new(ServerUrl::new(&args.server)?);
    // Shared by the tasks of connections, which must be `'static` and so cannot borrow the client.
    let server = Arc::new(ServerUrl::new(&args.server)?);
    block_on(forward(context, &client, server, args))
}

async fn forward(
    context: &mut Context,
    client: &Client,
    server: Arc<ServerUrl>,
    args: &PortForward,
) -> Result<Outcome> {
    let mut signals = Signals::new()?;
    let PortPair { local, remote } = args.ports;
    let sandbox = find_sandbox(client, &args.sandbox).await?;
    let ports: PortList = client.get(&format!("/api/v1/sandboxes/{sandbox}/ports")).await?;
    let failed = |error: std::io::Error| {
        CommandError::failed(format!("cannot listen on 127.0.0.1:{local}: {error}"))
            .hint("use another local port, as in `3000:80`, or 0 for a free one")
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if !ports.items.iter().any(|port| port.port == remote) {
        text::print_stderr(&format!("note: nothing listens on port {remote} of the sandbox yet"));
    }
    if context.output.is_json() {
        context.output.record(&ForwardFields { local: address, sandbox: &sandbox, port: remote })?;
    } else {
        context.output.line(format!("{address} -> {}:{remote}", args.sandbox))?;
    }
    context.output.flush()?;
    tokio::select! {
        never = accept(&listener, &server, &sandbox, remote) => match never {},
        signal = signals.next() => Err(CommandError::interrupted(signal)),
    }
}

/// Accepts connections, and forwards each in a task.
async fn accept(
    listener: &TcpListener,
    server: &Arc<ServerUrl>,
    sandbox: &str,
    port: u16,
) -> std::convert::Infallible {
    let mut connections = JoinSet::new();
    loop {
        if connections.len() >= CONNECTIONS_MAX {
            drop(connections.join_next().await);
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Forgets connections that have ended.
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((local, _)) => {
                connections.spawn(connect(server.clone(), sandbox.to_owned(), port, local));
            }
            Err(error) => {
                text::print_stderr(&format!("warning: cannot accept a connection: {error}"));
                text::print_stderr(&format!("hint: {}", io_hint(&error)));
                sleep(ACCEPT_RETRY_BACKOFF).await;
            }
        }
    }
}

/// Forwards one connection. A failure does not end the command: the program in the sandbox may start later.
async fn connect(server: Arc<ServerUrl>, sandbox: String, port: u16, local: TcpStream) {
    // Small messages must not be delayed. Without this, the connection works, too.
    drop(local.set_nodelay(true));
    if let Err(failure) = port_forward::forward(&server, &sandbox, port, local).await {
        let error = failure.explain(&server, port);
        text::print_stderr(&format!("error: {}", error.message));
        for hint in error.hints {
            text::print_stderr(&format!("hint: {hint}"));
        }
    }
}
