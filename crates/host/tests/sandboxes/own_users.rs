//! Sandboxes that run as users of their own over files that belong to one.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use workspace_host::Holder;
use workspace_host::launch::{launch, owner};
use workspace_host::overlay::{self, Overlay};
use workspace_host::own_users::{self, OwnUsers};
use workspace_host::{attach, swap};
use workspace_mount::ViewOptions;

use crate::bounds::take_all_instances;
use crate::guest::{Home, KEEP_DESCRIPTORS, Places, Sandbox};
use crate::views::{self, World};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = crate::trials![who_cannot_give_users_says_why];
    let here = tempfile::tempdir().unwrap();
    let holder = Holder::find_or_start(here.path()).unwrap();
    let can = own_users::probe(&holder, here.path(), false);
    holder.end();
    match can {
        Ok(()) => trials.extend(crate::trials![
            each_runs_as_a_user_of_its_own,
            groups_of_the_server_are_left,
            files_are_its_own_inside_and_those_of_all_on_the_disk,
            layers_are_shared_between_users,
            a_workspace_that_comes_later_is_shown_to_the_user,
            a_lazy_view_is_shown_to_several_users,
            pages_in_pipes_are_left_for_others,
            descriptors_on_their_way_are_left_for_others,
            inotify_is_left_for_others,
        ]),
        Err(reason) => eprintln!("skipped: sandboxes have no users of their own here: {reason}"),
    }
    trials
}

fn who_cannot_give_users_says_why() {
    let home = Home::new();
    let probed = own_users::probe(&home.holder, &home.path(""), true);
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    if home.holder != Holder::Machine {
        assert!(probed.unwrap_err().contains("only a server that root runs"));
    } else if !map.split_whitespace().eq(["0", "0", "4294967295"]) {
        assert!(probed.unwrap_err().contains("too few ids"));
    }
    // Nothing is left of the attempt.
    assert!(!home.path("overlay-probe").exists());
}

/// A user for the sandbox of a home.
fn user(home: &Home) -> u32 {
    OwnUsers::default().give(home.id())
}

fn launch_own(home: &Home) -> Sandbox<'_> {
    home.launch(|launch| launch.user = Some(user(home)))
}

/// A line of what the kernel tells of a process: its ids.
fn ids(sandbox: &Sandbox<'_>, name: &str) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{}/status", sandbox.process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn shared() -> u32 {
    owner(&Holder::Machine).unwrap().0
}

fn uid(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().uid()
}

/// A file that belongs to the user that all sandboxes share.
fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    chown(path, Some(shared()), Some(shared())).unwrap();
}

fn each_runs_as_a_user_of_its_own() {
    let homes = [Home::new(), Home::new(), Home::new()];
    let own: Vec<Sandbox<'_>> = homes[..2].iter().map(launch_own).collect();
    for (home, sandbox) in homes.iter().zip(&own) {
        assert_eq!(ids(sandbox, "Uid:"), [user(home); 4]);
        assert_eq!(ids(sandbox, "Gid:"), [user(home); 4]);
        assert_eq!(own_users::of(&sandbox.process).unwrap(), Some(user(home)));
        assert_eq!(sandbox.sh("id -u; id -g; id -un"), "1000\n1000\nsandbox\n");
        assert_eq!(sandbox.sh("stat -c '%u %g' /etc/passwd /home/sandbox"), "0 0\n1000 1000\n");
        assert_eq!(uid(&home.path("output")), user(home));
    }
    assert_ne!(user(&homes[0]), user(&homes[1]));
    // One that is launched without, as older servers did.
    let old = homes[2].launch(|_| {});
    assert_eq!(ids(&old, "Uid:"), [shared(); 4]);
    assert_eq!(own_users::of(&old.process).unwrap(), None);
}

/// The words of [`launch_in_groups`], the home behind them.
const IN_GROUPS: &str = "launch-in-groups";

