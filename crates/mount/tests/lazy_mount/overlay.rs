//! The lazy mount as the lower layer of an overlay, its main purpose.

use std::fs;
use std::process::Command;

use crate::support::{Fixture, output_of, requires_root};

/// Reads and writes through an overlay over `$LOWER`, in a new mount namespace.
const SCRIPT: &str = r"
set -e
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work /mnt/merged
mount -t overlay none -o lowerdir=$LOWER,upperdir=/mnt/upper,workdir=/mnt/work /mnt/merged
cd /mnt/merged
grep -rl needle . | sort
echo more >> a/file
rm a/gone
mkdir a/new
mv a/moved a/new/moved
cat a/file a/new/moved
test ! -e a/gone
stat -c %a a/tool
./a/tool
cd /
umount /mnt/merged
";

#[test]
fn an_overlay_over_the_mount_does_not_change_it() {
    if !requires_root() {
        return;
    }
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| {
        tree.write("a/file", "needle\n").unwrap();
        tree.write("a/gone", "hay\n").unwrap();
        tree.write("a/moved", "needle too\n").unwrap();
        tree.write("a/tool", "#!/bin/sh\necho ran\n").unwrap();
        tree.chmod("a/tool", 0o755).unwrap();
    });
    let mount = fixture.mount();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT]).env("LOWER", mount.of(&snapshot));
    let said = output_of(&mut command);
    assert_eq!(said, "./a/file\n./a/moved\nneedle\nmore\nneedle too\n755\nran\n");
    assert_eq!(fs::read_to_string(mount.of(&snapshot).join("a/file")).unwrap(), "needle\n");
    assert!(mount.of(&snapshot).join("a/gone").exists());
}
