//! The runtimes that every test runs on, and how to reach their sandboxes from outside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use workspace_host::Holder;
use workspace_sandbox::runtime::{Docker, Embedded, Oci, Runtime};

use crate::docker;
use crate::home::agent_program;

/// A runtime under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Embedded,
    Docker,
    /// With `runc`.
    Oci,
    /// The same with `crun`.
    Crun,
}

/// What is tried on `crun` unless everything is: it runs the bundles that `runc` runs.
const FEW: [&str; 19] = [
    "a_sandbox_is_made_used_and_removed",
    "many_are_made_at_once",
    "a_sandbox_whose_processes_are_killed_is_in_error",
    "what_it_uses_is_counted",
    "processes_and_memory_are_limited",
    "a_command_is_killed_and_what_it_started_too",
    "a_counter_stands_still_while_frozen",
    "a_frozen_sandbox_is_removed",
    "another_workspace_takes_its_place",
    "everything_goes_on_without_the_server",
    "what_died_meanwhile_is_an_error",
    "what_nobody_knows_of_is_removed",
    "files_of_the_machine_are_out_of_reach",
    "nothing_can_be_mounted_or_unmounted",
    "namespaces_give_no_rights",
    "there_are_no_devices",
    "settings_of_the_kernel_cannot_be_written",
    "the_token_is_nowhere",
    "dangerous_system_calls_are_refused",
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Docker => "docker",
            Self::Oci => "oci",
            Self::Crun => "crun",
        }
    }

    /// Whether the test of that name is run on it.
    pub(crate) fn runs(self, test: &str) -> bool {
        let full = std::env::var_os("WORKSPACE_TEST_FULL").is_some();
        self != Self::Crun || full || FEW.contains(&test)
    }

    /// Those that this user can run here. An ordinary one can run the embedded runtime alone: Docker's daemon and
    /// `runc` with limits need the superuser.
    pub(crate) fn here() -> Vec<Self> {
        if !rustix::process::geteuid().is_root() {
            return vec![Self::Embedded];
        }
        let mut here = vec![Self::Embedded];
        for (kind, programs) in [
            (Self::Docker, &["dockerd", "docker", "busybox"][..]),
            (Self::Oci, &["runc"]),
            (Self::Crun, &["crun"]),
        ] {
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
            Self::Oci | Self::Crun => {
                let (program, templates) = (self.program(home), home.join("templates"));
                let program = program.to_str().unwrap();
                Arc::new(Oci::start(program, &home.join("oci"), &agent, &templates).await.unwrap())
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
            Self::Oci | Self::Crun => {
                let state = self.say(home, &["state", id]);
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
            Self::Oci | Self::Crun => {
                for id in self.say(home, &["list", "--quiet"]).lines() {
                    self.say(home, &["delete", "--force", id]);
                }
            }
        }
    }

    /// The program of an OCI runtime.
    fn program(self, home: &Path) -> PathBuf {
        match self {
            Self::Crun if mixes_groups() => crun_with_one_kind_of_groups(home),
            Self::Crun => find("crun").unwrap(),
            _ => find("runc").unwrap(),
        }
    }

    /// What that program prints.
    fn say(self, home: &Path, words: &[&str]) -> String {
        let mut command = Command::new(self.program(home));
        let output = command.arg("--root").arg(home.join("oci")).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Where the second version of control groups is, on a machine that has the first as well.
const UNIFIED: &str = "/sys/fs/cgroup/unified";

/// Whether the machine has both kinds of control groups, with something to control in each; `crun` refuses that.
fn mixes_groups() -> bool {
    let controllers = std::fs::read_to_string(format!("{UNIFIED}/cgroup.controllers"));
    controllers.is_ok_and(|controllers| !controllers.trim().is_empty())
}

/// `crun` where it does not see the second kind.
fn crun_with_one_kind_of_groups(home: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let (script, crun) = (home.join("crun"), find("crun").unwrap());
    if !script.exists() {
        let line = format!("umount {UNIFIED} && exec {} \"$@\"", crun.display());
        // Others may look for it at the same time.
        let new = home.join(format!("crun-{:?}", std::thread::current().id()));
        std::fs::write(&new, format!("#!/bin/sh\nexec unshare --mount sh -c '{line}' crun \"$@\"\n"))
            .unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&new, &script).unwrap();
    }
    script
}

/// A program of the machine's; not everybody's path has what only the superuser runs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let places = std::env::split_paths(&path).chain(more);
    places.map(|dir| dir.join(program)).find(|path| path.is_file())
}
