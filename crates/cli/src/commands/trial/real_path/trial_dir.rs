//! Trial directory: the bookkeeping of one trial, and the upper directories of its overlays.
//!
//! It is in the cache directory of the user, never in the *target directory*, which is the directory of the user that
//! the program works on. This module also removes the trial directories of killed processes.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use serde::{Deserialize, Serialize};
use workspace_host::NamespaceHolder;
use workspace_host::{cgroup, overlay};

use super::upper::ACL_XATTRS;
use crate::error::{CommandError, Result, io_hint};
use crate::local::{DirLock, LOCK_FILE, find_and_lock_leftovers, new_directory};
use crate::text::print_stderr;

const RECORD_FILE: &str = "trial.json";
/// Incomplete [`RECORD_FILE`].
const NEW_RECORD_FILE: &str = "trial.new";
/// File that is touched to read the clock of the filesystem: its ctime is the current time.
const CLOCK_FILE: &str = "clock";
/// Subdirectory for the overlay over the target directory.
const TARGET_DIR: &str = "directory";
/// Subdirectory for the overlay over the home directory.
const HOME_DIR: &str = "home";
/// Subdirectory for the overlay over a git repository outside of the target directory.
const GIT_DIR: &str = "git";
/// Subdirectory for the store with the trees that are compared for the list of changes.
const STORE_DIR: &str = "store";
/// Subdirectories that are not needed to keep the changes in the target directory.
const TEMPORARY_DIRS: [&str; 3] = [HOME_DIR, GIT_DIR, STORE_DIR];
/// Upper limit of the clock tick of a filesystem.
const CLOCK_TICK_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// Progress of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// The program runs, or all its changes are written. If the process of the trial has ended, the trial directory can
    /// be removed.
    Running,
    /// Changes are being written to the target directory. After an interruption `workspace try --apply` writes the
    /// rest.
    Keeping,
    /// An error came before any change was written. The changes are saved for `workspace try --apply`.
    #[serde(rename = "Aside")]
    Saved,
}

/// Record of a trial in its trial directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TrialRecord {
    /// Path of the target directory.
    #[serde(rename = "directory")]
    pub(super) target: std::ffi::OsString,
    pub(super) phase: Phase,
    /// Directory with the upper directory for the home directory, if it is outside of the trial directory.
    home: Option<std::ffi::OsString>,
    /// Start of the trial in seconds and nanoseconds: a file with a later ctime was changed during it.
    pub(super) started: (i64, i64),
    /// Device and inode of the target directory: changes are not written to a directory that has replaced it. `None` in
    /// records of older versions.
    #[serde(default)]
    pub(super) identity: Option<(u64, u64)>,
}

impl Phase {
    /// Returns the name of the file with the record of this phase. All of them are written before the program
    /// runs, so that a change of phase is one rename, which works on a full disk.
    fn file(self) -> &'static str {
        match self {
            Self::Running => "trial.running",
            Self::Keeping => "trial.keeping",
            Self::Saved => "trial.aside",
        }
    }
}

/// Directories of an overlay that the kernel writes to.
pub(super) struct OverlayDirs {
    pub(super) upper: PathBuf,
    pub(super) work: PathBuf,
}

/// Trial directory, locked by this process.
pub(super) struct TrialDir {
    pub(super) path: PathBuf,
    /// Content of [`RECORD_FILE`].
    pub(super) record: TrialRecord,
    _lock: DirLock,
}

fn failed(path: &Path, error: &io::Error) -> CommandError {
    CommandError::failed(format!("cannot write below {}: {error}", path.display())).hint(io_hint(error))
}

impl TrialDir {
    /// Creates a trial directory for the target directory `target`, outside of it.
    pub(super) fn new(target: &Path) -> Result<Self> {
        let found = fs::metadata(target).map_err(|error| {
            CommandError::failed(format!("cannot read {}: {error}", target.display())).hint(io_hint(&error))
        })?;
        let (path, lock) = new_directory(Some(target))?;
        let record = TrialRecord {
            target: target.as_os_str().to_owned(),
            phase: Phase::Running,
            home: None,
            started: (0, 0),
            identity: Some((found.dev(), found.ino())),
        };
        let dir = Self { path, record, _lock: lock };
        if let Err(error) = dir.write_record() {
            // No program ran yet, so the directory has only the lock and perhaps an incomplete record.
            let _ = fs::remove_dir_all(&dir.path);
            return Err(error);
        }
        Ok(dir)
    }

