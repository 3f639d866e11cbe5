//! The process that serves a view and outlives whoever started it.
//!
//! The caller runs a program which calls [`daemon_main`] (usually itself, with a hidden command). That
//! process starts another one like it and ends as soon as the view is mounted, so the server is nobody's
//! child; it has a session of its own, no terminal, and `lazy-view.log` in the store for its messages. What
//! went wrong before the view was mounted travels back over the standard output of both.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};

use workspace_state::Store;

use crate::error::MountError;
use crate::mountpoint;
use crate::open_files;
use crate::options::ViewOptions;
use crate::view::View;

/// Words that [`spawn_daemon`] adds to the command: stage, store, mountpoint, options.
const WORDS: usize = 4;
const START: &str = "start";
const SERVE: &str = "serve";
const LOG: &str = "lazy-view.log";
/// A log larger than this is begun anew.
const LOG_MAX: u64 = 1 << 20;

/// Mounts the store in `store` on `mountpoint`, served by a process of its own, and returns when the mount
/// answers. `command` must end up in [`daemon_main`] with the words that are added to it here.
pub fn spawn_daemon(
    mut command: Command,
    store: &Path,
    mountpoint: &Path,
    options: &ViewOptions,
) -> Result<(), MountError> {
    let failed = |error| MountError::io("start the process that serves the view", error);
    // What is wrong with either is found here, where it has a type.
    let store = Store::open(store)?;
    let mountpoint = mountpoint::prepare(mountpoint)?;
    let output = command
        .arg(START)
        .args([store.path().as_os_str(), mountpoint.as_os_str(), &options_word(options)])
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    Report::read(&output.stdout).unwrap_or_else(|| Report::died(&said)).into_result()
}

/// The main function of the process that [`spawn_daemon`] starts; `words` are those it added. Returns when
/// the view is unmounted.
pub fn daemon_main(words: impl IntoIterator<Item = OsString>) -> Result<(), MountError> {
    let words: Vec<OsString> = words.into_iter().collect();
    let [stage, store, mountpoint, options] = words.as_slice() else {
        return Err(bad_words(&words));
    };
    let options = parse_options(options).ok_or_else(|| bad_words(&words))?;
    match stage.to_str() {
        Some(START) => start(Path::new(store), &words),
        Some(SERVE) => serve(Path::new(store), Path::new(mountpoint), &options),
        _ => Err(bad_words(&words)),
    }
}

fn bad_words(words: &[OsString]) -> MountError {
    let message = format!("not a way to start a view: {words:?}");
    MountError::Daemon { message, hint: Some("this command is run by others, not by hand".to_owned()) }
}

/// Starts the server and passes on what it reports.
fn start(store: &Path, words: &[OsString]) -> Result<(), MountError> {
    let failed = |error| MountError::io("start the process that serves the view", error);
    let own: Vec<OsString> = std::env::args_os().skip(1).collect();
    let own = &own[..own.len().saturating_sub(WORDS)];
    let mut server = Command::new(std::env::current_exe().map_err(failed)?)
        .args(own)
        .arg(SERVE)
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(open_log(store))
        .spawn()
        .map_err(failed)?;
    let mut report = Vec::new();
    if let Some(output) = &mut server.stdout {
        output.read_to_end(&mut report).map_err(failed)?;
    }
    io::stdout().write_all(&report).and_then(|()| io::stdout().flush()).map_err(failed)
}

/// Not being able to write a log must not keep a view from being served.
fn open_log(store: &Path) -> Stdio {
    let path = store.join(LOG);
    let too_large = path.metadata().is_ok_and(|log| log.len() > LOG_MAX);
    let mut options = OpenOptions::new();
    options.create(true);
    if too_large {
        options.write(true).truncate(true)
    } else {
        options.append(true)
    };
    options.open(path).map_or_else(|_| Stdio::null(), Stdio::from)
}

fn serve(store: &Path, mountpoint: &Path, options: &ViewOptions) -> Result<(), MountError> {
    open_files::raise();
    let mounted = rustix::process::setsid()
        .map_err(|errno| MountError::io("leave the session of the starter", errno))
        .and_then(|_| View::mount(store, mountpoint, options));
    match mounted {
        Ok(view) => {
            Report::Mounted
                .send()
                .map_err(|error| MountError::io("report that the view is mounted", error))?;
            view.serve_until_stopped()
        }
        Err(error) => {
            // Whoever waits for the report sees the end of the output, and what is returned is logged.
            drop(Report::of(&error).send());
            Err(error)
        }
    }
}

fn options_word(options: &ViewOptions) -> OsString {
    let mut words = vec!["view".to_owned()];
    words.extend(options.allow_other.then(|| "allow-other".to_owned()));
    words.extend(options.threads.map(|threads| format!("threads={threads}")));
    words.extend(options.owner.map(|(user, group)| format!("owner={user}:{group}")));
    words.extend(options.escape.then(|| "escape".to_owned()));
    words.extend(options.keep_set_id.then(|| "set-id".to_owned()));
    words.join(",").into()
}

fn parse_options(word: &OsStr) -> Option<ViewOptions> {
    let mut words = word.to_str()?.split(',');
    let mut options = ViewOptions::default();
    if words.next() != Some("view") {
        return None;
    }
    for word in words {
        match word.split_once('=') {
            None if word == "allow-other" => options.allow_other = true,
            None if word == "escape" => options.escape = true,
            None if word == "set-id" => options.keep_set_id = true,
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

/// What the server says to whoever waits for the mount: one word, then a message and a hint on failure.
#[derive(Debug, PartialEq, Eq)]
enum Report {
    Mounted,
    Failed { message: String, hint: Option<String> },
}

const MOUNTED: &str = "view mounted";
const FAILED: &str = "view failed";

impl Report {
    fn of(error: &MountError) -> Self {
        Self::Failed { message: error.to_string(), hint: error.hint() }
    }

    fn died(said: &str) -> Self {
        let said = said.trim();
        let message = "the process that serves the view ended before it was mounted";
        let message = if said.is_empty() { message.to_owned() } else { format!("{message}: {said}") };
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

    /// Finds a report in the output of a process that may have said other things before.
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

    /// Writes the report and closes the standard output, for whose end the other side waits.
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
    fn options_survive_the_way_to_the_process() {
        for options in [
            ViewOptions::default(),
            ViewOptions { allow_other: true, threads: NonZero::new(3), ..ViewOptions::default() },
            ViewOptions { threads: NonZero::new(1), owner: Some((1000, 0)), ..ViewOptions::default() },
            ViewOptions { escape: true, owner: Some((0, u32::MAX - 1)), ..ViewOptions::default() },
            ViewOptions { keep_set_id: true, ..ViewOptions::default() },
        ] {
            assert_eq!(parse_options(&options_word(&options)), Some(options));
        }
        assert_eq!(parse_options(OsStr::new("view,nonsense")), None);
        assert_eq!(parse_options(OsStr::new("view,owner=1")), None);
        assert_eq!(parse_options(OsStr::new("")), None);
    }

    #[test]
    fn reports_survive_the_way_back() {
        let failed = Report::Failed { message: "no\nway".to_owned(), hint: None };
        assert_eq!(
            Report::read(failed.text().as_bytes()),
            Some(Report::Failed { message: "no way".to_owned(), hint: None })
        );
        assert_eq!(Report::read(b"noise\n\nview mounted\n"), Some(Report::Mounted));
        assert_eq!(Report::read(b"noise"), None);
    }
}
