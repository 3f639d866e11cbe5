//! Tests of exports and imports of archives: round trips, limits, and damaged or hostile archives.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tar::{EntryType, Header};

use super::error::Result;
use super::pax::Records;
use super::*;
use crate::commit_options::NewSnapshot;
use crate::node::{NodeKind, Xattrs};
use crate::progress::NoProgress;
use crate::snapshot::Timestamp;
use crate::store::Store;
use crate::tree::Tree;
use crate::virtual_tree::{Attributes, VirtualTree};

/// Store in a temporary directory.
struct Fixture {
    _directory: tempfile::TempDir,
    store: Store,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        Self { _directory: directory, store }
    }

    /// Imports an archive with default options.
    fn import(&self, archive: &[u8]) -> Result<ImportReport> {
        import_tar(
            &self.store,
            &mut &*archive,
            NewSnapshot::default(),
            &ImportOptions::default(),
            &NoProgress,
        )
    }

    /// Exports an imported snapshot.
    fn export(&self, report: &ImportReport) -> Vec<u8> {
        let mut out = Vec::new();
        export_tar(&Tree::of_snapshot(&self.store, &report.snapshot).unwrap(), &mut out, &NoProgress)
            .unwrap();
        out
    }

    /// Imports members, which must fail without storing anything. Returns the error message.
    fn refusal(&self, members: &[Vec<u8>]) -> String {
        let refused = self.import(&archive(members)).unwrap_err();
        assert!(self.store.snapshots().unwrap().is_empty());
        refused.to_string()
    }

    /// Opens the imported snapshot as a virtual tree.
    fn restored(&self, report: &ImportReport) -> VirtualTree {
        self.store.restore(&report.snapshot.id).unwrap()
    }
}

/// Encodes a member without any check of its fields.
fn member(kind: EntryType, name: &[u8], target: &[u8], content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(1000);
    header.set_gid(1000);
    header.set_mtime(1);
    header.set_size(content.len() as u64);
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target);
    header.set_cksum();
    let mut out = header.as_bytes().to_vec();
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

/// Encodes a regular file.
fn file(name: &[u8], content: &[u8]) -> Vec<u8> {
    member(EntryType::Regular, name, b"", content)
}

/// Returns an archive of encoded members.
fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 1024]].concat()
}

fn attributes(nanos: i64) -> Attributes {
    Attributes { mode: 0o640, modified: Some(Timestamp(nanos)), ..Attributes::default() }
}

/// Returns a tree with every kind of entry and attribute: long and non-UTF-8 names, extended attributes, hard links,
/// holes, symlinks and set-id bits.
fn tree_with_all_features(fixture: &Fixture) -> VirtualTree {
    let mut tree = fixture.store.empty_tree().unwrap();
    let xattrs = Xattrs::from([
        (b"user.binary".to_vec(), b"\0\n=\xff".to_vec()),
        (b"user.a=b%".to_vec(), b"".to_vec()),
        (b"user.text".to_vec(), b"x".repeat(5000)),
    ]);
    let long = [b"long-".repeat(40), b"/".to_vec(), b"name-".repeat(40)].concat();
    let odd = b"line\nline \xff=\"";
    tree.put_file(&long, &mut &b"deep"[..], attributes(1_500_000_000)).unwrap();
    tree.put_file(odd, &mut &b"odd"[..], Attributes { xattrs: xattrs.clone(), ..attributes(-1) }).unwrap();
    tree.put_file("set-id", &mut &b""[..], Attributes { mode: 0o6755, ..attributes(7) }).unwrap();
    for name in ["one", "two", "dir/three"] {
        let linked = Attributes { link_label: Some(1), ..attributes(9) };
        tree.put_file(name, &mut &b"linked"[..], linked).unwrap();
    }
    let mut sparse = vec![0; 300_000];
    sparse[200_000..200_010].fill(7);
    tree.put_file("sparse", &mut &sparse[..], attributes(3)).unwrap();
    let hole_at_end = [vec![1; 100_000], vec![0; 100_001]].concat();
    tree.put_file("hole-at-end", &mut &hole_at_end[..], attributes(4)).unwrap();
    tree.put_file("all-hole", &mut io::Read::take(io::repeat(0), 1 << 20), attributes(5)).unwrap();
    tree.put_symlink("link", b"../".repeat(100), Some(Timestamp(i64::MAX))).unwrap();
    tree.put_directory("empty", Attributes { mode: 0o1777, xattrs, ..attributes(11) }).unwrap();
    tree.put_directory("", Attributes { mode: 0o700, ..attributes(13) }).unwrap();
    tree
}

