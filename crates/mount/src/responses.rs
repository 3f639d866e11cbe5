//! Responses to FUSE requests, independent of the protocol (`filesystem.rs`).

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuser::{Errno, FileAttr, FileType, INodeNo, Notifier};
use workspace_state::{Node, Store, StoreError, Timestamp, Tree};

use crate::chunks::{Bytes, Reader};
use crate::identity::Identity;
use crate::inode::{Body, Directory, Inode, Owner, attributes_without_content};
use crate::listing::{Listing, Listings};
use crate::options::MountOptions;
use crate::read_ahead::ReadAhead;
use crate::report::Reporter;
use crate::requests::RequestCounter;
use crate::root::{Root, RootEntry};
use crate::table::InodeTable;
use crate::xattrs::XattrNames;

/// Inode number of the root.
pub(crate) const ROOT: u64 = 1;
/// Inode number that FUSE reserves for an unknown inode.
const UNKNOWN: u64 = 0xffff_ffff;
/// Cache lifetime of immutable data: longer than any uptime, within the range of the kernel's clock.
pub(crate) const TTL_FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
/// Cache lifetime of what may change, or must be requested again.
pub(crate) const TTL_ZERO: Duration = Duration::ZERO;

/// Longest file name of Linux and of trees, in bytes; FUSE itself would accept more.
pub(crate) const NAME_MAX: usize = 255;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

pub(crate) type FuseResult<T> = Result<T, Errno>;

/// State of the FUSE server.
pub(crate) struct FuseServer {
    pub(crate) store: Store,
    root: Root,
    pub(crate) table: Arc<InodeTable>,
    listings: Listings,
    reader: Arc<Reader>,
    pub(crate) read_ahead: ReadAhead,
    reporter: Reporter,
    pub(crate) requests: RequestCounter,
    pub(crate) owner: Owner,
    xattr_mapping: XattrNames,
    /// Sender of notifications to the kernel; set once the session exists.
    kernel_notifier: Arc<OnceLock<Notifier>>,
    /// True if the kernel offers to open files without a request: after one `ENOSYS` it sends no more open requests.
    pub(crate) kernel_allows_no_open: bool,
    /// True if the kernel offers the same for directories.
    pub(crate) kernel_allows_no_opendir: bool,
}

impl FuseServer {
    pub(crate) fn new(
        store: Store,
        pin_holder: String,
        options: &MountOptions,
        requests: RequestCounter,
        kernel_notifier: Arc<OnceLock<Notifier>>,
    ) -> io::Result<Self> {
        let (table, reader) = (Arc::<InodeTable>::default(), Arc::new(Reader::new(store.clone())?));
        let read_ahead =
            ReadAhead::start(Arc::clone(&table), Arc::clone(&reader), Arc::clone(&kernel_notifier))?;
        Ok(Self {
            root: Root::new(store.clone(), pin_holder),
            reader,
            read_ahead,
            store,
            table,
            listings: Listings::default(),
            reporter: Reporter::default(),
            requests,
            owner: options
                .owner
                .map_or_else(Owner::of_process, Owner::new)
                .with_set_id_bits(options.show_set_id_bits),
            xattr_mapping: XattrNames { escaped: options.escape_overlay_xattrs },
            kernel_notifier,
            kernel_allows_no_open: false,
            kernel_allows_no_opendir: false,
        })
    }

    /// Logs an error, unless it was logged before, and returns the errno for the kernel.
    fn log_and_convert(&self, error: &StoreError) -> Errno {
        self.reporter.log_and_convert(error)
    }

    /// Counts a request, and returns the inode that it is about.
    fn requested_inode(&self, ino: INodeNo) -> FuseResult<Arc<Inode>> {
        self.requests.add();
        self.table.get(ino.0).ok_or(Errno::ESTALE)
    }

    /// Registers a lookup of an inode and returns its attributes. The caller must send them: the kernel sends a
    /// FORGET for each lookup that it was told of.
    pub(crate) fn register(&self, inode: &Arc<Inode>) -> FileAttr {
        let ino = self.table.add_lookup(inode);
        inode.attributes(ino, self.owner)
    }

    pub(crate) fn forget_lookups(&self, ino: INodeNo, count: u64) {
        if self.table.forget(ino.0, count) {
            self.listings.remove(ino.0);
        }
    }

