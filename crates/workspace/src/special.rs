//! Sockets, named pipes and devices of a workspace that is reset in place.
//!
//! Snapshots do not hold them, so undoing the reset could not restore them. They are moved away first,
//! removed when the reset is complete, and moved back if it is undone.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, renameat};
use rustix::io::Errno;
use workspace_host::NamespaceHolder;
use workspace_host::overlay;

use crate::access::DirectoryEditor;
use crate::error::{Context as _, Result};

/// Special files that were moved away.
pub(crate) struct SpecialFiles<'a> {
    holder: &'a NamespaceHolder,
    editor: DirectoryEditor,
    /// The agent's directory.
    tree: &'a Path,
    /// Directory that the files are moved to, each named by its index in `paths`.
    aside: PathBuf,
    /// Original paths in the agent's directory.
    paths: Vec<PathBuf>,
}

impl<'a> SpecialFiles<'a> {
    /// Moves special files from `tree` into the new directory `aside` on the same file system. If one cannot
    /// be moved, all are moved back.
    pub(crate) fn move_aside(
        holder: &'a NamespaceHolder,
        tree: &'a Path,
        aside: PathBuf,
        paths: Vec<PathBuf>,
    ) -> Result<Self> {
        let special = Self { holder, editor: DirectoryEditor::new(holder), tree, aside, paths };
        // Remove files left by a killed reset, which this reset repeats.
        special.remove_aside()?;
        if special.paths.is_empty() {
            return Ok(special);
        }
        fs::create_dir(&special.aside).context("create", &special.aside)?;
        match special.rename_each(&|directory, name, aside| renameat(directory, name, CWD, aside)) {
            Ok(()) => Ok(special),
            Err(error) => {
                special.move_back()?;
                Err(error)
            }
        }
    }

    /// Moves the files back to their original paths.
    pub(crate) fn move_back(self) -> Result<()> {
        self.rename_each(&|directory, name, aside| renameat(CWD, aside, directory, name))?;
        self.remove_aside()
    }

    /// Removes the files.
    pub(crate) fn remove(self) -> Result<()> {
        self.remove_aside()
    }

    /// Calls `rename` for each file with its directory, its name and its path in `aside`. Missing files are
    /// ignored.
    fn rename_each(&self, rename: &dyn Fn(BorrowedFd<'_>, &Path, &Path) -> Result<(), Errno>) -> Result<()> {
        for (number, path) in self.paths.iter().enumerate() {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
            let aside = self.aside.join(number.to_string());
            let work = |directory: BorrowedFd<'_>| rename(directory, Path::new(name), &aside);
            match self.editor.change(self.tree, parent, &work) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved.context("move", &self.tree.join(path))?,
            }
        }
        Ok(())
    }

    /// Removes the directory `aside`, if it exists.
    fn remove_aside(&self) -> Result<()> {
        if !self.aside.exists() {
            return Ok(());
        }
        Ok(overlay::remove_tree(self.holder, &self.aside)?)
    }
}
