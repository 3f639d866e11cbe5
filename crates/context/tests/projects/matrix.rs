//! Tests of policies with every access level, every kind of change, and several paths to the same file.
//!
//! The agent works in a real directory, so that the kernel resolves links and `..`. Each case has a directory of its
//! own, so that one completion (finished work of the agent, which is merged into the head of the project) tries all
//! cases. In each directory, the rules limit the access to `zone`; the agent may do everything with other entries.
//!
//! `Fixture::complete_snapshot` queues a snapshot with the finished work of an agent, and `land` merges it.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;
use workspace_catalog::CompletionState;
use workspace_context::projects::CompletionReport;
use workspace_state::{
    Attributes, CheckoutOptions, NoProgress, Node, SnapshotId, SnapshotOptions, Tree, VirtualTree, checkout,
    snapshot_directory,
};

use crate::database::DatabaseKind;
use crate::fixture::{Fixture, PRESENT};

/// Entries of a directory by path.
type Files = BTreeMap<String, Item>;

/// Entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    /// Content and mode.
    File(String, u16),
    /// Target of a symlink.
    Link(String),
    /// Mode.
    Directory(u16),
}

/// Rights that an access level gives, as the documentation describes them.
#[derive(Debug, Clone, Copy)]
struct Rights {
    add: bool,
    change: bool,
    delete: bool,
}

const LEVELS: [(&str, Rights); 5] = [
    ("none", Rights { add: false, change: false, delete: false }),
    ("R", Rights { add: false, change: false, delete: false }),
    ("RA", Rights { add: true, change: false, delete: false }),
    ("RW-", Rights { add: true, change: true, delete: false }),
    ("RW", Rights { add: true, change: true, delete: true }),
];

/// Change of something in the zone, and its result.
struct Case {
    name: &'static str,
    /// Makes the change. The arguments are the directory of the case, and a path that leads to the zone in it.
    edit: fn(&Path, &Path),
    /// Changes the files from before the edit to those that the head must have after the merge.
    expected: fn(&mut Files, Rights),
}

/// Paths that lead to the zone, with their descriptions.
const ZONE_PATHS: [(&str, &str); 4] = [
    ("directly", "zone"),
    ("with `..`", "free/../zone"),
    ("through a symlink", "free/to_zone"),
    ("through two symlinks", "alias/to_zone"),
];

/// Returns the files of a case before the change. Texts differ, so that no file looks like another one renamed.
fn before(case: usize) -> Files {
    let mut files = Files::new();
    for path in ["zone/f", "zone/d/x", "zone/d/e/y", "free/own", "free/dir/z"] {
        files.insert(path.to_owned(), file(&text(case, path)));
    }
    for (path, target) in
        [("zone/link", "f"), ("free/to_zone", "../zone"), ("alias", "free"), ("free/to_file", "../zone/f")]
    {
        files.insert(path.to_owned(), Item::Link(target.to_owned()));
    }
    for path in ["zone", "zone/d", "zone/d/e", "zone/empty", "free", "free/dir"] {
        files.insert(path.to_owned(), Item::Directory(0o755));
    }
    files
}

fn text(case: usize, path: &str) -> String {
    blake3::hash(format!("{case} {path}").as_bytes()).to_hex().to_string()
}

fn file(content: &str) -> Item {
    Item::File(content.to_owned(), 0o644)
}

fn put(files: &mut Files, path: &str, item: Item) {
    files.insert(path.to_owned(), item);
}

/// Copies an entry with everything below it; if `removes` is true, moves it.
fn transfer(files: &mut Files, from: &str, to: &str, removes: bool) {
    let is_in = |path: &str| path == from || path.starts_with(&format!("{from}/"));
    let found: Vec<_> = files.iter().filter(|(path, _)| is_in(path)).map(|(path, _)| path.clone()).collect();
    for path in found {
        let item = files[&path].clone();
        files.insert(format!("{to}{}", &path[from.len()..]), item);
        if removes {
            files.remove(&path);
        }
    }
}

fn copy(files: &mut Files, from: &str, to: &str) {
    transfer(files, from, to, false);
}

