//! Parallel writer of planned trees.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::plan::{Entry, Kind, Plan};
use crate::rng::Rng;
use crate::text::Writer;

/// Creates every directory and file of `plan` under `root`, which must not exist.
pub(crate) fn write(plan: &Plan, root: &Path) -> io::Result<()> {
    for directory in &plan.directories {
        fs::create_dir(root.join(&directory.path))?;
    }
    let writer = Writer::new();
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| write_some(plan, &writer, root, &next))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a writing thread does not panic"))
    })
}

/// Writes files in runs, so that the files of a directory are mostly created together.
fn write_some(plan: &Plan, writer: &Writer, root: &Path, next: &AtomicUsize) -> io::Result<()> {
    const RUN: usize = 64;
    loop {
        let start = next.fetch_add(RUN, Ordering::Relaxed);
        if start >= plan.files.len() {
            return Ok(());
        }
        for entry in &plan.files[start..plan.files.len().min(start + RUN)] {
            write_entry(plan, writer, root, entry)?;
        }
    }
}

/// Creates one file or symlink of the plan.
pub(crate) fn write_entry(plan: &Plan, writer: &Writer, root: &Path, entry: &Entry) -> io::Result<()> {
    let path = root.join(plan.path(entry));
    if let Kind::Symlink(target) = entry.kind {
        return symlink(relative_target(plan, entry, &plan.files[target]), path);
    }
    let mode = if entry.executable { 0o755 } else { 0o644 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(&content(plan, writer, entry))
}

pub(crate) fn content(plan: &Plan, writer: &Writer, entry: &Entry) -> Vec<u8> {
    let mut rng = Rng::for_item(plan.parameters.seed, entry.content);
    match entry.kind {
        Kind::Text(language) => writer.text(&mut rng, language, entry.size),
        Kind::Binary => {
            let mut bytes = vec![0; entry.size];
            rng.fill(&mut bytes);
            bytes
        }
        Kind::Symlink(_) => Vec::new(),
    }
}

fn relative_target(plan: &Plan, from: &Entry, to: &Entry) -> String {
    let directory = &plan.directories[from.directory].path;
    let up = directory.split('/').filter(|part| !part.is_empty()).count();
    "../".repeat(up) + &plan.path(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Parameters;

    const PARAMETERS: Parameters = Parameters { files: 400, seed: 1, median: 4096 };

    fn digest(plan: &Plan) -> String {
        let writer = Writer::new();
        let mut hasher = blake3::Hasher::new();
        for entry in &plan.files {
            hasher.update(plan.path(entry).as_bytes());
            hasher.update(&content(plan, &writer, entry));
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// Checks that the data does not drift, since results of different days are compared. A change of this
    /// value is a new benchmark.
    #[test]
    fn a_seed_always_makes_the_same_tree() {
        assert_eq!(digest(&Plan::new(PARAMETERS)), "3e7abc77ed1ab674");
    }

    #[test]
    fn another_seed_makes_another_tree() {
        let other = Parameters { seed: 2, ..PARAMETERS };
        assert_ne!(digest(&Plan::new(PARAMETERS)), digest(&Plan::new(other)));
    }

    #[test]
    fn sizes_are_those_of_source_trees() {
        let plan = Plan::new(Parameters { files: 20_000, ..PARAMETERS });
        // The large files come first and are there by design.
        let mut sizes: Vec<_> = plan.files[3..].iter().map(|entry| entry.size).collect();
        sizes.sort_unstable();
        let median = sizes[sizes.len() / 2];
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((3_800..4_400).contains(&median), "median {median}");
        assert!((9_000..11_500).contains(&mean), "mean {mean}");
    }

    #[test]
    fn text_compresses_like_source() {
        let text = Writer::new().text(&mut Rng::new(1), crate::text::Language::Braces, 64 << 10);
        let compressed = zstd::bulk::compress(&text, 3).expect("memory suffices");
        let ratio = text.len() as f64 / compressed.len() as f64;
        assert!((3.0..5.0).contains(&ratio), "ratio {ratio}");
    }
}
