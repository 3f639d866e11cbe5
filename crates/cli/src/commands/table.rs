//! Columns for people.

use std::borrow::Cow;

use crate::error::Result;
use crate::output::Output;
use crate::text::shown_text;

/// Prints rows below a head, every column as wide as its widest cell. Nothing for no rows.
pub(super) fn print(output: &mut Output, head: &[&str], rows: &[Vec<String>]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| shown_text(cell)).collect()).collect();
    let width = |column: usize, name: &str| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([name.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = head.iter().enumerate().map(|(column, name)| width(column, name)).collect();
    let head = head.iter().map(|name| Cow::Borrowed(*name)).collect();
    for row in std::iter::once(&head).chain(&rows) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        output.line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Prints names and what belongs to them.
pub(super) fn fields(output: &mut Output, fields: &[(&str, String)]) -> Result<()> {
    for (name, value) in fields {
        output.line(format_args!("{name:<12}{}", shown_text(value)).to_string().trim_end())?;
    }
    Ok(())
}

/// Returns a time of the API to the second, or the text itself if it is none.
pub(super) fn time(text: &str) -> String {
    match crate::time::parse(text, &crate::time::now()) {
        Some(time) => crate::time::shown(time),
        None => text.to_owned(),
    }
}
