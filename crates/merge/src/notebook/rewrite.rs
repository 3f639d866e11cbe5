//! Merge of the cells of a Jupyter notebook that both sides changed. The merged cells are written into the texts of
//! both sides, so that the JSON merge that follows finds no difference in them.

use std::collections::HashMap;
use std::ops::Range;

use super::cells::{Cell, ENVIRONMENT, Notebook, RESULTS, member};
use super::matching::match_cells;
use super::names::{self, Names, merge_order};
use crate::conflict::ValueConflict;
use crate::file::Side;
use crate::layout::push_indented;
use crate::quote::{Escaping, push_quoted};
use crate::text::{DiffLimits, Favor, TextMerge};
use crate::value::{Document, SyntaxNode, Value};

/// Maximum number of bytes before a value that are searched for the start of its line, to detect the indentation.
const INDENT_SEARCH_LEN: usize = 400;

/// Maximum length in bytes of a separator between the lines of a source. The separator is repeated for each line, so a
/// long one would make the result much larger than the input.
const SEPARATOR_MAX: usize = 400;

/// Rewritten texts of both sides.
pub(super) struct RewriteResult {
    pub(super) ours: String,
    pub(super) theirs: String,
    /// Generated names that pair the cells of the three versions.
    pub(super) names: Names,
    /// Conflicts within cell sources. In these, both texts have the lines of the favored side.
    pub(super) conflicts: Vec<ValueConflict>,
}

/// Merges cell sources, selects outputs and other results of runs, and merges the order of cells. Resolves conflicts in
/// favour of `favored`.
pub(super) fn rewrite(
    base: Option<&Notebook<'_>>,
    ours: &Notebook<'_>,
    theirs: &Notebook<'_>,
    favored: Side,
) -> RewriteResult {
    let base_cells = base.map_or(&[][..], |base| &base.cells);
    let [our_matches, their_matches] = [ours, theirs].map(|side| match_cells(base_cells, &side.cells));
    let mut names = Names::new(
        base_cells,
        names::SideCells { cells: &ours.cells, matched: &our_matches },
        names::SideCells { cells: &theirs.cells, matched: &their_matches },
    );
    let mut rewrite = Rewrite {
        base,
        ours: TextEditor::new(ours),
        theirs: TextEditor::new(theirs),
        favored,
        default_side: if ours.document.text >= theirs.document.text { Side::Ours } else { Side::Theirs },
        conflicts: Vec::new(),
    };
    rewrite.merge_environment();
    rewrite.merge_cells(&names);
    let conflicts = rewrite.conflicts;
    let (mut our_editor, mut their_editor) = (rewrite.ours, rewrite.theirs);
    let (our_common, their_common) =
        (common_cells(&our_matches, &their_matches), common_cells(&their_matches, &our_matches));
    // Without a merged order, the JSON merge takes the order of the side that moved cells, or reports a conflict.
    if let Some(order) = merge_order(&base_indexes(&our_common), &base_indexes(&their_common)) {
        our_editor.reorder(&sort_cells(&order, &our_common), &mut names.ours);
        their_editor.reorder(&sort_cells(&order, &their_common), &mut names.theirs);
    }
    let (ours, theirs) = (our_editor.into_text(), their_editor.into_text());
    RewriteResult { ours, theirs, names, conflicts }
}

/// Returns the index of the matching base cell for each cell of a side; `None` if the base or the other side does not
/// have the cell. `side` and `other` are the indexes of matching base cells for all cells of the two sides.
fn common_cells(side: &[Option<usize>], other: &[Option<usize>]) -> Vec<Option<usize>> {
    let in_other: std::collections::HashSet<usize> = other.iter().flatten().copied().collect();
    side.iter().map(|base_index| base_index.filter(|base_index| in_other.contains(base_index))).collect()
}

/// Returns the base indexes of the cells that both sides have, in the order of the side.
fn base_indexes(common: &[Option<usize>]) -> Vec<usize> {
    common.iter().flatten().copied().collect()
}

