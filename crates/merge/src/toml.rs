//! TOML format for merging by value.
//!
//! `toml_edit` parses documents and writes tables, which may be scattered over the text. Arrays and inline
//! tables have the same structure as arrays and objects in JSON and are written by [`Layout`].

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bumpalo::Bump;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Key, Table, Value as TomlValue};

use crate::file::Side;
use crate::layout::{Layout, Syntax};
use crate::structured::Format;
use crate::value::merge::{Documents, MergedValue, Part};
use crate::value::{Document, MAX_DEPTH, SyntaxNode, Value};

/// TOML format.
pub(crate) struct Toml;

impl Format for Toml {
    const NAME: &'static str = "toml";

    fn parse<'a>(text: &'a str, arena: &'a Bump) -> Option<Document<'a>> {
        parse(text, arena)
    }

    fn write(documents: Documents<'_>, merged: &MergedValue<'_>) -> Option<String> {
        let MergedValue::Parts(side, node, parts) = merged else {
            return Some(documents.of(merged.side()).text.to_owned());
        };
        let [ours, theirs] = [documents.ours, documents.theirs].map(|document| document.text.parse().ok());
        let (ours, theirs): (DocumentMut, DocumentMut) = (ours?, theirs?);
        let mut parts_by_node = HashMap::new();
        index_table(&mut parts_by_node, &documents.ours.root, ours.as_table());
        index_table(&mut parts_by_node, &documents.theirs.root, theirs.as_table());
        let writer = Writer { parts_by_node, layout: Layout::new(documents, Syntax::Toml) };
        let mut written = match side {
            Side::Ours => ours.clone(),
            Side::Theirs => theirs.clone(),
        };
        writer.change_table(written.as_table_mut(), *side, node, parts)?;
        Some(restore_line_endings(documents.of(*side).text, &written.to_string()))
    }
}

/// Parses TOML; `None` if it is invalid, or has dotted keys in inline tables.
pub(crate) fn parse<'a>(text: &'a str, arena: &'a Bump) -> Option<Document<'a>> {
    let document = toml_edit::Document::parse(text).ok()?;
    let reader = Reader { text, arena };
    let nodes = reader.members(document.as_table(), 0)?;
    let start = text.len() - text.trim_start_matches('\u{feff}').len();
    let root = node("", start, start..text.len(), Value::Object(nodes));
    Some(Document { text, root, comments: comments(text) })
}

/// Creates a syntax node. `start` is the offset of its key, or of the value itself if it has no key.
fn node<'a>(key: &'a str, start: usize, span: Range<usize>, value: Value<'a>) -> SyntaxNode<'a> {
    SyntaxNode { key, item_start: start, span, value }
}

/// Converter of a parsed `toml_edit` document to syntax nodes. Its methods return `None` if the document is not
/// supported.
struct Reader<'a> {
    text: &'a str,
    arena: &'a Bump,
}

impl<'a> Reader<'a> {
    /// Moves nodes to the arena; `None` if one of them is `None`.
    fn allocate(&self, nodes: impl Iterator<Item = Option<SyntaxNode<'a>>>) -> Option<&'a [SyntaxNode<'a>]> {
        Some(self.arena.alloc_slice_fill_iter(nodes.collect::<Option<Vec<_>>>()?))
    }

    /// Converts the members of a table. `depth` is the number of enclosing tables and arrays.
    fn members(&self, table: &Table, depth: usize) -> Option<&'a [SyntaxNode<'a>]> {
        self.allocate(table.iter().map(|(key, item)| self.item(key, table.key(key)?, item, depth)))
    }