fn move_entry(files: &mut Files, from: &str, to: &str) {
    transfer(files, from, to, true);
}

/// Removes an entry with everything below it.
fn remove(files: &mut Files, path: &str) {
    files.retain(|found, _| found != path && !found.starts_with(&format!("{path}/")));
}

/// Changes that are tried on each of [`ZONE_PATHS`].
const CHANGES: &[Case] = &[
    Case {
        name: "add",
        edit: |_, zone| fs::write(zone.join("new"), "new").unwrap(),
        expected: |files, rights| {
            if rights.add {
                put(files, "zone/new", file("new"));
            }
        },
    },
    Case {
        name: "add below new directories",
        edit: |_, zone| {
            fs::create_dir_all(zone.join("p/q")).unwrap();
            fs::write(zone.join("p/q/new"), "new").unwrap();
        },
        expected: |files, rights| {
            if rights.add {
                put(files, "zone/p", Item::Directory(0o755));
                put(files, "zone/p/q", Item::Directory(0o755));
                put(files, "zone/p/q/new", file("new"));
            }
        },
    },
    Case {
        name: "modify",
        edit: |_, zone| fs::write(zone.join("f"), "changed").unwrap(),
        expected: |files, rights| {
            if rights.change {
                put(files, "zone/f", file("changed"));
            }
        },
    },
    Case {
        name: "replace by a new file of the same name",
        edit: |root, zone| {
            fs::write(root.join("free/next"), "changed").unwrap();
            fs::rename(root.join("free/next"), zone.join("f")).unwrap();
        },
        expected: |files, rights| {
            if rights.change {
                put(files, "zone/f", file("changed"));
            }
        },
    },
    Case {
        name: "delete",
        edit: |_, zone| fs::remove_file(zone.join("f")).unwrap(),
        expected: |files, rights| {
            if rights.delete {
                remove(files, "zone/f");
            }
        },
    },
    Case {
        name: "delete a symlink",
        edit: |_, zone| fs::remove_file(zone.join("link")).unwrap(),
        expected: |files, rights| {
            if rights.delete {
                remove(files, "zone/link");
            }
        },
    },
    Case {
        name: "delete a directory",
        edit: |_, zone| fs::remove_dir_all(zone.join("d")).unwrap(),
        expected: |files, rights| {
            if rights.delete {
                remove(files, "zone/d");
            }
        },
    },
    Case {
        name: "mkdir",
        edit: |_, zone| fs::create_dir(zone.join("made")).unwrap(),
        expected: |files, rights| {
            if rights.add {
                put(files, "zone/made", Item::Directory(0o755));
            }
        },
    },
    Case {
        name: "rmdir",
        edit: |_, zone| fs::remove_dir(zone.join("empty")).unwrap(),
        expected: |files, rights| {
            if rights.delete {
                remove(files, "zone/empty");
            }
        },
    },
    Case {
        name: "rename in",
        edit: |root, zone| fs::rename(root.join("free/own"), zone.join("in")).unwrap(),
        expected: |files, rights| {
            if rights.add {
                move_entry(files, "free/own", "zone/in");
            }
        },
    },
    Case {
        name: "rename a directory in",
        edit: |root, zone| fs::rename(root.join("free/dir"), zone.join("in")).unwrap(),
        expected: |files, rights| {
            if rights.add {
                move_entry(files, "free/dir", "zone/in");
            } else {
                // The file keeps its old path, and its parent is restored.
                put(files, "free/dir", Item::Directory(0o755));
            }
        },
    },
    Case {
        name: "rename over an entry",
        edit: |root, zone| fs::rename(root.join("free/own"), zone.join("f")).unwrap(),
        expected: |files, rights| {
            if rights.change {
                move_entry(files, "free/own", "zone/f");
            }
        },
    },
    Case {
        name: "rename out",
        edit: |root, zone| fs::rename(zone.join("f"), root.join("free/out")).unwrap(),
        expected: |files, rights| transfer(files, "zone/f", "free/out", rights.delete),
    },
    Case {
        name: "rename a directory out",
        edit: |root, zone| fs::rename(zone.join("d"), root.join("free/out")).unwrap(),
        expected: |files, rights| transfer(files, "zone/d", "free/out", rights.delete),
    },
    Case {
        name: "rename within",
        edit: |_, zone| fs::rename(zone.join("f"), zone.join("d/g")).unwrap(),
        expected: |files, rights| {
            if rights.add {
                transfer(files, "zone/f", "zone/d/g", rights.delete);
            }
        },
    },
    Case {
        name: "rename a directory within",
        edit: |_, zone| fs::rename(zone.join("d"), zone.join("n")).unwrap(),
        expected: |files, rights| {
            if rights.add {
                transfer(files, "zone/d", "zone/n", rights.delete);
            }
        },
    },
    Case {
        name: "chmod",
        edit: |_, zone| set_mode(&zone.join("f"), 0o755),
        expected: |files, rights| {
            if rights.change {
                let Item::File(content, _) = files["zone/f"].clone() else { panic!() };
                put(files, "zone/f", Item::File(content, 0o755));
            }
        },
    },
    Case {
        name: "chmod of a directory",
        edit: |_, zone| set_mode(&zone.join("d"), 0o700),
        expected: |files, rights| {
            if rights.change {
                put(files, "zone/d", Item::Directory(0o700));
            }
        },
    },
    Case {
        name: "a file becomes a directory",
        edit: |_, zone| {
            fs::remove_file(zone.join("f")).unwrap();
            fs::create_dir(zone.join("f")).unwrap();
            fs::write(zone.join("f/in"), "in").unwrap();
        },
        expected: |files, rights| {
            if rights.delete {
                put(files, "zone/f", Item::Directory(0o755));
                put(files, "zone/f/in", file("in"));
            }
        },
    },
    Case {
        name: "a directory becomes a file",
        edit: |_, zone| {
            fs::remove_dir_all(zone.join("d")).unwrap();
            fs::write(zone.join("d"), "file").unwrap();
        },
        expected: |files, rights| {
            if rights.delete {
                remove(files, "zone/d");
                put(files, "zone/d", file("file"));
            }
        },
    },
    Case {
        name: "a file becomes a symlink",
        edit: |_, zone| {
            fs::remove_file(zone.join("f")).unwrap();
            symlink("../free/own", zone.join("f")).unwrap();
        },
        expected: |files, rights| {
            if rights.delete {
                put(files, "zone/f", Item::Link("../free/own".to_owned()));
            }
        },
    },
    Case {
        name: "a directory becomes a symlink",
        edit: |_, zone| {
            fs::remove_dir_all(zone.join("d")).unwrap();
            symlink("../free", zone.join("d")).unwrap();
        },
        expected: |files, rights| {
            if rights.delete {
                remove(files, "zone/d");
                put(files, "zone/d", Item::Link("../free".to_owned()));
            }
        },
    },
    Case {
        name: "a symlink gets another target",
        edit: |_, zone| {
            fs::remove_file(zone.join("link")).unwrap();
            symlink("d", zone.join("link")).unwrap();
        },
        expected: |files, rights| {
            if rights.change {
                put(files, "zone/link", Item::Link("d".to_owned()));
            }
        },
    },
    Case {
        name: "a symlink becomes a file",
        edit: |_, zone| {
            fs::remove_file(zone.join("link")).unwrap();
            fs::write(zone.join("link"), "file").unwrap();
        },
        expected: |files, rights| {
            if rights.delete {
                put(files, "zone/link", file("file"));
            }
        },
    },
];

