//! Daemon process that serves a lazy mount and outlives its starter.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use workspace_mount::{MountError, MountOptions, MountState, mount_state, spawn_daemon, unmount};
use workspace_state::{Snapshot, StoreError};
use workspace_test_support::wait_until;

use crate::roles;
use crate::support::{Fixture, output_of};

/// A lazy mount served by a daemon, killed and cleaned up on drop.
struct Daemon<'a>(&'a Fixture);

impl Daemon<'_> {
    fn start(fixture: &Fixture) -> Daemon<'_> {
        let options = MountOptions::default();
        spawn_daemon(roles::daemon(), fixture.store.path(), &fixture.mountpoint(), &options).unwrap();
        Daemon(fixture)
    }

    /// Returns the processes that serve this mount.
    fn processes(&self) -> Vec<Pid> {
        let mountpoint = self.0.mountpoint();
        let ids =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let serves = |id: &i32| {
            let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.contains(&&b"serve"[..]) && words.contains(&mountpoint.as_os_str().as_encoded_bytes())
        };
        ids.filter(serves).filter_map(Pid::from_raw).collect()
    }

    fn process(&self) -> Pid {
        match self.processes().as_slice() {
            [one] => *one,
            other => panic!("{other:?}"),
        }
    }

    fn kill(&self) {
        kill_process(self.process(), Signal::KILL).unwrap();
        // A dying process closes the connection to the kernel last.
        let is_dead = || matches!(mount_state(&self.0.mountpoint()), Ok(MountState::Dead { .. }));
        wait_until("the mount is dead", is_dead);
    }

    fn read(&self, snapshot: &Snapshot, path: &str) -> std::io::Result<String> {
        fs::read_to_string(self.0.mountpoint().join(snapshot.id.to_string()).join(path))
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        for process in self.processes() {
            kill_process(process, Signal::KILL).unwrap_or_default();
        }
        drop(workspace_mount::detach(&self.0.mountpoint()));
    }
}

/// Returns parent, session and terminal of a process.
fn relations(process: Pid) -> (i32, i32, i32) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap();
    let fields: Vec<i32> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .skip(1)
        .take(4)
        .map(|f| f.parse().unwrap())
        .collect();
    (fields[0], fields[2], fields[3])
}

#[test]
fn the_mount_outlives_the_process_that_started_it() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| tree.write("f", "still here").unwrap());
    output_of(&mut roles::starter(fixture.store.path(), &fixture.mountpoint()));
    let daemon = Daemon(&fixture);
    assert_eq!(daemon.read(&snapshot, "f").unwrap(), "still here");
    let serving = daemon.process();
    let (parent, session, terminal) = relations(serving);
    assert_ne!(parent, std::process::id().cast_signed());
    assert_eq!(session, serving.as_raw_nonzero().get(), "a session of its own");
    assert_eq!(terminal, 0, "no terminal");

    let later = fixture.commit(|tree| tree.write("f", "made later").unwrap());
    assert_eq!(daemon.read(&later, "f").unwrap(), "made later");
    assert_eq!(fixture.store.pins().unwrap().len(), 2);
    unmount(&fixture.mountpoint()).unwrap();
    wait_until("the serving process ends", || daemon.processes().is_empty());
    assert!(fixture.store.pins().unwrap().is_empty());
}

#[test]
fn the_daemon_is_not_a_child_of_its_starter() {
    let fixture = Fixture::new();
    let daemon = Daemon::start(&fixture);
    let (parent, ..) = relations(daemon.process());
    assert_ne!(parent, std::process::id().cast_signed());
}

#[test]
fn a_dead_mount_is_detected_cleaned_up_and_replaced() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| tree.write("f", "x").unwrap());
    let daemon = Daemon::start(&fixture);
    assert_eq!(daemon.read(&snapshot, "f").unwrap(), "x");
    daemon.kill();
    let dead = fixture.mountpoint().join("never asked before");
    let not_connected = Some(rustix::io::Errno::NOTCONN.raw_os_error());
    wait_until("nobody answers", || fs::metadata(&dead).unwrap_err().raw_os_error() == not_connected);
    assert!(matches!(mount_state(&fixture.mountpoint()).unwrap(), MountState::Dead { .. }));

    drop(daemon);
    assert_eq!(mount_state(&fixture.mountpoint()).unwrap(), MountState::NotMounted);
    let daemon = Daemon::start(&fixture);
    assert_eq!(daemon.read(&snapshot, "f").unwrap(), "x");
    // Mounting over a dead mount cleans it up, even while a process has its working directory in it.
    let _inside = fs::File::open(fixture.mountpoint()).unwrap();
    daemon.kill();
    let daemon = Daemon::start(&fixture);
    assert_eq!(daemon.read(&snapshot, "f").unwrap(), "x");
    assert!(matches!(mount_state(&fixture.mountpoint()).unwrap(), MountState::Alive { .. }));
    unmount(&fixture.mountpoint()).unwrap();
    assert_eq!(
        mount_state(&fixture.mountpoint()).unwrap(),
        MountState::NotMounted,
        "nothing dead lies below"
    );
}

#[test]
fn sigterm_unmounts() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| tree.write("f", "x").unwrap());
    let daemon = Daemon::start(&fixture);
    assert_eq!(daemon.read(&snapshot, "f").unwrap(), "x");
    kill_process(daemon.process(), Signal::TERM).unwrap();
    wait_until("the serving process ends", || daemon.processes().is_empty());
    assert_eq!(mount_state(&fixture.mountpoint()).unwrap(), MountState::NotMounted);
    assert!(fixture.store.pins().unwrap().is_empty());
}

#[test]
fn errors_are_reported_to_the_starter() {
    let fixture = Fixture::new();
    let spawn =
        |program, store: &Path| spawn_daemon(program, store, &fixture.mountpoint(), &MountOptions::default());
    let error = spawn(roles::daemon(), &fixture.directory.path().join("nowhere")).unwrap_err();
    assert!(matches!(error, MountError::Store(StoreError::NotAStore { .. })), "{error}");
    let error = spawn(Command::new("false"), fixture.store.path()).unwrap_err();
    assert!(error.to_string().contains("exited before the file system was mounted"), "{error}");
    assert_eq!(mount_state(&fixture.mountpoint()).unwrap(), MountState::NotMounted);

    let _daemon = Daemon::start(&fixture);
    let error = spawn(roles::daemon(), fixture.store.path()).unwrap_err();
    assert!(matches!(error, MountError::AlreadyMounted { .. }), "{error}");
}
