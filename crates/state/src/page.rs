//! Lists of directory entries: sorted by name bytes, split into pages when long.
//!
//! A directory node (the immutable, stored form of a directory, named by its hash) contains a *root list*. A list of at
//! most [`LIST_MAX`] entries is stored in one piece. A longer one is split into *pages*, which are nodes of their own,
//! and the items of the root list are then the ids of pages. A page ends after each entry whose name is a *split
//! point*: the lowest [`SPLIT_BITS`] bits of the hash of the name are zero. If the list of pages is too long as well,
//! it is split in the same way with the next higher bits. The split points depend on the names alone, not on the
//! history of the list. So equal directories have equal pages, and a change in a directory of a million entries
//! rewrites four small pages.
//!
//! A list with entries as items has level 0. The level of a list of pages is one more than that of the pages.
//!
//! The modification times of the entries are in lists of their own, in separate nodes. These lists have the same shape
//! as those of the directory: one time for each entry, and one page for each page, but no names. They also have link
//! labels. Files (or symlinks) with equal link labels in one snapshot are hard links to one file.
//!
//! ```text
//! list    level u8, number of items, items
//!
//! Items of a directory:
//! entry   name, node reference (see `node.rs`)                          at level 0
//! page    last name in the page, number of entries below, page id       above level 0
//!
//! Items of times:
//! time    0                                                             at level 0: unknown
//!         1, id of the times of the directory                             of a directory
//!         2, seconds, nanoseconds                                         of a file or symlink
//!         3, seconds, nanoseconds, link label u64                         of a hard-linked file or symlink
//! page    number of entries below, page id                              above level 0
//! ```

use std::ops::Range;

use crate::codec::{DecodeError, Decoded, Reader, Write};
use crate::error::Result;
use crate::id::NodeId;
use crate::node::{self, NodeRef, TAG_DIRECTORY, TAG_PAGE, TAG_TIMES, TAG_TIMES_PAGE, Xattrs, is_valid_name};
use crate::snapshot::Timestamp;

/// Maximum number of items of a root list. A longer list is split into pages.
pub(crate) const LIST_MAX: usize = 64;
/// Number of hash bits that must be zero at a split point: a page has 2^5 items on average.
pub(crate) const SPLIT_BITS: u32 = 5;
/// Maximum number of levels of pages.
const LEVEL_MAX: u8 = 8;
/// Bytes reserved before the items of a list that is being built, for its header. A header with attributes may
/// need more.
const HEADER_RESERVE: usize = 32;

/// Destination of nodes that are being written.
pub(crate) trait NodeSink {
    fn put_node(&self, node: &[u8]) -> Result<NodeId>;

    /// Writes a list as a node.
    fn put_list(&self, list: EncodedList) -> Result<NodeId> {
        self.put_node(list.bytes())
    }

    /// Writes a list of times as a node.
    fn put_times(&self, times: EncodedList) -> Result<NodeId> {
        self.put_list(times)
    }
}

/// Item of a list of times at level 0: modification time and link label of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryTime {
    Unknown,
    /// Id of the times node of a directory, which also has the modification time of the directory itself.
    Directory(NodeId),
    Modified {
        time: Timestamp,
        /// Link label; `None` for a file with one name.
        link_label: Option<u64>,
    },
}

