//! Workspaces by the kernel's overlay.
//!
//! ```text
//! upper/   what was changed
//! work/    the kernel's own
//! mount/   the workspace, seen in the holder's namespaces
//! index    what the files of `upper` looked like when they were committed
//! ```

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, setxattr, utimensat};
use workspace_host::Holder;
use workspace_host::overlay::{self, Overlay as Mount, Xattrs};
use workspace_state::{NewSnapshot, Node, Store, Tree, escape_attributes};

use crate::access::Access;
use crate::base::{Base, Materialize};
use crate::error::{Context as _, Result};
use crate::here::Here;
use crate::index::Index;
use crate::layers::{Held, Layers};
use crate::lazy::Lazy;
use crate::lazy_command::LazyCommand;
use crate::provider::{Committed, Kind, Place, Present, Provider, Under};
use crate::upper::{Scan, Upper};

/// Trees with fewer entries than this are written at once.
const FEW: usize = 1_000;

/// Makes workspaces by the kernel's overlay.
#[derive(Debug)]
pub(crate) struct Overlay {
    here: Here,
    layers: Layers,
    lazy: Option<Lazy>,
    /// Whom files of workspaces belong to, where that is not this process's user.
    owner: Option<(u32, u32)>,
}

/// What is under a workspace: directories, uppermost first, and what keeps them.
struct Lower {
    paths: Vec<PathBuf>,
    under: Under,
}

impl Lower {
    fn of(held: Held) -> Self {
        Self { paths: held.paths(), under: Under { held: Some(held), lazy: false } }
    }
}

impl Overlay {
    /// `lazy` serves files before they are written, at `view`.
    pub(crate) fn new(
        store: &Store,
        here: &Here,
        layers: &Layers,
        owner: Option<(u32, u32)>,
        lazy: Option<LazyCommand>,
        view: PathBuf,
    ) -> Self {
        let lazy = lazy.map(|command| Lazy::new(command, store.path(), view, &here.get(), owner));
        Self { here: here.clone(), layers: layers.clone(), lazy, owner }
    }

    /// Whether layers must not hold attributes that a holder's overlays would take for their own notes.
    pub(crate) fn escapes(holder: &Holder) -> bool {
        overlay::xattrs(holder) == Xattrs::User
    }

    /// Ends the lazy view unless it is used, which is asked while nobody starts it.
    pub(crate) fn end_view(&self, is_used: &dyn Fn() -> bool) -> Result<bool> {
        self.lazy.as_ref().map_or(Ok(false), |lazy| lazy.end(&self.here.get(), is_used))
    }

    fn lower(&self, place: &Place, base: &Base) -> Result<Lower> {
        let Some(snapshot) = &base.snapshot else {
            return Ok(Lower { paths: vec![self.layers.empty()?], under: Under::default() });
        };
        if let Some(held) = self.layers.find_or_derive(&base.store, snapshot)? {
            return Ok(Lower::of(held));
        }
        let lazy = match (&self.lazy, base.materialize) {
            (None, _) | (_, Materialize::Full) => None,
            (Some(lazy), Materialize::Lazy) => Some(lazy),
            (Some(lazy), Materialize::Auto) => (!is_small(&base.tree)?).then_some(lazy),
        };
        let Some(lazy) = lazy else {
            return Ok(Lower::of(self.layers.find_or_write(&base.store, snapshot, false)?));
        };
        let path = match lazy.path(&self.here.get(), &snapshot.id, place.user.is_some()) {
            Err(error) if base.materialize == Materialize::Auto => {
                tracing::warn!(%error, "the files of a snapshot are all written before its workspace is there");
                return Ok(Lower::of(self.layers.find_or_write(&base.store, snapshot, false)?));
            }
            path => path?,
        };
        if base.materialize == Materialize::Auto {
            self.layers.write_later(snapshot, place.owner.as_deref().unwrap_or_default());
        }
        Ok(Lower { paths: vec![path], under: Under { held: None, lazy: true } })
    }

    fn mount(&self, place: &Place, lower: &Lower) -> Result<()> {
        let (upper, work, at) = (place.join("upper"), place.join("work"), place.join("mount"));
        let mount = Mount { lower: &lower.paths, upper: &upper, work: &work, at: &at, user: place.user };
        let mounted = overlay::mount(&self.here.get(), &mount);
        match (&self.lazy, mounted) {
            // Perhaps nobody answers there any more.
            (Some(lazy), Err(_))
                if lower.under.lazy && !overlay::is_responding(&self.here.get(), &lower.paths[0])? =>
            {
                lazy.give_up(&self.here.get())?;
                if let Some(id) = lower.paths[0].file_name().and_then(|name| name.to_str()?.parse().ok()) {
                    lazy.path(&self.here.get(), &id, place.user.is_some())?;
                }
                Ok(overlay::mount(&self.here.get(), &mount)?)
            }
            (_, mounted) => Ok(mounted?),
        }
    }

