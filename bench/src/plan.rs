//! Plan of a generated tree: its directories, files and symlinks, without contents.
//!
//! A plan depends only on its parameters. Contents are generated later, each from its own random stream, so
//! that files can be written in parallel and the content of one never depends on another.

use std::collections::HashSet;

use crate::rng::Rng;
use crate::text::{Language, word};

/// Parameters of a generated tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    /// Number of regular files and symlinks.
    pub(crate) files: usize,
    /// Seed of everything: shape, names, contents.
    pub(crate) seed: u64,
    /// Median size of a file in bytes; the mean is about 2.5 times as large.
    pub(crate) median: usize,
}

/// Kind of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text in a language.
    Text(Language),
    /// Incompressible bytes: an image, an archive.
    Binary,
    /// A link to the file of this index in the plan.
    Symlink(usize),
}

/// File of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Index of its directory in the plan.
    pub(crate) directory: usize,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) size: usize,
    pub(crate) executable: bool,
    /// Index of the random stream of its content.
    pub(crate) content: u64,
}

/// Directory of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    /// Path from the root of the tree; empty for the root.
    pub(crate) path: String,
    depth: usize,
    names: HashSet<String>,
}

/// Plan of a whole tree.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) parameters: Parameters,
    pub(crate) directories: Vec<Directory>,
    pub(crate) files: Vec<Entry>,
}

const FILES_PER_DIRECTORY: usize = 12;
const DEEPEST_DIRECTORY: usize = 7;
/// Standard deviation of the logarithm of sizes, which makes the mean 2.5 times the median.
const SIZE_SPREAD: f64 = 1.354;
const LARGEST: usize = 4 << 20;

/// Extensions with their relative weight and kind.
const KINDS: &[(&str, usize, Kind)] = &[
    ("rs", 18, Kind::Text(Language::Braces)),
    ("c", 16, Kind::Text(Language::Braces)),
    ("h", 14, Kind::Text(Language::Braces)),
    ("ts", 12, Kind::Text(Language::Braces)),
    ("go", 5, Kind::Text(Language::Braces)),
    ("py", 13, Kind::Text(Language::Indented)),
    ("yaml", 3, Kind::Text(Language::Indented)),
    ("md", 6, Kind::Text(Language::Prose)),
    ("txt", 3, Kind::Text(Language::Prose)),
    ("json", 5, Kind::Text(Language::Data)),
    ("toml", 1, Kind::Text(Language::Data)),
    ("sh", 1, Kind::Text(Language::Indented)),
    ("png", 2, Kind::Binary),
    ("woff2", 1, Kind::Binary),
];

/// Large files, as in real trees: fixtures, recorded data. Name, kind, size.
const LARGE: &[(&str, Kind, usize)] = &[
    ("recorded.json", Kind::Text(Language::Data), 6 << 20),
    ("corpus.txt", Kind::Text(Language::Prose), 12 << 20),
    ("weights.bin", Kind::Binary, 16 << 20),
];

impl Plan {
    /// Creates the plan for `parameters`.
    pub(crate) fn new(parameters: Parameters) -> Self {
        let mut rng = Rng::new(parameters.seed);
        let mut plan = Self {
            parameters,
            directories: vec![Directory::root()],
            files: Vec::with_capacity(parameters.files),
        };
        plan.grow_directories(&mut rng);
        plan.add_large_files();
        plan.fill_directories(&mut rng);
        plan
    }

    /// Returns the path of a file from the root of the tree.
    pub(crate) fn path(&self, entry: &Entry) -> String {
        join(&self.directories[entry.directory].path, &entry.name)
    }

    /// Adds a regular file with a name of its own to `directory` and returns its index.
    pub(crate) fn add_file(&mut self, rng: &mut Rng, directory: usize) -> usize {
        let (extension, kind) = pick_kind(rng);
        let name = self.directories[directory].take_name(rng, Some(extension));
        let executable = match extension {
            "sh" => !rng.one_in(5),
            "py" => rng.one_in(12),
            _ => false,
        };
        let size = pick_size(rng, self.parameters.median);
        let content = self.files.len() as u64;
        self.files.push(Entry { directory, name, kind, size, executable, content });
        self.files.len() - 1
    }

