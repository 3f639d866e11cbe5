//! Trust marker of the index: records whether the index on disk can be used after a reboot.
//!
//! One small file, overwritten in place so that a change costs one cheap sync. It holds `clean` while the
//! index is known to be complete on disk, else the boot id of the machine that is writing the index. After
//! another boot the index may be inconsistent, because it is never synced by a commit. The text fits in one
//! sector; any other content counts as another boot.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{IoContext, Result};
use crate::pack::sync_directory;
use crate::platform;

const FILE_NAME: &str = "boot";
const CLEAN: &str = "clean";
/// Length of the file in bytes. The text is padded with spaces, so that a shorter one fully replaces a longer
/// one.
const FILE_LEN: usize = 64;

/// Returns the text of the marker; `None` for an index that was never written.
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
    // Where the boot id is unknown, every open after a close looks like a reboot: slow, but safe.
    platform::boot_id().unwrap_or_else(|| format!("process {}", std::process::id()))
}
