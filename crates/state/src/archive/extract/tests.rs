//! Tests of extraction, mostly of hostile archives: files outside of the target directory must never change.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use proptest::prelude::*;
use tar::{EntryType, Header};

use super::*;
use crate::archive::LimitKind;
use crate::archive::pax::Records;

/// Target directory `in` for extractions, next to a directory `private` that must not change.
struct Fixture {
    home: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("private")).unwrap();
        fs::set_permissions(home.path().join("private"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(home.path().join("private/secret"), "secret").unwrap();
        fs::create_dir(home.path().join("in")).unwrap();
        Self { home }
    }

    /// Returns the path of an entry in the target directory.
    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("in").join(name)
    }

    fn extractor(&self, profile: ExtractProfile, limits: ArchiveLimits) -> Extractor {
        let options = ExtractOptions { profile, limits, cancel: Cancel::new() };
        Extractor::new(&self.home.path().join("in"), options).unwrap()
    }

    /// Extracts a copy that becomes the entry `root` of the target directory, as the command `workspace cp` does.
    fn copy(&self, members: &[Vec<u8>]) -> Result<ExtractReport> {
        let profile = ExtractProfile::Copy { name: b"root".to_vec(), paths: MemberPaths::BelowName };
        let mut extractor = self.extractor(profile, ArchiveLimits::default());
        extractor.extract(&mut &archive(members)[..])?;
        Ok(extractor.report().clone())
    }

    /// Extracts image layers in order, the lowest first.
    fn extract_layers(&self, layers: &[&[Vec<u8>]]) -> Result<ExtractReport> {
        let mut extractor = self.extractor(ExtractProfile::ImageLayer, ArchiveLimits::default());
        for layer in layers {
            extractor.extract(&mut &archive(layer)[..])?;
        }
        Ok(extractor.report().clone())
    }

    /// Asserts that nothing next to the target directory has changed.
    #[track_caller]
    fn assert_outside_unchanged(&self) {
        let private = self.home.path().join("private");
        assert_eq!(fs::metadata(&private).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_to_string(private.join("secret")).unwrap(), "secret");
        assert_eq!(fs::read_dir(&private).unwrap().count(), 1);
        assert_eq!(fs::read_dir(self.home.path()).unwrap().count(), 2);
    }
}

#[test]
fn an_archive_of_relative_paths_becomes_one_directory() {
    let fixture = Fixture::new();
    let profile = ExtractProfile::Copy { name: b"root".to_vec(), paths: MemberPaths::Relative };
    let mut extractor = fixture.extractor(profile.clone(), ArchiveLimits::default());
    let members = [
        member(EntryType::Directory, b"./", b"", 0o750, b""),
        member(EntryType::Regular, b"file", b"", 0o640, b"content"),
        member(EntryType::Link, b"below/link", b"file", 0o640, b""),
    ];
    extractor.extract(&mut &archive(&members)[..]).unwrap();
    assert_eq!(fs::read_to_string(fixture.path("root/below/link")).unwrap(), "content");
    assert_eq!(fs::metadata(fixture.path("root")).unwrap().mode() & 0o7777, 0o750);
    for hostile in [&b"../file"[..], b"/file", b"a/../../file"] {
        let mut extractor = fixture.extractor(profile.clone(), ArchiveLimits::default());
        let members = [member(EntryType::Regular, hostile, b"", 0o640, b"x")];
        let done = extractor.extract(&mut &archive(&members)[..]);
        assert!(matches!(done, Err(ArchiveError::Refused { .. })), "{done:?}");
    }
    fixture.assert_outside_unchanged();
}

/// Encodes a member without any check of its fields.
fn member(kind: EntryType, name: &[u8], target: &[u8], mode: u32, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_000_000_000);
    header.set_size(content.len() as u64);
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target);
    header.set_cksum();
    let mut out = header.as_bytes().to_vec();
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

fn file(name: &str, content: &str) -> Vec<u8> {
    member(EntryType::Regular, name.as_bytes(), b"", 0o644, content.as_bytes())
}

fn directory(name: &str, mode: u32) -> Vec<u8> {
    member(EntryType::Directory, name.as_bytes(), b"", mode, b"")
}

fn symlink_member(name: &str, target: &str) -> Vec<u8> {
    member(EntryType::Symlink, name.as_bytes(), target.as_bytes(), 0o777, b"")
}

