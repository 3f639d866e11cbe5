//! Picture of the history of a project: the head as the first column, and a column for each sequence on which
//! completions were made that others overtook.
//!
//! ```text
//! *    4  2026-11-18 10:12:07  merge     editor  1 file  fix the links
//! |-.
//! * |  3  2026-11-18 10:11:58  merge     writer  2 files  second page
//! |-'
//! *    2  2026-11-18 10:10:31  merge     writer  1 file  first page
//! ```
//!
//! Completions with the same base share a column, so its width is that of the number of different bases. Memory and
//! width are bounded by [`COLUMNS_MAX`], however long the history is.

use std::fmt::Write as _;

use workspace_api::projects::Operation;

use super::super::table;
use crate::text;

/// Maximum number of columns beside the head. The base of further completions is only written in their lines.
const COLUMNS_MAX: usize = 8;
/// ANSI colours of the columns, in turn.
const COLUMN_COLOURS: [u8; 6] = [32, 33, 34, 35, 36, 31];
const BOLD: u8 = 1;
const DIM: u8 = 2;

/// Style of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Text without control sequences.
    Plain,
    /// ANSI colours.
    Colour,
}

impl Style {
    /// Returns the style for stdout: colours on a terminal, unless `NO_COLOR` is set or the terminal is `dumb`.
    pub(super) fn of_stdout() -> Self {
        let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        match crate::output::Output::stdout_is_terminal() && !is_off {
            true => Self::Colour,
            false => Self::Plain,
        }
    }

    fn paint(self, code: u8, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colour if text.trim().is_empty() => text.to_owned(),
            Self::Colour => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

/// Draws operations, which must come newest first and without gaps.
#[derive(Debug)]
pub(super) struct Graph {
    style: Style,
    /// Base that each column leads to; `None` for a free column.
    columns: Vec<Option<u64>>,
}

/// Part of a line between the head and a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joint {
    /// A new column begins.
    Opens,
    /// A completion joins a column that leads to its base already.
    Joins,
    /// A column ends at its base.
    Closes,
}

impl Graph {
    pub(super) fn new(style: Style) -> Self {
        Self { style, columns: Vec::new() }
    }