    /// Looks up a name in a directory. Returns the attributes, which the kernel may cache forever, and the time for
    /// which it may cache the name. A missing name below a snapshot is not an error, but a negative entry, which the
    /// kernel caches.
    pub(crate) fn find(&self, parent: INodeNo, name: &[u8]) -> FuseResult<(FileAttr, Duration)> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if parent.0 == ROOT {
            self.requests.add();
            return self.find_at_root(name);
        }
        let parent = self.requested_inode(parent)?;
        let Body::Directory(directory) = &parent.body else { return Err(Errno::ENOTDIR) };
        match self.find_in(&parent, directory, name).map_err(|error| self.log_and_convert(&error))? {
            Some(inode) => Ok((self.register(&inode), TTL_FOREVER)),
            None => Ok((negative_entry(self.owner), TTL_FOREVER)),
        }
    }

    /// Looks up a name in the root. Returns the same as [`Self::find`]; a missing name is an error.
    fn find_at_root(&self, name: &[u8]) -> FuseResult<(FileAttr, Duration)> {
        let known = Root::snapshot_id(name).map(|id| Identity::of_snapshot(&id));
        if let Some(inode) = known.and_then(|identity| self.table.snapshot_root(identity)) {
            return Ok((self.register(&inode), TTL_FOREVER));
        }
        match self.root.find(name).map_err(|error| self.log_and_convert(&error))? {
            Some(RootEntry::Snapshot(inode)) => Ok((self.register(&Arc::new(inode)), TTL_FOREVER)),
            Some(RootEntry::Symlink(inode)) => Ok((self.register(&Arc::new(inode)), TTL_ZERO)),
            None => Err(Errno::ENOENT),
        }
    }

    fn find_in(
        &self,
        parent: &Inode,
        directory: &Directory,
        name: &[u8],
    ) -> Result<Option<Arc<Inode>>, StoreError> {
        let tree = Tree::open(&self.store, directory.id.into(), directory.times)?;
        let Some(entry) = tree.entry(name)? else { return Ok(None) };
        let identity = Identity::of_entry(parent.identity, directory.snapshot.identity, &entry);
        Ok(Some(Arc::new(Inode::of_entry(identity, &directory.snapshot, entry))))
    }

    /// Returns the attributes of an inode, and the time for which the kernel may cache them.
    pub(crate) fn attributes(&self, ino: INodeNo) -> FuseResult<(FileAttr, Duration)> {
        if ino.0 == ROOT {
            self.requests.add();
            // The mtime changes with every request, so that a cached listing is not used again.
            let attributes =
                attributes_without_content(ROOT, FileType::Directory, 0o755, Timestamp::now(), self.owner);
            return Ok((attributes, TTL_FOREVER));
        }
        let inode = self.requested_inode(ino)?;
        let ttl = if matches!(inode.body, Body::UnpinnedSnapshot) { TTL_ZERO } else { TTL_FOREVER };
        Ok((inode.attributes(ino.0, self.owner), ttl))
    }

    /// Returns the listing of a directory for a request from `offset` on.
    fn listing(&self, ino: INodeNo, offset: u64) -> FuseResult<Arc<Listing>> {
        if ino.0 == ROOT {
            self.requests.add();
            return self.root_listing(offset);
        }
        let inode = self.requested_inode(ino)?;
        if let Some(listing) = self.listings.get(ino.0) {
            return Ok(listing);
        }
        let Body::Directory(directory) = &inode.body else { return Err(Errno::ENOTDIR) };
        let listing = self.list(&inode, directory).map_err(|error| self.log_and_convert(&error))?;
        let listing = Arc::new(listing);
        self.listings.insert(ino.0, &listing);
        Ok(listing)
    }

    /// Returns the listing that the kernel is reading, or a new one for `offset` 0.
    fn root_listing(&self, offset: u64) -> FuseResult<Arc<Listing>> {
        if offset > 0
            && let Some(listing) = self.listings.get(ROOT)
        {
            return Ok(listing);
        }
        let listing = Arc::new(self.root.list().map_err(|error| self.log_and_convert(&error))?);
        self.listings.insert(ROOT, &listing);
        // The kernel keeps a listing as long as the mtime of the directory is unchanged. Invalidating the
        // attributes makes it ask for the mtime, which has changed by then, so it requests the next listing
        // again.
        if let Some(kernel_notifier) = self.kernel_notifier.get()
            && let Err(error) = kernel_notifier.inval_inode(INodeNo::ROOT, -1, 0)
        {
            eprintln!("lazy mount: the listing of snapshots may be out of date: {error}");
        }
        Ok(listing)
    }

    fn list(&self, parent: &Inode, directory: &Directory) -> Result<Listing, StoreError> {
        let tree = Tree::open(&self.store, directory.id.into(), directory.times)?;
        let Node::Directory(node) = tree.root().node else {
            return Ok(Listing { entries: Vec::new() });
        };
        let entries = tree.list(&node)?.into_iter().map(|mut entry| {
            let identity = Identity::of_entry(parent.identity, directory.snapshot.identity, &entry);
            let name = std::mem::take(&mut entry.name).into_boxed_slice();
            (name, Arc::new(Inode::of_entry(identity, &directory.snapshot, entry)))
        });
        Ok(Listing { entries: entries.collect() })
    }

    /// Calls `add` with the entries of a directory from `offset` on, until it returns true because the buffer
    /// is full. The first argument of `add` is the offset of the next entry.
    pub(crate) fn for_each_entry(
        &self,
        ino: INodeNo,
        offset: u64,
        mut add: impl FnMut(u64, &[u8], ListingEntry<'_>) -> bool,
    ) -> FuseResult<()> {
        let listing = self.listing(ino, offset)?;
        let dots = [(&b"."[..], ino.0), (b"..", if ino.0 == ROOT { ROOT } else { UNKNOWN })];
        for (index, (name, dot_ino)) in (0u64..).zip(dots).skip(usize::try_from(offset).unwrap_or(usize::MAX))
        {
            if add(index + 1, name, ListingEntry::DotEntry(dot_ino)) {
                return Ok(());
            }
        }
        let first = usize::try_from(offset).unwrap_or(usize::MAX).saturating_sub(dots.len());
        let entries = listing.entries.get(first..).unwrap_or_default();
        for (index, (name, inode)) in (offset.max(dots.len() as u64)..).zip(entries) {
            if add(index + 1, name, ListingEntry::Inode(inode)) {
                return Ok(());
            }
        }
        if entries.is_empty() {
            self.listings.remove(ino.0);
        }
        Ok(())
    }

    pub(crate) fn read_file(&self, ino: INodeNo, offset: u64, len: u32) -> FuseResult<Bytes> {
        let inode = self.requested_inode(ino)?;
        match &inode.body {
            Body::File { content, .. } => {
                if offset == 0 {
                    self.read_ahead.record_read(ino.0);
                }
                self.reader
                    .read(content, offset, u64::from(len))
                    .map_err(|error| self.log_and_convert(&error))
            }
            Body::Directory(_) | Body::UnpinnedSnapshot => Err(Errno::EISDIR),
            Body::Symlink(_) => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn symlink_target(&self, ino: INodeNo) -> FuseResult<Box<[u8]>> {
        match &self.requested_inode(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn seek(&self, ino: INodeNo, offset: i64, whence: i32) -> FuseResult<i64> {
        let inode = self.requested_inode(ino)?;
        let Body::File { content, .. } = &inode.body else { return Err(Errno::EINVAL) };
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let found = match whence {
            SEEK_DATA => content.seek_data(offset),
            SEEK_HOLE => content.seek_hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        found.and_then(|found| i64::try_from(found).ok()).ok_or(Errno::ENXIO)
    }

    pub(crate) fn xattr(&self, ino: INodeNo, name: &[u8]) -> FuseResult<Vec<u8>> {
        if ino.0 == ROOT {
            self.requests.add();
            return Err(Errno::NO_XATTR);
        }
        let inode = self.requested_inode(ino)?;
        let name = self.xattr_mapping.to_stored_name(name).ok_or(Errno::NO_XATTR)?;
        inode.xattrs().and_then(|xattrs| xattrs.get(&*name)).cloned().ok_or(Errno::NO_XATTR)
    }

    pub(crate) fn xattr_names(&self, ino: INodeNo) -> FuseResult<Vec<u8>> {
        if ino.0 == ROOT {
            self.requests.add();
            return Ok(Vec::new());
        }
        let inode = self.requested_inode(ino)?;
        let names = inode.xattrs().into_iter().flat_map(|xattrs| xattrs.keys());
        let mut listed = Vec::new();
        for name in names {
            listed.extend_from_slice(&self.xattr_mapping.to_served_name(name));
            listed.push(0);
        }
        Ok(listed)
    }
}

/// Entry of a listing.
#[derive(Clone, Copy)]
pub(crate) enum ListingEntry<'a> {
    /// The directory or its parent, by inode number; the kernel does not count these as lookups.
    DotEntry(u64),
    Inode(&'a Arc<Inode>),
}

/// Returns the attributes of a negative entry: the inode number 0 says that the name does not exist.
fn negative_entry(owner: Owner) -> FileAttr {
    attributes_without_content(0, FileType::RegularFile, 0, Timestamp(0), owner)
}
