//! Typed access to columns.

use std::str::FromStr;

use serde_json::Value;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::error::{CatalogError, Result};

/// Row with access to columns by name.
pub(crate) struct Row(pub(crate) AnyRow);

impl Row {
    pub(crate) fn text(&self, column: &'static str) -> Result<String> {
        Ok(self.0.try_get(column)?)
    }

    pub(crate) fn optional_text(&self, column: &'static str) -> Result<Option<String>> {
        Ok(self.0.try_get(column)?)
    }

    pub(crate) fn number(&self, column: &'static str) -> Result<i64> {
        Ok(self.0.try_get(column)?)
    }

    /// Returns a count; negative values become 0.
    pub(crate) fn count(&self, column: &'static str) -> Result<u64> {
        Ok(u64::try_from(self.number(column)?).unwrap_or(0))
    }

    pub(crate) fn optional_number(&self, column: &'static str) -> Result<Option<i64>> {
        Ok(self.0.try_get(column)?)
    }

    pub(crate) fn parsed<T: FromStr<Err = CatalogError>>(&self, column: &'static str) -> Result<T> {
        self.text(column)?.parse()
    }

    pub(crate) fn json(&self, column: &'static str) -> Result<Value> {
        parse(column, &self.text(column)?)
    }

    pub(crate) fn optional_json(&self, column: &'static str) -> Result<Option<Value>> {
        self.optional_text(column)?.map(|text| parse(column, &text)).transpose()
    }
}

fn parse(column: &'static str, text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|source| CatalogError::Json { column, source })
}