impl EntryTime {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(33);
        match self {
            Self::Unknown => out.push(0),
            Self::Directory(times) => {
                out.push(1);
                out.extend_from_slice(times.as_bytes());
            }
            Self::Modified { time, link_label } => {
                out.push(if link_label.is_some() { 3 } else { 2 });
                encode_time(&mut out, time);
                if let Some(label) = link_label {
                    out.extend_from_slice(&label.to_le_bytes());
                }
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let time = Self::read(&mut reader)?;
        reader.expect_end()?;
        Ok(time)
    }

    fn read(reader: &mut Reader<'_>) -> Decoded<Self> {
        Ok(match reader.u8()? {
            0 => Self::Unknown,
            1 => Self::Directory(NodeId::from_bytes(reader.array()?)),
            2 => Self::Modified { time: read_time(reader)?, link_label: None },
            3 => Self::Modified { time: read_time(reader)?, link_label: Some(reader.u64()?) },
            _ => return Err(DecodeError("unknown kind of time")),
        })
    }
}

fn encode_time(out: &mut Vec<u8>, time: Timestamp) {
    out.zigzag(time.0.div_euclid(1_000_000_000));
    out.varint(time.0.rem_euclid(1_000_000_000) as u64);
}

fn read_time(reader: &mut Reader<'_>) -> Decoded<Timestamp> {
    let seconds = reader.zigzag()?;
    let nanos = reader.varint()?;
    if nanos >= 1_000_000_000 {
        return Err(DecodeError("more nanoseconds than a second has"));
    }
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    i64::try_from(total).map(Timestamp).map_err(|_| DecodeError("a time out of range"))
}

/// Header of a list, before its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListHeader {
    /// Header of the root list of a directory.
    Directory { mode: u16, xattrs: Xattrs },
    /// Header of a page of a directory.
    Page,
    /// Header of the root list of times: modification time of the directory itself.
    Times(Option<Timestamp>),
    /// Header of a page of times.
    TimesPage,
}

impl ListHeader {
    fn has_names(&self) -> bool {
        matches!(self, Self::Directory { .. } | Self::Page)
    }

    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Directory { mode, xattrs } => {
                out.push(TAG_DIRECTORY);
                out.push(node::xattrs_flag(xattrs));
                out.extend_from_slice(&mode.to_le_bytes());
                node::encode_xattrs(out, xattrs);
            }
            Self::Page => out.push(TAG_PAGE),
            Self::Times(None) => out.extend_from_slice(&[TAG_TIMES, 0]),
            Self::Times(Some(time)) => {
                out.extend_from_slice(&[TAG_TIMES, 1]);
                encode_time(out, *time);
            }
            Self::TimesPage => out.push(TAG_TIMES_PAGE),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Decoded<Self> {
        Ok(match reader.u8()? {
            TAG_DIRECTORY => {
                let flags = reader.u8()?;
                if flags > 1 {
                    return Err(DecodeError("unknown flags of a directory"));
                }
                let mode = node::decode_mode(reader)?;
                Self::Directory { mode, xattrs: node::decode_xattrs(reader, flags)? }
            }
            TAG_PAGE => Self::Page,
            TAG_TIMES => match reader.u8()? {
                0 => Self::Times(None),
                1 => Self::Times(Some(read_time(reader)?)),
                _ => return Err(DecodeError("unknown flags of times")),
            },
            TAG_TIMES_PAGE => Self::TimesPage,
            _ => return Err(DecodeError("not a list")),
        })
    }
}

/// Offsets of an item in the encoded list, in bytes.
#[derive(Debug, Clone, Copy)]
struct Item {
    /// Offset of the name. Equal to `body` in a list of times.
    name: u32,
    /// Offset of the bytes after the name: a node reference, a time, or a reference to a page.
    body: u32,
    /// Offset after the item.
    end: u32,
    name_len: u8,
}

/// An encoded list with the offsets of its items: the root list or a page of a directory, or of its times.
#[derive(Debug)]
pub(crate) struct EncodedList {
    /// Unused bytes up to `begin`, then the encoded list. Offsets of items count from the start of this vector.
    bytes: Vec<u8>,
    begin: usize,
    pub(crate) header: ListHeader,
    pub(crate) level: u8,
    items: Vec<Item>,
    /// Number of entries in this list and in the pages below it.
    pub(crate) entries: u64,
}

/// Reference from a list to one of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildPage {
    /// Number of entries in the page and in the pages below it.
    pub(crate) entries: u64,
    pub(crate) id: NodeId,
}

