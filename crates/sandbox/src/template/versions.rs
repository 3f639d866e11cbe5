//! Versions of built templates: `NAME@VERSION`. A name without a version means the newest one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::{
    ImportedTemplate, MANIFEST, NAME_MAX, ROOT, TEMPORARY_PREFIX, TemplateError, Templates, read_manifest,
};
use crate::sandbox_dir::remove_tree;

/// Character between name and version.
const SEPARATOR: char = '@';
const VERSION_MAX: usize = 32;

/// Splits a name into the name of a template and its version; `None` if it has none.
pub fn split_version(name: &str) -> (&str, Option<&str>) {
    match name.split_once(SEPARATOR) {
        Some((name, version)) => (name, Some(version)),
        None => (name, None),
    }
}

/// Fails if a name, which may have a version, cannot be that of a template.
pub fn check_template_name(name: &str) -> Result<(), TemplateError> {
    let is_first = |byte: u8| byte.is_ascii_alphanumeric();
    let is_valid = |text: &str, others: &[u8], max: usize| {
        text.bytes().next().is_some_and(is_first)
            && text.len() <= max
            && text.bytes().all(|byte| is_first(byte) || others.contains(&byte))
    };
    let (stem, version) = split_version(name);
    match is_valid(stem, b"._-:/", NAME_MAX)
        && version.is_none_or(|version| is_valid(version, b"._-", VERSION_MAX))
    {
        true => Ok(()),
        false => Err(TemplateError::Name { name: name.to_owned() }),
    }
}

/// Returns the name of a version of a template.
fn versioned(name: &str, version: &str) -> String {
    format!("{name}{SEPARATOR}{version}")
}

impl Templates {
    /// Lists the versions of a built template, the newest last.
    pub fn versions(&self, name: &str) -> io::Result<Vec<ImportedTemplate>> {
        let Ok(path) = self.path(&versioned(name, "0")) else { return Ok(Vec::new()) };
        let prefix = path.file_name().unwrap_or_default().to_string_lossy().trim_end_matches('0').to_owned();
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut versions = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                versions.extend(read_manifest(&entry.path())?);
            }
        }
        versions.sort_by_key(|template: &ImportedTemplate| (template.created_at, template.version_number()));
        Ok(versions)
    }

    /// Finds a template by name; a name without a version also finds the newest one. Returns it with the path of its
    /// root filesystem.
    pub fn resolve(&self, name: &str) -> io::Result<Option<(ImportedTemplate, PathBuf)>> {
        if let Some(found) = self.find(name)? {
            return Ok(Some(found));
        }
        match self.versions(name)?.pop() {
            Some(newest) => self.find(&newest.name),
            None => Ok(None),
        }
    }

    /// Returns the name of the next version of a template: `version`, or the number after the highest one. Fails if the
    /// requested version exists, or an imported template has the name.
    pub(crate) fn next_version(&self, name: &str, version: Option<&str>) -> Result<String, TemplateError> {
        if self.find(name)?.is_some() {
            return Err(TemplateError::Exists { name: name.to_owned() });
        }
        let Some(version) = version else {
            let highest = self.versions(name)?.iter().filter_map(ImportedTemplate::version_number).max();
            return Ok(versioned(name, &highest.unwrap_or(0).saturating_add(1).to_string()));
        };
        let name = versioned(name, version);
        match self.find(&name)? {
            Some(_) => Err(TemplateError::Exists { name }),
            None => Ok(name),
        }
    }

    /// Adds a template, there in full or not at all. `write` writes its files into a directory and returns their size;
    /// `commit` is called when all is on disk, before the template becomes visible.
    pub(crate) fn add<E: From<TemplateError>>(
        &self,
        template: ImportedTemplate,
        write: impl FnOnce(&Path) -> Result<u64, E>,
        commit: impl FnOnce(&ImportedTemplate) -> Result<(), E>,
    ) -> Result<ImportedTemplate, E> {
        let path = self.path(&template.name)?;
        let temporary = self.directory.join(format!("{TEMPORARY_PREFIX}{}", Uuid::now_v7().simple()));
        let added = write_files(template, &temporary, write).and_then(|template| {
            commit(&template)?;
            self.make_visible(&temporary, &path, &template.name)?;
            Ok(template)
        });
        if added.is_err() {
            remove_tree(&temporary).map_err(TemplateError::Io)?;
        }
        added
    }

    fn make_visible(&self, temporary: &Path, path: &Path, name: &str) -> Result<(), TemplateError> {
        fs::rename(temporary, path).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                TemplateError::Exists { name: name.to_owned() }
            }
            _ => error.into(),
        })?;
        fs::File::open(&self.directory)?.sync_all()?;
        Ok(())
    }
}