fn hard_link(name: &str, target: &str) -> Vec<u8> {
    member(EntryType::Link, name.as_bytes(), target.as_bytes(), 0o644, b"")
}

/// Encodes a member with pax records before it.
fn with_records(records: &[(&str, &[u8])], member: &[u8]) -> Vec<u8> {
    let mut pax = Records::default();
    for (key, value) in records {
        pax.set(key.as_bytes(), value);
    }
    [&self::member(EntryType::XHeader, b"PaxHeader", b"", 0o644, &pax.encode())[..], member].concat()
}

/// Returns an archive of encoded members.
fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 1024]].concat()
}

fn permissions(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_copy_keeps_content_modes_times_and_links() {
    let fixture = Fixture::new();
    let report = fixture
        .copy(&[
            directory("d/", 0o555),
            file("d/file", "content"),
            member(EntryType::Regular, b"d/set-id", b"", 0o6755, b""),
            symlink_member("d/link", "/nowhere"),
            hard_link("d/again", "d/file"),
            member(EntryType::Fifo, b"d/pipe", b"", 0o644, b""),
            member(EntryType::Char, b"d/null", b"", 0o644, b""),
        ])
        .unwrap();
    assert_eq!(report.skipped, [&b"d/pipe"[..], b"d/null"]);
    assert_eq!((report.skipped_count, report.bytes), (2, 7));
    let root = fixture.path("root");
    assert_eq!((permissions(&root), permissions(&root.join("set-id"))), (0o555, 0o755));
    let found = fs::metadata(root.join("file")).unwrap();
    assert_eq!((found.mtime(), found.nlink(), found.mode() & 0o7777), (1_000_000_000, 2, 0o644));
    assert_eq!(fs::metadata(&root).unwrap().mtime(), 1_000_000_000);
    assert_eq!(fs::read_to_string(root.join("again")).unwrap(), "content");
    assert_eq!(fs::read_link(root.join("link")).unwrap(), Path::new("/nowhere"));
    assert!(!root.join("pipe").exists() && !root.join("null").exists());
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_directory_member_never_changes_the_mode_of_a_symlink_target() {
    let fixture = Fixture::new();
    let private = fixture.home.path().join("private");
    for target in [private.to_str().unwrap(), "../../private"] {
        let refused =
            fixture.copy(&[directory("d", 0o755), symlink_member("d/x", target), directory("d/x", 0o777)]);
        assert!(matches!(refused, Err(ArchiveError::Refused { .. })), "{refused:?}");
        fixture.assert_outside_unchanged();
        fs::remove_dir_all(fixture.path("root")).unwrap();
        // The member of the copy's root is a symlink.
        let refused = fixture.copy(&[symlink_member("d", target), directory("d", 0o777)]);
        assert!(matches!(refused, Err(ArchiveError::Refused { .. })), "{refused:?}");
        fixture.assert_outside_unchanged();
        fs::remove_file(fixture.path("root")).unwrap();
    }
    // The mode of a directory is set after the last member. A symlink must not replace the directory before that.
    let refused = fixture.copy(&[
        directory("d", 0o777),
        directory("d/x", 0o777),
        symlink_member("d/x", "../../private"),
    ]);
    assert!(refused.unwrap_err().to_string().ends_with("the place of a directory"));
    fixture.assert_outside_unchanged();
}

#[test]
fn an_existing_symlink_is_not_followed() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("root")).unwrap();
    symlink("../../private", fixture.path("root/x")).unwrap();
    for member in [directory("d/x", 0o777), file("d/x/new", "x"), file("d/x/secret", "x")] {
        let refused = fixture.copy(&[directory("d", 0o755), member]);
        assert!(matches!(refused, Err(ArchiveError::Refused { .. })), "{refused:?}");
        fixture.assert_outside_unchanged();
    }
    // A file replaces the symlink itself.
    fixture.copy(&[directory("d", 0o755), file("d/x", "new")]).unwrap();
    assert!(fs::symlink_metadata(fixture.path("root/x")).unwrap().is_file());
    fixture.assert_outside_unchanged();
}