impl EncodedList {
    pub(crate) fn decode(bytes: Vec<u8>) -> Decoded<Self> {
        let mut reader = Reader::new(&bytes);
        let header = ListHeader::read(&mut reader)?;
        let level = reader.u8()?;
        if level > LEVEL_MAX {
            return Err(DecodeError("a list too deep"));
        }
        let count = reader.item_count(1)?;
        let mut items = Vec::with_capacity(count);
        let mut entries = 0u64;
        let mut last: &[u8] = b"";
        for _ in 0..count {
            let (name, item) = read_item(&mut reader, &header, level, &mut entries)?;
            if header.has_names() && (!is_valid_name(name) || name <= last) {
                return Err(DecodeError("a name that is impossible or out of order"));
            }
            last = name;
            items.push(item);
        }
        reader.expect_end()?;
        if level > 0 && items.is_empty() {
            return Err(DecodeError("a list of pages without pages"));
        }
        Ok(Self { bytes, begin: 0, header, level, items, entries })
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the encoded list.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.bytes.capacity() + self.items.capacity() * size_of::<Item>() + 128
    }

    /// Returns the name of an entry, or above level 0 the last name of a page. Empty in a list of times.
    pub(crate) fn name(&self, index: usize) -> &[u8] {
        let item = self.items[index];
        &self.bytes[item.name as usize..item.name as usize + item.name_len as usize]
    }

    /// Returns the encoded node reference or time of an item at level 0.
    pub(crate) fn body(&self, index: usize) -> &[u8] {
        let item = self.items[index];
        &self.bytes[item.body as usize..item.end as usize]
    }

    /// Returns the number of items from `index` on that equal, byte for byte, those of another list from
    /// `other_index` on.
    pub(crate) fn count_same_items(&self, index: usize, other: &Self, other_index: usize) -> usize {
        let start = self.item_start(index);
        let same_end =
            start + common_prefix(&self.bytes[start..], &other.bytes[other.item_start(other_index)..]);
        self.items[index..].partition_point(|item| item.end as usize <= same_end)
    }

    /// Returns the offset of an encoded item. For `index` equal to the number of items, returns the end of the list.
    fn item_start(&self, index: usize) -> usize {
        match (index.checked_sub(1), self.items.first()) {
            (Some(before), _) => self.items[before].end as usize,
            // A name is preceded by its length: one byte up to 127, else two.
            (None, Some(first)) if self.header.has_names() => {
                first.name as usize - if first.name_len < 0x80 { 1 } else { 2 }
            }
            (None, Some(first)) => first.body as usize,
            (None, None) => self.bytes.len(),
        }
    }

    pub(crate) fn node_ref(&self, index: usize) -> Decoded<NodeRef<'_>> {
        NodeRef::decode(self.body(index))
    }

    pub(crate) fn time(&self, index: usize) -> Decoded<EntryTime> {
        EntryTime::decode(self.body(index))
    }

    /// Returns true if the items are pages, not entries.
    pub(crate) fn is_split(&self) -> bool {
        self.level > 0
    }

    /// Returns the reference to a page. Only above level 0.
    pub(crate) fn child(&self, index: usize) -> Decoded<ChildPage> {
        read_child(&mut Reader::new(self.body(index)))
    }

    /// Returns the position of the entry `name` at level 0, or `None` if there is no such entry. Above level 0, returns
    /// the position of the page that has the entry if it exists, or `None` if all names in the pages are smaller.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        if self.level == 0 {
            return self.items.binary_search_by(|item| self.item_name(item).cmp(name)).ok();
        }
        let index = self.items.partition_point(|item| self.item_name(item) < name);
        (index < self.items.len()).then_some(index)
    }

    /// Returns the number of items with smaller names, and true if there is an entry `name`. Only at level 0.
    pub(crate) fn position_of(&self, name: &[u8]) -> (usize, bool) {
        match self.items.binary_search_by(|item| self.item_name(item).cmp(name)) {
            Ok(index) => (index, true),
            Err(index) => (index, false),
        }
    }

    fn item_name(&self, item: &Item) -> &[u8] {
        &self.bytes[item.name as usize..item.name as usize + item.name_len as usize]
    }
}