/// Returns the indexes of the cells of a side in a new order. `order` is the order of the cells that all versions
/// have, by base index. Other cells stay behind their predecessor.
fn sort_cells(order: &[usize], common: &[Option<usize>]) -> Vec<usize> {
    let mut groups: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    let mut group = None;
    for (index, base_index) in common.iter().enumerate() {
        group = base_index.or(group);
        groups.entry(group).or_default().push(index);
    }
    let all_groups = std::iter::once(None).chain(order.iter().copied().map(Some));
    all_groups.flat_map(|group| groups.remove(&group).unwrap_or_default()).collect()
}

/// Side from which a member of a merged notebook is taken, such as the outputs of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueSource {
    From(Side),
    /// The results of a cell are cleared, since neither side ran the merged source.
    Cleared,
}

/// State of merging cells and writing them into the texts of both sides.
struct Rewrite<'n, 'a> {
    base: Option<&'n Notebook<'a>>,
    ours: TextEditor<'n, 'a>,
    theirs: TextEditor<'n, 'a>,
    /// Side that wins conflicts in cell sources.
    favored: Side,
    /// Side whose results and environment are taken by default. It depends only on the contents of the sides, not on
    /// which side is ours.
    default_side: Side,
    conflicts: Vec<ValueConflict>,
}

/// Value that may be absent in a version.
type OptionalNode<'a> = Option<&'a SyntaxNode<'a>>;