/// Changes that reach the zone in another way, or change it as a whole. Each is tried once.
const SPECIAL_CHANGES: &[Case] = &[
    Case {
        name: "a write through a symlink to the file",
        edit: |root, _| fs::write(root.join("free/to_file"), "changed").unwrap(),
        expected: |files, rights| {
            if rights.change {
                put(files, "zone/f", file("changed"));
            }
        },
    },
    Case {
        name: "a write through a new hard link",
        edit: |root, zone| {
            fs::hard_link(zone.join("f"), root.join("free/hard")).unwrap();
            fs::write(root.join("free/hard"), "changed").unwrap();
        },
        expected: |files, rights| {
            put(files, "free/hard", file("changed"));
            if rights.change {
                put(files, "zone/f", file("changed"));
            }
        },
    },
    Case {
        name: "a hard link into the zone",
        edit: |root, zone| fs::hard_link(root.join("free/own"), zone.join("hard")).unwrap(),
        expected: |files, rights| {
            if rights.add {
                copy(files, "free/own", "zone/hard");
            }
        },
    },
    Case {
        name: "chmod through a hard link",
        edit: |root, zone| {
            fs::hard_link(zone.join("f"), root.join("free/hard")).unwrap();
            set_mode(&root.join("free/hard"), 0o600);
        },
        expected: |files, rights| {
            let Item::File(content, _) = files["zone/f"].clone() else { panic!() };
            put(files, "free/hard", Item::File(content.clone(), 0o600));
            if rights.change {
                put(files, "zone/f", Item::File(content, 0o600));
            }
        },
    },
    Case {
        name: "the zone gets another name",
        edit: |root, _| fs::rename(root.join("zone"), root.join("elsewhere")).unwrap(),
        expected: |files, rights| transfer(files, "zone", "elsewhere", rights.delete),
    },
    Case {
        name: "the zone is deleted",
        edit: |root, _| fs::remove_dir_all(root.join("zone")).unwrap(),
        expected: |files, rights| {
            if rights.delete {
                remove(files, "zone");
            }
        },
    },
    Case {
        name: "a symlink takes the place of the zone",
        edit: |root, _| {
            fs::rename(root.join("zone"), root.join("elsewhere")).unwrap();
            symlink("elsewhere", root.join("zone")).unwrap();
        },
        expected: |files, rights| {
            transfer(files, "zone", "elsewhere", rights.delete);
            if rights.delete {
                put(files, "zone", Item::Link("elsewhere".to_owned()));
            }
        },
    },
    Case {
        name: "another directory takes the place of the zone",
        edit: |root, _| {
            fs::rename(root.join("zone"), root.join("elsewhere")).unwrap();
            fs::rename(root.join("free/dir"), root.join("zone")).unwrap();
        },
        expected: |files, rights| {
            transfer(files, "zone", "elsewhere", rights.delete);
            if rights.delete {
                put(files, "zone", Item::Directory(0o755));
            }
            if rights.add {
                move_entry(files, "free/dir/z", "zone/z");
                remove(files, "free/dir");
            }
        },
    },
    Case {
        name: "add a directory with the name of the zone in capitals",
        edit: |root, _| {
            fs::create_dir(root.join("ZONE")).unwrap();
            fs::write(root.join("ZONE/f"), "capitals").unwrap();
        },
        expected: |files, _| {
            put(files, "ZONE", Item::Directory(0o755));
            put(files, "ZONE/f", file("capitals"));
        },
    },
    Case {
        name: "add a file to the zone whose name differs only in case",
        edit: |_, zone| fs::write(zone.join("F"), "capitals").unwrap(),
        expected: |files, rights| {
            if rights.add {
                put(files, "zone/F", file("capitals"));
            }
        },
    },
    Case {
        name: "rename the zone so that its name differs only in case",
        edit: |root, _| fs::rename(root.join("zone"), root.join("Zone")).unwrap(),
        expected: |files, rights| transfer(files, "zone", "Zone", rights.delete),
    },
    Case {
        name: "add to a protected directory with a composed Unicode name",
        edit: |root, _| {
            fs::create_dir(root.join("zon\u{e9}")).unwrap();
            fs::write(root.join("zon\u{e9}/f"), "composed").unwrap();
        },
        expected: |files, rights| {
            if rights.add {
                put(files, "zon\u{e9}", Item::Directory(0o755));
                put(files, "zon\u{e9}/f", file("composed"));
            }
        },
    },
    Case {
        name: "add to a directory with the same name in decomposed Unicode",
        edit: |root, _| {
            fs::create_dir(root.join("zone\u{301}")).unwrap();
            fs::write(root.join("zone\u{301}/f"), "decomposed").unwrap();
        },
        expected: |files, _| {
            put(files, "zone\u{301}", Item::Directory(0o755));
            put(files, "zone\u{301}/f", file("decomposed"));
        },
    },
];

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Returns all cases, each with the path that leads to the zone, and a name for messages.
fn cases() -> Vec<(&'static Case, &'static str, String)> {
    let changes = CHANGES.iter().flat_map(|case| {
        ZONE_PATHS.iter().map(move |(name, zone)| (case, *zone, format!("{} {name}", case.name)))
    });
    changes.chain(SPECIAL_CHANGES.iter().map(|case| (case, "zone", case.name.to_owned()))).collect()
}

