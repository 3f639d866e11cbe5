//! Templates that are root filesystems in directories.
//!
//! A template is imported from an archive: a root filesystem, the output of `docker save`, or an OCI layout.
//! It is unpacked into a temporary directory and renamed, so a template is there in full or not at all.

mod image;
mod versions;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use workspace_state::{
    ArchiveError, ArchiveLimits, Cancel, Cancelled, ExtractOptions, ExtractProfile, Extractor,
};

use crate::clock::now;
use crate::compression::zstd_reader;
use crate::sandbox_dir::remove_tree;

pub use versions::{check_template_name, split_version};

const MANIFEST: &str = "template.json";
const ROOT: &str = "root";
/// Prefix of temporary directories; no template has such a name.
const TEMPORARY_PREFIX: &str = ".unfinished-";
const NAME_MAX: usize = 128;
/// Maximum number of files, links and directories of a template.
const ENTRIES_MAX: u64 = 4_000_000;
/// Maximum number of bytes of names in one archive, which are kept in memory while it is read.
const METADATA_MAX: u64 = 512 << 20;

/// Reason why a template cannot be imported or removed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TemplateError {
    #[error(
        "`{name}` cannot be a template's name: letters, digits and `.`, `_`, `-`, `:`, `/`, at most {NAME_MAX}, are \
         allowed, and it begins with a letter or digit"
    )]
    Name { name: String },
    #[error("template `{name}` already exists; remove it first")]
    Exists { name: String },
    #[error("the archive cannot be imported: {0}")]
    Archive(String),
    #[error("the archive is too large: it has more than {limit} {what}")]
    TooLarge { what: String, limit: u64 },
    #[error("the import was cancelled")]
    Cancelled,
    #[error("the server's disk has no space for the template; free some, and import it again")]
    Full,
    #[error("cannot store the template: {0}")]
    Io(io::Error),
}

impl TemplateError {
    /// Returns the error of a task that panicked or was aborted.
    pub(crate) fn task_failed(error: tokio::task::JoinError) -> Self {
        Self::Io(io::Error::other(error))
    }
}

impl From<io::Error> for TemplateError {
    fn from(error: io::Error) -> Self {
        if Cancelled::is_cause_of(&error) {
            return Self::Cancelled;
        }
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            // An error without an OS error code comes from the reader of the archive.
            _ if error.raw_os_error().is_none() => Self::Archive(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

impl From<ArchiveError> for TemplateError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Cancelled(_) => Self::Cancelled,
            ArchiveError::TooLarge { kind, limit } => Self::TooLarge { what: kind.to_string(), limit },
            ArchiveError::Read { source } => source.into(),
            // A name or a file that the file system does not support is a mistake of the archive.
            ArchiveError::Extract { source, .. }
                if !matches!(source.kind(), io::ErrorKind::InvalidFilename | io::ErrorKind::FileTooLarge) =>
            {
                source.into()
            }
            other => Self::Archive(other.to_string()),
        }
    }
}

/// Limits of an import, and the flag that cancels it.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Maximum for each of these, in bytes: the decompressed archive, its decompressed layers, and its files.
    pub max_bytes: u64,
    /// Cancels the import, which then leaves nothing behind.
    pub cancel: Cancel,
}

impl ImportOptions {
    fn limits(&self) -> ArchiveLimits {
        ArchiveLimits { bytes: self.max_bytes, entries: ENTRIES_MAX, metadata: METADATA_MAX }
    }

    fn too_large(&self) -> TemplateError {
        TemplateError::TooLarge { what: "bytes".to_owned(), limit: self.max_bytes }
    }
}

/// Description of an imported template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedTemplate {
    /// Unique name.
    pub name: String,
    /// Bytes of its files.
    pub size: u64,
    /// Time of the import, in milliseconds since 1970.
    pub created_at: i64,
    /// Environment variables of the image.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Devices and pipes that were skipped.
    #[serde(default, rename = "left_out")]
    pub skipped: u64,
    /// Origin of a template that was built; `None` if it was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildOrigin>,
}

/// Origin of a built template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildOrigin {
    /// Template that the recipe started with; `None` if it made its own root filesystem.
    pub from: Option<String>,
    /// Description of the recipe.
    pub description: Option<String>,
    /// Id of the tree of its root filesystem.
    pub tree: String,
}

/// The templates in a directory.
#[derive(Debug, Clone)]
pub struct Templates {
    directory: PathBuf,
}

