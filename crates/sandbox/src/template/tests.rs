use tar::{Builder, EntryType, Header};

use super::*;

enum Member<'a> {
    File(&'a str, &'a [u8], u32),
    Directory(&'a str),
    Link(&'a str, &'a str, EntryType),
    Device(&'a str),
}
use Member::{Device, Directory, File as Regular, Link};

/// Makes a tar archive. Names are written as they are, without validation.
fn tar(members: &[Member<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for member in members {
        let mut header = Header::new_gnu();
        let (name, data, mode): (&str, &[u8], u32) = match member {
            Regular(name, data, mode) => (name, data, *mode),
            Directory(name) => (name, &[], 0o755),
            Link(name, _, _) | Device(name) => (name, &[], 0o644),
        };
        header.set_entry_type(match member {
            Regular(..) => EntryType::Regular,
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

const SHELL: Member<'_> = Regular("bin/sh", b"#!", 0o755);

#[test]
fn a_root_filesystem_is_imported_listed_and_removed() {
    let fixture = Fixture::new();
    let archive = tar(&[
        Directory("bin"),
        SHELL,
        Regular("usr/bin/tool", b"12345", 0o4755),
        Link("usr/bin/again", "usr/bin/tool", EntryType::Link),
        Link("etc/mtab", "/proc/mounts", EntryType::Symlink),
        Device("dev/null"),
    ]);
    let imported = fixture.import("python:3.11", &archive).unwrap();
    assert_eq!((imported.size, imported.skipped), (7, 1));
    assert_eq!(fixture.templates.list().unwrap(), [imported]);
    let root = fixture.root("python:3.11");
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let tool = fs::metadata(root.join("usr/bin/tool")).unwrap();
    assert_eq!((tool.permissions().mode() & 0o7777, tool.nlink()), (0o755, 2));
    assert_eq!(fs::read_link(root.join("etc/mtab")).unwrap(), Path::new("/proc/mounts"));
    let twice = fixture.import("python:3.11", &archive).unwrap_err();
    assert!(matches!(twice, TemplateError::Exists { .. }), "{twice}");
    assert_eq!(fixture.names(), ["python%3A3.11"]);
    assert!(fixture.templates.remove("python:3.11").unwrap());
    assert!(!fixture.templates.remove("python:3.11").unwrap());
    assert_eq!(fixture.names(), [] as [&str; 0]);
}

#[test]
fn compressed_archives_are_read_too() {
    let fixture = Fixture::new();
    let archive = tar(&[SHELL]);
    fixture.import("gzip", &gzip(&archive)).unwrap();
    fixture.import("zstd", &zstd::encode_all(&archive[..], 1).unwrap()).unwrap();
    assert_eq!(fixture.templates.list().unwrap().len(), 2);
}

#[test]
fn extraction_does_not_leave_the_root() {
    let fixture = Fixture::new();
    let outside = fixture.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let up = "../../../outside/x";
    assert!(fixture.import("up", &tar(&[SHELL, Regular(up, b"x", 0o644)])).is_err());
    // A symlink is resolved inside the root. A dangling one is replaced by a directory.
    let target = outside.to_str().unwrap();
    let archive = tar(&[
        SHELL,
        Link("door", target, EntryType::Symlink),
        Regular("door/x", b"x", 0o644),
        Link("up", "../../../../../../..", EntryType::Symlink),
        Regular("up/y", b"y", 0o644),
    ]);
    fixture.import("links", &archive).unwrap();
    let root = fixture.root("links");
    assert!(root.join("y").exists());
    assert!(root.join("door").is_dir() && root.join("door/x").exists());
    let hard = Link("shadow", "../../../../../../etc/shadow", EntryType::Link);
    assert!(fixture.import("hard", &tar(&[SHELL, hard])).is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fixture.names(), ["links"]);
}

#[test]
fn invalid_archive_leaves_nothing() {
    let fixture = Fixture::new();
    let truncated = tar(&[SHELL, Regular("big", &[7; 5_000], 0o644)]);
    for bytes in [&b""[..], b"no tar at all", &truncated[..2_000], &tar(&[Regular("a", b"", 0o644)])] {
        let refused = fixture.import("x", bytes).unwrap_err();
        assert!(matches!(refused, TemplateError::Archive(_)), "{refused}");
    }
    for name in ["", "..", "a b", "/etc", ".hidden", "a\0b", &"x".repeat(129)] {
        let refused = fixture.import(name, &tar(&[SHELL])).unwrap_err();
        assert!(matches!(refused, TemplateError::Name { .. }), "{refused}");
        assert!(fixture.templates.find(name).unwrap().is_none());
    }
    assert_eq!(fixture.names(), [] as [&str; 0]);
    fs::create_dir(fixture.directory.path().join("templates").join(format!("{TEMPORARY_PREFIX}1"))).unwrap();
    assert_eq!(fixture.templates.list().unwrap(), []);
    fixture.templates.remove_leftovers().unwrap();
    assert_eq!(fixture.names(), [] as [&str; 0]);
}

#[test]
fn too_large_archive_is_refused_and_leaves_nothing() {
    let fixture = Fixture::new();
    let zeros = vec![0; 4 << 20];
    let large = tar(&[SHELL, Regular("zeros", &zeros, 0o644)]);
    // A compressed archive, an uncompressed one, a compressed layer, and a small layer that is listed often.
    let layer = tar(&[SHELL, Regular("some", &zeros[..600_000], 0o644)]);
    let docker_save = |layers: &str, layer: &[u8]| {
        let manifest = format!(r#"[{{"Config":"c","Layers":[{layers}]}}]"#);
        tar(&[
            Regular("manifest.json", manifest.as_bytes(), 0o644),
            Regular("c", CONFIG, 0o644),
            Regular("l", layer, 0o644),
        ])
    };
    let many = [r#""l""#; 4].join(",");
    for bytes in
        [gzip(&large), large.clone(), docker_save(r#""l""#, &gzip(&large)), docker_save(&many, &layer)]
    {
        let refused = fixture.import_with("x", &bytes, &options(1 << 20)).unwrap_err();
        assert!(matches!(refused, TemplateError::TooLarge { .. }), "{refused}");
        assert_eq!(fixture.names(), [] as [&str; 0]);
    }
    fixture.import_with("x", &gzip(&large), &options(8 << 20)).unwrap();
    let refused = fixture.import("y", &docker_save(&[r#""l""#; 600].join(","), &layer)).unwrap_err();
    assert!(refused.to_string().contains("600 layers"), "{refused}");
}

#[test]
fn sparse_member_is_limited_and_takes_no_space() {
    use std::os::unix::fs::MetadataExt as _;
    let fixture = Fixture::new();
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
        let refused = fixture.import("x", &sparse(size)).unwrap_err();
        assert!(matches!(refused, TemplateError::TooLarge { .. }), "{refused}");
    }
    assert_eq!(fixture.names(), [] as [&str; 0]);
    fixture.import("x", &sparse("1073741000")).unwrap();
    let big = fs::metadata(fixture.root("x").join("big")).unwrap();
    assert_eq!(big.len(), 1_073_741_000);
    assert!(big.blocks() * 512 < 1 << 20, "{}", big.blocks());
}

#[test]
fn invalid_file_names_are_errors_of_the_archive() {
    let fixture = Fixture::new();
    let (long, deep) = ("n".repeat(300), "d/".repeat(5_000));
    for path in [&b"a\0b"[..], long.as_bytes(), deep.as_bytes()] {
        let refused = fixture.import("x", &tar_with_pax_records(&[("path", path)], b"")).unwrap_err();
        assert!(matches!(refused, TemplateError::Archive(_)), "{refused:?}");
    }
    let whiteout = tar(&[SHELL, Regular(".wh...", b"", 0o644)]);
    let refused = fixture.import("x", &whiteout).unwrap_err();
    assert!(matches!(refused, TemplateError::Archive(_)), "{refused:?}");
    assert_eq!(fixture.names(), [] as [&str; 0]);
}

#[test]
fn a_cancelled_import_leaves_nothing() {
    let fixture = Fixture::new();
    let options = options(1 << 30);
    options.cancel.cancel();
    for bytes in [gzip(&tar(&[SHELL])), tar(&[SHELL])] {
        let stopped = fixture.import_with("x", &bytes, &options).unwrap_err();
        assert!(matches!(stopped, TemplateError::Cancelled), "{stopped:?}");
    }
    assert_eq!(fixture.names(), [] as [&str; 0]);
}

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

const CONFIG: &[u8] = br#"{"config":{"Env":["PATH=/opt/bin:/bin","LANG=C"]}}"#;

#[test]
fn upper_layers_replace_and_white_out_lower_ones() {
    let fixture = Fixture::new();
    let first = tar(&[
        SHELL,
        Regular("etc/old", b"1", 0o644),
        Regular("etc/changed", b"1", 0o644),
        Regular("var/cache/a", b"1", 0o644),
        Regular("swap/file", b"1", 0o644),
    ]);
    let second = tar(&[
        Regular("etc/.wh.old", b"", 0o644),
        Regular("etc/changed", b"22", 0o644),
        Regular("var/cache/b", b"2", 0o644),
        Regular("var/cache/.wh..wh..opq", b"", 0o644),
        Regular("swap", b"a file now", 0o644),
    ]);
    let manifest = br#"[{"Config":"c.json","RepoTags":["x:1"],"Layers":["1/layer.tar","2/layer.tar"]}]"#;
    let docker_save = tar(&[
        Regular("1/layer.tar", &first, 0o644),
        Regular("2/layer.tar", &second, 0o644),
        Regular("c.json", CONFIG, 0o644),
        Regular("manifest.json", manifest, 0o644),
    ]);
    let imported = fixture.import("saved", &docker_save).unwrap();
    assert_eq!(imported.envs["PATH"], "/opt/bin:/bin");
    let root = fixture.root("saved");
    assert!(!root.join("etc/old").exists() && !root.join("var/cache/a").exists());
    assert_eq!(fs::read(root.join("etc/changed")).unwrap(), b"22");
    assert!(root.join("var/cache/b").exists() && root.join("swap").is_file());
}

#[test]
fn an_oci_layout_is_checked_and_unpacked() {
    let fixture = Fixture::new();
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
            Regular("oci-layout", b"{}", 0o644),
            Regular("index.json", index.as_bytes(), 0o644),
            Regular(&manifest_name, manifest.as_bytes(), 0o644),
            Regular(&config_name, CONFIG, 0o644),
            Regular(&layer_name, layer, 0o644),
        ])
    };
    let imported = fixture.import("oci", &layout(&layer)).unwrap();
    assert_eq!(imported.envs["LANG"], "C");
    let mut damaged = layer.clone();
    damaged[20] ^= 1;
    let refused = fixture.import("damaged", &layout(&damaged)).unwrap_err();
    assert!(refused.to_string().contains("is corrupt"), "{refused}");
}
