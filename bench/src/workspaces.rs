//! Measurements of workspaces through the library, each part in its own process.
//!
//! A *test bed* is a directory with a store, the snapshot of a generated tree, and layers. It is created once
//! and reused by the next parts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use workspace_host::NamespaceHolder;
use workspace_host::overlay::{self, Overlay, Upper};
use workspace_state::{
    Durability, NewSnapshot, NoProgress, SnapshotId, SnapshotOptions, Store, snapshot_directory,
};
use workspace_workspace::{
    LazyCommand, Materialize, NewWorkspace, Options, ProviderKind, ProviderPreference, SnapshotPart,
    Workspaces, Writers,
};

use crate::args::Args;
use crate::engine::regular_paths;
use crate::failure::Failure;
use crate::plan::{Parameters, Plan};

/// Argument with which this program serves a lazy mount.
const LAZY_MOUNT_ARG: &str = "serve-lazy-mount";
/// Number of changed files.
const CHANGED_FILES: usize = 10;

/// Serves a lazy mount if the arguments request it.
pub(crate) fn lazy_mount_entry() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != LAZY_MOUNT_ARG {
        return None;
    }
    match workspace_mount::daemon_main(words) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("{error}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Samples by name, in milliseconds unless the name says otherwise.
type Samples = BTreeMap<&'static str, Vec<f64>>;

/// Measures one part in the test bed `BED` of the tree `TREE` and prints the results as JSON.
pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let part = args.option("part", "create".to_owned())?;
    let (root, tree) = (args.path("BED")?, args.path("TREE")?);
    let (files, rounds) = (args.option("files", 100_000)?, args.option("rounds", 50)?);
    let many = args.option("many", 1_000)?;
    let jobs: usize = args.option("jobs", 2)?;
    let git: PathBuf = args.option("git", PathBuf::new())?;
    args.finish()?;
    let bed = TestBed::open(&root, &tree)?;
    let mut samples = Samples::new();
    match part.as_str() {
        "create" => create(&bed, rounds, &mut samples)?,
        "change" => change(&bed, &some_files(files), rounds, &mut samples)?,
        "copy" => copy(&bed, &some_files(files), rounds, &git, &mut samples)?,
        "lazy" => lazy(&bed, &some_files(files), rounds, &mut samples)?,
        "many" => self::many(&bed, &tree, many, &mut samples)?,
        "build" => build(&bed, &tree, rounds, jobs, &mut samples)?,
        other => return Err(format!("there is no part `{other}`").into()),
    }
    println!(
        "{}",
        serde_json::to_string(&serde_json::json!({ "snapshot": bed.snapshot, "samples": samples }))?
    );
    Ok(())
}

/// Returns some regular files of the generated tree, far from each other.
fn some_files(files: usize) -> Vec<String> {
    let paths = regular_paths(&Plan::new(Parameters { files, seed: 1, median: 4096 }));
    (0..CHANGED_FILES).map(|number| paths[number * paths.len() / CHANGED_FILES + 7].clone()).collect()
}

/// Directories in which workspaces are created.
#[derive(Clone)]
struct TestBed {
    root: PathBuf,
    store: Store,
    holder: NamespaceHolder,
    snapshot: SnapshotId,
}

impl TestBed {
    fn open(root: &Path, tree: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(root)?;
        let root = fs::canonicalize(root)?;
        let store = Store::open_or_create(root.join("store"))?;
        let note = root.join("snapshot");
        let snapshot = match fs::read_to_string(&note) {
            Ok(text) => text.parse()?,
            Err(_) => {
                let options = SnapshotOptions {
                    record_as_checkout: false,
                    quiescent: true,
                    ..SnapshotOptions::default()
                };
                let id = snapshot_directory(&store, tree, options, &NoProgress)?.snapshot.id;
                fs::write(&note, id.to_string())?;
                id
            }
        };
        let holder = NamespaceHolder::find_or_start(&root)?;
        Ok(Self { root, store, holder, snapshot })
    }

