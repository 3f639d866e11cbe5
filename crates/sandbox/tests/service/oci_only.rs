//! Templates of OCI runtimes: imported root filesystems, as for the embedded runtime.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use workspace_sandbox::template::ImportOptions;
use workspace_sandbox::{NewSandbox, SandboxDir};
use workspace_state::Cancel;
use workspace_test_support::find_program;

use crate::home::{TestHome, agent_program, base, create, creator, run, sh};
use crate::kind::RuntimeKind;

pub(crate) fn trials() -> Vec<Trial> {
    if !RuntimeKind::available().contains(&RuntimeKind::Oci) {
        return Vec::new();
    }
    vec![
        Trial::test("oci::sandboxes_do_not_change_an_imported_template", || {
            run(RuntimeKind::Oci, |home| Box::pin(sandboxes_do_not_change_an_imported_template(home)));
            Ok(())
        }),
        Trial::test("oci::files_of_an_interrupted_start_are_removed", || {
            run(RuntimeKind::Oci, |home| Box::pin(files_of_an_interrupted_start_are_removed(home)));
            Ok(())
        }),
        Trial::test("oci::tmpfs_directories_are_writable", || {
            run(RuntimeKind::Oci, |home| Box::pin(tmpfs_directories_are_writable(home)));
            Ok(())
        }),
    ]
}

/// Makes a root filesystem with a shell and the files that the agent needs.
pub(crate) fn unpack(root: &Path) {
    let bin = root.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/os-release"), "NAME=mini\n").unwrap();
    std::os::unix::fs::symlink("bin", root.join("sbin")).unwrap();
    std::fs::copy(find_program("busybox").unwrap(), bin.join("busybox")).unwrap();
    for name in ["sh", "cat", "ls", "touch"] {
        std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap();
    }
    let libraries = Command::new("ldd").arg(agent_program()).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(library.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(library, to).unwrap();
    }
}

fn listing(root: &Path) -> String {
    let output = Command::new("find").arg(root).args(["-printf", "%P %m %T@\n"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// `runc` makes the directory of a container before it stores the state.
async fn files_of_an_interrupted_start_are_removed(home: &TestHome) {
    let service = home.start().await;
    let (id, dir) = ("sbx-1", SandboxDir::new(home.path().join("sandboxes/sbx-1")));
    let files = home.path().join("oci").join(id);
    std::fs::create_dir(&files).unwrap();
    assert!(!service.runtime().is_running(id, &dir).await.unwrap());
    service.runtime().kill(id, &dir).await.unwrap();
    assert!(!files.exists());
}

async fn tmpfs_directories_are_writable(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let ran = sh(&service, &info, "touch /tmp/x /var/tmp/x ~/x && stat -c %a /tmp /var/tmp").await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("1777\n1777\n", ""));
}

async fn sandboxes_do_not_change_an_imported_template(home: &TestHome) {
    let service = home.start().await;
    let made = tempfile::tempdir().unwrap();
    unpack(made.path());
    let mut archive = service.receive_template().unwrap();
    let packed = Command::new("tar").arg("-C").arg(made.path()).args(["-c", "."]).output().unwrap();
    std::io::Write::write_all(&mut archive, &packed.stdout).unwrap();
    std::io::Seek::rewind(&mut archive).unwrap();
    let options = ImportOptions { max_bytes: 1 << 30, cancel: Cancel::new() };
    service.import_template("mini:1", archive, options).await.unwrap();
    let root = home.path().join("templates");
    let before = listing(&root);
    let templates = service.runtime().templates().await.unwrap();
    assert!(templates.iter().any(|template| template.name == "mini:1" && template.present));
    let known = templates.iter().find(|template| template.name == "python:3.11").unwrap();
    assert!(!known.present && known.fetch_command.as_ref().unwrap().contains("workspace template import"));
    let new = NewSandbox { template: "mini:1".to_owned(), ..base() };
    let info = service.create(creator(), new).await.unwrap();
    let ran =
        sh(&service, &info, "cat /etc/os-release; ls /sbin/sh; touch here /tmp/x; ls /usr /bin/id").await;
    assert_eq!(ran.stdout, "NAME=mini\n/sbin/sh\n");
    let ran = sh(&service, &info, "touch /bin/x /etc/x /x").await;
    assert_eq!(ran.stderr.matches("Read-only file system").count(), 3, "{ran:?}");
    assert_eq!(listing(&root), before);
}
