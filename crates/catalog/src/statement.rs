//! SQL statements with their parameters.
//!
//! Values are always bound as parameters, never formatted into the SQL text. Parameters are positional (`$1`, `$2`, …),
//! in the order of the calls: in `.text("project", id)`, the first argument is not the name of a parameter or a column,
//! but only a label of the value for the error about a NUL.

use std::collections::HashSet;
use std::pin::Pin;

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::{Any, AnyConnection, Arguments as _, Executor as _};

use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::row::Row;

/// Maximum number of ids in one statement, since databases limit the number of parameters.
pub(crate) const IDS_PER_STATEMENT: usize = 500;

/// Future of a query. Boxed, because the compiler cannot prove that the futures of `sqlx` over a borrowed
/// connection are `Send`, and then no future that awaits them would be.
pub(crate) type QueryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Returns the subset of `ids` that belongs to an owner, in a table with the columns `owner` and `id`.
pub(crate) async fn owned_ids(
    database: &Database,
    table: &'static str,
    owner: &str,
    ids: &[String],
) -> Result<HashSet<String>> {
    let mut owned = HashSet::new();
    for ids in ids.chunks(IDS_PER_STATEMENT) {
        let mut parameters = Parameters::default();
        let owner = parameters.text("owner", owner);
        let ids = parameters.texts("id", ids);
        let sql = format!("SELECT id FROM {table} WHERE owner = ${owner} AND id IN ({ids})");
        let select = Statement::with_parameters(&sql, parameters);
        for row in select.all(&mut *database.reader().await?).await? {
            owned.insert(Row(row).text("id")?);
        }
    }
    Ok(owned)
}

/// Returns `rows` tuples of `columns` parameters each, numbered from `$1` on, for `VALUES`.
pub(crate) fn tuples(rows: usize, columns: usize) -> String {
    let mut sql = String::with_capacity(rows * columns * 6);
    for row in 0..rows {
        sql.push_str(if row == 0 { "(" } else { ", (" });
        for column in 0..columns {
            sql.push_str(if column == 0 { "$" } else { ", $" });
            sql.push_str(&(row * columns + column + 1).to_string());
        }
        sql.push(')');
    }
    sql
}

/// Runs several statements without parameters.
pub(crate) fn run_script<'a>(sql: &'a str, connection: &'a mut AnyConnection) -> QueryFuture<'a, ()> {
    Box::pin(async move {
        connection.execute(sql).await?;
        Ok(())
    })
}

/// Statement with its parameters `$1`, `$2`, … in order.
pub(crate) struct Statement<'q> {
    sql: &'q str,
    parameters: Parameters<'q>,
}

/// Bound values, and the error of the first one that cannot be bound.
#[derive(Default)]
pub(crate) struct Parameters<'q> {
    values: AnyArguments<'q>,
    error: Option<CatalogError>,
}

impl<'q> Parameters<'q> {
    fn add<T>(&mut self, value: T)
    where
        T: 'q + sqlx::Encode<'q, Any> + sqlx::Type<Any>,
    {
        if let Err(source) = self.values.add(value) {
            self.error.get_or_insert(CatalogError::Database { source: sqlx::Error::Encode(source) });
        }
    }

    /// Binds a string to the next parameter. Returns its number. `field` is only a label for the error about a NUL.
    pub(crate) fn text(&mut self, field: &'static str, value: &'q str) -> usize {
        if value.contains('\0') {
            self.error.get_or_insert(CatalogError::Nul { field });
        }
        self.add(value);
        self.values.len()
    }

    /// Binds a string or NULL. Returns its parameter number.
    pub(crate) fn optional_text(&mut self, field: &'static str, value: Option<&'q str>) -> usize {
        match value {
            Some(value) => return self.text(field, value),
            None => self.add(None::<String>),
        }
        self.values.len()
    }

    /// Binds a number or NULL. Returns its parameter number.
    pub(crate) fn optional_number(&mut self, value: Option<i64>) -> usize {
        self.add(value);
        self.values.len()
    }

    /// Binds strings. Returns their parameters as a list for `IN`.
    pub(crate) fn texts(&mut self, field: &'static str, values: &'q [String]) -> String {
        let numbers: Vec<_> = values.iter().map(|value| format!("${}", self.text(field, value))).collect();
        numbers.join(", ")
    }

    /// Binds a number. Returns its parameter number.
    pub(crate) fn number(&mut self, value: i64) -> usize {
        self.add(value);
        self.values.len()
    }
}

impl<'q> Statement<'q> {
    pub(crate) fn new(sql: &'q str) -> Self {
        Self::with_parameters(sql, Parameters::default())
    }

    pub(crate) fn with_parameters(sql: &'q str, parameters: Parameters<'q>) -> Self {
        Self { sql, parameters }
    }

    /// Binds a string to the next parameter. `field` is only a label for the error about a NUL, and need not be the
    /// column.
    pub(crate) fn text(mut self, field: &'static str, value: &'q str) -> Self {
        self.parameters.text(field, value);
        self
    }

    pub(crate) fn optional_text(mut self, field: &'static str, value: Option<&'q str>) -> Self {
        self.parameters.optional_text(field, value);
        self
    }

    pub(crate) fn number(mut self, value: i64) -> Self {
        self.parameters.number(value);
        self
    }

    pub(crate) fn optional_number(mut self, value: Option<i64>) -> Self {
        self.parameters.optional_number(value);
        self
    }

    /// Executes the statement. Returns the number of affected rows.
    pub(crate) fn run<'a>(self, connection: &'a mut AnyConnection) -> QueryFuture<'a, u64>
    where
        'q: 'a,
    {
        Box::pin(async move { Ok(self.into_query()?.execute(connection).await?.rows_affected()) })
    }

    /// Returns the only row.
    pub(crate) fn one<'a>(self, connection: &'a mut AnyConnection) -> QueryFuture<'a, AnyRow>
    where
        'q: 'a,
    {
        Box::pin(async move { Ok(self.into_query()?.fetch_one(connection).await?) })
    }

    /// Returns the row, if there is one.
    pub(crate) fn optional<'a>(self, connection: &'a mut AnyConnection) -> QueryFuture<'a, Option<AnyRow>>
    where
        'q: 'a,
    {
        Box::pin(async move { Ok(self.into_query()?.fetch_optional(connection).await?) })
    }

    /// Returns all rows.
    pub(crate) fn all<'a>(self, connection: &'a mut AnyConnection) -> QueryFuture<'a, Vec<AnyRow>>
    where
        'q: 'a,
    {
        Box::pin(async move { Ok(self.into_query()?.fetch_all(connection).await?) })
    }

    fn into_query(self) -> Result<sqlx::query::Query<'q, Any, AnyArguments<'q>>> {
        match self.parameters.error {
            Some(error) => Err(error),
            None => Ok(sqlx::query_with(self.sql, self.parameters.values)),
        }
    }
}