#[test]
fn a_tree_with_all_features_survives_export_and_import() {
    let fixture = Fixture::new();
    let snapshot = tree_with_all_features(&fixture).commit(NewSnapshot::default()).unwrap();
    let tree = Tree::of_snapshot(&fixture.store, &snapshot).unwrap();
    let mut first = Vec::new();
    export_tar(&tree, &mut first, &NoProgress).unwrap();
    let options = ImportOptions { keep_set_id: true, ..ImportOptions::default() };
    let report =
        import_tar(&fixture.store, &mut &first[..], NewSnapshot::default(), &options, &NoProgress).unwrap();
    assert_eq!(report.snapshot.tree, snapshot.tree);
    assert!(report.skipped.is_empty() && report.replaced.is_empty());
    // Modification times and link labels (equal numbers for hard links to one file) are not part of the tree id, but
    // of the archive. So equal archives mean that they are equal too.
    assert!(fixture.export(&report) == first);
    // Holes take no space.
    assert!(first.len() < 500_000, "{}", first.len());
}

/// Exports the entry at `path` in parts of `min` bytes or more, each through another handle of the tree.
fn export_in_parts(fixture: &Fixture, id: &crate::Snapshot, path: &str, min: u64) -> Vec<u8> {
    let open = || Tree::of_snapshot(&fixture.store, id).unwrap();
    let entry = open().entry(path).unwrap().unwrap();
    let mut export = TarExport::new(path.into(), entry);
    let (mut whole, mut longest) = (Vec::new(), 0);
    while !export.is_finished() {
        let before = whole.len();
        export.write_part(&open(), &mut whole, min, &NoProgress).unwrap();
        longest = longest.max(whole.len() - before);
        assert!(whole.len() - before >= min as usize || export.is_finished());
    }
    // The longest step is a chunk, or a header with its records.
    assert!(longest < min as usize + (300 << 10), "{longest}");
    whole
}

#[test]
fn parts_of_any_size_make_up_the_archive() {
    let fixture = Fixture::new();
    let mut tree = tree_with_all_features(&fixture);
    for n in 0..300 {
        tree.put_file(format!("many/{n}"), &mut &b"few"[..], attributes(n)).unwrap();
    }
    let snapshot = tree.commit(NewSnapshot::default()).unwrap();
    let mut whole = Vec::new();
    export_tar(&Tree::of_snapshot(&fixture.store, &snapshot).unwrap(), &mut whole, &NoProgress).unwrap();
    for min in [1, 512, 513, 100_000, u64::MAX >> 1] {
        assert!(export_in_parts(&fixture, &snapshot, "", min) == whole, "{min}");
    }
}

