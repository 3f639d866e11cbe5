use tar::{Builder, EntryType, Header};

use super::*;

enum Member<'a> {
    File(&'a str, &'a [u8], u32),
    Directory(&'a str),
    Link(&'a str, &'a str, EntryType),
    Device(&'a str),
}
use Member::{Device, Directory, File as Plain, Link};

/// Makes a tar archive. Names are written as they are, without validation.
fn tar(members: &[Member<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for member in members {
        let mut header = Header::new_gnu();
        let (name, data, mode): (&str, &[u8], u32) = match member {
            Plain(name, data, mode) => (name, data, *mode),
            Directory(name) => (name, &[], 0o755),
            Link(name, _, _) | Device(name) => (name, &[], 0o644),
        };
        header.set_entry_type(match member {
            Plain(..) => EntryType::Regular,
            Directory(_) => EntryType::Directory,
            Link(_, _, kind) => *kind,
            Device(_) => EntryType::Char,
        });
        if let Link(_, target, _) = member {
            header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        }
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(data.len() as u64);
        header.set_mode(mode);
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.into_inner().unwrap()
}

struct Fixture {
    directory: tempfile::TempDir,
    templates: Templates,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let templates = Templates::new(directory.path().join("templates"));
        Self { directory, templates }
    }

    fn import(&self, name: &str, bytes: &[u8]) -> Result<ImportedTemplate, TemplateError> {
        self.import_with(name, bytes, &options(1 << 30))
    }

    fn import_with(
        &self,
        name: &str,
        bytes: &[u8],
        options: &ImportOptions,
    ) -> Result<ImportedTemplate, TemplateError> {
        let mut file = self.templates.receive().unwrap();
        file.write_all(bytes).unwrap();
        self.templates.import(name, file, options)
    }

    fn root(&self, name: &str) -> PathBuf {
        self.templates.find(name).unwrap().unwrap().1
    }

    /// Lists the directory of templates, which must hold whole templates only.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path().join("templates")).unwrap();
        let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn options(max_bytes: u64) -> ImportOptions {
    ImportOptions { max_bytes, cancel: Cancel::new() }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// Makes a tar archive of one member with these PAX records, which are not validated.
fn tar_with_pax_records(records: &[(&str, &[u8])], content: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let digits = (1..).find(|digits| (rest + digits).to_string().len() == *digits).unwrap();
        text.extend_from_slice(format!("{} {key}=", rest + digits).as_bytes());
        text.extend_from_slice(value);
        text.push(b'\n');
    }
    let mut builder = Builder::new(Vec::new());
    for (kind, data) in [(EntryType::XHeader, &text[..]), (EntryType::Regular, content)] {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.as_mut_bytes()[..1].copy_from_slice(b"x");
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.into_inner().unwrap()
}

const SHELL: Member<'_> = Plain("bin/sh", b"#!", 0o755);

#[test]
fn a_root_filesystem_is_imported_listed_and_removed() {
    let dir = Fixture::new();
    let archive = tar(&[
        Directory("bin"),
        SHELL,
        Plain("usr/bin/tool", b"12345", 0o4755),
        Link("usr/bin/again", "usr/bin/tool", EntryType::Link),
        Link("etc/mtab", "/proc/mounts", EntryType::Symlink),
        Device("dev/null"),
    ]);
    let known = dir.import("python:3.11", &archive).unwrap();
    assert_eq!((known.size, known.skipped), (7, 1));
    assert_eq!(dir.templates.list().unwrap(), [known]);
    let root = dir.root("python:3.11");
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let tool = fs::metadata(root.join("usr/bin/tool")).unwrap();
    assert_eq!((tool.permissions().mode() & 0o7777, tool.nlink()), (0o755, 2));
    assert_eq!(fs::read_link(root.join("etc/mtab")).unwrap(), Path::new("/proc/mounts"));
    let twice = dir.import("python:3.11", &archive).unwrap_err();
    assert!(matches!(twice, TemplateError::Exists { .. }), "{twice}");
    assert_eq!(dir.names(), ["python%3A3.11"]);
    assert!(dir.templates.remove("python:3.11").unwrap());
    assert!(!dir.templates.remove("python:3.11").unwrap());
    assert_eq!(dir.names(), [] as [&str; 0]);
}

#[test]
fn compressed_archives_are_read_too() {
    let dir = Fixture::new();
    let archive = tar(&[SHELL]);
    dir.import("gzip", &gzip(&archive)).unwrap();
    dir.import("zstd", &zstd::encode_all(&archive[..], 1).unwrap()).unwrap();
    assert_eq!(dir.templates.list().unwrap().len(), 2);
}

#[test]
fn extraction_does_not_leave_the_root() {
    let dir = Fixture::new();
    let outside = dir.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let up = "../../../outside/x";
    assert!(dir.import("up", &tar(&[SHELL, Plain(up, b"x", 0o644)])).is_err());
    // A symlink is resolved inside the root. A dangling one is replaced by a directory.
    let target = outside.to_str().unwrap();
    let archive = tar(&[
        SHELL,
        Link("door", target, EntryType::Symlink),
        Plain("door/x", b"x", 0o644),
        Link("up", "../../../../../../..", EntryType::Symlink),
        Plain("up/y", b"y", 0o644),
    ]);
    dir.import("links", &archive).unwrap();
    let root = dir.root("links");
    assert!(root.join("y").exists());
    assert!(root.join("door").is_dir() && root.join("door/x").exists());
    let hard = Link("shadow", "../../../../../../etc/shadow", EntryType::Link);
    assert!(dir.import("hard", &tar(&[SHELL, hard])).is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(dir.names(), ["links"]);
}

#[test]
fn invalid_archive_leaves_nothing() {
    let dir = Fixture::new();
    let truncated = tar(&[SHELL, Plain("big", &[7; 5_000], 0o644)]);
    for bytes in [&b""[..], b"no tar at all", &truncated[..2_000], &tar(&[Plain("a", b"", 0o644)])] {
        let refused = dir.import("x", bytes).unwrap_err();
        assert!(matches!(refused, TemplateError::Archive(_)), "{refused}");
    }
    for name in ["", "..", "a b", "/etc", ".hidden", "a\0b", &"x".repeat(129)] {
        let refused = dir.import(name, &tar(&[SHELL])).unwrap_err();
        assert!(matches!(refused, TemplateError::Name { .. }), "{refused}");
        assert!(dir.templates.find(name).unwrap().is_none());
    }
    assert_eq!(dir.names(), [] as [&str; 0]);
    fs::create_dir(dir.directory.path().join("templates").join(format!("{TEMPORARY_PREFIX}1"))).unwrap();
    assert_eq!(dir.templates.list().unwrap(), []);
    dir.templates.clear().unwrap();
    assert_eq!(dir.names(), [] as [&str; 0]);
}

#[test]
fn too_large_archive_is_refused_and_leaves_nothing() {
    let dir = Fixture::new();
    let zeros = vec![0; 4 << 20];
    let large = tar(&[SHELL, Plain("zeros", &zeros, 0o644)]);
    // A compressed archive, an uncompressed one, a compressed layer, and a small layer that is listed often.
    let layer = tar(&[SHELL, Plain("some", &zeros[..600_000], 0o644)]);
    let saved = |layers: &str, layer: &[u8]| {
        let manifest = format!(r#"[{{"Config":"c","Layers":[{layers}]}}]"#);
        tar(&[
            Plain("manifest.json", manifest.as_bytes(), 0o644),
            Plain("c", CONFIG, 0o644),
            Plain("l", layer, 0o644),
        ])
    };
    let many = [r#""l""#; 4].join(",");
    for bytes in [gzip(&large), large.clone(), saved(r#""l""#, &gzip(&large)), saved(&many, &layer)] {
        let refused = dir.import_with("x", &bytes, &options(1 << 20)).unwrap_err();
        assert!(matches!(refused, TemplateError::TooLarge { .. }), "{refused}");
        assert_eq!(dir.names(), [] as [&str; 0]);
    }
    dir.import_with("x", &gzip(&large), &options(8 << 20)).unwrap();
    let refused = dir.import("y", &saved(&[r#""l""#; 600].join(","), &layer)).unwrap_err();
    assert!(refused.to_string().contains("600 layers"), "{refused}");
}

#[test]
fn sparse_member_is_limited_and_takes_no_space() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = Fixture::new();
    let sparse = |size: &str| {
        let records = [
            ("GNU.sparse.major", &b"1"[..]),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"big"),
            ("GNU.sparse.realsize", size.as_bytes()),
        ];
        let end = tar_with_pax_records(&records, &[&b"0\n"[..], &[0; 510]].concat());
        let shell = tar(&[SHELL]);
        [&shell[..shell.len() - 1024], &end].concat()
    };
    for size in ["9223372036854775807", "1073741825"] {
        let refused = dir.import("x", &sparse(size)).unwrap_err();
        assert!(matches!(refused, TemplateError::TooLarge { .. }), "{refused}");
    }
    assert_eq!(dir.names(), [] as [&str; 0]);
    dir.import("x", &sparse("1073741000")).unwrap();
    let big = fs::metadata(dir.root("x").join("big")).unwrap();
    assert_eq!(big.len(), 1_073_741_000);
    assert!(big.blocks() * 512 < 1 << 20, "{}", big.blocks());
}

#[test]
fn invalid_file_names_are_errors_of_the_archive() {
    let dir = Fixture::new();
    let (long, deep) = ("n".repeat(300), "d/".repeat(5_000));
    for path in [&b"a\0b"[..], long.as_bytes(), deep.as_bytes()] {
        let refused = dir.import("x", &tar_with_pax_records(&[("path", path)], b"")).unwrap_err();
        assert!(matches!(refused, TemplateError::Archive(_)), "{refused:?}");
    }
    let whiteout = tar(&[SHELL, Plain(".wh...", b"", 0o644)]);
    let refused = dir.import("x", &whiteout).unwrap_err();
    assert!(matches!(refused, TemplateError::Archive(_)), "{refused:?}");
    assert_eq!(dir.names(), [] as [&str; 0]);
}

#[test]
fn a_cancelled_import_leaves_nothing() {
    let dir = Fixture::new();
    let options = options(1 << 30);
    options.cancel.cancel();
    for bytes in [gzip(&tar(&[SHELL])), tar(&[SHELL])] {
        let stopped = dir.import_with("x", &bytes, &options).unwrap_err();
        assert!(matches!(stopped, TemplateError::Cancelled), "{stopped:?}");
    }
    assert_eq!(dir.names(), [] as [&str; 0]);
}

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

const CONFIG: &[u8] = br#"{"config":{"Env":["PATH=/opt/bin:/bin","LANG=C"]}}"#;

#[test]
fn layers_of_a_saved_image_cover_each_other() {
    let dir = Fixture::new();
    let first = tar(&[
        SHELL,
        Plain("etc/old", b"1", 0o644),
        Plain("etc/changed", b"1", 0o644),
        Plain("var/cache/a", b"1", 0o644),
        Plain("swap/file", b"1", 0o644),
    ]);
    let second = tar(&[
        Plain("etc/.wh.old", b"", 0o644),
        Plain("etc/changed", b"22", 0o644),
        Plain("var/cache/b", b"2", 0o644),
        Plain("var/cache/.wh..wh..opq", b"", 0o644),
        Plain("swap", b"a file now", 0o644),
    ]);
    let manifest = br#"[{"Config":"c.json","RepoTags":["x:1"],"Layers":["1/layer.tar","2/layer.tar"]}]"#;
    let saved = tar(&[
        Plain("1/layer.tar", &first, 0o644),
        Plain("2/layer.tar", &second, 0o644),
        Plain("c.json", CONFIG, 0o644),
        Plain("manifest.json", manifest, 0o644),
    ]);
    let known = dir.import("saved", &saved).unwrap();
    assert_eq!(known.envs["PATH"], "/opt/bin:/bin");
    let root = dir.root("saved");
    assert!(!root.join("etc/old").exists() && !root.join("var/cache/a").exists());
    assert_eq!(fs::read(root.join("etc/changed")).unwrap(), b"22");
    assert!(root.join("var/cache/b").exists() && root.join("swap").is_file());
}

#[test]
fn an_oci_layout_is_checked_and_unpacked() {
    let dir = Fixture::new();
    let layer = gzip(&tar(&[SHELL]));
    let manifest = format!(
        r#"{{"config":{{"digest":"sha256:{}"}},"layers":[{{"digest":"sha256:{}"}}]}}"#,
        digest(CONFIG),
        digest(&layer)
    );
    let index = format!(r#"{{"manifests":[{{"digest":"sha256:{}"}}]}}"#, digest(manifest.as_bytes()));
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", digest(bytes));
    let (config_name, layer_name, manifest_name) = (blob(CONFIG), blob(&layer), blob(manifest.as_bytes()));
    let layout = |layer: &[u8]| {
        tar(&[
            Plain("oci-layout", b"{}", 0o644),
            Plain("index.json", index.as_bytes(), 0o644),
            Plain(&manifest_name, manifest.as_bytes(), 0o644),
            Plain(&config_name, CONFIG, 0o644),
            Plain(&layer_name, layer, 0o644),
        ])
    };
    let known = dir.import("oci", &layout(&layer)).unwrap();
    assert_eq!(known.envs["LANG"], "C");
    let mut damaged = layer.clone();
    damaged[20] ^= 1;
    let refused = dir.import("damaged", &layout(&damaged)).unwrap_err();
    assert!(refused.to_string().contains("is corrupt"), "{refused}");
}
