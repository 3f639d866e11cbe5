//! Content of snapshots through the mount.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;

use rustix::fs::SeekFrom as Sparse;
use workspace_mount::MountOptions;
use workspace_state::{Attributes, Timestamp, Xattrs};

use crate::support::{Fixture, TestMount, names, output_of};

/// Returns bytes that do not repeat, so that a wrong offset is detected.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(len)
    .collect()
}

fn attributes(mode: u16, modified: i64) -> Attributes {
    Attributes { mode, modified: Some(Timestamp(modified)), ..Attributes::default() }
}

#[test]
fn files_of_every_size_have_their_content() {
    let fixture = Fixture::new();
    let sizes = [0, 1, 4095, 4096, 65_536, 65_537, 300_000, 3_000_000];
    let snapshot = fixture.commit(|tree| {
        for size in sizes {
            tree.write(format!("d/{size}"), bytes(size, size as u64)).unwrap();
        }
    });
    let mount = fixture.mount();
    for size in sizes {
        let path = mount.of(&snapshot).join("d").join(size.to_string());
        assert!(fs::read(&path).unwrap() == bytes(size, size as u64), "{size} bytes");
        assert_eq!(fs::metadata(&path).unwrap().len(), size as u64);
    }
}

#[test]
fn any_part_of_a_large_file_can_be_read() {
    let fixture = Fixture::new();
    let whole = bytes(9_000_000, 5);
    let snapshot = fixture.commit(|tree| tree.write("large", whole.clone()).unwrap());
    let mount = fixture.mount();
    let file = File::open(mount.of(&snapshot).join("large")).unwrap();
    let mut part = vec![0; 70_001];
    for offset in [8_900_000, 17, 4_000_000, 65_530, 8_999_990, 2_222_222] {
        let read = file.read_at(&mut part, offset as u64).unwrap();
        let expected = &whole[offset..(offset + part.len()).min(whole.len())];
        assert_eq!(read, expected.len());
        assert!(part[..read] == *expected, "at {offset}");
    }
    assert_eq!(file.read_at(&mut part, 9_000_000).unwrap(), 0);
}

#[test]
fn many_readers_at_once_see_the_same_bytes() {
    let fixture = Fixture::new();
    let whole = bytes(4_000_000, 11);
    let snapshot = fixture.commit(|tree| {
        tree.write("large", whole.clone()).unwrap();
        for at in 0..200 {
            tree.write(format!("small/{}/{at}", at % 7), format!("content of {at}")).unwrap();
        }
    });
    let mount = fixture.mount();
    let root = mount.of(&snapshot);
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let (root, whole) = (&root, &whole);
            scope.spawn(move || {
                for at in 0..200 {
                    let at = (at * 31 + reader * 17) % 200;
                    let path = root.join(format!("small/{}/{at}", at % 7));
                    assert_eq!(fs::read_to_string(path).unwrap(), format!("content of {at}"));
                }
                assert!(fs::read(root.join("large")).unwrap() == *whole);
            });
        }
    });
}

#[test]
fn modes_times_and_owner_are_shown() {
    let fixture = Fixture::new();
    let old = -1_500_000_001;
    let new = 1_700_000_000_123_456_789;
    let snapshot = fixture.commit(|tree| {
        tree.put_file("dir/tool", &mut &b"#!/bin/sh\n"[..], attributes(0o6755, new)).unwrap();
        tree.put_file("dir/old", &mut &b"x"[..], attributes(0o400, old)).unwrap();
        tree.put_symlink("dir/link", "tool", Some(Timestamp(new))).unwrap();
        tree.put_directory("dir", attributes(0o1750, new)).unwrap();
    });
    let mount = fixture.mount();
    let dir = mount.of(&snapshot).join("dir");
    let mode = |path: &str| fs::symlink_metadata(dir.join(path)).unwrap().permissions().mode();
    assert_eq!(mode(""), 0o041_750);
    assert_eq!(mode("tool"), 0o100_755, "set-id bits are dropped");
    assert_eq!(mode("old"), 0o100_400);
    assert_eq!(mode("link"), 0o120_777);
    for path in ["", "tool", "link"] {
        let metadata = fs::symlink_metadata(dir.join(path)).unwrap();
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_700_000_000, 123_456_789), "{path}");
        assert_eq!(metadata.uid(), rustix::process::getuid().as_raw());
    }
    let metadata = fs::metadata(dir.join("old")).unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (-2, 499_999_999), "before 1970");
}

