//! Table `project_operations`: changes of the heads of projects, one per sequence.

use serde_json::Value;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::database::Database;
use crate::error::Result;
use crate::order::CreationOrder;
use crate::path;
use crate::row::Row;
use crate::selection::{Selection, count_in};
use crate::statement::{Parameters, Statement, tuples};
use crate::string_enum::string_enum;

/// Number of columns of the table.
const OPERATION_COLUMNS: usize = 11;
/// Maximum number of rows in one statement, since databases limit the number of parameters.
const OPERATIONS_PER_STATEMENT: usize = 500;

string_enum! {
    /// Kind of a change of a head.
    pub enum OperationKind {
        /// A completion was merged.
        Merge = "merge",
        /// Files were written directly. This version makes no such changes.
        Write = "write",
        /// Earlier content was restored.
        Rollback = "rollback",
        /// A review was resolved.
        Resolve = "resolve",
        /// Files were imported.
        Import = "import",
    }
}

string_enum! {
    /// Kind of the author of a change: who operated the workspace or the API.
    pub enum Operator {
        /// Agent, in a workspace or with a key of its own.
        Agent = "agent",
        /// Person.
        Person = "person",
        /// Server, without a request.
        System = "system",
    }
}

/// Stored change of a head.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Sequence of the head after the change.
    pub sequence: i64,
    /// Head after the change.
    pub snapshot: String,
    /// Head before the change; `None` for the first change.
    pub previous: Option<String>,
    /// Kind of the change.
    pub operation: OperationKind,
    /// Agent or person that made the change.
    pub author: String,
    /// Kind of the author.
    pub operator: Operator,
    /// Completion that was merged or resolved.
    pub completion: Option<String>,
    /// Message of the author.
    pub message: Option<String>,
    /// Details, such as the merge strategy of each merged file, as JSON.
    pub details: Value,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
}

/// Criteria for operations of a project. A field that is `None` matches every operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperationFilter {
    /// Kind.
    pub operation: Option<OperationKind>,
    /// Author.
    pub author: Option<String>,
    /// File or directory that the operation changed, or in which it changed something, or from which it moved
    /// something.
    pub path: Option<Vec<u8>>,
    /// Sequence after which the operations are; the cursor for [`CreationOrder::Oldest`].
    pub after: Option<i64>,
    /// Sequence before which the operations are; the cursor for [`CreationOrder::Newest`].
    pub before: Option<i64>,
    /// Order of the operations.
    pub order: CreationOrder,
    /// Maximum number of operations.
    pub limit: u32,
}

const SELECT: &str =
    "SELECT o.sequence, o.snapshot, o.previous, o.operation, o.author, o.operator, o.completion, o.message,
     o.details, o.created_at FROM project_operations o";

/// Queries on the table `project_operations`.
#[derive(Debug, Clone, Copy)]
pub struct Operations<'c> {
    pub(crate) database: &'c Database,
}