    /// Opens the workspaces whose layers are in a directory of this name.
    fn workspaces(&self, layers: &str) -> Result<Workspaces, Failure> {
        let lazy =
            LazyCommand { program: std::env::current_exe()?, args: vec![OsString::from(LAZY_MOUNT_ARG)] };
        let workspaces = Workspaces::open(Options {
            directory: self.root.join("workspaces"),
            layers: self.root.join(layers),
            store: self.store.clone(),
            holder: Ok(self.holder.clone()),
            file_owner: None,
            part: SnapshotPart::Workspace,
            owner_ids: None,
            provider: ProviderPreference::Prefer(ProviderKind::Overlay),
            lazy: Some(lazy),
            reserve: 0,
            outside_writers: Writers::Stopped,
        })?;
        if let Some(reason) = workspaces.provider_selection().unavailable_reason(ProviderKind::Overlay) {
            return Err(reason.to_owned().into());
        }
        for left in workspaces.list()? {
            workspaces.remove(&left.id)?;
        }
        Ok(workspaces)
    }

    /// Opens the workspaces after creating the layers of the snapshot.
    fn with_layers(&self) -> Result<Workspaces, Failure> {
        let workspaces = self.workspaces("layers")?;
        workspaces.create("first", &self.wanted(Materialize::Full))?;
        workspaces.remove("first")?;
        Ok(workspaces)
    }

    fn wanted(&self, materialize: Materialize) -> NewWorkspace<'static> {
        NewWorkspace { snapshot: Some(self.snapshot), materialize, ..NewWorkspace::default() }
    }

    /// Appends a line to files of a workspace.
    fn edit(&self, at: &Path, files: &[String]) -> Result<(), Failure> {
        let mut command = overlay::command(&self.holder, "/bin/sh".as_ref());
        command.args(["-ec", "for file; do echo '// changed' >> \"$file\"; done", "sh"]);
        succeed(command.args(files.iter().map(|file| at.join(file))))
    }

    /// Stops the lazy mount, so that the next use starts another one.
    fn end_lazy_mount(&self, layers: &str) -> Result<(), Failure> {
        overlay::unmount(&self.holder, &self.root.join(layers).join("view"))?;
        Ok(())
    }
}