/// Reads an item, and adds the number of its entries to `entries`. Returns the name, which is empty in a list of times,
/// and the offsets.
fn read_item<'a>(
    reader: &mut Reader<'a>,
    header: &ListHeader,
    level: u8,
    entries: &mut u64,
) -> Decoded<(&'a [u8], Item)> {
    let name = if header.has_names() { reader.blob()? } else { &[] };
    let body = reader.position();
    if level > 0 {
        let child = read_child(reader)?;
        *entries = entries.checked_add(child.entries).ok_or(DecodeError("too many entries"))?;
    } else {
        *entries += 1;
        if header.has_names() {
            NodeRef::read(reader)?;
        } else {
            EntryTime::read(reader)?;
        }
    }
    let name_len = u8::try_from(name.len()).map_err(|_| DecodeError("a name too long"))?;
    let item =
        Item { name: (body - name.len()) as u32, body: body as u32, end: reader.position() as u32, name_len };
    Ok((name, item))
}

fn read_child(reader: &mut Reader<'_>) -> Decoded<ChildPage> {
    let entries = reader.varint()?;
    Ok(ChildPage { entries, id: NodeId::from_bytes(reader.array()?) })
}

/// Computes the hash of a name that decides if it is a split point: FNV-1a with a final mix. Part of the format.
pub(crate) fn name_hash(name: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 33
}

/// Returns true if `name` is a split point of the list of a level, so that a page ends after the item with this name.
fn ends_page(name: &[u8], level: u8) -> bool {
    let bits = name_hash(name) >> (SPLIT_BITS * u32::from(level));
    bits & ((1 << SPLIT_BITS) - 1) == 0
}

/// A page of a directory that was written, and the page of the times of its entries.
#[derive(Debug, Clone)]
pub(crate) struct PageRef {
    pub(crate) last_name: Vec<u8>,
    /// Number of entries in the page and in the pages below it.
    pub(crate) entries: u64,
    pub(crate) id: NodeId,
    /// Id of the page of times.
    pub(crate) times: NodeId,
}

/// Writes a directory and its times from entries in order of name.
pub(crate) struct DirectoryWriter<'s, S> {
    sink: &'s S,
    /// True if the directory has so many entries that its list is split into pages.
    is_split: bool,
    /// Entries since the end of the last page.
    list: ListBuilder,
    /// Times of these entries.
    times: ListBuilder,
    /// Name of the last of these entries. Only set if the list is split.
    last_name: Vec<u8>,
    /// Pages that were written or reused so far.
    pages: Vec<PageRef>,
}

