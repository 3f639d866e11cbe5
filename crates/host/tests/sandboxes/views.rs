//! Lazy views as the lower layers of overlays, both in the namespaces of a holder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use libtest_mimic::Trial;
use workspace_host::Holder;
use workspace_host::overlay::{self, Xattrs};
use workspace_mount::{ViewOptions, daemon_main, spawn_daemon};
use workspace_state::{Attributes, NewSnapshot, Snapshot, Store, VirtualTree};

use crate::guest::soon;
use crate::overlays::Mounted;

/// Set where these tests are to run, and no others.
pub(crate) const WANTED: &str = "WORKSPACE_TEST_VIEWS";
/// Opens the device to everybody, then becomes the program that follows.
pub(crate) const OPEN_DEVICE: &str = "mount -t tmpfs -o mode=755 none /mnt && mknod -m 666 /mnt/fuse c 10 229 \
                                      && mount --bind /mnt/fuse /dev/fuse && exec \"$0\" \"$@\"";

pub(crate) fn trials() -> Vec<Trial> {
    // To an ordinary user the device may be closed; it is opened where these tests are wanted.
    if !rustix::process::geteuid().is_root() && !wanted() || !possible() {
        return Vec::new();
    }
    crate::trials![
        a_view_is_the_only_layer_below,
        a_view_is_the_lowest_of_several_layers,
        attributes_in_a_view_are_data_in_every_layer,
        a_view_that_has_died_is_noticed_and_replaced,
        files_of_a_view_belong_to_who_works_there,
    ]
}

/// Whether there can be views here; where all tests are asked for there must be.
pub(crate) fn possible() -> bool {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    let all = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    if let Err(error) = &device {
        assert!(!all, "views cannot be tested here: /dev/fuse: {error}");
        eprintln!("views are not tested here: /dev/fuse: {error}");
    }
    device.is_ok()
}

/// Whether these tests are to run alone.
pub(crate) fn wanted() -> bool {
    std::env::var_os(WANTED).is_some()
}

const SERVE: &str = "serve-view";
const ATTRIBUTES: &str = "attributes-of";

/// Does what this process was started for, if that is serving a view, or looking at one.
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

/// A store with a view of it, and an overlay to be mounted over that.
pub(crate) struct World {
    mounted: Mounted,
    store: Store,
}

impl World {
    pub(crate) fn new() -> Self {
        let mounted = Mounted::new();
        let store = Store::open_or_create(mounted.home.path("store")).unwrap();
        fs::create_dir(mounted.home.path("view")).unwrap();
        Self { mounted, store }
    }

    pub(crate) fn commit(&self, fill: impl FnOnce(&mut VirtualTree)) -> Snapshot {
        let mut tree = self.store.empty_tree().unwrap();
        fill(&mut tree);
        tree.commit(NewSnapshot::with_message("test")).unwrap()
    }

    pub(crate) fn view(&self) -> PathBuf {
        self.mounted.home.path("view")
    }

    pub(crate) fn of(&self, snapshot: &Snapshot) -> PathBuf {
        self.view().join(snapshot.id.to_string())
    }

    #[track_caller]
    pub(crate) fn serve(&self, options: &ViewOptions) {
        let holder = &self.mounted.home.holder;
        let options = ViewOptions { escape: overlay::xattrs(holder) == Xattrs::User, ..options.clone() };
        let mut command = overlay::command(holder, std::env::current_exe().unwrap().as_os_str());
        command.arg(SERVE);
        spawn_daemon(command, self.store.path(), &self.view(), &options).unwrap();
    }