#[test]
fn symlinks_have_their_targets() {
    let fixture = Fixture::new();
    let long = "x/".repeat(2000) + "end";
    let snapshot = fixture.commit(|tree| {
        tree.write("a/file", "here").unwrap();
        tree.symlink("near", "a/file").unwrap();
        tree.symlink("far", "/nonexistent/\u{e9}").unwrap();
        tree.symlink("long", long.clone()).unwrap();
    });
    let mount = fixture.mount();
    let root = mount.of(&snapshot);
    assert_eq!(fs::read_to_string(root.join("near")).unwrap(), "here");
    assert_eq!(fs::read_link(root.join("far")).unwrap().to_str(), Some("/nonexistent/\u{e9}"));
    assert_eq!(fs::read_link(root.join("long")).unwrap().to_str(), Some(long.as_str()));
}

#[test]
fn names_are_bytes() {
    let fixture = Fixture::new();
    let odd: &[&[u8]] = &[b"\xff\xfe", b"new\nline", b" ", b"...", &[b'n'; 255], "é".as_bytes()];
    let snapshot = fixture.commit(|tree| {
        for name in odd {
            tree.write(name, *name).unwrap();
        }
    });
    let mount = fixture.mount();
    let root = mount.of(&snapshot);
    for name in odd {
        assert_eq!(fs::read(root.join(OsStr::from_bytes(name))).unwrap(), *name);
    }
    let mut listed: Vec<Vec<u8>> =
        fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect();
    listed.sort();
    let mut expected = odd.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    let too_long = fs::metadata(root.join("n".repeat(256))).unwrap_err();
    assert_eq!(too_long.raw_os_error(), Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()));
}

#[test]
fn directories_of_every_size_are_listed_whole() {
    let fixture = Fixture::new();
    for count in [0, 1, 255, 256, 257, 1000, 5000] {
        let snapshot = fixture.commit(|tree| {
            tree.mkdir("d").unwrap();
            for at in 0..count {
                tree.write(format!("d/entry-{at:05}"), format!("{at}")).unwrap();
            }
        });
        let mount = fixture.mount();
        let directory = mount.of(&snapshot).join("d");
        let expected: Vec<String> = (0..count).map(|at| format!("entry-{at:05}")).collect();
        assert_eq!(names(&directory), expected, "first time, {count} entries");
        assert_eq!(names(&directory), expected, "second time, {count} entries");
        for at in (0..count).step_by(97) {
            assert_eq!(fs::read_to_string(directory.join(&expected[at])).unwrap(), at.to_string());
        }
        let missing = fs::metadata(directory.join("entry-99999")).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    }
}

#[test]
fn concurrent_listings_are_independent() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| {
        for at in 0..3000 {
            tree.write(format!("{at}"), "").unwrap();
        }
    });
    let mount = fixture.mount();
    let root = mount.of(&snapshot);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(names(&root).len(), 3000));
        }
    });
}

#[test]
fn deep_paths_are_reached() {
    let fixture = Fixture::new();
    let path = "d/".repeat(300) + "leaf";
    let snapshot = fixture.commit(|tree| tree.write(&path, "deep").unwrap());
    let mount = fixture.mount();
    assert_eq!(fs::read_to_string(mount.of(&snapshot).join(&path)).unwrap(), "deep");
}

