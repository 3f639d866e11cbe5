//! Stand-ins for systems other than Linux: overlays are refused, and layers are whole trees.

/// Reading like any directory: there is no holder whose permissions could be used.
pub(crate) mod access {
    use std::io;
    use std::os::fd::{AsFd as _, BorrowedFd};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    use workspace_host::Holder;
    use workspace_state::DirectoryReader;
    use workspace_state::platform::open_beneath;

    /// Reads with the process's own permissions.
    pub(crate) struct Reader {
        quiescent: bool,
    }

    impl Reader {
        pub(crate) fn new(_holder: &Holder, quiescent: bool) -> Self {
            Self { quiescent }
        }
    }

    /// Changes directories with the process's own permissions.
    pub(crate) struct Changer;

    impl Changer {
        pub(crate) fn new(_holder: &Holder) -> Self {
            Self
        }

        /// Runs `work` on the directory at `path` below `root`. Does not follow a symlink.
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

    impl DirectoryReader for Reader {
        fn is_quiescent(&self) -> bool {
            self.quiescent
        }
    }
}

/// Delta layers, which do not exist here: only an overlay can hide removed files.
pub(crate) mod delta {
    use std::path::Path;

    use workspace_state::{CheckoutOptions, Tree};

    use crate::error::Result;

    /// Differences between two trees in the form of a layer; there are none.
    pub(crate) enum Delta {}

    impl Delta {
        /// Returns `None`, as if there were too many.
        pub(crate) fn between(_from: &Tree, _to: &Tree, _most: usize) -> Result<Option<Self>> {
            Ok(None)
        }

        /// Writes it into an empty directory.
        pub(crate) fn write(&self, _directory: &Path, _options: &CheckoutOptions) -> Result<()> {
            match *self {}
        }
    }
}

/// The overlay provider, which cannot be used. It is never chosen, but a directory from another machine may
/// have been made by it.
pub(crate) mod overlay {
    use std::path::{Path, PathBuf};

    use workspace_host::Holder;
    use workspace_host::overlay;
    use workspace_state::{NewSnapshot, Store};

    use crate::base::Base;
    use crate::current_holder::CurrentHolder;
    use crate::error::{Result, WorkspaceError};
    use crate::kind::Kind;
    use crate::layers::Layers;
    use crate::lazy_command::LazyCommand;
    use crate::provider::{Committed, LowerLayers, Present, Provider, WorkspaceDir};

    /// Provider that always fails.
    #[derive(Debug)]
    pub(crate) struct Overlay {
        holder: CurrentHolder,
    }

    impl Overlay {
        pub(crate) fn new(
            _store: &Store,
            holder: &CurrentHolder,
            _layers: &Layers,
            _owner: Option<(u32, u32)>,
            _lazy: Option<LazyCommand>,
            _mountpoint: PathBuf,
        ) -> Self {
            Self { holder: holder.clone() }
        }

        /// Returns false: there is no lazy mount.
        pub(crate) fn unmount_lazy(&self, _is_used: &dyn Fn() -> bool) -> Result<bool> {
            Ok(false)
        }

        /// Returns false: no layer is below an overlay.
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

        fn make(&self, _dir: &WorkspaceDir, _base: &Base) -> Result<LowerLayers> {
            Err(needs_linux())
        }

        fn path(&self, dir: &WorkspaceDir) -> PathBuf {
            dir.join("mount")
        }

        fn revive(&self, _dir: &WorkspaceDir, _base: &Base, _layers: &[String]) -> Result<LowerLayers> {
            Err(needs_linux())
        }

        fn present(&self, _dir: &WorkspaceDir, _base: &Base, _quiescent: bool) -> Result<Present> {
            Err(needs_linux())
        }

        fn commit(
            &self,
            _dir: &WorkspaceDir,
            _base: &Base,
            _new: NewSnapshot,
            _quiescent: bool,
        ) -> Result<Committed> {
            Err(needs_linux())
        }

        fn own(&self, dir: &WorkspaceDir) -> PathBuf {
            dir.join("upper")
        }

        fn clear(&self, _dir: &WorkspaceDir) -> Result<()> {
            Ok(())
        }

        fn remove(&self, path: &Path) -> Result<()> {
            Ok(overlay::remove_tree(&self.holder.get(), path)?)
        }
    }
}