fn write_files<E: From<TemplateError>>(
    mut template: ImportedTemplate,
    directory: &Path,
    write: impl FnOnce(&Path) -> Result<u64, E>,
) -> Result<ImportedTemplate, E> {
    let root = directory.join(ROOT);
    fs::create_dir_all(&root).map_err(TemplateError::from)?;
    template.size = write(&root)?;
    let manifest = serde_json::to_vec(&template).map_err(|error| TemplateError::Io(error.into()))?;
    fs::write(directory.join(MANIFEST), manifest).map_err(TemplateError::from)?;
    sync(directory).map_err(TemplateError::from)?;
    Ok(template)
}

/// Waits until everything in the filesystem of a directory is on disk.
#[cfg(target_os = "linux")]
fn sync(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fs::File::open(directory)?)?)
}

/// Waits until the manifest is on disk; files before it may not be.
#[cfg(not(target_os = "linux"))]
fn sync(directory: &Path) -> io::Result<()> {
    fs::File::open(directory.join(MANIFEST))?.sync_all()
}

impl ImportedTemplate {
    /// Returns the version; `None` if it was imported.
    pub fn version(&self) -> Option<&str> {
        split_version(&self.name).1
    }

    /// Returns the version if it is a number.
    fn version_number(&self) -> Option<u64> {
        self.version()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(name: &str, created_at: i64) -> ImportedTemplate {
        let name = name.to_owned();
        ImportedTemplate { name, size: 0, created_at, envs: Default::default(), skipped: 0, build: None }
    }

    fn add(templates: &Templates, name: &str, created_at: i64) -> Result<ImportedTemplate, TemplateError> {
        templates.receive().unwrap();
        templates.add(template(name, created_at), |_| Ok(7), |_| Ok(()))
    }

    #[test]
    fn names_may_have_one_version() {
        for name in ["a", "a@1", "team/python:3.12@2024-01.x"] {
            check_template_name(name).unwrap();
        }
        for name in
            ["", "@1", "a@", "a@1@2", "a@/x", "a@.x", "../a", ".a", "a@b:c", "a b", "a\0", &"a".repeat(129)]
        {
            assert!(check_template_name(name).is_err(), "{name:?}");
        }
        assert_eq!(split_version("a@1"), ("a", Some("1")));
        assert_eq!(split_version("a"), ("a", None));
    }

    #[test]
    fn newest_version_is_found_by_name() {
        let home = tempfile::tempdir().unwrap();
        let templates = Templates::new(home.path().join("templates"));
        assert!(templates.resolve("a").unwrap().is_none());
        for (name, time) in [("a@9", 1), ("a@10", 2), ("a@10.0", 1), ("ab@11", 3), ("a/b@12", 4)] {
            add(&templates, name, time).unwrap();
        }
        assert_eq!(templates.resolve("a").unwrap().unwrap().0.name, "a@10");
        assert_eq!(templates.resolve("a@9").unwrap().unwrap().0.size, 7);
        assert!(templates.resolve("a@1").unwrap().is_none());
        // Without a requested version, the next one has the number after the highest.
        assert_eq!(templates.next_version("a", None).unwrap(), "a@11");
        assert_eq!(templates.next_version("new", None).unwrap(), "new@1");
        assert_eq!(templates.next_version("a", Some("beta")).unwrap(), "a@beta");
        assert!(matches!(templates.next_version("a", Some("9")), Err(TemplateError::Exists { .. })));
        assert!(matches!(add(&templates, "a@9", 5), Err(TemplateError::Exists { .. })));
        assert_eq!(templates.list().unwrap().len(), 5);
        let largest = format!("large@{}", u64::MAX);
        add(&templates, &largest, 1).unwrap();
        assert_eq!(templates.next_version("large", None).unwrap(), largest, "there is no larger number");
    }

    #[test]
    fn failed_template_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let templates = Templates::new(home.path().to_owned());
        let full = |_: &Path| Err(TemplateError::Full);
        assert!(matches!(templates.add(template("a@1", 1), full, |_| Ok(())), Err(TemplateError::Full)));
        let refused = |_: &ImportedTemplate| Err(TemplateError::Cancelled);
        assert!(templates.add(template("a@1", 1), |_| Ok(1), refused).is_err());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
