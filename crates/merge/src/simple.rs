//! Files that are not looked into, or hardly.

use crate::conflict::Conflict;
use crate::file::{Input, Merged, Outcome, Side};
use crate::policy::FileRule;
use crate::strategy::Strategy;
use crate::text_strategy::Text;

/// One version or the other.
pub(crate) struct Binary;

impl Strategy for Binary {
    fn name(&self) -> &'static str {
        "binary"
    }

    fn merge(&self, _: &Input<'_>, _: &FileRule) -> Outcome {
        Outcome::Conflict(Conflict::whole(self.name(), "both sides changed a file that is no text"))
    }
}

/// Somebody looks at every change.
pub(crate) struct Critical;

impl Strategy for Critical {
    fn name(&self) -> &'static str {
        "critical"
    }

    fn merge(&self, input: &Input<'_>, _: &FileRule) -> Outcome {
        if input.versions.base == Some(input.versions.theirs) || input.versions.ours == input.versions.theirs
        {
            return Outcome::Merged(Merged::new(input.versions.ours));
        }
        Outcome::Conflict(Conflict::whole(
            self.name(),
            "changes of this file are never taken without a review",
        ))
    }

    fn is_always_asked(&self) -> bool {
        true
    }

    fn wants_review(&self) -> bool {
        true
    }
}

/// What both sides appended: ours first, so that what was in the project's log stays where it was.
pub(crate) struct Log;

impl Strategy for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn merge(&self, input: &Input<'_>, rule: &FileRule) -> Outcome {
        match appended(input) {
            Some(content) => Outcome::Merged(Merged::new(content)),
            None => Text.merge(input, rule),
        }
    }

    fn settle(&self, input: &Input<'_>, rule: &FileRule, side: Side) -> Vec<u8> {
        Text.settle(input, rule, side)
    }

    fn accumulates(&self, _: &FileRule) -> bool {
        true
    }
}

/// None if a side did something else than to append entries.
fn appended(input: &Input<'_>) -> Option<Vec<u8>> {
    let base = input.versions.base.unwrap_or_default();
    let mut ours = input.versions.ours.strip_prefix(base)?;
    let mut theirs = input.versions.theirs.strip_prefix(base)?;
    let mut content = base.to_vec();
    if !base.is_empty() && !base.ends_with(b"\n") {
        // The last entry of the base has no end: who appends has to give it one.
        let end = [&b"\n"[..], b"\r\n"].into_iter().find(|end| ours.starts_with(end))?;
        (ours, theirs) = (ours.strip_prefix(end)?, theirs.strip_prefix(end)?);
        content.extend_from_slice(end);
    }
    content.extend_from_slice(ours);
    let is_open = !content.is_empty() && !content.ends_with(b"\n");
    if is_open && !theirs.is_empty() && !starts_line(theirs) {
        content.extend_from_slice(if ours.contains(&b'\r') { b"\r\n" } else { b"\n" });
    }
    content.extend_from_slice(theirs);
    Some(content)
}

fn starts_line(text: &[u8]) -> bool {
    text.starts_with(b"\n") || text.starts_with(b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Versions;

    fn log(base: &str, ours: &str, theirs: &str) -> Option<String> {
        let versions =
            Versions { base: Some(base.as_bytes()), ours: ours.as_bytes(), theirs: theirs.as_bytes() };
        appended(&Input::new("a.log", versions)).map(|content| String::from_utf8(content).unwrap())
    }

    #[test]
    fn what_both_appended_is_there() {
        assert_eq!(log("1\n", "1\n2\n", "1\n3\n").as_deref(), Some("1\n2\n3\n"));
        assert_eq!(log("", "2", "3\n").as_deref(), Some("2\n3\n"));
        assert_eq!(log("1\n", "1\n2\r\n3", "1\n4\r\n").as_deref(), Some("1\n2\r\n3\r\n4\r\n"));
        assert_eq!(log("1", "1\n2", "1\n3").as_deref(), Some("1\n2\n3"));
    }

    #[test]
    fn equal_entries_that_both_appended_are_all_there() {
        assert_eq!(log("1\n", "1\n2\n", "1\n2\n").as_deref(), Some("1\n2\n2\n"));
        assert_eq!(log("1\n", "1\n2\n3\n", "1\n2\n4\n").as_deref(), Some("1\n2\n3\n2\n4\n"));
        assert_eq!(log("1", "1\n2", "1\n2\n3").as_deref(), Some("1\n2\n2\n3"));
        assert_eq!(log("1\n", "1\n2\n25", "1\n2\n26").as_deref(), Some("1\n2\n25\n2\n26"));
        assert_eq!(log("", "2\n", "2").as_deref(), Some("2\n2"));
    }

    #[test]
    fn anything_but_appending_is_not_for_logs() {
        assert_eq!(log("1\n2\n", "2\n", "1\n2\n3\n"), None);
        assert_eq!(log("1", "12\n", "1\n3\n"), None);
    }
}
