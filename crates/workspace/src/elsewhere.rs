//! What stands in for overlays on systems other than Linux: they are refused, and layers are whole trees.

/// Reading as any directory is read: there is no holder whose rights could be used.
pub(crate) mod access {
    use std::io;
    use std::os::fd::{AsFd as _, BorrowedFd};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    use workspace_host::Holder;
    use workspace_state::Reading;
    use workspace_state::platform::open_beneath;

    /// Reads with our own rights.
    pub(crate) struct Reader {
        still: bool,
    }

    impl Reader {
        pub(crate) fn new(_holder: &Holder, still: bool) -> Self {
            Self { still }
        }
    }

    /// Changes directories with our own rights.
    pub(crate) struct Changer;

    impl Changer {
        pub(crate) fn new(_holder: &Holder) -> Self {
            Self
        }

        /// Changes the directory at `path` below `root`. Never follows a link.
        pub(crate) fn change(
            &self,
            root: &Path,
            path: &Path,
            work: &dyn Fn(BorrowedFd<'_>) -> Result<(), Errno>,
        ) -> io::Result<()> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::open(root, flags, Mode::empty())?;
            Ok(work(open_beneath(&root, path.as_os_str().as_bytes(), flags)?.as_fd())?)
        }
    }

    impl Reading for Reader {
        fn is_still(&self) -> bool {
            self.still
        }
    }
}

/// Layers that hold only what changed, of which there are none: only an overlay can hide what is gone.
pub(crate) mod delta {
    use std::path::Path;

    use workspace_state::{CheckoutOptions, Tree};

    use crate::error::Result;

    /// What differs between two trees, as a layer would hold it.
    pub(crate) enum Delta {}

    impl Delta {
        /// None, as if there were too much of it.
        pub(crate) fn between(_from: &Tree, _to: &Tree, _most: usize) -> Result<Option<Self>> {
            Ok(None)
        }

        /// Writes it into an empty directory.
        pub(crate) fn write(&self, _directory: &Path, _options: &CheckoutOptions) -> Result<()> {
            match *self {}
        }
    }
}

/// The provider that cannot be used. Nothing chooses it, but a directory from another machine may have been made by it.
pub(crate) mod overlay {
    use std::path::{Path, PathBuf};

    use workspace_host::Holder;
    use workspace_host::overlay;
    use workspace_state::{NewSnapshot, Store};

    use crate::base::Base;
    use crate::error::{Result, WorkspaceError};
    use crate::here::Here;
    use crate::layers::Layers;
    use crate::lazy_command::LazyCommand;
    use crate::provider::{Committed, Kind, Place, Present, Provider, Under};

    /// Makes no workspaces.
    #[derive(Debug)]
    pub(crate) struct Overlay {
        here: Here,
    }

    impl Overlay {
        pub(crate) fn new(
            _store: &Store,
            here: &Here,
            _layers: &Layers,
            _owner: Option<(u32, u32)>,
            _lazy: Option<LazyCommand>,
            _view: PathBuf,
        ) -> Self {
            Self { here: here.clone() }
        }

        /// There is no view.
        pub(crate) fn end_view(&self, _is_used: &dyn Fn() -> bool) -> Result<bool> {
            Ok(false)
        }

        /// No layer is under an overlay.
        pub(crate) fn escapes(_holder: &Holder) -> bool {
            false
        }
    }

    fn needs_linux() -> WorkspaceError {
        let reason = "overlays need Linux; clone and copy work here".to_owned();
        WorkspaceError::Provider { provider: Kind::Overlay, reason }
    }

    impl Provider for Overlay {
        fn kind(&self) -> Kind {
            Kind::Overlay
        }

        fn make(&self, _place: &Place, _base: &Base) -> Result<Under> {
            Err(needs_linux())
        }

        fn path(&self, place: &Place) -> PathBuf {
            place.join("mount")
        }

        fn revive(&self, _place: &Place, _base: &Base, _layers: &[String]) -> Result<Under> {
            Err(needs_linux())
        }

        fn present(&self, _place: &Place, _base: &Base, _still: bool) -> Result<Present> {
            Err(needs_linux())
        }

        fn commit(&self, _place: &Place, _base: &Base, _new: NewSnapshot, _still: bool) -> Result<Committed> {
            Err(needs_linux())
        }

        fn own(&self, place: &Place) -> PathBuf {
            place.join("upper")
        }

        fn clear(&self, _place: &Place) -> Result<()> {
            Ok(())
        }

        fn remove(&self, path: &Path) -> Result<()> {
            Ok(overlay::remove_tree(&self.here.get(), path)?)
        }
    }
}
