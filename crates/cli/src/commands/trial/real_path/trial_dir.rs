//! Directories that a trial writes to, and the removal of leftovers.

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
use crate::local::{DirLock, find_and_lock_leftovers, new_directory};
use crate::text::print_stderr;

const RECORD_FILE: &str = "trial.json";
/// File whose ctime is the start of the trial.
const STARTED_FILE: &str = "started";
/// Subdirectories that are not needed to keep the changes.
const TEMPORARY_DIRS: [&str; 3] = ["home", "git", "store"];
/// Upper limit of the clock tick of a filesystem.
const CLOCK_TICK_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// Progress of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// The process runs. When it has ended, the directory can be removed.
    Running,
    /// Changes are being written to the directory, so leftovers must not be removed.
    Keeping,
    /// Changes could not be written, and wait for a decision.
    Aside,
}

/// Record of a trial in its directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TrialRecord {
    pub(super) directory: std::ffi::OsString,
    pub(super) phase: Phase,
    /// Layer for changes in the home directory, if it is outside of the trial's directory.
    home: Option<std::ffi::OsString>,
    /// Start of the trial in seconds and nanoseconds: a file with a later ctime was changed during it.
    pub(super) started: (i64, i64),
    /// Device and inode of the directory.
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
            Self::Aside => "trial.aside",
        }
    }
}

/// Upper and work directory of an overlay.
pub(super) struct Layer {
    pub(super) upper: PathBuf,
    pub(super) work: PathBuf,
}

/// Directory of a trial.
pub(super) struct TrialDir {
    pub(super) path: PathBuf,
    pub(super) record: TrialRecord,
    _lock: DirLock,
}

fn failed(path: &Path, error: &io::Error) -> CommandError {
    CommandError::failed(format!("cannot write below {}: {error}", path.display())).hint(io_hint(error))
}

impl TrialDir {
    /// Creates a directory for a trial on `directory`, outside of it.
    pub(super) fn new(directory: &Path) -> Result<Self> {
        let found = fs::metadata(directory).map_err(|error| {
            CommandError::failed(format!("cannot read {}: {error}", directory.display()))
                .hint(io_hint(&error))
        })?;
        let (path, lock) = new_directory(Some(directory))?;
        let record = TrialRecord {
            directory: directory.as_os_str().to_owned(),
            phase: Phase::Running,
            home: None,
            started: (0, 0),
            identity: Some((found.dev(), found.ino())),
        };
        let dir = Self { path, record, _lock: lock };
        dir.write_record()?;
        Ok(dir)
    }

    /// Opens a directory whose changes wait for a decision.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let no_changes = || {
            CommandError::failed(format!("{} has no changes of a trial", path.display()))
                .hint("specify the directory that `workspace try` printed when it set the changes aside")
        };
        let path = fs::canonicalize(path).map_err(|_| no_changes())?;
        let record = read_record(&path).ok_or_else(no_changes)?;
        if record.phase == Phase::Running {
            return Err(no_changes());
        }
        let lock = DirLock::new(&path).map_err(|error| failed(&path, &error))?.ok_or_else(|| {
            CommandError::failed(format!("{} is in use", path.display()))
                .hint("another `workspace try` uses it; wait until it exits")
        })?;
        Ok(Self { path, record, _lock: lock })
    }

    /// Returns the id of the trial's cgroups, which is also part of the names of incomplete files.
    pub(super) fn id(&self) -> String {
        id(&self.path)
    }

    fn write_record(&self) -> Result<()> {
        let written = || -> io::Result<()> {
            let new = self.path.join("trial.new");
            fs::write(&new, serde_json::to_vec(&self.record)?)?;
            fs::File::open(&new)?.sync_all()?;
            fs::rename(&new, self.path.join(RECORD_FILE))
        };
        written().map_err(|error| failed(&self.path, &error))
    }

    /// Writes the record of each phase.
    fn write_phases(&self) -> Result<()> {
        let phases = [Phase::Running, Phase::Keeping, Phase::Aside];
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

    /// Removes everything except the changes. Entries that cannot be removed stay until the directory is removed.
    pub(super) fn remove_unneeded(&self) {
        for name in TEMPORARY_DIRS {
            let _ = overlay::remove_tree(&NamespaceHolder::Host, &self.path.join(name));
        }
        let _ = remove_home_layer(&self.record);
    }

    /// Creates the layer of an overlay over the directory `lower`.
    pub(super) fn layer(&self, name: &str, lower: &Path) -> Result<Layer> {
        make_layer(&self.path.join(name), lower)
    }

    /// Returns the upper directory of the overlay over the directory of the trial.
    pub(super) fn upper(&self) -> PathBuf {
        self.path.join("directory/upper")
    }

    /// Creates a layer for writes to the home directory, outside of it, because the kernel takes no upper
    /// directory inside a lower one. `None` if there is no directory for it.
    pub(super) fn home_layer(&mut self, home: &Path, directory: &Path) -> Result<Option<Layer>> {
        if !self.path.starts_with(home) {
            return self.layer("home", home).map(Some);
        }
        for parent in [PathBuf::from("/var/tmp"), std::env::temp_dir()] {
            let Ok(parent) = fs::canonicalize(parent) else { continue };
            if parent.starts_with(home) || parent.starts_with(directory) {
                continue;
            }
            let user = rustix::process::geteuid().as_raw();
            let path = parent.join(format!("workspace-{user}-{}", self.id()));
            // Recorded before it exists, so that removal of leftovers finds it.
            self.record.home = Some(path.clone().into_os_string());
            self.write_record()?;
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return make_layer(&path, home).map(Some),
                Err(_) => {
                    self.record.home = None;
                    self.write_record()?;
                }
            }
        }
        Ok(None)
    }

    /// Records the start of the trial. File times have the resolution of a clock tick: this returns in a later tick.
    pub(super) fn start_clock(&mut self) -> Result<()> {
        let marker = self.path.join(STARTED_FILE);
        let touched = || -> io::Result<(i64, i64)> {
            fs::write(&marker, "")?;
            fs::set_permissions(&marker, fs::metadata(&marker)?.permissions())?;
            let found = fs::metadata(&marker)?;
            Ok((found.ctime(), found.ctime_nsec()))
        };
        let first = touched().map_err(|error| failed(&self.path, &error))?;
        let deadline = std::time::Instant::now() + CLOCK_TICK_MAX;
        while std::time::Instant::now() < deadline
            && touched().map_err(|error| failed(&self.path, &error))? <= first
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.record.started = first;
        self.write_record()?;
        self.write_phases()
    }

    /// Removes the directory. An error is only a warning, because the result of the trial is valid.
    pub(super) fn remove(self) {
        if let Err(error) = clear(&self.path, &self.record) {
            print_stderr(&format!("warning: cannot remove {}: {error}", self.path.display()));
        }
    }
}

