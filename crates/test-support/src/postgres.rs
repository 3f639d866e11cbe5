//! PostgreSQL databases for tests, on a server that all of them share.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::shared_server::SharedServer;
use crate::{requires, skip};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/postgres.sh");

/// Empty database of one test. It is removed on drop, and with the server after the last test.
pub struct PostgresDatabase {
    name: String,
    server: SharedServer,
    /// Directory of the programs of PostgreSQL.
    programs: PathBuf,
}

impl PostgresDatabase {
    /// Returns true if a server can be started. Otherwise records the test as skipped; panics if PostgreSQL is missing and
    /// `CI=true`.
    pub fn is_available() -> bool {
        let has_name = Command::new("id").arg("-un").output().is_ok_and(|output| output.status.success());
        if !has_name || File::open(SCRIPT).is_err() {
            skip(
                "PostgreSQL cannot be started by a user without a name, or without access to this repository",
            );
            return false;
        }
        requires(programs().is_some(), "PostgreSQL")
    }

    /// Creates a database. Starts the server if none runs.
    #[allow(clippy::new_without_default, reason = "it starts a server")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let programs = programs().expect("PostgreSQL is installed");
        let is_running = |directory: &Path| UnixStream::connect(directory.join(".s.PGSQL.5432")).is_ok();
        let server = SharedServer::start("postgres", SCRIPT, std::slice::from_ref(&programs), is_running);
        let name = format!("test_{}_{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let database = Self { name, server, programs };
        // A process that was killed, and had this PID, may have left its database.
        database.execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", database.name));
        database.execute(&format!("CREATE DATABASE {}", database.name));
        database
    }

    /// Returns the URL.
    pub fn url(&self) -> String {
        self.url_of(&self.name)
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.server.directory.display())
    }

    /// Executes a statement in the database `postgres`, which every server has.
    fn execute(&self, statement: &str) {
        let mut client = Command::new(self.programs.join("psql"));
        client.args(["--no-psqlrc", "--quiet", "--command", statement, &self.url_of("postgres")]);
        let output = client.output().expect("psql can be executed");
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        // The failure of a test is more important than that of its end.
        if !std::thread::panicking() {
            self.execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

/// Returns the directory of the programs of PostgreSQL; `None` if none has all of them. Debian installs them outside of
/// PATH, in a directory per version.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let complete =
        |bin: &PathBuf| ["initdb", "postgres", "pg_isready", "psql"].iter().all(|it| is_file(bin, it));
    debian.chain(std::env::split_paths(&path)).find(complete)
}

fn is_file(directory: &Path, name: &str) -> bool {
    directory.join(name).is_file()
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn the_directory_of_a_server_that_cannot_be_started_is_removed() {
        if File::open(SCRIPT).is_err() {
            skip("the test needs access to this repository");
            return;
        }
        let directory = tempfile::tempdir().expect("a temporary directory").keep();
        let programs = directory.join("no-programs");
        let mut script = Command::new(SCRIPT);
        script.args([&directory, &programs]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = script.stdin(Stdio::null()).output().expect("the script can be executed");
        assert!(!directory.exists(), "{output:?}");
    }

    #[test]
    fn databases_of_one_process_are_separate_and_end_with_their_tests() {
        if !PostgresDatabase::is_available() {
            return;
        }
        let (one, other) = (PostgresDatabase::new(), PostgresDatabase::new());
        assert_ne!(one.name, other.name);
        assert_eq!(one.server.directory, other.server.directory);
        let name = one.name.clone();
        drop(one);
        let statement = format!(
            "DO $$ BEGIN ASSERT NOT EXISTS (SELECT FROM pg_database WHERE datname = '{name}'); END $$"
        );
        other.execute(&statement);
    }
}