#[test]
fn a_subtree_is_exported_with_paths_relative_to_it() {
    let fixture = Fixture::new();
    let mut tree = fixture.store.empty_tree().unwrap();
    for path in ["a/b/c", "a/b/d/e", "a/b/f", "z"] {
        let linked = Attributes { link_label: Some(1), ..attributes(9) };
        tree.put_file(path, &mut &b"linked"[..], linked).unwrap();
    }
    tree.put_symlink("a/b/d/link", b"../c", None).unwrap();
    let snapshot = tree.commit(NewSnapshot::default()).unwrap();
    let report = fixture.import(&export_in_parts(&fixture, &snapshot, "/a//b/", 1)).unwrap();
    let imported = Tree::of_snapshot(&fixture.store, &report.snapshot).unwrap();
    let node_at = |tree: &Tree, path: &str| tree.entry(path).unwrap().map(|entry| entry.node);
    let whole = Tree::of_snapshot(&fixture.store, &snapshot).unwrap();
    assert_eq!(imported.id().root(), {
        let Some(crate::Node::Directory(directory)) = node_at(&whole, "a/b") else {
            panic!("not a directory")
        };
        directory.id
    });
    let restored = fixture.restored(&report);
    assert_eq!(["c", "d/e", "f"].map(|path| restored.stat(path).unwrap().link_label), [Some(1); 3]);

    // A file or a symlink is one member, with its name.
    for (path, name) in [("a/b/c", "c"), ("a/b/d/link", "link")] {
        let report = fixture.import(&export_in_parts(&fixture, &snapshot, path, 1)).unwrap();
        let imported = Tree::of_snapshot(&fixture.store, &report.snapshot).unwrap();
        assert_eq!(imported.root().node.size(), 1, "{path}");
        assert_eq!(node_at(&imported, name), node_at(&whole, path), "{path}");
    }
}

#[test]
fn an_export_keeps_only_names_of_hard_linked_files_in_memory() {
    let fixture = Fixture::new();
    let mut tree = fixture.store.empty_tree().unwrap();
    for n in 0..2_000 {
        tree.put_file(format!("plain/{n}"), &mut &b"x"[..], attributes(1)).unwrap();
    }
    for n in 0..10 {
        let linked = Attributes { link_label: Some(n), ..attributes(9) };
        tree.put_file(format!("linked/{n}"), &mut &b"x"[..], linked).unwrap();
    }
    let snapshot = tree.commit(NewSnapshot::default()).unwrap();
    let tree = Tree::of_snapshot(&fixture.store, &snapshot).unwrap();
    let memory_of = |path: &str| {
        let mut export = TarExport::new(path.into(), tree.entry(path).unwrap().unwrap());
        export.write_part(&tree, &mut io::sink(), u64::MAX, &NoProgress).unwrap();
        assert!(export.is_finished());
        export.memory()
    };
    assert_eq!(memory_of("plain"), 0);
    assert!((100..10_000).contains(&memory_of("linked")), "{}", memory_of("linked"));
}

#[test]
fn set_id_bits_are_dropped_unless_asked_for() {
    let fixture = Fixture::new();
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..1].copy_from_slice(b"x");
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o6755);
    header.set_size(0);
    header.set_mtime(0);
    header.set_cksum();
    let report = fixture.import(&archive(&[header.as_bytes().to_vec()])).unwrap();
    assert_eq!(fixture.restored(&report).stat("x").unwrap().mode, 0o755);
}

#[test]
fn paths_that_lead_outside_are_refused() {
    let fixture = Fixture::new();
    for name in [&b"../x"[..], b"a/../../x", b"..", b"a/.."] {
        let refusal = fixture.refusal(&[file(b"fine", b""), file(name, b"evil")]);
        assert!(refusal.ends_with("leads out of the archive"), "{refusal}");
    }
    assert!(fixture.refusal(&[file(b"/etc/passwd", b"")]).ends_with("its name is absolute"));
    let mut pax = Records::default();
    pax.set(b"path", b"../../x");
    let extended =
        [member(EntryType::XHeader, b"PaxHeader", b"", &pax.encode()), file(b"fine", b"")].concat();
    assert!(fixture.refusal(&[extended]).ends_with("leads out of the archive"));
    let mut pax = Records::default();
    pax.set(b"path", b"a\0b");
    let extended =
        [member(EntryType::XHeader, b"PaxHeader", b"", &pax.encode()), file(b"fine", b"")].concat();
    assert!(fixture.refusal(&[extended]).ends_with("no file can have its name"));
    let long =
        [member(EntryType::GNULongName, b"././@LongLink", b"", b"/abs\0"), file(b"fine", b"")].concat();
    assert!(fixture.refusal(&[long]).ends_with("its name is absolute"));
}