    /// Makes the directory that gets what is changed. It is what the root of the workspace looks like.
    fn make_upper(&self, path: &Path, base: &Tree) -> Result<()> {
        fs::create_dir(path).on("make", path)?;
        let root = base.root();
        let Node::Directory(node) = root.node else { return Ok(()) };
        let xattrs = match overlay::xattrs(&self.here.get()) {
            Xattrs::User => escape_attributes(&node.xattrs),
            Xattrs::Trusted => node.xattrs,
        };
        for (name, value) in &xattrs {
            setxattr(path, name.as_slice(), value, XattrFlags::empty()).on("set the attributes of", path)?;
        }
        if let Some((user, group)) = self.owner {
            chown(path, Some(user), Some(group)).on("give away", path)?;
        }
        let mode = u32::from(node.mode & 0o7777);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).on("change", path)?;
        if let Some(modified) = root.modified {
            let time = Timespec {
                tv_sec: modified.0.div_euclid(1_000_000_000),
                tv_nsec: modified.0.rem_euclid(1_000_000_000) as _,
            };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, path, &times, AtFlags::empty()).on("set the times of", path)?;
        }
        Ok(())
    }

    fn scan(&self, place: &Place, base: &Base, still: bool) -> Result<Upper> {
        let upper = place.join("upper");
        let (holder, index) = (self.here.get(), Index::read(&place.join("index")));
        let scan = Scan {
            store: &base.store,
            holder: &holder,
            access: &Access::new(&holder),
            base,
            upper: &upper,
            name: &place.name,
            index: &index,
            still,
        };
        scan.run()
    }
}

impl Provider for Overlay {
    fn kind(&self) -> Kind {
        Kind::Overlay
    }

    fn make(&self, place: &Place, base: &Base) -> Result<Under> {
        self.make_upper(&place.join("upper"), &base.tree)?;
        for name in ["work", "mount"] {
            let path = place.join(name);
            fs::create_dir(&path).on("make", &path)?;
        }
        let lower = self.lower(place, base)?;
        self.mount(place, &lower)?;
        Ok(lower.under)
    }

    fn path(&self, place: &Place) -> PathBuf {
        place.join("mount")
    }

    fn revive(&self, place: &Place, base: &Base, layers: &[String]) -> Result<Under> {
        if self.is_there(place)? {
            let lazy = layers.is_empty() && base.snapshot.is_some();
            return Ok(Under { held: self.layers.hold_again(layers), lazy });
        }
        let lower = self.lower(place, base)?;
        self.mount(place, &lower)?;
        Ok(lower.under)
    }

    fn prepare(&self, place: &Place, base: &Base) -> Result<Under> {
        Ok(self.lower(place, base)?.under)
    }

    fn is_there(&self, place: &Place) -> Result<bool> {
        let at = place.join("mount");
        let wanted = fs::canonicalize(&at).on("find", &at)?;
        Ok(overlay::mounted(&self.here.get(), &place.root)?.contains(&wanted))
    }

    fn present(&self, place: &Place, base: &Base, still: bool) -> Result<Present> {
        let Upper { tree, skipped, skipped_count, .. } = self.scan(place, base, still)?;
        Ok(Present { tree: tree.preview()?, skipped, skipped_count })
    }

    fn commit(&self, place: &Place, base: &Base, new: NewSnapshot, still: bool) -> Result<Committed> {
        let Upper { mut tree, skipped, skipped_count, files } = self.scan(place, base, still)?;
        let snapshot = tree.commit(new)?;
        let index = Index { snapshot: Some(snapshot.id), files: files.into_iter().collect() };
        index.write(&place.join("index"));
        Ok(Committed { snapshot, skipped, skipped_count })
    }

    fn own(&self, place: &Place) -> PathBuf {
        place.join("upper")
    }

    fn clear(&self, place: &Place) -> Result<()> {
        overlay::abandon(&self.here.get(), &place.join("mount"))?;
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        Ok(overlay::remove_tree(&self.here.get(), path)?)
    }
}

/// Whether a tree has few entries, found out without looking at all of a large one.
fn is_small(tree: &Tree) -> Result<bool> {
    let Node::Directory(root) = tree.root().node else { return Ok(true) };
    let (mut open, mut count) = (vec![root], 0);
    while let Some(directory) = open.pop() {
        count += usize::try_from(directory.entries).unwrap_or(usize::MAX);
        if count >= FEW {
            return Ok(false);
        }
        let entries = tree.list(&directory)?;
        open.extend(entries.into_iter().filter_map(|entry| match entry.node {
            Node::Directory(node) => Some(node),
            _ => None,
        }));
    }
    Ok(true)
}
