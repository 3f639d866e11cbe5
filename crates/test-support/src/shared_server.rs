//! Servers that all test processes of a build share.
//!
//! A runner may use a process per test, and a server takes seconds to start and to stop. So the first test that needs a
//! server starts it, and it ends after the last one: it runs as long as some process holds a lock on a file.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const WHILE_LOCKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/while-locked.sh");

/// Use of a shared server. The server ends some seconds after the last use of it.
pub(crate) struct SharedServer {
    /// Directory of the server, which its script removes.
    pub(crate) directory: PathBuf,
    /// Shared lock on a file: the server runs as long as some process holds such a lock.
    _lock: File,
}

impl SharedServer {
    /// Returns the server with this name. Starts it if none runs: `script DIRECTORY ARGUMENT…` with a new directory must
    /// print `ready`, serve until its standard input ends, and remove the directory. All processes must pass the same
    /// arguments. `is_running` tells whether the server of a directory accepts connections.
    pub(crate) fn start(
        name: &str,
        script: &str,
        arguments: &[PathBuf],
        is_running: impl Fn(&Path) -> bool,
    ) -> Self {
        let build = env::current_exe().unwrap().ancestors().nth(2).unwrap().join(format!("test-{name}"));
        fs::create_dir_all(&build).unwrap();
        let (users, current) = (build.join("users.lock"), build.join("directory"));
        let lock = File::create(&users).unwrap();
        lock.lock_shared().unwrap();
        let start = File::create(build.join("start.lock")).unwrap();
        start.lock().unwrap();
        let running = fs::read_to_string(&current).ok().map(PathBuf::from).filter(|it| is_running(it));
        let directory = running.unwrap_or_else(|| {
            let directory = new_directory();
            // Its own session: signals to the process group of this test must not reach it.
            let mut command = Command::new("setsid");
            command.arg(WHILE_LOCKED).arg(&users).arg(script).arg(&directory).args(arguments);
            // A test whose output stays open after its end is reported as leaky.
            let log = File::create(build.join("log")).unwrap();
            drop(start_and_wait(command.stdin(Stdio::null()).stderr(log)));
            fs::write(&current, directory.as_os_str().as_encoded_bytes()).unwrap();
            directory
        });
        Self { directory, _lock: lock }
    }
}

/// Creates a directory for a server. The script of the server removes it: after the death of this process nothing else
/// could.
pub(crate) fn new_directory() -> PathBuf {
    tempfile::tempdir().unwrap().keep()
}

/// Starts the script of a server, and waits until it reports that the server is ready.
pub(crate) fn start_and_wait(script: &mut Command) -> Child {
    let mut child = script.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "the server of the tests did not start: {script:?}");
    child
}