    /// Moves a file to another directory under another name.
    pub(crate) fn rename(&mut self, rng: &mut Rng, file: usize, directory: usize) {
        let old = self.files[file].directory;
        let name = self.files[file].name.clone();
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        let renamed = self.directories[directory].take_name(rng, extension);
        self.directories[old].names.remove(&name);
        self.files[file].directory = directory;
        self.files[file].name = renamed;
    }

    /// Adds directories below earlier ones, so that old ones have many children: the skew of real trees.
    fn grow_directories(&mut self, rng: &mut Rng) {
        let wanted = (self.parameters.files / FILES_PER_DIRECTORY).max(4);
        while self.directories.len() < wanted {
            let within = rng.between(1, self.directories.len());
            let parent = rng.below(within);
            if self.directories[parent].depth < DEEPEST_DIRECTORY {
                self.add_directory(rng, parent);
            }
        }
    }

    fn add_directory(&mut self, rng: &mut Rng, parent: usize) {
        let name = self.directories[parent].take_name(rng, None);
        let parent = &self.directories[parent];
        self.directories.push(Directory {
            path: join(&parent.path, &name),
            depth: parent.depth + 1,
            names: HashSet::new(),
        });
    }

    fn add_large_files(&mut self) {
        for (name, kind, size) in LARGE {
            self.directories[1].names.insert((*name).to_owned());
            self.files.push(Entry {
                directory: 1,
                name: (*name).to_owned(),
                kind: *kind,
                size: *size,
                executable: false,
                content: self.files.len() as u64,
            });
        }
    }

    fn fill_directories(&mut self, rng: &mut Rng) {
        let shares = directory_shares(rng, self.directories.len());
        while self.files.len() < self.parameters.files {
            let draw = rng.unit();
            let directory = shares.partition_point(|share| *share < draw);
            if rng.one_in(200) {
                self.add_symlink(rng, directory);
            } else {
                self.add_file(rng, directory);
            }
        }
    }

    fn add_symlink(&mut self, rng: &mut Rng, directory: usize) {
        let target = rng.below(self.files.len());
        let name = self.directories[directory].take_name(rng, None);
        self.files.push(Entry {
            directory,
            name,
            kind: Kind::Symlink(target),
            size: 0,
            executable: false,
            content: self.files.len() as u64,
        });
    }
}

impl Directory {
    fn root() -> Self {
        Self { path: String::new(), depth: 0, names: HashSet::new() }
    }

    fn take_name(&mut self, rng: &mut Rng, extension: Option<&str>) -> String {
        loop {
            let mut name = word(rng).to_owned();
            // More parts when single words have run out, so that this ends in directories of any size.
            for _ in 0..rng.below(2 + self.names.len() / 200) {
                name.push(if extension.is_some() { '_' } else { '-' });
                name.push_str(word(rng));
            }
            if let Some(extension) = extension {
                name = format!("{name}.{extension}");
            }
            if self.names.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// Returns cumulative shares of files per directory: log-normal, so that some hold hundreds and many hold a
/// few.
fn directory_shares(rng: &mut Rng, count: usize) -> Vec<f64> {
    let weights: Vec<f64> = (0..count).map(|_| (1.3 * rng.normal().clamp(-3.0, 3.0)).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let mut shares: Vec<f64> = weights
        .iter()
        .map(|weight| {
            sum += weight / total;
            sum
        })
        .collect();
    // Rounding may leave the last share below 1, and a draw above it would select no directory.
    if let Some(last) = shares.last_mut() {
        *last = 1.0;
    }
    shares
}

fn pick_kind(rng: &mut Rng) -> (&'static str, Kind) {
    let total: usize = KINDS.iter().map(|(_, weight, _)| weight).sum();
    let mut left = rng.below(total);
    for (extension, weight, kind) in KINDS {
        if left < *weight {
            return (extension, *kind);
        }
        left -= weight;
    }
    unreachable!("the draw is below the sum of the weights")
}

fn pick_size(rng: &mut Rng, median: usize) -> usize {
    let size = median as f64 * (rng.normal() * SIZE_SPREAD).exp();
    (size as usize).min(LARGEST)
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}