impl Operations<'_> {
    /// Returns the operation that made a sequence of a project's head.
    pub async fn find(&self, project: &str, sequence: i64) -> Result<Option<Operation>> {
        let sql = format!("{SELECT} WHERE o.project = $1 AND o.sequence = $2");
        let select = Statement::new(&sql).text("project", project).number(sequence);
        select.optional(&mut *self.database.reader().await?).await?.map(from_row).transpose()
    }

    /// Returns the newest operation of a project whose head is a snapshot.
    pub async fn find_snapshot(&self, project: &str, snapshot: &str) -> Result<Option<Operation>> {
        let sql =
            format!("{SELECT} WHERE o.project = $1 AND o.snapshot = $2 ORDER BY o.sequence DESC LIMIT 1");
        let select = Statement::new(&sql).text("project", project).text("snapshot", snapshot);
        select.optional(&mut *self.database.reader().await?).await?.map(from_row).transpose()
    }

    /// Returns the operations of a project that match a filter.
    pub async fn list(&self, project: &str, filter: &OperationFilter) -> Result<Vec<Operation>> {
        self.select(project, filter, Selection::Page).await?.into_iter().map(from_row).collect()
    }

    /// Counts the operations of a project that match a filter, on all pages.
    pub async fn count(&self, project: &str, filter: &OperationFilter) -> Result<u64> {
        count_in(self.select(project, filter, Selection::Count).await?)
    }

    async fn select(
        &self,
        project: &str,
        filter: &OperationFilter,
        selection: Selection,
    ) -> Result<Vec<AnyRow>> {
        let path = filter.path.as_deref().filter(|path| !path.is_empty()).map(path::encode);
        let directory = path.as_ref().map(|path| format!("{path}/"));
        let mut parameters = Parameters::default();
        let mut all = vec![format!("o.project = ${}", parameters.text("project", project))];
        if let Some(operation) = filter.operation {
            all.push(format!("o.operation = ${}", parameters.text("operation", operation.as_str())));
        }
        if let Some(author) = &filter.author {
            all.push(format!("o.author = ${}", parameters.text("author", author)));
        }
        if let Some((path, directory)) = path.as_deref().zip(directory.as_deref()) {
            let (path, directory) = (parameters.text("path", path), parameters.text("path", directory));
            // `LIKE` would need escaped wildcards, and ignores case on SQLite.
            all.push(format!(
                "EXISTS (SELECT 1 FROM file_versions v WHERE v.project = o.project AND v.sequence = o.sequence
                 AND (v.path = ${path} OR v.previous_path = ${path}
                 OR substr(v.path, 1, length(${directory})) = ${directory}
                 OR substr(v.previous_path, 1, length(${directory})) = ${directory}))"
            ));
        }
        let is_page = selection == Selection::Page;
        if let Some(after) = filter.after.filter(|_| is_page || filter.order == CreationOrder::Newest) {
            all.push(format!("o.sequence > ${}", parameters.number(after)));
        }
        if let Some(before) = filter.before.filter(|_| is_page || filter.order == CreationOrder::Oldest) {
            all.push(format!("o.sequence < ${}", parameters.number(before)));
        }
        let ((_, direction), condition) = (filter.order.sql(), all.join(" AND "));
        let sql = match selection {
            Selection::Count => {
                format!("SELECT COUNT(*) AS total FROM project_operations o WHERE {condition}")
            }
            Selection::Page => {
                let limit = parameters.number(filter.limit.into());
                format!("{SELECT} WHERE {condition} ORDER BY o.sequence {direction} LIMIT ${limit}")
            }
        };
        Statement::with_parameters(&sql, parameters).all(&mut *self.database.reader().await?).await
    }
}

/// Inserts operations of a project as part of a transaction.
pub(crate) async fn insert_all(
    connection: &mut AnyConnection,
    project: &str,
    operations: &[Operation],
) -> Result<()> {
    for operations in operations.chunks(OPERATIONS_PER_STATEMENT) {
        let details: Vec<String> = operations.iter().map(|operation| operation.details.to_string()).collect();
        let sql = format!(
            "INSERT INTO project_operations (project, sequence, snapshot, previous, operation, author, operator,
             completion, message, details, created_at) VALUES {}",
            tuples(operations.len(), OPERATION_COLUMNS)
        );
        let mut insert = Statement::new(&sql);
        for (operation, details) in operations.iter().zip(&details) {
            insert = insert
                .text("project", project)
                .number(operation.sequence)
                .text("snapshot", &operation.snapshot)
                .optional_text("snapshot", operation.previous.as_deref())
                .text("operation", operation.operation.as_str())
                .text("author", &operation.author)
                .text("operator", operation.operator.as_str())
                .optional_text("completion", operation.completion.as_deref())
                .optional_text("message", operation.message.as_deref())
                .text("details", details)
                .number(operation.created_at);
        }
        insert.run(connection).await?;
    }
    Ok(())
}

fn from_row(row: AnyRow) -> Result<Operation> {
    let row = Row(row);
    Ok(Operation {
        sequence: row.number("sequence")?,
        snapshot: row.text("snapshot")?,
        previous: row.optional_text("previous")?,
        operation: row.parsed("operation")?,
        author: row.text("author")?,
        operator: row.parsed("operator")?,
        completion: row.optional_text("completion")?,
        message: row.optional_text("message")?,
        details: row.json("details")?,
        created_at: row.number("created_at")?,
    })
}
