//! Sandboxes with UIDs of their own, over files of one user.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox and launches it; `Sandbox::sh` runs a shell command in it
//! and returns the output. `LazyMountFixture` (`lazy_mounts.rs`) has a store, a lazy mount of it,
//! and an overlay over that.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use workspace_host::dedicated_uids::{self, DedicatedUids};
use workspace_host::launch::{launch, shared_sandbox_ids};
use workspace_host::overlay::{self, Overlay, Upper};
use workspace_host::{LazyMount, NamespaceHolder};
use workspace_host::{attach_workspace, swap_workspace};
use workspace_mount::MountOptions;
use workspace_test_support::skip;

use crate::guest::{Fixture, KEEP_DESCRIPTORS, Sandbox, SandboxPaths};
use crate::kernel_limits::use_all_inotify_instances;
use crate::lazy_mounts::{self, LazyMountFixture};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = crate::trials![the_probe_says_why_uids_are_not_available];
    macro_rules! with_dedicated_uids {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(stringify!($name), || {
                if are_available() {
                    $name();
                }
                Ok(())
            })),*]
        };
    }
    trials.extend(with_dedicated_uids![
        each_sandbox_runs_with_its_own_uid,
        sandboxes_drop_the_groups_of_the_server,
        files_have_the_own_uid_inside_and_the_shared_uid_on_disk,
        layers_are_shared_between_uids,
        an_attached_workspace_is_id_mapped,
        a_lazy_mount_is_id_mapped_to_several_users,
        pipe_pages_of_one_sandbox_do_not_starve_others,
        descriptors_in_flight_do_not_starve_other_uids,
        inotify_of_one_uid_does_not_starve_others,
    ]);
    trials
}

/// Returns true if sandboxes can have dedicated UIDs here. Otherwise records the test as skipped.
fn are_available() -> bool {
    let here = tempfile::tempdir().unwrap();
    let holder = NamespaceHolder::find_or_start(here.path()).unwrap();
    let probed = dedicated_uids::probe(&holder, here.path(), LazyMount::Unused);
    holder.kill();
    if let Err(reason) = &probed {
        skip(format_args!("sandboxes with dedicated UIDs: {reason}"));
    }
    probed.is_ok()
}

fn the_probe_says_why_uids_are_not_available() {
    let home = Fixture::new();
    let probed = dedicated_uids::probe(&home.holder, &home.path(""), LazyMount::Used);
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    if home.holder != NamespaceHolder::None {
        assert!(probed.unwrap_err().contains("only a server that runs as root"));
    } else if !map.split_whitespace().eq(["0", "0", "4294967295"]) {
        assert!(probed.unwrap_err().contains("too few ids"));
    }
    // Nothing is left of the probe.
    assert!(!home.path("overlay-probe").exists());
}

/// Returns a UID for the sandbox of a home.
fn user(home: &Fixture) -> u32 {
    DedicatedUids::default().allocate(home.id())
}

fn launch_own(home: &Fixture) -> Sandbox<'_> {
    home.launch(|launch| launch.dedicated_uid = Some(user(home)))
}

/// Returns the ids in a line of `/proc/PID/status`.
fn ids(sandbox: &Sandbox<'_>, name: &str) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{}/status", sandbox.process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn shared() -> u32 {
    shared_sandbox_ids(&NamespaceHolder::None).unwrap().0
}

fn uid(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().uid()
}

/// Writes a file of the user that all sandboxes share.
fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    chown(path, Some(shared()), Some(shared())).unwrap();
}

fn each_sandbox_runs_with_its_own_uid() {
    let homes = [Fixture::new(), Fixture::new(), Fixture::new()];
    let own: Vec<Sandbox<'_>> = homes[..2].iter().map(launch_own).collect();
    for (home, sandbox) in homes.iter().zip(&own) {
        assert_eq!(ids(sandbox, "Uid:"), [user(home); 4]);
        assert_eq!(ids(sandbox, "Gid:"), [user(home); 4]);
        assert_eq!(dedicated_uids::uid_of(&sandbox.process).unwrap(), Some(user(home)));
        assert_eq!(sandbox.sh("id -u; id -g; id -un"), "1000\n1000\nsandbox\n");
        assert_eq!(sandbox.sh("stat -c '%u %g' /etc/passwd /home/sandbox"), "0 0\n1000 1000\n");
        assert_eq!(uid(&home.path("output")), user(home));
    }
    assert_ne!(user(&homes[0]), user(&homes[1]));
    // One without a UID of its own, as from older servers.
    let old = homes[2].launch(|_| {});
    assert_eq!(ids(&old, "Uid:"), [shared(); 4]);
    assert_eq!(dedicated_uids::uid_of(&old.process).unwrap(), None);
}

/// First argument of [`run`]; the home follows.
const IN_GROUPS: &str = "launch-in-groups";

/// Launches a sandbox as a user with supplementary groups.
pub(crate) fn run() -> Option<std::process::ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != IN_GROUPS {
        return None;
    }
    let home = PathBuf::from(words.next()?);
    let paths = SandboxPaths::of(&home);
    launch(&paths.launch(&NamespaceHolder::None)).unwrap();
    Some(std::process::ExitCode::SUCCESS)
}

