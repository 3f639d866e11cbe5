//! Properties of merges of random documents in JSON, TOML and YAML.
//!
//! Each scalar is a unique number, so that a test knows which numbers a clean merge has to contain: those that both
//! sides have, and those that a side added.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use proptest::prelude::*;
use workspace_merge::{
    ConflictLocation, ConflictMarkers, DiffLimits, FileSettings, Input, OnConflict, Strategies, Style,
    TextMerge, Versions, conflict_sides,
};

use crate::documents::{merged, merged_by};
use crate::git::Rng;

/// Document, or a value in it.
#[derive(Debug, Clone, PartialEq)]
enum Doc {
    /// Number.
    Leaf(usize),
    Array(Vec<Doc>),
    /// Members in order.
    Object(Vec<(String, Doc)>),
}

/// Generator of random documents with unique numbers.
struct Generator {
    rng: Rng,
    /// Last number that was used.
    last: usize,
}

impl Generator {
    /// Returns a new number.
    fn leaf(&mut self) -> Doc {
        self.last += 1;
        Doc::Leaf(self.last)
    }

    /// Returns a value with at most `depth` levels of arrays and objects.
    fn value(&mut self, depth: usize) -> Doc {
        match self.rng.below(if depth == 0 { 1 } else { 5 }) {
            0..2 => self.leaf(),
            2 => Doc::Array((0..self.rng.below(5)).map(|_| self.value(depth - 1)).collect()),
            3 => Doc::Array((0..self.rng.below(4)).map(|_| self.named(depth - 1)).collect()),
            _ => self.object(depth - 1),
        }
    }

    /// Returns an object, its members in any order.
    fn object(&mut self, depth: usize) -> Doc {
        let mut members = BTreeMap::new();
        for _ in 0..self.rng.below(6) {
            members.insert(self.key(), self.value(depth));
        }
        let mut members: Vec<_> = members.into_iter().collect();
        let shift = self.rng.below(members.len() + 1);
        members.rotate_left(shift);
        Doc::Object(members)
    }

    /// Returns an object with the key field `id`, by which the elements of an array are matched.
    fn named(&mut self, depth: usize) -> Doc {
        let Doc::Object(mut members) = self.object(depth) else { unreachable!() };
        members.push(("id".to_owned(), self.leaf()));
        Doc::Object(members)
    }

    /// Returns one of a few keys.
    fn key(&mut self) -> String {
        ["a", "b", "c", "d", "e", "long_key", "x-y"][self.rng.below(7)].to_owned()
    }

    /// Returns a document after up to three random edits.
    fn edited(&mut self, doc: &Doc) -> Doc {
        let mut edited = doc.clone();
        for _ in 0..1 + self.rng.below(3) {
            self.edit(&mut edited, 3);
        }
        edited
    }

    /// Adds a member with a unique key that starts with `key_prefix`, or an element with a unique `id`, to an object
    /// or to an array whose elements all have names.
    fn add(&mut self, doc: &mut Doc, key_prefix: &str) {
        let leaf = self.leaf();
        let key = format!("{key_prefix}{}", self.last);
        match doc {
            Doc::Object(members) => {
                let index = self.rng.below(members.len() + 1);
                match members.get_mut(index) {
                    Some((_, inner @ (Doc::Object(_) | Doc::Array(_)))) if self.rng.below(2) == 0 => {
                        self.add(inner, key_prefix);
                    }
                    _ => members.insert(index, (key, leaf)),
                }
            }
            Doc::Array(elements) if !elements.is_empty() && elements.iter().all(has_name) => {
                let index = self.rng.below(elements.len() + 1);
                elements.insert(index, self.named(1));
            }
            Doc::Array(_) | Doc::Leaf(_) => {}
        }
    }