/// Returns a policy that gives the agent this access level in the zones.
fn policy(level: &str) -> serde_json::Value {
    let rule = |path: &str| json!({"agent": "worker", "path": path, "access": level});
    json!({"rules": [rule("c*/zone/**"), rule("c*/zon\u{e9}/**")]})
}

/// Adds files below the directory `root` to a tree.
fn build(tree: &mut VirtualTree, root: &str, files: &Files) {
    for (path, item) in files {
        let path = format!("{root}/{path}");
        match item {
            Item::File(content, mode) => {
                let attributes = Attributes { mode: *mode, ..Attributes::default() };
                tree.put_content(path, content.clone().into_bytes(), attributes).unwrap();
            }
            Item::Link(target) => tree.symlink(path, target.as_bytes()).unwrap(),
            Item::Directory(mode) => {
                tree.put_directory(path, Attributes { mode: *mode, ..Attributes::default() }).unwrap();
            }
        }
    }
}

/// Reads the entries below the directory of each case, by the name of this directory.
fn read(tree: &Tree) -> BTreeMap<String, Files> {
    let mut all: BTreeMap<String, Files> = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    tree.walk(&mut |path, entry| {
        let path = text(path);
        let (root, path) = path.split_once('/').unwrap_or((&path, ""));
        let files = all.entry(root.to_owned()).or_default();
        let item = match &entry.node {
            Node::File(node) => Item::File(text(&tree.read(node)?), node.mode),
            Node::Symlink(node) => Item::Link(text(&node.target)),
            Node::Directory(node) => Item::Directory(node.mode),
        };
        if !path.is_empty() {
            files.insert(path.to_owned(), item);
        }
        Ok(())
    })
    .unwrap();
    all
}

