//! The mark: whether the index on disk can be trusted.
//!
//! One small file, overwritten in place so that a change costs one cheap sync. It holds `clean` while the
//! index is known to be complete on disk, else the boot of the machine in which the index is being written:
//! in another boot the index may be anything. It fits in one sector; whatever else is in it counts as
//! another boot.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{IoContext, Result};
use crate::pack::sync_directory;
use crate::platform;

const NAME: &str = "boot";
const CLEAN: &str = "clean";
/// The text is padded, so that a shorter one replaces a longer one whole.
const LENGTH: usize = 64;

/// What the mark says; nothing for an index that was never written.
pub(crate) fn read(store: &Path) -> Option<String> {
    fs::read_to_string(store.join(NAME)).ok().map(|text| text.trim_end().to_owned())
}

/// Says that the index on disk is complete.
pub(crate) fn set_clean(store: &Path) -> Result<()> {
    set(store, CLEAN)
}

pub(crate) fn is_clean(mark: &str) -> bool {
    mark == CLEAN
}

/// Replaces what the mark says, durably.
pub(crate) fn set(store: &Path, text: &str) -> Result<()> {
    let path = store.join(NAME);
    let there = path.exists();
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).at("open", &path)?;
    let padded = format!("{text:<LENGTH$}");
    file.write_all_at(padded.as_bytes(), 0).and_then(|()| file.sync_data()).at("write", &path)?;
    if there { Ok(()) } else { sync_directory(store) }
}

/// Changes with every start of the machine.
pub(crate) fn boot_id() -> String {
    // Where that cannot be told, every open after a close looks like a reboot: slow, never wrong.
    platform::boot_id().unwrap_or_else(|| format!("process {}", std::process::id()))
}