    /// Makes one edit in a value, at most `depth` levels below it. Some edits change nothing.
    fn edit(&mut self, doc: &mut Doc, depth: usize) {
        let choice = self.rng.below(6);
        match doc {
            Doc::Leaf(_) => *doc = if choice == 0 { self.value(1) } else { self.leaf() },
            Doc::Array(elements) => {
                let index = self.rng.below(elements.len() + 1);
                let is_named = elements.first().is_some_and(|first| matches!(first, Doc::Object(_)));
                match choice {
                    0 if is_named => elements.insert(index, self.named(1)),
                    0 => elements.insert(index, self.value(1)),
                    1 if index < elements.len() => drop(elements.remove(index)),
                    // Only named elements are moved: to a merge, a moved unnamed element is a new element.
                    2 if index < elements.len() && elements.iter().all(has_name) => {
                        let element = elements.remove(index);
                        elements.insert(self.rng.below(elements.len() + 1), element);
                    }
                    _ if index < elements.len() && depth > 0 => self.edit(&mut elements[index], depth - 1),
                    _ => {}
                }
            }
            Doc::Object(members) => {
                let index = self.rng.below(members.len() + 1);
                match choice {
                    // The key field is not changed: to a merge, that would be another element.
                    _ if members.get(index).is_some_and(|(key, _)| key == "id") => {}
                    0 | 1 => {
                        let key = self.key();
                        if members.iter().all(|(other, _)| *other != key) {
                            members.insert(index, (key, self.value(1)));
                        }
                    }
                    2 if index < members.len() => drop(members.remove(index)),
                    _ if index < members.len() && depth > 0 => self.edit(&mut members[index].1, depth - 1),
                    _ => {}
                }
            }
        }
    }
}

/// Returns true if a value is an object with the key field `id`.
fn has_name(doc: &Doc) -> bool {
    matches!(doc, Doc::Object(members) if members.iter().any(|(key, _)| key == "id"))
}

/// Returns the path of each number in a document.
fn leaves(doc: &Doc) -> BTreeMap<usize, String> {
    fn add(doc: &Doc, path: &str, leaves: &mut BTreeMap<usize, String>) {
        match doc {
            Doc::Leaf(number) => drop(leaves.insert(*number, path.to_owned())),
            Doc::Array(elements) => elements.iter().for_each(|doc| add(doc, &format!("{path}[]"), leaves)),
            Doc::Object(members) => {
                members.iter().for_each(|(key, doc)| add(doc, &format!("{path}.{key}"), leaves));
            }
        }
    }
    let mut leaves = BTreeMap::new();
    add(doc, "", &mut leaves);
    leaves
}

/// Document format with its writer and reader.
struct Format {
    /// Path whose extension selects the format.
    path: &'static str,
    /// Writes a document.
    write: fn(&Doc) -> String,
    /// Reads a document; `None` if it is invalid.
    read: fn(&str) -> Option<Doc>,
}

/// Indentation for [`json`] that writes everything on one line.
const SINGLE_LINE: Option<usize> = None;

/// Formats: JSON on a single line, indented JSON, TOML and YAML.
const FORMATS: [Format; 4] = [
    Format { path: "a.json", write: |doc| json(doc, SINGLE_LINE), read: from_json },
    Format { path: "b.json", write: |doc| json(doc, Some(0)) + "\n", read: from_json },
    Format { path: "a.toml", write: toml, read: from_toml },
    Format { path: "a.yaml", write: yaml, read: from_yaml },
];

/// Writes JSON: on a single line if `indent` is `None`, or else with the closing bracket indented by `indent` spaces.
fn json(doc: &Doc, indent: Option<usize>) -> String {
    let inner = indent.map(|indent| indent + 2);
    let line =
        |indent: Option<usize>| indent.map_or(String::new(), |spaces| format!("\n{}", " ".repeat(spaces)));
    let join = |open: char, items: Vec<String>, close: char| {
        if items.is_empty() {
            return format!("{open}{close}");
        }
        format!("{open}{}{}{}{close}", line(inner), items.join(&format!(",{}", line(inner))), line(indent))
    };
    let colon = if indent.is_some() { ": " } else { ":" };
    match doc {
        Doc::Leaf(number) => number.to_string(),
        Doc::Array(elements) => join('[', elements.iter().map(|doc| json(doc, inner)).collect(), ']'),
        Doc::Object(members) => {
            let members = members.iter().map(|(key, doc)| format!("\"{key}\"{colon}{}", json(doc, inner)));
            join('{', members.collect(), '}')
        }
    }
}

