//! Writes a tree as an archive.

use std::collections::HashMap;
use std::io::Write;

use tar::{EntryType, Header};

use super::block::BLOCK;
use super::error::{ArchiveError, Result};
use super::pax::Records;
use super::sparse::SparseMap;
use crate::entry::{Entry, Node};
use crate::node::{Extent, FileNode};
use crate::progress::Progress;
use crate::snapshot::Timestamp;
use crate::tree::Tree;
use crate::tree_path::join;

/// Longest name in a header, in bytes.
const NAME_MAX: usize = 100;
/// The largest number of eleven octal digits.
const OCTAL_MAX: u64 = 0o777_7777_7777;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Writes a tree as a tar archive, parents before children and sorted by name. The same tree with the same
/// times gives the same bytes.
pub fn export_tar(tree: &Tree, out: &mut dyn Write, progress: &dyn Progress) -> Result<()> {
    let mut writer = Writer { tree, out, links: HashMap::new() };
    progress.begin("exporting entries", None);
    writer.entry(b"./", &tree.root())?;
    // Iterative, because trees may be too deep for the stack.
    let mut stack = vec![(Vec::new(), entries(tree, &tree.root())?)];
    while let Some((path, entries)) = stack.last_mut() {
        let Some(entry) = entries.next() else {
            stack.pop();
            continue;
        };
        let path = join(path, &entry.name);
        writer.entry(&path, &entry)?;
        progress.advance(1);
        if matches!(entry.node, Node::Directory(_)) {
            stack.push((path, self::entries(tree, &entry)?));
        }
    }
    progress.end();
    // Two blocks of zeros end an archive.
    writer.write(&[0; 2 * BLOCK as usize])?;
    writer.out.flush().map_err(|source| ArchiveError::Write { source })
}

fn entries(tree: &Tree, entry: &Entry) -> Result<std::vec::IntoIter<Entry>> {
    match &entry.node {
        Node::Directory(directory) => Ok(tree.list(directory)?.into_iter()),
        _ => Ok(Vec::new().into_iter()),
    }
}

/// Handling of the holes of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holes {
    /// Writes zeros.
    Write,
    Omit,
}

struct Writer<'a> {
    tree: &'a Tree,
    out: &'a mut dyn Write,
    /// Path and node of the first name of each hard-linked file, by link label.
    links: HashMap<u64, (Vec<u8>, FileNode)>,
}

