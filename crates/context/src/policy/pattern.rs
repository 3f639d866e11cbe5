//! Patterns for paths, matched by a nondeterministic finite automaton.
//!
//! A pattern is a list of components. Position `n` of the automaton means that the first `n` components have matched.
//! The present positions are a bit mask, so a step by one name costs a few operations even with several `**`. At a
//! `**`, the automaton stays for any number of names, including none.

use std::hash::{Hash, Hasher};

use super::glob::{Glob, GlobError};

/// Maximum length of a pattern in bytes.
const PATTERN_MAX: usize = 1024;
/// Maximum number of components: each is a bit of a mask, and one more bit is the end.
const COMPONENTS_MAX: usize = 63;
/// Maximum number of `**`.
const RECURSIVE_MAX: usize = 8;
/// Maximum length of the name of an entry in bytes.
const NAME_MAX: usize = 255;

/// Reason why a path pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PatternError {
    #[error("it is empty: write `**` for everything")]
    Empty,
    #[error("it is longer than {PATTERN_MAX} bytes: use a shorter one")]
    TooLong,
    #[error("it has more than {COMPONENTS_MAX} components: use `**` for some of them")]
    TooManyComponents,
    #[error("it has more than {RECURSIVE_MAX} `**`: use fewer")]
    TooManyRecursive,
    #[error("it starts with `/`: paths are relative to the project, remove the `/`")]
    LeadingSlash,
    #[error("it ends with `/`: write `…/**` for a directory with everything in it, or remove the `/`")]
    TrailingSlash,
    #[error("it contains `//`: remove one `/`")]
    EmptyComponent,
    #[error("`{name}` is no name of an entry, so nothing matches: remove that component")]
    Relative { name: String },
    #[error("a component is longer than {NAME_MAX} bytes, so nothing matches: shorten it")]
    LongName,
    #[error(transparent)]
    Glob(#[from] GlobError),
}

/// One component of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Component {
    /// Exactly one name.
    Literal(Box<[u8]>),
    /// Names with wildcards or alternatives.
    Wildcard(Glob),
    /// `**`: any number of names.
    Recursive,
}

/// A compiled pattern. Patterns are equal if their texts are.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    components: Box<[Component]>,
    /// Bit set of the positions of `**`.
    recursive: u64,
}

/// Rank of a component in comparisons of specificity, the least specific first. [`Rank::End`] follows the last
/// component: a pattern is less specific than one that continues after the same components, unless that one only adds a
/// last `**`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// `**` at the end.
    LastRecursive,
    /// End of the pattern.
    End,
    /// `**` with components after it.
    Recursive,
    /// `*`
    Any,
    /// Wildcards with other text.
    Wildcard,
    /// A name.
    Literal,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.text.hash(hasher);
    }
}

impl Pattern {
    /// Compiles a pattern. Repeated `**` are reduced to one.
    pub(crate) fn parse(text: &str) -> Result<Self, PatternError> {
        check_form(text)?;
        let mut components = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for name in text.split('/') {
            let component = parse_component(name)?;
            if component == Component::Recursive && components.last() == Some(&Component::Recursive) {
                continue;
            }
            components.push(component);
            names.push(name);
        }
        if components.len() > COMPONENTS_MAX {
            return Err(PatternError::TooManyComponents);
        }
        let mut recursive = 0;
        for (position, component) in components.iter().enumerate() {
            recursive |= u64::from(*component == Component::Recursive) << position;
        }
        if recursive.count_ones() as usize > RECURSIVE_MAX {
            return Err(PatternError::TooManyRecursive);
        }
        Ok(Self { text: names.join("/"), components: components.into(), recursive })
    }

