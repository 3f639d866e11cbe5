//! A program in a terminal that this one becomes.

use std::io::Write as _;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use workspace_sandbox::{End, Piece, Service, Size, TerminalRequest};

use super::command::{CommandOptions, give, lost};
use super::{Over, SCOPE};
use crate::error::Result;
use crate::screen::{self, Raw};
use crate::signals::{Signals, failed};
use crate::stdin::stdin;

/// Runs it to its end. All keys go to it, Ctrl-C too.
pub(crate) async fn run(
    service: &Service,
    sandbox: &str,
    options: CommandOptions,
    signals: &mut Signals,
) -> Result<(Over, mpsc::Receiver<Vec<u8>>)> {
    let _raw = Raw::enter()?;
    let mut envs = options.envs;
    if let Ok(term) = std::env::var("TERM") {
        envs.entry("TERM".to_owned()).or_insert(term);
    }
    let request = TerminalRequest { size: size(), shell: None, command: Some(options.line), cwd: None, envs };
    let handle = service.open_terminal(&SCOPE, sandbox, request).await?;
    let mut output = handle.output(0).await?;
    let mut resized = signal(SignalKind::window_change()).map_err(|error| failed(&error))?;
    let mut keys = stdin();
    let over = {
        let typing = type_all(service, sandbox, &handle.id, &mut keys);
        let limit = limit(options.timeout);
        tokio::pin!(typing, limit);
        let (mut typed, mut timed_out) = (false, false);
        loop {
            tokio::select! {
                pieces = output.next() => {
                    if let Some(end) = show(pieces?.ok_or_else(lost)?) {
                        break Over::Ended(End { timed_out, ..end });
                    }
                }
                done = &mut typing, if !typed => {
                    done?;
                    typed = true;
                }
                _ = resized.recv() => drop(service.resize_terminal(&SCOPE, sandbox, &handle.id, size()).await),
                signal = signals.next() => break Over::Asked(signal),
                () = &mut limit, if !timed_out => {
                    timed_out = true;
                    service.close_terminal(&SCOPE, sandbox, &handle.id).await?;
                }
            }
        }
    };
    Ok((over, keys))
}

fn size() -> Size {
    let (cols, rows) = screen::size();
    Size { cols, rows }
}

async fn limit(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

async fn type_all(
    service: &Service,
    sandbox: &str,
    terminal: &str,
    keys: &mut mpsc::Receiver<Vec<u8>>,
) -> Result<()> {
    while let Some(keys) = keys.recv().await {
        if !give(async |keys| service.write_terminal(&SCOPE, sandbox, terminal, keys).await, &keys).await? {
            break;
        }
    }
    Ok(())
}

/// Shows pieces; how the program ended, if it did.
fn show(pieces: Vec<Piece>) -> Option<End> {
    let mut out = std::io::stdout();
    for piece in pieces {
        match piece {
            // A terminal that is gone tells so by a signal.
            Piece::Data { data, .. } => drop(out.write_all(&data).and_then(|()| out.flush())),
            Piece::Gap { .. } => {}
            Piece::End(end) => return Some(end),
        }
    }
    None
}
