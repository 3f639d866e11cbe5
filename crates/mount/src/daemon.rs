//! Daemon process that serves a lazy mount (a read-only FUSE mount that loads content on first read) and
//! outlives the process that started it.
//!
//! The caller runs a program which calls [`daemon_main`] (usually itself, with a hidden command). That
//! process starts the same program again, as the serving process, and exits as soon as the file system is mounted, so
//! that the serving process is reparented to init. The serving process has its own session, no terminal, and
//! `lazy-mount.log` in the store for its messages. Errors before the mount are reported back over the standard output
//! of both processes.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};

use workspace_state::Store;

use crate::error::MountError;
use crate::lazy_mount::LazyMount;
use crate::mountpoint;
use crate::open_files;
use crate::options::MountOptions;

/// Number of arguments that [`spawn_daemon`] adds to the command: stage, store, mountpoint, options.
const ADDED_ARGUMENT_COUNT: usize = 4;
/// Stage of the process that starts the serving process and exits.
const START: &str = "start";
/// Stage of the serving process.
const SERVE: &str = "serve";
/// First word of the encoded options. Marks the argument as one that [`spawn_daemon`] added.
const OPTIONS_PREFIX: &str = "lazy-mount";
/// Name of the log file in the store.
const LOG: &str = "lazy-mount.log";
/// Size in bytes above which the log is truncated.
const LOG_MAX: u64 = 1 << 20;

/// Mounts the store in `store` on `mountpoint`, served by a separate process, and returns when the mount
/// responds. `command` must call [`daemon_main`] with the arguments that are added to it here.
pub fn spawn_daemon(
    mut command: Command,
    store: &Path,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<(), MountError> {
    let failed = |error| MountError::io("start the mount daemon", error);
    // Opened here as well, so that these failures are returned as typed errors; the daemon can report only
    // text.
    let store = Store::open(store)?;
    let mountpoint = mountpoint::prepare(mountpoint)?;
    let output = command
        .arg(START)
        .args([store.path().as_os_str(), mountpoint.as_os_str(), &encode_options(options)])
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(failed)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    Report::read(&output.stdout).unwrap_or_else(|| Report::died(&stderr)).into_result()
}

/// Main function of the processes that [`spawn_daemon`] starts; `arguments` are those it added. The first
/// process returns as soon as the serving process has reported that it has mounted the file system or failed. The
/// serving process returns when the file system is unmounted.
pub fn daemon_main(arguments: impl IntoIterator<Item = OsString>) -> Result<(), MountError> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let [stage, store, mountpoint, options] = arguments.as_slice() else {
        return Err(invalid_arguments(&arguments));
    };
    let options = parse_options(options).ok_or_else(|| invalid_arguments(&arguments))?;
    match stage.to_str() {
        Some(START) => start(Path::new(store), &arguments),
        Some(SERVE) => serve(Path::new(store), Path::new(mountpoint), &options),
        _ => Err(invalid_arguments(&arguments)),
    }
}

fn invalid_arguments(arguments: &[OsString]) -> MountError {
    let message = format!("invalid arguments for the mount daemon: {arguments:?}");
    MountError::Daemon {
        message,
        hint: Some("this command is internal; run `workspace mount` instead".to_owned()),
    }
}

