//! Size of the retained output of a sandbox's commands.
//!
//! A *trim* ([`super::output_limit`]) removes the oldest output until 7/8 of the limit of the sandbox are left, and
//! also measures what is left.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use workspace_agent_protocol::output;

use crate::leaf_mutex::LeafMutex;
use crate::sandbox_dir::SandboxDir;

/// Value of [`KeptOutput::measured_bytes`] while the size is not known.
const UNKNOWN: u64 = u64::MAX;

/// Upper bound of the size of the retained output of a sandbox's commands: the bytes at the last measurement, and all
/// that were printed since. Output that was dropped since still counts.
#[derive(Debug, Default)]
pub(crate) struct KeptOutput {
    /// Bytes at the last measurement or trim; [`UNKNOWN`] between a restart of the server and the first measurement.
    measured_bytes: AtomicU64,
    /// Bytes that were printed since the last measurement or trim began.
    printed: AtomicU64,
    /// Bytes that were printed before the measurement in progress, which counts them unless it fails.
    printed_before: AtomicU64,
    /// True during a measurement or trim.
    is_in_progress: AtomicBool,
    /// Modification time of the directory at the last measurement, in seconds and nanoseconds.
    /// No other lock is taken while it is held.
    measured_mtime: LeafMutex<Option<(i64, i64)>>,
}

impl KeptOutput {
    /// Bytes that have to be printed before the next trim, unless an eighth of the limit, by which a trim goes below
    /// the limit, is less.
    const TRIM_STEP_MAX: u64 = 1 << 20;

    /// Counts bytes that were printed.
    pub(crate) fn add(&self, printed: u64) {
        self.printed.fetch_add(printed, Ordering::Relaxed);
    }

    /// Returns true if there may be more than `limit` bytes, and a trim is due: more were measured, or enough
    /// ([`Self::TRIM_STEP_MAX`]) were printed since.
    pub(crate) fn may_exceed(&self, limit: u64) -> bool {
        let (measured, printed) =
            (self.measured_bytes.load(Ordering::Relaxed), self.printed.load(Ordering::Relaxed));
        let is_due = measured > limit || printed >= Self::TRIM_STEP_MAX.min(limit / 8);
        is_due && measured.saturating_add(printed) > limit
    }

    /// Returns the bytes at the last measurement; `None` between a restart of the server and the first one.
    pub(crate) fn measured_bytes(&self) -> Option<u64> {
        Some(self.measured_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != UNKNOWN)
    }

    /// Records that there may be output of unknown size, of commands that a former server started. It counts as more
    /// than every limit, so that the next check measures it.
    pub(crate) fn set_unknown(&self) {
        self.measured_bytes.store(UNKNOWN, Ordering::Relaxed);
    }

    /// Measures the retained output, if files were created in or removed from the directory since the last time. This
    /// finds output that the guest agent does not report: that of programs which outlive their command.
    pub(crate) fn measure(&self, dir: &SandboxDir) -> io::Result<()> {
        let directory = match std::fs::metadata(dir.output()) {
            // Concurrently deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata?,
        };
        let mtime = Some((directory.mtime(), directory.mtime_nsec()));
        let mut measured_mtime = self.measured_mtime.lock();
        if *measured_mtime != mtime && self.try_begin_update() {
            let kept = kept_bytes(dir);
            self.finish_update(kept.as_ref().ok().copied());
            kept?;
            *measured_mtime = mtime;
        }
        Ok(())
    }

    /// Begins a measurement or trim. Returns false if that is already in progress.
    pub(crate) fn try_begin_update(&self) -> bool {
        let begins = !self.is_in_progress.swap(true, Ordering::Relaxed);
        if begins {
            self.printed_before.store(self.printed.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        begins
    }

    /// Finishes a measurement or trim. `kept` is the number of bytes that are kept; `None` if that failed.
    pub(crate) fn finish_update(&self, kept: Option<u64>) {
        match kept {
            Some(kept) => self.measured_bytes.store(kept, Ordering::Relaxed),
            None => self.add(self.printed_before.load(Ordering::Relaxed)),
        }
        self.is_in_progress.store(false, Ordering::Relaxed);
    }
}

/// Returns the bytes of output in the directory of a sandbox.
pub(crate) fn kept_bytes(dir: &SandboxDir) -> io::Result<u64> {
    let segments = output::all_segments(File::open(dir.output())?)?;
    Ok(segments.iter().map(|segment| segment.bytes).sum())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use workspace_agent_protocol::output::{Stream, Writer};

    use super::*;

    fn write(home: &Path, command: &str) {
        let directory = OwnedFd::from(File::open(home).unwrap());
        let mut writer = Writer::create(directory, command, 32 << 10).unwrap();
        for _ in 0..64 {
            writer.write(Stream::Stdout, 0, &[7; 1 << 10]).unwrap();
        }
    }

    #[test]
    fn unreported_output_is_measured() {
        let home = tempfile::tempdir().unwrap();
        let dir = SandboxDir::new(home.path().to_owned());
        std::fs::create_dir(dir.output()).unwrap();
        let output = KeptOutput::default();
        output.measure(&dir).unwrap();
        assert!(!output.may_exceed(1 << 10));
        write(&dir.output(), "cmd-1");
        output.measure(&dir).unwrap();
        assert!(
            output.measured_bytes() >= Some(32 << 10) && output.may_exceed(1 << 10),
            "{:?}",
            output.measured_bytes()
        );
        // Output that is being trimmed is not measured.
        assert!(output.try_begin_update());
        write(&dir.output(), "cmd-2");
        let before = output.measured_bytes();
        output.measure(&dir).unwrap();
        assert_eq!(output.measured_bytes(), before);
        // The trim failed.
        output.finish_update(None);
        output.measure(&dir).unwrap();
        assert!(output.measured_bytes() > before);
    }

    #[test]
    fn output_of_unknown_size_is_no_number_of_bytes_and_exceeds_every_limit() {
        let home = tempfile::tempdir().unwrap();
        let dir = SandboxDir::new(home.path().to_owned());
        let output = KeptOutput::default();
        output.set_unknown();
        // There is no directory to measure.
        output.measure(&dir).unwrap();
        assert_eq!(output.measured_bytes(), None);
        assert!(output.may_exceed(u64::MAX - 1));
        std::fs::create_dir(dir.output()).unwrap();
        output.measure(&dir).unwrap();
        assert_eq!(output.measured_bytes(), Some(0));
    }

    #[test]
    fn a_failed_measurement_forgets_nothing_and_is_repeated() {
        let home = tempfile::tempdir().unwrap();
        let dir = SandboxDir::new(home.path().to_owned());
        // A file cannot be listed.
        std::fs::write(dir.output(), "").unwrap();
        let output = KeptOutput::default();
        let limit = 1 << 20;
        output.add(limit + 1);
        assert!(output.may_exceed(limit));
        output.measure(&dir).unwrap_err();
        assert!(output.may_exceed(limit), "what was printed before it still counts");
        output.measure(&dir).unwrap_err();
        std::fs::remove_file(dir.output()).unwrap();
        std::fs::create_dir(dir.output()).unwrap();
        output.measure(&dir).unwrap();
        assert!(!output.may_exceed(limit));
    }
}
