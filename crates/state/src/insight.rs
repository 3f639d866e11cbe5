//! Insight diff: the differences between two trees with line counts and risk notes.
//!
//! A search (a program that tries actions from saved states) can compute the reward of an action from it, and users can
//! review the work of an agent. The result is plain data with stable codes (`report.rs`).

mod lines;
mod report;
mod risk;
mod secrets;

use rayon::prelude::*;

use crate::diff::{Difference, DifferenceKind, diff};
use crate::entry::{Entry, Node};
use crate::error::Result;
use crate::node::NodeKind;
use crate::tree::Tree;
use crate::tree_path::join;
use crate::walk_limits::{WalkUsage, queued_size};
pub use lines::LINE_DIFF_MAX;
pub(crate) use lines::{Content, LineDiff};
pub use report::{
    ChangeCode, ContentCode, EntryCode, EntryInsight, EntrySummary, INSIGHT_VERSION, InsightDiff, RiskCode,
    RiskNote, Totals, TreePath,
};
pub use secrets::SecretPattern;

/// Number of deleted lines of a file above which the deletion counts as large, if they are also more than half of the
/// lines.
const LARGE_DELETION_LINES: u64 = 200;
/// Number of removed files above which a deletion counts as large.
const LARGE_DELETION_FILES: u64 = 100;
/// Maximum number of risk notes of one kind about one entry.
const NOTES_PER_ENTRY_MAX: usize = 100;

/// Compares two trees and looks for risks in the differences. Reads the content of differing files, except those larger
/// than [`LINE_DIFF_MAX`] bytes.
pub fn insight(from: &Tree, to: &Tree) -> Result<InsightDiff> {
    let differences = diff(from, to)?;
    let usage = &WalkUsage::new(to.store().walk_limits());
    let entries: Vec<_> = differences
        .par_iter()
        .map(|difference| Inspection { from, to, difference, usage }.inspect())
        .collect::<Result<_>>()?;
    let mut totals = Totals::default();
    entries.iter().for_each(|entry| totals.count(entry));
    let notes = if totals.files_removed > LARGE_DELETION_FILES {
        vec![RiskNote::from(RiskCode::LargeDeletion)]
    } else {
        Vec::new()
    };
    totals.count_notes(&notes);
    Ok(InsightDiff { version: INSIGHT_VERSION, from: from.id(), to: to.id(), totals, notes, entries })
}

/// Assessment of one difference.
struct Inspection<'a> {
    from: &'a Tree,
    to: &'a Tree,
    difference: &'a Difference,
    /// Memory usage, shared by all concurrent inspections.
    usage: &'a WalkUsage,
}

