//! Skipped tests.
//!
//! The harness reports a test that returns early as passed. Therefore the reason of a skip is printed and added to the
//! file named by [`SKIPPED_FILE`], which `scripts/test.sh` lists at its end.

use std::env;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::thread;

/// Environment variable with the path of a file that collects skipped tests.
const SKIPPED_FILE: &str = "WORKSPACE_TEST_SKIPPED";

/// Records that the running test, or a part of it, does not apply to this machine: another kernel or another
/// configuration is needed. The caller returns afterwards.
#[track_caller]
pub fn skip(reason: impl Display) {
    let test = test_name();
    eprintln!("skipped: {test}: {reason}");
    if let Some(path) = env::var_os(SKIPPED_FILE) {
        append(Path::new(&path), &line(&test, &reason.to_string()));
    }
}

/// Returns true if a requirement of the running test is met. Otherwise records that the test is skipped, or
/// panics if `CI=true`, because all requirements are installed there.
#[track_caller]
pub fn requires(is_met: bool, requirement: impl Display) -> bool {
    if !is_met {
        let is_ci = env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(!is_ci, "this test needs {requirement}, and CI=true");
        skip(format_args!("needs {requirement}"));
    }
    is_met
}

/// Returns true if the tests run as root. Otherwise records the test, or a part of it, as skipped.
#[track_caller]
pub fn runs_as_root(reason: impl Display) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(format_args!("only root {reason}"));
    }
    is_root
}

/// Returns the names of the test program and of the running test. Only the former if a harness other than nextest runs
/// tests in threads without a name.
fn test_name() -> String {
    let program = env::current_exe().ok().and_then(|path| Some(path.file_stem()?.display().to_string()));
    let program = env::var("NEXTEST_BINARY_ID").ok().or(program).unwrap_or_default();
    let thread = thread::current().name().filter(|name| *name != "main").map(str::to_owned);
    match env::var("NEXTEST_TEST_NAME").ok().or(thread) {
        Some(test) => format!("{program} {test}"),
        None => program,
    }
}

fn line(test: &str, reason: &str) -> String {
    format!("{test}: {}\n", reason.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Appends a line with one system call, because tests run at the same time in several processes. A
/// failure is only printed: a test that runs as another user or in a sandbox may lack permission.
fn append(path: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("cannot record a skipped test in {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_takes_one_line() {
        assert_eq!(
            line("cli users", "no sandbox here:\n  hint: sysctl\n"),
            "cli users: no sandbox here: hint: sysctl\n"
        );
    }

    #[test]
    fn lines_are_appended() {
        let path = env::temp_dir().join(format!("skipped-{}", std::process::id()));
        append(&path, "one\n");
        append(&path, "two\n");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn a_requirement_that_is_met_is_not_recorded() {
        assert!(requires(true, "nothing"));
    }
}
