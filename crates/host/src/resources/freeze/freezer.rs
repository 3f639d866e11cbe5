//! Freezing with the cgroup freezer.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::record::RecordWriter;
use crate::error::{Context as _, HostError, Result};
use crate::helper::error::HostErrorKind;
use crate::resources::hierarchy::{Version, read_words};

/// Interval of checking whether a cgroup is frozen.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// Cgroup that can be frozen. Serialized in the record of a frozen sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Freezer {
    group: PathBuf,
    version: Version,
}

impl Freezer {
    /// Returns the freezer of a cgroup, or `None` if this user may not freeze it.
    pub(crate) fn of(group: PathBuf, version: Version) -> Option<Self> {
        let freezer = Self { group, version };
        fs::File::options().write(true).open(freezer.control()).is_ok().then_some(freezer)
    }

    /// Returns the path of the file that freezes and thaws the cgroup.
    fn control(&self) -> PathBuf {
        self.group.join(match self.version {
            Version::V1 => "freezer.state",
            Version::V2 => "cgroup.freeze",
        })
    }

    fn set_frozen(&self, frozen: bool) -> io::Result<()> {
        let word = match (self.version, frozen) {
            (Version::V1, true) => "FROZEN",
            (Version::V1, false) => "THAWED",
            (Version::V2, true) => "1",
            (Version::V2, false) => "0",
        };
        fs::write(self.control(), word)
    }

    /// Returns whether all processes have stopped.
    fn is_frozen(&self) -> bool {
        match self.version {
            Version::V1 => read_words(&self.control()) == ["FROZEN"],
            Version::V2 => {
                let events = read_words(&self.group.join("cgroup.events"));
                events.chunks_exact(2).any(|pair| pair[0] == "frozen" && pair[1] == "1")
            }
        }
    }
}

/// Freezes a cgroup. Returns the number of its processes without the first.
pub(super) fn freeze(freezer: &Freezer, record: &mut RecordWriter, timeout: Duration) -> Result<usize> {
    let deadline = Instant::now() + timeout;
    loop {
        // Repeated: version 1 may miss a process that was forked while others were being stopped.
        record.step(|_| freezer.set_frozen(true).context(format!("freeze {}", freezer.group.display())))?;
        if freezer.is_frozen() {
            break;
        }
        if Instant::now() > deadline {
            let text = format!("the sandbox's processes did not stop within {} s", timeout.as_secs());
            return Err(HostError::of_kind(HostErrorKind::TimedOut, text));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(processes(&freezer.group).saturating_sub(1))
}

fn processes(group: &Path) -> usize {
    read_words(&group.join("cgroup.procs")).len()
}

/// Thaws a cgroup. Succeeds if it no longer exists.
pub(super) fn thaw(freezer: &Freezer) -> Result<()> {
    match freezer.set_frozen(false) {
        Err(error) if is_gone(&error) => Ok(()),
        result => result.context(format!("thaw {}", freezer.group.display())),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::freeze::record::{LockedRecord, RecordedMethod};

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn record(freezer: &Freezer, path: &Path) -> RecordWriter {
        RecordWriter::create(path, &RecordedMethod::Group(freezer.clone())).unwrap()
    }

    #[test]
    fn a_freeze_ends_at_a_thaw_and_freezes_nothing_after() {
        let group = tempfile::tempdir().unwrap();
        let path = |name: &str| group.path().join(name);
        // These are ordinary files, so this cgroup never becomes frozen.
        fs::write(path("cgroup.freeze"), "0").unwrap();
        fs::write(path("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let freezer = Freezer::of(group.path().to_owned(), Version::V2).unwrap();
        let mut writer = record(&freezer, &path("record"));
        let ends = {
            let freezer = freezer.clone();
            std::thread::spawn(move || freeze(&freezer, &mut writer, TIMEOUT))
        };
        while fs::read_to_string(path("cgroup.freeze")).unwrap() != "1" {
            std::thread::sleep(POLL_INTERVAL);
        }
        let held = LockedRecord::lock(&path("record")).unwrap().unwrap();
        thaw(&freezer).unwrap();
        held.remove().unwrap();
        assert!(matches!(ends.join().unwrap(), Err(HostError::Thawed)));
        assert_eq!(fs::read_to_string(path("cgroup.freeze")).unwrap(), "0");
    }

    #[test]
    fn a_v2_cgroup_is_frozen_when_its_events_say_so() {
        let group = tempfile::tempdir().unwrap();
        let path = |name: &str| group.path().join(name);
        for (name, text) in [("cgroup.freeze", "0"), ("cgroup.procs", "5\n6\n7\n")] {
            fs::write(path(name), text).unwrap();
        }
        fs::write(path("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let freezer = Freezer::of(group.path().to_owned(), Version::V2).unwrap();
        assert!(!freezer.is_frozen());
        let events = path("cgroup.events");
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            fs::write(events, "populated 1\nfrozen 1\n").unwrap();
        });
        assert_eq!(freeze(&freezer, &mut record(&freezer, &path("record")), TIMEOUT).unwrap(), 2);
        later.join().unwrap();
        assert_eq!(fs::read_to_string(path("cgroup.freeze")).unwrap(), "1");
        thaw(&freezer).unwrap();
        assert_eq!(fs::read_to_string(path("cgroup.freeze")).unwrap(), "0");
    }

    /// Returns the top cgroup of version 2, if this user may create others in it.
    fn v2_top() -> Option<PathBuf> {
        let hierarchies = crate::resources::hierarchy::all().unwrap();
        let second = hierarchies.into_iter().find(|one| one.version == Version::V2)?;
        let top = second.sandboxes_cgroups().pop()?.parent()?.to_owned();
        rustix::fs::access(&top, rustix::fs::Access::WRITE_OK).ok().map(|()| top)
    }

    #[test]
    fn a_v2_cgroup_is_frozen_and_thawed() {
        let Some(top) = v2_top() else {
            eprintln!("skipped: cgroups of version 2 cannot be created here");
            return;
        };
        let group = top.join(format!("freeze-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
        let freezer = Freezer::of(group.clone(), Version::V2).unwrap();
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            freeze(&freezer, &mut record(&freezer, &directory.path().join("record")), TIMEOUT).unwrap(),
            0
        );
        assert!(freezer.is_frozen());
        thaw(&freezer).unwrap();
        assert!(!freezer.is_frozen());
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir(group).unwrap();
        thaw(&freezer).unwrap();
    }

    #[test]
    fn thawing_a_removed_cgroup_succeeds() {
        let group = tempfile::tempdir().unwrap();
        fs::write(group.path().join("freezer.state"), "THAWED").unwrap();
        let freezer = Freezer::of(group.path().to_owned(), Version::V1).unwrap();
        drop(group);
        thaw(&freezer).unwrap();
        assert_eq!(Freezer::of("/nonexistent".into(), Version::V2), None);
    }
}