#[test]
fn hard_links_that_lead_outside_are_refused_and_symlinks_are_not_followed() {
    let fixture = Fixture::new();
    let link = |target: &[u8]| member(EntryType::Link, b"x", target, b"");
    assert!(fixture.refusal(&[link(b"/etc/passwd")]).ends_with("its name is absolute"));
    assert!(fixture.refusal(&[link(b"../x")]).ends_with("leads out of the archive"));
    assert!(fixture.refusal(&[link(b"missing")]).ends_with("not in the archive before it"));
    let directory = member(EntryType::Directory, b"d/", b"", b"");
    assert!(fixture.refusal(&[directory, link(b"d")]).ends_with("a hard link to a directory"));
    let itself = |name: &[u8]| member(EntryType::Link, name, name, b"");
    assert!(fixture.refusal(&[itself(b"x/y")]).ends_with("not in the archive before it"));
    assert!(fixture.refusal(&[file(b"x/y", b""), itself(b"x")]).ends_with("the place of a directory"));
    // Symlinks are never followed, so their targets are only data.
    let symlink = member(EntryType::Symlink, b"s", b"/etc", b"");
    let report = fixture.import(&archive(std::slice::from_ref(&symlink))).unwrap();
    assert_eq!(fixture.restored(&report).read_link("s").unwrap(), b"/etc");
    let through = fixture.import(&archive(&[symlink, file(b"s/passwd", b"evil")])).unwrap_err();
    assert_eq!(through.to_string(), "`s` is not a directory");
}

#[test]
fn a_hard_link_to_its_own_path_keeps_the_existing_file() {
    let fixture = Fixture::new();
    let itself = member(EntryType::Link, b"x/y", b"./x/y", b"");
    let report = fixture.import(&archive(&[file(b"x/y", b"content"), itself])).unwrap();
    assert_eq!((report.files, report.directories, report.bytes), (1, 1, 7));
    assert!(report.replaced.is_empty());
    assert_eq!(fixture.restored(&report).read("x/y").unwrap(), b"content");
}

#[test]
fn unsupported_members_are_reported() {
    let fixture = Fixture::new();
    let report = fixture
        .import(&archive(&[
            member(EntryType::Char, b"null", b"", b""),
            member(EntryType::Fifo, b"pipe", b"", b""),
            member(EntryType::new(b'V'), b"label", b"", b""),
            file(b"fine", b"content"),
        ]))
        .unwrap();
    let skipped: Vec<_> = report.skipped.iter().map(|it| (&it.path[..], it.reason)).collect();
    assert_eq!(
        skipped,
        [(&b"null"[..], "a device"), (b"pipe", "a fifo"), (b"label", "an entry of an unknown kind")]
    );
    assert_eq!(fixture.restored(&report).read("fine").unwrap(), b"content");
}

#[test]
fn the_last_duplicate_wins_and_is_reported() {
    let fixture = Fixture::new();
    let report = fixture
        .import(&archive(&[
            file(b"a", b"old"),
            file(b"./a", b"new"),
            member(EntryType::Symlink, b"a", b"b", b""),
        ]))
        .unwrap();
    assert_eq!(report.replaced, [b"a".to_vec()]);
    assert_eq!(fixture.restored(&report).stat("a").unwrap().kind, NodeKind::Symlink);
}

#[test]
fn a_file_never_replaces_a_directory() {
    let fixture = Fixture::new();
    assert!(fixture.refusal(&[file(b"a/b", b""), file(b"a", b"")]).ends_with("the place of a directory"));
    assert!(fixture.refusal(&[file(b"a", b""), file(b"a/b", b"")]).ends_with("is not a directory"));
    assert!(fixture.refusal(&[file(b".", b"")]).ends_with("only a directory can be the root"));
}

#[test]
fn content_of_links_and_directories_is_refused() {
    let fixture = Fixture::new();
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Directory] {
        let hidden = member(kind, b"x", b"y", &file(b"hidden", b""));
        assert!(fixture.refusal(&[hidden]).ends_with("it has a size but no content"));
    }
}

