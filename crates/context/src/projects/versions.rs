//! Versions of files: the rows of the history that a change of the head (the present files of a project) adds. A file
//! has an id, which it keeps when it is renamed.

use std::collections::{BTreeMap, HashMap};

use workspace_catalog::{FileChange, FileKind, NewFileVersion};
use workspace_state::{
    Difference, DifferenceKind, DirectoryNode, Entry, Extent, Node, StoreError, Tree, diff,
};

/// Prefix of the ids of files. 32 hexadecimal digits follow.
pub(super) const FILE_ID_PREFIX: &str = "file-";

/// Ids of files by path, while several changes of the head are recorded in order: an id that one change assigns is
/// known to the next changes.
#[derive(Debug, Default)]
pub(super) struct FileIds {
    /// Id by path; `None` if no file has the path any more.
    known: HashMap<Vec<u8>, Option<String>>,
}

impl FileIds {
    /// Adds the ids that the catalog has for the head. Paths whose id is known here already keep it.
    pub(super) fn add_stored(&mut self, stored: HashMap<Vec<u8>, String>) {
        for (path, id) in stored {
            self.known.entry(path).or_insert(Some(id));
        }
    }

    /// Removes the id of the file at a path, and returns it; returns a new id if none is known.
    fn take(&mut self, path: &[u8]) -> String {
        let known = self.known.insert(path.to_vec(), None).flatten();
        known.unwrap_or_else(new_file_id)
    }

    /// Returns the id of the file at a path. If none is known, the file gets a new one.
    fn get_or_create(&mut self, path: &[u8]) -> String {
        let id = self.known.get(path).cloned().flatten().unwrap_or_else(new_file_id);
        self.set(path, id.clone());
        id
    }

    fn set(&mut self, path: &[u8], id: String) {
        self.known.insert(path.to_vec(), Some(id));
    }
}

fn new_file_id() -> String {
    format!("{FILE_ID_PREFIX}{}", uuid::Uuid::now_v7().simple())
}

/// Returns the differences between two heads. The rename of a whole directory is returned as a rename of each file
/// below it.
pub(super) fn differences(before: &Tree, after: &Tree) -> Result<Vec<Difference>, StoreError> {
    let mut all = Vec::new();
    for difference in diff(before, after)? {
        match (&difference.kind, &difference.new) {
            (DifferenceKind::Renamed { from }, Some(Entry { node: Node::Directory(directory), .. })) => {
                add_moved_files(after, from, &difference.path, directory.clone(), &mut all)?;
            }
            _ => all.push(difference),
        }
    }
    Ok(all)
}

/// Adds a rename for each file below a renamed directory.
fn add_moved_files(
    tree: &Tree,
    from: &[u8],
    to: &[u8],
    directory: DirectoryNode,
    all: &mut Vec<Difference>,
) -> Result<(), StoreError> {
    let mut queue = vec![(from.to_vec(), to.to_vec(), directory)];
    while let Some((from, to, directory)) = queue.pop() {
        for entry in tree.list(&directory)? {
            let (from, path) = (join(&from, &entry.name), join(&to, &entry.name));
            match entry.node {
                Node::Directory(directory) => queue.push((from, path, directory)),
                _ => {
                    let kind = DifferenceKind::Renamed { from };
                    all.push(Difference { path, kind, old: Some(entry.clone()), new: Some(entry) });
                }
            }
        }
    }
    Ok(())
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    [directory, name].join(&b'/')
}

/// Returns the former paths of the files that differ. Their ids are needed to record the differences.
pub(super) fn former_paths(differences: &[Difference]) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    for difference in differences {
        match &difference.kind {
            DifferenceKind::Added => {}
            DifferenceKind::Renamed { from } => paths.push(from.clone()),
            _ => paths.push(difference.path.clone()),
        }
    }
    paths
}