#[test]
fn holes_stay_holes() {
    let fixture = Fixture::new();
    let mut content = bytes(100_000, 3);
    content.resize(8 << 20, 0);
    content.extend(bytes(5000, 4));
    let snapshot = fixture.commit(|tree| {
        tree.put_file("sparse", &mut &content[..], attributes(0o644, 0)).unwrap();
    });
    let mount = fixture.mount();
    let path = mount.of(&snapshot).join("sparse");
    assert!(fs::read(&path).unwrap() == content);
    let metadata = fs::metadata(&path).unwrap();
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());

    let mut file = File::open(&path).unwrap();
    let hole = rustix::fs::seek(&file, Sparse::Hole(0)).unwrap();
    assert!((100_000..110_000).contains(&hole), "hole at {hole}");
    let data = rustix::fs::seek(&file, Sparse::Data(hole)).unwrap();
    assert!((8 << 20) - 8192 < data && data <= 8 << 20, "data at {data}");
    assert_eq!(rustix::fs::seek(&file, Sparse::Hole(data)).unwrap(), content.len() as u64);
    let beyond = rustix::fs::seek(&file, Sparse::Data(content.len() as u64)).unwrap_err();
    assert_eq!(beyond, rustix::io::Errno::NXIO);
    file.seek(SeekFrom::Start((8 << 20) - 10)).unwrap();
    let mut over_the_edge = Vec::new();
    file.read_to_end(&mut over_the_edge).unwrap();
    assert!(over_the_edge == content[(8 << 20) - 10..]);
}

#[test]
fn names_of_one_file_share_an_inode() {
    let fixture = Fixture::new();
    let linked = || Attributes { link_label: Some(9), ..attributes(0o644, 5) };
    let snapshot = fixture.commit(|tree| {
        tree.put_file("a", &mut &b"same"[..], linked()).unwrap();
        tree.put_file("d/b", &mut &b"same"[..], linked()).unwrap();
        tree.put_file("c", &mut &b"same"[..], attributes(0o644, 5)).unwrap();
    });
    let mount = fixture.mount();
    let stat = |path: &str| fs::metadata(mount.of(&snapshot).join(path)).unwrap();
    let (a, b, c) = (stat("a"), stat("d/b"), stat("c"));
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
    assert_ne!(a.ino(), c.ino());
    assert_eq!(c.nlink(), 1);
    assert_eq!(fs::read(mount.of(&snapshot).join("d/b")).unwrap(), b"same");
}

#[test]
fn inode_numbers_are_the_same_after_a_remount() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| tree.write("a/b", "x").unwrap());
    let numbers = || {
        let mount = fixture.mount();
        ["", "a", "a/b"].map(|path| fs::metadata(mount.of(&snapshot).join(path)).unwrap().ino())
    };
    let first = numbers();
    assert_eq!(numbers(), first);
    assert_eq!(first.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
}

#[test]
fn user_attributes_are_served() {
    let fixture = Fixture::new();
    let xattrs = Xattrs::from([
        (b"user.note".to_vec(), b"\0binary\xff".to_vec()),
        (b"user.empty".to_vec(), Vec::new()),
    ]);
    let snapshot = fixture.commit(|tree| {
        let with = Attributes { xattrs: xattrs.clone(), ..attributes(0o644, 0) };
        tree.put_file("f", &mut &b"x"[..], with).unwrap();
        tree.write("plain", "x").unwrap();
    });
    let mount = fixture.mount();
    let path = mount.of(&snapshot).join("f");
    let mut buffer = vec![0; 1024];
    let listed = rustix::fs::listxattr(&path, &mut buffer[..]).unwrap();
    assert_eq!(&buffer[..listed], b"user.empty\0user.note\0");
    let found: BTreeMap<Vec<u8>, Vec<u8>> = ["user.note", "user.empty"]
        .into_iter()
        .map(|name| {
            let len = rustix::fs::getxattr(&path, name, &mut buffer[..]).unwrap();
            (name.into(), buffer[..len].to_vec())
        })
        .collect();
    assert_eq!(found, xattrs);
    let missing = rustix::fs::getxattr(&path, "user.other", &mut buffer[..]).unwrap_err();
    assert_eq!(missing, rustix::io::Errno::NODATA);
    let small = rustix::fs::getxattr(&path, "user.note", &mut buffer[..2]).unwrap_err();
    assert_eq!(small, rustix::io::Errno::RANGE);
    assert_eq!(rustix::fs::listxattr(mount.of(&snapshot).join("plain"), &mut buffer[..]).unwrap(), 0);
}

