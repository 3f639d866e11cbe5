//! Sandboxes that follow an anchor: a mount whose content (the head) is replaced for all of them at once.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox and launches it; `Sandbox::sh` runs a shell command in it
//! and returns the output.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::Trial;
use workspace_host::anchor::{self, AnchorStep};
use workspace_host::{HostError, NamespaceHolder, overlay};

use crate::guest::{Fixture, Sandbox};

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        a_follower_sees_each_new_head,
        a_follower_cannot_write,
        a_reader_never_misses_a_file_and_never_sees_two_heads,
        a_working_directory_keeps_its_head,
        followers_of_two_anchors_do_not_see_each_others_files,
        an_interrupted_switch_is_settled,
        an_interrupted_switch_is_settled_for_new_followers,
        a_follower_is_attached_once,
        a_follower_moves_to_another_anchor,
        a_follower_has_no_files_when_its_anchor_is_removed,
        nothing_is_mounted_after_an_anchor_was_removed,
        the_mounts_of_a_follower_show_no_path_of_the_host,
    ]
}

/// Anchor with heads that have two files with the same number.
struct Anchor<'a> {
    holder: &'a NamespaceHolder,
    directory: PathBuf,
}

impl<'a> Anchor<'a> {
    fn new(home: &'a Fixture, name: &str) -> Self {
        let directory = home.path(name);
        fs::create_dir_all(directory.join("empty")).unwrap();
        Self { holder: &home.holder, directory }
    }

    /// Creates the layers of a head with this number.
    fn layers(&self, number: u32) -> [PathBuf; 2] {
        let layer = self.directory.join(format!("layer-{number}"));
        fs::create_dir_all(layer.join("d")).unwrap();
        for name in ["a", "d/b"] {
            fs::write(layer.join(name), format!("{number}\n")).unwrap();
        }
        [layer, self.directory.join("empty")]
    }

    /// Mounts the anchor with the head of this number, unless the anchor is mounted already.
    fn prepare(&self, number: u32) {
        anchor::mount_unless_mounted(self.holder, &self.directory, &self.layers(number)).unwrap();
    }

    /// Replaces the head by that of this number, for all followers.
    fn switch(&self, number: u32) {
        anchor::switch(self.holder, &self.directory, &self.layers(number)).unwrap();
    }

    /// Begins a switch, whose helper is killed when the new head is mounted beneath the present one.
    fn switch_killed(&self, number: u32) -> HostError {
        let layers = self.layers(number);
        anchor::switch_killed(self.holder, &self.directory, &layers, AnchorStep::Mounted).unwrap_err()
    }

    /// Makes a sandbox a follower.
    fn attach(&self, sandbox: &Sandbox<'_>) {
        anchor::attach_follower(self.holder, &sandbox.process, &self.directory).unwrap();
    }

    /// Launches a follower.
    fn launch(&self, home: &'a Fixture) -> Sandbox<'a> {
        let sandbox = home.launch(|launch| launch.workspace = None);
        self.attach(&sandbox);
        sandbox
    }
}

impl Drop for Anchor<'_> {
    fn drop(&mut self) {
        anchor::remove(self.holder, &self.directory).unwrap();
    }
}

/// Command that prints the numbers in the two files of the head.
const READ: &str = "cat /workspace/a /workspace/d/b | tr '\\n' ' '";

fn a_follower_sees_each_new_head() {
    let home = Fixture::new();
    let anchor = Anchor::new(&home, "anchor-1");
    anchor.prepare(1);
    let sandbox = anchor.launch(&home);
    assert_eq!(sandbox.sh(READ), "1 1 ");
    for number in 2..5 {
        anchor.switch(number);
        assert_eq!(sandbox.sh(READ), format!("{number} {number} "));
    }
    // The anchor, and one head.
    assert_eq!(sandbox.sh("grep -c ' /workspace ' /proc/self/mountinfo"), "2\n");
    assert_eq!(mounts_below(&anchor), 2);
}

/// Returns the number of mounts at the anchor and below it.
fn mounts_below(anchor: &Anchor<'_>) -> usize {
    overlay::mounted(anchor.holder, &anchor.directory).unwrap().len()
}

fn a_follower_cannot_write() {
    let home = Fixture::new();
    let anchor = Anchor::new(&home, "anchor-1");
    anchor.prepare(1);
    let sandbox = anchor.launch(&home);
    anchor.switch(2);
    for attempt in
        ["touch /workspace/new", "rm /workspace/a", "echo 9 > /workspace/d/b", "chmod 700 /workspace"]
    {
        assert!(sandbox.sh(attempt).contains("Read-only file system"), "{attempt}");
    }
    assert_eq!(sandbox.sh("umount -l /workspace >/dev/null 2>&1 || echo refused"), "refused\n");
    assert_eq!(sandbox.sh(READ), "2 2 ");
}

fn a_reader_never_misses_a_file_and_never_sees_two_heads() {
    let home = Fixture::new();
    let anchor = Anchor::new(&home, "anchor-1");
    anchor.prepare(0);
    let sandbox = anchor.launch(&home);
    let is_done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=50 {
                anchor.switch(number);
            }
            is_done.store(true, Ordering::SeqCst);
        });
        // Each round opens the directory by its absolute path, and the two files below it.
        let script = "n=0; while [ $n -lt 200 ]; do n=$((n+1)); \
            (cd /workspace && read -r a < a && read -r b < d/b && [ \"$a\" = \"$b\" ] && echo $a || echo BAD); \
            read -r c < /workspace/d/b || echo MISSING; done | sort -u | tr '\\n' ' '";
        let mut seen = String::new();
        while !is_done.load(Ordering::SeqCst) {
            seen += &sandbox.sh(script);
        }
        seen
    });
    assert!(!seen.contains("BAD") && !seen.contains("MISSING") && !seen.contains("cannot"), "{seen}");
    assert_eq!(sandbox.sh(READ), "50 50 ");
}

