//! Workspaces on idmapped mounts: on disk, one host user owns the files of all sandboxes. Each sandbox has a dedicated
//! UID, and the mount shows the files as owned by that UID. Only root can create such mounts.
//!
//! The *lazy mount* is a FUSE mount of all snapshots that loads files on first read. It is the lower directory of
//! overlays until the files are written to disk. `fixture.all()` is the set of workspaces under test.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use libtest_mimic::Trial;
use workspace_host::overlay::{self, Overlay, Upper};
use workspace_host::{LazyMount, NamespaceHolder, dedicated_uids, launch};
use workspace_state::Snapshot;
use workspace_test_support::skip;
use workspace_workspace::{
    LazyCommand, Materialize, NewWorkspace, Options, ProviderKind, ResetMode, Workspaces,
};

use crate::fixture::{Fixture, LAZY_MOUNT, Setting, options};

/// Dedicated UIDs of sandboxes. The values are arbitrary.
const UIDS: [u32; 2] = [0x7800_1000, 0x7800_2000];

pub(crate) fn trials() -> Vec<Trial> {
    let holder =
        if rustix::process::geteuid().is_root() { NamespaceHolder::None } else { return Vec::new() };
    if let Err(reason) = dedicated_uids::probe(&holder, &std::env::temp_dir(), LazyMount::Used) {
        skip(format_args!("mounts cannot be idmapped: {reason}"));
        return Vec::new();
    }
    let add = |name: &str, test: fn()| {
        Trial::test(format!("idmapped::{name}"), move || {
            test();
            Ok(())
        })
    };
    vec![
        add("snapshots_do_not_depend_on_the_uid", snapshots_do_not_depend_on_the_uid),
        add("a_reset_keeps_the_uid", a_reset_keeps_the_uid),
        add("a_lazy_mount_without_idmap_support_is_replaced", a_lazy_mount_without_idmap_support_is_replaced),
    ]
}

/// Creates a fixture whose files belong to the UID that all sandboxes share.
fn fixture() -> Fixture {
    let mut fixture = Fixture::with_lazy_mount(Setting::OVERLAY);
    fixture.workspaces = None;
    let lazy =
        LazyCommand { program: std::env::current_exe().unwrap(), args: vec![OsString::from(LAZY_MOUNT)] };
    let file_owner = launch::shared_sandbox_ids(&NamespaceHolder::None);
    let options = options(fixture.home.path(), &fixture.store, &fixture.holder, ProviderKind::Overlay);
    fixture.workspaces = Some(Workspaces::open(Options { lazy: Some(lazy), file_owner, ..options }).unwrap());
    fixture
}

/// Commits the snapshot from which workspaces are created.
fn base(fixture: &Fixture) -> Snapshot {
    fixture.snapshot("mkdir d; echo one > d/one; echo two > two; chmod 600 two; ln -s two link")
}

/// Creates a workspace. Returns true if its files are loaded from the lazy mount.
fn create(
    fixture: &Fixture,
    id: &str,
    snapshot: &Snapshot,
    idmap_uid: Option<u32>,
    materialize: Materialize,
) -> bool {
    let new = NewWorkspace { snapshot: Some(snapshot.id), materialize, idmap_uid, ..NewWorkspace::default() };
    fixture.all().create(id, &new).unwrap().lazy
}