/// Reads the output of [`json`]; `None` if it is invalid or has duplicate keys.
fn from_json(text: &str) -> Option<Doc> {
    fn doc(value: &serde_json::Value) -> Doc {
        match value {
            serde_json::Value::Array(elements) => Doc::Array(elements.iter().map(doc).collect()),
            serde_json::Value::Object(members) => {
                Doc::Object(members.iter().map(|(key, value)| (key.clone(), doc(value))).collect())
            }
            other => Doc::Leaf(usize::try_from(other.as_u64().unwrap()).unwrap()),
        }
    }
    let doc = doc(&serde_json::from_str(text).ok()?);
    // `serde_json` drops all but one of several members with the same key. Then the number of quotes differs.
    let quotes = |text: &str| text.matches('"').count();
    (quotes(text) == quotes(&json(&doc, None))).then_some(doc)
}

/// Writes TOML, with tables for objects and for arrays of objects where possible.
fn toml(doc: &Doc) -> String {
    fn inline(doc: &Doc) -> String {
        match doc {
            Doc::Leaf(number) => number.to_string(),
            Doc::Array(elements) => {
                format!("[{}]", elements.iter().map(inline).collect::<Vec<_>>().join(", "))
            }
            Doc::Object(members) => {
                let members = members.iter().map(|(key, doc)| format!("{key} = {}", inline(doc)));
                format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
            }
        }
    }
    fn is_tables(doc: &Doc) -> bool {
        let is_object = |doc: &Doc| matches!(doc, Doc::Object(_));
        matches!(doc, Doc::Array(elements) if !elements.is_empty() && elements.iter().all(is_object))
    }
    fn table(out: &mut String, path: &str, members: &[(String, Doc)]) {
        let is_value = |doc: &Doc| !matches!(doc, Doc::Object(_)) && !is_tables(doc);
        for (key, doc) in members.iter().filter(|(_, doc)| is_value(doc)) {
            writeln!(out, "{key} = {}", inline(doc)).unwrap();
        }
        for (key, doc) in members.iter().filter(|(_, doc)| !is_value(doc)) {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match doc {
                Doc::Object(members) => {
                    writeln!(out, "\n[{path}]").unwrap();
                    table(out, &path, members);
                }
                Doc::Array(elements) => {
                    for element in elements {
                        let Doc::Object(members) = element else { unreachable!() };
                        writeln!(out, "\n[[{path}]]").unwrap();
                        table(out, &path, members);
                    }
                }
                Doc::Leaf(_) => unreachable!(),
            }
        }
    }
    let Doc::Object(members) = doc else { unreachable!() };
    let mut out = String::new();
    table(&mut out, "", members);
    out
}

/// Reads the output of [`toml`]; `None` if it is invalid.
fn from_toml(text: &str) -> Option<Doc> {
    fn value(item: &toml_edit::Item) -> Doc {
        if let Some(table) = item.as_table_like() {
            Doc::Object(table.iter().map(|(key, item)| (key.to_owned(), value(item))).collect())
        } else if let Some(tables) = item.as_array_of_tables() {
            Doc::Array(tables.iter().map(|table| value(&toml_edit::Item::Table(table.clone()))).collect())
        } else if let Some(array) = item.as_array() {
            Doc::Array(array.iter().map(|element| value(&toml_edit::Item::Value(element.clone()))).collect())
        } else {
            Doc::Leaf(usize::try_from(item.as_integer().unwrap()).unwrap())
        }
    }
    Some(value(text.parse::<toml_edit::DocumentMut>().ok()?.as_item()))
}

