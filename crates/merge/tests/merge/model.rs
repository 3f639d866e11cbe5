//! Models: small trees as plain maps, which can be written to and read from a store and a git repository. Also random
//! models, to compare tree merges with git.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;

use workspace_merge::{TreeMerge, TreeOptions, merge_trees};
use workspace_state::{NewSnapshot, Node, Store, Tree};

use crate::git::Rng;

/// File or symlink of a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leaf {
    File { content: Vec<u8>, executable: bool },
    Link(String),
}

impl Leaf {
    /// Creates a file that is not executable.
    pub(crate) fn file(content: impl Into<Vec<u8>>) -> Self {
        Self::File { content: content.into(), executable: false }
    }
}

/// Entries of a tree by path.
pub(crate) type Model = BTreeMap<String, Leaf>;

/// Builds a model of files from paths and contents.
pub(crate) fn model(files: &[(&str, &str)]) -> Model {
    files.iter().map(|(path, content)| ((*path).to_owned(), Leaf::file(*content))).collect()
}

/// Temporary store for trees of models.
pub(crate) struct TestStore {
    pub(crate) store: Store,
    _directory: tempfile::TempDir,
}

impl TestStore {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        Self { store, _directory: directory }
    }

    /// Commits a model to the store.
    pub(crate) fn tree(&self, model: &Model) -> Tree {
        let mut tree = self.store.empty_tree().unwrap();
        for (path, leaf) in model {
            match leaf {
                Leaf::Link(target) => tree.symlink(path, target.as_bytes()).unwrap(),
                Leaf::File { content, executable } => {
                    tree.write(path, content.clone()).unwrap();
                    tree.chmod(path, if *executable { 0o755 } else { 0o644 }).unwrap();
                }
            }
        }
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        Tree::of_snapshot(&self.store, &snapshot).unwrap()
    }

    /// Merges models with the default options.
    pub(crate) fn merge(&self, base: &Model, ours: &Model, theirs: &Model) -> TreeMerge {
        self.merge_by(&TreeOptions::default(), base, ours, theirs)
    }

    /// Merges models with the given options.
    pub(crate) fn merge_by(
        &self,
        options: &TreeOptions,
        base: &Model,
        ours: &Model,
        theirs: &Model,
    ) -> TreeMerge {
        let (base, ours, theirs) = (self.tree(base), self.tree(ours), self.tree(theirs));
        merge_trees(&base, &ours, &theirs, options).unwrap()
    }
}

/// Reads a tree into a model.
pub(crate) fn read(tree: &Tree) -> Model {
    let mut model = Model::new();
    tree.walk(&mut |path, entry| {
        let path = String::from_utf8(path.to_vec()).unwrap();
        match &entry.node {
            Node::Directory(_) => {}
            Node::Symlink(link) => {
                model.insert(path, Leaf::Link(String::from_utf8(link.target.clone()).unwrap()));
            }
            Node::File(file) => {
                let content = tree.read(file)?;
                model.insert(path, Leaf::File { content, executable: file.mode & 0o100 != 0 });
            }
        }
        Ok(())
    })
    .unwrap();
    model
}

/// Reads the result of a merge into a model.
pub(crate) fn read_merge(merge: &TreeMerge) -> Model {
    read(&merge.tree.preview().unwrap())
}

/// Git repository with models as commits.
pub(crate) struct Git {
    directory: tempfile::TempDir,
    /// Process `git cat-file --batch`, which reads objects.
    object_reader: Child,
    /// Ids of objects, one per line.
    requests: ChildStdin,
    /// Header line and content of each object.
    responses: BufReader<ChildStdout>,
}

/// Result of a merge by git.
pub(crate) struct GitMerge {
    /// True if there are no conflicts.
    pub(crate) is_clean: bool,
    /// Merged tree, with conflict markers in conflicting files.
    pub(crate) tree: Model,
    /// Paths with conflicts; a path may occur several times.
    pub(crate) conflicted: Vec<String>,
    /// Messages of git about the merge.
    pub(crate) messages: String,
}

