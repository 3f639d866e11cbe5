//! The program while it runs: what it reads and prints, signals, its time.

use std::fs::File;
use std::io::{Read as _, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::termios::{Winsize, tcsetwinsize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use workspace_host::host_view::{ExitStatus, HostView, RunningProgram};

use crate::error::{CommandError, Result};
use crate::screen::{self, Raw};
use crate::signals::{Signals, failed};
use crate::stdin::{READ, stdin};

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
/// Time that a program gets to end by itself when its time is up.
const GRACE: Duration = Duration::from_secs(2);

/// End of a run.
pub(super) enum Over {
    Ended {
        ended: ExitStatus,
        timed_out: bool,
    },
    /// This process was asked to end, by that signal.
    Asked(i32),
}

/// Options of a run.
pub(super) struct Run {
    pub(super) timeout: Option<Duration>,
    /// Sends all that it prints to stderr.
    pub(super) aside: bool,
}

fn cannot(error: impl std::fmt::Display) -> CommandError {
    CommandError::failed(format!("cannot pass on what the program reads and prints: {error}"))
        .hint("the system may have run out of open files")
}

/// Runs it to its end. All that came of it has ended then.
pub(super) async fn run(
    view: HostView,
    run: Run,
    signals: &mut Signals,
) -> Result<(Over, mpsc::Receiver<Vec<u8>>)> {
    let (input, to_program) = std::io::pipe().map_err(cannot)?;
    let (from_program, output) = std::io::pipe().map_err(cannot)?;
    let (errors_from_program, errors) = std::io::pipe().map_err(cannot)?;
    let on_terminal = view.terminal.is_some();
    let starting = tokio::task::spawn_blocking(move || {
        // These ends are the program's alone from here on.
        let (input, output, errors) = (input, output, errors);
        view.start([input.as_fd(), output.as_fd(), errors.as_fd()])
    });
    // What is half made ends with this process, or is waited for.
    let running = Arc::new(starting.await.map_err(cannot)?.map_err(|error| not_started(&error))?);
    let _raw = if on_terminal { Some(Raw::enter()?) } else { None };
    let mut readers = Vec::new();
    let writer: File = match &running.terminal {
        Some(terminal) => {
            drop((to_program, errors_from_program, from_program));
            let copy = |fd: &OwnedFd| fd.try_clone().map(File::from).map_err(cannot);
            readers.push(pass_output(copy(terminal)?, false)?);
            copy(terminal)?
        }
        None => {
            readers.push(pass_output(OwnedFd::from(from_program).into(), run.aside)?);
            readers.push(pass_output(OwnedFd::from(errors_from_program).into(), true)?);
            OwnedFd::from(to_program).into()
        }
    };
    let mut given = stdin();
    let over = accompany(&running, writer, &mut given, run.timeout, signals).await?;
    if let Over::Asked(_) = over {
        let killing = running.clone();
        drop(tokio::task::spawn_blocking(move || killing.kill()).await);
    }
    // All that could write has ended, so these end, unless whoever reads this process's output does not go on.
    let reading = tokio::task::spawn_blocking(move || readers.into_iter().for_each(|it| drop(it.join())));
    tokio::select! {
        _ = reading => {}
        signal = signals.next(), if !matches!(over, Over::Asked(_)) => return Ok((Over::Asked(signal), given)),
    }
    Ok((over, given))
}

async fn accompany(
    running: &Arc<RunningProgram>,
    mut writer: File,
    given: &mut mpsc::Receiver<Vec<u8>>,
    timeout: Option<Duration>,
    signals: &mut Signals,
) -> Result<Over> {
    let mut resized = signal(SignalKind::window_change()).map_err(|error| failed(&error))?;
    let (typed, mut to_write) = mpsc::channel::<Vec<u8>>(1);
    let thread = std::thread::Builder::new().spawn(move || {
        while let Some(piece) = to_write.blocking_recv() {
            if writer.write_all(&piece).is_err() {
                return;
            }
        }
    });
    thread.map_err(cannot)?;
    let waiting = running.clone();
    let mut waiting = tokio::task::spawn_blocking(move || waiting.wait());
    let passing = async move {
        while let Some(piece) = given.recv().await {
            if typed.send(piece).await.is_err() {
                break;
            }
        }
        // Dropped here: the program's input ends.
    };
    tokio::pin!(passing);
    let mut deadline = timeout.map(|timeout| tokio::time::Instant::now() + timeout);
    let (mut passed, mut interrupted, mut timed_out) = (false, false, false);
    loop {
        tokio::select! {
            ended = &mut waiting => {
                let ended = ended.map_err(cannot)?.map_err(|error| not_started(&error))?;
                let ended = match ended {
                    Some(ended) => ended,
                    None if timed_out => ExitStatus { exit_code: 128 + SIGKILL, start_error: None },
                    None => return Err(crate::local::lost()),
                };
                return Ok(Over::Ended { ended, timed_out });
            }
            () = &mut passing, if !passed => passed = true,
            number = signals.next() => {
                if number != SIGINT {
                    return Ok(Over::Asked(number));
                }
                let again = std::mem::replace(&mut interrupted, true);
                running.signal(if again { SIGKILL } else { number }).map_err(|error| not_started(&error))?;
            }
            _ = resized.recv() => {
                if let Some(terminal) = &running.terminal {
                    let (ws_col, ws_row) = screen::size();
                    let _ = tcsetwinsize(terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 });
                }
            }
            () = sleep_until(deadline) => {
                let again = std::mem::replace(&mut timed_out, true);
                running.signal(if again { SIGKILL } else { SIGTERM }).map_err(|error| not_started(&error))?;
                if again {
                    let killing = running.clone();
                    drop(tokio::task::spawn_blocking(move || killing.kill()).await);
                }
                deadline = (!again).then(|| tokio::time::Instant::now() + GRACE);
            }
        }
    }
}

async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Forwards output of the program. If the reader closes it, the pipe to the program is closed, too.
fn pass_output(mut from: File, to_stderr: bool) -> Result<JoinHandle<()>> {
    // Not by way of the standard library's own, whose lock the output of this command has.
    let to = if to_stderr {
        std::io::stderr().as_fd().try_clone_to_owned()
    } else {
        std::io::stdout().as_fd().try_clone_to_owned()
    };
    let mut to = File::from(to.map_err(cannot)?);
    let thread = std::thread::Builder::new().spawn(move || {
        let mut buffer = vec![0; READ];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) if to.write_all(&buffer[..count]).is_err() => return,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // A terminal reports an error when no process has it open any more.
                Err(_) => return,
                Ok(_) => {}
            }
        }
    });
    thread.map_err(cannot)
}

/// Says what to do where no such sandbox can be had.
fn not_started(error: &workspace_host::HostError) -> CommandError {
    use workspace_host::HostErrorKind;
    let failed = CommandError::failed(error.to_string());
    match error.kind() {
        HostErrorKind::NoUserNamespaces | HostErrorKind::NoIsolation => {
            failed.hint("a server elsewhere can do it: `workspace sandbox create --dir DIR --server URL`")
        }
        HostErrorKind::Overlay | HostErrorKind::NoOverlay => {
            failed.hint("`workspace try --template base -- …` works on a copy at /workspace instead").hint(
                "XDG_CACHE_HOME names another place for what is changed, for instance on another filesystem",
            )
        }
        _ => failed.hint("nothing was changed; the system's log (`dmesg`) may say more"),
    }
}