/// Project whose agent works in a real directory.
struct Matrix {
    fixture: Fixture,
    /// Directory in which the agent works.
    work: tempfile::TempDir,
    /// Snapshot that `work` was made from.
    base: SnapshotId,
}

impl Matrix {
    /// Creates the project with the directories of the cases.
    async fn new(database: DatabaseKind, directories: &[(String, Files)]) -> Self {
        let mut fixture = Fixture::new(database, &[("readme", "readme\n")]).await;
        let head = fixture.projects.head(&fixture.project, PRESENT).await.unwrap().unwrap();
        let mut tree = fixture.store.restore(&head.id).unwrap();
        directories.iter().for_each(|(root, files)| build(&mut tree, root, files));
        let content = tree.commit(workspace_state::NewSnapshot::default()).unwrap().id;
        fixture.import_snapshot(content).await;
        Self { fixture, work: tempfile::tempdir().unwrap(), base: content }
    }

    /// Makes the workspace of the agent.
    async fn check_out(&mut self) {
        let base = self.fixture.projects.workspace_base(&self.fixture.project, "worker").await.unwrap();
        self.base = base.snapshot;
        let snapshot = self.fixture.store.snapshot(&base.snapshot).unwrap();
        checkout(&self.fixture.store, &snapshot, self.work.path(), &CheckoutOptions::default(), &NoProgress)
            .unwrap();
    }

    /// Merges the workspace into the project. Returns the entries of the new head, and the report about the changes.
    async fn land(&mut self) -> (BTreeMap<String, Files>, CompletionReport) {
        let options = SnapshotOptions::default();
        let taken = snapshot_directory(&self.fixture.store, self.work.path(), options, &NoProgress).unwrap();
        let completion = self.fixture.complete_snapshot("worker", self.base, taken.snapshot.id).await;
        self.fixture.land().await;
        let state = self.fixture.state(&completion).await;
        assert!([CompletionState::Landed, CompletionState::Refused].contains(&state.state), "{state:?}");
        let head = self.fixture.projects.head(&self.fixture.project, PRESENT).await.unwrap().unwrap();
        let tree = Tree::of_snapshot(&self.fixture.store, &head).unwrap();
        (read(&tree), self.fixture.report(&completion).await)
    }
}

