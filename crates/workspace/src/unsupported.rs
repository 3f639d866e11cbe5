//! Stubs for systems other than Linux: overlays are not supported, and every layer is a whole tree.

/// Access with the permissions of this process only: there is no namespace holder.
pub(crate) mod file_opener {
    use std::io;
    use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    use workspace_host::NamespaceHolder;
    use workspace_state::DirectoryReader;
    use workspace_state::platform::open_beneath;

    use crate::writers::Writers;

    pub(crate) fn open_root(_holder: &NamespaceHolder, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    pub(crate) struct Reader {
        writers: Writers,
    }

    impl Reader {
        pub(crate) fn new(_holder: &NamespaceHolder, writers: Writers) -> Self {
            Self { writers }
        }
    }

    pub(crate) struct DirectoryEditor;

    impl DirectoryEditor {
        pub(crate) fn new(_holder: &NamespaceHolder) -> Self {
            Self
        }

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
            self.writers == Writers::Stopped
        }
    }
}

/// Delta layers, which are not supported: only an overlay can hide removed files.
pub(crate) mod delta {
    use std::path::Path;

    use workspace_state::{CheckoutOptions, Tree};

    use crate::error::Result;

    pub(crate) enum Delta {}

    impl Delta {
        /// Returns `None`, as if there were too many differences.
        pub(crate) fn between(_from: &Tree, _to: &Tree, _max_entries: usize) -> Result<Option<Self>> {
            Ok(None)
        }

        pub(crate) fn write(&self, _directory: &Path, _options: &CheckoutOptions) -> Result<()> {
            match *self {}
        }
    }
}

/// Overlay provider that always fails. It is never selected, but a directory that was copied from another
/// machine may have workspaces of it.
pub(crate) mod overlay {
    use std::os::fd::OwnedFd;
    use std::path::{Path, PathBuf};

    use workspace_host::NamespaceHolder;
    use workspace_host::overlay;
    use workspace_state::{NewSnapshot, OwnerIds, Store};

    use crate::base::Base;
    use crate::current_holder::CurrentHolder;
    use crate::error::{Result, WorkspaceError};
    use crate::layers::Layers;
    use crate::lazy_command::LazyCommand;
    use crate::provider::{CommitResult, LowerLayers, Provider, WorkspaceContent, WorkspaceDir};
    use crate::provider_kind::ProviderKind;
    use crate::writers::Writers;

    #[derive(Debug)]
    pub(crate) struct OverlayProvider {
        holder: CurrentHolder,
    }

    impl OverlayProvider {
        pub(crate) fn new(
            _store: &Store,
            holder: &CurrentHolder,
            _layers: &Layers,
            (_file_owner, _owner_ids): (Option<(u32, u32)>, Option<OwnerIds>),
            _lazy: Option<LazyCommand>,
            _mountpoint: PathBuf,
        ) -> Self {
            Self { holder: holder.clone() }
        }

        pub(crate) fn unmount_lazy_mount(&self, _is_used: &dyn Fn() -> bool) -> Result<bool> {
            Ok(false)
        }

        /// Returns false: there are no overlays, so there are no attributes to escape.
        pub(crate) fn must_escape_overlay_xattrs(_holder: &NamespaceHolder) -> bool {
            false
        }
    }

    fn needs_linux() -> WorkspaceError {
        let reason = "overlays need Linux; clone and copy work here".to_owned();
        WorkspaceError::Provider { provider: ProviderKind::Overlay, reason }
    }

    impl Provider for OverlayProvider {
        fn kind(&self) -> ProviderKind {
            ProviderKind::Overlay
        }

        fn create(&self, _dir: &WorkspaceDir, _base: &Base) -> Result<LowerLayers> {
            Err(needs_linux())
        }

        fn path(&self, dir: &WorkspaceDir) -> PathBuf {
            dir.join("mount")
        }

        fn open_root(&self, _dir: &WorkspaceDir) -> Result<OwnedFd> {
            Err(needs_linux())
        }

        fn remount(&self, _dir: &WorkspaceDir, _base: &Base, _layers: &[String]) -> Result<LowerLayers> {
            Err(needs_linux())
        }

        fn content(&self, _dir: &WorkspaceDir, _base: &Base, _writers: Writers) -> Result<WorkspaceContent> {
            Err(needs_linux())
        }

        fn commit(
            &self,
            _dir: &WorkspaceDir,
            _base: &Base,
            _new: NewSnapshot,
            _writers: Writers,
        ) -> Result<CommitResult> {
            Err(needs_linux())
        }

        fn private_dir(&self, dir: &WorkspaceDir) -> PathBuf {
            dir.join("upper")
        }

        fn unmount(&self, _dir: &WorkspaceDir) -> Result<()> {
            Ok(())
        }

        fn remove(&self, path: &Path) -> Result<()> {
            Ok(overlay::remove_tree(&self.holder.get(), path)?)
        }
    }
}

/// Anchors, which are not supported: nothing can follow one.
pub(crate) mod anchors {
    use std::path::PathBuf;

    use serde::{Deserialize, Serialize};
    use workspace_state::{Snapshot, SnapshotId, Store};

    use crate::anchor_to_follow::AnchorToFollow;
    use crate::base::Base;
    use crate::current_holder::CurrentHolder;
    use crate::error::{Result, WorkspaceError};
    use crate::layers::Layers;
    use crate::provider_kind::ProviderKind;

    /// Head that followers see.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ShownHead {
        /// Snapshot whose files are shown.
        pub snapshot: SnapshotId,
        /// Sequence of the project's head when these files were first shown.
        pub sequence: i64,
    }

    /// Processes of a workspace that leaves an anchor.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum FollowerProcesses {
        Ended,
        Running,
    }

    #[derive(Debug)]
    pub(crate) struct Anchors {
        directory: PathBuf,
    }

    impl Anchors {
        pub(crate) fn new(directory: PathBuf, _holder: &CurrentHolder, _layers: &Layers) -> Self {
            Self { directory }
        }

        pub(crate) fn directory_of(&self, name: &str) -> PathBuf {
            self.directory.join(name)
        }

        pub(crate) fn shown(&self, _name: &str) -> Option<ShownHead> {
            None
        }

        pub(crate) fn join(&self, _followed: &AnchorToFollow<'_>, _id: &str, _base: &Base) -> Result<()> {
            let reason = "following a head needs Linux".to_owned();
            Err(WorkspaceError::Provider { provider: ProviderKind::Overlay, reason })
        }

        pub(crate) fn switch(&self, _: &str, _: &Store, _: &Snapshot, _: i64) -> Result<bool> {
            Ok(false)
        }

        pub(crate) fn release_all_ended(&self) {}

        pub(crate) fn head_count(&self, _name: &str) -> usize {
            0
        }

        pub(crate) fn leave(&self, _name: &str, _id: &str, _processes: FollowerProcesses) -> Result<()> {
            Ok(())
        }

        pub(crate) fn load(&self, _name: &str, _id: &str, _store: &Store) -> Result<()> {
            Ok(())
        }

        pub(crate) fn remove_unused(&self) {}
    }
}