fn id(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!("try-{name}")
}

/// Creates a layer. An overlay shows owner and mode of the upper for its root, so they are copied from the directory below.
fn make_layer(path: &Path, lower: &Path) -> Result<Layer> {
    let layer = Layer { upper: path.join("upper"), work: path.join("work") };
    for directory in [&layer.upper, &layer.work] {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| failed(directory, &error))?;
    }
    let copy_attributes = || -> io::Result<()> {
        let (wanted, current) = (fs::metadata(lower)?, fs::metadata(&layer.upper)?);
        if (wanted.uid(), wanted.gid()) != (current.uid(), current.gid()) {
            // A user who cannot change the owner is the owner.
            let _ = std::os::unix::fs::chown(&layer.upper, Some(wanted.uid()), Some(wanted.gid()));
        }
        for name in ACL_XATTRS {
            let mut value = vec![0; 64 << 10];
            if let Ok(length) = rustix::fs::getxattr(lower, name, &mut value[..]) {
                // Without the access control lists the program sees the mode bits; the lower directory keeps its lists.
                let _ = rustix::fs::setxattr(&layer.upper, name, &value[..length], XattrFlags::empty());
            }
        }
        fs::set_permissions(&layer.upper, wanted.permissions())
    };
    copy_attributes().map_err(|error| failed(&layer.upper, &error))?;
    Ok(layer)
}

fn read_record(dir: &Path) -> Option<TrialRecord> {
    serde_json::from_slice(&fs::read(dir.join(RECORD_FILE)).ok()?).ok()
}

/// Removes the directory of a trial, its cgroup and its processes.
fn clear(dir: &Path, record: &TrialRecord) -> std::result::Result<(), String> {
    let message = |error: workspace_host::HostError| error.to_string();
    cgroup::remove(&id(dir)).map_err(message)?;
    // Only a trial with a network has a namespace holder.
    if dir.join("holder").exists() {
        NamespaceHolder::find_or_start(dir).map_err(message)?.kill();
    }
    remove_home_layer(record).map_err(message)?;
    overlay::remove_tree(&NamespaceHolder::Host, dir).map_err(message)
}

/// Removes the layer for changes in the home directory, if it is outside of the trial's directory.
fn remove_home_layer(record: &TrialRecord) -> std::result::Result<(), workspace_host::HostError> {
    let Some(home) = &record.home else { return Ok(()) };
    let owned = fs::symlink_metadata(home)
        .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
    if owned { overlay::remove_tree(&NamespaceHolder::Host, Path::new(home)) } else { Ok(()) }
}

/// Removes leftovers of killed trials. Reports those that cannot be removed or that wait for a decision.
pub(super) fn remove_leftovers(current: &TrialDir) {
    let Some(parent) = current.path.parent() else { return };
    for (path, lock) in find_and_lock_leftovers(parent) {
        let Some(record) = read_record(&path) else {
            // A trial that was killed before it wrote a record left only the lock file. Directories of local services have
            // another record.
            let has_only_lock = fs::read_dir(&path).is_ok_and(|names| names.count() == 1);
            if has_only_lock {
                let _ = overlay::remove_tree(&NamespaceHolder::Host, &path);
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
                Path::new(&record.directory).display(),
                path.display()
            )),
            Phase::Aside => print_stderr(&format!(
                "note: changes of an earlier trial on {} wait in {}; `workspace try --apply` with that path writes \
                 them, and drops them with `--drop`",
                Path::new(&record.directory).display(),
                path.display()
            )),
        }
        drop(lock);
    }
}