    /// Returns the pattern without repeated `**`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn component(&self, position: u32) -> Option<&Component> {
        self.components.get(position as usize)
    }

    /// Returns the positions at the root of a tree.
    pub(crate) fn start(&self) -> u64 {
        self.epsilon_closure(1)
    }

    /// Adds the positions that are reached without a name, as `**` may match no name.
    pub(crate) fn epsilon_closure(&self, positions: u64) -> u64 {
        // One shift is enough, because no two `**` are adjacent.
        positions | (positions & self.recursive) << 1
    }

    /// Returns the positions after a name.
    fn step(&self, positions: u64, name: &[u8]) -> u64 {
        let mut next = positions & self.recursive;
        for position in bits(positions & !self.recursive) {
            if self.component(position).is_some_and(|component| component.is_match(name)) {
                next |= 1 << (position + 1);
            }
        }
        self.epsilon_closure(next)
    }

    /// Returns true if the names so far match the whole pattern.
    pub(crate) fn is_end(&self, positions: u64) -> bool {
        positions & self.end() != 0
    }

    /// Removes the position after the last component: no further name can match there.
    pub(crate) fn without_end(&self, positions: u64) -> u64 {
        positions & !self.end()
    }

    /// Returns the bit of the position after the last component.
    fn end(&self) -> u64 {
        1 << self.components.len()
    }

    /// Returns true if every path from here on matches.
    pub(crate) fn matches_all_below(&self, positions: u64) -> bool {
        positions & self.recursive & (self.end() >> 1) != 0
    }

    /// Returns true if the pattern matches a path.
    pub(crate) fn is_match(&self, names: &[&[u8]]) -> bool {
        let mut positions = self.start();
        for name in names {
            positions = self.step(positions, name);
            if positions == 0 {
                return false;
            }
        }
        self.is_end(positions)
    }

    /// Returns true if a path may match both patterns. Two components with wildcards always count as overlapping, so
    /// the result can be true although no path matches both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        // Positions of the other pattern that were reached together with each position of this one.
        let mut seen = [0u64; COMPONENTS_MAX + 1];
        let mut queue = vec![(self.start(), other.start())];
        while let Some((ours, theirs)) = queue.pop() {
            if self.is_end(ours) && other.is_end(theirs) {
                return true;
            }
            for a in bits(self.without_end(ours)) {
                let new = other.without_end(theirs) & !seen[a as usize];
                seen[a as usize] |= new;
                queue.extend(bits(new).filter_map(|b| {
                    Some((self.after(a), other.after(b))).filter(|_| {
                        match (self.component(a), other.component(b)) {
                            (Some(ours), Some(theirs)) => ours.overlaps(theirs),
                            _ => false,
                        }
                    })
                }));
            }
        }
        false
    }

    /// Returns the positions after a name that matches the component at a position.
    fn after(&self, position: u32) -> u64 {
        let is_recursive = self.recursive >> position & 1 == 1;
        self.epsilon_closure(1 << if is_recursive { position } else { position + 1 })
    }

    /// Returns the first component if it is a name.
    pub(crate) fn first_name(&self) -> Option<&[u8]> {
        match self.components.first() {
            Some(Component::Literal(name)) => Some(name),
            _ => None,
        }
    }

    /// Returns the ranks of the components and of the end. Greater is more specific.
    pub(crate) fn specificity(&self) -> Vec<Rank> {
        let last = self.components.len() - 1;
        let ranks = self.components.iter().enumerate().map(|(position, component)| match component {
            Component::Literal(_) => Rank::Literal,
            Component::Wildcard(glob) if glob.is_any() => Rank::Any,
            Component::Wildcard(_) => Rank::Wildcard,
            Component::Recursive if position == last => Rank::LastRecursive,
            Component::Recursive => Rank::Recursive,
        });
        ranks.chain([Rank::End]).collect()
    }
}

impl Component {
    /// Returns true if a name may match both components.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Literal(name), component) | (component, Self::Literal(name)) => component.is_match(name),
            _ => true,
        }
    }

    fn is_match(&self, name: &[u8]) -> bool {
        match self {
            Self::Literal(literal) => **literal == *name,
            Self::Wildcard(glob) => glob.is_match(name),
            Self::Recursive => true,
        }
    }
}

/// Iterates over the components of a path. Empty ones are skipped.
pub(super) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// Iterates over the numbers of the set bits, lowest first.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(bit)
    })
}

/// Fails if a pattern is empty, too long, or has a `/` at the start, at the end or next to another.
fn check_form(text: &str) -> Result<(), PatternError> {
    if text.is_empty() {
        return Err(PatternError::Empty);
    }
    if text.len() > PATTERN_MAX {
        return Err(PatternError::TooLong);
    }
    if text.starts_with('/') {
        return Err(PatternError::LeadingSlash);
    }
    if text.ends_with('/') {
        return Err(PatternError::TrailingSlash);
    }
    if text.contains("//") {
        return Err(PatternError::EmptyComponent);
    }
    Ok(())
}

