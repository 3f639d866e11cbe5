//! Tests with libnfs, an independent NFS client: with its tools, and with a program in C (`libnfs.c`).

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use workspace_test_support::requires;

use crate::fixture::{Fixture, NAME};

/// Runs a program, which must succeed.
fn run(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> Output {
    let output = Command::new(&program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{:?} {arguments:?}: {output:?}", program.as_ref());
    output
}

/// Returns the URL of a file of the export for libnfs.
fn url(fixture: &Fixture, path: &str) -> String {
    let port = fixture.server.get_server_info().port;
    format!("nfs://127.0.0.1/{NAME}/{path}?nfsport={port}&mountport={port}")
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).exists())
}

#[test]
fn the_tools_of_libnfs_copy_and_list_files() {
    if !requires(is_installed("nfs-cp"), "the tools of libnfs (Debian package libnfs-utils)") {
        return;
    }
    let fixture = Fixture::new();
    let source = fixture.outside().join("source");
    let content: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&source, &content).unwrap();
    run("nfs-cp", &[source.as_ref(), url(&fixture, "uploaded").as_ref()]);
    assert!(fs::read(fixture.path("uploaded")).unwrap() == content);
    let back = fixture.outside().join("back");
    run("nfs-cp", &[url(&fixture, "uploaded").as_ref(), back.as_ref()]);
    assert!(fs::read(back).unwrap() == content);
    fs::create_dir(fixture.path("dir")).unwrap();
    fs::write(fixture.path("dir/small"), b"of the inside").unwrap();
    assert_eq!(run("nfs-cat", &[url(&fixture, "dir/small").as_ref()]).stdout, b"of the inside");
    let listed = run("nfs-ls", &["-R".as_ref(), url(&fixture, "").as_ref()]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in ["uploaded", "dir", "small"] {
        assert!(listed.contains(name), "{listed}");
    }
}

/// Compiles `libnfs.c`, and returns the path of the program.
fn compile(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libnfs.c");
    let program = directory.join("libnfs");
    run("cc", &["-Wall".as_ref(), "-o".as_ref(), program.as_ref(), source.as_ref(), "-lnfs".as_ref()]);
    program
}

#[test]
fn a_c_program_uses_the_export_by_libnfs() {
    let has_library = Path::new("/usr/include/nfsc/libnfs.h").exists();
    if !requires(has_library, "libnfs (Debian package libnfs-dev)") {
        return;
    }
    let fixture = Fixture::new();
    let program = compile(fixture.outside());
    run(&program, &[url(&fixture, "").as_ref()]);
    assert_eq!(
        fs::read_dir(fixture.root()).unwrap().count(),
        0,
        "the program removes the files that it has created"
    );
}