/// Runs a script in a workspace as an ordinary user with this UID.
fn run_as(fixture: &Fixture, id: &str, uid: u32, script: &str) -> String {
    let mut command = Command::new("setpriv");
    let uid = uid.to_string();
    command.args([
        "--reuid",
        &uid,
        "--regid",
        &uid,
        "--clear-groups",
        "--inh-caps=-all",
        "sh",
        "-ec",
        script,
    ]);
    // This process (root) opens the directory, because the user must not enter its parent directories. A sandbox sees
    // only the workspace.
    let output = command.current_dir(fixture.all().path(id).unwrap()).output().unwrap();
    assert!(output.status.success(), "{id}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Script that changes files, sets their times, and prints the UIDs that own three of them.
const WORK: &str = "cat two > d/copy; echo more >> two; rm link; mkdir -p new/er; touch new/er/file; chmod 4755 new/er/file; \
                    touch -d 2001-01-01 d/copy d/one two new/er/file new/er new d .; stat -c %u two d/one new";

fn snapshots_do_not_depend_on_the_uid() {
    let fixture = fixture();
    let base = base(&fixture);
    let shared = launch::shared_sandbox_ids(&NamespaceHolder::None).unwrap().0;
    let mut trees = Vec::new();
    for materialize in [Materialize::Full, Materialize::Lazy] {
        for uid in [Some(UIDS[0]), Some(UIDS[1]), None] {
            let id = format!("{}-{}", uid.unwrap_or(0), trees.len());
            // The files of `base` are on disk by now. A workspace is lazy only if its snapshot has none there.
            let from = if materialize == Materialize::Lazy {
                fixture.snapshot("echo other > other")
            } else {
                base.clone()
            };
            let lazy = create(&fixture, &id, &from, uid, materialize);
            assert_eq!(lazy, materialize == Materialize::Lazy);
            let inside = uid.unwrap_or(shared);
            if lazy {
                assert_eq!(
                    run_as(&fixture, &id, inside, "echo new > other; stat -c %u other"),
                    format!("{inside}\n")
                );
            } else {
                assert_eq!(run_as(&fixture, &id, inside, WORK), format!("{inside}\n{inside}\n{inside}\n"));
            }
            let upper = fixture.home.path().join("workspaces").join(&id).join("1/upper");
            let name = if lazy { "other" } else { "two" };
            assert_eq!(fs::metadata(upper.join(name)).unwrap().uid(), shared);
            trees.push(fixture.commit(&id).tree);
        }
    }
    assert!(trees[..3].iter().all(|tree| *tree == trees[0]), "{trees:?}");
    assert!(trees[3..].iter().all(|tree| *tree == trees[3]), "{trees:?}");
}

fn a_reset_keeps_the_uid() {
    let mut fixture = fixture();
    let first = base(&fixture);
    create(&fixture, "a", &first, Some(UIDS[0]), Materialize::Auto);
    let second = fixture.snapshot("echo other > other");
    let reset = fixture.all().reset("a", Some(second.id), Materialize::Auto, ResetMode::MayMove).unwrap();
    assert!(reset.moved, "an overlay is reset by a new directory");
    fixture.all().finish_reset("a").unwrap();
    let work = "echo more >> other; stat -c %u other";
    assert_eq!(run_as(&fixture, "a", UIDS[0], work), format!("{}\n", UIDS[0]));
    // Another process that mounts the workspace again keeps the UID, too.
    let mountpoint = fixture.all().path("a").unwrap();
    fixture.workspaces = None;
    overlay::unmount(&fixture.holder, &mountpoint).unwrap();
    fixture.open();
    fixture.all().remount("a").unwrap();
    assert_eq!(run_as(&fixture, "a", UIDS[0], work), format!("{}\n", UIDS[0]));
}

/// An overlay, which cannot be idmapped, is mounted where an earlier version of the server had its lazy mount, which
/// could not be idmapped either.
fn a_lazy_mount_without_idmap_support_is_replaced() {
    let fixture = fixture();
    let path = |name: &str| fixture.home.path().join(name);
    for name in ["lower", "old/upper", "old/work", "layers/view"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    let (lower, upper, work, mountpoint) =
        ([path("lower")], path("old/upper"), path("old/work"), path("layers/view"));
    let old = Overlay {
        lower: &lower,
        upper: Some(Upper { directory: &upper, work: &work }),
        mount_point: &mountpoint,
        idmap_uid: None,
    };
    overlay::mount(&fixture.holder, &old).unwrap();
    assert!(!dedicated_uids::can_idmap(&mountpoint));
    let snapshots: Vec<Snapshot> = (0..4).map(|n| fixture.snapshot(&format!("echo {n} > file"))).collect();
    std::thread::scope(|scope| {
        for (number, snapshot) in snapshots.iter().enumerate() {
            let fixture = &fixture;
            scope.spawn(move || {
                let (id, uid) = (format!("w{number}"), UIDS[0] + number as u32);
                assert!(create(fixture, &id, snapshot, Some(uid), Materialize::Lazy));
                assert_eq!(run_as(fixture, &id, uid, "cat file; echo x > file"), format!("{number}\n"));
            });
        }
    });
    assert!(dedicated_uids::can_idmap(&mountpoint));
}