impl<'n, 'a> Rewrite<'n, 'a> {
    /// Selects one side for each member of the metadata that is written when a notebook runs, and the newer minor
    /// version of the format, where both sides changed the value.
    fn merge_environment(&mut self) {
        let base = self.base.map(|base| &base.document.root);
        let (ours, theirs) = (&self.ours.notebook.document.root, &self.theirs.notebook.document.root);
        let metadata = |root: &SyntaxNode<'a>, key: &str| member(member(root, "metadata")?, key);
        for key in ENVIRONMENT {
            let versions =
                [base.and_then(|base| metadata(base, key)), metadata(ours, key), metadata(theirs, key)];
            if is_changed_by_both(versions) {
                self.write_to_both(versions, ValueSource::From(self.default_side), "null");
            }
        }
        let key = "nbformat_minor";
        let versions = [base.and_then(|base| member(base, key)), member(ours, key), member(theirs, key)];
        if let [_, Some(our), Some(their)] = versions
            && is_changed_by_both(versions)
        {
            let number = |node: &SyntaxNode<'_>| match node.value {
                Value::Literal(text) => text.parse::<u32>().ok(),
                _ => None,
            };
            let newer = if number(our) >= number(their) { Side::Ours } else { Side::Theirs };
            self.write_to_both(versions, ValueSource::From(newer), "null");
        }
    }

    /// Merges the cells that both sides have, and resets cells that one side removed ([`Self::reset_removed`]).
    fn merge_cells(&mut self, names: &Names) {
        let index = |names: &'_ [String]| -> HashMap<String, usize> {
            names.iter().cloned().enumerate().map(|(index, name)| (name, index)).collect()
        };
        let in_base = index(&names.base);
        let in_theirs = index(&names.theirs);
        let in_ours = index(&names.ours);
        let (base, ours, theirs) = (self.base, self.ours.notebook, self.theirs.notebook);
        let base_cell = |name: &str| Some(&base?.cells[*in_base.get(name)?]);
        for (name, our) in names.ours.iter().zip(&ours.cells) {
            match (base_cell(name), in_theirs.get(name)) {
                (base, Some(their)) => {
                    let label = names.labels.get(name).map_or("", String::as_str);
                    self.merge_cell(label, base, our, &theirs.cells[*their]);
                }
                (Some(base), None) => self.reset_removed(Side::Ours, base, our),
                (None, None) => {}
            }
        }
        for (name, their) in names.theirs.iter().zip(&theirs.cells) {
            if let (Some(base), None) = (base_cell(name), in_ours.get(name)) {
                self.reset_removed(Side::Theirs, base, their);
            }
        }
    }

    /// Restores the base version of a cell that the other side removed, if `side` changed only its results. The JSON
    /// merge then removes the cell instead of reporting a conflict.
    fn reset_removed(&mut self, side: Side, base: &Cell<'a>, cell: &Cell<'a>) {
        let Some(notebook) = self.base else { return };
        if cell.node != base.node && cell.equals_except_results(base) {
            let text = self.editor(side).reindented(&notebook.document, base.node, cell.node);
            self.editor(side).replace(cell.node, text);
        }
    }

    /// Merges a cell that both sides have.
    fn merge_cell(&mut self, label: &str, base: Option<&Cell<'a>>, ours: &Cell<'a>, theirs: &Cell<'a>) {
        let source = self.merge_source(label, base, ours, theirs);
        let results = if ours.source == theirs.source {
            ValueSource::From(self.default_side)
        } else if source.is_clean && source.text == ours.source {
            ValueSource::From(Side::Ours)
        } else if source.is_clean && source.text == theirs.source {
            ValueSource::From(Side::Theirs)
        } else {
            ValueSource::Cleared
        };
        self.merge_results(base, ours, theirs, (&source.text, results));
        let id = |cell: &Cell<'a>| member(cell.node, "id");
        let versions = [base.and_then(id), id(ours), id(theirs)];
        if is_changed_by_both(versions) {
            self.write_to_both(versions, ValueSource::From(self.default_side), "null");
        }
    }

    /// Selects the results of a cell from one side, or clears them if neither side ran the merged `source`.
    /// `if_both_changed` is the selection for the case that both sides changed results.
    fn merge_results(
        &mut self,
        base: Option<&Cell<'a>>,
        ours: &Cell<'a>,
        theirs: &Cell<'a>,
        (source, if_both_changed): (&str, ValueSource),
    ) {
        let base_results: Vec<OptionalNode<'a>> = match base {
            Some(base) => base.results().collect(),
            None => ours.results().map(|_| None).collect(),
        };
        let versions: Vec<[OptionalNode<'a>; 3]> = base_results
            .into_iter()
            .zip(ours.results().zip(theirs.results()))
            .map(|(base, (our, their))| [base, our, their])
            .collect();
        let ours_changed = versions.iter().any(|[base, our, _]| base != our);
        let theirs_changed = versions.iter().any(|[base, _, their]| base != their);
        let results = match (ours_changed, theirs_changed) {
            (true, true) => if_both_changed,
            (true, false) if ours.source != source => ValueSource::Cleared,
            (false, true) if theirs.source != source => ValueSource::Cleared,
            _ => return,
        };
        for (number, versions) in versions.into_iter().enumerate() {
            // The members in `RESULTS` come first. Members of the metadata follow, which are never cleared.
            let (value_source, empty) = match RESULTS.get(number) {
                Some(&"outputs") => (results, "[]"),
                Some(_) => (results, "null"),
                None if results == ValueSource::Cleared => (ValueSource::From(self.default_side), "null"),
                None => (results, "null"),
            };
            self.write_to_both(versions, value_source, empty);
        }
    }

    /// Writes the value of one side, or `empty` for [`ValueSource::Cleared`], into both sides.
    fn write_to_both(
        &mut self,
        [base, ours, theirs]: [OptionalNode<'a>; 3],
        source: ValueSource,
        empty: &str,
    ) {
        // Equal results are cleared too: they belong to the sources of the sides, and not to the merged source.
        if ours == theirs && source != ValueSource::Cleared {
            return;
        }
        match (ours, theirs, source) {
            (Some(ours), Some(theirs), ValueSource::Cleared) => {
                self.ours.replace(ours, empty.to_owned());
                self.theirs.replace(theirs, empty.to_owned());
            }
            (Some(ours), Some(theirs), ValueSource::From(Side::Ours)) => {
                let text = self.theirs.reindented(&self.ours.notebook.document, ours, theirs);
                self.theirs.replace(theirs, text);
            }
            (Some(ours), Some(theirs), ValueSource::From(Side::Theirs)) => {
                let text = self.ours.reindented(&self.theirs.notebook.document, theirs, ours);
                self.ours.replace(ours, text);
            }
            // One side removed the value: the base version is restored on the other side, so that the JSON merge
            // removes the value.
            (Some(node), None, _) | (None, Some(node), _) => {
                let side = if ours.is_some() { Side::Ours } else { Side::Theirs };
                if let (Some(notebook), Some(base)) = (self.base, base) {
                    let text = self.editor(side).reindented(&notebook.document, base, node);
                    self.editor(side).replace(node, text);
                }
            }
            (None, None, _) => {}
        }
    }

    /// Merges the source of a cell, and writes the merged source into both sides.
    fn merge_source(
        &mut self,
        label: &str,
        base: Option<&Cell<'a>>,
        ours: &Cell<'a>,
        theirs: &Cell<'a>,
    ) -> MergedSource {
        let node = |cell: &Cell<'a>| member(cell.node, "source");
        let versions = [base.and_then(node), node(ours), node(theirs)];
        let base_source = base.map_or("", |base| &base.source);
        let merged = merge_lines(base_source, &ours.source, &theirs.source, self.favored);
        if !merged.is_clean {
            let source_text = |document: &Document<'_>, node: OptionalNode<'_>| {
                node.map(|node| document.source_text(&node.span).to_owned())
            };
            self.conflicts.push(ValueConflict {
                path: format!("cells[{label}].source"),
                base: self.base.and_then(|base| source_text(&base.document, versions[0])),
                ours: source_text(&self.ours.notebook.document, versions[1]),
                theirs: source_text(&self.theirs.notebook.document, versions[2]),
            });
        }
        if let [_, Some(our), Some(their)] = versions
            && is_changed_by_both(versions)
        {
            let is_list = [our, their].iter().any(|node| matches!(node.value, Value::Array(_)));
            // Source text of each line that a side has as an array element.
            let mut source_texts = HashMap::new();
            for (document, node) in
                [(&self.theirs.notebook.document, their), (&self.ours.notebook.document, our)]
            {
                let lines = node.children().iter().filter_map(|line| match line.value {
                    Value::String(text) => Some((text, document.source_text(&line.span))),
                    _ => None,
                });
                source_texts.extend(lines);
            }
            for (editor, node) in [(&mut self.ours, our), (&mut self.theirs, their)] {
                let text = editor.format_source(node, &merged.text, is_list, &source_texts);
                editor.replace(node, text);
            }
        }
        merged
    }

    /// Returns the editor of a side.
    fn editor(&mut self, side: Side) -> &mut TextEditor<'n, 'a> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }
}