/// Runs as somebody who is in groups: launches a sandbox as a server would.
pub(crate) fn run() -> Option<std::process::ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != IN_GROUPS {
        return None;
    }
    let home = PathBuf::from(words.next()?);
    let places = Places::of(&home);
    launch(&places.launch(&Holder::Machine)).unwrap();
    Some(std::process::ExitCode::SUCCESS)
}

fn groups_of_the_server_are_left() {
    let home = Home::new();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--groups", "4,24,27", "--"]).arg(std::env::current_exe().unwrap());
    assert!(command.arg(IN_GROUPS).arg(home.path("")).status().unwrap().success());
    let sandbox = home.found();
    assert_eq!(sandbox.sh("id -G"), "1000\n");
    assert!(ids(&sandbox, "Groups:").is_empty());
}

fn files_are_its_own_inside_and_those_of_all_on_the_disk() {
    let home = Home::new();
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
    // A change of the owner takes set-id bits away, as anywhere.
    assert_eq!(sandbox.sh(made), "1000 1000 755\nrefused\n");
    assert_eq!(sandbox.sh("cd /workspace; chmod 6755 d/f && stat -c %a d/f"), "6755\n");
    for name in ["given", "d", "d/f", "d/l", "d/p"] {
        assert_eq!(uid(&at(name)), shared(), "{name}");
        assert_eq!(fs::symlink_metadata(at(name)).unwrap().gid(), shared(), "{name}");
    }
    assert_eq!(fs::metadata(at("d/f")).unwrap().mode() & 0o7777, 0o6755);
    // What the kernel counts by the user of files is on the disk too, and not another's.
    assert_eq!(sandbox.sh("cd /workspace; rm -r d given && ls"), "");
}

/// An overlay for the sandbox of a home, over a layer that others use too.
fn mount_over(home: &Home, layers: &[PathBuf], user: Option<u32>) -> PathBuf {
    let [upper, work, at] = ["place/upper", "place/work", "place/mount"].map(|name| home.path(name));
    for made in [&upper, &work, &at] {
        fs::create_dir_all(made).unwrap();
    }
    chown(&upper, Some(shared()), Some(shared())).unwrap();
    let mount = Overlay { lower: layers, upper: &upper, work: &work, at: &at, user };
    overlay::mount(&home.holder, &mount).unwrap();
    at
}

/// A mount that goes before the home does.
struct Mounted<'a>(&'a Home);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        drop(overlay::unmount(&self.0.holder, &self.0.path("place/mount")));
    }
}

