//! The disk on which the server keeps everything is full, and then it is not.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::house::{House, soon};

/// A small disk of its own.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(directory.path());
        let mounted = command.output().is_ok_and(|done| done.status.success());
        if !mounted {
            eprintln!("not tested: only the superuser can mount a small disk");
        }
        mounted.then_some(Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves no room for anybody.
    fn fill(&self) {
        let filler = self.path().join("filler");
        let filled = Command::new("dd").arg("if=/dev/zero").arg(format!("of={}", filler.display())).output();
        assert!(!filled.unwrap().status.success(), "the disk is larger than expected");
    }

    fn empty(&self) {
        std::fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[test]
fn on_a_full_disk_nothing_is_lost_and_all_goes_on_when_there_is_room() {
    let Some(disk) = Disk::mount("24m") else { return };
    let house = House::with(&[("DATA_DIR", disk.path().to_str().unwrap())]);
    let id = house.create();
    let late = house.begin(&id, json!({"command": "echo before; sleep 1; exit 7"}));
    disk.fill();
    // Whatever needs the disk is refused with a reason, as long as it takes.
    let mut refused = false;
    for _ in 0..40 {
        let answer = house.post("/api/v1/sandboxes", &json!({"template": "base"}));
        if answer.status >= 400 {
            let error = &answer.json()["error"];
            let name = error["name"].as_str().unwrap();
            assert!(
                ["CATALOG_UNAVAILABLE", "SANDBOX_CREATION_FAILED", "INTERNAL_ERROR"].contains(&name),
                "{error}"
            );
            refused = true;
            break;
        }
    }
    assert!(refused, "the disk was full");
    assert_eq!(house.get("/health").status, 200);
    assert_eq!(house.get(&format!("/api/v1/sandboxes/{id}")).status, 200);
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    disk.empty();
    // The end that could not be written down then is written down now.
    soon("the end is known", || house.command(&id, &late)["state"] == "exited");
    assert_eq!(house.command(&id, &late)["exitCode"], 7);
    assert_eq!(house.out(&id, "echo after"), "after\n");
    let next = house.create();
    assert_eq!(house.out(&next, "echo next"), "next\n");
    house.delete(&id);
    house.delete(&next);
}