#[test]
fn a_truncated_archive_is_refused_at_every_length() {
    let fixture = Fixture::new();
    let snapshot = tree_with_all_features(&fixture).commit(NewSnapshot::default()).unwrap();
    let mut whole = Vec::new();
    export_tar(&Tree::of_snapshot(&fixture.store, &snapshot).unwrap(), &mut whole, &NoProgress).unwrap();
    let content = whole.len() - 1024;
    let step = content / 97;
    for end in (0..content).step_by(step).chain([0, 1, 511, 512, 513, content - 512, content]) {
        let refused = fixture.import(&whole[..end]).unwrap_err();
        let is_expected = match refused {
            // Fewer bytes than a header cannot be recognised as an archive.
            ArchiveError::NotAnArchive { .. } => end < 512,
            ArchiveError::Truncated { .. } | ArchiveError::Read { .. } => end >= 512,
            _ => false,
        };
        assert!(is_expected, "{end}: {refused}");
    }
    assert_eq!(fixture.store.snapshots().unwrap().len(), 1);
}

#[test]
fn other_files_are_refused_as_archives() {
    let fixture = Fixture::new();
    for content in [&b"\x1f\x8b\x08 compressed "[..], b"hello "] {
        let refused = fixture.import(&content.repeat(100)).unwrap_err();
        assert!(matches!(refused, ArchiveError::NotAnArchive { .. }), "{refused}");
    }
    let with_trailing_member = [archive(&[file(b"a", b"")]), file(b"b", b"")].concat();
    assert!(
        fixture
            .import(&with_trailing_member)
            .unwrap_err()
            .to_string()
            .contains("data after the end of the archive")
    );
}

#[test]
fn a_size_beyond_the_end_of_the_archive_is_refused() {
    let fixture = Fixture::new();
    let mut pax = Records::default();
    pax.set(b"size", b"18446744073709551615");
    let members = [member(EntryType::XHeader, b"PaxHeader", b"", &pax.encode()), file(b"x", b"abc")];
    assert!(fixture.refusal(&[members.concat()]).contains("an impossible size"));
    let mut pax = Records::default();
    pax.set(b"size", b"4096");
    let members = [member(EntryType::XHeader, b"PaxHeader", b"", &pax.encode()), file(b"x", b"abc")];
    assert!(fixture.refusal(&[members.concat()]).contains("ends early"));
}

#[test]
fn missing_parent_directories_are_created() {
    let fixture = Fixture::new();
    let report = fixture.import(&archive(&[file(b"a/b/c", b"x")])).unwrap();
    assert_eq!(fixture.restored(&report).read("a/b/c").unwrap(), b"x");
}

/// Returns a member with pax records before it.
fn with_records(records: &[(&str, &[u8])], member: &[u8]) -> Vec<u8> {
    let mut pax = Records::default();
    for (key, value) in records {
        pax.set(key.as_bytes(), value);
    }
    [&self::member(EntryType::XHeader, b"PaxHeader", b"", &pax.encode())[..], member].concat()
}

/// Returns a sparse member of format 1.0 without data.
fn hole(name: &[u8], size: u64) -> Vec<u8> {
    let size = size.to_string();
    let records = [
        ("GNU.sparse.major", &b"1"[..]),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.realsize", size.as_bytes()),
    ];
    with_records(&records, &file(name, &[&b"0\n"[..], &[0; 510]].concat()))
}

/// Imports members with these limits.
fn import_with_limits(fixture: &Fixture, limits: ArchiveLimits, members: &[Vec<u8>]) -> Result<ImportReport> {
    let options = ImportOptions { limits, ..ImportOptions::default() };
    import_tar(&fixture.store, &mut &archive(members)[..], NewSnapshot::default(), &options, &NoProgress)
}