/// Starts the serving process and forwards its report.
fn start(store: &Path, arguments: &[OsString]) -> Result<(), MountError> {
    let failed = |error| MountError::io("start the mount daemon", error);
    let own_arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command_prefix = &own_arguments[..own_arguments.len().saturating_sub(ADDED_ARGUMENT_COUNT)];
    let mut serving = Command::new(std::env::current_exe().map_err(failed)?)
        .args(command_prefix)
        .arg(SERVE)
        .args(&arguments[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // A failure to open the log must not prevent serving.
        .stderr(open_log(store).map_or_else(|_| Stdio::null(), Stdio::from))
        .spawn()
        .map_err(failed)?;
    let mut report = Vec::new();
    if let Some(output) = &mut serving.stdout {
        output.read_to_end(&mut report).map_err(failed)?;
    }
    io::stdout().write_all(&report).and_then(|()| io::stdout().flush()).map_err(failed)
}

/// Opens the log for appending, because the processes of all mounts of the store write to it. Truncates it first if it
/// is larger than [`LOG_MAX`].
fn open_log(store: &Path) -> io::Result<File> {
    let log = OpenOptions::new().create(true).append(true).open(store.join(LOG))?;
    if log.metadata()?.len() > LOG_MAX {
        log.set_len(0)?;
    }
    Ok(log)
}

fn serve(store: &Path, mountpoint: &Path, options: &MountOptions) -> Result<(), MountError> {
    open_files::raise_limit();
    let mounted = rustix::process::setsid()
        .map_err(|errno| MountError::io("start a new session", errno))
        .and_then(|_| LazyMount::mount(store, mountpoint, options));
    match mounted {
        Ok(mount) => {
            Report::Mounted
                .send()
                .map_err(|error| MountError::io("report that the lazy mount is ready", error))?;
            mount.serve_until_stopped()
        }
        Err(error) => {
            // If sending fails, the waiting process still sees the end of the output. The error is logged.
            drop(Report::of(&error).send());
            Err(error)
        }
    }
}

fn encode_options(options: &MountOptions) -> OsString {
    let mut words = vec![OPTIONS_PREFIX.to_owned()];
    words.extend(options.allow_other.then(|| "allow-other".to_owned()));
    words.extend(options.threads.map(|threads| format!("threads={threads}")));
    words.extend(options.owner.map(|(user, group)| format!("owner={user}:{group}")));
    words.extend(options.escape_overlay_xattrs.then(|| "escape-overlay-xattrs".to_owned()));
    words.extend(options.show_set_id_bits.then(|| "show-set-id-bits".to_owned()));
    words.join(",").into()
}

fn parse_options(word: &OsStr) -> Option<MountOptions> {
    let mut words = word.to_str()?.split(',');
    let mut options = MountOptions::default();
    if words.next() != Some(OPTIONS_PREFIX) {
        return None;
    }
    for word in words {
        match word.split_once('=') {
            None if word == "allow-other" => options.allow_other = true,
            None if word == "escape-overlay-xattrs" => options.escape_overlay_xattrs = true,
            None if word == "show-set-id-bits" => options.show_set_id_bits = true,
            Some(("owner", ids)) => {
                let (user, group) = ids.split_once(':')?;
                options.owner = Some((user.parse().ok()?, group.parse().ok()?));
            }
            Some(("threads", count)) => options.threads = Some(count.parse::<NonZero<usize>>().ok()?),
            _ => return None,
        }
    }
    Some(options)
}

/// Report of the serving process to the process that waits for the mount: a keyword, then a message and a hint on
/// failure.
#[derive(Debug, PartialEq, Eq)]
enum Report {
    Mounted,
    Failed { message: String, hint: Option<String> },
}

const MOUNTED: &str = "lazy mount ready";
const FAILED: &str = "lazy mount failed";

impl Report {
    fn of(error: &MountError) -> Self {
        Self::Failed { message: error.to_string(), hint: error.hint() }
    }

    fn died(stderr: &str) -> Self {
        let stderr = stderr.trim();
        let message = "the mount daemon exited before the file system was mounted";
        let message = if stderr.is_empty() { message.to_owned() } else { format!("{message}: {stderr}") };
        Self::Failed { message, hint: Some(format!("see {LOG} in the directory of the store")) }
    }

    fn text(&self) -> String {
        match self {
            Self::Mounted => format!("\n{MOUNTED}\n"),
            Self::Failed { message, hint } => {
                let hint = hint.as_deref().unwrap_or_default();
                format!("\n{FAILED}\n{}\n{}\n", message.replace('\n', " "), hint.replace('\n', " "))
            }
        }
    }

    /// Finds a report in the output of a process that may have printed other lines before it; `None` if there is none.
    fn read(output: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(output);
        let mut lines = text.lines().skip_while(|line| *line != MOUNTED && *line != FAILED);
        if lines.next()? == MOUNTED {
            return Some(Self::Mounted);
        }
        let message = lines.next()?.to_owned();
        let hint = lines.next().filter(|hint| !hint.is_empty()).map(str::to_owned);
        Some(Self::Failed { message, hint })
    }

    /// Writes the report and closes the standard output, whose end the other side waits for.
    fn send(&self) -> io::Result<()> {
        let mut output = io::stdout().lock();
        output.write_all(self.text().as_bytes())?;
        output.flush()?;
        rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
        Ok(())
    }

    fn into_result(self) -> Result<(), MountError> {
        match self {
            Self::Mounted => Ok(()),
            Self::Failed { message, hint } => Err(MountError::Daemon { message, hint }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip_through_arguments() {
        for options in [
            MountOptions::default(),
            MountOptions { allow_other: true, threads: NonZero::new(3), ..MountOptions::default() },
            MountOptions { threads: NonZero::new(1), owner: Some((1000, 0)), ..MountOptions::default() },
            MountOptions {
                escape_overlay_xattrs: true,
                owner: Some((0, u32::MAX - 1)),
                ..MountOptions::default()
            },
            MountOptions { show_set_id_bits: true, ..MountOptions::default() },
        ] {
            assert_eq!(parse_options(&encode_options(&options)), Some(options));
        }
        assert_eq!(parse_options(OsStr::new("lazy-mount,nonsense")), None);
        assert_eq!(parse_options(OsStr::new("lazy-mount,owner=1")), None);
        assert_eq!(parse_options(OsStr::new("")), None);
    }

    #[test]
    fn a_mount_that_truncated_the_log_does_not_overwrite_lines_of_another_mount() {
        let store = tempfile::tempdir().unwrap();
        let path = store.path().join(LOG);
        File::create(&path).unwrap().set_len(LOG_MAX + 1).unwrap();
        let [mut first, mut second] = [(), ()].map(|()| open_log(store.path()).unwrap());
        second.write_all(b"line of the second mount\n").unwrap();
        first.write_all(b"first\n").unwrap();
        let lines = "line of the second mount\nfirst\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), lines);
        drop(open_log(store.path()).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), lines, "a small log is kept");
    }

    #[test]
    fn reports_round_trip() {
        let failed = Report::Failed { message: "no\nway".to_owned(), hint: None };
        assert_eq!(
            Report::read(failed.text().as_bytes()),
            Some(Report::Failed { message: "no way".to_owned(), hint: None })
        );
        assert_eq!(Report::read(b"noise\n\nlazy mount ready\n"), Some(Report::Mounted));
        assert_eq!(Report::read(b"noise"), None);
    }
}
