//! Workspaces whose content is the root filesystem of a sandbox instead of the files that an agent works on.
//!
//! A snapshot has the files of a workspace, and possibly a root filesystem, here called root. An *import* commits a
//! directory, such as a *template* (the root filesystem that sandboxes start with), as the root of a snapshot. `roots`
//! is the set of workspaces with roots, and `fixture.all()` the set of workspaces with ordinary files.

use libtest_mimic::Trial;
use workspace_state::{
    Cancel, Expect, NewSnapshot, OwnerIds, Snapshot, Tree, TreeError, VirtualTree, owned_by,
};
use workspace_workspace::{
    Materialize, NewWorkspace, Options, ProviderKind, ResetMode, RootImport, SnapshotPart, WorkspaceError,
    Workspaces, Writers,
};

use crate::fixture::{Fixture, Setting, options};

/// UIDs and GIDs of the files of roots on disk: the id of user 0, and the number of ids.
const IDS: OwnerIds = OwnerIds { first: 700_000, count: 1_000 };

pub(crate) fn trials() -> Vec<Trial> {
    let add = |name: &str, test: fn()| Setting::OVERLAY.trial(name, test);
    vec![
        add("a_root_is_committed_with_a_workspace", a_root_is_committed_with_a_workspace),
        add("owners_of_files_are_kept", owners_of_files_are_kept),
        add("an_import_of_a_root_that_fails_leaves_nothing", an_import_of_a_root_that_fails_leaves_nothing),
        add("a_failed_cleanup_hides_no_result_of_an_import", a_failed_cleanup_hides_no_result_of_an_import),
        add(
            "leftovers_of_an_import_are_removed_unless_needed",
            leftovers_of_an_import_are_removed_unless_needed,
        ),
        add("a_reset_of_a_root_needs_a_snapshot_with_a_root", a_reset_of_a_root_needs_a_snapshot_with_a_root),
    ]
}

/// Returns true if the test runs as root.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Opens the set of workspaces with roots.
fn open_roots(fixture: &Fixture) -> Workspaces {
    let options = options(fixture.home.path(), &fixture.store, &fixture.holder, ProviderKind::Overlay);
    let owner_ids = is_root().then_some(IDS);
    let (directory, layers) = (fixture.home.path().join("roots"), fixture.home.path().join("root-layers"));
    Workspaces::open(Options { directory, layers, owner_ids, part: SnapshotPart::Root, ..options }).unwrap()
}

fn no_change(_: &mut VirtualTree) -> Result<(), TreeError> {
    Ok(())
}

/// Runs a script in a new directory, and imports the directory.
fn import(fixture: &Fixture, roots: &Workspaces, script: &str) -> Snapshot {
    let directory = tempfile::tempdir_in(fixture.home.path()).unwrap();
    fixture.shell_in(directory.path(), script);
    let import = RootImport {
        directory: directory.path(),
        template: "mini",
        temporary_reference: "temporary",
        change: &|tree| {
            tree.write("added", "by the import\n")?;
            tree.put_directory(
                "home",
                workspace_state::Attributes { mode: 0o755, xattrs: owned_by(42, 43), ..Default::default() },
            )
        },
    };
    let references = vec![("imported".to_owned(), Expect::Absent)];
    let new = NewSnapshot { references, ..NewSnapshot::default() };
    roots.cancellable(&Cancel::new()).import_root(&import, new).unwrap()
}

/// Creates an overlay workspace; an empty one if `snapshot` is `None`.
fn create(workspaces: &Workspaces, id: &str, snapshot: Option<&Snapshot>) {
    let new = NewWorkspace {
        snapshot: snapshot.map(|snapshot| snapshot.id),
        provider: Some(ProviderKind::Overlay),
        materialize: Materialize::Full,
        ..NewWorkspace::default()
    };
    workspaces.create(id, &new).unwrap();
}

/// Commits the workspace `id` of `fixture.all()` in one snapshot with the root `id` of `roots`.
fn commit(fixture: &Fixture, roots: &Workspaces, id: &str) -> Snapshot {
    let content = roots.read(id, Writers::Stopped).unwrap();
    let root = Some(content.tree.into_root("mini").unwrap());
    let new = NewSnapshot { root, ..NewSnapshot::default() };
    let committed = fixture.all().commit(id, new, Writers::Stopped).unwrap().snapshot;
    roots.record_fingerprints(id, content.files, &committed).unwrap();
    committed
}