/// Writes YAML in block style.
fn yaml(doc: &Doc) -> String {
    fn block(out: &mut String, doc: &Doc, indent: usize) {
        let space = " ".repeat(indent);
        match doc {
            Doc::Array(elements) if !elements.is_empty() => {
                for element in elements {
                    child(out, &format!("{space}-"), element, indent);
                }
            }
            Doc::Object(members) if !members.is_empty() => {
                for (key, doc) in members {
                    child(out, &format!("{space}{key}:"), doc, indent);
                }
            }
            Doc::Leaf(number) => writeln!(out, "{space}{number}").unwrap(),
            Doc::Array(_) => writeln!(out, "{space}[]").unwrap(),
            Doc::Object(_) => writeln!(out, "{space}{{}}").unwrap(),
        }
    }
    fn child(out: &mut String, before: &str, doc: &Doc, indent: usize) {
        let mut inner = String::new();
        block(&mut inner, doc, indent + 2);
        let is_inline = before.ends_with('-')
            || match doc {
                Doc::Leaf(_) => true,
                Doc::Array(elements) => elements.is_empty(),
                Doc::Object(members) => members.is_empty(),
            };
        match is_inline {
            true => write!(out, "{before} {}", inner.trim_start()).unwrap(),
            false => write!(out, "{before}\n{inner}").unwrap(),
        }
    }
    let mut out = String::new();
    block(&mut out, doc, 0);
    out
}

/// Reads the output of [`yaml`], also with parts in flow style; `None` if it is invalid or has duplicate keys.
fn from_yaml(text: &str) -> Option<Doc> {
    use saphyr_parser::{Event, Parser};
    fn value<'a>(event: &Event<'a>, events: &mut impl Iterator<Item = Event<'a>>) -> Option<Doc> {
        Some(match event {
            Event::SequenceStart(..) => {
                let mut elements = Vec::new();
                while let Some(event) = events.next().filter(|event| *event != Event::SequenceEnd) {
                    elements.push(value(&event, events)?);
                }
                Doc::Array(elements)
            }
            Event::MappingStart(..) => {
                let mut members: Vec<(String, Doc)> = Vec::new();
                while let Some(Event::Scalar(key, ..)) = events.next() {
                    let event = events.next()?;
                    if members.iter().any(|(other, _)| *other == key) {
                        return None;
                    }
                    members.push((key.into_owned(), value(&event, events)?));
                }
                Doc::Object(members)
            }
            Event::Scalar(text, ..) => Doc::Leaf(text.parse().ok()?),
            _ => return None,
        })
    }
    let events: Result<Vec<_>, _> = Parser::new_from_str(text).collect();
    // The first two events are the starts of the stream and of the document.
    let mut events = events.ok()?.into_iter().map(|(event, _)| event).skip(2);
    let first = events.next()?;
    value(&first, &mut events)
}

/// Three versions of a document.
struct Case {
    base: Doc,
    ours: Doc,
    theirs: Doc,
}

/// Returns a random case.
fn case(seed: u64) -> Case {
    let mut generator = Generator { rng: Rng(seed), last: 1000 };
    let base = generator.object(3);
    let (ours, theirs) = (generator.edited(&base), generator.edited(&base));
    Case { base, ours, theirs }
}

/// Formats a case and a merged text for debugging.
fn describe(format: &Format, case: &Case, result: &str) -> String {
    let [base, ours, theirs] = [&case.base, &case.ours, &case.theirs].map(format.write);
    format!("{}\n--- base\n{base}\n--- ours\n{ours}\n--- theirs\n{theirs}\n--- result\n{result}", format.path)
}

/// Returns the numbers that a clean merge has to contain: those that both sides have, and those that a side added.
fn expected(case: &Case) -> BTreeSet<usize> {
    let [base, ours, theirs] = [&case.base, &case.ours, &case.theirs].map(leaves);
    let of_sides = ours.keys().chain(theirs.keys());
    let is_in_result =
        |leaf: &usize| !base.contains_key(leaf) || ours.contains_key(leaf) && theirs.contains_key(leaf);
    of_sides.copied().filter(is_in_result).collect()
}

/// Returns the numbers of a document in text order.
fn in_order(doc: &Doc) -> Vec<usize> {
    match doc {
        Doc::Leaf(number) => vec![*number],
        Doc::Array(elements) => elements.iter().flat_map(in_order).collect(),
        Doc::Object(members) => members.iter().flat_map(|(_, doc)| in_order(doc)).collect(),
    }
}

