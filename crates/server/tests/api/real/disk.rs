//! Small disk that tests can fill.

use std::fs::File;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use workspace_test_support::skip;

/// Small filesystem.
pub(crate) struct Disk(tempfile::TempDir);

impl Disk {
    pub(crate) fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(directory.path());
        let mounted = command.output().is_ok_and(|done| done.status.success());
        if !mounted {
            skip("only root can mount a small disk");
        }
        mounted.then_some(Self(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk completely.
    pub(crate) fn fill(&self) {
        let filler = self.path().join("filler");
        let filled = Command::new("dd").arg("if=/dev/zero").arg(format!("of={}", filler.display())).output();
        assert!(!filled.unwrap().status.success(), "the disk is larger than expected");
    }

    /// Runs `work` while another thread takes all space that becomes free.
    pub(crate) fn while_full<T>(&self, work: impl FnOnce() -> T) -> T {
        self.fill();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut filler = File::options().append(true).open(self.path().join("filler")).unwrap();
                while !ended.load(Ordering::Relaxed) {
                    let _ = filler.write(&[0; 4096]);
                }
            });
            let result = std::panic::catch_unwind(AssertUnwindSafe(work));
            ended.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Fills the disk up to this many free bytes.
    pub(crate) fn fill_but(&self, bytes: u64) {
        self.fill();
        let filler = File::options().write(true).open(self.path().join("filler")).unwrap();
        filler.set_len(filler.metadata().unwrap().len() - bytes).unwrap();
    }

    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