impl Inspection<'_> {
    /// Returns the assessment.
    fn inspect(&self) -> Result<EntryInsight> {
        let Difference { path, kind, old, new } = self.difference;
        let (change, renamed_from) = match kind {
            DifferenceKind::Added => (ChangeCode::Added, None),
            DifferenceKind::Removed => (ChangeCode::Removed, None),
            DifferenceKind::Modified => (ChangeCode::Modified, None),
            DifferenceKind::TypeChanged => (ChangeCode::TypeChanged, None),
            DifferenceKind::ModeChanged => (ChangeCode::ModeChanged, None),
            DifferenceKind::Renamed { from } => (ChangeCode::Renamed, Some(TreePath(from.clone()))),
        };
        let mut insight = EntryInsight {
            path: TreePath(path.clone()),
            change,
            renamed_from,
            old: old.as_ref().map(EntrySummary::of),
            new: new.as_ref().map(EntrySummary::of),
            content: None,
            lines_added: None,
            lines_removed: None,
            too_large: false,
            size_change: file_size(new.as_ref()).saturating_sub(file_size(old.as_ref())),
            notes: self.name_and_mode_notes()?,
        };
        self.assess_content(&mut insight)?;
        Ok(insight)
    }

    /// Returns notes that need no content: about paths, modes and symlink targets.
    fn name_and_mode_notes(&self) -> Result<Vec<RiskNote>> {
        let Difference { path, kind, old, new } = self.difference;
        let mut codes = match new {
            Some(new) => risk::entry_risks(path, old.as_ref(), new),
            None => Vec::new(),
        };
        let is_directory_or_absent = |entry: &Option<Entry>| {
            entry.as_ref().is_none_or(|entry| entry.node.kind() == NodeKind::Directory)
        };
        if !is_directory_or_absent(old) || !is_directory_or_absent(new) {
            codes.extend(risk::path_risks(path));
            if let DifferenceKind::Renamed { from } = kind {
                codes.extend(risk::path_risks(from));
            }
        }
        codes.sort_unstable();
        codes.dedup();
        let mut notes: Vec<_> = codes.into_iter().map(RiskNote::from).collect();
        if let (DifferenceKind::Renamed { from }, Some(new)) = (kind, new) {
            self.notes_below(from, new, &mut notes)?;
        }
        Ok(notes)
    }

    /// Adds notes about the entries of a renamed directory. Their content is the same, but the risk of a file
    /// depends on its path, and that of a relative symlink on its depth.
    fn notes_below(&self, from: &[u8], directory: &Entry, notes: &mut Vec<RiskNote>) -> Result<()> {
        let Node::Directory(directory) = &directory.node else { return Ok(()) };
        self.usage.add(queued_size(b"", directory))?;
        let mut queue = vec![(Vec::new(), directory.clone())];
        while let Some((relative, directory)) = queue.pop() {
            self.usage.remove(queued_size(&relative, &directory));
            if notes.len() >= NOTES_PER_ENTRY_MAX {
                continue;
            }
            self.to.store().for_each_entry(&directory, &mut |entry| {
                if notes.len() >= NOTES_PER_ENTRY_MAX {
                    return Ok(());
                }
                let relative = join(&relative, &entry.name);
                let path = join(&self.difference.path, &relative);
                for code in risk::moved_risks(&join(from, &relative), &path, &entry) {
                    self.usage.add_metadata(path.len())?;
                    notes.push(RiskNote { path: Some(TreePath(path.clone())), ..RiskNote::from(code) });
                }
                if let Node::Directory(directory) = entry.node {
                    self.usage.add(queued_size(&relative, &directory))?;
                    queue.push((relative, directory));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Compares the lines of files, and adds notes about their content.
    fn assess_content(&self, insight: &mut EntryInsight) -> Result<()> {
        let Difference { kind, old, new, .. } = self.difference;
        let is_file =
            |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.node.kind() == NodeKind::File);
        if !is_file(old) && !is_file(new) {
            return Ok(());
        }
        if matches!(kind, DifferenceKind::Renamed { .. } | DifferenceKind::ModeChanged) {
            let is_text = lines::is_text(self.to, new.as_ref())?;
            insight.content = Some(if is_text { ContentCode::Text } else { ContentCode::Binary });
            (insight.lines_added, insight.lines_removed) = (is_text.then_some(0), is_text.then_some(0));
            return Ok(());
        }
        let old = Content::of_file(self.from, old.as_ref())?;
        let new = Content::of_file(self.to, new.as_ref())?;
        let is_binary = matches!(old, Content::Binary) || matches!(new, Content::Binary);
        insight.content = Some(if is_binary { ContentCode::Binary } else { ContentCode::Text });
        insight.too_large =
            !is_binary && (matches!(old, Content::TooLarge) || matches!(new, Content::TooLarge));
        if matches!(new, Content::Binary) && old.is_nonempty_text() {
            insight.notes.push(RiskCode::BinaryReplacedText.into());
        }
        if let (Some(old), Some(new)) = (old.text(), new.text()) {
            compare_lines(old, new, insight);
        }
        Ok(())
    }
}

/// Compares the lines of two texts, and adds their counts and notes about added lines to `insight`.
fn compare_lines(old: &[u8], new: &[u8], insight: &mut EntryInsight) {
    let diff = LineDiff::new(old, new);
    let (added, removed) = (diff.added(), diff.removed());
    insight.lines_added = Some(added);
    insight.lines_removed = Some(removed);
    // Replaced lines do not count as deleted.
    let deleted = removed.saturating_sub(added);
    if deleted > LARGE_DELETION_LINES && deleted * 2 > diff.old_lines() as u64 {
        insight.notes.push(RiskCode::LargeDeletion.into());
    }
    let secrets = diff.added_lines().flat_map(|(line, text)| {
        secrets::find(text).into_iter().map(move |pattern| RiskNote {
            line: Some(line),
            pattern: Some(pattern),
            ..RiskNote::from(RiskCode::SecretLikeContent)
        })
    });
    insight.notes.extend(secrets.take(NOTES_PER_ENTRY_MAX));
}

/// Returns the size of a file in bytes; 0 for other entries and if there is no entry.
fn file_size(entry: Option<&Entry>) -> i64 {
    match entry.map(|entry| &entry.node) {
        Some(Node::File(file)) => i64::try_from(file.size()).unwrap_or(i64::MAX),
        _ => 0,
    }
}