/// Runs a script in a root, and returns its output.
fn run(fixture: &Fixture, roots: &Workspaces, id: &str, script: &str) -> String {
    let output = fixture.shell_in(&roots.path(id).unwrap(), script);
    String::from_utf8(output.stdout).unwrap()
}

/// Opens the root of a snapshot.
fn root_tree(fixture: &Fixture, snapshot: &Snapshot) -> VirtualTree {
    let root = snapshot.root.as_ref().unwrap();
    VirtualTree::over(&Tree::open(&fixture.store, root.tree, Some(root.times)).unwrap()).unwrap()
}

fn a_root_is_committed_with_a_workspace() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let roots = open_roots(&fixture);
    let base =
        import(&fixture, &roots, "mkdir etc bin; echo one > etc/one; echo two > etc/two; ln -s etc link");
    assert_eq!(
        fixture.store.snapshots().unwrap(),
        std::slice::from_ref(&base),
        "the import leaves nothing else"
    );
    assert_eq!(fixture.store.references().unwrap(), [("imported".to_owned(), base.id)]);
    create(&roots, "a", Some(&base));
    create(fixture.all(), "a", None);
    run(
        &fixture,
        &roots,
        "a",
        "rm etc/one; echo changed > etc/two; mkdir -p usr/local; echo new > usr/local/new",
    );
    fixture.run("a", "echo workspace > file");
    let first = commit(&fixture, &roots, "a");
    assert_eq!(first.root.as_ref().unwrap().template, "mini");
    let tree = root_tree(&fixture, &first);
    assert_eq!(tree.read("etc/two").unwrap(), b"changed\n");
    assert_eq!(tree.read("usr/local/new").unwrap(), b"new\n");
    assert_eq!(tree.read("added").unwrap(), b"by the import\n");
    assert!(!tree.exists("etc/one").unwrap());
    assert_eq!(fixture.store.restore(&first.id).unwrap().read("file").unwrap(), b"workspace\n");
    // Unchanged files are taken from the last commit, and a changed file is read.
    let second = commit(&fixture, &roots, "a");
    assert_eq!(second.root, first.root);
    run(&fixture, &roots, "a", "echo newer > usr/local/new");
    let third = commit(&fixture, &roots, "a");
    assert_eq!(root_tree(&fixture, &third).read("usr/local/new").unwrap(), b"newer\n");
    // The layers (lower directories of the overlay) of `b` are the whole first root, and the changes of `third` over
    // it.
    create(&roots, "b", Some(&third));
    assert_eq!(
        run(&fixture, &roots, "b", "cat etc/two usr/local/new link/two; ls etc"),
        "changed\nnewer\nchanged\ntwo\n"
    );
    assert_eq!(roots.record("b").unwrap().current.layers.len(), 2);
    // A pin protects the base snapshot of each of the two roots from garbage collection.
    assert_eq!(fixture.store.pins().unwrap().len(), 2);
    for id in ["a", "b"] {
        roots.remove(id).unwrap();
    }
    assert!(fixture.store.pins().unwrap().is_empty());
}

/// Only a server that runs as root can give files several owners.
fn owners_of_files_are_kept() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(Setting::OVERLAY);
    let roots = open_roots(&fixture);
    let base = import(&fixture, &roots, "mkdir d; echo x > d/x; echo y > y; chmod 4755 y");
    create(&roots, "a", Some(&base));
    create(fixture.all(), "a", None);
    let list = "stat -c '%n %u:%g %a' . d d/* home y";
    assert_eq!(
        run(&fixture, &roots, "a", list),
        ". 700000:700000 755\nd 700000:700000 755\nd/x 700000:700000 644\nhome 700042:700043 755\ny 700000:700000 4755\n"
    );
    let script = "chown 700033:700004 d d/x; echo new > d/new; chown 700999:700000 d/new; chown 12:12 y; \
        setfattr -n user.workspace.owner -v 5:5 d/new; chown 700001:700001 .";
    run(&fixture, &roots, "a", script);
    let snapshot = commit(&fixture, &roots, "a");
    create(&roots, "b", Some(&snapshot));
    let expected = ". 700001:700001 755\nd 700033:700004 755\nd/new 700999:700000 644\nd/x 700033:700004 644\n\
        home 700042:700043 755\ny 700000:700000 755\n";
    assert_eq!(run(&fixture, &roots, "b", list), expected);
    let attribute = run(&fixture, &roots, "b", "getfattr --only-values -n user.workspace.owner d/new");
    assert_eq!(attribute, "5:5", "an attribute that a program has set is not taken for the stored owner");
    // Without other layers, the whole root is written as one layer, which shows the same files.
    roots.remove("b").unwrap();
    roots.remove("a").unwrap();
    roots.collect_layers(workspace_workspace::UnusedLayers::All).unwrap();
    create(&roots, "c", Some(&snapshot));
    assert_eq!(roots.record("c").unwrap().current.layers.len(), 1);
    assert_eq!(run(&fixture, &roots, "c", list), expected);
}