impl Writer<'_> {
    fn entry(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        let mut member = NewMember::new(path, entry);
        match &entry.node {
            Node::Directory(directory) => {
                if !member.path.ends_with(b"/") {
                    member.path.push(b'/');
                }
                member.pax.set_xattrs(&directory.xattrs);
                member.kind = EntryType::Directory;
                self.write_header(member)
            }
            Node::Symlink(link) => {
                member.kind = EntryType::Symlink;
                member.target.clone_from(&link.target);
                self.write_header(member)
            }
            Node::File(file) => match self.first_name(path, entry.link, file) {
                Some(first) => {
                    member.kind = EntryType::Link;
                    member.target = first;
                    self.write_header(member)
                }
                None => self.file(member, file),
            },
        }
    }

    /// Returns the name under which the archive already has this file. All names of a file must have equal
    /// nodes; otherwise they become separate files.
    fn first_name(&mut self, path: &[u8], link: Option<u64>, file: &FileNode) -> Option<Vec<u8>> {
        let link = link?;
        match self.links.get(&link) {
            Some((first, first_file)) => (first_file == file).then(|| first.clone()),
            None => {
                self.links.insert(link, (path.to_vec(), file.clone()));
                None
            }
        }
    }

    fn file(&mut self, mut member: NewMember, file: &FileNode) -> Result<()> {
        member.pax.set_xattrs(&file.xattrs);
        match SparseMap::of(&file.extents) {
            Some(map) => self.sparse_file(member, file, &map),
            None => {
                member.size = file.size();
                self.write_header(member)?;
                self.content(file, Holes::Write)?;
                self.pad(file.size())
            }
        }
    }

    fn sparse_file(&mut self, mut member: NewMember, file: &FileNode, map: &SparseMap) -> Result<()> {
        let encoded = map.encode();
        member.size = encoded.len() as u64 + map.stored();
        for (key, value) in [("major", "1"), ("minor", "0"), ("realsize", &map.size.to_string())] {
            member.pax.set(format!("GNU.sparse.{key}").as_bytes(), value.as_bytes());
        }
        // Tools without support for the format extract the parts under a name that says so.
        member.pax.set(b"GNU.sparse.name", &member.path);
        member.path.splice(..0, *b"GNUSparseFile.0/");
        self.write_header(member)?;
        self.write(&encoded)?;
        self.content(file, Holes::Omit)?;
        self.pad(map.stored())
    }

    fn content(&mut self, file: &FileNode, holes: Holes) -> Result<()> {
        for extent in &file.extents {
            match extent {
                Extent::Data { len, .. } => {
                    let data = self.tree.store().read_extents(std::slice::from_ref(extent), 0, *len)?;
                    self.write(&data)?;
                }
                Extent::Hole { .. } if holes == Holes::Omit => {}
                Extent::Hole { len } => self.zeros(*len)?,
            }
        }
        Ok(())
    }

    /// Writes the header of a member, after the pax records that it needs.
    fn write_header(&mut self, mut member: NewMember) -> Result<()> {
        member.overflow_into_pax();
        if !member.pax.is_empty() {
            let records = member.pax.encode();
            let mut header = plain_header(EntryType::XHeader, b"PaxHeader", records.len() as u64);
            header.set_mode(0o644);
            self.block(&mut header)?;
            self.write(&records)?;
            self.pad(records.len() as u64)?;
        }
        let mut header = plain_header(member.kind, &member.path, member.size.min(OCTAL_MAX));
        header.set_mode(u32::from(member.mode));
        header.set_mtime(member.whole_seconds().unwrap_or(0));
        copy_into(&mut header.as_old_mut().linkname, &member.target);
        self.block(&mut header)
    }

    fn block(&mut self, header: &mut Header) -> Result<()> {
        header.set_cksum();
        self.write(header.as_bytes())
    }

    fn pad(&mut self, len: u64) -> Result<()> {
        self.zeros(len.next_multiple_of(BLOCK) - len)
    }

    fn zeros(&mut self, mut len: u64) -> Result<()> {
        while len > 0 {
            let step = len.min(ZEROS.len() as u64);
            self.write(&ZEROS[..step as usize])?;
            len -= step;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|source| ArchiveError::Write { source })
    }
}

/// A member that is about to be written.
struct NewMember {
    path: Vec<u8>,
    kind: EntryType,
    target: Vec<u8>,
    mode: u16,
    modified: Option<Timestamp>,
    size: u64,
    pax: Records,
}

impl NewMember {
    fn new(path: &[u8], entry: &Entry) -> Self {
        Self {
            path: path.to_vec(),
            kind: EntryType::Regular,
            target: Vec::new(),
            mode: entry.node.mode(),
            modified: entry.modified,
            size: 0,
            pax: Records::default(),
        }
    }

    /// Returns the time in seconds, if a header can hold it.
    fn whole_seconds(&self) -> Option<u64> {
        const NANOS: i64 = 1_000_000_000;
        let time = self.modified?.0;
        u64::try_from(time / NANOS).ok().filter(|seconds| *seconds <= OCTAL_MAX && time >= 0)
    }

    fn overflow_into_pax(&mut self) {
        if self.path.len() > NAME_MAX {
            self.pax.set(b"path", &self.path);
        }
        if self.target.len() > NAME_MAX {
            self.pax.set(b"linkpath", &self.target);
        }
        if self.size > OCTAL_MAX {
            self.pax.set(b"size", self.size.to_string().as_bytes());
        }
        if let Some(modified) = self.modified
            && (self.whole_seconds().is_none() || modified.0 % 1_000_000_000 != 0)
        {
            self.pax.set_modified(modified);
        }
    }
}

/// Creates a header. Owners are not kept, so that archives of a tree are equal for all users.
fn plain_header(kind: EntryType, path: &[u8], size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    copy_into(&mut header.as_old_mut().name, path);
    header
}

fn copy_into(field: &mut [u8; NAME_MAX], bytes: &[u8]) {
    let len = bytes.len().min(NAME_MAX);
    field[..len].copy_from_slice(&bytes[..len]);
}
