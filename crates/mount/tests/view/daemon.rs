//! The process that serves a view and outlives its starter.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use workspace_mount::{MountError, MountState, ViewOptions, mount_state, spawn_daemon, unmount};
use workspace_state::{Snapshot, StoreError};

use crate::roles;
use crate::support::{Place, eventually, output_of};

/// A view served by a process of its own, killed and cleaned up in the end.
struct Daemon<'a>(&'a Place);

impl Daemon<'_> {
    fn start(place: &Place) -> Daemon<'_> {
        let options = ViewOptions::default();
        spawn_daemon(roles::daemon(), place.store.path(), &place.mountpoint(), &options).unwrap();
        Daemon(place)
    }

    /// The processes that serve this view.
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
        // The last thing a dying process does is to close the connection to the kernel.
        let is_dead = || matches!(mount_state(&self.0.mountpoint()), Ok(MountState::Dead { .. }));
        eventually("the view is dead", is_dead);
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

/// Parent, session and terminal of a process.
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
fn the_view_outlives_the_process_that_started_it() {
    let place = Place::new();
    let snapshot = place.commit(|tree| tree.write("f", "still here").unwrap());
    output_of(&mut roles::starter(place.store.path(), &place.mountpoint()));
    let daemon = Daemon(&place);
    assert_eq!(daemon.read(&snapshot, "f").unwrap(), "still here");
    let server = daemon.process();
    let (parent, session, terminal) = relations(server);
    assert_ne!(parent, std::process::id().cast_signed());
    assert_eq!(session, server.as_raw_nonzero().get(), "a session of its own");
    assert_eq!(terminal, 0, "no terminal");

    let later = place.commit(|tree| tree.write("f", "made later").unwrap());
    assert_eq!(daemon.read(&later, "f").unwrap(), "made later");
    assert_eq!(place.store.pins().unwrap().len(), 2);
    unmount(&place.mountpoint()).unwrap();
    eventually("the server ends", || daemon.processes().is_empty());
    assert!(place.store.pins().unwrap().is_empty());
}

#[test]
fn the_process_is_not_a_child_of_who_started_it() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let (parent, ..) = relations(daemon.process());
    assert_ne!(parent, std::process::id().cast_signed());
}

#[test]
fn a_dead_view_is_recognised_cleaned_and_remade() {
    let place = Place::new();
    let snapshot = place.commit(|tree| tree.write("f", "x").unwrap());
    let daemon = Daemon::start(&place);
    assert_eq!(daemon.read(&snapshot, "f").unwrap(), "x");
    daemon.kill();
    let dead = place.mountpoint().join("never asked before");
    let not_connected = Some(rustix::io::Errno::NOTCONN.raw_os_error());
    eventually("nobody answers", || fs::metadata(&dead).unwrap_err().raw_os_error() == not_connected);
    assert!(matches!(mount_state(&place.mountpoint()).unwrap(), MountState::Dead { .. }));

    drop(daemon);
    assert_eq!(mount_state(&place.mountpoint()).unwrap(), MountState::NotMounted);
    let daemon = Daemon::start(&place);
    assert_eq!(daemon.read(&snapshot, "f").unwrap(), "x");
    // Mounting over a dead view cleans it up by itself, also while someone still stands in it.
    let _inside = fs::File::open(place.mountpoint()).unwrap();
    daemon.kill();
    let daemon = Daemon::start(&place);
    assert_eq!(daemon.read(&snapshot, "f").unwrap(), "x");
    assert!(matches!(mount_state(&place.mountpoint()).unwrap(), MountState::Alive { .. }));
    unmount(&place.mountpoint()).unwrap();
    assert_eq!(mount_state(&place.mountpoint()).unwrap(), MountState::NotMounted, "nothing dead lies below");
}

#[test]
fn a_view_asked_to_end_unmounts_itself() {
    let place = Place::new();
    let snapshot = place.commit(|tree| tree.write("f", "x").unwrap());
    let daemon = Daemon::start(&place);
    assert_eq!(daemon.read(&snapshot, "f").unwrap(), "x");
    kill_process(daemon.process(), Signal::TERM).unwrap();
    eventually("the server ends", || daemon.processes().is_empty());
    assert_eq!(mount_state(&place.mountpoint()).unwrap(), MountState::NotMounted);
    assert!(place.store.pins().unwrap().is_empty());
}

#[test]
fn the_starter_is_told_what_went_wrong() {
    let place = Place::new();
    let spawn =
        |program, store: &Path| spawn_daemon(program, store, &place.mountpoint(), &ViewOptions::default());
    let error = spawn(roles::daemon(), &place.directory.path().join("nowhere")).unwrap_err();
    assert!(matches!(error, MountError::Store(StoreError::NotAStore { .. })), "{error}");
    let error = spawn(Command::new("false"), place.store.path()).unwrap_err();
    assert!(error.to_string().contains("ended before it was mounted"), "{error}");
    assert_eq!(mount_state(&place.mountpoint()).unwrap(), MountState::NotMounted);

    let _daemon = Daemon::start(&place);
    let error = spawn(roles::daemon(), place.store.path()).unwrap_err();
    assert!(matches!(error, MountError::AlreadyMounted { .. }), "{error}");
}