fn a_working_directory_keeps_its_head() {
    let home = Fixture::new();
    let anchor = Anchor::new(&home, "anchor-1");
    anchor.prepare(1);
    let sandbox = anchor.launch(&home);
    sandbox.sh(
        "mkfifo /tmp/go /tmp/out; \
         (cd /workspace/d; exec 3< ../a; echo ready; read -r x < /tmp/go; cat b ../a /workspace/a <&3 > /tmp/out) \
         > /tmp/state 2>&1 & while ! grep -q ready /tmp/state; do sleep 0.01; done",
    );
    anchor.switch(2);
    assert_eq!(sandbox.sh("echo go > /tmp/go & cat /tmp/out | tr '\\n' ' '"), "1 1 2 ");
}

fn followers_of_two_anchors_do_not_see_each_others_files() {
    let (home, other) = (Fixture::new(), Fixture::new());
    let (anchor, other_anchor) = (Anchor::new(&home, "anchor-1"), Anchor::new(&other, "anchor-2"));
    anchor.prepare(1);
    other_anchor.prepare(100);
    let (sandbox, other_sandbox) = (anchor.launch(&home), other_anchor.launch(&other));
    anchor.switch(2);
    other_anchor.switch(101);
    assert_eq!((sandbox.sh(READ), other_sandbox.sh(READ)), ("2 2 ".to_owned(), "101 101 ".to_owned()));
}

fn an_interrupted_switch_is_settled() {
    let home = Fixture::new();
    let anchor = Anchor::new(&home, "anchor-1");
    anchor.prepare(1);
    let sandbox = anchor.launch(&home);
    anchor.switch_killed(2);
    assert_eq!(sandbox.sh(READ), "1 1 ", "the former head is still on top");
    anchor.switch(3);
    assert_eq!(sandbox.sh(READ), "3 3 ");
    assert_eq!(sandbox.sh("grep -c ' /workspace ' /proc/self/mountinfo"), "2\n");
    assert_eq!(mounts_below(&anchor), 2);
}

fn an_interrupted_switch_is_settled_for_new_followers() {
    let (home, other) = (Fixture::new(), Fixture::new());
    let anchor = Anchor::new(&home, "anchor-1");
    anchor.prepare(1);
    let sandbox = anchor.launch(&home);
    anchor.switch_killed(2);
    // Root has no holder, so both fixtures mount in the same namespaces.
    if home.holder == other.holder {
        let second = anchor.launch(&other);
        assert_eq!(second.sh(READ), "2 2 ");
    } else {
        anchor.prepare(1);
    }
    assert_eq!(sandbox.sh(READ), "2 2 ");
}

fn a_follower_is_attached_once() {
    let home = Fixture::new();
    let anchor = Anchor::new(&home, "anchor-1");
    anchor.prepare(1);
    let sandbox = anchor.launch(&home);
    anchor.attach(&sandbox);
    assert_eq!(sandbox.sh("grep -c ' /workspace ' /proc/self/mountinfo"), "2\n");
    anchor.switch(2);
    assert_eq!(sandbox.sh(READ), "2 2 ");
}

fn a_follower_moves_to_another_anchor() {
    let home = Fixture::new();
    let (anchor, other) = (Anchor::new(&home, "anchor-1"), Anchor::new(&home, "anchor-2"));
    anchor.prepare(1);
    other.prepare(100);
    let sandbox = anchor.launch(&home);
    other.attach(&sandbox);
    assert_eq!(sandbox.sh(READ), "100 100 ");
    anchor.switch(2);
    assert_eq!(sandbox.sh(READ), "100 100 ", "it still followed the first anchor");
    other.switch(101);
    anchor.switch(3);
    assert_eq!(sandbox.sh(READ), "101 101 ");
}

fn a_follower_has_no_files_when_its_anchor_is_removed() {
    let home = Fixture::new();
    let anchor = Anchor::new(&home, "anchor-1");
    anchor.prepare(1);
    let sandbox = anchor.launch(&home);
    assert!(anchor::remove(&home.holder, &anchor.directory).unwrap());
    assert!(!anchor::remove(&home.holder, &anchor.directory).unwrap());
    assert_eq!(sandbox.sh("ls /workspace | wc -l"), "0\n");
}

fn nothing_is_mounted_after_an_anchor_was_removed() {
    let home = Fixture::new();
    let anchor = Anchor::new(&home, "anchor-1");
    anchor.prepare(1);
    let sandbox = anchor.launch(&home);
    anchor.switch(2);
    drop(sandbox);
    anchor::remove(&home.holder, &anchor.directory).unwrap();
    assert_eq!(mounts_below(&anchor), 0);
    assert!(!Path::new(&anchor::head_path(&anchor.directory)).exists());
}

fn the_mounts_of_a_follower_show_no_path_of_the_host() {
    let home = Fixture::new();
    let anchor = Anchor::new(&home, "anchor-1");
    anchor.prepare(1);
    let sandbox = anchor.launch(&home);
    anchor.switch(2);
    let mounts = sandbox.sh("grep ' /workspace ' /proc/self/mountinfo");
    assert!(!mounts.contains(home.path("").to_str().unwrap()), "{mounts}");
    assert!(mounts.lines().all(|line| line.contains(" ro,nosuid,nodev")), "{mounts}");
}