fn sandboxes_drop_the_groups_of_the_server() {
    let home = Fixture::new();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--groups", "4,24,27", "--"]).arg(std::env::current_exe().unwrap());
    assert!(command.arg(IN_GROUPS).arg(home.path("")).status().unwrap().success());
    let sandbox = home.found();
    assert_eq!(sandbox.sh("id -G"), "1000\n");
    assert!(ids(&sandbox, "Groups:").is_empty());
}

fn files_have_the_own_uid_inside_and_the_shared_uid_on_disk() {
    let home = Fixture::new();
    let at = |name: &str| home.path("workspace").join(name);
    put(&at("given"), "old");
    fs::set_permissions(at("given"), fs::Permissions::from_mode(0o600)).unwrap();
    let sandbox = launch_own(&home);
    assert_eq!(
        sandbox.sh("cd /workspace; cat given; echo new > given && cat given; stat -c '%u %g' given ."),
        "oldnew\n1000 1000\n1000 1000\n"
    );
    let made = "cd /workspace; mkdir d && touch d/f && ln -s f d/l && mkfifo d/p && chmod 6755 d/f && chown 1000:1000 d/f && \
                stat -c '%u %g %a' d/f && (chown 0 d/f 2>/dev/null || echo refused)";
    // Changing the owner removes set-ID bits, as anywhere.
    assert_eq!(sandbox.sh(made), "1000 1000 755\nrefused\n");
    assert_eq!(sandbox.sh("cd /workspace; chmod 6755 d/f && stat -c %a d/f"), "6755\n");
    for name in ["given", "d", "d/f", "d/l", "d/p"] {
        assert_eq!(uid(&at(name)), shared(), "{name}");
        assert_eq!(fs::symlink_metadata(at(name)).unwrap().gid(), shared(), "{name}");
    }
    assert_eq!(fs::metadata(at("d/f")).unwrap().mode() & 0o7777, 0o6755);
    // Files that the kernel counts per user are on disk too, under the shared one.
    assert_eq!(sandbox.sh("cd /workspace; rm -r d given && ls"), "");
}

/// Mounts an overlay for the sandbox of a home, over a shared layer.
fn mount_over(home: &Fixture, layers: &[PathBuf], idmap_uid: Option<u32>) -> PathBuf {
    let [upper, work, at] = ["place/upper", "place/work", "place/mount"].map(|name| home.path(name));
    for made in [&upper, &work, &at] {
        fs::create_dir_all(made).unwrap();
    }
    chown(&upper, Some(shared()), Some(shared())).unwrap();
    let mount = Overlay {
        lower: layers,
        upper: Some(Upper { directory: &upper, work: &work }),
        mount_point: &at,
        idmap_uid,
    };
    overlay::mount(&home.holder, &mount).unwrap();
    at
}

/// Mount that ends before its fixture.
struct Mounted<'a>(&'a Fixture);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        drop(overlay::unmount(&self.0.holder, &self.0.path("place/mount")));
    }
}

