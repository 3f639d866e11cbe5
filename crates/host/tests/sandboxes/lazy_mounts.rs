//! Lazy mounts as lower layers of overlays, both in the namespaces of a holder.
//!
//! [`LazyMountFixture`] has a store, a lazy mount of it (a read-only FUSE mount of its snapshots), and the layers of an
//! overlay ([`Mounted`]).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use libtest_mimic::Trial;
use workspace_host::NamespaceHolder;
use workspace_host::overlay::{self, Xattrs};
use workspace_mount::{MountOptions, daemon_main, spawn_daemon};
use workspace_state::{Attributes, NewSnapshot, Snapshot, Store, VirtualTree};
use workspace_test_support::{requires, wait_until};

use crate::overlays::Mounted;

pub(crate) fn trials() -> Vec<Trial> {
    if !are_possible() {
        return Vec::new();
    }
    crate::trials![
        a_lazy_mount_can_be_the_only_lower_layer,
        a_lazy_mount_can_be_the_lowest_of_several_layers,
        overlay_attributes_in_a_lazy_mount_are_data,
        a_dead_lazy_mount_is_detected_and_replaced,
        files_of_a_lazy_mount_belong_to_the_sandbox_user,
    ]
}

/// Returns true if lazy mounts are possible here, which needs `/dev/fuse`. In CI they must be.
pub(crate) fn are_possible() -> bool {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    let reason = device.as_ref().err().map(ToString::to_string).unwrap_or_default();
    requires(device.is_ok(), format_args!("/dev/fuse: {reason}"))
}

/// First argument of a process that serves a lazy mount.
const SERVE: &str = "serve-lazy-mount";
/// First argument of a process that prints the extended attributes of a file in an overlay.
const ATTRIBUTES: &str = "attributes-of";

/// Serves a lazy mount, or reads a file in it, if this process was started for that.
pub(crate) fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    match words.next()?.to_str()? {
        SERVE => Some(match daemon_main(words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        }),
        ATTRIBUTES => {
            let path = PathBuf::from(words.next()?);
            for name in crate::overlays::attributes(&path) {
                println!("{name}={}", crate::overlays::attribute(&path, &name).unwrap_or_default());
            }
            Some(ExitCode::SUCCESS)
        }
        _ => None,
    }
}

/// Store with a lazy mount of it, and an overlay to be mounted over that.
pub(crate) struct LazyMountFixture {
    mounted: Mounted,
    store: Store,
}

impl LazyMountFixture {
    /// Creates an empty store, and layers without a mount. No lazy mount is served yet.
    pub(crate) fn new() -> Self {
        let mounted = Mounted::new();
        let store = Store::open_or_create(mounted.home.path("store")).unwrap();
        fs::create_dir(mounted.home.path("lazy-mount")).unwrap();
        Self { mounted, store }
    }

    /// Commits a new snapshot with the tree that `fill` makes from an empty one.
    pub(crate) fn commit(&self, fill: impl FnOnce(&mut VirtualTree)) -> Snapshot {
        let mut tree = self.store.empty_tree().unwrap();
        fill(&mut tree);
        tree.commit(NewSnapshot::with_message("test")).unwrap()
    }

    /// Returns the mountpoint of the lazy mount.
    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.mounted.home.path("lazy-mount")
    }

    /// Returns the directory of a snapshot in the lazy mount.
    pub(crate) fn snapshot_dir(&self, snapshot: &Snapshot) -> PathBuf {
        self.mountpoint().join(snapshot.id.to_string())
    }

    /// Starts a process that serves the lazy mount, in the namespaces of the holder. The options for extended
    /// attributes of overlays are replaced by those that this user needs.
    #[track_caller]
    pub(crate) fn serve(&self, options: &MountOptions) {
        let holder = &self.mounted.home.holder;
        let options = MountOptions {
            escape_overlay_xattrs: overlay::xattrs(holder) == Xattrs::User,
            ..options.clone()
        };
        let mut command = overlay::command(holder, std::env::current_exe().unwrap().as_os_str());
        command.arg(SERVE);
        spawn_daemon(command, self.store.path(), &self.mountpoint(), &options).unwrap();
    }

    /// Returns the attributes of a file as they appear in the overlay.
    fn attributes(&self, name: &str) -> String {
        let holder = &self.mounted.home.holder;
        let mut command = overlay::command(holder, std::env::current_exe().unwrap().as_os_str());
        let output = command.arg(ATTRIBUTES).arg(self.mounted.layers.at.join(name)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the PID of the process that serves the lazy mount; `None` if it does not run.
    fn server_pid(&self) -> Option<i32> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let mut ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mountpoint = self.mountpoint();
        ids.find(|id: &i32| {
            let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.contains(&&b"serve"[..]) && words.contains(&mountpoint.as_os_str().as_encoded_bytes())
        })
    }
}