/// Returns true if both sides changed a value, to different values.
fn is_changed_by_both([base, ours, theirs]: [OptionalNode<'_>; 3]) -> bool {
    base != ours && base != theirs && ours != theirs
}

/// Merged source of a cell.
struct MergedSource {
    /// Source, with conflicts resolved in favour of one side.
    text: String,
    /// True if there were no conflicts.
    is_clean: bool,
}

/// Merges sources line by line. Conflicts are resolved in favour of `favored`.
fn merge_lines(base: &str, ours: &str, theirs: &str, favored: Side) -> MergedSource {
    let clean = |text: &str| MergedSource { text: text.to_owned(), is_clean: true };
    if ours == theirs || base == theirs {
        return clean(ours);
    }
    if base == ours {
        return clean(theirs);
    }
    // The last line of a cell has no line ending. A line ending is added for the merge, so that appending a line does
    // not change the previous one.
    let with_newline = |text: &str| if text.is_empty() { String::new() } else { format!("{text}\n") };
    let [base, our, their] = [base, ours, theirs].map(with_newline);
    let (favor, side) = match favored {
        Side::Ours => (Favor::Ours, ours),
        Side::Theirs => (Favor::Theirs, theirs),
    };
    match TextMerge::new(base.as_bytes(), our.as_bytes(), their.as_bytes(), DiffLimits::default()) {
        Err(_) => MergedSource { text: side.to_owned(), is_clean: false },
        Ok(text) => {
            // The merged text consists of whole lines of valid UTF-8, so it is valid UTF-8.
            let mut merged = String::from_utf8_lossy(&text.favor(favor)).into_owned();
            merged.truncate(merged.strip_suffix('\n').map_or(merged.len(), str::len));
            MergedSource { text: merged, is_clean: text.is_clean() }
        }
    }
}

/// Text of a side with pending edits.
struct TextEditor<'n, 'a> {
    notebook: &'n Notebook<'a>,
    /// Byte ranges of the text to replace, each with its new text.
    edits: Vec<(Range<usize>, String)>,
    /// Style of the first source that is an array of at least two lines; `None` if there is none.
    list_style: Option<ListStyle<'a>>,
    /// Characters that are escaped in new strings.
    escaping: Escaping,
    /// Line ending of the first line.
    end_of_line: &'static str,
}

/// Separators of a source that is stored as an array of lines.
#[derive(Debug, Clone, Copy)]
struct ListStyle<'a> {
    /// Text between the opening bracket and the first line.
    open: &'a str,
    /// Text between two lines, with the comma.
    separator: &'a str,
    /// Text between the last line and the closing bracket.
    close: &'a str,
}

