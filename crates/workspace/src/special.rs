//! Special files (sockets, named pipes and devices) of a workspace that is reset in place, that is, whose files are
//! replaced by those of another snapshot in the same directory.
//!
//! Snapshots do not hold special files, so they could not be restored when a failed reset is undone. They are moved
//! away before the reset, removed when the reset is complete, and moved back if it is undone.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, renameat};
use rustix::io::Errno;
use workspace_host::NamespaceHolder;
use workspace_host::overlay;

use crate::error::{Context as _, Result};
use crate::file_opener::DirectoryEditor;
use crate::provider::ResetInPlaceError;

/// Special files that were moved out of the agent's directory.
pub(crate) struct SpecialFiles<'a> {
    holder: &'a NamespaceHolder,
    editor: DirectoryEditor,
    /// Path of the agent's directory.
    tree: &'a Path,
    /// Directory that the files are moved to. The name of a file in it is the index of the file in `paths`.
    aside: PathBuf,
    /// Original paths, relative to the agent's directory.
    paths: Vec<PathBuf>,
}

impl<'a> SpecialFiles<'a> {
    /// Moves special files from `tree` into the new directory `aside` on the same file system. If a file cannot be
    /// moved, moves all files back. If that fails, too, the error says that the reset is not undone. A failure before
    /// a file was moved counts as undone.
    pub(crate) fn move_aside(
        holder: &'a NamespaceHolder,
        tree: &'a Path,
        aside: PathBuf,
        paths: Vec<PathBuf>,
    ) -> Result<Self, ResetInPlaceError> {
        let special = Self { holder, editor: DirectoryEditor::new(holder), tree, aside, paths };
        // An earlier reset left special files if it was killed, could not be undone, or failed to remove them. They are
        // not part of the content that this reset starts from.
        special.remove_aside()?;
        if special.paths.is_empty() {
            return Ok(special);
        }
        fs::create_dir(&special.aside).context("create", &special.aside)?;
        let Err(error) = special.move_all_aside() else { return Ok(special) };
        let is_undone = match special.move_back() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "failed to move special files back");
                false
            }
        };
        Err(ResetInPlaceError { error, is_undone })
    }

    /// Moves all files into `aside`. Ignores files that do not exist any more.
    fn move_all_aside(&self) -> Result<()> {
        for (path, aside) in self.paths_aside() {
            match self.rename(path, &|directory, name| renameat(directory, name, CWD, &aside)) {
                // Removed by a process of the agent.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved.context("move", &self.tree.join(path))?,
            }
        }
        Ok(())
    }

    /// Moves the files back to their original paths. A file that cannot be moved, for example because its directory is
    /// missing, stays in the directory `aside`. Fails with the first error, after all other files were moved.
    pub(crate) fn move_back(self) -> Result<()> {
        let mut result = Ok(());
        for (path, aside) in self.paths_aside() {
            // The file was not moved away.
            if aside.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                continue;
            }
            let moved = self.rename(path, &|directory, name| renameat(CWD, &aside, directory, name));
            result = result.and(moved.context("move back", &self.tree.join(path)));
        }
        result?;
        self.remove_aside()
    }

    /// Removes the files.
    pub(crate) fn remove(self) -> Result<()> {
        self.remove_aside()
    }

    /// Returns the original path of each file, and its path in `aside`.
    fn paths_aside(&self) -> impl Iterator<Item = (&Path, PathBuf)> {
        let paths = self.paths.iter().enumerate();
        paths.map(|(number, path)| (path.as_path(), self.aside.join(number.to_string())))
    }

    /// Calls `rename` with the open original directory of a file and the file's name in it.
    fn rename(
        &self,
        path: &Path,
        rename: &dyn Fn(BorrowedFd<'_>, &Path) -> Result<(), Errno>,
    ) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        self.editor.change(self.tree, parent, &|directory| rename(directory, Path::new(name)))
    }

    /// Removes the directory `aside`, if it exists.
    fn remove_aside(&self) -> Result<()> {
        if !self.aside.exists() {
            return Ok(());
        }
        Ok(overlay::remove_tree(self.holder, &self.aside)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt as _;

    use rustix::fs::{FileType, Mode, mknodat};

    use super::*;

    /// Directory of a workspace with the named pipe `tree/d/pipe` and the file `tree/file`.
    fn fixture() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (tree, aside) = (directory.path().join("tree"), directory.path().join("special"));
        fs::create_dir_all(tree.join("d")).unwrap();
        fs::write(tree.join("file"), "").unwrap();
        mknodat(CWD, tree.join("d/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        (directory, tree, aside)
    }

    fn is_pipe(path: &Path) -> bool {
        path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_fifo())
    }

    #[test]
    fn files_are_moved_back_if_another_cannot_be_moved_away() {
        let (_directory, tree, aside) = fixture();
        let paths = ["d/pipe", "gone", "file/pipe"].map(PathBuf::from).to_vec();
        let failed = SpecialFiles::move_aside(&NamespaceHolder::None, &tree, aside.clone(), paths).err();
        assert!(failed.unwrap().is_undone);
        assert!(is_pipe(&tree.join("d/pipe")) && !aside.exists());
    }

    #[test]
    fn file_that_cannot_be_moved_back_is_kept_and_reported() {
        let (_directory, tree, aside) = fixture();
        let paths = vec![PathBuf::from("d/pipe")];
        let special = SpecialFiles::move_aside(&NamespaceHolder::None, &tree, aside.clone(), paths);
        let special = special.map_err(|failure| failure.error).unwrap();
        fs::remove_dir(tree.join("d")).unwrap();
        special.move_back().unwrap_err();
        assert!(is_pipe(&aside.join("0")));
    }

    #[test]
    fn failure_that_cannot_be_undone_has_the_first_error() {
        let (_directory, tree, aside) = fixture();
        // Moving `d` away makes it impossible to move `d/pipe` back. Then moving `file/pipe` fails.
        let paths = ["d/pipe", "d", "file/pipe"].map(PathBuf::from).to_vec();
        let failed = SpecialFiles::move_aside(&NamespaceHolder::None, &tree, aside.clone(), paths).err();
        let failed = failed.unwrap();
        assert!(!failed.is_undone);
        assert!(failed.error.to_string().contains("file/pipe"), "{}", failed.error);
        assert!(is_pipe(&aside.join("0")));
    }
}
