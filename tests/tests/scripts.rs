//! Scripts of the repository, without what they build.

#![cfg(target_os = "linux")]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use workspace_tests::metadata::repository;

#[test]
fn up_finds_a_port_that_is_in_use_before_it_builds() {
    let programs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("failing-cargo");
    fs::create_dir_all(&programs).unwrap();
    let cargo = programs.join("cargo");
    fs::write(&cargo, "#!/bin/sh\necho building >&2\nexit 1\n").unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap());
    let up = |host: &str, port: u16| {
        let mut command = Command::new(repository().join("scripts/up.sh"));
        command.env("PATH", &path).env("API_HOST", host).env("API_PORT", port.to_string());
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "0.0.0.0", ""] {
        let errors = up(host, port);
        assert!(errors.contains(&format!("port {port} is in use")), "{host}: {errors}");
        assert!(errors.contains("hint: ") && !errors.contains("building"), "{host}: {errors}");
    }
    let errors = up("127.0.0.2", port);
    assert!(errors.contains("building") && !errors.contains("in use"), "{errors}");
}
