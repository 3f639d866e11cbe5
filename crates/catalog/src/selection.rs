//! Pages of lists, and the number of rows on all pages.

use sqlx::any::AnyRow;

use crate::error::Result;
use crate::row::Row;

/// Rows that a list selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// The rows of one page.
    Page,
    /// One row with the number of rows on all pages, in the column `total`.
    Count,
}

/// Returns the number in the row of [`Selection::Count`].
pub(crate) fn count_in(rows: Vec<AnyRow>) -> Result<u64> {
    rows.into_iter().next().map_or(Ok(0), |row| Row(row).count("total"))
}
