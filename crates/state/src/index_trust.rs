//! Trust marker of the index: records whether the index on disk can be used after a reboot.
//!
//! The index is an LMDB database that commits do not sync, so it may be inconsistent after a machine crash. It can be
//! rebuilt from other files of the store.
//!
//! The marker is a small file. Its text is `clean` while the index is known to be complete on disk, else the boot id of
//! the machine that is writing the index. If the machine has another boot id when the store is opened, the index is
//! rebuilt; any other text has the same effect. The file is overwritten in place, so that a change costs one cheap
//! sync. Its text fits in one disk sector, so it is never half written.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{IoContext, Result};
use crate::pack::sync_directory;
use crate::platform;

const FILE_NAME: &str = "boot";
const CLEAN: &str = "clean";
/// Length of the file in bytes. The text is padded with spaces, so that a shorter text overwrites a longer one
/// completely.
const FILE_LEN: usize = 64;

/// Returns the text of the marker; `None` if no process has written to the index yet.
pub(crate) fn read(store: &Path) -> Option<String> {
    fs::read_to_string(store.join(FILE_NAME)).ok().map(|text| text.trim_end().to_owned())
}

/// Records that the index on disk is complete.
pub(crate) fn set_clean(store: &Path) -> Result<()> {
    set(store, CLEAN)
}

/// Records that the next process to open the store must rebuild the index. `reason` is for people who inspect
/// the store; it must not be `clean` or a boot id.
pub(crate) fn set_untrusted(store: &Path, reason: &str) -> Result<()> {
    set(store, reason)
}

/// Returns true if the text of a marker says that the index on disk is complete.
pub(crate) fn is_clean(marker: &str) -> bool {
    marker == CLEAN
}

/// Replaces the text of the marker durably.
pub(crate) fn set(store: &Path, text: &str) -> Result<()> {
    let path = store.join(FILE_NAME);
    let is_new = !path.exists();
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).open(&path).context("open", &path)?;
    let padded = format!("{text:<FILE_LEN$}");
    file.write_all_at(padded.as_bytes(), 0).and_then(|()| file.sync_data()).context("write", &path)?;
    if is_new { sync_directory(store) } else { Ok(()) }
}

/// Returns the boot id of the machine.
pub(crate) fn boot_id() -> String {
    // If the boot id is unknown, the PID replaces it. Other processes then rebuild the index when they open a store
    // that was not closed properly: slow, but safe.
    platform::boot_id().unwrap_or_else(|| format!("process {}", std::process::id()))
}