    /// Opens a trial directory whose changes are saved for `--apply`, or whose writing was interrupted.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let no_changes = || {
            CommandError::failed(format!("{} has no changes of a trial", path.display()))
                .hint("specify the directory that `workspace try` printed when it set the changes aside")
        };
        let path = fs::canonicalize(path).map_err(|_| no_changes())?;
        // A directory that is no trial directory gets no lock file.
        if read_record(&path).is_none() {
            return Err(no_changes());
        }
        let lock = DirLock::new(&path).map_err(|error| failed(&path, &error))?.ok_or_else(|| {
            CommandError::failed(format!("{} is in use", path.display()))
                .hint("another `workspace try` uses it; wait until it exits")
        })?;
        // Read under the lock, because another process may have changed the phase before.
        let record = read_record(&path).filter(|record| record.phase != Phase::Running);
        Ok(Self { record: record.ok_or_else(no_changes)?, path, _lock: lock })
    }

    /// Returns the id of the trial. It is the name of its cgroups, and part of the names of its directory for the home
    /// directory outside of the trial directory, and of incomplete files in the target directory.
    pub(super) fn id(&self) -> String {
        id(&self.path)
    }

    fn write_record(&self) -> Result<()> {
        let written = || -> io::Result<()> {
            let new = self.path.join(NEW_RECORD_FILE);
            fs::write(&new, serde_json::to_vec(&self.record)?)?;
            fs::File::open(&new)?.sync_all()?;
            fs::rename(&new, self.path.join(RECORD_FILE))
        };
        written().map_err(|error| failed(&self.path, &error))
    }

    /// Writes a file with the record of each phase, which [`Self::set_phase`] renames.
    fn write_phases(&self) -> Result<()> {
        let phases = [Phase::Running, Phase::Keeping, Phase::Saved];
        let written = || -> io::Result<()> {
            for phase in phases {
                let record = TrialRecord { phase, ..self.record.clone() };
                fs::write(self.path.join(phase.file()), serde_json::to_vec(&record)?)?;
            }
            for phase in phases {
                fs::File::open(self.path.join(phase.file()))?.sync_all()?;
            }
            Ok(())
        };
        written().map_err(|error| failed(&self.path, &error))
    }

    pub(super) fn set_phase(&mut self, phase: Phase) -> Result<()> {
        if self.record.phase == phase {
            return Ok(());
        }
        match fs::rename(self.path.join(phase.file()), self.path.join(RECORD_FILE)) {
            // An earlier change to this phase has renamed the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let before = std::mem::replace(&mut self.record.phase, phase);
                self.write_record().inspect_err(|_| self.record.phase = before)
            }
            renamed => {
                renamed.map_err(|error| failed(&self.path, &error))?;
                self.record.phase = phase;
                Ok(())
            }
        }
    }

    /// Removes everything except the changes in the target directory. Entries that cannot be removed stay until the
    /// trial directory is removed.
    pub(super) fn remove_unneeded(&self) {
        for name in TEMPORARY_DIRS {
            let _ = overlay::remove_tree(&NamespaceHolder::None, &self.path.join(name));
        }
        let _ = remove_outside_home_dir(&self.record);
    }

    /// Creates the directories of the overlay over the target directory, `target`.
    pub(super) fn create_target_dirs(&self, target: &Path) -> Result<OverlayDirs> {
        create_overlay_dirs(&self.path.join(TARGET_DIR), target)
    }

    /// Returns the upper directory of the overlay over the target directory.
    pub(super) fn upper(&self) -> PathBuf {
        self.path.join(TARGET_DIR).join("upper")
    }

    /// Returns the path of the store with the trees that are compared for the list of changes.
    pub(super) fn store_path(&self) -> PathBuf {
        self.path.join(STORE_DIR)
    }

    /// Creates the directories of the overlay over `git`, a git repository outside of the target directory.
    pub(super) fn create_git_dirs(&self, git: &Path) -> Result<OverlayDirs> {
        create_overlay_dirs(&self.path.join(GIT_DIR), git)
    }

    /// Creates the directories of the overlay over the home directory, outside of it, because the kernel takes no upper
    /// directory inside a lower one. `None` if no directory for temporary files is outside of both `home` and `target`.
    pub(super) fn create_home_dirs(&mut self, home: &Path, target: &Path) -> Result<Option<OverlayDirs>> {
        if !self.path.starts_with(home) {
            return create_overlay_dirs(&self.path.join(HOME_DIR), home).map(Some);
        }
        for parent in [PathBuf::from("/var/tmp"), std::env::temp_dir()] {
            let Ok(parent) = fs::canonicalize(parent) else { continue };
            if parent.starts_with(home) || parent.starts_with(target) {
                continue;
            }
            let user = rustix::process::geteuid().as_raw();
            let path = parent.join(format!("workspace-{user}-{}", self.id()));
            // Recorded before it exists, so that removal of leftovers finds it.
            self.record.home = Some(path.clone().into_os_string());
            self.write_record()?;
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return create_overlay_dirs(&path, home).map(Some),
                Err(_) => {
                    self.record.home = None;
                    self.write_record()?;
                }
            }
        }
        Ok(None)
    }

    /// Records the start of the trial, and returns in a later clock tick of the filesystem, so that every change from
    /// then on has a later ctime. Also writes the records of all phases.
    pub(super) fn record_start(&mut self) -> Result<()> {
        let clock_file = self.path.join(CLOCK_FILE);
        let read_clock = || -> io::Result<(i64, i64)> {
            fs::write(&clock_file, "")?;
            // Sets the ctime, which a write of no bytes may not do.
            fs::set_permissions(&clock_file, fs::metadata(&clock_file)?.permissions())?;
            let found = fs::metadata(&clock_file)?;
            Ok((found.ctime(), found.ctime_nsec()))
        };
        let started = read_clock().map_err(|error| failed(&self.path, &error))?;
        let deadline = std::time::Instant::now() + CLOCK_TICK_MAX;
        while std::time::Instant::now() < deadline
            && read_clock().map_err(|error| failed(&self.path, &error))? <= started
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.record.started = started;
        self.write_record()?;
        self.write_phases()
    }

    /// Removes the trial directory. An error is only a warning, because the result of the trial is valid.
    pub(super) fn remove(self) {
        if let Err(error) = clear(&self.path, &self.record) {
            print_stderr(&format!("warning: cannot remove {}: {error}", self.path.display()));
        }
    }
}