#[test]
fn a_path_with_too_many_components_is_refused() {
    let fixture = Fixture::new();
    let (deepest, deeper) = ("a/".repeat(1023) + "x", "a/".repeat(1024) + "x");
    let report = fixture.import(&archive(&[with_records(&[("path", deepest.as_bytes())], &file(b"x", b""))]));
    assert_eq!(report.unwrap().directories, 1023);
    let fixture = Fixture::new();
    for path in [deeper, "a/".repeat(200_000)] {
        for member in [file(b"x", b""), member(EntryType::Directory, b"x", b"", b"")] {
            let refusal = fixture.refusal(&[with_records(&[("path", path.as_bytes())], &member)]);
            assert!(refusal.contains("nested too deeply: 1024 levels"), "{refusal}");
            assert!(refusal.len() < 1_000, "{}", refusal.len());
        }
        let link = member(EntryType::Link, b"x", b"", b"");
        let refusal = fixture.refusal(&[with_records(&[("linkpath", path.as_bytes())], &link)]);
        assert!(refusal.contains("nested too deeply: 1024 levels"), "{refusal}");
        let long_name = member(EntryType::GNULongName, b"././@LongLink", b"", path.as_bytes());
        let refusal = fixture.refusal(&[[long_name, file(b"x", b"")].concat()]);
        assert!(refusal.contains("nested too deeply: 1024 levels"), "{refusal}");
    }
}

#[test]
fn missing_parent_directories_count_as_entries() {
    let fixture = Fixture::new();
    let limits = ArchiveLimits { entries: 1_000, ..ArchiveLimits::default() };
    let deep = |name: &str| {
        let path = format!("{name}/").repeat(400) + "x";
        with_records(&[("path", path.as_bytes())], &file(b"x", b""))
    };
    assert_eq!(import_with_limits(&fixture, limits, &[deep("a"), deep("b")]).unwrap().directories, 800);
    let refused = import_with_limits(&fixture, limits, &[deep("a"), deep("b"), deep("c")]).unwrap_err();
    assert!(
        matches!(refused, ArchiveError::TooLarge { kind: LimitKind::Entries, limit: 1_000 }),
        "{refused}"
    );
}

#[test]
fn directories_that_are_members_count_once() {
    let fixture = Fixture::new();
    let directory = |name: &[u8]| member(EntryType::Directory, name, b"", b"");
    // `a/b` is a missing parent directory, and `a/b/c` is a member twice.
    let names: [&[u8]; 5] = [b"./", b"a", b"a/b/c", b"d", b"a/b/c"];
    let members = [names.map(directory).to_vec(), vec![file(b"d/x", b"")]].concat();
    let limits = |entries| ArchiveLimits { entries, ..ArchiveLimits::default() };
    assert_eq!(import_with_limits(&fixture, limits(7), &members).unwrap().directories, 4);
    let refused = import_with_limits(&fixture, limits(6), &members).unwrap_err();
    assert!(matches!(refused, ArchiveError::TooLarge { kind: LimitKind::Entries, limit: 6 }), "{refused}");
}

#[test]
fn sparse_members_count_with_their_holes() {
    let fixture = Fixture::new();
    let limits = ArchiveLimits { bytes: 1 << 40, ..ArchiveLimits::default() };
    let report = import_with_limits(&fixture, limits, &[hole(b"a", 1 << 39), hole(b"b", 1 << 39)]).unwrap();
    assert_eq!((report.files, report.bytes), (2, 1 << 40));
    assert_eq!(fixture.restored(&report).stat("a").unwrap().size, 1 << 39);
    for members in [
        vec![hole(b"a", 1 << 39), hole(b"b", (1 << 39) + 1)],
        vec![hole(b"a", 1 << 63)],
        vec![hole(b"a", u64::MAX), hole(b"b", u64::MAX)],
        // Each hard link counts with the size of its file.
        [
            vec![hole(b"a", 1 << 39)],
            (0..2).map(|n| member(EntryType::Link, &[b'l', n + b'0'], b"a", b"")).collect(),
        ]
        .concat(),
    ] {
        let refused = import_with_limits(&fixture, limits, &members).unwrap_err();
        assert!(matches!(refused, ArchiveError::TooLarge { kind: LimitKind::Bytes, .. }), "{refused}");
    }
    // Without a limit of the import, the size limit of a file (`i64::MAX`) applies.
    assert!(fixture.import(&archive(&[hole(b"a", i64::MAX as u64)])).is_ok());
    assert!(fixture.import(&archive(&[hole(b"a", 1 << 63)])).is_err());
}

