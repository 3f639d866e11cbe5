//! Temporary directories in which the command is run.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::redact::Redactor;

/// Timeout of anything that a test waits for.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A temporary directory with a store in it; commands run there.
pub(crate) struct TestDir {
    directory: tempfile::TempDir,
}

/// Result of a command.
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl TestDir {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// Creates a directory with a small `project`.
    pub(crate) fn with_project() -> Self {
        let place = Self::new();
        place.write("project/README.md", "# A project\n");
        place.write("project/src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n");
        place.write("project/build.sh", "#!/bin/sh\ncargo build\n");
        place.chmod("project/build.sh", 0o755);
        std::os::unix::fs::symlink("src/main.rs", place.path("project/main")).unwrap();
        place
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(below)
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Creates a command that runs a program here, with an environment that only has the PATH of the tester.
    pub(crate) fn program(&self, name: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(name);
        command.current_dir(self.directory.path()).env_clear().stdin(Stdio::null());
        for variable in ["PATH", "LLVM_PROFILE_FILE"] {
            command.envs(std::env::var_os(variable).map(|value| (variable, value)));
        }
        command.env("HOME", self.path("home")).env("USER", "tester").env("TZ", "UTC");
        // Git says something else where it comes to a mount point on its way up.
        command.env("GIT_CEILING_DIRECTORIES", self.directory.path());
        with_default_signals(&mut command);
        command
    }

    pub(crate) fn workspace(&self, words: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_workspace"));
        command.env("WORKSPACE_STORE", "store").args(words);
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        Ran::of(&self.workspace(words).output().unwrap())
    }

    /// Runs a command that must succeed, and returns its stdout.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.status, 0, "{words:?}: {}", ran.stderr);
        ran.stdout
    }

    /// Runs a command that must print one line, and returns it.
    pub(crate) fn id(&self, words: &[&str]) -> String {
        let out = self.ok(words);
        let id = out.strip_suffix('\n').unwrap();
        assert!(!id.contains('\n'), "{out}");
        id.to_owned()
    }

    /// Runs a command with `--json`, and returns its records.
    pub(crate) fn json(&self, words: &[&str]) -> Vec<Value> {
        let out = self.ok(&[&["--json"], words].concat());
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs a command with `--json` that must print one record, and returns it.
    pub(crate) fn record(&self, words: &[&str]) -> Value {
        let mut records = self.json(words);
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }

    /// Runs commands one after the other, and returns a transcript.
    pub(crate) fn transcript(&self, commands: &[&[&str]]) -> String {
        let mut text = String::new();
        for words in commands {
            let ran = self.run(words);
            text.push_str(&format!("$ workspace {}\n{}", shown(words), ran.stdout));
            for line in ran.stderr.lines() {
                text.push_str(&format!("! {line}\n"));
            }
            if ran.status != 0 {
                text.push_str(&format!("= {}\n", ran.status));
            }
            text.push('\n');
        }
        self.redacted(&text)
    }

    /// Replaces the parts of a text that differ from run to run.
    pub(crate) fn redacted(&self, text: &str) -> String {
        Redactor::default().redact(&text.replace(self.directory.path().to_str().unwrap(), "[place]"))
    }

    /// Takes a snapshot of a directory, and returns its id.
    pub(crate) fn snapshot(&self, directory: &str) -> String {
        self.id(&["snapshot", directory, "--buffered"])
    }
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn shown(words: &[&str]) -> String {
    let quoted = words.iter().map(|word| match word {
        word if word.contains(' ') || word.is_empty() => format!("'{word}'"),
        word => (*word).to_owned(),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Runs a program that must succeed.
pub(crate) fn succeed(command: &mut Command) -> Ran {
    let ran = Ran::of(&command.output().unwrap());
    assert_eq!(ran.status, 0, "{command:?}: {}", ran.stderr);
    ran
}

/// Resets the signals that a background job or `nohup` ignores. Child processes would ignore them as well, and signals that a
/// test sends would have no effect.
fn with_default_signals(command: &mut Command) {
    // SAFETY: between fork and exec only dispositions of signals change, by a call that is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
                if libc::signal(signal, libc::SIG_DFL) == libc::SIG_ERR {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

/// Sends a signal to a program.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits for the end of a program, and returns its output. A program that does not end in time is killed, and the test
/// fails.
pub(crate) fn wait(child: Child) -> Output {
    let pid = Pid::from_child(&child);
    let (done, waiting) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = waiting.recv_timeout(LONG) else {
        // It has not been waited for, so the PID is still its own.
        kill_process(pid, Signal::KILL).unwrap();
        panic!("process {pid:?} did not end within {LONG:?}");
    };
    output.unwrap()
}