fn assert_same(found: &Files, expected: &Files, context: &str) {
    let different = |path: &&String| found.get(*path) != expected.get(*path);
    let all = found.keys().chain(expected.keys());
    let differences: Vec<_> =
        all.filter(different).map(|path| (path, found.get(path), expected.get(path))).collect();
    assert!(differences.is_empty(), "{context}: path, found, expected: {differences:#?}");
}

/// Time at which a test sets the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PolicyTime {
    /// Before the workspace is made.
    BeforeCheckout,
    /// After the changes, and before they are merged.
    BeforeMerge,
}

/// Tries all cases under an access level.
async fn try_all(database: DatabaseKind, level: &str, rights: Rights, policy_time: PolicyTime) {
    let cases = cases();
    let root = |number: usize| format!("c{number}");
    let directories: Vec<_> = (0..cases.len()).map(|number| (root(number), before(number))).collect();
    let mut matrix = Matrix::new(database, &directories).await;
    if policy_time == PolicyTime::BeforeCheckout {
        matrix.fixture.set_policy(policy(level)).await;
    }
    matrix.check_out().await;
    for (number, (case, zone, _)) in cases.iter().enumerate() {
        let directory = matrix.work.path().join(root(number));
        (case.edit)(&directory, &directory.join(zone));
    }
    if policy_time == PolicyTime::BeforeMerge {
        matrix.fixture.set_policy(policy(level)).await;
    }
    let (found, report) = matrix.land().await;
    for (number, (case, _, name)) in cases.iter().enumerate() {
        let context = format!("{name} with {level}, {policy_time:?}");
        let mut expected = before(number);
        (case.expected)(&mut expected, rights);
        assert_same(&found[&root(number)], &expected, &context);
        // The report lists refused changes if, and only if, the head differs from the workspace.
        let after = matrix.work.path().join(root(number));
        let is_reported = report.refused.iter().any(|it| it.path.starts_with(&format!("{}/", root(number))));
        let in_workspace = read_directory(&after);
        // The report does not list deletions of directories that are hidden by now.
        if level != "none" || leaves(&in_workspace) != leaves(&expected) {
            assert_eq!(is_reported, in_workspace != expected, "{context}: {:?}", report.refused);
        }
    }
}

/// Returns the files and symlinks.
fn leaves(files: &Files) -> Files {
    let is_leaf = |item: &Item| !matches!(item, Item::Directory(_));
    files.clone().into_iter().filter(|(_, item)| is_leaf(item)).collect()
}

/// Reads a directory of the file system.
fn read_directory(root: &Path) -> Files {
    let (mut files, mut open) = (Files::new(), vec![root.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let metadata = path.symlink_metadata().unwrap();
            let mode = (metadata.permissions().mode() & 0o777) as u16;
            let item = if metadata.is_dir() {
                open.push(path);
                Item::Directory(mode)
            } else if metadata.is_symlink() {
                Item::Link(fs::read_link(&path).unwrap().to_str().unwrap().to_owned())
            } else {
                Item::File(fs::read_to_string(&path).unwrap(), mode)
            };
            files.insert(name, item);
        }
    }
    files
}

pub(crate) async fn each_access_level_allows_its_changes_on_every_path(database: DatabaseKind) {
    for (level, rights) in &LEVELS[1..] {
        try_all(database, level, *rights, PolicyTime::BeforeCheckout).await;
    }
}

pub(crate) async fn the_policy_at_the_time_of_the_merge_decides(database: DatabaseKind) {
    for (level, rights) in LEVELS {
        try_all(database, level, rights, PolicyTime::BeforeMerge).await;
    }
}

