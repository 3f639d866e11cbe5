//! The runtimes that every test runs on, and how to access their sandboxes from outside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use workspace_sandbox::runtime::{Docker, Embedded, Oci, Runtime};
use workspace_test_support::{find_program, requires};

use crate::docker;
use crate::home::agent_program;

/// A runtime under test, and the program of an OCI runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuntimeKind {
    Embedded,
    Docker,
    /// The OCI runtime with `runc`.
    Oci,
    /// The OCI runtime with `crun`.
    Crun,
}

/// Tests that run on `crun` by default: it runs the same bundles as `runc`.
const CRUN_TESTS: [&str; 20] = [
    "sandbox_is_created_used_and_removed",
    "many_sandboxes_are_created_concurrently",
    "a_sandbox_whose_processes_are_killed_is_in_error",
    "stats_report_resource_usage",
    "resource_usage_is_measured",
    "processes_and_memory_are_limited",
    "killing_a_command_kills_its_children",
    "frozen_process_makes_no_progress",
    "frozen_sandbox_can_be_removed",
    "workspace_of_a_running_sandbox_is_replaced",
    "sandboxes_keep_running_without_a_server",
    "sandbox_that_died_without_a_server_is_stopped",
    "orphans_are_removed",
    "host_files_are_inaccessible",
    "nothing_can_be_mounted_or_unmounted",
    "new_namespaces_give_no_privileges",
    "devices_are_inaccessible",
    "kernel_settings_cannot_be_written",
    "token_is_not_visible_inside_the_sandbox",
    "dangerous_system_calls_are_refused",
];

impl RuntimeKind {
    /// Returns the name of the runtime in names of tests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Docker => "docker",
            Self::Oci => "oci",
            Self::Crun => "crun",
        }
    }

    /// Returns true if the test with that name is run on it.
    pub(crate) fn runs(self, test: &str) -> bool {
        let full = std::env::var_os("WORKSPACE_TEST_FULL").is_some();
        self != Self::Crun || full || CRUN_TESTS.contains(&test)
    }

    /// Returns the runtimes that this user can run on this machine. An unprivileged user has the embedded runtime only:
    /// Docker's daemon and `runc` with limits need root.
    pub(crate) fn available() -> Vec<Self> {
        if !rustix::process::geteuid().is_root() {
            return vec![Self::Embedded];
        }
        let mut available = vec![Self::Embedded];
        for (kind, programs) in [
            (Self::Docker, &["dockerd", "docker", "busybox"][..]),
            (Self::Oci, &["runc"]),
            (Self::Crun, &["crun"]),
        ] {
            match programs.iter().find(|program| find_program(program).is_none()) {
                None => available.push(kind),
                Some(missing) => {
                    _ = requires(false, format_args!("`{missing}` for the {} runtime", kind.name()));
                }
            }
        }
        available
    }

    /// Starts the runtime with its state below `home`.
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

    /// Returns the PID of the first process of a sandbox on the host.
    pub(crate) fn pid(self, home: &Path, id: &str) -> i32 {
        match self {
            Self::Embedded => {
                let record = home.join("sandboxes").join(id).join("process");
                workspace_host::Process::read(&record).unwrap().unwrap().pid()
            }
            Self::Docker => {
                docker::run(&["inspect", "--format", "{{.State.Pid}}", id]).trim().parse().unwrap()
            }
            Self::Oci | Self::Crun => {
                let state = self.run_program(home, &["state", id]);
                let state: serde_json::Value = serde_json::from_str(&state).unwrap();
                i32::try_from(state["pid"].as_i64().unwrap()).unwrap()
            }
        }
    }

    /// Kills all sandboxes, and the namespace holder, that a test left.
    pub(crate) fn kill_leftovers(self, home: &Path) {
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
                if let Ok(Some(holder)) = workspace_host::Process::read(&home.join("holder")) {
                    holder.kill();
                }
            }
            Self::Docker => {
                for sandbox in sandboxes {
                    docker::run(&["rm", "--force", &sandbox.file_name().to_string_lossy()]);
                }
            }
            Self::Oci | Self::Crun => {
                for id in self.run_program(home, &["list", "--quiet"]).lines() {
                    self.run_program(home, &["delete", "--force", id]);
                }
            }
        }
    }

    /// Returns the path of the program of an OCI runtime.
    fn program(self, home: &Path) -> PathBuf {
        match self {
            Self::Crun if has_both_cgroup_versions() => crun_without_cgroup_v2(home),
            Self::Crun => find_program("crun").unwrap(),
            _ => find_program("runc").unwrap(),
        }
    }

    /// Runs that program, and returns its output.
    fn run_program(self, home: &Path, words: &[&str]) -> String {
        let mut command = Command::new(self.program(home));
        let output = command.arg("--root").arg(home.join("oci")).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Mount point of cgroup v2, on a machine with cgroup v1 as well.
const UNIFIED: &str = "/sys/fs/cgroup/unified";

/// Returns true if the machine has controllers in cgroup v1 and v2; `crun` refuses that.
fn has_both_cgroup_versions() -> bool {
    let controllers = std::fs::read_to_string(format!("{UNIFIED}/cgroup.controllers"));
    controllers.is_ok_and(|controllers| !controllers.trim().is_empty())
}

/// Makes a script that runs `crun` without access to cgroup v2.
fn crun_without_cgroup_v2(home: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let (script, crun) = (home.join("crun"), find_program("crun").unwrap());
    if !script.exists() {
        let line = format!("umount {UNIFIED} && exec {} \"$@\"", crun.display());
        // Written under another name and renamed, because concurrent tests may start it.
        let new = home.join(format!("crun-{:?}", std::thread::current().id()));
        std::fs::write(&new, format!("#!/bin/sh\nexec unshare --mount sh -c '{line}' crun \"$@\"\n"))
            .unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&new, &script).unwrap();
    }
    script
}