/// Returns the numbers that a clean merge may contain in addition to the expected ones. They are in elements of an
/// array without key fields that one side removed and the other side moved. As with lines, a moved element counts as
/// removed and added, so it is in the result.
fn moved(case: &Case) -> BTreeSet<usize> {
    let [base, ours, theirs] = [&case.base, &case.ours, &case.theirs].map(in_order);
    let position = |order: &[usize], leaf| order.iter().position(|other| *other == leaf);
    let is_moved = |side: &[usize], leaf: usize| {
        // The order of this number relative to another one changed.
        base.iter().any(|other| {
            let positions = (
                position(&base, leaf),
                position(&base, *other),
                position(side, leaf),
                position(side, *other),
            );
            matches!(positions, (Some(old), Some(other_old), Some(new), Some(other_new))
                if (old < other_old) != (new < other_new))
        })
    };
    let moved_and_removed = |side: &[usize], other: &[usize]| {
        let only = side.iter().filter(|leaf| !other.contains(leaf)).copied();
        only.filter(|leaf| is_moved(side, *leaf)).collect::<Vec<_>>()
    };
    moved_and_removed(&ours, &theirs).into_iter().chain(moved_and_removed(&theirs, &ours)).collect()
}

/// Merges a case in one format, and checks the result. Returns true if there is no conflict.
fn check(format: &Format, case: &Case) -> bool {
    let [base, ours, theirs] = [&case.base, &case.ours, &case.theirs].map(format.write);
    let merge = |ours: &str, theirs: &str| merged(format.path, Some(&base), ours, theirs);
    let result = merge(&ours, &theirs);
    let text = String::from_utf8(result.merged.content).unwrap();
    assert_eq!(
        result.conflict.is_none(),
        merge(&theirs, &ours).conflict.is_none(),
        "{}",
        describe(format, case, &text)
    );
    let details = || format!("{:?}\n{}", result.conflict, describe(format, case, &text));
    if let Some(conflict) = &result.conflict {
        assert_eq!(conflict.strategy, &format.path[2..], "{}", details());
        assert_eq!(text, ours, "{}", details());
        return false;
    }
    let found = leaves(&(format.read)(&text).unwrap());
    let (in_result, expected, moved) =
        (found.keys().copied().collect::<BTreeSet<_>>(), expected(case), moved(case));
    assert!(in_result.is_superset(&expected), "{}", details());
    assert!(in_result.difference(&expected).all(|leaf| moved.contains(leaf)), "{}", details());
    let (in_ours, in_theirs) = (leaves(&case.ours), leaves(&case.theirs));
    for (leaf, path) in &found {
        let has_path = |leaves: &BTreeMap<usize, String>| leaves.get(leaf) == Some(path);
        assert!(has_path(&in_ours) || has_path(&in_theirs), "{leaf} at {path}: {}", details());
    }
    true
}