    /// Converts a member of a table.
    fn item(&self, name: &str, key: &Key, item: &Item, depth: usize) -> Option<SyntaxNode<'a>> {
        let name = self.arena.alloc_str(name);
        let start = key.span().map_or(0, |span| span.start);
        match item {
            _ if depth > MAX_DEPTH => None,
            Item::None => None,
            Item::Value(value) => self.value(name, start, value, depth),
            Item::Table(table) => Some(self.table(name, start, table, depth)?),
            Item::ArrayOfTables(tables) => {
                let tables = tables.iter().map(|table| self.table("", start, table, depth + 1));
                let elements = self.allocate(tables)?;
                let span = enclosing_range(elements).unwrap_or(start..start);
                Some(node(name, span.start, span, Value::Array(elements)))
            }
        }
    }

    /// Converts a table. Its span encloses its header and all its members.
    fn table(&self, name: &'a str, start: usize, table: &Table, depth: usize) -> Option<SyntaxNode<'a>> {
        let members = self.members(table, depth + 1)?;
        let span = table.span().into_iter().chain(enclosing_range(members));
        let span = span.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end));
        let span = span.unwrap_or(start..start);
        Some(node(name, span.start, span, Value::Object(members)))
    }

    /// Converts a value that is not a table with a header. `start` is as for [`node`].
    fn value(&self, name: &'a str, start: usize, value: &TomlValue, depth: usize) -> Option<SyntaxNode<'a>> {
        if depth > MAX_DEPTH {
            return None;
        }
        let parsed = match value {
            TomlValue::String(text) => Value::String(self.arena.alloc_str(text.value())),
            TomlValue::Integer(_) | TomlValue::Float(_) | TomlValue::Boolean(_) | TomlValue::Datetime(_) => {
                Value::Literal(self.text.get(value.span()?)?)
            }
            TomlValue::Array(array) => {
                let elements =
                    array.iter().map(|value| self.value("", value.span()?.start, value, depth + 1));
                Value::Array(self.allocate(elements)?)
            }
            TomlValue::InlineTable(table) if table.is_dotted() => return None,
            TomlValue::InlineTable(table) => {
                let members = table.iter().map(|(key, value)| {
                    let start = table.key(key)?.span()?.start;
                    self.value(self.arena.alloc_str(key), start, value, depth + 1)
                });
                Value::Object(self.allocate(members)?)
            }
        };
        Some(node(name, start, value.span()?, parsed))
    }
}