fn layers_are_shared_between_users() {
    let homes = [Home::new(), Home::new(), Home::new()];
    let layer = homes[0].path("layer");
    fs::create_dir(&layer).unwrap();
    chown(&layer, Some(shared()), Some(shared())).unwrap();
    put(&layer.join("file"), "old\n");
    put(&layer.join("gone"), "");
    fs::set_permissions(layer.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    // The last as older servers did.
    let users = [Some(user(&homes[0])), Some(user(&homes[1])), None];
    for (home, user) in homes.iter().zip(users) {
        let at = mount_over(home, std::slice::from_ref(&layer), user);
        let _mounted = Mounted(home);
        let sandbox = home.launch(|launch| {
            launch.user = user;
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

fn a_workspace_that_comes_later_is_shown_to_the_user() {
    let home = Home::new();
    let sandbox = home.launch(|launch| {
        launch.user = Some(user(&home));
        launch.workspace = None;
    });
    put(&home.path("workspace").join("file"), "first\n");
    attach(&home.holder, &sandbox.process, &home.path("workspace")).unwrap();
    assert_eq!(
        sandbox.sh("cd /workspace; echo more >> file; stat -c %u file; cat file"),
        "1000\nfirst\nmore\n"
    );
    fs::create_dir(home.path("other")).unwrap();
    put(&home.path("other/file"), "second\n");
    swap(&home.holder, &sandbox.process, &home.path("other")).unwrap();
    assert_eq!(
        sandbox.sh("cd /workspace; echo more >> file; stat -c %u file; cat file"),
        "1000\nsecond\nmore\n"
    );
    let layer = home.path("layer");
    fs::create_dir(&layer).unwrap();
    put(&layer.join("file"), "third\n");
    let at = mount_over(&home, &[layer], Some(user(&home)));
    let _mounted = Mounted(&home);
    swap(&home.holder, &sandbox.process, &at).unwrap();
    assert_eq!(
        sandbox.sh("cd /workspace; echo more >> file; stat -c %u file; cat file"),
        "1000\nthird\nmore\n"
    );
    assert_eq!(uid(&home.path("other/file")), shared());
}

fn a_lazy_view_is_shown_to_several_users() {
    if !views::possible() || own_users::probe(&Holder::Machine, &std::env::temp_dir(), true).is_err() {
        return;
    }
    let homes = [Home::new(), Home::new()];
    let world = World::new();
    let snapshot = world.commit(|tree| {
        tree.write("file", "old").unwrap();
        tree.chmod("file", 0o600).unwrap();
    });
    world.serve(&ViewOptions { owner: owner(&Holder::Machine), ..ViewOptions::default() });
    assert!(own_users::can_show(&world.view()));
    for home in &homes {
        let at = mount_over(home, &[world.of(&snapshot)], Some(user(home)));
        let _mounted = Mounted(home);
        let sandbox = home.launch(|launch| {
            launch.user = Some(user(home));
            launch.workspace = Some(&at);
        });
        let printed = sandbox.sh("cd /workspace; stat -c %u file .; cat file; echo new > file && cat file");
        assert_eq!(printed, "1000\n1000\noldnew\n");
        assert_eq!(uid(&home.path("place/upper/file")), shared());
    }
}

/// Makes pipes until they are smaller than usual, 5,000 at most, and keeps them until the sandbox ends; the size of the first.
fn take_all_pipe_pages(sandbox: &Sandbox<'_>) -> u64 {
    let take = "$| = 1; my (@kept, $first); for (1..5000) { pipe(my $r, my $w) or last; push @kept, $r, $w; \
                my $size = fcntl($r, 1032, 0); $first //= $size; last if $size < 65536 } \
                print qq($first\\n); close STDOUT; sleep 100";
    sandbox.sh(&format!("(perl -e '{take}' 2>/dev/null &) | head -1")).trim().parse().unwrap()
}

fn pages_in_pipes_are_left_for_others() {
    let most = fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").unwrap();
    let most: u64 = most.trim().parse().unwrap();
    if !(1024..=65_536).contains(&most) {
        eprintln!("not asserted, because a user of this machine may have {most} pages in pipes");
        return;
    }
    let homes: Vec<Home> = (0..4).map(|_| Home::new()).collect();
    let own: Vec<Sandbox<'_>> = homes[..2].iter().map(launch_own).collect();
    assert_eq!([take_all_pipe_pages(&own[0]), take_all_pipe_pages(&own[1])], [65_536; 2]);
    // Without a user of its own, the second finds nothing.
    let sharing: Vec<Sandbox<'_>> = homes[2..].iter().map(|home| home.launch(|_| {})).collect();
    take_all_pipe_pages(&sharing[0]);
    assert!(take_all_pipe_pages(&sharing[1]) < 65_536);
}

fn descriptors_on_their_way_are_left_for_others() {
    let homes = [Home::new(), Home::new()];
    let own: Vec<Sandbox<'_>> = homes.iter().map(launch_own).collect();
    let kept: Vec<usize> = own.iter().map(|sandbox| sandbox.sh(KEEP_DESCRIPTORS).parse().unwrap()).collect();
    assert!(kept[0] > 1024 && kept[0] == kept[1], "{kept:?}");
}

fn inotify_is_left_for_others() {
    let homes: Vec<Home> = (0..5).map(|_| Home::new()).collect();
    let own: Vec<Sandbox<'_>> = homes.iter().map(launch_own).collect();
    let taken: Vec<u64> = own.iter().map(take_all_instances).collect();
    assert!(taken[0] >= 16 && taken.iter().all(|one| *one == taken[0]), "{taken:?}");
}