impl Drop for LazyMountFixture {
    fn drop(&mut self) {
        let holder = &self.mounted.home.holder;
        self.mounted.unmount();
        let _ = overlay::unmount(holder, &self.mountpoint());
        wait_until("the lazy mount ends", || self.server_pid().is_none());
    }
}

/// Fills a tree with entries of all kinds.
fn fill(tree: &mut VirtualTree) {
    tree.write("a/file", "file\n").unwrap();
    tree.write("a/gone", "gone\n").unwrap();
    tree.write("a/deep/er/file", "deep\n").unwrap();
    tree.write("moved/x", "x\n").unwrap();
    tree.write("again/old", "old\n").unwrap();
    tree.symlink("link", "a/file").unwrap();
    let big: Vec<u8> = (0..20_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    tree.write("big", big).unwrap();
    tree.write("program", fs::read("/bin/echo").unwrap()).unwrap();
    tree.chmod("program", 0o755).unwrap();
    let linked = || Attributes { link_label: Some(7), mode: 0o644, ..Attributes::default() };
    tree.put_file("one", &mut &b"linked"[..], linked()).unwrap();
    tree.put_file("two", &mut &b"linked"[..], linked()).unwrap();
    let xattrs = [(b"user.note".to_vec(), b"noted".to_vec())].into();
    let noted = Attributes { mode: 0o600, xattrs, ..Attributes::default() };
    tree.put_file("noted", &mut &b"noted"[..], noted).unwrap();
}

/// Output of `ls -R` for the tree of [`fill`].
const LISTING: &str = ".:\na\nagain\nbig\nlink\nmoved\nnoted\none\nprogram\ntwo\n\n./a:\ndeep\nfile\ngone\n\n\
                       ./a/deep:\ner\n\n./a/deep/er:\nfile\n\n./again:\nold\n\n./moved:\nx\n";

/// Reads, changes, removes and renames entries of an overlay over the tree of [`fill`], and mounts it again.
fn use_all(fixture: &LazyMountFixture) {
    let sh = |script: &str| fixture.mounted.sh(script);
    assert_eq!(sh("cat a/file link a/deep/er/file"), "file\nfile\ndeep\n");
    assert_eq!(sh("stat -c '%s %a' big; stat -c %a program"), "20000000 644\n755\n");
    assert_eq!(sh("./program ran"), "ran\n", "programs are mapped");
    let copy_up = "before=$(cksum < big); printf x >> big; after=$(head -c 20000000 big | cksum); \
                   test \"$before\" = \"$after\" && stat -c %s big";
    assert_eq!(sh(copy_up), "20000001\n");
    assert_eq!(sh("rm a/gone; echo more >> a/file; cat a/file; ls a"), "file\nmore\ndeep\nfile\n");
    assert_eq!(sh("rm -r again; mkdir again; touch again/new; ls again"), "new\n");
    assert_eq!(sh("mv moved renamed; cat renamed/x; test -e moved || echo gone"), "x\ngone\n");
    assert_eq!(
        sh("mv a/deep a/file renamed; ls renamed renamed/deep"),
        "renamed:\ndeep\nfile\nx\n\nrenamed/deep:\ner\n"
    );
    assert_eq!(
        sh("cat one two; ln two three; echo changed > three; cat two; chmod 640 noted; stat -c %a noted"),
        "linkedlinkedchanged\n640\n"
    );
    assert_eq!(fixture.attributes("noted"), "user.note=noted\n", "copied up with its attributes");
    assert!(fixture.mounted.unmount());
    fixture.mounted.mount();
    assert_eq!(sh("cat renamed/file three; ls again"), "file\nmore\nchanged\nnew\n", "mounted again");
}

fn a_lazy_mount_can_be_the_only_lower_layer() {
    let mut fixture = LazyMountFixture::new();
    let snapshot = fixture.commit(fill);
    fixture.serve(&MountOptions::default());
    fixture.mounted.layers.lower = vec![fixture.snapshot_dir(&snapshot)];
    fixture.mounted.mount();
    assert_eq!(fixture.mounted.sh("ls -R"), LISTING);
    assert_eq!(fixture.attributes("noted"), "user.note=noted\n");
    assert_eq!(fixture.attributes("a"), "");
    use_all(&fixture);
}

fn a_lazy_mount_can_be_the_lowest_of_several_layers() {
    let mut fixture = LazyMountFixture::new();
    let snapshot = fixture.commit(fill);
    fixture.serve(&MountOptions::default());
    for number in 0..3 {
        let layer = fixture.mounted.home.path(&format!("layer{number}"));
        fs::create_dir_all(layer.join("a")).unwrap();
        fs::write(layer.join("a").join(format!("in{number}")), "").unwrap();
    }
    let mut lower: Vec<PathBuf> =
        (0..3).map(|number| fixture.mounted.home.path(&format!("layer{number}"))).collect();
    lower.push(fixture.snapshot_dir(&snapshot));
    fixture.mounted.layers.lower = lower;
    fixture.mounted.mount();
    assert_eq!(fixture.mounted.sh("ls a; rm a/in?"), "deep\nfile\ngone\nin0\nin1\nin2\n");
    use_all(&fixture);
}

/// Attributes with names of overlay metadata in a snapshot have no effect on overlays.
fn overlay_attributes_in_a_lazy_mount_are_data() {
    let mut fixture = LazyMountFixture::new();
    let forged = |names: &[(&str, &str)]| Attributes {
        mode: 0o755,
        xattrs: names
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect(),
        ..Attributes::default()
    };
    let below = fixture.commit(|tree| {
        tree.write("d/below", "below").unwrap();
        tree.write("f", "below").unwrap();
    });
    let above = fixture.commit(|tree| {
        tree.write("d/above", "above").unwrap();
        tree.put_directory("d", forged(&[("user.overlay.opaque", "y"), ("user.overlay.redirect", "/e")]))
            .unwrap();
        let file = forged(&[
            ("user.overlay.whiteout", "y"),
            ("user.overlay.metacopy", ""),
            ("user.overlay.overlay.x", "twice"),
        ]);
        tree.put_file("f", &mut &b"above"[..], file).unwrap();
    });
    fixture.serve(&MountOptions::default());
    fixture.mounted.layers.lower = vec![fixture.snapshot_dir(&above), fixture.snapshot_dir(&below)];
    fixture.mounted.mount();
    assert_eq!(fixture.mounted.sh("ls d; cat f"), "above\nbelow\nabove");
    let seen = "user.overlay.metacopy=\nuser.overlay.overlay.x=twice\nuser.overlay.whiteout=y\n";
    assert_eq!(fixture.attributes("f"), seen);
    assert_eq!(fixture.attributes("d"), "user.overlay.opaque=y\nuser.overlay.redirect=/e\n");
    // After a copy-up they are still data.
    fixture.mounted.sh("chmod 700 d f");
    assert_eq!(fixture.mounted.sh("ls d; cat f"), "above\nbelow\nabove");
    let mut copied: Vec<String> = fixture.attributes("f").lines().map(str::to_owned).collect();
    copied.sort();
    assert_eq!(copied.join("\n") + "\n", seen);
}

fn a_dead_lazy_mount_is_detected_and_replaced() {
    let mut fixture = LazyMountFixture::new();
    let snapshot = fixture.commit(|tree| tree.write("f", "content").unwrap());
    let holder = fixture.mounted.home.holder.clone();
    fixture.serve(&MountOptions::default());
    let responds =
        |fixture: &LazyMountFixture| overlay::is_responding(&holder, &fixture.mountpoint()).unwrap();
    assert!(responds(&fixture));
    crate::launcher::signal(fixture.server_pid().unwrap(), rustix::process::Signal::KILL);
    wait_until("the lazy mount dies", || !responds(&fixture));
    fixture.serve(&MountOptions::default());
    assert!(responds(&fixture));
    fixture.mounted.layers.lower = vec![fixture.snapshot_dir(&snapshot)];
    fixture.mounted.mount();
    assert_eq!(fixture.mounted.sh("cat f"), "content");
}

fn files_of_a_lazy_mount_belong_to_the_sandbox_user() {
    let mut fixture = LazyMountFixture::new();
    let snapshot = fixture.commit(|tree| {
        let closed = Attributes { mode: 0o600, ..Attributes::default() };
        tree.put_file("d/f", &mut &b"mine\n"[..], closed).unwrap();
    });
    // In the namespace of an ordinary user's holder there is no other user.
    let owner = match &fixture.mounted.home.holder {
        NamespaceHolder::None => (61_236, 61_237),
        NamespaceHolder::Process(_) => (0, 0),
    };
    fixture.serve(&MountOptions { owner: Some(owner), ..MountOptions::default() });
    fixture.mounted.layers.lower = vec![fixture.snapshot_dir(&snapshot)];
    fs::set_permissions(&fixture.mounted.layers.upper, fs::Permissions::from_mode(0o777)).unwrap();
    fixture.mounted.mount();
    let (user, group) = owner;
    assert_eq!(fixture.mounted.sh("stat -c '%u %g' d d/f"), format!("{user} {group}\n{user} {group}\n"));
    if user != 0 {
        let script = format!(
            "setpriv --reuid {user} --regid {group} --clear-groups sh -c 'echo more >> d/f; cat d/f'"
        );
        assert_eq!(fixture.mounted.sh(&script), "mine\nmore\n");
    }
}
