//! Assignment of the comments of a JSON, YAML or TOML document to its values, and the three-way merge of comments.
//!
//! A comment belongs to the scalar or empty container that ends before it on the same line, or else to the
//! next scalar or empty container. The comments of a value are merged like values. They are written into the
//! texts of both sides before the merged document is assembled from these texts.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::value::merge::Documents;
use crate::value::{Document, NamedChildren, SyntaxNode, Value, canonical};

/// Hash of the path of the root value.
const ROOT_PATH: u64 = 1;
/// Path hash of comments after the last value. Differs from that of every value, also if the root is a scalar.
const END_OF_DOCUMENT: u64 = 0;

/// Value that a comment belongs to, and the position of the comment relative to the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct CommentPlace {
    /// Hash of the path of the value; [`END_OF_DOCUMENT`] for comments after the last value.
    path: u64,
    position: Position,
}

/// Position of a comment relative to its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Position {
    /// Before the value, but not on the line on which the previous value ends.
    Before,
    /// After the value, on the line on which it ends; also between the key and the value.
    Trailing,
}

/// Scalar or empty container.
#[derive(Debug)]
struct LeafValue {
    /// Hash of the path of the value: of the keys and the names of array elements from the root to the value.
    path: u64,
    /// Byte range, including the key.
    item: Range<usize>,
}

/// Comments of a document.
#[derive(Debug, Default)]
pub(crate) struct Comments<'a> {
    /// Source texts of the comments at each place, in text order.
    by_place: BTreeMap<CommentPlace, Vec<&'a str>>,
    /// Scalars and empty containers, in text order.
    leaves: Vec<LeafValue>,
    /// Byte offset of each line, computed once: if a large text is a single line, a search from each comment would
    /// take quadratic time.
    line_starts: Vec<usize>,
}

impl<'a> Comments<'a> {
    /// Collects the comments of a document. `keys` are the fields that identify array elements.
    pub(crate) fn of(document: &Document<'a>, keys: &[String]) -> Self {
        let mut leaves = Vec::new();
        add_leaves(&mut leaves, &document.root, ROOT_PATH, keys);
        leaves.sort_by_key(|leaf| leaf.item.start);
        let ends = memchr::memchr_iter(b'\n', document.text.as_bytes());
        let line_starts = std::iter::once(0).chain(ends.map(|end| end + 1)).collect();
        let mut comments = Self { by_place: BTreeMap::new(), leaves, line_starts };
        for comment in &document.comments {
            let place = comments.place_of(offset(document.text, comment));
            comments.by_place.entry(place).or_default().push(comment);
        }
        comments
    }

    /// Returns the byte range of the line that contains a byte offset, including the line ending.
    fn line(&self, text: &str, offset: usize) -> Range<usize> {
        let next = self.line_starts.partition_point(|start| *start <= offset);
        self.line_starts[next - 1]..self.line_starts.get(next).copied().unwrap_or(text.len())
    }

    /// Returns the place of the comment at a byte offset.
    fn place_of(&self, offset: usize) -> CommentPlace {
        let line_start = self.line_starts[self.line_starts.partition_point(|start| *start <= offset) - 1];
        let next = self.leaves.partition_point(|leaf| leaf.item.start < offset);
        let previous = next.checked_sub(1).map(|previous| &self.leaves[previous]);
        match previous.filter(|previous| previous.item.end > line_start) {
            Some(previous) => CommentPlace { path: previous.path, position: Position::Trailing },
            None => {
                let path = self.leaves.get(next).map_or(END_OF_DOCUMENT, |leaf| leaf.path);
                CommentPlace { path, position: Position::Before }
            }
        }
    }

    /// Returns the comments at a place; empty if there are none.
    fn comments_at(&self, place: &CommentPlace) -> &[&'a str] {
        self.by_place.get(place).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of occurrences of each comment in the document.
    fn totals(&self) -> HashMap<&'a str, usize> {
        let mut totals = HashMap::new();
        for comment in self.by_place.values().flatten() {
            *totals.entry(*comment).or_default() += 1;
        }
        totals
    }
}

