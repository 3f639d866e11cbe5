//! The runtimes that every test runs on, and how to reach their sandboxes from outside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use workspace_host::holder::Holder;
use workspace_sandbox::runtime::{Docker, Embedded, Oci, Runtime};

use crate::docker;
use crate::home::agent_program;

/// A runtime under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Embedded,
    Docker,
    Oci,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Docker => "docker",
            Self::Oci => "oci",
        }
    }

    /// Those that this user can run here. An ordinary one can run the embedded runtime alone: Docker's daemon and
    /// `runc` with limits need the superuser.
    pub(crate) fn here() -> Vec<Self> {
        if !rustix::process::geteuid().is_root() {
            return vec![Self::Embedded];
        }
        let mut here = vec![Self::Embedded];
        for (kind, programs) in
            [(Self::Docker, &["dockerd", "docker", "busybox"][..]), (Self::Oci, &["runc"][..])]
        {
            match programs.iter().find(|program| find(program).is_none()) {
                None => here.push(kind),
                Some(missing) if std::env::var_os("CI").is_some_and(|ci| ci == "true") => {
                    panic!("the tests of the {} runtime need `{missing}`, and CI=true", kind.name())
                }
                Some(missing) => eprintln!("skipped: the {} runtime needs `{missing}`", kind.name()),
            }
        }
        here
    }

    pub(crate) async fn runtime(self, home: &Path) -> Arc<dyn Runtime> {
        let agent = agent_program();
        match self {
            Self::Embedded => Arc::new(Embedded::start(home, &agent).await.unwrap()),
            Self::Docker => {
                let (sandboxes, network) = (home.join("sandboxes"), Some(docker::NETWORK));
                Arc::new(Docker::connect(&docker::host(), network, &agent, &sandboxes).await.unwrap())
            }
            Self::Oci => {
                let templates = home.join("templates");
                Arc::new(Oci::start("runc", &home.join("oci"), &agent, &templates).await.unwrap())
            }
        }
    }

    /// The first process of a sandbox, as this machine numbers it.
    pub(crate) fn pid(self, home: &Path, id: &str) -> i32 {
        match self {
            Self::Embedded => {
                let note = home.join("sandboxes").join(id).join("process");
                workspace_host::Process::read(&note).unwrap().unwrap().pid()
            }
            Self::Docker => {
                docker::say(&["inspect", "--format", "{{.State.Pid}}", id]).trim().parse().unwrap()
            }
            Self::Oci => {
                let state = runc(home, &["state", id]);
                let state: serde_json::Value = serde_json::from_str(&state).unwrap();
                i32::try_from(state["pid"].as_i64().unwrap()).unwrap()
            }
        }
    }

    /// Ends whatever a test left.
    pub(crate) fn clear(self, home: &Path) {
        let sandboxes = std::fs::read_dir(home.join("sandboxes")).into_iter().flatten().flatten();
        match self {
            Self::Embedded => {
                for sandbox in sandboxes {
                    if let Ok(Some(process)) = workspace_host::Process::read(&sandbox.path().join("process"))
                    {
                        process.kill();
                    }
                    drop(workspace_host::cgroup::remove(&sandbox.file_name().to_string_lossy()));
                }
                if let Ok(holder) = Holder::find_or_start(home) {
                    holder.end();
                }
            }
            Self::Docker => {
                for sandbox in sandboxes {
                    docker::say(&["rm", "--force", &sandbox.file_name().to_string_lossy()]);
                }
            }
            Self::Oci => {
                for id in runc(home, &["list", "--quiet"]).lines() {
                    runc(home, &["delete", "--force", id]);
                }
            }
        }
    }
}

fn runc(home: &Path, words: &[&str]) -> String {
    let program = find("runc").unwrap();
    let output = Command::new(program).arg("--root").arg(home.join("oci")).args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program of the machine's; not everybody's path has what only the superuser runs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let places = std::env::split_paths(&path).chain(more);
    places.map(|place| place.join(program)).find(|path| path.is_file())
}
