//! Child processes that tests start and kill.
//!
//! A child is the test program again, as which only one test runs: `child::child_process_role`. A test program that
//! starts children needs a module `child` with this test. The test calls [`role`], and runs the function for the role
//! that is returned; in the parent it is `None`, and the test does nothing.
//!
//! A child sends lines to the parent through its standard output, after the prefix `@`. A line that arrived
//! completely was sent before the child died.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Environment variable with the role of a child.
const ROLE: &str = "WORKSPACE_TEST_CHILD";
/// Environment variable with the arguments of the role, one per line.
const ARGUMENTS: &str = "WORKSPACE_TEST_ARGUMENTS";
/// Prefix of lines for the parent. The test harness writes other lines to standard output.
const OUTPUT_PREFIX: &str = "@";

/// Returns the role that the environment selects for this process, and its arguments; `None` for a process that is no
/// child.
pub fn role() -> Option<(String, Vec<String>)> {
    let role = std::env::var(ROLE).ok()?;
    let arguments = std::env::var(ARGUMENTS).ok().filter(|arguments| !arguments.is_empty());
    let arguments = arguments.iter().flat_map(|arguments| arguments.split('\n'));
    Some((role, arguments.map(str::to_owned).collect()))
}

/// Sends a line from a child to its parent.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // One write: lines of several threads never mix, and a line arrives completely or not at all.
    out.write_all(format!("{OUTPUT_PREFIX}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Waits in a child until the parent calls [`ChildProcess::resume`].
pub fn wait_for_parent() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// A child process that runs a role.
pub struct ChildProcess {
    process: Child,
    /// Lines for the parent, without their prefix.
    lines: Receiver<String>,
    /// Thread that reads standard output; `None` once [`ChildProcess::finish`] has joined it.
    reader: Option<JoinHandle<()>>,
}

/// Returns the command that runs a role.
pub fn command(role: &str, arguments: &[&str]) -> Command {
    as_role(Command::new(std::env::current_exe().unwrap()), role, arguments)
}

/// Adds the arguments and variables for a role to `command`, which must run this test program, directly or through
/// another program.
pub fn as_role(mut command: Command, role: &str, arguments: &[&str]) -> Command {
    command
        .args(["child::child_process_role", "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(ARGUMENTS, arguments.join("\n"));
    command
}

/// Returns the command that runs a role in a new mount namespace, in which it may mount; as an ordinary user also in a
/// new user namespace.
pub fn mounting(role: &str, arguments: &[&str]) -> Command {
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(program);
    as_role(command, role, arguments)
}

impl ChildProcess {
    /// Starts a child.
    pub fn start(role: &str, arguments: &[&str]) -> Self {
        Self::run(command(role, arguments))
    }

    /// Starts a child with one failpoint set, as `name=action[@n]` (see `crates/failpoint`).
    pub fn start_failing(role: &str, arguments: &[&str], failpoint: &str) -> Self {
        let mut command = command(role, arguments);
        command.env("WORKSPACE_FAILPOINT", failpoint);
        Self::run(command)
    }

    /// Starts a command of [`command`], [`mounting`] or [`as_role`].
    pub fn run(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in out.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                // The harness prints the test's name without a line break first.
                if let Some(at) = line.find(OUTPUT_PREFIX) {
                    drop(sender.send(line[at + OUTPUT_PREFIX.len()..].to_owned()));
                }
            }
        });
        Self { process, lines, reader: Some(reader) }
    }

    /// Returns the next line; `None` when the child has ended.
    pub fn next_line(&self) -> Option<String> {
        self.lines.recv().ok()
    }

    /// Returns the next line; `None` if none arrives within this time, or the child has ended.
    pub fn line_within(&self, time: Duration) -> Option<String> {
        self.lines.recv_timeout(time).ok()
    }

    /// Returns the PID.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).unwrap();
    }

    /// Waits until a failpoint has stopped the child.
    #[track_caller]
    pub fn wait_until_stopped(&self) {
        let pid = Pid::from_child(&self.process);
        let status = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(status.is_some_and(|(_, status)| status.stopped()), "{status:?}");
    }

    /// Waits for a line, which must be the expected one.
    #[track_caller]
    pub fn expect_line(&mut self, expected: &str) {
        let line = self.next_line();
        if line.as_deref() != Some(expected) {
            // The child's stderr ends only when the child does, and it may be waiting for this process.
            self.kill();
            panic!("expected the line {expected:?}, got {line:?}: {}", self.stderr());
        }
    }

    /// Resumes a child that has called [`wait_for_parent`], or will call it.
    pub fn resume(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// Sends SIGKILL, without waiting for the end.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
    }

    /// Closes standard input, waits for the end of the child, and returns its remaining lines.
    pub fn finish(mut self) -> ChildOutput {
        drop(self.process.stdin.take());
        let stderr = self.stderr();
        let status = self.process.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        ChildOutput { status, lines: self.lines.try_iter().collect(), stderr }
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            drop(std::io::Read::read_to_string(&mut stderr, &mut text));
        }
        text
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Result of a child process.
pub struct ChildOutput {
    status: ExitStatus,
    /// All lines that the parent has not read before.
    pub lines: Vec<String>,
    /// Everything that was written to stderr.
    pub stderr: String,
}

impl ChildOutput {
    /// Returns true if SIGKILL ended the child.
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// Fails unless the child ended without an error.
    #[track_caller]
    pub fn assert_success(&self) {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
    }

    /// Fails unless SIGKILL ended the child.
    #[track_caller]
    pub fn assert_killed(&self) {
        assert!(self.was_killed(), "{}: {}", self.status, self.stderr);
    }
}

/// Returns a path as an argument of a role.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
