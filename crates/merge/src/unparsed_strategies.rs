//! Merge strategies that do not parse the file: `binary`, `critical` and `log`.

use crate::conflict::Conflict;
use crate::file::{Input, MergedContent, Outcome, Side};
use crate::file_settings::FileSettings;
use crate::strategy::Strategy;
use crate::text_strategy::Text;

/// Strategy for binary files: a change by both sides is always a conflict.
pub(crate) struct Binary;

impl Strategy for Binary {
    fn name(&self) -> &'static str {
        "binary"
    }

    fn merge(&self, _: &Input<'_>, _: &FileSettings) -> Outcome {
        Outcome::Conflict(Conflict::whole(self.name(), "both sides changed a binary file"))
    }
}

/// Strategy `critical`: every change by their side needs a review (a decision by a person).
pub(crate) struct AlwaysReview;

impl Strategy for AlwaysReview {
    fn name(&self) -> &'static str {
        "critical"
    }

    fn merge(&self, input: &Input<'_>, _: &FileSettings) -> Outcome {
        // Their side changed nothing, or has the same content as our side.
        if input.versions.base == Some(input.versions.theirs) || input.versions.ours == input.versions.theirs
        {
            return Outcome::Merged(MergedContent::new(input.versions.ours));
        }
        Outcome::Conflict(Conflict::whole(self.name(), "every change of this file needs a review"))
    }

    // A file that only their side changed needs a review too.
    fn is_always_run(&self) -> bool {
        true
    }

    fn requires_review(&self) -> bool {
        true
    }
}

/// Strategy for append-only files. Entries that our side appended come first, so that they keep their positions. An
/// entry that both sides appended is kept twice.
///
/// If a side did more than append, the file is merged like text, and a conflict names the strategy `text`.
pub(crate) struct Log;

impl Strategy for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn merge(&self, input: &Input<'_>, settings: &FileSettings) -> Outcome {
        match appended(input) {
            Some(content) => Outcome::Merged(MergedContent::new(content)),
            None => Text.merge(input, settings),
        }
    }

    fn resolve(&self, input: &Input<'_>, settings: &FileSettings, side: Side) -> Vec<u8> {
        Text.resolve(input, settings, side)
    }

    fn applies_equal_changes_twice(&self, _: &FileSettings) -> bool {
        true
    }
}

/// Returns the base with the appended entries of both sides; `None` if a side made other changes, or extended the
/// last line of the base.
fn appended(input: &Input<'_>) -> Option<Vec<u8>> {
    let base = input.versions.base.unwrap_or_default();
    let mut ours = input.versions.ours.strip_prefix(base)?;
    let mut theirs = input.versions.theirs.strip_prefix(base)?;
    let mut content = base.to_vec();
    if !base.is_empty() && !base.ends_with(b"\n") {
        // The last entry of the base has no line ending: an append must add one first.
        let line_ending =
            [&b"\n"[..], b"\r\n"].into_iter().find(|line_ending| ours.starts_with(line_ending))?;
        (ours, theirs) = (ours.strip_prefix(line_ending)?, theirs.strip_prefix(line_ending)?);
        content.extend_from_slice(line_ending);
    }
    content.extend_from_slice(ours);
    let lacks_line_ending = !content.is_empty() && !content.ends_with(b"\n");
    if lacks_line_ending && !theirs.is_empty() && !starts_with_line_ending(theirs) {
        content.extend_from_slice(if ours.contains(&b'\r') { b"\r\n" } else { b"\n" });
    }
    content.extend_from_slice(theirs);
    Some(content)
}

fn starts_with_line_ending(text: &[u8]) -> bool {
    text.starts_with(b"\n") || text.starts_with(b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Versions;

    /// Merges three versions of a log; `None` if a side did more than append.
    fn log(base: &str, ours: &str, theirs: &str) -> Option<String> {
        let versions =
            Versions { base: Some(base.as_bytes()), ours: ours.as_bytes(), theirs: theirs.as_bytes() };
        appended(&Input::new("a.log", versions)).map(|content| String::from_utf8(content).unwrap())
    }

    #[test]
    fn entries_of_both_sides_are_kept() {
        assert_eq!(log("1\n", "1\n2\n", "1\n3\n").as_deref(), Some("1\n2\n3\n"));
        assert_eq!(log("", "2", "3\n").as_deref(), Some("2\n3\n"));
        assert_eq!(log("1\n", "1\n2\r\n3", "1\n4\r\n").as_deref(), Some("1\n2\r\n3\r\n4\r\n"));
        assert_eq!(log("1", "1\n2", "1\n3").as_deref(), Some("1\n2\n3"));
    }

    #[test]
    fn equal_entries_of_both_sides_are_all_kept() {
        assert_eq!(log("1\n", "1\n2\n", "1\n2\n").as_deref(), Some("1\n2\n2\n"));
        assert_eq!(log("1\n", "1\n2\n3\n", "1\n2\n4\n").as_deref(), Some("1\n2\n3\n2\n4\n"));
        assert_eq!(log("1", "1\n2", "1\n2\n3").as_deref(), Some("1\n2\n2\n3"));
        assert_eq!(log("1\n", "1\n2\n25", "1\n2\n26").as_deref(), Some("1\n2\n25\n2\n26"));
        assert_eq!(log("", "2\n", "2").as_deref(), Some("2\n2"));
    }

    #[test]
    fn edits_other_than_appends_are_rejected() {
        assert_eq!(log("1\n2\n", "2\n", "1\n2\n3\n"), None);
        assert_eq!(log("1", "12\n", "1\n3\n"), None);
    }
}
