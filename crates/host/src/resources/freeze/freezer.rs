//! Freezing by the kernel.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::record::Note;
use crate::error::{Doing as _, HostError, Result};
use crate::helper::error::HostErrorKind;
use crate::resources::hierarchy::{Version, words};

/// Between two looks at a group that is about to be frozen.
const LOOK: Duration = Duration::from_micros(100);

/// A group that can be frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Freezer {
    group: PathBuf,
    version: Version,
}

impl Freezer {
    /// The group, if it can be frozen by whoever this is.
    pub(crate) fn of(group: PathBuf, version: Version) -> Option<Self> {
        let freezer = Self { group, version };
        fs::File::options().write(true).open(freezer.control()).is_ok().then_some(freezer)
    }

    /// What is written to.
    fn control(&self) -> PathBuf {
        self.group.join(match self.version {
            Version::One => "freezer.state",
            Version::Two => "cgroup.freeze",
        })
    }

    fn write(&self, frozen: bool) -> io::Result<()> {
        let word = match (self.version, frozen) {
            (Version::One, true) => "FROZEN",
            (Version::One, false) => "THAWED",
            (Version::Two, true) => "1",
            (Version::Two, false) => "0",
        };
        fs::write(self.control(), word)
    }

    /// Whether everything in it has stopped.
    fn is_frozen(&self) -> bool {
        match self.version {
            Version::One => words(&self.control()) == ["FROZEN"],
            Version::Two => {
                let events = words(&self.group.join("cgroup.events"));
                events.chunks_exact(2).any(|pair| pair[0] == "frozen" && pair[1] == "1")
            }
        }
    }
}

/// Stops everything in the group; how many processes there are beside the first.
pub(super) fn freeze(freezer: &Freezer, note: &mut Note, limit: Duration) -> Result<usize> {
    let deadline = Instant::now() + limit;
    loop {
        // Said again: in the first version a process that came while others were being stopped may have been missed.
        note.step(|_| freezer.write(true).doing(format!("freeze {}", freezer.group.display())))?;
        if freezer.is_frozen() {
            break;
        }
        if Instant::now() > deadline {
            let text = format!("the sandbox's processes did not stop within {} s", limit.as_secs());
            return Err(HostError::of_kind(HostErrorKind::TimedOut, text));
        }
        std::thread::sleep(LOOK);
    }
    Ok(processes(&freezer.group).saturating_sub(1))
}

fn processes(group: &Path) -> usize {
    words(&group.join("cgroup.procs")).len()
}

/// Lets everything in the group go on. A group that is gone holds nothing.
pub(super) fn thaw(freezer: &Freezer) -> Result<()> {
    match freezer.write(false) {
        Err(error) if is_gone(&error) => Ok(()),
        done => done.doing(format!("thaw {}", freezer.group.display())),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::freeze::record::{Held, Noted};

    const LIMIT: Duration = Duration::from_secs(5);

    fn note(freezer: &Freezer, path: &Path) -> Note {
        Note::make(path, &Noted::Group(freezer.clone())).unwrap()
    }

    #[test]
    fn a_freeze_ends_when_somebody_thaws_and_freezes_nothing_after() {
        let group = tempfile::tempdir().unwrap();
        let path = |name: &str| group.path().join(name);
        // A file is what was written to it last, so this group never says that it is frozen.
        fs::write(path("cgroup.freeze"), "0").unwrap();
        fs::write(path("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let freezer = Freezer::of(group.path().to_owned(), Version::Two).unwrap();
        let mut noted = note(&freezer, &path("note"));
        let ends = {
            let freezer = freezer.clone();
            std::thread::spawn(move || freeze(&freezer, &mut noted, LIMIT))
        };
        while fs::read_to_string(path("cgroup.freeze")).unwrap() != "1" {
            std::thread::sleep(LOOK);
        }
        let held = Held::take(&path("note")).unwrap().unwrap();
        thaw(&freezer).unwrap();
        held.remove().unwrap();
        assert!(matches!(ends.join().unwrap(), Err(HostError::Thawed)));
        assert_eq!(fs::read_to_string(path("cgroup.freeze")).unwrap(), "0");
    }

    #[test]
    fn in_the_second_version_a_group_is_frozen_when_its_events_say_so() {
        let group = tempfile::tempdir().unwrap();
        let path = |name: &str| group.path().join(name);
        for (name, text) in [("cgroup.freeze", "0"), ("cgroup.procs", "5\n6\n7\n")] {
            fs::write(path(name), text).unwrap();
        }
        fs::write(path("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let freezer = Freezer::of(group.path().to_owned(), Version::Two).unwrap();
        assert!(!freezer.is_frozen());
        let events = path("cgroup.events");
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            fs::write(events, "populated 1\nfrozen 1\n").unwrap();
        });
        assert_eq!(freeze(&freezer, &mut note(&freezer, &path("note")), LIMIT).unwrap(), 2);
        later.join().unwrap();
        assert_eq!(fs::read_to_string(path("cgroup.freeze")).unwrap(), "1");
        thaw(&freezer).unwrap();
        assert_eq!(fs::read_to_string(path("cgroup.freeze")).unwrap(), "0");
    }

    /// The topmost group of the second version, where this user may make others.
    fn second_version() -> Option<PathBuf> {
        let hierarchies = crate::resources::hierarchy::all().unwrap();
        let second = hierarchies.into_iter().find(|one| one.version == Version::Two)?;
        let top = second.places().pop()?.parent()?.to_owned();
        rustix::fs::access(&top, rustix::fs::Access::WRITE_OK).ok().map(|()| top)
    }

    #[test]
    fn a_group_of_the_second_version_is_frozen_and_thawed() {
        let Some(top) = second_version() else {
            eprintln!("not tested here: there is no second version of cgroups to make groups in");
            return;
        };
        let group = top.join(format!("freeze-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
        let freezer = Freezer::of(group.clone(), Version::Two).unwrap();
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(freeze(&freezer, &mut note(&freezer, &directory.path().join("note")), LIMIT).unwrap(), 0);
        assert!(freezer.is_frozen());
        thaw(&freezer).unwrap();
        assert!(!freezer.is_frozen());
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir(group).unwrap();
        thaw(&freezer).unwrap();
    }

    #[test]
    fn a_group_that_is_gone_is_thawed() {
        let group = tempfile::tempdir().unwrap();
        fs::write(group.path().join("freezer.state"), "THAWED").unwrap();
        let freezer = Freezer::of(group.path().to_owned(), Version::One).unwrap();
        drop(group);
        thaw(&freezer).unwrap();
        assert_eq!(Freezer::of("/nonexistent".into(), Version::Two), None);
    }
}