fn layers_are_shared_between_uids() {
    let homes = [Fixture::new(), Fixture::new(), Fixture::new()];
    let layer = homes[0].path("layer");
    fs::create_dir(&layer).unwrap();
    chown(&layer, Some(shared()), Some(shared())).unwrap();
    put(&layer.join("file"), "old\n");
    put(&layer.join("gone"), "");
    fs::set_permissions(layer.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    // The last one as from older servers.
    let users = [Some(user(&homes[0])), Some(user(&homes[1])), None];
    for (home, user) in homes.iter().zip(users) {
        let at = mount_over(home, std::slice::from_ref(&layer), user);
        let _mounted = Mounted(home);
        let sandbox = home.launch(|launch| {
            launch.dedicated_uid = user;
            launch.workspace = Some(&at);
        });
        let printed =
            sandbox.sh("cd /workspace; cat file; echo new >> file; rm gone; echo mine > mine; stat -c %u file mine .; ls");
        assert_eq!(printed, "old\n1000\n1000\n1000\nfile\nmine\n");
        for name in ["file", "mine", ""] {
            assert_eq!(uid(&home.path("place/upper").join(name)), shared(), "{name}");
        }
    }
    assert_eq!(fs::read_to_string(layer.join("file")).unwrap(), "old\n");
}

fn an_attached_workspace_is_id_mapped() {
    let home = Fixture::new();
    let sandbox = home.launch(|launch| {
        launch.dedicated_uid = Some(user(&home));
        launch.workspace = None;
    });
    put(&home.path("workspace").join("file"), "first\n");
    attach_workspace(&home.holder, &sandbox.process, &home.path("workspace")).unwrap();
    assert_eq!(
        sandbox.sh("cd /workspace; echo more >> file; stat -c %u file; cat file"),
        "1000\nfirst\nmore\n"
    );
    fs::create_dir(home.path("other")).unwrap();
    put(&home.path("other/file"), "second\n");
    swap_workspace(&home.holder, &sandbox.process, &home.path("other")).unwrap();
    assert_eq!(
        sandbox.sh("cd /workspace; echo more >> file; stat -c %u file; cat file"),
        "1000\nsecond\nmore\n"
    );
    let layer = home.path("layer");
    fs::create_dir(&layer).unwrap();
    put(&layer.join("file"), "third\n");
    let at = mount_over(&home, &[layer], Some(user(&home)));
    let _mounted = Mounted(&home);
    swap_workspace(&home.holder, &sandbox.process, &at).unwrap();
    assert_eq!(
        sandbox.sh("cd /workspace; echo more >> file; stat -c %u file; cat file"),
        "1000\nthird\nmore\n"
    );
    assert_eq!(uid(&home.path("other/file")), shared());
}

fn a_lazy_mount_is_id_mapped_to_several_users() {
    if !lazy_mounts::are_possible() {
        return;
    }
    if let Err(reason) = dedicated_uids::probe(&NamespaceHolder::None, &std::env::temp_dir(), LazyMount::Used)
    {
        skip(format_args!("id-mapped lazy mounts: {reason}"));
        return;
    }
    let homes = [Fixture::new(), Fixture::new()];
    let fixture = LazyMountFixture::new();
    let snapshot = fixture.commit(|tree| {
        tree.write("file", "old").unwrap();
        tree.chmod("file", 0o600).unwrap();
    });
    fixture.serve(&MountOptions {
        owner: shared_sandbox_ids(&NamespaceHolder::None),
        ..MountOptions::default()
    });
    assert!(dedicated_uids::can_idmap(&fixture.mountpoint()));
    for home in &homes {
        let at = mount_over(home, &[fixture.snapshot_dir(&snapshot)], Some(user(home)));
        let _mounted = Mounted(home);
        let sandbox = home.launch(|launch| {
            launch.dedicated_uid = Some(user(home));
            launch.workspace = Some(&at);
        });
        let printed = sandbox.sh("cd /workspace; stat -c %u file .; cat file; echo new > file && cat file");
        assert_eq!(printed, "1000\n1000\noldnew\n");
        assert_eq!(uid(&home.path("place/upper/file")), shared());
    }
}

/// Size of a pipe of a user who has few, in pages.
const PAGES_OF_A_PIPE: u64 = 16;

/// Creates pipes until they get smaller than usual, at most 5,000, and keeps them until the sandbox ends.
/// Returns the number of pipes of the usual size.
fn use_all_pipe_pages(sandbox: &Sandbox<'_>) -> u64 {
    let take = "$| = 1; my @kept; my $full = 0; for (1..5000) { pipe(my $r, my $w) or last; push @kept, $r, $w; \
                last if fcntl($r, 1032, 0) < 65536; $full++ } \
                print qq($full\\n); close STDOUT; sleep 100";
    sandbox.sh(&format!("(perl -e '{take}' 2>/dev/null &) | head -1")).trim().parse().unwrap()
}

fn pipe_pages_of_one_sandbox_do_not_starve_others() {
    let most = fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").unwrap();
    let most: u64 = most.trim().parse().unwrap();
    if !(1024..=65_536).contains(&most) {
        return skip(format_args!("a user of this machine may have {most} pages in pipes"));
    }
    let homes: Vec<Fixture> = (0..4).map(|_| Fixture::new()).collect();
    let own: Vec<Sandbox<'_>> = homes[..2].iter().map(launch_own).collect();
    let pipes_of_a_user = most / PAGES_OF_A_PIPE;
    let taken: Vec<u64> = own.iter().map(use_all_pipe_pages).collect();
    assert!(taken.iter().all(|pipes| *pipes > pipes_of_a_user / 2), "{taken:?} of {pipes_of_a_user}");
    // Without UIDs of their own they share the pipes of one user. Other tests run as that user too and close
    // their pipes at any time, so only the sum is certain.
    let sharing: Vec<Sandbox<'_>> = homes[2..].iter().map(|home| home.launch(|_| {})).collect();
    let taken: Vec<u64> = sharing.iter().map(use_all_pipe_pages).collect();
    assert!(taken.iter().sum::<u64>() <= pipes_of_a_user, "{taken:?} of {pipes_of_a_user}");
}

fn descriptors_in_flight_do_not_starve_other_uids() {
    let homes = [Fixture::new(), Fixture::new()];
    let own: Vec<Sandbox<'_>> = homes.iter().map(launch_own).collect();
    let kept: Vec<usize> = own.iter().map(|sandbox| sandbox.sh(KEEP_DESCRIPTORS).parse().unwrap()).collect();
    assert!(kept[0] > 1024 && kept[0] == kept[1], "{kept:?}");
}

fn inotify_of_one_uid_does_not_starve_others() {
    let homes: Vec<Fixture> = (0..5).map(|_| Fixture::new()).collect();
    let own: Vec<Sandbox<'_>> = homes.iter().map(launch_own).collect();
    let taken: Vec<u64> = own.iter().map(use_all_inotify_instances).collect();
    assert!(taken[0] >= 16 && taken.iter().all(|one| *one == taken[0]), "{taken:?}");
}