    /// Attributes of a file as they are seen through the overlay.
    fn attributes(&self, name: &str) -> String {
        let holder = &self.mounted.home.holder;
        let mut command = overlay::command(holder, std::env::current_exe().unwrap().as_os_str());
        let output = command.arg(ATTRIBUTES).arg(self.mounted.layers.at.join(name)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn server(&self) -> Option<i32> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let mut ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let view = self.view();
        ids.find(|id: &i32| {
            let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.contains(&&b"serve"[..]) && words.contains(&view.as_os_str().as_encoded_bytes())
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let holder = &self.mounted.home.holder;
        self.mounted.unmount();
        let _ = overlay::unmount(holder, &self.view());
        soon("the view ends", || self.server().is_none());
    }
}

/// Something of everything.
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
    let linked = || Attributes { link: Some(7), mode: 0o644, ..Attributes::default() };
    tree.put_file("one", &mut &b"linked"[..], linked()).unwrap();
    tree.put_file("two", &mut &b"linked"[..], linked()).unwrap();
    let xattrs = [(b"user.note".to_vec(), b"noted".to_vec())].into();
    let noted = Attributes { mode: 0o600, xattrs, ..Attributes::default() };
    tree.put_file("noted", &mut &b"noted"[..], noted).unwrap();
}

const LISTING: &str = ".:\na\nagain\nbig\nlink\nmoved\nnoted\none\nprogram\ntwo\n\n./a:\ndeep\nfile\ngone\n\n\
                       ./a/deep:\ner\n\n./a/deep/er:\nfile\n\n./again:\nold\n\n./moved:\nx\n";

/// Does all kinds of things through an overlay over what [`fill`] makes.
fn use_all(world: &World) {
    let sh = |script: &str| world.mounted.sh(script);
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
    assert_eq!(world.attributes("noted"), "user.note=noted\n", "copied up with its attributes");
    assert!(world.mounted.unmount());
    world.mounted.mount();
    assert_eq!(sh("cat renamed/file three; ls again"), "file\nmore\nchanged\nnew\n", "mounted again");
}

fn a_view_is_the_only_layer_below() {
    let mut world = World::new();
    let snapshot = world.commit(fill);
    world.serve(&ViewOptions::default());
    world.mounted.layers.lower = vec![world.of(&snapshot)];
    world.mounted.mount();
    assert_eq!(world.mounted.sh("ls -R"), LISTING);
    assert_eq!(world.attributes("noted"), "user.note=noted\n");
    assert_eq!(world.attributes("a"), "");
    use_all(&world);
}

fn a_view_is_the_lowest_of_several_layers() {
    let mut world = World::new();
    let snapshot = world.commit(fill);
    world.serve(&ViewOptions::default());
    for number in 0..3 {
        let layer = world.mounted.home.path(&format!("layer{number}"));
        fs::create_dir_all(layer.join("a")).unwrap();
        fs::write(layer.join("a").join(format!("in{number}")), "").unwrap();
    }
    let mut lower: Vec<PathBuf> =
        (0..3).map(|number| world.mounted.home.path(&format!("layer{number}"))).collect();
    lower.push(world.of(&snapshot));
    world.mounted.layers.lower = lower;
    world.mounted.mount();
    assert_eq!(world.mounted.sh("ls a; rm a/in?"), "deep\nfile\ngone\nin0\nin1\nin2\n");
    use_all(&world);
}

/// Whoever sets notes of overlays in a snapshot gets no overlay to believe them.
fn attributes_in_a_view_are_data_in_every_layer() {
    let mut world = World::new();
    let forged = |names: &[(&str, &str)]| Attributes {
        mode: 0o755,
        xattrs: names
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect(),
        ..Attributes::default()
    };
    let below = world.commit(|tree| {
        tree.write("d/below", "below").unwrap();
        tree.write("f", "below").unwrap();
    });
    let above = world.commit(|tree| {
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
    world.serve(&ViewOptions::default());
    world.mounted.layers.lower = vec![world.of(&above), world.of(&below)];
    world.mounted.mount();
    assert_eq!(world.mounted.sh("ls d; cat f"), "above\nbelow\nabove");
    let seen = "user.overlay.metacopy=\nuser.overlay.overlay.x=twice\nuser.overlay.whiteout=y\n";
    assert_eq!(world.attributes("f"), seen);
    assert_eq!(world.attributes("d"), "user.overlay.opaque=y\nuser.overlay.redirect=/e\n");
    // Copied up they are data as before.
    world.mounted.sh("chmod 700 d f");
    assert_eq!(world.mounted.sh("ls d; cat f"), "above\nbelow\nabove");
    let mut copied: Vec<String> = world.attributes("f").lines().map(str::to_owned).collect();
    copied.sort();
    assert_eq!(copied.join("\n") + "\n", seen);
}

fn a_view_that_has_died_is_noticed_and_replaced() {
    let mut world = World::new();
    let snapshot = world.commit(|tree| tree.write("f", "content").unwrap());
    let holder = world.mounted.home.holder.clone();
    world.serve(&ViewOptions::default());
    let answers = |world: &World| overlay::answers(&holder, &world.view()).unwrap();
    assert!(answers(&world));
    crate::launcher::signal(world.server().unwrap(), rustix::process::Signal::KILL);
    soon("the view dies", || !answers(&world));
    world.serve(&ViewOptions::default());
    assert!(answers(&world));
    world.mounted.layers.lower = vec![world.of(&snapshot)];
    world.mounted.mount();
    assert_eq!(world.mounted.sh("cat f"), "content");
}

fn files_of_a_view_belong_to_who_works_there() {
    let mut world = World::new();
    let snapshot = world.commit(|tree| {
        let closed = Attributes { mode: 0o600, ..Attributes::default() };
        tree.put_file("d/f", &mut &b"mine\n"[..], closed).unwrap();
    });
    // In the namespace of an ordinary user's holder nobody else exists.
    let owner = match &world.mounted.home.holder {
        Holder::Machine => (61_236, 61_237),
        Holder::Process(_) => (0, 0),
    };
    world.serve(&ViewOptions { owner: Some(owner), ..ViewOptions::default() });
    world.mounted.layers.lower = vec![world.of(&snapshot)];
    fs::set_permissions(&world.mounted.layers.upper, fs::Permissions::from_mode(0o777)).unwrap();
    world.mounted.mount();
    let (user, group) = owner;
    assert_eq!(world.mounted.sh("stat -c '%u %g' d d/f"), format!("{user} {group}\n{user} {group}\n"));
    if user != 0 {
        let script = format!(
            "setpriv --reuid {user} --regid {group} --clear-groups sh -c 'echo more >> d/f; cat d/f'"
        );
        assert_eq!(world.mounted.sh(&script), "mine\nmore\n");
    }
}