/// Measures the creation of workspaces with existing layers, between bare mounts.
fn create(bed: &TestBed, rounds: usize, samples: &mut Samples) -> Result<(), Failure> {
    let workspaces = bed.with_layers()?;
    let layer = only_layer(&bed.root.join("layers/layers"))?;
    let bare = bed.root.join("bare");
    for round in 0..rounds {
        for turn in 0..3 {
            match (turn + round) % 3 {
                0 => ours(bed, &workspaces, samples)?,
                1 => bare_mount(bed, &bare, &layer, samples)?,
                _ if bed.holder == NamespaceHolder::None => mount_program(&bare, &layer, samples)?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn ours(bed: &TestBed, workspaces: &Workspaces, samples: &mut Samples) -> Result<(), Failure> {
    timed(samples, "create", || workspaces.create("one", &bed.wanted(Materialize::Auto)))?;
    Ok(timed(samples, "cleanup", || workspaces.remove("one"))?)
}

/// Creates the directories of an overlay mount.
fn prepare(bare: &Path) -> Result<[PathBuf; 3], Failure> {
    if bare.exists() {
        fs::remove_dir_all(bare)?;
    }
    let paths = ["upper", "work", "at"].map(|name| bare.join(name));
    for path in &paths {
        fs::create_dir_all(path)?;
    }
    Ok(paths)
}

fn bare_mount(bed: &TestBed, bare: &Path, layer: &Path, samples: &mut Samples) -> Result<(), Failure> {
    let [upper, work, at] = prepare(bare)?;
    let lower = [layer.to_owned()];
    let mount = Overlay {
        lower: &lower,
        upper: Some(Upper { directory: &upper, work: &work }),
        mount_point: &at,
        idmap_uid: None,
    };
    timed(samples, "bare mount", || overlay::mount(&bed.holder, &mount))?;
    timed(samples, "bare unmount", || overlay::unmount(&bed.holder, &at))?;
    Ok(overlay::remove_tree(&bed.holder, bare)?)
}

fn mount_program(bare: &Path, layer: &Path, samples: &mut Samples) -> Result<(), Failure> {
    let [upper, work, at] = prepare(bare)?;
    let options =
        format!("lowerdir={},upperdir={},workdir={}", layer.display(), upper.display(), work.display());
    let mut command = Command::new("mount");
    command.args(["-t", "overlay", "overlay", "-o", &options]).arg(&at);
    timed(samples, "mount program", || succeed(&mut command))?;
    succeed(Command::new("umount").arg(&at))
}

/// Returns the directory of the only layer.
fn only_layer(layers: &Path) -> Result<PathBuf, Failure> {
    let mut entries = fs::read_dir(layers)?;
    let entry = entries.next().ok_or("there is no layer")??;
    Ok(entry.path().join("tree"))
}

/// Measures finding and committing a few changed files.
fn change(bed: &TestBed, files: &[String], rounds: usize, samples: &mut Samples) -> Result<(), Failure> {
    let workspaces = bed.with_layers()?;
    for _ in 0..rounds {
        let made = workspaces.create("one", &bed.wanted(Materialize::Auto))?;
        bed.edit(&made.path, files)?;
        let found = timed(samples, "changes", || differences(&workspaces))?;
        check(found == files.len(), format!("{found} files differ"))?;
        let new = NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::with_message("bench") };
        timed(samples, "commit", || workspaces.commit("one", new, Writers::Stopped))?;
        timed(samples, "changes, committed before", || differences(&workspaces))?;
        workspaces.remove("one")?;
    }
    Ok(())
}

fn differences(workspaces: &Workspaces) -> workspace_workspace::Result<usize> {
    Ok(workspaces.changes("one", Writers::Stopped)?.differences()?.len())
}

/// Measures the same in a workspace that is a copy, alternating with `git status` in a work tree.
fn copy(
    bed: &TestBed,
    files: &[String],
    rounds: usize,
    git: &Path,
    samples: &mut Samples,
) -> Result<(), Failure> {
    let workspaces = bed.workspaces("layers")?;
    let new = NewWorkspace { provider: Some(ProviderKind::Copy), ..bed.wanted(Materialize::Auto) };
    let made = timed(samples, "create", || workspaces.create("one", &new))?;
    bed.edit(&made.path, files)?;
    let found = timed(samples, "changes, first time", || differences(&workspaces))?;
    check(found == files.len(), format!("{found} files differ"))?;
    for _ in 0..rounds {
        timed(samples, "changes", || differences(&workspaces))?;
        let mut status = Command::new("git");
        status.arg("-C").arg(git).args(["status", "--porcelain"]);
        timed(samples, "git status", || succeed(&mut status))?;
    }
    let new = NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::with_message("bench") };
    timed(samples, "commit", || workspaces.commit("one", new, Writers::Stopped))?;
    Ok(workspaces.remove("one")?)
}

/// Measures workspaces of a snapshot without layers, until a file is read.
fn lazy(bed: &TestBed, files: &[String], rounds: usize, samples: &mut Samples) -> Result<(), Failure> {
    let mut small = bed.store.empty_tree()?;
    small.write("file", b"small".to_vec())?;
    let small = small.commit(NewSnapshot::with_message("small"))?.id;
    for round in 0..rounds {
        // Each round has its own directory of layers, and so its own lazy mount.
        for (what, is_running) in [("lazy mount not running", false), ("lazy mount running", true)] {
            let layers = format!("lazy-{round}-{is_running}");
            let workspaces = bed.workspaces(&layers)?;
            if is_running {
                let new = NewWorkspace { snapshot: Some(small), ..bed.wanted(Materialize::Lazy) };
                workspaces.create("small", &new)?;
            }
            let file = &files[round % files.len()];
            timed(samples, what, || -> Result<(), Failure> {
                let made = workspaces.create("one", &bed.wanted(Materialize::Lazy))?;
                check(!fs::read(made.path.join(file))?.is_empty(), format!("{file} is empty"))
            })?;
            for id in ["one", "small"] {
                workspaces.remove(id)?;
            }
            bed.end_lazy_mount(&layers)?;
            drop(workspaces);
            fs::remove_dir_all(bed.root.join(&layers))?;
        }
    }
    Ok(())
}

/// Measures the disk and memory usage of many workspaces together.
fn many(bed: &TestBed, tree: &Path, count: usize, samples: &mut Samples) -> Result<(), Failure> {
    let workspaces = bed.with_layers()?;
    let (before, memory) = (Memory::now()?, own_memory()?);
    for number in 0..count {
        workspaces.create(&format!("ws-{number}"), &bed.wanted(Materialize::Auto))?;
    }
    let (after, own) = (Memory::now()?, own_memory()?);
    let mut add = |what, value: f64| samples.insert(what, vec![value]);
    add("kernel", after.kernel - before.kernel);
    add("process", own - memory);
    add("available", before.available - after.available);
    add("one copy", disk(tree)? as f64);
    add("layers", disk(&bed.root.join("layers"))? as f64);
    add("workspaces", disk(&bed.root.join("workspaces"))? as f64);
    for number in 0..count {
        workspaces.remove(&format!("ws-{number}"))?;
    }
    Ok(())
}

/// Memory of the machine, in bytes.
struct Memory {
    /// Kernel memory: slabs, per-CPU memory, stacks, page tables.
    kernel: f64,
    /// Available memory.
    available: f64,
}

impl Memory {
    fn now() -> Result<Self, Failure> {
        let text = fs::read_to_string("/proc/meminfo")?;
        let kernel = ["Slab", "Percpu", "KernelStack", "PageTables"].map(|name| kib(&text, name));
        Ok(Self { kernel: kernel.iter().sum(), available: kib(&text, "MemAvailable") })
    }
}

fn own_memory() -> Result<f64, Failure> {
    Ok(kib(&fs::read_to_string("/proc/self/status")?, "VmRSS"))
}

/// Returns the bytes of a line such as `Slab: 12 kB`; 0 if there is none.
fn kib(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    value.unwrap_or_default() * 1024.0
}

/// Returns the bytes of disk blocks below a directory, without other mounts.
fn disk(path: &Path) -> Result<u64, Failure> {
    let device = fs::symlink_metadata(path)?.dev();
    let (mut open, mut bytes) = (vec![path.to_owned()], 0);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // Stats the path, not the entry: a mount is detected by its device.
            let found = fs::symlink_metadata(entry.path())?;
            if found.dev() != device {
                continue;
            }
            bytes += found.blocks() * 512;
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

/// Measures `make` of a project: in a plain directory, over layers, over the lazy mount.
fn build(
    bed: &TestBed,
    project: &Path,
    rounds: usize,
    jobs: usize,
    samples: &mut Samples,
) -> Result<(), Failure> {
    let layered = bed.with_layers()?;
    for round in 0..rounds {
        for turn in 0..3 {
            match (turn + round) % 3 {
                0 => {
                    let plain = bed.root.join("plain");
                    succeed(Command::new("cp").arg("-r").arg(project).arg(&plain))?;
                    make(&plain, jobs, ["plain, first", "plain, again"], samples)?;
                    fs::remove_dir_all(plain)?;
                }
                1 => {
                    let made = layered.create("build", &bed.wanted(Materialize::Full))?;
                    make(&made.path, jobs, ["layers, first", "layers, again"], samples)?;
                    layered.remove("build")?;
                }
                _ => build_lazily(bed, round, jobs, samples)?,
            }
        }
    }
    Ok(())
}

fn build_lazily(bed: &TestBed, round: usize, jobs: usize, samples: &mut Samples) -> Result<(), Failure> {
    let layers = format!("lazy-{round}");
    let other = TestBed { root: bed.root.join("lazily"), ..bed.clone() };
    let workspaces = other.workspaces(&layers)?;
    let made = workspaces.create("build", &bed.wanted(Materialize::Lazy))?;
    make(&made.path, jobs, ["lazy mount, first", "lazy mount, again"], samples)?;
    workspaces.remove("build")?;
    other.end_lazy_mount(&layers)
}

fn make(at: &Path, jobs: usize, what: [&'static str; 2], samples: &mut Samples) -> Result<(), Failure> {
    for what in what {
        let mut command = Command::new("make");
        command.arg("--silent").arg(format!("-j{jobs}")).arg("-C").arg(at);
        timed(samples, what, || succeed(&mut command))?;
        succeed(Command::new("make").args(["--silent", "clean", "-C"]).arg(at))?;
    }
    Ok(())
}

/// Runs `work` and records its time in milliseconds.
fn timed<T, E>(
    samples: &mut Samples,
    what: &'static str,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let began = Instant::now();
    let done = work()?;
    samples.entry(what).or_default().push(began.elapsed().as_secs_f64() * 1e3);
    Ok(done)
}

fn succeed(command: &mut Command) -> Result<(), Failure> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), format!("{:?}: {said}", command.get_program()))
}

fn check(is_right: bool, message: String) -> Result<(), Failure> {
    if is_right { Ok(()) } else { Err(message.into()) }
}
