//! Two texts side by side.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar;
use workspace_merge::{DiffLimits, LineConflict, TextMerge};

use crate::output::Output;
use crate::screen;
use crate::text::escape_controls;

/// Number of equal lines that are shown around differences.
const CONTEXT_LINES: usize = 3;
/// Width of the output in columns if it is no terminal.
const PLAIN_WIDTH: usize = 120;
/// Minimum width of a side in columns.
const SIDE_MIN: usize = 10;
/// Width of a tab in columns.
const TAB: &str = "    ";

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

/// Titles of the two columns.
pub(super) struct Titles {
    pub(super) left: String,
    pub(super) right: String,
}

/// Comparison of two texts.
pub(super) struct SideBySide<'a> {
    left: Vec<&'a [u8]>,
    right: Vec<&'a [u8]>,
    differences: Vec<LineConflict>,
    layout: Layout,
}

/// Width and colours of the output.
#[derive(Debug, Clone, Copy)]
struct Layout {
    side: usize,
    has_colors: bool,
}

impl Layout {
    /// Returns the layout for stdout. Colours are used on a terminal, unless `NO_COLOR` is set.
    fn of_stdout() -> Self {
        let is_terminal = Output::stdout_is_terminal();
        let width = if is_terminal { screen::size().0.into() } else { PLAIN_WIDTH };
        let has_colors = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self::new(width, has_colors)
    }

    fn new(width: usize, has_colors: bool) -> Self {
        // Three columns are between the sides.
        Self { side: (width.saturating_sub(3) / 2).max(SIDE_MIN), has_colors }
    }
}

impl<'a> SideBySide<'a> {
    /// Compares two texts; `None` if they have too many lines.
    pub(super) fn new(left: &'a [u8], right: &'a [u8]) -> Option<Self> {
        Self::with_layout(left, right, Layout::of_stdout())
    }

    fn with_layout(left: &'a [u8], right: &'a [u8], layout: Layout) -> Option<Self> {
        let differences = TextMerge::between(left, right, DiffLimits::default()).ok()?.conflicts();
        Some(Self { left: lines(left), right: lines(right), differences, layout })
    }

    /// Iterates over the lines of the output: titles, and the differences with equal lines around them.
    pub(super) fn lines(&self, titles: &Titles) -> impl Iterator<Item = String> {
        let mut out = self.row(titles.left.as_bytes(), ' ', titles.right.as_bytes(), (BOLD, BOLD));
        if self.differences.is_empty() {
            out.push("the texts are equal".to_owned());
        }
        // Equal lines in the left text up to this one are printed.
        let mut printed = 0;
        for (index, difference) in self.differences.iter().enumerate() {
            let from = difference.ours.start.saturating_sub(CONTEXT_LINES).max(printed);
            if from > printed {
                out.push("...".to_owned());
            }
            for line in from..difference.ours.start {
                out.extend(self.equal_row(line));
            }
            self.add_difference(difference, &mut out);
            let next = self.differences.get(index + 1).map_or(self.left.len(), |next| next.ours.start);
            printed = (difference.ours.end + CONTEXT_LINES).min(next);
            for line in difference.ours.end..printed {
                out.extend(self.equal_row(line));
            }
        }
        if printed < self.left.len() && !self.differences.is_empty() {
            out.push("...".to_owned());
        }
        out.into_iter()
    }

    fn add_difference(&self, difference: &LineConflict, out: &mut Vec<String>) {
        let count = difference.ours.len().max(difference.theirs.len());
        for offset in 0..count {
            let (left, right) = (difference.ours.start + offset, difference.theirs.start + offset);
            let left = (left < difference.ours.end).then(|| self.left.get(left)).flatten();
            let right = (right < difference.theirs.end).then(|| self.right.get(right)).flatten();
            let sign = match (left, right) {
                (Some(_), Some(_)) => '|',
                (Some(_), None) => '<',
                _ => '>',
            };
            let [left, right] = [left, right].map(|line| line.copied().unwrap_or_default());
            out.extend(self.row(left, sign, right, (RED, GREEN)));
        }
    }

    fn equal_row(&self, line: usize) -> Vec<String> {
        let line = self.left.get(line).copied().unwrap_or_default();
        self.row(line, ' ', line, ("", ""))
    }

    /// Returns the lines of the output for a line of each side. A long line continues on the next ones.
    fn row(&self, left: &[u8], sign: char, right: &[u8], colors: (&str, &str)) -> Vec<String> {
        let (left, right) = (self.wrap(left), self.wrap(right));
        let cell = |cells: &[String], index: usize| cells.get(index).cloned().unwrap_or_default();
        let rows = 0..left.len().max(right.len());
        rows.map(|index| {
            let (left, right) = (cell(&left, index), cell(&right, index));
            let fill = " ".repeat(self.layout.side.saturating_sub(width(&left)));
            let row =
                format!("{}{fill} {sign} {}", self.colored(&left, colors.0), self.colored(&right, colors.1));
            row.trim_end().to_owned()
        })
        .collect()
    }

    fn colored(&self, text: &str, color: &str) -> String {
        match self.layout.has_colors && !color.is_empty() && !text.is_empty() {
            true => format!("{color}{text}{RESET}"),
            false => text.to_owned(),
        }
    }

    /// Splits a line into parts that fit into a column. Control characters are escaped.
    fn wrap(&self, line: &[u8]) -> Vec<String> {
        let line = String::from_utf8_lossy(line).replace('\t', TAB);
        let line = escape_controls(&line);
        let (mut parts, mut part, mut used) = (Vec::new(), String::new(), 0);
        for character in line.chars() {
            let width = character.width().unwrap_or(0);
            if used + width > self.layout.side {
                parts.push(std::mem::take(&mut part));
                used = 0;
            }
            let _ = part.write_char(character);
            used += width;
        }
        parts.push(part);
        parts
    }
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line)).collect()
}

fn width(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(left: &str, right: &str, width: usize, has_colors: bool) -> Vec<String> {
        let layout = Layout::new(width, has_colors);
        let comparison = SideBySide::with_layout(left.as_bytes(), right.as_bytes(), layout).unwrap();
        let titles = Titles { left: "head".to_owned(), right: "agent".to_owned() };
        comparison.lines(&titles).collect()
    }

    #[test]
    fn differences_are_beside_each_other_with_context() {
        let left = "1\n2\n3\n4\n5\none\n7\n8\n9\n10\n11\n";
        let right = "1\n2\n3\n4\n5\nuno\ndos\n7\n8\n9\n10\n11\n";
        let expected = [
            "head         agent",
            "...",
            "3            3",
            "4            4",
            "5            5",
            "one        | uno",
            "           > dos",
            "7            7",
            "8            8",
            "9            9",
            "...",
        ];
        assert_eq!(shown(left, right, 24, false), expected);
        assert_eq!(shown("a\n", "a\n", 24, false)[1..], ["the texts are equal"]);
        assert_eq!(shown("a\n", "", 24, false)[1..], ["a          <"]);
    }

    #[test]
    fn long_lines_continue_and_control_characters_are_escaped() {
        let rows = shown("0123456789abc\n", "\u{1b}[31m文文文文文文\n", 24, false);
        assert_eq!(rows[1], "0123456789 | \\u{1b}[31m", "{rows:?}");
        assert!(rows[2].starts_with("abc        | 文文文文文"), "{rows:?}");
    }

    #[test]
    fn colors_do_not_change_the_columns() {
        assert_eq!(shown("a\n", "b\n", 24, true)[1], "\u{1b}[31ma\u{1b}[0m          | \u{1b}[32mb\u{1b}[0m");
    }
}