impl<'s, S: NodeSink> DirectoryWriter<'s, S> {
    /// Creates a writer. `total` is the number of entries to come, which decides whether the list is split into pages.
    pub(crate) fn new(sink: &'s S, total: u64) -> Self {
        Self {
            sink,
            is_split: total > LIST_MAX as u64,
            list: ListBuilder::default(),
            times: ListBuilder::default(),
            last_name: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// Reserves memory for a list and times of about the size of these, plus one entry.
    pub(crate) fn reserve_like(&mut self, list: &EncodedList, times: &EncodedList) {
        self.list.reserve_like(list);
        self.times.reserve_like(times);
    }

    /// Adds an entry from its encoded node reference and time.
    pub(crate) fn push(&mut self, name: &[u8], node_ref: &[u8], time: &[u8]) -> Result<()> {
        self.list.push(Some(name), node_ref, 1);
        self.times.push(None, time, 1);
        if self.is_split {
            self.last_name.clear();
            self.last_name.extend_from_slice(name);
            if ends_page(name, 0) {
                self.end_page()?;
            }
        }
        Ok(())
    }

    /// Adds entries of another list at level 0 unchanged. `entries` are their positions in `list` and `times`.
    pub(crate) fn push_entries(
        &mut self,
        list: &EncodedList,
        times: &EncodedList,
        entries: Range<usize>,
    ) -> Result<()> {
        if self.is_split {
            for index in entries {
                self.push(list.name(index), list.body(index), times.body(index))?;
            }
        } else {
            self.list.push_items(list, entries.clone());
            self.times.push_items(times, entries);
        }
        Ok(())
    }

    /// Returns true if a whole page may be added next: the list is split, and the entries so far end a page.
    pub(crate) fn is_at_page_start(&self) -> bool {
        self.is_split && self.list.items.is_empty()
    }

    /// Adds a whole page. Its last name must be a split point, unless it is the last page.
    pub(crate) fn push_page(&mut self, page: PageRef) {
        debug_assert!(self.is_at_page_start());
        self.pages.push(page);
    }

    /// Writes the current page and its times, unless it has no entries.
    fn end_page(&mut self) -> Result<()> {
        if self.list.items.is_empty() {
            return Ok(());
        }
        let entries = self.list.entries;
        let id = self.sink.put_list(self.list.take(ListHeader::Page, 0))?;
        let times = self.sink.put_times(self.times.take(ListHeader::TimesPage, 0))?;
        let last_name = std::mem::take(&mut self.last_name);
        self.pages.push(PageRef { last_name, entries, id, times });
        Ok(())
    }

    /// Writes the directory node and its times node.
    pub(crate) fn finish(
        mut self,
        header: &ListHeader,
        modified: Option<Timestamp>,
    ) -> Result<(NodeId, NodeId)> {
        let mut level = 0;
        if self.is_split {
            self.end_page()?;
            level = 1;
            let mut pages = std::mem::take(&mut self.pages);
            while pages.len() > LIST_MAX && level < LEVEL_MAX {
                pages = self.join(&pages, level)?;
                level += 1;
            }
            (self.list, self.times) = lists_of_pages(&pages);
        }
        let directory = self.sink.put_list(self.list.take(header.clone(), level))?;
        let times = self.sink.put_times(self.times.take(ListHeader::Times(modified), level))?;
        Ok((directory, times))
    }

    /// Writes pages of level `level`, with `pages` as their items. Returns the written pages.
    fn join(&self, pages: &[PageRef], level: u8) -> Result<Vec<PageRef>> {
        let mut joined = Vec::new();
        for group in pages.chunk_by(|page, _| !ends_page(&page.last_name, level)) {
            let (mut list, mut times) = lists_of_pages(group);
            joined.push(PageRef {
                last_name: group.last().map(|page| page.last_name.clone()).unwrap_or_default(),
                entries: list.entries,
                id: self.sink.put_list(list.take(ListHeader::Page, level))?,
                times: self.sink.put_times(times.take(ListHeader::TimesPage, level))?,
            });
        }
        Ok(joined)
    }
}

/// Builds the list that has these pages as its items, and the list of the pages of their times.
fn lists_of_pages(pages: &[PageRef]) -> (ListBuilder, ListBuilder) {
    let (mut list, mut times) = (ListBuilder::default(), ListBuilder::default());
    for page in pages {
        let child = |id: &NodeId| {
            let mut out = Vec::with_capacity(40);
            out.varint(page.entries);
            out.extend_from_slice(id.as_bytes());
            out
        };
        list.push(Some(&page.last_name), &child(&page.id), page.entries);
        times.push(None, &child(&page.times), page.entries);
    }
    (list, times)
}

/// A list that is being built: encoded items and their offsets, so that it need not be decoded afterwards.
#[derive(Default)]
struct ListBuilder {
    bytes: Vec<u8>,
    items: Vec<Item>,
    entries: u64,
}

impl ListBuilder {
    /// Adds an item: an entry, or a page with `entries` entries in it and below. Items of times have no name.
    fn push(&mut self, name: Option<&[u8]>, body: &[u8], entries: u64) {
        self.reserve_header();
        let name_len = name.map_or(0, |name| {
            self.bytes.blob(name);
            name.len() as u8
        });
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(body);
        let end = self.bytes.len() as u32;
        self.items.push(Item { name: start - u32::from(name_len), body: start, end, name_len });
        self.entries += entries;
    }

    /// Adds items of another list at level 0.
    fn push_items(&mut self, list: &EncodedList, items: Range<usize>) {
        self.reserve_header();
        let (from, to) = (list.item_start(items.start), list.item_start(items.end));
        let base = self.bytes.len() as u32;
        let rebased = |offset: u32| base + (offset - from as u32);
        self.bytes.extend_from_slice(&list.bytes[from..to]);
        self.entries += items.len() as u64;
        self.items.extend(list.items[items].iter().map(|item| Item {
            name: rebased(item.name),
            body: rebased(item.body),
            end: rebased(item.end),
            name_len: item.name_len,
        }));
    }

    /// Reserves space for the header before the first item is added.
    fn reserve_header(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_RESERVE, 0);
        }
    }