/// Returns the id of the trial with this trial directory.
fn id(trial_dir: &Path) -> String {
    let name = trial_dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!("try-{name}")
}

/// Creates the directories of an overlay over `lower`, in the directory `path`. The root of an overlay has owner and
/// mode of its upper directory, so they are copied from `lower`.
fn create_overlay_dirs(path: &Path, lower: &Path) -> Result<OverlayDirs> {
    let dirs = OverlayDirs { upper: path.join("upper"), work: path.join("work") };
    for directory in [&dirs.upper, &dirs.work] {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| failed(directory, &error))?;
    }
    let copy_attributes = || -> io::Result<()> {
        let (wanted, current) = (fs::metadata(lower)?, fs::metadata(&dirs.upper)?);
        if (wanted.uid(), wanted.gid()) != (current.uid(), current.gid()) {
            // Fails without privileges. The program then sees the user of this process as the owner.
            let _ = std::os::unix::fs::chown(&dirs.upper, Some(wanted.uid()), Some(wanted.gid()));
        }
        for name in ACL_XATTRS {
            let mut value = vec![0; 64 << 10];
            if let Ok(length) = rustix::fs::getxattr(lower, name, &mut value[..]) {
                // Without the access control lists the program sees the mode bits; the lower directory keeps its lists.
                let _ = rustix::fs::setxattr(&dirs.upper, name, &value[..length], XattrFlags::empty());
            }
        }
        fs::set_permissions(&dirs.upper, wanted.permissions())
    };
    copy_attributes().map_err(|error| failed(&dirs.upper, &error))?;
    Ok(dirs)
}

