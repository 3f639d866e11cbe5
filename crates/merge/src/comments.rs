//! Comments of documents, by the place they belong to.
//!
//! A comment belongs to the scalar, or empty container, that ends before it on its line, else to the one that begins next. What
//! both sides made of the comments of a place is merged as a value would be, and put into the texts of both sides before the
//! merged value is written with the words of these.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::value::merge::Documents;
use crate::value::{Document, Node, Value, canonical};

/// Where a comment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    /// Hash of the path of the value it belongs to; 0 behind the last one.
    path: u64,
    position: Position,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Position {
    Above,
    Behind,
}

/// A value that has no parts.
#[derive(Debug)]
struct Leaf {
    path: u64,
    /// With its key.
    item: Range<usize>,
}

/// The comments of a document.
#[derive(Debug, Default)]
pub(crate) struct Comments<'a> {
    by_place: BTreeMap<Place, Vec<&'a str>>,
    /// In the order of the text.
    leaves: Vec<Leaf>,
    /// Where lines begin. Looking for that each time would take forever where a large text is one line.
    lines: Vec<usize>,
}

impl<'a> Comments<'a> {
    /// `keys` are the fields that tell elements of arrays from each other.
    pub(crate) fn of(document: &Document<'a>, keys: &[String]) -> Self {
        let mut leaves = Vec::new();
        add_leaves(&mut leaves, &document.root, 0, keys);
        leaves.sort_by_key(|leaf| leaf.item.start);
        let ends = memchr::memchr_iter(b'\n', document.text.as_bytes());
        let lines = std::iter::once(0).chain(ends.map(|end| end + 1)).collect();
        let mut comments = Self { by_place: BTreeMap::new(), leaves, lines };
        for comment in &document.comments {
            let place = comments.place(offset(document.text, comment));
            comments.by_place.entry(place).or_default().push(comment);
        }
        comments
    }

    /// The line that has this in it, with its end.
    fn line(&self, text: &str, at: usize) -> Range<usize> {
        let next = self.lines.partition_point(|start| *start <= at);
        self.lines[next - 1]..self.lines.get(next).copied().unwrap_or(text.len())
    }

    fn place(&self, at: usize) -> Place {
        let line = self.lines[self.lines.partition_point(|start| *start <= at) - 1];
        let next = self.leaves.partition_point(|leaf| leaf.item.start < at);
        let before = next.checked_sub(1).map(|before| &self.leaves[before]);
        match before.filter(|before| before.item.end > line) {
            Some(before) => Place { path: before.path, position: Position::Behind },
            None => {
                let path = self.leaves.get(next).map_or(0, |leaf| leaf.path);
                Place { path, position: Position::Above }
            }
        }
    }

    fn at(&self, place: &Place) -> &[&'a str] {
        self.by_place.get(place).map_or(&[], Vec::as_slice)
    }

    /// How often each comment is in the document.
    fn totals(&self) -> HashMap<&'a str, usize> {
        let mut totals = HashMap::new();
        for comment in self.by_place.values().flatten() {
            *totals.entry(*comment).or_default() += 1;
        }
        totals
    }
}

/// Where a part of a text is in it.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

fn add_leaves(leaves: &mut Vec<Leaf>, node: &Node<'_>, path: u64, keys: &[String]) {
    let step = |step: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        step(&mut hasher);
        hasher.finish()
    };
    match &node.value {
        Value::Object(members) if !members.is_empty() => {
            for member in *members {
                add_leaves(leaves, member, step(&|hasher| member.key.hash(hasher)), keys);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for element in *elements {
                // An element without a name is known by what it is.
                let path = match name(element, keys) {
                    Some(name) => step(&|hasher| (0, name).hash(hasher)),
                    None => step(&|hasher| (1, canonical(element)).hash(hasher)),
                };
                add_leaves(leaves, element, path, keys);
            }
        }
        _ => leaves.push(Leaf { path, item: node.item() }),
    }
}