    fn reserve_like(&mut self, list: &EncodedList) {
        self.bytes.reserve(HEADER_RESERVE + list.bytes.len() + node::NAME_MAX);
        self.items.reserve(list.items.len() + 1);
    }

    /// Completes the list with a header and returns it. The builder is empty afterwards.
    fn take(&mut self, header: ListHeader, level: u8) -> EncodedList {
        self.reserve_header();
        let mut header_bytes = Vec::with_capacity(HEADER_RESERVE);
        header.encode_to(&mut header_bytes);
        header_bytes.push(level);
        header_bytes.varint(self.items.len() as u64);
        let Self { mut bytes, mut items, entries } = std::mem::take(self);
        let mut begin = HEADER_RESERVE.saturating_sub(header_bytes.len());
        if header_bytes.len() <= HEADER_RESERVE {
            bytes[begin..HEADER_RESERVE].copy_from_slice(&header_bytes);
        } else {
            let shift = (header_bytes.len() - HEADER_RESERVE) as u32;
            bytes.splice(..HEADER_RESERVE, header_bytes);
            begin = 0;
            for item in &mut items {
                item.name += shift;
                item.body += shift;
                item.end += shift;
            }
        }
        EncodedList { bytes, begin, header, level, items, entries }
    }
}

/// Returns the length of the common prefix.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const STEP: usize = 32;
    let steps = a.chunks_exact(STEP).zip(b.chunks_exact(STEP)).take_while(|(a, b)| a == b).count() * STEP;
    steps + a[steps..].iter().zip(&b[steps..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_points_of_lists_are_frozen() {
        assert_eq!(name_hash(b""), 0xecba_3df2_c338_3c52);
        assert_eq!(name_hash(b"README.md"), FROZEN_README);
    }

    const FROZEN_README: u64 = 0x58e5_9bff_9519_d56e;

    /// Sink that checks that written lists can be decoded, and stores nothing.
    struct CheckingSink;

    impl NodeSink for CheckingSink {
        fn put_node(&self, node: &[u8]) -> Result<NodeId> {
            let page = EncodedList::decode(node.to_vec()).expect("a written node can be decoded");
            assert_eq!(page.bytes(), node);
            Ok(NodeId::of(node))
        }
    }

    #[test]
    fn a_built_list_equals_the_decoded_one() {
        let mut list = ListBuilder::default();
        for name in 0..300u32 {
            let node = NodeRef::Directory(NodeId::of(&name.to_le_bytes())).encode();
            list.push(Some(format!("{name:05}").as_bytes()), &node, 1);
        }
        let built = list.take(ListHeader::Directory { mode: 0o755, xattrs: Xattrs::new() }, 0);
        let read = EncodedList::decode(built.bytes().to_vec()).unwrap();
        assert_eq!((built.len(), built.entries, &built.header), (read.len(), read.entries, &read.header));
        for index in 0..built.len() {
            assert_eq!((built.name(index), built.body(index)), (read.name(index), read.body(index)));
        }
        CheckingSink.put_list(built).unwrap();
    }

    #[test]
    fn times_round_trip() {
        for time in [
            EntryTime::Unknown,
            EntryTime::Directory(NodeId::of(b"x")),
            EntryTime::Modified { time: Timestamp(-1), link_label: None },
            EntryTime::Modified { time: Timestamp(i64::MAX), link_label: Some(7) },
            EntryTime::Modified { time: Timestamp(i64::MIN), link_label: None },
        ] {
            assert_eq!(EntryTime::decode(&time.encode()).unwrap(), time);
        }
    }
}