/// Returns the range that encloses all nodes; `None` if there are none.
fn enclosing_range(nodes: &[SyntaxNode<'_>]) -> Option<Range<usize>> {
    Some(nodes.iter().map(|node| node.item_start).min()?..nodes.iter().map(|node| node.span.end).max()?)
}

/// Returns all comments of a text that is valid TOML.
fn comments(text: &str) -> Vec<&str> {
    let (mut comments, mut offset) = (Vec::new(), 0);
    while let Some(next) = text[offset..].find(['#', '"', '\'']) {
        let rest = &text[offset + next..];
        let length = if rest.starts_with('#') {
            let comment = rest.lines().next().unwrap_or_default();
            comments.push(comment);
            comment.len()
        } else {
            string_length(rest)
        };
        offset += next + length;
    }
    comments
}

/// Returns the length of the quoted string at the start of a text, with its quotes.
fn string_length(text: &str) -> usize {
    let quote = &text[..1];
    let triple_quote = quote.repeat(3);
    let delimiter = if text.starts_with(&triple_quote) { triple_quote.as_str() } else { quote };
    let mut offset = delimiter.len();
    while offset < text.len() && !text[offset..].starts_with(delimiter) {
        let is_escape = quote == "\"" && text[offset..].starts_with('\\');
        offset += if is_escape { 1 } else { 0 };
        offset += text[offset..].chars().next().map_or(0, char::len_utf8);
    }
    offset = (offset + delimiter.len()).min(text.len());
    // The content of a multi-line string may end in up to two quotes, directly before the closing delimiter.
    let more_quotes = text[offset..]
        .bytes()
        .take(2)
        .take_while(|byte| delimiter.len() == 3 && [*byte] == *quote.as_bytes());
    offset + more_quotes.count()
}

/// Part of a `toml_edit` document: the counterpart of a syntax node.
#[derive(Clone, Copy)]
enum TomlPart<'t> {
    Value(&'t TomlValue),
    Table(&'t Table),
    Tables(&'t ArrayOfTables),
}

/// Parts of `toml_edit` documents with their keys, by the address of the [`SyntaxNode`] created from them.
type PartIndex<'t> = HashMap<*const (), (Option<&'t Key>, TomlPart<'t>)>;

/// Returns the address of a node, which identifies it.
fn address(node: &SyntaxNode<'_>) -> *const () {
    std::ptr::from_ref(node).cast()
}

/// Adds all parts of a table to the index. `node` is the syntax node created from the table.
fn index_table<'t>(parts_by_node: &mut PartIndex<'t>, node: &SyntaxNode<'_>, table: &'t Table) {
    for (child, (name, item)) in node.children().iter().zip(table.iter()) {
        let part = match item {
            Item::Value(value) => TomlPart::Value(value),
            Item::Table(table) => {
                index_table(parts_by_node, child, table);
                TomlPart::Table(table)
            }
            Item::ArrayOfTables(tables) => {
                for (element, table) in child.children().iter().zip(tables.iter()) {
                    index_table(parts_by_node, element, table);
                    parts_by_node.insert(address(element), (None, TomlPart::Table(table)));
                }
                TomlPart::Tables(tables)
            }
            Item::None => continue,
        };
        parts_by_node.insert(address(child), (table.key(name), part));
    }
}

/// Writer of merged values into the `toml_edit` document of the template: the side whose text and order are kept. Its
/// methods return `None` if the value cannot be written.
struct Writer<'d, 't> {
    /// Part of a `toml_edit` document, for each node.
    parts_by_node: PartIndex<'t>,
    /// Writer of arrays and inline tables.
    layout: Layout<'d>,
}

impl<'d> Writer<'d, '_> {
    /// Returns a merged value as a new item, whose tables still have their positions in their own document.
    fn item(&self, merged: &MergedValue<'d>) -> Option<Item> {
        let (_, part) = self.parts_by_node.get(&address(merged.node()))?;
        let mut item = match part {
            TomlPart::Value(value) => Item::Value((*value).clone()),
            TomlPart::Table(table) => Item::Table((*table).clone()),
            TomlPart::Tables(tables) => Item::ArrayOfTables((*tables).clone()),
        };
        self.change(&mut item, merged)?;
        Some(item)
    }

    /// Changes an item of the template to the merged value.
    fn change(&self, item: &mut Item, merged: &MergedValue<'d>) -> Option<()> {
        let MergedValue::Parts(side, node, parts) = merged else { return Some(()) };
        match item {
            Item::None => None,
            Item::Table(table) => self.change_table(table, *side, node, parts),
            Item::ArrayOfTables(tables) => self.change_tables(tables, *side, parts),
            Item::Value(value) => {
                replace(value, self.layout.value(merged).parse().ok()?);
                Some(())
            }
        }
    }

    /// Changes a table of the template, with the members `parts` of the merged table. `side` and `node` are the
    /// template.
    fn change_table(
        &self,
        table: &mut Table,
        side: Side,
        node: &SyntaxNode<'d>,
        parts: &[Part<'d>],
    ) -> Option<()> {
        let retained = parts.iter().filter(|part| self.keeps_position(side, node, part));
        let retained: HashSet<&str> = retained.map(|part| part.value.node().key).collect();
        table.retain(|key, _| retained.contains(key));
        for part in parts {
            let (merged, key) = (&part.value, part.value.node().key);
            if !retained.contains(key) {
                let (key, _) = self.parts_by_node.get(&address(merged.node()))?;
                table.insert_formatted((*key)?, without_position(self.item(merged)?));
            } else if merged.side() == side {
                self.change(table.get_mut(key)?, merged)?;
                write_empty(table, key);
            } else if let (Item::Value(old), Item::Value(new)) = (table.get_mut(key)?, self.item(merged)?) {
                replace(old, new);
            }
        }
        if retained.len() < parts.len() {
            sort_members(table, parts);
        }
        if parts.is_empty() {
            // An empty table needs its header: no other line defines the table.
            table.set_implicit(false);
        }
        Some(())
    }

    /// Returns true if a member keeps its position in the template: its merged value is from the template side, or
    /// neither its old nor its new value is a table. Other members are removed and inserted again.
    fn keeps_position(&self, side: Side, node: &SyntaxNode<'d>, part: &Part<'d>) -> bool {
        let is_value = |node: &SyntaxNode<'_>| {
            matches!(self.parts_by_node.get(&address(node)), Some((_, TomlPart::Value(_))))
        };
        let old = part.template_index.and_then(|index| node.children().get(index));
        old.is_some_and(|old| part.value.side() == side || is_value(old) && is_value(part.value.node()))
    }

    /// Changes an array of tables of the template to the elements `parts`.
    fn change_tables(&self, tables: &mut ArrayOfTables, side: Side, parts: &[Part<'d>]) -> Option<()> {
        let old = std::mem::replace(tables, ArrayOfTables::new());
        let mut old: Vec<Option<Table>> = old.into_iter().map(Some).collect();
        for part in parts {
            let template_index = part.template_index.filter(|_| part.value.side() == side);
            let item = match template_index {
                Some(index) => {
                    let mut item = Item::Table(old.get_mut(index)?.take()?);
                    self.change(&mut item, &part.value)?;
                    item
                }
                None => without_position(self.item(&part.value)?),
            };
            tables.push(item.into_table().ok()?);
        }
        Some(())
    }
}

/// Sorts the members of a table in the order of the merged parts. Until then, new members are at the end.
fn sort_members(table: &mut Table, parts: &[Part<'_>]) {
    let keys: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
    // Removing from the end does not shift other entries.
    let taken = keys.iter().rev().filter_map(|key| table.remove_entry(key));
    let mut taken: HashMap<String, (Key, Item)> =
        taken.map(|(key, item)| (key.get().to_owned(), (key, item))).collect();
    for part in parts {
        if let Some((key, item)) = taken.remove(part.value.node().key) {
            table.insert_formatted(&key, item);
        }
    }
}

/// Replaces a member that is an array of tables without elements by `[]`: no header defines such an array.
fn write_empty(table: &mut Table, key: &str) {
    let Some((mut key, item)) = table.get_key_value_mut(key) else { return };
    if matches!(item, Item::ArrayOfTables(tables) if tables.is_empty()) {
        key.leaf_decor_mut().clear();
        *item = toml_edit::value(toml_edit::Array::new());
    }
}

/// Replaces a value, but keeps the whitespace and comments around it (`decor` in `toml_edit`).
fn replace(old: &mut TomlValue, mut new: TomlValue) {
    *new.decor_mut() = old.decor().clone();
    *old = new;
}

/// Removes the positions that the tables of an item had in their own document, so that they are written after their
/// predecessors.
fn without_position(mut item: Item) -> Item {
    match &mut item {
        Item::Table(table) => clear_position(table),
        Item::ArrayOfTables(tables) => tables.iter_mut().for_each(clear_position),
        Item::None | Item::Value(_) => {}
    }
    item
}

fn clear_position(table: &mut Table) {
    table.set_position(None);
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(table) => clear_position(table),
            Item::ArrayOfTables(tables) => tables.iter_mut().for_each(clear_position),
            Item::None | Item::Value(_) => {}
        }
    }
}

/// Returns `written` with the byte order mark, the line endings and the missing last line ending of `text`, which
/// `toml_edit` does not keep.
fn restore_line_endings(text: &str, written: &str) -> String {
    let is_crlf = text.contains('\n') && text.matches('\n').count() == text.matches("\r\n").count();
    let mut written = written.to_owned();
    if is_crlf {
        written = written.replace("\r\n", "\n").replace('\n', "\r\n");
    }
    if !text.ends_with('\n') {
        written.truncate(written.trim_end_matches(['\r', '\n']).len());
    }
    if text.starts_with('\u{feff}') && !written.starts_with('\u{feff}') {
        written.insert(0, '\u{feff}');
    }
    written
}