    /// Returns the lines of the next operation.
    pub(super) fn draw(&mut self, operation: &Operation) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.close(operation.sequence));
        let base = operation.base.filter(|base| base + 1 < operation.sequence);
        lines.push(format!("{}{}", self.operation_row('*'), self.describe(operation, base)));
        lines.extend(base.and_then(|base| self.branch(base)));
        lines
    }

    /// Returns the lines below the oldest operation: completions may have been made on the empty project.
    pub(super) fn finish(&mut self) -> Vec<String> {
        match self.close(0) {
            Some(line) => vec![line, format!("{}{:>5}  (empty)", self.operation_row('o'), 0)],
            None => Vec::new(),
        }
    }

    fn describe(&self, operation: &Operation, base: Option<u64>) -> String {
        let Operation { sequence, time, author, operation: kind, message, .. } = operation;
        let files = operation.files.map(|files| text::pluralize(files, "file", "files"));
        let sequence = self.style.paint(BOLD, &format!("{sequence:>5}"));
        let time = self.style.paint(DIM, &table::time(time));
        let mut line = format!("{sequence}  {time}  {kind:<8}  {}", text::escape_controls(author));
        for part in [files.as_deref(), Some(&*text::first_line(message))].into_iter().flatten() {
            if !part.is_empty() {
                let _ = write!(line, "  {part}");
            }
        }
        if let Some(base) = base {
            line.push_str(&self.style.paint(DIM, &format!("  (from {base})")));
        }
        line
    }

    /// Ends the column that leads to a sequence, and returns the line that shows it. `None` if no column leads there.
    fn close(&mut self, sequence: u64) -> Option<String> {
        let column = self.columns.iter().position(|base| *base == Some(sequence))?;
        let line = self.joint(column, Joint::Closes);
        self.columns[column] = None;
        while self.columns.last() == Some(&None) {
            self.columns.pop();
        }
        Some(line)
    }

    /// Returns the line that connects a completion with a column that leads to its base: the one that does so already,
    /// or a new one. `None` if all columns are in use.
    fn branch(&mut self, base: u64) -> Option<String> {
        if let Some(column) = self.columns.iter().position(|other| *other == Some(base)) {
            return Some(self.joint(column, Joint::Joins));
        }
        let column = match self.columns.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.columns.len() < COLUMNS_MAX => {
                self.columns.push(None);
                self.columns.len() - 1
            }
            None => return None,
        };
        let line = self.joint(column, Joint::Opens);
        self.columns[column] = Some(base);
        Some(line)
    }

    /// Returns the start of the line of an operation: the mark of the head, and the other columns.
    fn operation_row(&self, head: char) -> String {
        let mut line = self.style.paint(BOLD, &head.to_string());
        for (column, base) in self.columns.iter().enumerate() {
            line.push(' ');
            line.push_str(&self.column(column, if base.is_some() { "|" } else { " " }));
        }
        line
    }

    /// Returns the line that connects the head with a column.
    fn joint(&self, to: usize, joint: Joint) -> String {
        let mut line = self.style.paint(BOLD, "|");
        for (column, base) in self.columns.iter().enumerate() {
            let is_between = column <= to;
            line.push_str(&self.column(to, if is_between { "-" } else { " " }));
            let mark = match (column == to, joint, base.is_some()) {
                (true, Joint::Opens, _) => ".",
                (true, Joint::Joins, _) => "+",
                (true, Joint::Closes, _) => "'",
                (false, _, true) => "|",
                (false, _, false) if is_between => "-",
                (false, _, false) => " ",
            };
            line.push_str(&self.column(if mark == "-" { to } else { column }, mark));
        }
        line.truncate(line.trim_end().len());
        line
    }

    fn column(&self, column: usize, mark: &str) -> String {
        self.style.paint(COLUMN_COLOURS[column % COLUMN_COLOURS.len()], mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(sequence: u64, base: Option<u64>) -> Operation {
        Operation {
            sequence,
            snapshot: Some("s".to_owned()),
            previous: None,
            operation: "merge".to_owned(),
            author: "writer".to_owned(),
            operator: "agent".to_owned(),
            completion: None,
            base,
            files: Some(sequence),
            commit: None,
            commit_time: None,
            message: "work\nmore".to_owned(),
            merged: Vec::new(),
            time: "then".to_owned(),
        }
    }

    fn drawn(bases: &[Option<u64>]) -> String {
        let mut graph = Graph::new(Style::Plain);
        let newest = bases.len() as u64;
        let mut lines = Vec::new();
        for (index, base) in bases.iter().enumerate() {
            lines.extend(graph.draw(&operation(newest - index as u64, *base)));
        }
        lines.extend(graph.finish());
        lines.join("\n")
    }

    #[test]
    fn changes_of_the_newest_files_are_one_line() {
        let picture = drawn(&[Some(2), Some(1), None]);
        assert_eq!(
            picture,
            "*    3  then  merge     writer  3 files  work\n\
             *    2  then  merge     writer  2 files  work\n\
             *    1  then  merge     writer  1 file  work"
        );
    }

    #[test]
    fn completions_that_others_overtook_are_branches_and_those_with_one_base_share_a_column() {
        let picture = drawn(&[Some(2), Some(1), Some(1), Some(1), None]);
        assert_eq!(
            picture,
            "*    5  then  merge     writer  5 files  work  (from 2)\n\
             |-.\n\
             * |    4  then  merge     writer  4 files  work  (from 1)\n\
             |-|-.\n\
             * | |    3  then  merge     writer  3 files  work  (from 1)\n\
             |-|-+\n\
             |-' |\n\
             *   |    2  then  merge     writer  2 files  work\n\
             |---'\n\
             *    1  then  merge     writer  1 file  work"
        );
    }

    #[test]
    fn completions_on_the_empty_project_lead_to_it() {
        let picture = drawn(&[Some(0), None]);
        assert_eq!(
            picture,
            "*    2  then  merge     writer  2 files  work  (from 0)\n\
             |-.\n\
             * |    1  then  merge     writer  1 file  work\n\
             |-'\n\
             o    0  (empty)"
        );
    }

    #[test]
    fn the_width_is_bounded() {
        let bases: Vec<Option<u64>> = (0..40).map(Some).collect();
        let mut graph = Graph::new(Style::Plain);
        for (index, base) in bases.iter().enumerate() {
            let lines = graph.draw(&operation(1_000 - index as u64, *base));
            assert!(lines.iter().all(|line| line.find("then").unwrap_or(0) < 40), "{lines:?}");
        }
    }

    #[test]
    fn colours_are_only_control_sequences_around_the_same_text() {
        let mut coloured = Graph::new(Style::Colour);
        let mut plain = Graph::new(Style::Plain);
        let operation = operation(9, Some(2));
        let strip = |line: &str| {
            let mut parts = line.split('\x1b');
            let first = parts.next().unwrap().to_owned();
            parts.fold(first, |text, part| text + part.split_once('m').unwrap().1)
        };
        let (coloured, plain) = (coloured.draw(&operation), plain.draw(&operation));
        assert_ne!(coloured, plain);
        assert_eq!(coloured.iter().map(|line| strip(line)).collect::<Vec<_>>(), plain);
    }
}