#[test]
fn names_and_attributes_are_bounded() {
    let fixture = Fixture::new();
    let limits = ArchiveLimits { metadata: 100_000, ..ArchiveLimits::default() };
    let note = |len: usize| with_records(&[("SCHILY.xattr.user.note", &vec![b'x'; len])], &file(b"x", b""));
    assert!(import_with_limits(&fixture, limits, &[note(60_000)]).is_ok());
    let refused = import_with_limits(&fixture, limits, &[note(60_000), note(60_000)]).unwrap_err();
    assert!(matches!(refused, ArchiveError::TooLarge { kind: LimitKind::Metadata, .. }), "{refused}");
}

/// Memory budget with this number of bytes left.
#[derive(Debug)]
struct Budget(AtomicU64);

impl MemoryBudget for Budget {
    fn take(&self, bytes: u64) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

#[test]
fn imports_take_their_memory_from_a_budget_that_they_share() {
    let fixture = Fixture::new();
    let import = |budget: &Budget, members: &[Vec<u8>]| {
        let options = ImportOptions { memory: Some(budget), ..ImportOptions::default() };
        import_tar(&fixture.store, &mut &archive(members)[..], NewSnapshot::default(), &options, &NoProgress)
    };
    let note = with_records(&[("SCHILY.xattr.user.note", &[b'x'; 60_000])], &file(b"x", b""));
    let deep = with_records(&[("path", ("d/".repeat(400) + "x").as_bytes())], &file(b"x", b""));
    // Every second block is a hole, so each has an extent.
    let blocks = [[b'x'; 4096], [0; 4096]].concat().repeat(1_000);
    for member in [note, deep, file(b"x", &blocks)] {
        let shared = Budget(AtomicU64::new(110_000));
        import(&shared, std::slice::from_ref(&member)).unwrap();
        let refused = import(&shared, std::slice::from_ref(&member)).unwrap_err();
        assert!(matches!(refused, ArchiveError::OverBudget), "{refused}");
    }
}

#[test]
fn attributes_that_no_file_can_have_are_refused() {
    let many: Vec<(String, &[u8])> =
        (0..10_000).map(|n| (format!("SCHILY.xattr.user.n{n}"), &b""[..])).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let (name, value) = (format!("SCHILY.xattr.user.{}", "n".repeat(251)), vec![0; (64 << 10) + 1]);
    let fixture = Fixture::new();
    for records in
        [&many[..], &[(&name, b"")], &[("SCHILY.xattr.user.a\0b", b"")], &[("SCHILY.xattr.user.a", &value)]]
    {
        let refusal = fixture.refusal(&[with_records(records, &file(b"x", b""))]);
        assert!(refusal.ends_with("no file can have its extended attributes"), "{refusal}");
    }
}

#[test]
fn records_for_the_whole_archive_are_small_and_have_no_attributes() {
    let global = |key: &str, value: &[u8]| {
        let mut records = Records::default();
        records.set(key.as_bytes(), value);
        member(EntryType::XGlobalHeader, b"pax_global_header", b"", &records.encode())
    };
    let fixture = Fixture::new();
    let refusal = fixture.refusal(&[global("SCHILY.xattr.user.a", b"x"), file(b"x", b"")]);
    assert!(refusal.contains("attributes for the whole archive"), "{refusal}");
    let halves = [global("comment", &[b'x'; 40_000]), global("other", &[b'x'; 40_000])];
    let refusal = fixture.refusal(&[halves.concat(), file(b"x", b"")]);
    assert!(refusal.contains("too large"), "{refusal}");
    fixture.import(&archive(&[global("comment", b"of git"), file(b"x", b"")])).unwrap();
}

#[test]
fn a_report_names_a_bounded_number_of_members() {
    let fixture = Fixture::new();
    let mut members: Vec<_> =
        (0..1_500).map(|n| member(EntryType::Fifo, format!("p{n}").as_bytes(), b"", b"")).collect();
    for _ in 0..2 {
        members.extend((0..1_500).map(|n| file(format!("f{n}").as_bytes(), b"")));
    }
    let report = fixture.import(&archive(&members)).unwrap();
    assert_eq!((report.skipped.len(), report.skipped_count), (1_000, 1_500));
    assert_eq!((report.replaced.len(), report.replaced_count), (1_000, 1_500));
    assert_eq!(report.files, 1_500);
}

#[test]
fn hard_links_share_content_without_reading_it() {
    let fixture = Fixture::new();
    let link = |name: &[u8], target: &[u8]| member(EntryType::Link, name, target, b"");
    let members = [hole(b"d/a", 1 << 40), link(b"b", b"d/a"), link(b"d/c", b"b"), file(b"e", b"")];
    let report = fixture.import(&archive(&members)).unwrap();
    assert_eq!((report.files, report.bytes), (4, 3 << 40));
    let tree = fixture.restored(&report);
    let labels = ["d/a", "b", "d/c", "e"].map(|path| tree.stat(path).unwrap().link_label);
    assert_eq!(labels, [Some(1), Some(1), Some(1), None]);
}

#[test]
fn a_cancelled_import_stops_and_leaves_nothing() {
    let fixture = Fixture::new();
    /// Input that cancels the import after `left` bytes.
    struct CancelAt<'a> {
        bytes: &'a [u8],
        left: usize,
        cancel: crate::Cancel,
    }
    impl io::Read for CancelAt<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            assert!(!self.cancel.is_cancelled(), "read after the cancellation");
            let len = buffer.len().min(4096).min(self.bytes.len());
            buffer[..len].copy_from_slice(&self.bytes[..len]);
            self.bytes = &self.bytes[len..];
            self.left = self.left.saturating_sub(len);
            if self.left == 0 {
                self.cancel.cancel();
            }
            Ok(len)
        }
    }
    let whole = archive(&[file(b"a", &[7; 100_000]), file(b"b", &[8; 100_000])]);
    for left in [1, 50_000, 150_000, whole.len()] {
        let cancel = crate::Cancel::new();
        let store = fixture.store.with_cancel(cancel.clone());
        let mut input = CancelAt { bytes: &whole, left, cancel };
        let stopped =
            import_tar(&store, &mut input, NewSnapshot::default(), &ImportOptions::default(), &NoProgress);
        assert!(matches!(stopped, Err(ArchiveError::Cancelled(_))), "{left}: {stopped:?}");
    }
    assert!(fixture.store.snapshots().unwrap().is_empty());
    fixture.import(&whole).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Imports a valid archive with some changed bytes. The import succeeds or fails, but never panics, and never
    /// leaves a snapshot that cannot be exported.
    #[test]
    fn damaged_archives_are_imported_or_refused(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        fix_checksum in any::<bool>(),
    ) {
        let fixture = Fixture::new();
        let mut pax = Records::default();
        pax.set(b"GNU.sparse.major", b"1");
        pax.set(b"GNU.sparse.minor", b"0");
        pax.set(b"GNU.sparse.name", b"sparse");
        pax.set(b"GNU.sparse.realsize", b"2048");
        let map = [&b"1\n512\n512\n"[..], &[0; 502], &[1; 512]].concat();
        let mut bytes = archive(&[
            file(b"a", b"abc"),
            member(EntryType::XHeader, b"PaxHeader", b"", &pax.encode()),
            file(b"s", &map),
            member(EntryType::Link, b"l", b"a", b""),
        ]);
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if fix_checksum {
            // With a valid checksum of the first header, the import decodes the changed fields.
            let mut header = Header::from_byte_slice(&bytes[..512]).clone();
            header.set_cksum();
            bytes[..512].copy_from_slice(header.as_bytes());
        }
        if let Ok(report) = fixture.import(&bytes) {
            fixture.export(&report);
        }
    }
}