pub(crate) async fn no_change_reaches_a_hidden_directory(database: DatabaseKind) {
    type Edit = fn(&Path);
    let edits: [(&str, Edit); 8] = [
        ("a file of the same name", |root| {
            fs::create_dir(root.join("zone")).unwrap();
            fs::write(root.join("zone/f"), "guessed").unwrap();
        }),
        ("a new file", |root| {
            fs::create_dir(root.join("zone")).unwrap();
            fs::write(root.join("zone/new"), "new").unwrap();
        }),
        ("an empty directory", |root| fs::create_dir(root.join("zone")).unwrap()),
        ("a file in its place", |root| fs::write(root.join("zone"), "file").unwrap()),
        ("a symlink in its place", |root| symlink("free", root.join("zone")).unwrap()),
        ("a directory that is renamed to it", |root| {
            fs::rename(root.join("free/dir"), root.join("zone")).unwrap();
        }),
        ("a file through the dangling symlink", |root| fs::write(root.join("free/to_zone"), "file").unwrap()),
        ("a hard link", |root| {
            fs::create_dir(root.join("zone")).unwrap();
            fs::hard_link(root.join("free/own"), root.join("zone/f")).unwrap();
        }),
    ];
    let directories: Vec<_> = (0..edits.len()).map(|number| (format!("c{number}"), before(number))).collect();
    let mut matrix = Matrix::new(database, &directories).await;
    matrix.fixture.set_policy(policy("none")).await;
    matrix.check_out().await;
    for (number, (_, edit)) in edits.iter().enumerate() {
        let directory = matrix.work.path().join(format!("c{number}"));
        assert!(!directory.join("zone").exists());
        edit(&directory);
    }
    let (found, report) = matrix.land().await;
    for (number, (name, _)) in edits.iter().enumerate() {
        assert_same(&found[&format!("c{number}")], &before(number), name);
        let zone = format!("c{number}/zone");
        assert!(report.refused.iter().any(|it| it.path.starts_with(&zone)), "{name}: {report:?}");
    }
}

pub(crate) async fn a_rename_of_a_parent_moves_only_entries_that_may_be_moved(database: DatabaseKind) {
    for (level, rights) in LEVELS {
        for policy_time in [PolicyTime::BeforeCheckout, PolicyTime::BeforeMerge] {
            // The rules apply to `c*`: `c0` is renamed to a free path, and `x1` to a protected one.
            let directories = [("c0".to_owned(), before(0)), ("x1".to_owned(), before(1))];
            let mut matrix = Matrix::new(database, &directories).await;
            if policy_time == PolicyTime::BeforeCheckout {
                matrix.fixture.set_policy(policy(level)).await;
            }
            matrix.check_out().await;
            for (from, to) in [("c0", "x0"), ("x1", "c1")] {
                fs::rename(matrix.work.path().join(from), matrix.work.path().join(to)).unwrap();
            }
            if policy_time == PolicyTime::BeforeMerge {
                matrix.fixture.set_policy(policy(level)).await;
            }
            let (found, _) = matrix.land().await;
            let context = format!("{level}, {policy_time:?}");
            let is_hidden = level == "none" && policy_time == PolicyTime::BeforeCheckout;

            let mut in_c0 = before(0);
            in_c0.retain(|path, _| path.starts_with("zone") && !rights.delete);
            let mut in_x0 = before(0);
            in_x0.retain(|path, _| !is_hidden || !path.starts_with("zone"));
            assert_same(found.get("c0").unwrap_or(&Files::new()), &in_c0, &format!("{context}: c0"));
            assert_same(&found["x0"], &in_x0, &format!("{context}: x0"));

            let mut in_c1 = before(1);
            in_c1.retain(|path, _| rights.add || !path.starts_with("zone"));
            // An entry that may not be added at its new path keeps its old path.
            let mut in_x1 = leaves(&before(1));
            in_x1.retain(|path, _| !rights.add && path.starts_with("zone"));
            assert_same(&found["c1"], &in_c1, &format!("{context}: c1"));
            let found = leaves(found.get("x1").unwrap_or(&Files::new()));
            assert_same(&found, &in_x1, &format!("{context}: x1"));
        }
    }
}