impl<'n, 'a> TextEditor<'n, 'a> {
    fn new(notebook: &'n Notebook<'a>) -> Self {
        let text = notebook.document.text;
        let sources = notebook.cells.iter().filter_map(|cell| member(cell.node, "source"));
        let is_crlf =
            memchr::memchr(b'\n', text.as_bytes()).is_some_and(|newline| text[..newline].ends_with('\r'));
        let has_escapes = text.is_ascii() && memchr::memmem::find(text.as_bytes(), b"\\u").is_some();
        Self {
            notebook,
            edits: Vec::new(),
            list_style: sources.filter_map(|source| list_style(text, source)).next(),
            escaping: if has_escapes { Escaping::NonAscii } else { Escaping::Minimal },
            end_of_line: if is_crlf { "\r\n" } else { "\n" },
        }
    }

    /// Replaces a value.
    fn replace(&mut self, node: &SyntaxNode<'_>, text: String) {
        self.edits.push((node.span.clone(), text));
    }

    /// Returns the text of a value of another document, indented like `target`.
    fn reindented(&self, from: &Document<'_>, value: &SyntaxNode<'_>, target: &SyntaxNode<'_>) -> String {
        let source_text = from.source_text(&value.span);
        if !source_text.contains('\n') {
            return source_text.to_owned();
        }
        let (old, new) =
            (indent(from.text, value.item_start), indent(self.notebook.document.text, target.item_start));
        let mut out = String::with_capacity(source_text.len());
        push_indented(&mut out, source_text, old, new, self.end_of_line);
        out
    }

