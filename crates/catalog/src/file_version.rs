//! Table `file_versions`: versions of the files of projects.
//!
//! A file keeps its id when it is renamed. A version counts once the head of the project has its sequence; until then
//! it is staged. Queries do not return it, except [`FileVersions::moves_of_file`] and [`FileVersions::changed_paths`],
//! whose callers must pass a bound that the head has reached.

mod staging;

use std::collections::HashMap;

use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::database::Database;
use crate::error::Result;
use crate::path;
use crate::row::Row;
use crate::statement::{Parameters, Statement, tuples};
use crate::string_enum::string_enum;

pub use staging::Staging;
pub(crate) use staging::end_staging;

/// Number of columns of the table.
const VERSION_COLUMNS: usize = 14;
/// Maximum number of rows in one statement, since databases limit the number of parameters.
const VERSIONS_PER_STATEMENT: usize = 500;
/// Maximum number of paths in one query.
const PATHS_PER_STATEMENT: usize = 200;

string_enum! {
    /// Kind of a change of a file.
    pub enum FileChange {
        /// The file is new.
        Added = "added",
        /// The content changed.
        Modified = "modified",
        /// The file was removed.
        Removed = "removed",
        /// The path changed, and maybe the content.
        Renamed = "renamed",
        /// Only permission bits or attributes changed.
        Mode = "mode",
    }
}

string_enum! {
    /// Kind of a directory entry.
    pub enum FileKind {
        /// Regular file.
        File = "file",
        /// Symbolic link.
        Symlink = "symlink",
        /// Directory.
        Directory = "directory",
    }
}

/// Version of a file to insert. An operation has at most one per file id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFileVersion {
    /// Id of the file, which it keeps when it is renamed.
    pub file_id: String,
    /// Path after the change; of a removed file, the path that it had.
    pub path: Vec<u8>,
    /// Kind of the change.
    pub change: FileChange,
    /// Path before the change, if it was renamed.
    pub previous_path: Option<Vec<u8>>,
    /// Kind of the entry.
    pub kind: FileKind,
    /// Size in bytes; 0 for a removed file.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Hash of the content; `None` if it has none.
    pub content: Option<String>,
    /// MIME type.
    pub mime: Option<String>,
    /// Name of the merge strategy that combined the content of several changes; `None` if it was not merged. The column
    /// is named `algorithm`.
    pub strategy: Option<String>,
    /// Author of the change.
    pub author: String,
}

/// Stored version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    /// Sequence of the head that has this version.
    pub sequence: i64,
    /// Version as it was inserted.
    pub version: NewFileVersion,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
}

/// Path that an operation changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedPath {
    /// Sequence of the operation.
    pub sequence: i64,
    /// Id of the file.
    pub file_id: String,
    /// Path after the change; of a removed file, the path that it had.
    pub path: Vec<u8>,
    /// Path before the change, if it was renamed.
    pub previous_path: Option<Vec<u8>>,
}

/// SQL text that selects all columns of rows of the table `file_versions` of the project `$1`, for `from_row`. The
/// argument is the rest of the condition and of the statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT sequence, file_id, path, change, previous_path, kind, size, mode, content, mime, algorithm, author,
             created_at FROM file_versions WHERE project = $1 AND ",
            $rest
        )
    };
}

/// Queries on the table `file_versions`.
#[derive(Debug, Clone, Copy)]
pub struct FileVersions<'c> {
    pub(crate) database: &'c Database,
}

