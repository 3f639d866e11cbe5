//! History of a generated tree, applied step by step to a directory on disk.
//!
//! Step N edits, adds, removes and renames some files, in a few neighbourhoods as people do. A step depends
//! only on the tree's parameters and N: names are replayed from the plan, contents are edited in place, so
//! the directory must be at version N - 1. Version 0 is the tree as planned.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::plan::{Kind, Plan};
use crate::rng::Rng;
use crate::text::{Language, Writer};
use crate::tree::write_entry;

/// Changes of one step, as indexes into the plan's files.
#[derive(Debug)]
struct Step {
    edits: Vec<usize>,
    large: Option<usize>,
    added: Vec<usize>,
    removed: Vec<usize>,
    /// File and its old path.
    renamed: Vec<(usize, String)>,
}

/// Names in a tree as its history progresses.
pub(crate) struct History {
    plan: Plan,
    live: Vec<usize>,
    version: u64,
}

impl History {
    /// Creates a history at version 0 of `plan`.
    pub(crate) fn new(plan: Plan) -> Self {
        let live = (0..plan.files.len())
            .filter(|file| !matches!(plan.files[*file].kind, Kind::Symlink(_)))
            .collect();
        Self { plan, live, version: 0 }
    }

    /// Updates `root` from version `version - 1` to `version`.
    pub(crate) fn apply(&mut self, root: &Path, version: u64) -> io::Result<()> {
        while self.version + 1 < version {
            self.next_step();
        }
        let step = self.next_step();
        let mut rng = Rng::for_item(self.plan.parameters.seed ^ 0x00ed_1750, version);
        self.write_step(root, &step, &mut rng)
    }

    fn next_step(&mut self) -> Step {
        self.version += 1;
        let mut rng = Rng::for_item(self.plan.parameters.seed ^ 0x0005_7e95, self.version);
        let count = rng.between(10, 60);
        let mut edits = self.neighbourhoods(&mut rng, count);
        let removed: Vec<usize> = (0..rng.below(4)).map(|_| self.remove_some(&mut rng)).collect();
        edits.retain(|file| !removed.contains(file));
        let renamed = (0..rng.below(4)).map(|_| self.rename_some(&mut rng)).collect();
        let added = (0..rng.between(1, 6)).map(|_| self.add_some(&mut rng)).collect();
        // The first three files of a plan are its large ones, and one may have been removed.
        let large = rng.one_in(8).then(|| rng.below(3)).filter(|file| self.live.contains(file));
        edits.retain(|file| Some(*file) != large);
        Step { edits, large, added, removed, renamed }
    }

    /// Returns `count` different files in runs of neighbours.
    fn neighbourhoods(&self, rng: &mut Rng, count: usize) -> Vec<usize> {
        let mut files = Vec::with_capacity(count);
        while files.len() < count {
            let start = rng.below(self.live.len());
            let run = rng.between(1, 12).min(count - files.len());
            files.extend((0..run).map(|i| self.live[(start + i) % self.live.len()]));
        }
        files.sort_unstable();
        files.dedup();
        files
    }

    fn remove_some(&mut self, rng: &mut Rng) -> usize {
        let position = rng.below(self.live.len());
        self.live.remove(position)
    }

    fn rename_some(&mut self, rng: &mut Rng) -> (usize, String) {
        let file = *rng.pick(&self.live);
        let old = self.plan.path(&self.plan.files[file]);
        let directory = rng.below(self.plan.directories.len());
        self.plan.rename(rng, file, directory);
        (file, old)
    }

    fn add_some(&mut self, rng: &mut Rng) -> usize {
        let directory = rng.below(self.plan.directories.len());
        let file = self.plan.add_file(rng, directory);
        self.live.push(file);
        file
    }

    /// Applies a step. Renames come before edits: the names of a step are those at its end.
    fn write_step(&self, root: &Path, step: &Step, rng: &mut Rng) -> io::Result<()> {
        let writer = Writer::new();
        let path = |file: usize| root.join(self.plan.path(&self.plan.files[file]));
        // A file may be renamed twice in a step: all renames but the last use its intermediate paths.
        for (position, (file, old)) in step.renamed.iter().enumerate() {
            let later = step.renamed[position + 1..].iter().find(|(other, _)| other == file);
            let new = later.map_or_else(|| path(*file), |(_, next)| root.join(next));
            fs::rename(root.join(old), new)?;
        }
        for file in &step.removed {
            fs::remove_file(path(*file))?;
        }
        for file in &step.edits {
            edit(&path(*file), self.plan.files[*file].kind, &writer, rng)?;
        }
        if let Some(file) = step.large {
            edit(&path(file), self.plan.files[file].kind, &writer, rng)?;
        }
        for file in &step.added {
            write_entry(&self.plan, &writer, root, &self.plan.files[*file])?;
        }
        Ok(())
    }
}

/// Edits a file according to its kind: lines of text, or a range in the middle of a binary.
fn edit(path: &Path, kind: Kind, writer: &Writer, rng: &mut Rng) -> io::Result<()> {
    let mut bytes = fs::read(path)?;
    match kind {
        Kind::Text(language) => edit_text(&mut bytes, language, writer, rng),
        _ => edit_binary(&mut bytes, rng),
    }
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(&bytes)
}

fn edit_text(bytes: &mut Vec<u8>, language: Language, writer: &Writer, rng: &mut Rng) {
    for _ in 0..rng.between(1, 4) {
        let mut lines = Vec::new();
        for _ in 0..rng.between(1, 8) {
            writer.single_line(rng, language, &mut lines);
        }
        let at = line_start(bytes, rng.below(bytes.len() + 1));
        match rng.below(4) {
            0 => bytes.extend_from_slice(&lines),
            1 => drop(bytes.splice(at..at, lines)),
            _ => {
                let end = line_start(bytes, (at + lines.len()).min(bytes.len())).max(at);
                drop(bytes.splice(at..end, lines));
            }
        }
    }
}

fn edit_binary(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(bytes.len() + 1);
    let end = (at + rng.between(1, 4096)).min(bytes.len());
    let mut stretch = vec![0; rng.between(1, 4096)];
    rng.fill(&mut stretch);
    bytes.splice(at..end, stretch);
}

/// Returns the start of the line with position `at`.
fn line_start(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)
}
