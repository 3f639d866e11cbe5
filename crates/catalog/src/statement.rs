//! One SQL statement with its parameters.
//!
//! Every value goes to the database through here, as a parameter and never as part of the statement.

use std::pin::Pin;

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::{Any, AnyConnection, Arguments as _, Executor as _};

use crate::error::{CatalogError, Result};

/// Ids that are named in one statement; databases bound how many parameters one has.
pub(crate) const TOGETHER: usize = 500;

/// What the database will say. Boxed, because the compiler cannot see that the futures of `sqlx` over a borrowed
/// connection may move between threads, and then neither could any that waits for them.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Runs several statements without parameters.
pub(crate) fn script<'a>(sql: &'a str, on: &'a mut AnyConnection) -> Answer<'a, ()> {
    Box::pin(async move {
        on.execute(sql).await?;
        Ok(())
    })
}

/// Collects the parameters `$1`, `$2`, … in order.
pub(crate) struct Statement<'q> {
    sql: &'q str,
    parameters: Parameters<'q>,
}

/// What is bound, and the first field that cannot be.
#[derive(Default)]
pub(crate) struct Parameters<'q> {
    values: AnyArguments<'q>,
    refused: Option<CatalogError>,
}

impl<'q> Parameters<'q> {
    fn add<T>(&mut self, value: T)
    where
        T: 'q + sqlx::Encode<'q, Any> + sqlx::Type<Any>,
    {
        if let Err(source) = self.values.add(value) {
            self.refused.get_or_insert(CatalogError::Database { source: sqlx::Error::Encode(source) });
        }
    }

    /// Adds text and says which parameter it became. `field` names it to who sent a NUL.
    pub(crate) fn text(&mut self, field: &'static str, value: &'q str) -> usize {
        if value.contains('\0') {
            self.refused.get_or_insert(CatalogError::Nul { field });
        }
        self.add(value);
        self.values.len()
    }

    /// Adds texts and says which parameters they became, as `IN` wants them.
    pub(crate) fn texts(&mut self, field: &'static str, values: &'q [String]) -> String {
        let numbers: Vec<_> = values.iter().map(|value| format!("${}", self.text(field, value))).collect();
        numbers.join(", ")
    }

    /// Adds a number and says which parameter it became.
    pub(crate) fn number(&mut self, value: i64) -> usize {
        self.add(value);
        self.values.len()
    }
}

impl<'q> Statement<'q> {
    pub(crate) fn new(sql: &'q str) -> Self {
        Self::with(sql, Parameters::default())
    }

    pub(crate) fn with(sql: &'q str, parameters: Parameters<'q>) -> Self {
        Self { sql, parameters }
    }

    pub(crate) fn text(mut self, field: &'static str, value: &'q str) -> Self {
        self.parameters.text(field, value);
        self
    }

    pub(crate) fn optional_text(mut self, field: &'static str, value: Option<&'q str>) -> Self {
        match value {
            Some(value) => return self.text(field, value),
            None => self.parameters.add(None::<String>),
        }
        self
    }

    pub(crate) fn number(mut self, value: i64) -> Self {
        self.parameters.number(value);
        self
    }

    pub(crate) fn optional_number(mut self, value: Option<i64>) -> Self {
        self.parameters.add(value);
        self
    }

    /// Runs it and says how many rows it changed.
    pub(crate) fn run<'a>(self, on: &'a mut AnyConnection) -> Answer<'a, u64>
    where
        'q: 'a,
    {
        Box::pin(async move { Ok(self.checked()?.execute(on).await?.rows_affected()) })
    }

    /// Its only row.
    pub(crate) fn one<'a>(self, on: &'a mut AnyConnection) -> Answer<'a, AnyRow>
    where
        'q: 'a,
    {
        Box::pin(async move { Ok(self.checked()?.fetch_one(on).await?) })
    }

    /// Its row, if there is one.
    pub(crate) fn optional<'a>(self, on: &'a mut AnyConnection) -> Answer<'a, Option<AnyRow>>
    where
        'q: 'a,
    {
        Box::pin(async move { Ok(self.checked()?.fetch_optional(on).await?) })
    }

    /// All its rows.
    pub(crate) fn all<'a>(self, on: &'a mut AnyConnection) -> Answer<'a, Vec<AnyRow>>
    where
        'q: 'a,
    {
        Box::pin(async move { Ok(self.checked()?.fetch_all(on).await?) })
    }

    fn checked(self) -> Result<sqlx::query::Query<'q, Any, AnyArguments<'q>>> {
        match self.parameters.refused {
            Some(error) => Err(error),
            None => Ok(sqlx::query_with(self.sql, self.parameters.values)),
        }
    }
}