fn read_record(trial_dir: &Path) -> Option<TrialRecord> {
    serde_json::from_slice(&fs::read(trial_dir.join(RECORD_FILE)).ok()?).ok()
}

/// Removes a trial directory, and the cgroup and the processes of its trial.
fn clear(trial_dir: &Path, record: &TrialRecord) -> std::result::Result<(), String> {
    let message = |error: workspace_host::HostError| error.to_string();
    cgroup::remove(&id(trial_dir)).map_err(message)?;
    // Record of a namespace holder, which only a trial with a network has. If the holder of a killed trial has ended,
    // this starts another one, which is killed at once.
    if trial_dir.join("holder").exists() {
        NamespaceHolder::find_or_start(trial_dir).map_err(message)?.kill();
    }
    remove_outside_home_dir(record).map_err(message)?;
    overlay::remove_tree(&NamespaceHolder::None, trial_dir).map_err(message)
}

/// Removes the directory for changes in the home directory, if it is outside of the trial directory.
fn remove_outside_home_dir(record: &TrialRecord) -> std::result::Result<(), workspace_host::HostError> {
    let Some(home) = &record.home else { return Ok(()) };
    let owned = fs::symlink_metadata(home)
        .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
    if owned { overlay::remove_tree(&NamespaceHolder::None, Path::new(home)) } else { Ok(()) }
}

/// Returns true if a trial was killed before it had written its record. Temporary directories of a `LocalService`,
/// which have the same parent directory, have a record of another name.
fn was_killed_before_record(trial_dir: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(trial_dir) else { return false };
    let is_early_file = |name: &std::ffi::OsStr| name == LOCK_FILE || name == NEW_RECORD_FILE;
    entries.all(|entry| entry.is_ok_and(|entry| is_early_file(&entry.file_name())))
}

/// Removes trial directories of killed processes. Prints a note for those that cannot be removed, or whose changes wait
/// for `workspace try --apply`.
pub(super) fn remove_leftovers(current: &TrialDir) {
    let Some(parent) = current.path.parent() else { return };
    for (path, lock) in find_and_lock_leftovers(parent) {
        let Some(record) = read_record(&path) else {
            if was_killed_before_record(&path) {
                let _ = overlay::remove_tree(&NamespaceHolder::None, &path);
            }
            continue;
        };
        match record.phase {
            Phase::Running => {
                if let Err(error) = clear(&path, &record) {
                    print_stderr(&format!(
                        "warning: cannot remove {}, which an earlier trial left: {error}",
                        path.display()
                    ));
                }
            }
            Phase::Keeping => print_stderr(&format!(
                "warning: an earlier trial was interrupted while its changes were written to {}; `workspace try --apply {}` \
                 completes that",
                Path::new(&record.target).display(),
                path.display()
            )),
            Phase::Saved => print_stderr(&format!(
                "note: changes of an earlier trial on {} wait in {}; `workspace try --apply` with that path writes \
                 them, and drops them with `--drop`",
                Path::new(&record.target).display(),
                path.display()
            )),
        }
        drop(lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_record_is_removable_unless_it_has_other_files() {
        let place = tempfile::tempdir().unwrap();
        let cases: [(&[&str], bool); 4] = [
            (&["lock"], true),
            (&["lock", "trial.new"], true),
            (&["lock", "note"], false),
            (&["lock", "trial.new", "directory"], false),
        ];
        for (names, expected) in cases {
            let trial_dir = place.path().join(names.join("-"));
            fs::create_dir(&trial_dir).unwrap();
            for name in names {
                fs::write(trial_dir.join(name), "").unwrap();
            }
            assert_eq!(was_killed_before_record(&trial_dir), expected, "{names:?}");
        }
    }
}
