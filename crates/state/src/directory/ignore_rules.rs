//! Rules of `.workspaceignore` files: paths that a snapshot excludes, in gitignore syntax.

use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::path::os_path;

/// Name of the ignore file, which applies to its directory and everything below.
pub(super) const IGNORE_FILE: &[u8] = b".workspaceignore";

/// Rules that apply in a directory: from its own ignore file and from the ignore files of its parents.
#[derive(Clone, Default)]
pub(super) struct IgnoreRules {
    /// Rules of each ignore file, outermost directory first.
    levels: Vec<Arc<Gitignore>>,
}

impl IgnoreRules {
    /// Adds the rules in the ignore file of `directory`, a subdirectory. `rules` is the content of the file.
    pub(super) fn with(&self, directory: &[u8], rules: &[u8]) -> Self {
        let mut builder = GitignoreBuilder::new(Path::new("/").join(os_path(directory)));
        let text = String::from_utf8_lossy(rules);
        // As in git, removes a byte order mark at the start, which would become a part of the first pattern.
        for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
            // An invalid line matches nothing, as in git.
            drop(builder.add_line(None, line));
        }
        let mut levels = self.levels.clone();
        levels.extend(builder.build().ok().map(Arc::new));
        Self { levels }
    }

    /// Returns true if a path is ignored. If several rules match, the rule of the innermost directory decides.
    pub(super) fn is_ignored(&self, path: &[u8], is_directory: bool) -> bool {
        let path = Path::new("/").join(os_path(path));
        for level in self.levels.iter().rev() {
            match level.matched(&path, is_directory) {
                Match::None => {}
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_apply_below_their_file_and_inner_rules_take_precedence() {
        let outer = IgnoreRules::default().with(b"", b"*.log\n/build/\n# comment\n!keep.log\n");
        assert!(outer.is_ignored(b"a/x.log", false));
        assert!(outer.is_ignored(b"build", true));
        assert!(!outer.is_ignored(b"build", false));
        assert!(!outer.is_ignored(b"sub/build", true));
        assert!(!outer.is_ignored(b"keep.log", false));
        let inner = outer.with(b"sub", b"!x.log\n/y\n");
        assert!(!inner.is_ignored(b"sub/x.log", false));
        assert!(inner.is_ignored(b"sub/y", false));
        assert!(inner.is_ignored(b"sub/z.log", false));
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_rule() {
        let rules = IgnoreRules::default().with(b"", b"\xef\xbb\xbfsecrets/\r\n*.log\r\n");
        assert!(rules.is_ignored(b"secrets", true));
        assert!(rules.is_ignored(b"x.log", false));
        let rules = IgnoreRules::default().with(b"", b"*.log\n\xef\xbb\xbfsecrets/\n");
        assert!(!rules.is_ignored(b"secrets", true), "only at the start of the file");
    }
}