/// Returns the byte offset of `part`, which must be a slice of `text`.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// Adds all scalars and empty containers in `node`. `path` is the hash of the path of `node`.
fn add_leaves(leaves: &mut Vec<LeafValue>, node: &SyntaxNode<'_>, path: u64, keys: &[String]) {
    let child_path = |hash_step: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        hash_step(&mut hasher);
        hasher.finish()
    };
    match &node.value {
        Value::Object(members) if !members.is_empty() => {
            for member in *members {
                add_leaves(leaves, member, child_path(&|hasher| member.key.hash(hasher)), keys);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            // Elements are named by the first field that is a unique scalar in all elements. The merge of arrays also
            // requires this in the other two versions. Without such a field, elements may share a name. Then
            // comments on their values are not merged.
            let unique_key = keys.iter().find(|key| NamedChildren::by_field(elements, key).is_some());
            let element_keys = unique_key.map_or(keys, std::slice::from_ref);
            for element in *elements {
                // An element without a key field is named by its content.
                let path = match key_field(element, element_keys) {
                    Some(name) => child_path(&|hasher| (0, name).hash(hasher)),
                    None => child_path(&|hasher| (1, canonical(element)).hash(hasher)),
                };
                add_leaves(leaves, element, path, keys);
            }
        }
        _ => leaves.push(LeafValue { path, item: node.item() }),
    }
}

/// Returns the value of the first of the fields `keys` that an element has; `None` if it has none, or the value is not
/// a scalar.
fn key_field<'n>(element: &'n SyntaxNode<'_>, keys: &[String]) -> Option<&'n str> {
    let field = |key: &String| element.children().iter().find(|member| member.key == *key);
    match keys.iter().find_map(field)?.value {
        Value::Literal(text) | Value::String(text) => Some(text),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// Comments of the three versions.
pub(crate) struct ThreeComments<'a> {
    base: Comments<'a>,
    ours: Comments<'a>,
    theirs: Comments<'a>,
}

impl<'a> ThreeComments<'a> {
    /// Collects all comments; `None` if there are none.
    pub(crate) fn new(documents: Documents<'a>, keys: &[String]) -> Option<Self> {
        let all = [documents.base, Some(documents.ours), Some(documents.theirs)];
        if all.into_iter().flatten().all(|document| document.comments.is_empty()) {
            return None;
        }
        let base = documents.base.map_or_else(Comments::default, |base| Comments::of(base, keys));
        let [ours, theirs] = [documents.ours, documents.theirs].map(|side| Comments::of(side, keys));
        Some(Self { base, ours, theirs })
    }

    /// Returns true if a merged document has every comment that a side added, at the value to which that side
    /// added it, and all comments that both sides kept.
    pub(crate) fn are_preserved_in(&self, merged: &Comments<'_>) -> bool {
        let [in_merged, in_base, in_ours, in_theirs] =
            [merged.totals(), self.base.totals(), self.ours.totals(), self.theirs.totals()];
        let total = |totals: &HashMap<&str, usize>, comment: &str| totals.get(comment).copied().unwrap_or(0);
        let are_kept = in_ours.keys().chain(in_theirs.keys()).all(|comment| {
            let [merged, base, ours, theirs] =
                [&in_merged, &in_base, &in_ours, &in_theirs].map(|totals| total(totals, comment));
            // If both sides added a comment, one occurrence in the result is enough.
            let needed = match ours >= base && theirs >= base {
                true => ours.max(theirs),
                false => (ours + theirs).saturating_sub(base),
            };
            merged >= needed
        });
        let has_new_comments_of = |side: &Comments<'_>, totals: &HashMap<&str, usize>| {
            side.by_place.iter().all(|(place, comments)| {
                comments.iter().all(|comment| {
                    let count = |comments: &[&str]| comments.iter().filter(|other| *other == comment).count();
                    let (count_in_side, count_in_base) =
                        (count(comments), count(self.base.comments_at(place)));
                    // If the total of a comment did not grow, this side moved the comment. Then the merge may move it
                    // too.
                    let is_new =
                        count_in_side > count_in_base && total(totals, comment) > total(&in_base, comment);
                    !is_new || count(merged.comments_at(place)) >= count_in_side
                })
            })
        };
        are_kept && has_new_comments_of(&self.ours, &in_ours) && has_new_comments_of(&self.theirs, &in_theirs)
    }

    /// Returns the texts of our and of their side, each with the comment changes of the other side; `None` if no
    /// comment has to change, or if two changes overlap. A text may be broken, for example by a line comment in the
    /// middle of a line: the caller parses both, and drops a text whose value changed.
    pub(crate) fn merge_into(&self, documents: Documents<'a>) -> [Option<String>; 2] {
        [
            self.with_comments_of(documents.ours.text, &self.ours, &self.theirs),
            self.with_comments_of(documents.theirs.text, &self.theirs, &self.ours),
        ]
    }

    /// Returns the text of a side with the comment changes of the other side; `None` as in [`Self::merge_into`].
    fn with_comments_of(&self, text: &str, side: &Comments<'_>, other: &Comments<'_>) -> Option<String> {
        let mut edits = Vec::new();
        let paths = |comments: &Comments<'_>| comments.leaves.iter().map(|leaf| leaf.path).collect();
        let [in_base, in_other]: [std::collections::HashSet<u64>; 2] = [paths(&self.base), paths(other)];
        // A value keeps its comments if the base or the other side does not have it, or if several values on this side
        // have its path.
        let mut occurrences = HashMap::new();
        side.leaves.iter().for_each(|leaf| *occurrences.entry(leaf.path).or_insert(0) += 1);
        let is_in_all_versions = |leaf: &&LeafValue| {
            occurrences[&leaf.path] == 1 && in_base.contains(&leaf.path) && in_other.contains(&leaf.path)
        };
        for leaf in side.leaves.iter().filter(is_in_all_versions) {
            for position in [Position::Before, Position::Trailing] {
                let place = CommentPlace { path: leaf.path, position };
                let (old, current, new) =
                    (self.base.comments_at(&place), side.comments_at(&place), other.comments_at(&place));
                if current == old && new != old {
                    edits.extend(side.edit(text, leaf, position, current, new));
                }
            }
        }
        if edits.is_empty() {
            return None;
        }
        edits.sort_by_key(|(range, _)| range.start);
        let (mut out, mut copied_end) = (String::with_capacity(text.len()), 0);
        for (range, new) in edits {
            out.push_str(text.get(copied_end..range.start)?);
            out.push_str(&new);
            copied_end = range.end;
        }
        out.push_str(&text[copied_end..]);
        Some(out)
    }
}