fn an_import_of_a_root_that_fails_leaves_nothing() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let roots = open_roots(&fixture);
    let directory = tempfile::tempdir_in(fixture.home.path()).unwrap();
    fixture.shell_in(directory.path(), "echo one > one");
    let fails = |tree: &mut VirtualTree| tree.remove("missing");
    let import = |change: &dyn Fn(&mut VirtualTree) -> Result<(), TreeError>, cancel: &Cancel| {
        let import = RootImport {
            directory: directory.path(),
            template: "mini",
            temporary_reference: "temporary",
            change,
        };
        roots.cancellable(cancel).import_root(&import, NewSnapshot::default())
    };
    import(&fails, &Cancel::new()).unwrap_err();
    let cancelled = Cancel::new();
    cancelled.cancel();
    assert!(import(&no_change, &cancelled).unwrap_err().is_cancelled());
    assert!(fixture.store.snapshots().unwrap().is_empty() && fixture.store.references().unwrap().is_empty());
    import(&no_change, &Cancel::new()).unwrap();
}

fn a_failed_cleanup_hides_no_result_of_an_import() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let roots = open_roots(&fixture);
    let directory = tempfile::tempdir_in(fixture.home.path()).unwrap();
    fixture.shell_in(directory.path(), "echo one > one");
    // Without the reference, the import fails to remove its temporary reference and snapshot.
    let remove_reference = || fixture.store.remove_reference("temporary", Expect::Anything).unwrap();
    let import = |change: &dyn Fn(&mut VirtualTree) -> Result<(), TreeError>| {
        let import = RootImport {
            directory: directory.path(),
            template: "mini",
            temporary_reference: "temporary",
            change,
        };
        roots.cancellable(&Cancel::new()).import_root(&import, NewSnapshot::default())
    };
    let error = import(&|tree| {
        remove_reference();
        tree.remove("missing")
    });
    assert!(error.unwrap_err().to_string().contains("`missing` does not exist"));
    let imported = import(&|_| {
        remove_reference();
        Ok(())
    });
    let id = imported.unwrap().id;
    assert!(fixture.store.find_snapshot(&id).unwrap().is_some());
}

fn leftovers_of_an_import_are_removed_unless_needed() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let roots = open_roots(&fixture);
    let snapshot_with = |references: &[&str]| {
        let references = references.iter().map(|name| ((*name).to_owned(), Expect::Absent)).collect();
        let new = NewSnapshot { references, ..NewSnapshot::default() };
        fixture.store.empty_tree().unwrap().commit(new).unwrap()
    };
    let unneeded = snapshot_with(&["temporary"]);
    roots.remove_import("temporary", unneeded.id).unwrap();
    assert!(fixture.store.snapshots().unwrap().is_empty());
    let needed = snapshot_with(&["temporary", "other"]);
    roots.remove_import("temporary", needed.id).unwrap();
    assert_eq!(fixture.store.snapshots().unwrap(), std::slice::from_ref(&needed));
    assert_eq!(fixture.store.references().unwrap(), [("other".to_owned(), needed.id)]);
}

fn a_reset_of_a_root_needs_a_snapshot_with_a_root() {
    let fixture = Fixture::new(Setting::OVERLAY);
    let roots = open_roots(&fixture);
    let base = import(&fixture, &roots, "echo one > one");
    let plain = fixture.snapshot("echo plain > plain");
    create(&roots, "a", Some(&base));
    run(&fixture, &roots, "a", "echo changed > one");
    let reset =
        |snapshot: &Snapshot| roots.reset("a", Some(snapshot.id), Materialize::Full, ResetMode::MayMove);
    assert!(matches!(reset(&plain), Err(WorkspaceError::NoRoot(id)) if id == plain.id));
    assert_eq!(run(&fixture, &roots, "a", "cat one"), "changed\n");
    reset(&base).unwrap();
    roots.finish_reset("a").unwrap();
    assert_eq!(run(&fixture, &roots, "a", "cat one"), "one\n");
    roots.remove_former("a").unwrap();
}