impl Templates {
    /// Opens the templates in `directory`, which is created by the first import.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Lists all templates, by name.
    pub fn list(&self) -> io::Result<Vec<ImportedTemplate>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut templates = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if !is_temporary(&path) {
                templates.extend(read_manifest(&path)?);
            }
        }
        templates.sort_by(|a: &ImportedTemplate, b: &ImportedTemplate| a.name.cmp(&b.name));
        Ok(templates)
    }

    /// Finds a template by name, with the path of its root filesystem; `None` if there is none.
    pub fn find(&self, name: &str) -> io::Result<Option<(ImportedTemplate, PathBuf)>> {
        let Ok(path) = self.path(name) else { return Ok(None) };
        Ok(read_manifest(&path)?.map(|template| (template, path.join(ROOT))))
    }

    /// Opens an unnamed file, into which the caller writes an archive for [`Self::import`].
    pub fn receive(&self) -> io::Result<File> {
        fs::create_dir_all(&self.directory)?;
        tempfile_in(&self.directory)
    }

    /// Imports a template from an archive: plain, or compressed with gzip or zstd.
    pub fn import(
        &self,
        name: &str,
        archive: File,
        options: &ImportOptions,
    ) -> Result<ImportedTemplate, TemplateError> {
        let path = self.path(name)?;
        if split_version(name).1.is_some() {
            // Versions are made by builds.
            return Err(TemplateError::Name { name: name.to_owned() });
        }
        if path.exists() || !self.versions(name)?.is_empty() {
            return Err(TemplateError::Exists { name: name.to_owned() });
        }
        let temporary = self.directory.join(format!("{TEMPORARY_PREFIX}{}", Uuid::now_v7().simple()));
        let imported = self.unpack(name, archive, &temporary, options).and_then(|template| {
            fs::rename(&temporary, &path).map_err(|error| match error.kind() {
                // A concurrent import was faster.
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                    TemplateError::Exists { name: name.to_owned() }
                }
                _ => error.into(),
            })?;
            Ok(template)
        });
        if imported.is_err() {
            remove_tree(&temporary)?;
        }
        imported
    }

    /// Unpacks an archive into the directory `temporary`, and writes the manifest there.
    fn unpack(
        &self,
        name: &str,
        archive: File,
        temporary: &Path,
        options: &ImportOptions,
    ) -> Result<ImportedTemplate, TemplateError> {
        let root = temporary.join(ROOT);
        fs::create_dir_all(&root)?;
        let archive = decompressed(archive, options, || self.receive())?;
        let profile = ExtractProfile::ImageLayer;
        let extract = ExtractOptions { profile, limits: options.limits(), cancel: options.cancel.clone() };
        let mut extractor = Extractor::new(&root, extract)?;
        let envs = image::unpack(archive, &mut extractor, options)?;
        // Every user in a sandbox has to enter the root directory.
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
        if !root.join("bin/sh").exists() && fs::symlink_metadata(root.join("bin/sh")).is_err() {
            return Err(TemplateError::Archive("it has no /bin/sh".to_owned()));
        }
        let template = ImportedTemplate {
            name: name.to_owned(),
            size: extractor.report().bytes,
            created_at: now(),
            envs,
            skipped: extractor.report().skipped_count,
            build: None,
        };
        fs::write(
            temporary.join(MANIFEST),
            serde_json::to_vec(&template).map_err(|error| TemplateError::Io(error.into()))?,
        )?;
        Ok(template)
    }

    /// Removes a template, which no sandbox may use. Returns false if it does not exist.
    pub fn remove(&self, name: &str) -> Result<bool, TemplateError> {
        let path = self.path(name)?;
        let temporary = self.directory.join(format!("{TEMPORARY_PREFIX}{}", Uuid::now_v7().simple()));
        match fs::rename(&path, &temporary) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            moved => moved?,
        }
        remove_tree(&temporary)?;
        Ok(true)
    }

    /// Removes temporary directories of imports that were killed.
    pub fn remove_leftovers(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if is_temporary(&path) {
                remove_tree(&path)?;
            }
        }
        Ok(())
    }

    /// Returns the path of a template. Fails if the name is not valid.
    fn path(&self, name: &str) -> Result<PathBuf, TemplateError> {
        check_template_name(name)?;
        // A file name cannot contain `/`. Names contain no `%`, so that no two names have the same path.
        Ok(self.directory.join(name.replace('/', "%2F").replace(':', "%3A")))
    }
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(TEMPORARY_PREFIX))
}

/// Reads the manifest of a template; `None` if the directory is not a template.
fn read_manifest(path: &Path) -> io::Result<Option<ImportedTemplate>> {
    match fs::read(path.join(MANIFEST)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Opens an unnamed file, which is gone when it is closed.
#[cfg(target_os = "linux")]
fn tempfile_in(directory: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?))
}

/// Opens a file and removes its name at once.
#[cfg(not(target_os = "linux"))]
fn tempfile_in(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!("{TEMPORARY_PREFIX}{}", Uuid::now_v7().simple()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Decompresses the archive into an unnamed file, which `receive` opens, if it is compressed.
pub(crate) fn decompressed(
    mut archive: File,
    options: &ImportOptions,
    receive: impl Fn() -> io::Result<File>,
) -> Result<File, TemplateError> {
    archive.rewind()?;
    let mut first_bytes = Vec::new();
    (&archive).take(4).read_to_end(&mut first_bytes)?;
    archive.rewind()?;
    let Some(reader) = decompress(&first_bytes, &archive)? else { return Ok(archive) };
    let mut output = receive()?;
    let mut reader = options.cancel.reader(reader);
    let (mut buffer, mut length) = (vec![0; 256 << 10], 0);
    loop {
        let read = reader.read(&mut buffer)?;
        length += read as u64;
        // A small compressed file may become large.
        if length > options.max_bytes {
            return Err(options.too_large());
        }
        match read {
            0 => break,
            // Zeros become holes in the file and take no space.
            _ if buffer[..read].iter().all(|byte| *byte == 0) => {
                output.seek(SeekFrom::Start(length))?;
            }
            _ => output.write_all(&buffer[..read])?,
        }
    }
    output.set_len(length)?;
    output.rewind()?;
    Ok(output)
}

/// Returns a decompressing reader, chosen by the first bytes; `None` for data that is not compressed.
fn decompress<'a>(
    first_bytes: &[u8],
    from: impl io::Read + 'a,
) -> io::Result<Option<Box<dyn io::Read + 'a>>> {
    Ok(match first_bytes {
        [0x1f, 0x8b, ..] => Some(Box::new(flate2::read::MultiGzDecoder::new(from))),
        [0x28, 0xb5, 0x2f, 0xfd] => Some(Box::new(zstd_reader(from)?)),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
