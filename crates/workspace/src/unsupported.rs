//! Stubs for systems other than Linux, with the same names as the modules that only Linux has (`lib.rs`). Overlays,
//! delta layers and anchors are not supported. Workspaces are made by the providers clone and copy.

/// Access to the files of a workspace with the permissions of this process. On Linux, files that it may not read are
/// opened by a helper process in the user namespace of the namespace holder, which other systems lack.
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

    /// Opens the root directory of a workspace for reading.
    pub(crate) fn open_root(_holder: &NamespaceHolder, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// Reader for directories, which has the state of the processes that write to them meanwhile.
    pub(crate) struct Reader {
        writers: Writers,
    }

    impl Reader {
        pub(crate) fn new(_holder: &NamespaceHolder, writers: Writers) -> Self {
            Self { writers }
        }
    }

    /// Changes the entries of directories.
    pub(crate) struct DirectoryEditor;

    impl DirectoryEditor {
        pub(crate) fn new(_holder: &NamespaceHolder) -> Self {
            Self
        }

        /// Runs `work` on the directory at `path` below `root`.
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

/// Delta layers (differences between two trees, as a lower directory of overlays), which are not supported: only an
/// overlay can hide removed files. Every layer is a whole tree.
pub(crate) mod delta {
    use std::path::Path;

    use workspace_state::{CheckoutOptions, Tree};

    use crate::error::Result;

    /// Delta layer, of which no value exists.
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

/// Overlay provider whose operations fail. It is never selected, but a directory that was copied from a Linux machine
/// may have workspaces that this provider made.
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

    /// Provider of workspaces on the kernel's overlay file system, which only Linux has.
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

        /// Returns false: nothing was unmounted, because there is no lazy mount.
        pub(crate) fn unmount_lazy_mount(&self, _is_used: &dyn Fn() -> bool) -> Result<bool> {
            Ok(false)
        }

        /// Returns false: there are no overlays, so there are no attributes to escape.
        pub(crate) fn must_escape_overlay_xattrs(_holder: &NamespaceHolder) -> bool {
            false
        }
    }

    /// Returns the error of every operation that needs an overlay.
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

/// Anchors (mounts that show the present files of a project, its head, to several workspaces), which are not supported:
/// no workspace can follow an anchor.
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

    /// Head that the workspaces that follow an anchor see.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ShownHead {
        /// Snapshot whose files are shown.
        pub snapshot: SnapshotId,
        /// Sequence (number of changes of the project's head so far) of the first head with these files that was shown.
        pub sequence: i64,
    }

    /// State of the processes of a workspace that leaves an anchor.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum FollowerProcesses {
        /// All ended: no process can use files of the anchor.
        Ended,
        /// Still running. They may use files of the anchor.
        Running,
    }

    /// Anchors of a directory, of which none exists.
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