/// Returns the new versions of the files that differ. Directories have no versions. `strategies` has the name of the
/// merge strategy for each path whose content was merged from both sides.
pub(super) fn versions(
    differences: &[Difference],
    ids: &mut FileIds,
    author: &str,
    strategies: &BTreeMap<Vec<u8>, &'static str>,
) -> Vec<NewFileVersion> {
    // The ids of renamed files are taken from their old paths first, because another file may get an old path in the
    // same change.
    let mut moved = HashMap::new();
    for difference in differences {
        if let DifferenceKind::Renamed { from } = &difference.kind {
            moved.insert(difference.path.clone(), ids.take(from));
        }
    }
    let mut rows = Vec::with_capacity(differences.len());
    for difference in differences {
        let row = version(difference, ids, &moved, author);
        rows.extend(row.map(|row| with_strategy(row, strategies)));
    }
    rows
}

fn with_strategy(row: NewFileVersion, strategies: &BTreeMap<Vec<u8>, &'static str>) -> NewFileVersion {
    let strategy = strategies.get(&row.path).map(|&name| name.to_owned());
    NewFileVersion { strategy, ..row }
}

/// Returns the version that a difference adds; `None` if it concerns only directories. `moved` has the ids of renamed
/// files by new path.
fn version(
    difference: &Difference,
    ids: &mut FileIds,
    moved: &HashMap<Vec<u8>, String>,
    author: &str,
) -> Option<NewFileVersion> {
    let Difference { path, kind, old, new } = difference;
    let (new_file, old_file) = (new.as_ref().filter(is_file), old.as_ref().filter(is_file));
    let (change, previous) = match kind {
        DifferenceKind::Added => (FileChange::Added, None),
        DifferenceKind::Removed => (FileChange::Removed, None),
        DifferenceKind::Modified => (FileChange::Modified, None),
        DifferenceKind::ModeChanged => (FileChange::Mode, None),
        DifferenceKind::Renamed { from } => (FileChange::Renamed, Some(from.clone())),
        // One of the two may be a directory, which has no versions.
        DifferenceKind::TypeChanged => match (old_file, new_file) {
            (None, Some(_)) => (FileChange::Added, None),
            (Some(_), None) => (FileChange::Removed, None),
            _ => (FileChange::Modified, None),
        },
    };
    let entry = if change == FileChange::Removed { old_file? } else { new_file? };
    let file_id = match change {
        FileChange::Removed => ids.take(path),
        FileChange::Renamed => {
            let id = moved.get(path).cloned().unwrap_or_else(new_file_id);
            ids.set(path, id.clone());
            id
        }
        _ => ids.get_or_create(path),
    };
    let removed = change == FileChange::Removed;
    Some(NewFileVersion {
        file_id,
        change,
        previous_path: previous,
        kind: kind_of(entry),
        size: if removed { 0 } else { entry.node.size() },
        mode: entry.node.mode().into(),
        content: if removed { None } else { content_hash(entry) },
        mime: if removed { None } else { mime_type(path) },
        strategy: None,
        author: author.to_owned(),
        path: path.clone(),
    })
}

fn is_file(entry: &&Entry) -> bool {
    !matches!(entry.node, Node::Directory(_))
}

fn kind_of(entry: &Entry) -> FileKind {
    match entry.node {
        Node::Directory(_) => FileKind::Directory,
        Node::Symlink(_) => FileKind::Symlink,
        Node::File(_) => FileKind::File,
    }
}

/// Returns a hash of the content of a file, computed from the ids of its chunks and the lengths of its extents; `None`
/// if the entry is no file.
pub(super) fn content_hash(entry: &Entry) -> Option<String> {
    let Node::File(file) = &entry.node else { return None };
    let mut hasher = blake3::Hasher::new();
    for extent in &file.extents {
        hasher.update(&extent.len().to_le_bytes());
        if let Extent::Data { chunk, .. } = extent {
            hasher.update(chunk.as_bytes());
        }
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// Returns the MIME type that the extension of a file suggests.
pub(super) fn mime_type(path: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(path).ok()?;
    mime_guess::from_path(path).first_raw().map(str::to_owned)
}