#[test]
fn attributes_are_escaped_for_an_overlay_above() {
    let fixture = Fixture::new();
    let stored = ["user.note", "user.overlay.opaque", "user.overlay.overlay.opaque"];
    let xattrs: Xattrs = stored.iter().map(|name| (name.as_bytes().to_vec(), b"y".to_vec())).collect();
    let snapshot = fixture.commit(|tree| {
        let with = Attributes { xattrs: xattrs.clone(), ..attributes(0o644, 0) };
        tree.put_file("f", &mut &b"x"[..], with).unwrap();
    });
    let mount =
        TestMount::new(&fixture, &MountOptions { escape_overlay_xattrs: true, ..MountOptions::default() });
    let path = mount.of(&snapshot).join("f");
    let mut buffer = vec![0; 1024];
    let listed = rustix::fs::listxattr(&path, &mut buffer[..]).unwrap();
    let served = ["user.note", "user.overlay.overlay.opaque", "user.overlay.overlay.overlay.opaque"];
    assert_eq!(String::from_utf8_lossy(&buffer[..listed]), served.map(|name| format!("{name}\0")).concat());
    for name in served {
        assert_eq!(rustix::fs::getxattr(&path, name, &mut buffer[..]), Ok(1), "{name}");
    }
    for note in ["opaque", "whiteout", "redirect", "metacopy", "overlay"] {
        let asked = rustix::fs::getxattr(&path, format!("user.overlay.{note}"), &mut buffer[..]);
        assert_eq!(asked, Err(rustix::io::Errno::NODATA), "{note}");
    }
}

#[test]
fn files_have_the_configured_owner() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| tree.write("d/f", "x").unwrap());
    let mount =
        TestMount::new(&fixture, &MountOptions { owner: Some((1234, 1235)), ..MountOptions::default() });
    for path in [fixture.mountpoint(), mount.of(&snapshot), mount.of(&snapshot).join("d/f")] {
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), (1234, 1235), "{}", path.display());
    }
}

#[test]
fn programs_run_from_the_mount() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| {
        tree.write("run.sh", "#!/bin/sh\necho \"ran $1\"\n").unwrap();
        tree.chmod("run.sh", 0o755).unwrap();
        tree.write("data.txt", "no program").unwrap();
    });
    let mount = fixture.mount();
    let root = mount.of(&snapshot);
    assert_eq!(output_of(Command::new(root.join("run.sh")).arg("it")), "ran it\n");
    assert!(Command::new(root.join("data.txt")).output().is_err());
    let may_run = |name| rustix::fs::access(root.join(name), rustix::fs::Access::EXEC_OK).is_ok();
    assert!(may_run("run.sh") && !may_run("data.txt"));
}

#[test]
fn ordinary_tools_copy_a_snapshot_out() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| {
        tree.write("a/b/c", bytes(200_000, 8)).unwrap();
        tree.write("a/d", "d").unwrap();
        tree.symlink("a/link", "d").unwrap();
        tree.chmod("a/d", 0o600).unwrap();
    });
    let mount = fixture.mount();
    let copy = fixture.directory.path().join("copy");
    output_of(Command::new("cp").arg("-a").arg(mount.of(&snapshot)).arg(&copy));
    output_of(Command::new("diff").arg("-r").arg(mount.of(&snapshot)).arg(&copy));
    let stat = |path: &std::path::Path| fs::metadata(path).unwrap();
    let (original, copied) = (stat(&mount.of(&snapshot).join("a/d")), stat(&copy.join("a/d")));
    assert_eq!((original.mode(), original.mtime_nsec()), (copied.mode(), copied.mtime_nsec()));
}