#[test]
fn paths_that_lead_outside_are_refused() {
    let through = [symlink_member("d", ".."), file("d/out", "x")];
    let nested = [directory("d", 0o755), symlink_member("d/up", "../.."), file("d/up/out", "x")];
    let implied = [directory("d", 0o755), symlink_member("d/up", "../.."), file("d/up/out/x", "x")];
    let linked =
        [directory("d", 0o755), symlink_member("d/up", "../../private"), hard_link("d/x", "d/up/secret")];
    for members in [
        &[file("d/../../out", "x")][..],
        &[file("/out", "x")],
        &[hard_link("d/x", "../private/secret")],
        &[hard_link("d/x", "/etc/passwd")],
        &through,
        &nested,
        &implied,
        &linked,
    ] {
        let fixture = Fixture::new();
        let refused = fixture.copy(members);
        assert!(matches!(refused, Err(ArchiveError::Refused { .. })), "{refused:?}");
        fixture.assert_outside_unchanged();
        assert!(!fixture.path("out").exists() && !fixture.path("root/x").exists());
    }
}

#[test]
fn a_copy_never_replaces_a_directory_and_never_uses_a_file_as_a_directory() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("root/kept")).unwrap();
    fs::write(fixture.path("root/file"), "old").unwrap();
    for member in [file("d/kept", "x"), symlink_member("d/kept", "x"), hard_link("d/kept", "d/file")] {
        assert!(fixture.copy(&[member]).unwrap_err().to_string().contains("the place of a directory"));
    }
    for member in [directory("d/file", 0o755), file("d/file/x", "x")] {
        let refused = fixture.copy(&[member]).unwrap_err();
        assert!(refused.to_string().contains("a file is in the place of the directory"), "{refused}");
    }
    assert!(fixture.path("root/kept").is_dir());
    assert_eq!(fs::read_to_string(fixture.path("root/file")).unwrap(), "old");
}

#[test]
fn paths_that_no_file_can_have_are_refused() {
    let long = "n".repeat(256);
    let deep = "d/".repeat(1025) + "x";
    for path in [&b"d/a\0b"[..], long.as_bytes(), deep.as_bytes()] {
        for profile in [
            ExtractProfile::ImageLayer,
            ExtractProfile::Copy { name: b"root".to_vec(), paths: MemberPaths::BelowName },
        ] {
            let fixture = Fixture::new();
            let hostile = archive(&[with_records(&[("path", path)], &file("short", "x"))]);
            let mut extractor = fixture.extractor(profile, ArchiveLimits::default());
            let refused = extractor.extract(&mut &hostile[..]);
            assert!(matches!(refused, Err(ArchiveError::Refused { .. })), "{refused:?}");
        }
    }
    let fixture = Fixture::new();
    let target = [b't'; 5000];
    let refused = fixture.copy(&[with_records(&[("linkpath", &target)], &symlink_member("d", "x"))]);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .ends_with("its symlink target is empty, too long or contains a NUL byte")
    );
}

#[test]
fn the_deepest_path_can_be_extracted_and_removed() {
    let fixture = Fixture::new();
    let deep = "deep/".repeat(1023) + "x";
    let deepest = with_records(&[("path", deep.as_bytes())], &file("short", "x"));
    fixture.extract_layers(&[&[deepest], &[file(".wh.deep", "")]]).unwrap();
    assert_eq!(fs::read_dir(fixture.home.path().join("in")).unwrap().count(), 0);
}

