//! A server with one task in a process of its own, so that it and its helper can be killed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use workspace_host::NamespaceHolder;
use workspace_host::launch::{Launch, launch};
use workspace_host::limits::Limits;
use workspace_host::{Process, Result};

use crate::guest::SandboxPaths;

/// First argument of this program as such a server; the task and the home follow.
const SELF_EXEC_ARG: &str = "launcher";
/// Argument with which this program exits successfully. It is not valid UTF-8.
const NOT_UTF8_ARG: &[u8] = b"\xff";

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![helper_main_ignores_an_argument_that_is_not_utf8]
}

/// Runs the task, if this process was started as such a server.
pub(crate) fn run() -> Option<ExitCode> {
    if std::env::args_os().nth(1).is_some_and(|word| word.as_bytes() == NOT_UTF8_ARG) {
        return Some(ExitCode::SUCCESS);
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [word, task, home] = words.as_slice() else { return None };
    if word != SELF_EXEC_ARG {
        return None;
    }
    let home = Path::new(home);
    let paths = SandboxPaths::of(home);
    let done = NamespaceHolder::find_or_start(home).and_then(|holder| match task.as_str() {
        "launch" => launch(&paths.launch(&holder)).map(drop),
        "launch-many" => {
            let limits = Limits { processes: Some(1_000_000), ..Limits::default() };
            launch(&Launch { limits, ..paths.launch(&holder) }).map(drop)
        }
        "freeze" => freeze(home, &paths),
        "launch-all" => launch_all(home, &holder),
        "launch-without-helper-server" => workspace_host::probe_host(&holder).and_then(|_| {
            let servers = children(std::process::id() as i32);
            assert_eq!(servers.len(), 1, "one helper server for all");
            signal(servers[0], Signal::KILL);
            while runs(servers[0]) {
                std::thread::yield_now();
            }
            launch(&paths.launch(&holder)).map(drop)
        }),
        _ => Ok(()),
    });
    if let Err(error) = &done {
        eprintln!("{error}");
    }
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `helper_main` panicked on such an argument.
fn helper_main_ignores_an_argument_that_is_not_utf8() {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).arg(OsStr::from_bytes(NOT_UTF8_ARG)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Freezes the sandbox of a home.
fn freeze(home: &Path, paths: &SandboxPaths) -> Result<()> {
    let process = Process::read(&home.join("process"))?.unwrap();
    workspace_host::freeze::freeze(paths.id(), &process, &home.join("frozen")).map(drop)
}

/// Launches the sandboxes of all homes in `parent` concurrently.
fn launch_all(parent: &Path, holder: &NamespaceHolder) -> Result<()> {
    let homes = std::fs::read_dir(parent).unwrap().flatten().map(|entry| entry.path());
    let homes: Vec<_> = homes.filter(|path| path.join("workspace").is_dir()).collect();
    std::thread::scope(|scope| {
        let launches =
            homes.iter().map(|home| scope.spawn(|| launch(&SandboxPaths::of(home).launch(holder)).map(drop)));
        let launches: Vec<_> = launches.collect();
        launches.into_iter().try_for_each(|launch| launch.join().unwrap())
    })
}

/// Starts a process that runs `task` (see [`run`]) for the server of `home`, and then exits. The caller waits for it.
pub(crate) fn start(task: &str, home: &Path) -> Child {
    start_after(":", task, home)
}

/// Like [`start`], after the shell command `first`, which must succeed.
pub(crate) fn start_after(first: &str, task: &str, home: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("{first} && exec \"$@\""))
        .arg("sh")
        .arg(program)
        .args([SELF_EXEC_ARG, task])
        .arg(home);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

/// Returns the PIDs of the children of a process, ended ones that nobody has waited for included.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let processes = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter(|pid| status(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

/// Returns true if a process exists and has not ended.
pub(crate) fn runs(pid: i32) -> bool {
    status(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// Returns the state of a process, and its parent.
fn status(pid: i32) -> Option<(String, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Sends a signal to a process that may have ended.
pub(crate) fn signal(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}