/// Byte range to replace, and its new text.
type Edit = (Range<usize>, String);

impl Comments<'_> {
    /// Returns edits that replace the comments `current` of a value by `new`. Empty if the position of the new comments
    /// is ambiguous, or if `new` is empty: programs that rewrite a document often drop comments, so comments are never
    /// removed.
    fn edit(
        &self,
        text: &str,
        leaf: &LeafValue,
        position: Position,
        current: &[&str],
        new: &[&str],
    ) -> Vec<Edit> {
        let range = |comment: &str| offset(text, comment)..offset(text, comment) + comment.len();
        if current.len() == new.len() {
            let pairs = current.iter().zip(new).filter(|(current, new)| current != new);
            return pairs.map(|(current, new)| (range(current), (*new).to_owned())).collect();
        }
        match (position, current, new) {
            (Position::Trailing, [], [comment]) => {
                let end = leaf.item.end;
                let rest_of_line = text[end..self.line(text, end).end].trim_end();
                if !rest_of_line.is_empty() && rest_of_line != "," {
                    return Vec::new();
                }
                let insertion = end + rest_of_line.len();
                vec![(insertion..insertion, format!(" {comment}"))]
            }
            (Position::Before, [], comments) => {
                let line_start = self.line(text, leaf.item.start).start;
                let indent = &text[line_start..leaf.item.start];
                if !indent.trim().is_empty() {
                    return Vec::new();
                }
                let line_ending = if text[..line_start].ends_with("\r\n") { "\r\n" } else { "\n" };
                let lines = comments.iter().map(|comment| format!("{indent}{comment}{line_ending}"));
                vec![(line_start..line_start, lines.collect())]
            }
            _ => Vec::new(),
        }
    }
}