fn name<'n>(element: &'n Node<'_>, keys: &[String]) -> Option<&'n str> {
    let field = |key: &String| element.children().iter().find(|member| member.key == *key);
    match keys.iter().find_map(field)?.value {
        Value::Literal(text) | Value::String(text) => Some(text),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// The comments of three versions.
pub(crate) struct ThreeComments<'a> {
    base: Comments<'a>,
    ours: Comments<'a>,
    theirs: Comments<'a>,
}

impl<'a> ThreeComments<'a> {
    /// None if no version has any.
    pub(crate) fn new(documents: Documents<'a>, keys: &[String]) -> Option<Self> {
        let all = [documents.base, Some(documents.ours), Some(documents.theirs)];
        if all.into_iter().flatten().all(|document| document.comments.is_empty()) {
            return None;
        }
        let base = documents.base.map_or_else(Comments::default, |base| Comments::of(base, keys));
        let [ours, theirs] = [documents.ours, documents.theirs].map(|side| Comments::of(side, keys));
        Some(Self { base, ours, theirs })
    }

    /// Whether every comment is in a merged document that a side wrote, where it wrote it, and all that both kept.
    pub(crate) fn are_in(&self, found: &Comments<'_>) -> bool {
        let [in_found, in_base, in_ours, in_theirs] =
            [found.totals(), self.base.totals(), self.ours.totals(), self.theirs.totals()];
        let total = |totals: &HashMap<&str, usize>, comment: &str| totals.get(comment).copied().unwrap_or(0);
        let are_kept = in_ours.keys().chain(in_theirs.keys()).all(|comment| {
            let [found, base, ours, theirs] =
                [&in_found, &in_base, &in_ours, &in_theirs].map(|totals| total(totals, comment));
            // What both wrote may be one.
            let needed = match ours >= base && theirs >= base {
                true => ours.max(theirs),
                false => (ours + theirs).saturating_sub(base),
            };
            found >= needed
        });
        let is_where_it_was_written = |side: &Comments<'_>, totals: &HashMap<&str, usize>| {
            side.by_place.iter().all(|(place, comments)| {
                comments.iter().all(|comment| {
                    let count = |comments: &[&str]| comments.iter().filter(|other| *other == comment).count();
                    let (here, before) = (count(comments), count(self.base.at(place)));
                    // One that there are no more of than before has been moved, and may have been moved on.
                    let is_new = here > before && total(totals, comment) > total(&in_base, comment);
                    !is_new || count(found.at(place)) >= here
                })
            })
        };
        are_kept
            && is_where_it_was_written(&self.ours, &in_ours)
            && is_where_it_was_written(&self.theirs, &in_theirs)
    }

    /// The texts of both sides, each with what only the other one made of comments. None where there is nothing to change.
    pub(crate) fn merged_into(&self, documents: Documents<'a>) -> [Option<String>; 2] {
        [
            self.taken_over(documents.ours.text, &self.ours, &self.theirs),
            self.taken_over(documents.theirs.text, &self.theirs, &self.ours),
        ]
    }

    fn taken_over(&self, text: &str, side: &Comments<'_>, other: &Comments<'_>) -> Option<String> {
        let mut edits = Vec::new();
        let paths = |comments: &Comments<'_>| comments.leaves.iter().map(|leaf| leaf.path).collect();
        let [in_base, in_other]: [std::collections::HashSet<u64>; 2] = [paths(&self.base), paths(other)];
        // A value that is not in all versions, or more than once, has its comments with it.
        let mut seen = HashMap::new();
        side.leaves.iter().for_each(|leaf| *seen.entry(leaf.path).or_insert(0) += 1);
        let is_everywhere = |leaf: &&Leaf| {
            seen[&leaf.path] == 1 && in_base.contains(&leaf.path) && in_other.contains(&leaf.path)
        };
        for leaf in side.leaves.iter().filter(is_everywhere) {
            for position in [Position::Above, Position::Behind] {
                let place = Place { path: leaf.path, position };
                let (was, is, should_be) = (self.base.at(&place), side.at(&place), other.at(&place));
                if is == was && should_be != was {
                    edits.extend(side.edit(text, leaf, position, is, should_be));
                }
            }
        }
        if edits.is_empty() {
            return None;
        }
        edits.sort_by_key(|(range, _)| range.start);
        let (mut out, mut at) = (String::with_capacity(text.len()), 0);
        for (range, new) in edits {
            out.push_str(text.get(at..range.start)?);
            out.push_str(&new);
            at = range.end;
        }
        out.push_str(&text[at..]);
        Some(out)
    }
}

type Edit = (Range<usize>, String);

impl Comments<'_> {
    /// Puts other comments where some are, or are not. Nothing where it cannot be told how, or where the other side has none: programs
    /// that write a document again leave comments out.
    fn edit(
        &self,
        text: &str,
        leaf: &Leaf,
        position: Position,
        is: &[&str],
        should_be: &[&str],
    ) -> Vec<Edit> {
        let range = |comment: &str| offset(text, comment)..offset(text, comment) + comment.len();
        if is.len() == should_be.len() {
            let pairs = is.iter().zip(should_be).filter(|(is, should_be)| is != should_be);
            return pairs.map(|(is, should_be)| (range(is), (*should_be).to_owned())).collect();
        }
        match (position, is, should_be) {
            (Position::Behind, [], [comment]) => {
                let end = leaf.item.end;
                let written = text[end..self.line(text, end).end].trim_end();
                if !written.is_empty() && written != "," {
                    return Vec::new();
                }
                let at = end + written.len();
                vec![(at..at, format!(" {comment}"))]
            }
            (Position::Above, [], comments) => {
                let line = self.line(text, leaf.item.start).start;
                let indent = &text[line..leaf.item.start];
                if !indent.trim().is_empty() {
                    return Vec::new();
                }
                let end = if text[..line].ends_with("\r\n") { "\r\n" } else { "\n" };
                let lines = comments.iter().map(|comment| format!("{indent}{comment}{end}"));
                vec![(line..line, lines.collect())]
            }
            _ => Vec::new(),
        }
    }
}
