//! Tables with aligned columns.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr as _;

use crate::error::Result;
use crate::output::Output;
use crate::text::escape_controls;

/// Prints rows below a header, every column as wide as its widest cell. Prints nothing if there are no rows.
pub(super) fn print(output: &mut Output, header: &[&str], rows: &[Vec<String>]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    lines(header, rows).into_iter().try_for_each(|line| output.line(line))
}

/// Formats a table. Columns are aligned by the width on a terminal, where Chinese characters and most emoji take two
/// columns.
fn lines(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let header = header.iter().map(|name| Cow::Borrowed(*name)).collect();
    let rows = rows.iter().map(|row| row.iter().map(|cell| escape_controls(cell)).collect());
    let rows: Vec<Vec<Cow<'_, str>>> = std::iter::once(header).chain(rows).collect();
    let mut widths = Vec::new();
    for row in &rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }
    let pad = |(cell, width): (&Cow<'_, str>, &usize)| format!("{cell}{}", " ".repeat(width - cell.width()));
    let line = |row: &Vec<Cow<'_, str>>| row.iter().zip(&widths).map(pad).collect::<Vec<_>>().join("  ");
    rows.iter().map(|row| line(row).trim_end().to_owned()).collect()
}

/// Prints names and their values, one pair per line.
pub(super) fn print_fields(output: &mut Output, fields: &[(&str, String)]) -> Result<()> {
    for (name, value) in fields {
        output.line(format_args!("{name:<12}{}", escape_controls(value)).to_string().trim_end())?;
    }
    Ok(())
}

/// Formats a time of the API to the second. Returns `text` unchanged if it is not a time.
pub(super) fn time(text: &str) -> String {
    match crate::time::parse(text, &crate::time::now()) {
        Some(time) => crate::time::format(time),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_display_width() {
        let rows = [
            ["sbx-1", "工作区", "running"],
            ["sbx-22", "e\u{301}te\u{301}", "stopped"],
            ["sbx-3", "🚀", "running"],
        ];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        let expected = [
            "ID      NAME    STATE",
            "sbx-1   工作区  running",
            "sbx-22  e\u{301}te\u{301}     stopped",
            "sbx-3   🚀      running",
        ];
        assert_eq!(lines(&["ID", "NAME", "STATE"], &rows), expected);
    }
}