impl FileVersions<'_> {
    /// Returns versions of the file that has a path, or was the last one to have it, under all paths that the file had:
    /// newest first, at most `limit`, with `before` only those before that sequence.
    pub async fn of_path(
        &self,
        project: &str,
        path: &[u8],
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<FileVersion>> {
        let path = path::encode(path);
        // The index is on `substr(path, 1, 256)`. With `path = $2`, SQLite would put `$2` for `path` into that
        // expression, too, and not use the index; `path || ''` prevents it.
        let select = Statement::new(
            "SELECT file_id FROM file_versions WHERE project = $1 AND substr(path, 1, 256) = substr($2, 1, 256)
             AND path || '' = $2 AND sequence <= (SELECT sequence FROM projects WHERE id = $1)
             ORDER BY sequence DESC, CASE change WHEN 'removed' THEN 1 ELSE 0 END LIMIT 1",
        );
        let select = select.text("project", project).text("path", &path);
        let row = select.optional(&mut *self.database.reader().await?).await?;
        match row {
            Some(row) => self.of_file(project, &Row(row).text("file_id")?, before, limit).await,
            None => Ok(Vec::new()),
        }
    }

    /// Returns versions of a file by id: newest first, at most `limit`, with `before` only those before that sequence.
    pub async fn of_file(
        &self,
        project: &str,
        file_id: &str,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<FileVersion>> {
        let select = Statement::new(select!(
            "file_id = $2 AND sequence < $3 AND sequence <= (SELECT sequence FROM projects WHERE id = $1)
             ORDER BY sequence DESC LIMIT $4"
        ));
        let select = select.text("project", project).text("file_id", file_id);
        let select = select.number(before.unwrap_or(i64::MAX)).number(limit.into());
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }

    /// Returns versions before a sequence at which a file was added, renamed or removed: newest first, at most `limit`.
    /// `before` must be at most the sequence of the head + 1: staged versions are not filtered out.
    pub async fn moves_of_file(
        &self,
        project: &str,
        file_id: &str,
        before: i64,
        limit: u32,
    ) -> Result<Vec<FileVersion>> {
        let select = Statement::new(select!(
            "file_id = $2 AND sequence < $3 AND change IN ('added', 'renamed', 'removed')
             ORDER BY sequence DESC LIMIT $4"
        ));
        let select = select.text("project", project).text("file_id", file_id).number(before);
        let rows = select.number(limit.into()).all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(from_row).collect()
    }

    /// Returns versions of a sequence in the order of their file ids, at most `limit`. `cursor` is the file id of the
    /// last version of the previous page.
    pub async fn of_sequence(
        &self,
        project: &str,
        sequence: i64,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Vec<FileVersion>> {
        let select = Statement::new(select!(
            "sequence = $2 AND file_id > $3 AND EXISTS (SELECT 1 FROM projects WHERE id = $1 AND sequence >= $2)
             ORDER BY file_id LIMIT $4"
        ));
        let select = select.text("project", project).number(sequence);
        let select = select.text("cursor", cursor.unwrap_or_default()).number(limit.into());
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }

    /// Returns paths that operations changed, in the order of sequence and file id, at most `limit`: those after the
    /// file `after.1` in the sequence `after.0`, and up to the sequence `last`. That must be at most the
    /// sequence of the head: staged versions are not filtered out.
    pub async fn changed_paths(
        &self,
        project: &str,
        after: (i64, &str),
        last: i64,
        limit: u32,
    ) -> Result<Vec<ChangedPath>> {
        let select = Statement::new(
            "SELECT sequence, file_id, path, previous_path FROM file_versions WHERE project = $1
             AND (sequence > $2 OR (sequence = $2 AND file_id > $3)) AND sequence <= $4
             ORDER BY sequence, file_id LIMIT $5",
        );
        let select = select.text("project", project).number(after.0).text("file_id", after.1);
        let rows = select.number(last).number(limit.into()).all(&mut *self.database.reader().await?).await?;
        let changed = |row| {
            let row = Row(row);
            Ok(ChangedPath {
                sequence: row.number("sequence")?,
                file_id: row.text("file_id")?,
                path: path::decode(&row.text("path")?)?,
                previous_path: row
                    .optional_text("previous_path")?
                    .as_deref()
                    .map(path::decode)
                    .transpose()?,
            })
        };
        rows.into_iter().map(changed).collect()
    }

    /// Returns the ids of the files that have these paths in the head. Paths without a file are omitted.
    pub async fn file_ids(&self, project: &str, paths: &[Vec<u8>]) -> Result<HashMap<Vec<u8>, String>> {
        let mut ids = HashMap::with_capacity(paths.len());
        let mut connection = self.database.reader().await?;
        for paths in paths.chunks(PATHS_PER_STATEMENT) {
            let paths: Vec<String> = paths.iter().map(|path| path::encode(path)).collect();
            for row in current_files(&mut connection, project, &paths).await? {
                let row = Row(row);
                ids.insert(path::decode(&row.text("path")?)?, row.text("file_id")?);
            }
        }
        Ok(ids)
    }
}

/// Selects path and file id of the files that have these paths in the head: the last file that got the path, unless
/// it has a later version, which removed it or gave it another path.
async fn current_files(
    connection: &mut AnyConnection,
    project: &str,
    paths: &[String],
) -> Result<Vec<AnyRow>> {
    let mut parameters = Parameters::default();
    parameters.text("project", project);
    let wanted: Vec<String> =
        paths.iter().map(|path| format!("(${})", parameters.text("path", path))).collect();
    let sql = format!(
        "WITH wanted (path) AS (VALUES {}),
         head (sequence) AS (SELECT sequence FROM projects WHERE id = $1),
         latest AS (SELECT wanted.path AS path, (
             SELECT v.sequence FROM file_versions v
             WHERE v.project = $1 AND substr(v.path, 1, 256) = substr(wanted.path, 1, 256) AND v.path = wanted.path
             AND v.sequence <= (SELECT sequence FROM head) AND v.change <> 'removed'
             ORDER BY v.sequence DESC LIMIT 1) AS sequence FROM wanted)
         SELECT v.path AS path, v.file_id AS file_id FROM latest JOIN file_versions v
         ON v.project = $1 AND v.sequence = latest.sequence AND v.path = latest.path
         AND substr(v.path, 1, 256) = substr(latest.path, 1, 256) AND v.change <> 'removed'
         WHERE NOT EXISTS (SELECT 1 FROM file_versions later
             WHERE later.project = $1 AND later.file_id = v.file_id AND later.sequence > v.sequence
             AND later.sequence <= (SELECT sequence FROM head))",
        wanted.join(", ")
    );
    Statement::with_parameters(&sql, parameters).all(connection).await
}

/// Inserts versions as part of a transaction, each with the sequence that the head gets.
pub(crate) async fn insert_all(
    connection: &mut AnyConnection,
    project: &str,
    versions: &[(i64, &NewFileVersion)],
    created_at: i64,
) -> Result<()> {
    for versions in versions.chunks(VERSIONS_PER_STATEMENT) {
        insert_rows(connection, project, versions, created_at).await?;
    }
    Ok(())
}

async fn insert_rows(
    connection: &mut AnyConnection,
    project: &str,
    versions: &[(i64, &NewFileVersion)],
    created_at: i64,
) -> Result<()> {
    let previous_path = |version: &NewFileVersion| version.previous_path.as_deref().map(path::encode);
    let paths: Vec<(String, Option<String>)> =
        versions.iter().map(|(_, version)| (path::encode(&version.path), previous_path(version))).collect();
    let sql = format!(
        "INSERT INTO file_versions (project, sequence, file_id, path, change, previous_path, kind, size, mode, content,
         mime, algorithm, author, created_at) VALUES {}",
        tuples(versions.len(), VERSION_COLUMNS)
    );
    let mut insert = Statement::new(&sql);
    for ((sequence, version), (path, previous_path)) in versions.iter().zip(&paths) {
        insert = insert
            .text("project", project)
            .number(*sequence)
            .text("file_id", &version.file_id)
            .text("path", path)
            .text("change", version.change.as_str())
            .optional_text("path", previous_path.as_deref())
            .text("kind", version.kind.as_str())
            .number(i64::try_from(version.size).unwrap_or(i64::MAX))
            .number(version.mode.into())
            .optional_text("content", version.content.as_deref())
            .optional_text("mime", version.mime.as_deref())
            .optional_text("algorithm", version.strategy.as_deref())
            .text("author", &version.author)
            .number(created_at);
    }
    let inserted = insert.run(connection).await;
    inserted.map_err(|error| {
        error.unique_key_as_exists("a version of a file in the same operation of", project)
    })?;
    Ok(())
}

fn from_row(row: AnyRow) -> Result<FileVersion> {
    let row = Row(row);
    let version = NewFileVersion {
        file_id: row.text("file_id")?,
        path: path::decode(&row.text("path")?)?,
        change: row.parsed("change")?,
        previous_path: row.optional_text("previous_path")?.as_deref().map(path::decode).transpose()?,
        kind: row.parsed("kind")?,
        size: row.count("size")?,
        mode: u32::try_from(row.number("mode")?).unwrap_or(0),
        content: row.optional_text("content")?,
        mime: row.optional_text("mime")?,
        strategy: row.optional_text("algorithm")?,
        author: row.text("author")?,
    };
    Ok(FileVersion { sequence: row.number("sequence")?, version, created_at: row.number("created_at")? })
}