#[test]
fn limits_bound_bytes_entries_and_metadata() {
    let unlimited = ArchiveLimits::default();
    let sparse =
        [("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"9999999")];
    let sparse = with_records(&sparse, &file("s", &("0\n".to_owned() + &"\0".repeat(510))));
    let deep = with_records(&[("path", "d/".repeat(100).as_bytes())], &directory("d", 0o755));
    for (limits, members, kind) in [
        (ArchiveLimits { bytes: 9, ..unlimited }, vec![file("d/x", "0123456789")], LimitKind::Bytes),
        (ArchiveLimits { bytes: 1_000_000, ..unlimited }, vec![sparse], LimitKind::Bytes),
        (
            ArchiveLimits { entries: 2, ..unlimited },
            vec![file("d/x", ""), file("d/y", "")],
            LimitKind::Entries,
        ),
        (ArchiveLimits { entries: 50, ..unlimited }, vec![deep], LimitKind::Entries),
        (ArchiveLimits { metadata: 4, ..unlimited }, vec![symlink_member("d", "/etc")], LimitKind::Metadata),
    ] {
        for profile in [
            ExtractProfile::ImageLayer,
            ExtractProfile::Copy { name: b"root".to_vec(), paths: MemberPaths::BelowName },
        ] {
            let fixture = Fixture::new();
            let refused = fixture.extractor(profile, limits).extract(&mut &archive(&members)[..]);
            let found = match refused {
                Err(ArchiveError::TooLarge { kind, .. }) => kind,
                other => panic!("{other:?}"),
            };
            assert_eq!(found, kind);
        }
    }
}

#[test]
fn holes_of_sparse_members_take_no_space() {
    let fixture = Fixture::new();
    let map = "1\n1048576\n512\n".to_owned();
    let content = [map.as_bytes(), &vec![0; 512 - map.len()], &[7; 512]].concat();
    let size = (1_u64 << 40).to_string();
    let records = [
        ("GNU.sparse.major", &b"1"[..]),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.realsize", size.as_bytes()),
    ];
    let report = fixture
        .copy(&[with_records(&records, &member(EntryType::Regular, b"s", b"", 0o644, &content))])
        .unwrap();
    let found = fs::metadata(fixture.path("root")).unwrap();
    assert_eq!((found.len(), report.bytes), (1 << 40, 1 << 40));
    assert!(found.blocks() * 512 < 1 << 20, "{}", found.blocks());
}

#[test]
fn a_cancelled_extraction_stops() {
    let fixture = Fixture::new();
    let cancel = Cancel::new();
    let options = ExtractOptions {
        profile: ExtractProfile::ImageLayer,
        limits: ArchiveLimits::default(),
        cancel: cancel.clone(),
    };
    let mut extractor = Extractor::new(&fixture.home.path().join("in"), options).unwrap();
    extractor.extract(&mut &archive(&[file("a", "a")])[..]).unwrap();
    cancel.cancel();
    let stopped = extractor.extract(&mut &archive(&[file("b", "b")])[..]);
    assert!(matches!(stopped, Err(ArchiveError::Cancelled(_))), "{stopped:?}");
    assert!(fixture.path("a").exists() && !fixture.path("b").exists());
}

#[test]
fn symlinks_in_a_layer_resolve_as_if_the_target_directory_were_the_root() {
    let fixture = Fixture::new();
    let private = fixture.home.path().join("private");
    fixture
        .extract_layers(&[&[
            directory("usr/lib", 0o755),
            symlink_member("lib", "usr/lib"),
            directory("lib", 0o700),
            file("lib/a", "a"),
            symlink_member("up", "../../../../.."),
            file("up/b", "b"),
            // A symlink that does not resolve inside the root is replaced by a directory.
            symlink_member("outside", private.to_str().unwrap()),
            file("outside/c", "c"),
            symlink_member("loop", "loop"),
            file("loop/d", "d"),
            hard_link("again", "/lib/a"),
        ]])
        .unwrap();
    assert!(fs::symlink_metadata(fixture.path("lib")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(fixture.path("usr/lib/a")).unwrap(), "a");
    assert_eq!(fs::read_to_string(fixture.path("again")).unwrap(), "a");
    assert_eq!(fs::read_to_string(fixture.path("b")).unwrap(), "b");
    for name in ["outside", "loop"] {
        assert!(fs::symlink_metadata(fixture.path(name)).unwrap().is_dir());
    }
    fixture.assert_outside_unchanged();
}

#[test]
fn upper_layers_replace_and_remove_entries_of_lower_layers() {
    let fixture = Fixture::new();
    let lower = [
        file("old", "1"),
        file("changed", "1"),
        file("tree/deep/a", "1"),
        file("opaque/kept/lower", "1"),
        file("opaque/lower", "1"),
        file("swap/file", "1"),
        symlink_member("link", "changed"),
    ];
    let upper = [
        file(".wh.old", ""),
        file(".wh.tree", ""),
        file(".wh.missing", ""),
        file("changed", "22"),
        file("opaque/kept/upper", "2"),
        file("opaque/upper", "2"),
        file("opaque/.wh..wh..opq", ""),
        file("swap", "a file now"),
        directory("link", 0o755),
        member(EntryType::Directory, b"shut", b"", 0o000, b""),
        file("shut/file", ""),
    ];
    fixture.extract_layers(&[&lower, &upper]).unwrap();
    assert!(!fixture.path("old").exists() && !fixture.path("tree").exists());
    assert_eq!(fs::read_to_string(fixture.path("changed")).unwrap(), "22");
    let opaque: Vec<_> = ["lower", "upper", "kept/lower", "kept/upper"]
        .map(|name| fixture.path("opaque").join(name).exists())
        .into();
    assert_eq!(opaque, [false, true, false, true]);
    assert!(fixture.path("swap").is_file());
    assert!(fs::symlink_metadata(fixture.path("link")).unwrap().is_dir());
    assert_eq!(permissions(&fixture.path("shut")), 0o700);
    assert!(!fixture.path(".wh.old").exists());
}

#[test]
fn a_directory_of_an_upper_layer_replaces_a_symlink_that_leads_to_no_directory() {
    let fixture = Fixture::new();
    let lower = [
        directory("usr/lib", 0o755),
        symlink_member("lib", "/usr/lib"),
        symlink_member("data", "/nowhere"),
        symlink_member("filled", "../file"),
        file("file", ""),
        symlink_member("loop", "loop"),
    ];
    let upper = [
        directory("lib", 0o700),
        directory("data", 0o700),
        directory("filled", 0o700),
        file("filled/new", "new"),
        directory("loop", 0o700),
    ];
    fixture.extract_layers(&[&lower, &upper]).unwrap();
    for name in ["data", "filled", "loop"] {
        let path = fixture.path(name);
        assert!(fs::symlink_metadata(&path).unwrap().is_dir(), "{name}");
        assert_eq!(permissions(&path), 0o700, "{name}");
    }
    assert!(fixture.path("lib").is_symlink(), "a symlink to a directory is kept");
    assert_eq!(permissions(&fixture.path("usr/lib")), 0o755);
    assert_eq!(fs::read_to_string(fixture.path("filled/new")).unwrap(), "new");
    fixture.assert_outside_unchanged();
}

#[test]
fn a_whiteout_never_removes_files_outside() {
    for name in [".wh...", ".wh..", "d/.wh...", ".wh."] {
        let fixture = Fixture::new();
        let refused = fixture.extract_layers(&[&[file("d/x", "x"), file(name, "")]]);
        assert!(matches!(refused, Err(ArchiveError::Refused { .. })), "{name}: {refused:?}");
        assert!(fixture.path("d/x").exists());
        fixture.assert_outside_unchanged();
    }
}

#[test]
fn archives_that_end_early_are_refused() {
    let fixture = Fixture::new();
    let whole = archive(&[file("a/b", "content")]);
    for end in [0, 100, 512, 600, 1024] {
        assert!(
            fixture
                .extractor(ExtractProfile::ImageLayer, ArchiveLimits::default())
                .extract(&mut &whole[..end])
                .is_err()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Extracts links, files and directories of a few names in any order, with some changed bytes. Nothing outside of
    /// the target directory changes.
    #[test]
    fn no_archive_changes_anything_outside(
        members in prop::collection::vec((0..5_usize, 0..6_usize, 0..8_usize), 1..12),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        const NAMES: [&str; 6] = ["a", "a/b", "a/b/c", "b", "a/.wh.b", "a/.wh..wh..opq"];
        const TARGETS: [&str; 8] =
            ["..", "../..", "../../private", "../private", "a", "b", "/private", "private/secret"];
        let fixture = Fixture::new();
        let absolute = fixture.home.path().join("private");
        let encoded = members.iter().map(|(kind, name, target)| {
            let (name, target) = (NAMES[*name], TARGETS[*target]);
            match kind {
                0 => file(name, "x"),
                1 => directory(name, 0o777),
                2 => symlink_member(name, target),
                3 => symlink_member(name, absolute.to_str().unwrap()),
                _ => hard_link(name, target),
            }
        });
        let mut bytes = archive(&encoded.collect::<Vec<_>>());
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        crate::testing::fix_checksums(&mut bytes);
        let limits = ArchiveLimits { bytes: 1 << 20, entries: 1_000, metadata: 1 << 20 };
        let copy = ExtractProfile::Copy { name: b"root".to_vec(), paths: MemberPaths::BelowName };
        for profile in [ExtractProfile::ImageLayer, copy] {
            drop(fixture.extractor(profile, limits).extract(&mut &bytes[..]));
            fixture.assert_outside_unchanged();
        }
    }
}