fn parse_component(name: &str) -> Result<Component, PatternError> {
    if name == "**" {
        return Ok(Component::Recursive);
    }
    let glob = Glob::parse(name)?;
    match glob.literal() {
        Some(b"." | b".." | b"") => Err(PatternError::Relative { name: name.to_owned() }),
        Some(literal) if literal.len() > NAME_MAX => Err(PatternError::LongName),
        Some(literal) => Ok(Component::Literal(literal.into())),
        None => Ok(Component::Wildcard(glob)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let names: Vec<&[u8]> = path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes).collect();
        Pattern::parse(pattern).unwrap().is_match(&names)
    }

    #[test]
    fn patterns_match_by_component() {
        for (pattern, yes, no) in [
            ("a", vec!["a"], vec!["", "a/b", "b"]),
            ("a/b", vec!["a/b"], vec!["a", "b", "a/b/c"]),
            ("*", vec!["a"], vec!["", "a/b"]),
            ("**", vec!["", "a", "a/b/c"], vec![]),
            ("a/**", vec!["a", "a/b", "a/b/c"], vec!["", "ab", "b/a"]),
            ("**/a", vec!["a", "b/a", "a/a", "b/c/a"], vec!["", "a/b", "ba"]),
            ("a/**/b", vec!["a/b", "a/x/b", "a/x/y/b", "a/b/b"], vec!["a", "b", "a/x", "a/b/x"]),
            ("**/a/**", vec!["a", "x/a", "a/x", "x/a/y/z"], vec!["", "x", "xa"]),
            ("**/a/**/b/**", vec!["a/b", "x/a/y/b/z", "a/a/b/b"], vec!["b/a", "a", "b"]),
            ("a/**/**/b", vec!["a/b", "a/x/b"], vec!["a/x"]),
            ("*/*.md", vec!["a/b.md"], vec!["b.md", "a/b/c.md"]),
            ("{a,b}/c", vec!["a/c", "b/c"], vec!["c/c"]),
        ] {
            for path in yes {
                assert!(matches(pattern, path), "{pattern} should match {path}");
            }
            for path in no {
                assert!(!matches(pattern, path), "{pattern} should not match {path}");
            }
        }
    }

    #[test]
    fn patterns_that_match_nothing_are_rejected() {
        let error = |text: &str| Pattern::parse(text).unwrap_err();
        assert_eq!(error(""), PatternError::Empty);
        assert_eq!(error("/a"), PatternError::LeadingSlash);
        assert_eq!(error("a/"), PatternError::TrailingSlash);
        assert_eq!(error("a//b"), PatternError::EmptyComponent);
        assert_eq!(error("a/../b"), PatternError::Relative { name: "..".to_owned() });
        assert_eq!(error("./a"), PatternError::Relative { name: ".".to_owned() });
        assert_eq!(error("{a/b}"), PatternError::Glob(GlobError::UnclosedBrace));
        assert_eq!(error("a**/b"), PatternError::Glob(GlobError::RecursiveInName));
        assert_eq!(error(&"a".repeat(256)), PatternError::LongName);
        assert_eq!(error(&"a".repeat(1025)), PatternError::TooLong);
        assert_eq!(error(&["a"; 64].join("/")), PatternError::TooManyComponents);
        assert_eq!(error(&["**/a"; 9].join("/")), PatternError::TooManyRecursive);
    }

    #[test]
    fn the_longest_pattern_matches() {
        let text = ["a"; 63].join("/");
        assert!(matches(&text, &text) && !matches(&text, &["a"; 64].join("/")));
        let recursive = format!("{}/**", ["a"; 62].join("/"));
        assert!(matches(&recursive, &text) && matches(&recursive, &["a"; 900].join("/")));
    }

    #[test]
    fn patterns_without_common_paths_do_not_overlap() {
        for (a, b, expected) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a/**", "a", true),
            ("a/**", "b/**", false),
            ("a/**", "**/b", true),
            ("**/a", "**/b", false),
            ("**/a/**", "**/b", true),
            ("a/*/c", "a/b/*", true),
            ("a/*", "a/b/*", false),
            ("*.md", "notes.md", true),
            ("*.md", "notes.txt", false),
            ("**", "x/y/z", true),
            ("a/**/b", "a/c", false),
            ("a/**/b/**/c", "a/x/**/b/y/c", true),
        ] {
            let [a_pattern, b_pattern] = [a, b].map(|text| Pattern::parse(text).unwrap());
            assert_eq!(a_pattern.overlaps(&b_pattern), expected, "{a} and {b}");
            assert_eq!(b_pattern.overlaps(&a_pattern), expected, "{b} and {a}");
        }
    }

    #[test]
    fn specificity_orders_patterns() {
        let ordered = [
            "a/b/c", "a/b", "a/b*", "a/*", "a/**/b", "a", "a/**", "a*/b", "a*", "*/b", "*", "**/a/b", "**/a",
            "**/a/**", "**/a*", "**/*", "**",
        ];
        for pair in ordered.windows(2) {
            let [above, below] = [pair[0], pair[1]].map(|text| Pattern::parse(text).unwrap().specificity());
            assert!(above > below, "{} should be more specific than {}", pair[0], pair[1]);
        }
    }
}
