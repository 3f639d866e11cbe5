//! export, import, with GNU tar on the other side.

use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::{TestDir, succeed};

/// A place whose `project` has everything that a directory can have.
fn rich() -> TestDir {
    let place = TestDir::with_project();
    fs::hard_link(place.path("project/README.md"), place.path("project/src/hard")).unwrap();
    fs::write(place.path("project").join(OsStr::from_bytes(b"line\n\xff")), "odd").unwrap();
    place.write(&format!("project/{}/{}", "d".repeat(200), "f".repeat(200)), "long");
    std::os::unix::fs::symlink("t".repeat(300), place.path("project/far")).unwrap();
    let mut sparse = fs::File::create(place.path("project/sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    sparse.seek(SeekFrom::Start(5 << 20)).unwrap();
    sparse.write_all(&[7; 5000]).unwrap();
    fs::create_dir(place.path("project/empty")).unwrap();
    place.chmod("project/empty", 0o1777);
    let xattr = ["-n", "user.note", "-v", "0x000a3dff", "project/build.sh"];
    succeed(place.program("setfattr").args(xattr));
    let old = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::open(place.path("project/build.sh")).unwrap().set_modified(old).unwrap();
    place
}

/// Nothing differs, times and link groups included.
fn assert_same(place: &TestDir, a: &str, b: &str) {
    assert_eq!(place.ok(&["diff", a, b]), "");
    let export = |id: &str| place.workspace(&["export", id]).output().unwrap().stdout;
    assert!(export(a) == export(b), "times or links differ");
}

#[test]
fn gnu_tar_reads_what_is_exported() {
    let place = rich();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    fs::create_dir(place.path("copy")).unwrap();
    let file = fs::File::create(place.path("x.tar")).unwrap();
    succeed(place.workspace(&["export", "main"]).stdout(file));
    // Ten megabytes with a hole, and little else.
    assert!(place.path("x.tar").metadata().unwrap().len() < 1 << 20);
    let extract = ["--xattrs", "--xattrs-include=*", "-xpf", "x.tar", "-C", "copy"];
    let ran = succeed(place.program("tar").args(extract));
    assert_eq!(ran.stderr, "");
    place.ok(&["snapshot", "copy", "--ref", "copy"]);
    assert_same(&place, "main", "copy");
    let (one, two) = (place.path("copy/README.md"), place.path("copy/src/hard"));
    assert_eq!(one.metadata().unwrap().ino(), two.metadata().unwrap().ino());
}

#[test]
fn a_part_of_a_snapshot_is_exported_to_a_file() {
    let place = rich();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.write("x.tar", "old");
    place.chmod("x.tar", 0o600);
    assert_eq!(place.ok(&["export", "main", "src", "-o", "x.tar"]), "");
    assert_eq!(place.path("x.tar").metadata().unwrap().mode() & 0o777, 0o600, "the mode stays");
    let listed = succeed(place.program("tar").args(["-tf", "x.tar"]));
    assert_eq!(listed.stdout, "./\nhard\nmain.rs\n");
    place.ok(&["export", "main", "main", "-o", "link.tar"]);
    let listed = succeed(place.program("tar").args(["-tf", "link.tar"]));
    assert_eq!(listed.stdout, "main\n");
    let ran = place.run(&["export", "main", "nothing", "-o", "none.tar"]);
    assert!(ran.status == 1 && ran.stderr.contains("`nothing` is not in snapshot"), "{}", ran.stderr);
    assert!(!place.path("none.tar").exists());
    let ran = place.run(&["export", "main", "-o", "no/such/x.tar"]);
    assert!(ran.status == 1 && ran.stderr.contains("cannot write no/such/x.tar"), "{}", ran.stderr);
}

#[test]
fn archives_of_gnu_tar_are_imported() {
    let place = rich();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    for sparse in [&[][..], &["--sparse"], &["--sparse", "--sparse-version=0.1"]] {
        let mut tar = place.program("tar");
        tar.args(["--format=posix", "--xattrs", "--xattrs-include=user.*"]).args(sparse);
        succeed(tar.args(["-cf", "x.tar", "-C", "project", "."]));
        place.ok(&["import", "x.tar", "--ref", "posix"]);
        // GNU tar orders entries by the directory, so the link group may have another first name; the
        // export sorts that out.
        assert_same(&place, "main", "posix");
    }
    // A map in many records of one key cannot be read without guessing.
    let old = ["--format=posix", "--sparse", "--sparse-version=0.0", "-cf", "x.tar", "-C", "project", "."];
    succeed(place.program("tar").args(old));
    let refused = place.run(&["import", "x.tar"]);
    assert!(refused.stderr.contains("a repeated pax record"), "{}", refused.stderr);
    // The older format has neither attributes nor parts of a second.
    succeed(place.program("tar").args(["--format=gnu", "--sparse", "-cf", "x.tar", "-C", "project", "."]));
    place.ok(&["import", "x.tar", "--ref", "gnu"]);
    assert_eq!(place.ok(&["diff", "main", "gnu"]), "mode changed build.sh (extended attributes)\n");
}

#[test]
fn a_round_trip_gives_the_same_tree() {
    let place = rich();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let mut export = place.workspace(&["export", "main"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut import = place.workspace(&["import", "-m", "back", "--ref", "back"]);
    succeed(import.stdin(export.stdout.take().unwrap()));
    assert!(export.wait().unwrap().success());
    assert_same(&place, "main", "back");
    assert_eq!(place.record(&["show", "back"])["message"], "back");
}

#[test]
fn set_id_bits_are_dropped_unless_kept() {
    let place = TestDir::with_project();
    place.chmod("project/build.sh", 0o4755);
    succeed(place.program("tar").args(["-cf", "x.tar", "-C", "project", "."]));
    place.ok(&["import", "x.tar", "--ref", "safe"]);
    place.ok(&["import", "x.tar", "--ref", "kept", "--keep-set-id"]);
    assert_eq!(place.record(&["ls", "safe", "build.sh"])["mode"], "0755");
    assert_eq!(place.record(&["ls", "kept", "build.sh"])["mode"], "4755");
}

#[test]
fn hostile_archives_are_refused() {
    let place = TestDir::with_project();
    let tar = |words: &[&str]| {
        let mut tar = place.program("tar");
        succeed(tar.args(["-P", "-cf", "x.tar"]).args(words).current_dir(place.path("project")));
        fs::rename(place.path("project/x.tar"), place.path("x.tar")).unwrap();
        place.transcript(&[&["import", "x.tar"]])
    };
    let outside = tar(&["--transform=s,README,../README,", "README.md"]);
    let absolute = tar(&["--transform=s,README,/README,", "README.md"]);
    insta::assert_snapshot!(format!("{outside}{absolute}"));
    assert_eq!(place.json(&["log"]).len(), 0);
}

#[test]
fn oddities_of_an_archive_are_reported() {
    let place = TestDir::with_project();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.path("project/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    succeed(place.program("tar").args(["-cf", "x.tar", "-C", "project", "pipe", "README.md"]));
    succeed(place.program("tar").args(["-rf", "x.tar", "-C", "project", "README.md"]));
    place.write("text.tar", "hello\n".repeat(1000));
    place.write("empty.tar", "");
    succeed(place.program("tar").args(["-czf", "x.tar.gz", "-C", "project", "."]));
    let whole = fs::read(place.path("x.tar")).unwrap();
    fs::write(place.path("cut.tar"), &whole[..1024]).unwrap();
    insta::assert_snapshot!(place.transcript(&[
        &["import", "x.tar"],
        &["import", "text.tar"],
        &["import", "x.tar.gz"],
        &["import", "missing.tar"],
        &["import", "cut.tar"],
        &["import", "empty.tar"],
    ]));
}
