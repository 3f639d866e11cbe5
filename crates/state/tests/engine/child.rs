//! Child processes that tests start and kill.
//!
//! A child is this test binary again, with a role selected by the environment. It sends lines to the parent
//! through a pipe; a line that arrived completely was sent before the child died.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

const ROLE: &str = "WORKSPACE_TEST_CHILD";
const ARGUMENTS: &str = "WORKSPACE_TEST_ARGUMENTS";
const OUTPUT_PREFIX: &str = "@";

/// Runs the role that the environment selects; does nothing if there is none.
#[test]
fn child_process_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let arguments = std::env::var(ARGUMENTS).unwrap_or_default();
    let arguments: Vec<&str> = arguments.split('\n').collect();
    match role.as_str() {
        "commit-loop" => crate::crash::commit_loop(&arguments),
        "exercise" => crate::crash::exercise(&arguments),
        "check-out" => crate::crash::check_out_once(&arguments),
        "collect-loop" => crate::crash::collect_loop(&arguments),
        "history-of-commits" => crate::crash_machine::write_history(&arguments),
        "open" => crate::crash_machine::open_and_list(&arguments),
        "hold-tree" => crate::gc::hold_tree(&arguments),
        "hold-pin" => crate::gc::hold_pin(&arguments),
        "collect-once" => crate::gc::collect_once(&arguments),
        "work-with-little-memory" => crate::gc::work_with_little_memory(&arguments),
        "snapshot-directory" => crate::gc::take_snapshot(&arguments),
        "move-reference" => crate::race::move_reference(&arguments),
        "create-and-commit" => crate::race::create_and_commit(&arguments),
        "commit-forever" => crate::race::commit_forever(&arguments),
        "read-while-committing" => crate::race::read_while_committing(&arguments),
        "commit-until-failure" => crate::failures::commit_until_failure(&arguments),
        "commit-and-panic" => crate::failures::commit_and_panic(&arguments),
        "commit-through-failure" => crate::failures::commit_through_failure(&arguments),
        "collect-with-few-files" => crate::failures::collect_with_few_files(&arguments),
        "use-everything" => crate::failures::use_everything(&arguments),
        "read-and-commit" => crate::unsettled_rows::read_and_commit(&arguments),
        "fill-disk" => crate::disk_full::fill_disk(&arguments),
        "stream-twice" => crate::disk_full::stream_twice(&arguments),
        "fail-once" => crate::disk_full::fail_once(&arguments),
        "open-full" => crate::disk_full::open_full(&arguments),
        "make-room-full" => crate::disk_full::make_room_full(&arguments),
        "read-only" => crate::disk_full::read_only(&arguments),
        "check-out-full" => crate::disk_full::check_out_full(&arguments),
        "hold-write-lock" => crate::stopped::hold_write_lock(&arguments),
        "read-all" => crate::stopped::read_all(&arguments),
        "commit-and-tell" => crate::stopped::commit_and_tell(&arguments),
        "walk-with-few-files" => crate::directory::walk_with_few_files(&arguments),
        "unreadable" => crate::hostile::snapshot_unreadable(&arguments),
        "link-in-closed-directories" => crate::hostile::link_in_closed_directories(&arguments),
        "link-between-unlisted-directories" => crate::hostile::link_between_unlisted_directories(&arguments),
        "check-out-two" => crate::hostile::check_out_two(&arguments),
        other => panic!("there is no role `{other}`"),
    }
}

/// Sends a line to the parent.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // One write: lines of several threads never mix, and a line arrives completely or not at all.
    out.write_all(format!("{OUTPUT_PREFIX}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Waits for a line from the parent.
pub(crate) fn wait_for_parent() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// A child process that runs a role.
pub(crate) struct ChildProcess {
    process: Child,
    lines: std::sync::mpsc::Receiver<String>,
    reader: Option<JoinHandle<()>>,
}

/// Returns the command that runs a role.
pub(crate) fn command(role: &str, arguments: &[&str]) -> Command {
    as_role(Command::new(std::env::current_exe().unwrap()), role, arguments)
}

/// Prepares `command`, which must end up running this test binary, to run a role.
pub(crate) fn as_role(mut command: Command, role: &str, arguments: &[&str]) -> Command {
    command
        .args(["child::child_process_role", "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(ARGUMENTS, arguments.join("\n"));
    command
}

impl ChildProcess {
    pub(crate) fn start(role: &str, arguments: &[&str]) -> Self {
        Self::run(command(role, arguments))
    }

    /// Starts a child with one failpoint set, as `name=action[@n]`.
    pub(crate) fn start_failing(role: &str, arguments: &[&str], failpoint: &str) -> Self {
        let mut command = command(role, arguments);
        command.env("WORKSPACE_FAILPOINT", failpoint);
        Self::run(command)
    }

    pub(crate) fn run(mut command: Command) -> Self {
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
    pub(crate) fn next_line(&self) -> Option<String> {
        self.lines.recv().ok()
    }

    /// Returns the next line, if it arrives in time.
    pub(crate) fn line_within(&self, time: Duration) -> Option<String> {
        self.lines.recv_timeout(time).ok()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until a failpoint has stopped the child.
    #[track_caller]
    pub(crate) fn wait_until_stopped(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let status = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED).unwrap();
        assert!(status.is_some_and(|(_, status)| status.stopped()), "{status:?}");
    }

    #[track_caller]
    pub(crate) fn expect_line(&mut self, expected: &str) {
        let line = self.next_line();
        assert_eq!(line.as_deref(), Some(expected), "{}", self.stderr());
    }

    /// Resumes a child that waits for its parent.
    pub(crate) fn let_go(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
    }

    /// Waits for the end, and returns all lines.
    pub(crate) fn finish(mut self) -> ChildOutput {
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
pub(crate) struct ChildOutput {
    status: ExitStatus,
    pub(crate) lines: Vec<String>,
    pub(crate) stderr: String,
}

impl ChildOutput {
    pub(crate) fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    #[track_caller]
    pub(crate) fn assert_success(&self) {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
    }

    #[track_caller]
    pub(crate) fn assert_killed(&self) {
        assert!(self.was_killed(), "{}: {}", self.status, self.stderr);
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