/// Creates a git command in a directory, without the settings of the user and with a fixed author and time.
fn git(directory: &Path) -> Command {
    let mut command = Command::new("git");
    let missing = directory.join("nowhere");
    command.current_dir(directory).env("GIT_CONFIG_GLOBAL", &missing).env("GIT_CONFIG_SYSTEM", &missing);
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@localhost");
        command.env(format!("GIT_{role}_DATE"), "@1 +0000");
    }
    command
}

/// Returns the major and minor version of the installed git.
pub(crate) fn git_version() -> (u32, u32) {
    static VERSION: LazyLock<(u32, u32)> = LazyLock::new(|| {
        let output = Command::new("git").arg("--version").output().unwrap().stdout;
        let text = String::from_utf8(output).unwrap();
        let number = text.split(' ').nth(2).unwrap_or_default();
        let mut parts = number.split(['.', '\n']).map_while(|part| part.parse().ok());
        (parts.next().unwrap(), parts.next().unwrap())
    });
    *VERSION
}

/// First version of git with `git merge-tree --write-tree`.
const MERGE_TREE_VERSION: (u32, u32) = (2, 38);

impl Git {
    /// Creates a repository with the base, ours and theirs of each name as the branches `NAME-base`,
    /// `NAME-ours` and `NAME-theirs`. The base is the parent of both sides, and so their merge base.
    pub(crate) fn new(triples: &[(String, [&Model; 3])]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let status = git(directory.path()).args(["init", "-q", "--bare", "."]).status().unwrap();
        assert!(status.success());
        let mut import =
            git(directory.path()).args(["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = std::io::BufWriter::new(import.stdin.take().unwrap());
        for (name, [base, ours, theirs]) in triples {
            let parent = format!("{name}-base");
            write_commit(&mut input, &parent, None, base);
            write_commit(&mut input, &format!("{name}-ours"), Some(&parent), ours);
            write_commit(&mut input, &format!("{name}-theirs"), Some(&parent), theirs);
        }
        drop(input);
        assert!(import.wait().unwrap().success());
        Self::in_directory(directory)
    }

    /// Creates a repository that shares the objects of another one, which is not changed.
    pub(crate) fn sharing(repository: &Path) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut clone = git(temporary.path());
        let status =
            clone.args(["clone", "-q", "--bare", "--shared"]).arg(repository).arg(".").status().unwrap();
        assert!(status.success());
        Self::in_directory(temporary)
    }

    /// Starts the object reader for an existing repository.
    fn in_directory(directory: tempfile::TempDir) -> Self {
        let mut object_reader = git(directory.path())
            .args(["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = object_reader.stdin.take().unwrap();
        let responses = BufReader::new(object_reader.stdout.take().unwrap());
        Self { directory, object_reader, requests, responses }
    }

    /// Merges two commits whose first parent is the base; [`Git::with_base`] makes such commits.
    ///
    /// `None` if git itself fails: for some combinations of renames, it aborts or writes a tree with missing objects.
    pub(crate) fn merge(&mut self, ours: &str, theirs: &str) -> Option<GitMerge> {
        if git_version() < MERGE_TREE_VERSION {
            return self.merge_in_work_tree(ours, theirs);
        }
        let output = git(self.directory.path())
            .args(["merge-tree", "--write-tree", "-z", ours, theirs])
            .output()
            .unwrap();
        let code = output.status.code()?;
        assert!(code < 2, "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let mut fields = text.split('\0');
        let tree = fields.next().unwrap().to_owned();
        // One field per conflicting path and version (stage): mode, id, stage number, tab and path.
        let stages = fields.by_ref().take_while(|field| !field.is_empty());
        let conflicted = stages.map(|stage| stage.split_once('\t').unwrap().1.to_owned()).collect();
        let messages = fields.collect::<Vec<_>>().join("|");
        Some(GitMerge { is_clean: code == 0, tree: self.read(&tree)?, conflicted, messages })
    }

    /// Creates a commit with the tree of each side, whose only parent is a commit with the tree of the base. Returns
    /// the ids of both commits. `git merge-tree --merge-base` would need no commits, but exists only since git 2.40.
    pub(crate) fn with_base(&self, base: &str, sides: [&str; 2]) -> [String; 2] {
        // The message makes the commits of both sides different, even if their trees are equal.
        let commit = |tree: &str, message: &str, parent: Option<&str>| {
            let mut command = git(self.directory.path());
            command.args(["commit-tree", "-m", message, &format!("{tree}^{{tree}}")]);
            command.args(parent.into_iter().flat_map(|parent| ["-p", parent]));
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let base = commit(base, "base", None);
        let [ours, theirs] = sides;
        [commit(ours, "ours", Some(&base)), commit(theirs, "theirs", Some(&base))]
    }

    /// Merges like [`Git::merge`], with a version of git that merges only in a work tree.
    fn merge_in_work_tree(&mut self, ours: &str, theirs: &str) -> Option<GitMerge> {
        let work_tree = self.directory.path().join("work-tree");
        std::fs::create_dir_all(&work_tree).unwrap();
        let run = |words: &[&str]| {
            let mut command = git(self.directory.path());
            command.args(["--git-dir=.", "--work-tree=work-tree", "-c", "core.bare=false"]).args(words);
            command.output().unwrap()
        };
        assert!(run(&["checkout", "-q", "-f", "--detach", ours]).status.success());
        assert!(run(&["clean", "-q", "-ffdx"]).status.success());
        let output = run(&["merge", "-s", "ort", "--no-commit", "--no-ff", theirs]);
        let staged = String::from_utf8(run(&["ls-files", "-s", "-z"]).stdout).unwrap();
        // A git that aborted leaves its lock behind.
        let _ = std::fs::remove_file(self.directory.path().join("index.lock"));
        assert!(run(&["reset", "-q", "--hard"]).status.success());
        let code = output.status.code().filter(|code| *code < 2)?;
        let (mut tree, mut conflicted) = (Model::new(), Vec::new());
        for line in staged.split('\0').filter(|line| !line.is_empty()) {
            // Mode, id and stage number; the stage is 0 for a path without a conflict.
            let (attributes, path) = line.split_once('\t').unwrap();
            let words: Vec<&str> = attributes.split(' ').collect();
            if words[2] == "0" {
                tree.insert(path.to_owned(), self.leaf(words[0], words[1])?);
            } else {
                conflicted.push(path.to_owned());
            }
        }
        let messages = String::from_utf8_lossy(&output.stdout).into_owned();
        Some(GitMerge { is_clean: code == 0, tree, conflicted, messages })
    }

    /// Reads a tree; `None` if objects are missing.
    pub(crate) fn read(&mut self, tree: &str) -> Option<Model> {
        let output = git(self.directory.path()).args(["ls-tree", "-r", "-z", tree]).output().unwrap().stdout;
        let text = String::from_utf8(output).unwrap();
        let mut model = Model::new();
        for line in text.split('\0').filter(|line| !line.is_empty()) {
            // Mode, type and id.
            let (attributes, path) = line.split_once('\t').unwrap();
            let words: Vec<&str> = attributes.split(' ').collect();
            model.insert(path.to_owned(), self.leaf(words[0], words[2])?);
        }
        Some(model)
    }

    /// Reads a file or symlink; `None` if the object is missing.
    fn leaf(&mut self, mode: &str, id: &str) -> Option<Leaf> {
        let content = self.object(id)?;
        Some(match mode {
            "120000" => Leaf::Link(String::from_utf8(content).unwrap()),
            mode => Leaf::File { content, executable: mode == "100755" },
        })
    }

    /// Reads the content of an object; `None` if it is missing.
    fn object(&mut self, id: &str) -> Option<Vec<u8>> {
        writeln!(self.requests, "{id}").unwrap();
        let mut header = String::new();
        self.responses.read_line(&mut header).unwrap();
        let length: usize = header.trim().rsplit(' ').next()?.parse().ok()?;
        // A line feed follows the content.
        let mut content = vec![0; length + 1];
        self.responses.read_exact(&mut content).unwrap();
        content.truncate(length);
        Some(content)
    }
}

impl Drop for Git {
    fn drop(&mut self) {
        let _ = self.object_reader.kill();
        let _ = self.object_reader.wait();
    }
}

/// Writes a commit on the branch `name` in the format of `git fast-import`.
fn write_commit(out: &mut impl Write, name: &str, parent: Option<&str>, model: &Model) {
    // The name as message makes the commits of both sides different, even if their trees are equal.
    writeln!(out, "commit refs/heads/{name}\ncommitter a <a@b> 1 +0000\ndata {}\n{name}", name.len())
        .unwrap();
    if let Some(parent) = parent {
        writeln!(out, "from refs/heads/{parent}").unwrap();
    }
    writeln!(out, "deleteall").unwrap();
    for (path, leaf) in model {
        let (mode, content) = match leaf {
            Leaf::Link(target) => ("120000", target.as_bytes()),
            Leaf::File { content, executable: true } => ("100755", &content[..]),
            Leaf::File { content, executable: false } => ("100644", &content[..]),
        };
        write!(out, "M {mode} inline {path}\ndata {}\n", content.len()).unwrap();
        out.write_all(content).unwrap();
        writeln!(out).unwrap();
    }
    writeln!(out).unwrap();
}

/// Kinds of changes that a random side makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKinds {
    /// Edits, additions, removals, and changes of type and mode.
    Plain,
    /// Those of `Plain`, and renames of files.
    Renames,
    /// Those of `Renames`, and renames of directories.
    Directories,
}

/// Prefixes of the paths of files in a random base.
const DIRECTORIES: [&str; 5] = ["", "a/", "a/b/", "c/", "d/"];
/// Paths of added and renamed files. Some of them collide with files or directories of the base.
const NEW_PATHS: [&str; 8] =
    ["new.txt", "a/new.txt", "c/new.txt", "a", "c/x/y.txt", "f1.txt/in.txt", "d/deep/n.txt", "z"];

/// Returns random lines that no other file has. `number` is the number of the file.
fn content(number: usize, rng: &mut Rng) -> Vec<u8> {
    let lines = 8 + rng.below(8);
    (0..lines)
        .map(|line| format!("file {number} line {line} {}\n", rng.below(1000)))
        .collect::<String>()
        .into_bytes()
}

/// Returns a random base: up to eleven files and symlinks.
pub(crate) fn base(rng: &mut Rng) -> Model {
    let mut model = Model::new();
    for number in 0..4 + rng.below(8) {
        let path = format!("{}f{number}.txt", DIRECTORIES[rng.below(DIRECTORIES.len())]);
        let leaf = match rng.below(12) {
            0 => Leaf::Link(format!("target{number}")),
            1 => Leaf::File { content: content(number, rng), executable: true },
            2 => Leaf::file(""),
            _ => Leaf::file(content(number, rng)),
        };
        model.insert(path, leaf);
    }
    model
}

/// Returns a side with up to eight random changes of the base. Contents and names are drawn from few values, so that
/// two sides often make the same change.
pub(crate) fn side(base: &Model, rng: &mut Rng, changes: ChangeKinds) -> Model {
    let mut model = base.clone();
    for _ in 0..1 + rng.below(8) {
        change_randomly(&mut model, rng, changes);
    }
    model
}

/// Adds an entry, or replaces the entry at its path.
fn put(model: &mut Model, path: &str, leaf: Leaf) {
    // Removes entries that cannot exist beside the new one: a leaf at the path of a parent, and a directory at the
    // path of the leaf.
    let prefix = format!("{path}/");
    model.retain(|other, _| !other.starts_with(&prefix) && !path.starts_with(&format!("{other}/")));
    model.insert(path.to_owned(), leaf);
}

/// Changes, adds, removes or renames an entry.
fn change_randomly(model: &mut Model, rng: &mut Rng, changes: ChangeKinds) {
    let paths: Vec<String> = model.keys().cloned().collect();
    if paths.is_empty() {
        return;
    }
    let path = paths[rng.below(paths.len())].clone();
    // Number of cases of the match below that can occur.
    let cases = match changes {
        ChangeKinds::Plain => 12,
        ChangeKinds::Renames => 18,
        ChangeKinds::Directories => 22,
    };
    match rng.below(cases) {
        0..=3 => edit(model, &path, rng),
        4 | 5 => drop(model.remove(&path)),
        6 | 7 => {
            let number = 100 + rng.below(2);
            let leaf = Leaf::file(format!("new {number} {}\n", rng.below(2)).repeat(4));
            put(model, NEW_PATHS[rng.below(NEW_PATHS.len())], leaf);
        }
        8 => {
            if let Some(Leaf::File { executable, .. }) = model.get_mut(&path) {
                *executable = !*executable;
            }
        }
        9 => put(model, &path, Leaf::Link(format!("elsewhere{}", rng.below(2)))),
        10 => put(model, &format!("{path}/inner.txt"), Leaf::file(format!("inner {}\n", rng.below(2)))),
        11 => {
            if let Some((directory, _)) = path.rsplit_once('/') {
                let leaf = Leaf::file(format!("was a directory {}\n", rng.below(2)));
                put(model, directory, leaf);
            }
        }
        12..=17 => rename(model, &path, rng),
        _ => rename_directory(model, &path, rng),
    }
}

/// Changes a line of a file, or the target of a symlink.
fn edit(model: &mut Model, path: &str, rng: &mut Rng) {
    match model.get_mut(path) {
        Some(Leaf::Link(target)) => *target = format!("elsewhere{}", rng.below(2)),
        Some(Leaf::File { content, .. }) => {
            let text = String::from_utf8(content.clone()).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let index = rng.below(lines.len() + 1);
            let line = format!("edited {}", rng.below(3));
            match rng.below(3) {
                0 if index < lines.len() => drop(lines.remove(index)),
                1 if index < lines.len() => lines[index] = line,
                _ => lines.insert(index, line),
            }
            *content = lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes();
        }
        None => {}
    }
}

/// Renames a file; sometimes also edits it.
fn rename(model: &mut Model, path: &str, rng: &mut Rng) {
    // Only files with content are renamed, since rename detection ignores empty files.
    if !matches!(model.get(path), Some(Leaf::File { content, .. }) if !content.is_empty()) {
        return;
    }
    let Some(leaf) = model.remove(path) else { return };
    let name = path.rsplit('/').next().unwrap();
    let to = match rng.below(3) {
        0 => format!("{}{name}", DIRECTORIES[rng.below(DIRECTORIES.len())]),
        1 => format!("{}renamed{}.txt", DIRECTORIES[rng.below(DIRECTORIES.len())], rng.below(2)),
        _ => NEW_PATHS[rng.below(NEW_PATHS.len())].to_owned(),
    };
    if model.contains_key(&to) {
        model.insert(path.to_owned(), leaf);
        return;
    }
    put(model, &to, leaf);
    if rng.below(3) == 0 {
        edit(model, &to, rng);
    }
}

/// Renames the directory of a file.
fn rename_directory(model: &mut Model, path: &str, rng: &mut Rng) {
    let Some((directory, _)) = path.rsplit_once('/') else { return };
    let to = ["moved", "other", "c/moved"][rng.below(3)];
    if to.starts_with(&format!("{directory}/")) {
        return;
    }
    let prefix = format!("{directory}/");
    let inside: Vec<String> = model.keys().filter(|path| path.starts_with(&prefix)).cloned().collect();
    for from in inside {
        if let Some(leaf) = model.remove(&from) {
            put(model, &format!("{to}/{}", &from[prefix.len()..]), leaf);
        }
    }
}