    /// Returns JSON for the source `text`, to be written in place of `target` and formatted like it: an array of
    /// lines if `is_list`, or else a string. `source_texts` maps lines to their JSON in a version, which keeps its
    /// escapes.
    fn format_source(
        &self,
        target: &SyntaxNode<'a>,
        text: &str,
        is_list: bool,
        source_texts: &HashMap<&str, &str>,
    ) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 8 + 2);
        if !is_list {
            push_quoted(&mut out, text, self.escaping);
            return out;
        }
        if text.is_empty() {
            return "[]".to_owned();
        }
        let document = self.notebook.document.text;
        let style = list_style(document, target).or(self.list_style);
        let indent = indent(document, target.item_start);
        let is_first_on_line = document[..target.item_start].ends_with(indent) && !indent.is_empty();
        let (open, separator, close) = match style {
            Some(style) => (style.open.to_owned(), style.separator.to_owned(), style.close.to_owned()),
            None if is_first_on_line => {
                let end_of_line = self.end_of_line;
                let open = format!("{end_of_line}{indent} ");
                (open.clone(), format!(",{open}"), format!("{end_of_line}{indent}"))
            }
            None => (String::new(), ", ".to_owned(), String::new()),
        };
        out.push('[');
        for (number, line) in text.split_inclusive('\n').enumerate() {
            out.push_str(if number == 0 { &open } else { &separator });
            match source_texts.get(line) {
                Some(source_text) => out.push_str(source_text),
                None => push_quoted(&mut out, line, self.escaping),
            }
        }
        out.push_str(&close);
        out.push(']');
        out
    }

    /// Reorders cells and their names. `order` has the old index of each cell, in the new order.
    fn reorder(&mut self, order: &[usize], names: &mut Vec<String>) {
        let cells = &self.notebook.cells;
        self.edits.sort_by_key(|(range, _)| range.start);
        let is_in = |range: &Range<usize>, cell: &Cell<'_>| {
            cell.node.span.start <= range.start && range.end <= cell.node.span.end
        };
        let (mut texts, mut outside, mut edits) =
            (Vec::new(), Vec::new(), std::mem::take(&mut self.edits).into_iter().peekable());
        for cell in cells {
            while let Some(edit) = edits.next_if(|(range, _)| range.end <= cell.node.span.start) {
                outside.push(edit);
            }
            let mut inside = Vec::new();
            while let Some(edit) = edits.next_if(|(range, _)| is_in(range, cell)) {
                inside.push(edit);
            }
            texts.push(apply_edits(self.notebook.document.text, cell.node.span.clone(), &inside));
        }
        outside.extend(edits);
        for (cell, from) in cells.iter().zip(order) {
            outside.push((cell.node.span.clone(), texts[*from].clone()));
        }
        self.edits = outside;
        *names = order.iter().map(|from| names[*from].clone()).collect();
    }

    /// Applies all edits.
    fn into_text(mut self) -> String {
        self.edits.sort_by_key(|(range, _)| range.start);
        let text = self.notebook.document.text;
        apply_edits(text, 0..text.len(), &self.edits)
    }
}

/// Returns a part of a text with edits applied. The edits must be sorted and inside the part.
fn apply_edits(text: &str, part: Range<usize>, edits: &[(Range<usize>, String)]) -> String {
    let mut out = String::with_capacity(part.len());
    let mut copied_end = part.start;
    for (range, new) in edits {
        out.push_str(&text[copied_end..range.start]);
        out.push_str(new);
        copied_end = range.end;
    }
    out.push_str(&text[copied_end..part.end]);
    out
}

/// Returns the separators of a source; `None` if it is not an array of at least two lines, or a separator is too long.
fn list_style<'a>(text: &'a str, source: &SyntaxNode<'_>) -> Option<ListStyle<'a>> {
    let Value::Array([first, second, .., last] | [first, second @ last]) = source.value else { return None };
    let style = ListStyle {
        open: &text[source.span.start + 1..first.span.start],
        separator: &text[first.span.end..second.span.start],
        close: text[last.span.end..source.span.end - 1].trim_start_matches(','),
    };
    [style.open, style.separator, style.close].iter().all(|part| part.len() <= SEPARATOR_MAX).then_some(style)
}

/// Returns the indentation of the line at a byte offset; empty if the start of the line is too far away.
fn indent(text: &str, offset: usize) -> &str {
    let bytes = &text.as_bytes()[..offset];
    let search_start = offset.saturating_sub(INDENT_SEARCH_LEN);
    let start = match memchr::memrchr(b'\n', &bytes[search_start..]) {
        Some(newline) => search_start + newline + 1,
        None if search_start == 0 => 0,
        None => return "",
    };
    let length = bytes[start..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &text[start..start + length]
}