/// Returns a text with its conflicts, which are shown with markers, resolved in favour of one side: 0 for ours and 1
/// for theirs.
fn resolve_markers(shown: &str, side: usize) -> String {
    // Side whose lines of a conflict follow; `None` outside conflicts.
    let mut current = None;
    let mut resolved = String::new();
    for line in shown.split_inclusive('\n') {
        match line.get(..7) {
            Some("<<<<<<<") => current = Some(0),
            Some("=======") => current = Some(1),
            Some(">>>>>>>") => current = None,
            _ if current.is_none_or(|current| current == side) => resolved.push_str(line),
            _ => {}
        }
    }
    resolved
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn clean_merges_are_complete_and_symmetric(seed in any::<u64>()) {
        let case = case(seed);
        let verdicts: Vec<bool> = FORMATS.iter().map(|format| check(format, &case)).collect();
        // If JSON on a single line merges without a conflict, so do all other formats. In these, a merge of lines may
        // merge even more.
        prop_assert!(!verdicts[0] || verdicts.iter().all(|verdict| *verdict), "{verdicts:?}");
    }

    #[test]
    fn unchanged_side_never_conflicts(seed in any::<u64>()) {
        let Case { base, ours, .. } = case(seed);
        for format in &FORMATS {
            // One side has another text with the same value, so that the strategy runs.
            let (text, changed) = ((format.write)(&base), (format.write)(&ours));
            let rewritten = format!("{text}\n");
            for (ours_text, theirs_text) in [(&rewritten, &changed), (&changed, &rewritten)] {
                let result = merged(format.path, Some(&text), ours_text, theirs_text);
                prop_assert_eq!(result.conflict, None, "{}", format.path);
                let result = String::from_utf8(result.merged.content).unwrap();
                let read = leaves(&(format.read)(&result).unwrap());
                prop_assert_eq!(&read, &leaves(&ours), "{}: {}", format.path, result);
            }
            let result = merged(format.path, Some(&text), &changed, &format!("{changed}\n"));
            prop_assert_eq!(result.conflict, None, "{}", format.path);
            prop_assert_eq!(leaves(&(format.read)(std::str::from_utf8(&result.merged.content).unwrap()).unwrap()), leaves(&ours));
        }
    }

    #[test]
    fn additions_do_not_depend_on_merge_order(seed in any::<u64>()) {
        let mut generator = Generator { rng: Rng(seed), last: 1000 };
        let base = generator.object(3);
        // Each side has a prefix for the keys that it adds.
        let sides = ["p", "m", "x"].map(|key_prefix| {
            let mut side = base.clone();
            for _ in 0..1 + generator.rng.below(3) {
                generator.add(&mut side, key_prefix);
            }
            side
        });
        for format in &FORMATS {
            let (base, sides) = ((format.write)(&base), sides.each_ref().map(format.write));
            let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
            let results = orders.map(|order| {
                order.iter().try_fold(base.clone(), |head, index| {
                    let merge = merged(format.path, Some(&base), &head, &sides[*index]);
                    merge.conflict.is_none().then(|| String::from_utf8(merge.merged.content).unwrap())
                })
            });
            for result in &results {
                prop_assert_eq!(result, &results[0], "{}: {} {:#?}", format.path, base, sides);
            }
        }
    }

    #[test]
    fn resolved_conflicts_keep_additions_of_the_winner(seed in any::<u64>()) {
        let case = case(seed);
        let base = leaves(&case.base);
        for format in &FORMATS {
            let [base_text, ours, theirs] = [&case.base, &case.ours, &case.theirs].map(format.write);
            for (on_conflict, doc) in [(OnConflict::Ours, &case.ours), (OnConflict::Theirs, &case.theirs)] {
                let settings = FileSettings { on_conflict, ..FileSettings::default() };
                let result = merged_by(&settings, format.path, Some(&base_text), &ours, &theirs);
                let text = String::from_utf8(result.merged.content).unwrap();
                let found = leaves(&(format.read)(&text).unwrap());
                let added = leaves(doc).into_keys().filter(|leaf| !base.contains_key(leaf));
                for leaf in added {
                    prop_assert!(found.contains_key(&leaf), "{leaf} {on_conflict:?}: {}", describe(format, &case, &text));
                }
            }
        }
    }

    #[test]
    fn conflict_sides_equal_the_resolutions(seed in any::<u64>()) {
        let case = case(seed);
        for format in &FORMATS {
            let [base, ours, theirs] = [&case.base, &case.ours, &case.theirs].map(format.write);
            let versions = Versions { base: Some(base.as_bytes()), ours: ours.as_bytes(), theirs: theirs.as_bytes() };
            let (strategies, settings) = (Strategies::default(), FileSettings::default());
            let sides = conflict_sides(&strategies, &settings, &Input::new(format.path, versions)).unwrap();
            if merged(format.path, Some(&base), &ours, &theirs).conflict.is_none() {
                continue;
            }
            let sides = sides.expect("all versions can be parsed");
            let text = TextMerge::between(&sides[0], &sides[1], DiffLimits::default()).unwrap();
            let (shown, conflicts) = text.render(Style::Merge, &ConflictMarkers::default());
            prop_assert!(conflicts > 0, "{}", describe(format, &case, ""));
            let shown = String::from_utf8(shown).unwrap();
            for (side, on_conflict) in [OnConflict::Ours, OnConflict::Theirs].into_iter().enumerate() {
                let settings = FileSettings { on_conflict, ..FileSettings::default() };
                let resolved = merged_by(&settings, format.path, Some(&base), &ours, &theirs).merged.content;
                let resolved_text = resolve_markers(&shown, side);
                let resolved = String::from_utf8(resolved).unwrap();
                prop_assert_eq!(resolved_text.trim_end(), resolved.trim_end());
                prop_assert!((format.read)(&resolved_text).is_some(), "{}", describe(format, &case, &shown));
            }
        }
    }

    #[test]
    fn clean_merges_keep_new_comments(seed in any::<u64>()) {
        let case = case(seed);
        // JSON on a single line has no comments.
        for (format, comment_prefix) in FORMATS.iter().zip(["", "//", "#", "#"]).skip(1) {
            let mut rng = Rng(seed);
            let [base, ours, theirs] = [&case.base, &case.ours, &case.theirs].map(format.write);
            // Adds random comments to the lines of a text.
            let mut with_comments = |text: &str, author: &str| -> String {
                let comment = |(number, line): (usize, &str)| match rng.below(4) {
                    0 => format!("{line} {comment_prefix} {author} {number}\n"),
                    1 => format!("{comment_prefix} {author} above {number}\n{line}\n"),
                    _ => format!("{line}\n"),
                };
                text.lines().enumerate().map(comment).collect()
            };
            let (ours, theirs) = (with_comments(&ours, "ours"), with_comments(&theirs, "theirs"));
            let result = merged(format.path, Some(&base), &ours, &theirs);
            if result.conflict.is_some() {
                continue;
            }
            let text = String::from_utf8(result.merged.content).unwrap();
            for line in ours.lines().chain(theirs.lines()) {
                let comment = line.find(comment_prefix).map_or("", |offset| &line[offset..]);
                prop_assert!(text.contains(comment), "{comment}:\n{base}\n---\n{ours}\n---\n{theirs}\n---\n{text}");
            }
        }
    }

    #[test]
    fn documents_that_a_line_merge_merges_without_loss_are_merged(seed in any::<u64>()) {
        let case = case(seed);
        // TOML is left out: a value may become a table at another position of the text, which a merge of lines does not
        // notice.
        for format in FORMATS.iter().skip(1).filter(|format| format.path != "a.toml") {
            let [base, ours, theirs] = [&case.base, &case.ours, &case.theirs].map(format.write);
            let lines = merged("a.txt", Some(&base), &ours, &theirs);
            let text = String::from_utf8(lines.merged.content).unwrap();
            let Some(read) = (format.read)(&text).filter(|_| lines.conflict.is_none()) else { continue };
            if leaves(&read).keys().copied().collect::<BTreeSet<_>>() == expected(&case) {
                let conflict = merged(format.path, Some(&base), &ours, &theirs).conflict;
                // An exception is a member that one side removed, and that the other side moved and changed. A merge of
                // lines takes both for equal removals of lines, but the merge by value rightly finds a conflict.
                let is_moved = |location: &ConflictLocation| matches!(location, ConflictLocation::Value(value) if value.ours.is_none() != value.theirs.is_none());
                let locations = conflict.iter().flat_map(|conflict| &conflict.locations);
                let is_merged = conflict.is_none() || locations.clone().count() > 0 && locations.clone().all(is_moved);
                prop_assert!(is_merged, "{conflict:?}\n{}", describe(format, &case, &text));
            }
        }
    }
}

#[test]
fn removed_and_moved_elements_stay_at_their_new_position() {
    // A seed for which one side removes an element that the other side moves.
    let case = case(14_104_746_334_643_547_379);
    assert!(!moved(&case).is_empty());
    assert!(FORMATS.iter().any(|format| check(format, &case)));
}
