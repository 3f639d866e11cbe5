//! Rewriting of both sides with the decisions about cells, so that only values are left to merge.

use std::collections::HashMap;
use std::ops::Range;

use super::cells::{Cell, ENVIRONMENT, Notebook, RESULTS, member};
use super::matching::matched;
use super::names::{self, Names, merged_order};
use crate::conflict::ValueConflict;
use crate::file::Side;
use crate::layout::push_indented;
use crate::quote::{Escaping, push_quoted};
use crate::text::{DiffLimits, Favor, TextMerge};
use crate::value::{Document, Node, Value};

/// Number of bytes before a value in which its line start is searched.
const INDENT_SEARCH_LEN: usize = 400;

/// Limit in bytes for the separator between lines of a source, which is repeated for each line.
const BETWEEN_MAX: usize = 400;

/// Rewritten texts of both sides.
pub(super) struct Rewritten {
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) names: Names,
    /// Sources with changes to the same lines. In both texts they are resolved in favour of one side.
    pub(super) conflicts: Vec<ValueConflict>,
}

/// Merges sources, and decides which results are taken.
pub(super) fn rewrite(
    base: Option<&Notebook<'_>>,
    ours: &Notebook<'_>,
    theirs: &Notebook<'_>,
    settle: Side,
) -> Rewritten {
    let base_cells = base.map_or(&[][..], |base| &base.cells);
    let [of_ours, of_theirs] = [ours, theirs].map(|side| matched(base_cells, &side.cells));
    let mut names = Names::new(
        base_cells,
        names::Side { cells: &ours.cells, matched: &of_ours },
        names::Side { cells: &theirs.cells, matched: &of_theirs },
    );
    let mut rewrite = Rewrite {
        base,
        ours: TextEditor::new(ours),
        theirs: TextEditor::new(theirs),
        settle,
        preferred: if ours.document.text >= theirs.document.text { Side::Ours } else { Side::Theirs },
        conflicts: Vec::new(),
    };
    rewrite.environment();
    rewrite.cells(&names);
    let conflicts = rewrite.conflicts;
    let [ours, theirs] = [(rewrite.ours, &mut names.ours), (rewrite.theirs, &mut names.theirs)];
    let (mut ours, mut theirs) = (ours, theirs);
    let (our_common, their_common) = (common(&of_ours, &of_theirs), common(&of_theirs, &of_ours));
    if let Some(order) = merged_order(&values(&our_common), &values(&their_common)) {
        ours.0.reorder(&in_order(&order, &our_common), ours.1);
        theirs.0.reorder(&in_order(&order, &their_common), theirs.1);
    }
    let (ours, theirs) = (ours.0.text(), theirs.0.text());
    Rewritten { ours, theirs, names, conflicts }
}

/// Returns the matching base cell of each cell of a side, if the other side has it too.
fn common(side: &[Option<usize>], other: &[Option<usize>]) -> Vec<Option<usize>> {
    let there: std::collections::HashSet<usize> = other.iter().flatten().copied().collect();
    side.iter().map(|found| found.filter(|found| there.contains(found))).collect()
}

fn values(common: &[Option<usize>]) -> Vec<usize> {
    common.iter().flatten().copied().collect()
}

/// Sorts the cells of a side by a new order of the cells that all versions have. Other cells stay behind
/// their predecessor.
fn in_order(order: &[usize], common: &[Option<usize>]) -> Vec<usize> {
    let mut groups: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    let mut group = None;
    for (at, found) in common.iter().enumerate() {
        group = found.or(group);
        groups.entry(group).or_default().push(at);
    }
    let all = std::iter::once(None).chain(order.iter().copied().map(Some));
    all.flat_map(|group| groups.remove(&group).unwrap_or_default()).collect()
}

/// Source of a cell's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Results {
    Of(Side),
    /// No results: neither side ran the merged source, or its conflict is not resolved.
    Cleared,
}

struct Rewrite<'n, 'a> {
    base: Option<&'n Notebook<'a>>,
    ours: TextEditor<'n, 'a>,
    theirs: TextEditor<'n, 'a>,
    settle: Side,
    /// Side whose results and environment are taken by default. It depends on the content only, not on which
    /// side is ours, and is the same for the whole file.
    preferred: Side,
    conflicts: Vec<ValueConflict>,
}

type OptionalNode<'a> = Option<&'a Node<'a>>;

impl<'n, 'a> Rewrite<'n, 'a> {
    /// Decides about the environment that programs write when they run a notebook, and about the format
    /// version.
    fn environment(&mut self) {
        let base = self.base.map(|base| &base.document.root);
        let (ours, theirs) = (&self.ours.notebook.document.root, &self.theirs.notebook.document.root);
        let metadata = |root: &Node<'a>, key: &str| member(member(root, "metadata")?, key);
        for key in ENVIRONMENT {
            let three =
                [base.and_then(|base| metadata(base, key)), metadata(ours, key), metadata(theirs, key)];
            if is_changed_by_both(three) {
                self.take(three, Results::Of(self.preferred), "null");
            }
        }
        let key = "nbformat_minor";
        let three = [base.and_then(|base| member(base, key)), member(ours, key), member(theirs, key)];
        if let [_, Some(our), Some(their)] = three
            && is_changed_by_both(three)
        {
            let number = |node: &Node<'_>| match node.value {
                Value::Literal(text) => text.parse::<u32>().ok(),
                _ => None,
            };
            let later = if number(our) >= number(their) { Side::Ours } else { Side::Theirs };
            self.take(three, Results::Of(later), "null");
        }
    }

    fn cells(&mut self, names: &Names) {
        let index = |names: &'_ [String]| -> HashMap<String, usize> {
            names.iter().cloned().enumerate().map(|(at, name)| (name, at)).collect()
        };
        let in_base = index(&names.base);
        let in_theirs = index(&names.theirs);
        let in_ours = index(&names.ours);
        let (base, ours, theirs) = (self.base, self.ours.notebook, self.theirs.notebook);
        let of_base = |name: &str| Some(&base?.cells[*in_base.get(name)?]);
        for (name, our) in names.ours.iter().zip(&ours.cells) {
            match (of_base(name), in_theirs.get(name)) {
                (base, Some(their)) => {
                    let label = names.labels.get(name).map_or("", String::as_str);
                    self.cell(label, base, our, &theirs.cells[*their]);
                }
                (Some(base), None) => self.removed(Side::Ours, base, our),
                (None, None) => {}
            }
        }
        for (name, their) in names.theirs.iter().zip(&theirs.cells) {
            if let (Some(base), None) = (of_base(name), in_ours.get(name)) {
                self.removed(Side::Theirs, base, their);
            }
        }
    }

    /// Handles a cell that the other side removed: having run it is no reason to keep it.
    fn removed(&mut self, side: Side, base: &Cell<'a>, cell: &Cell<'a>) {
        let Some(notebook) = self.base else { return };
        if cell.node != base.node && cell.equals_except_results(base) {
            let text = self.editor(side).pasted(&notebook.document, base.node, cell.node);
            self.editor(side).replace(cell.node, text);
        }
    }

    /// Handles a cell that both sides have.
    fn cell(&mut self, label: &str, base: Option<&Cell<'a>>, ours: &Cell<'a>, theirs: &Cell<'a>) {
        let source = self.source(label, base, ours, theirs);
        let results = if ours.source == theirs.source {
            Results::Of(self.preferred)
        } else if source.is_clean && source.text == ours.source {
            Results::Of(Side::Ours)
        } else if source.is_clean && source.text == theirs.source {
            Results::Of(Side::Theirs)
        } else {
            Results::Cleared
        };
        self.results(base, ours, theirs, (&source.text, results));
        let id = |cell: &Cell<'a>| member(cell.node, "id");
        let three = [base.and_then(id), id(ours), id(theirs)];
        if is_changed_by_both(three) {
            self.take(three, Results::Of(self.preferred), "null");
        }
    }

    /// Decides about results that both sides changed, and about those of a source that changed. All results
    /// of a cell come from the same side.
    fn results(
        &mut self,
        base: Option<&Cell<'a>>,
        ours: &Cell<'a>,
        theirs: &Cell<'a>,
        (source, of_both): (&str, Results),
    ) {
        let of_base: Vec<OptionalNode<'a>> = match base {
            Some(base) => base.results().collect(),
            None => ours.results().map(|_| None).collect(),
        };
        let three: Vec<[OptionalNode<'a>; 3]> = of_base
            .into_iter()
            .zip(ours.results().zip(theirs.results()))
            .map(|(base, (our, their))| [base, our, their])
            .collect();
        let by_ours = three.iter().any(|[base, our, _]| base != our);
        let by_theirs = three.iter().any(|[base, _, their]| base != their);
        let results = match (by_ours, by_theirs) {
            (true, true) => of_both,
            (true, false) if ours.source != source => Results::Cleared,
            (false, true) if theirs.source != source => Results::Cleared,
            _ => return,
        };
        for (number, three) in three.into_iter().enumerate() {
            let (results, empty) = match RESULTS.get(number) {
                Some(&"outputs") => (results, "[]"),
                Some(_) => (results, "null"),
                None if results == Results::Cleared => (Results::Of(self.preferred), "null"),
                None => (results, "null"),
            };
            self.take(three, results, empty);
        }
    }

    /// Writes the value of one side into both.
    fn take(&mut self, [base, ours, theirs]: [OptionalNode<'a>; 3], results: Results, empty: &str) {
        if ours == theirs {
            return;
        }
        match (ours, theirs, results) {
            (Some(ours), Some(theirs), Results::Cleared) => {
                self.ours.replace(ours, empty.to_owned());
                self.theirs.replace(theirs, empty.to_owned());
            }
            (Some(ours), Some(theirs), Results::Of(Side::Ours)) => {
                let text = self.theirs.pasted(&self.ours.notebook.document, ours, theirs);
                self.theirs.replace(theirs, text);
            }
            (Some(ours), Some(theirs), Results::Of(Side::Theirs)) => {
                let text = self.ours.pasted(&self.theirs.notebook.document, theirs, ours);
                self.ours.replace(ours, text);
            }
            // One side removed the value: the other is reset to the base, so that it is removed.
            (Some(there), None, _) | (None, Some(there), _) => {
                let side = if ours.is_some() { Side::Ours } else { Side::Theirs };
                if let (Some(notebook), Some(base)) = (self.base, base) {
                    let text = self.editor(side).pasted(&notebook.document, base, there);
                    self.editor(side).replace(there, text);
                }
            }
            (None, None, _) => {}
        }
    }

    /// Writes the merged source of a cell into both sides, and returns it.
    fn source(
        &mut self,
        label: &str,
        base: Option<&Cell<'a>>,
        ours: &Cell<'a>,
        theirs: &Cell<'a>,
    ) -> MergedSource {
        let node = |cell: &Cell<'a>| member(cell.node, "source");
        let three = [base.and_then(node), node(ours), node(theirs)];
        let text = base.map_or("", |base| &base.source);
        let merged = merged_source(text, &ours.source, &theirs.source, self.settle);
        if !merged.is_clean {
            let written = |document: &Document<'_>, node: OptionalNode<'_>| {
                node.map(|node| document.written(&node.span).to_owned())
            };
            self.conflicts.push(ValueConflict {
                path: format!("cells[{label}].source"),
                base: self.base.and_then(|base| written(&base.document, three[0])),
                ours: written(&self.ours.notebook.document, three[1]),
                theirs: written(&self.theirs.notebook.document, three[2]),
            });
        }
        if let [_, Some(our), Some(their)] = three
            && is_changed_by_both(three)
        {
            let is_list = [our, their].iter().any(|node| matches!(node.value, Value::Array(_)));
            let mut lines = HashMap::new();
            for (document, node) in
                [(&self.theirs.notebook.document, their), (&self.ours.notebook.document, our)]
            {
                let written = node.children().iter().filter_map(|line| match line.value {
                    Value::String(text) => Some((text, document.written(&line.span))),
                    _ => None,
                });
                lines.extend(written);
            }
            for (editor, node) in [(&mut self.ours, our), (&mut self.theirs, their)] {
                let text = editor.source(node, &merged.text, is_list, &lines);
                editor.replace(node, text);
            }
        }
        merged
    }

    fn editor(&mut self, side: Side) -> &mut TextEditor<'n, 'a> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }
}

/// Returns whether both sides changed a value differently.
fn is_changed_by_both([base, ours, theirs]: [OptionalNode<'_>; 3]) -> bool {
    base != ours && base != theirs && ours != theirs
}

struct MergedSource {
    text: String,
    is_clean: bool,
}

fn merged_source(base: &str, ours: &str, theirs: &str, settle: Side) -> MergedSource {
    let taken = |text: &str| MergedSource { text: text.to_owned(), is_clean: true };
    if ours == theirs || base == theirs {
        return taken(ours);
    }
    if base == ours {
        return taken(theirs);
    }
    // The last line of a cell has no line ending, so appending a line would change it.
    let ended = |text: &str| if text.is_empty() { String::new() } else { format!("{text}\n") };
    let [base, our, their] = [base, ours, theirs].map(ended);
    let (favor, side) = match settle {
        Side::Ours => (Favor::Ours, ours),
        Side::Theirs => (Favor::Theirs, theirs),
    };
    match TextMerge::new(base.as_bytes(), our.as_bytes(), their.as_bytes(), DiffLimits::default()) {
        Err(_) => MergedSource { text: side.to_owned(), is_clean: false },
        Ok(text) => {
            // Whole lines of valid UTF-8 are valid UTF-8.
            let mut merged = String::from_utf8_lossy(&text.favor(favor)).into_owned();
            merged.truncate(merged.strip_suffix('\n').map_or(merged.len(), str::len));
            MergedSource { text: merged, is_clean: text.is_clean() }
        }
    }
}

/// Text of a side with pending edits.
struct TextEditor<'n, 'a> {
    notebook: &'n Notebook<'a>,
    edits: Vec<(Range<usize>, String)>,
    lists: Option<ListStyle<'a>>,
    escaping: Escaping,
    end_of_line: &'static str,
}

/// Separators of a source that is stored as an array of lines.
#[derive(Debug, Clone, Copy)]
struct ListStyle<'a> {
    open: &'a str,
    between: &'a str,
    close: &'a str,
}

impl<'n, 'a> TextEditor<'n, 'a> {
    fn new(notebook: &'n Notebook<'a>) -> Self {
        let text = notebook.document.text;
        let sources = notebook.cells.iter().filter_map(|cell| member(cell.node, "source"));
        let is_crlf = memchr::memchr(b'\n', text.as_bytes()).is_some_and(|at| text[..at].ends_with('\r'));
        let has_escapes = text.is_ascii() && memchr::memmem::find(text.as_bytes(), b"\\u").is_some();
        Self {
            notebook,
            edits: Vec::new(),
            lists: sources.filter_map(|source| list_style(text, source)).next(),
            escaping: if has_escapes { Escaping::NonAscii } else { Escaping::Minimal },
            end_of_line: if is_crlf { "\r\n" } else { "\n" },
        }
    }

    fn replace(&mut self, node: &Node<'_>, text: String) {
        self.edits.push((node.span.clone(), text));
    }

    /// Returns the text of a value of another document, indented for the position of `place`.
    fn pasted(&self, from: &Document<'_>, value: &Node<'_>, place: &Node<'_>) -> String {
        let written = from.written(&value.span);
        if !written.contains('\n') {
            return written.to_owned();
        }
        let (old, new) = (indent(from.text, value.start), indent(self.notebook.document.text, place.start));
        let mut out = String::with_capacity(written.len());
        push_indented(&mut out, written, old, new, self.end_of_line);
        out
    }

    /// Returns the text of a source, formatted for the position of `place`. Lines that either side has are
    /// written as there.
    fn source(&self, place: &Node<'a>, text: &str, is_list: bool, written: &HashMap<&str, &str>) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 8 + 2);
        if !is_list {
            push_quoted(&mut out, text, self.escaping);
            return out;
        }
        if text.is_empty() {
            return "[]".to_owned();
        }
        let document = self.notebook.document.text;
        let style = list_style(document, place).or(self.lists);
        let indent = indent(document, place.start);
        let is_on_line = document[..place.start].ends_with(indent) && !indent.is_empty();
        let (open, between, close) = match style {
            Some(style) => (style.open.to_owned(), style.between.to_owned(), style.close.to_owned()),
            None if is_on_line => {
                let end = self.end_of_line;
                let open = format!("{end}{indent} ");
                (open.clone(), format!(",{open}"), format!("{end}{indent}"))
            }
            None => (String::new(), ", ".to_owned(), String::new()),
        };
        out.push('[');
        for (number, line) in text.split_inclusive('\n').enumerate() {
            out.push_str(if number == 0 { &open } else { &between });
            match written.get(line) {
                Some(written) => out.push_str(written),
                None => push_quoted(&mut out, line, self.escaping),
            }
        }
        out.push_str(&close);
        out.push(']');
        out
    }

    /// Reorders cells and their names.
    fn reorder(&mut self, order: &[usize], names: &mut Vec<String>) {
        let cells = &self.notebook.cells;
        self.edits.sort_by_key(|(place, _)| place.start);
        let is_in = |place: &Range<usize>, cell: &Cell<'_>| {
            cell.node.span.start <= place.start && place.end <= cell.node.span.end
        };
        let (mut texts, mut outside, mut edits) =
            (Vec::new(), Vec::new(), std::mem::take(&mut self.edits).into_iter().peekable());
        for cell in cells {
            while let Some(edit) = edits.next_if(|(place, _)| place.end <= cell.node.span.start) {
                outside.push(edit);
            }
            let mut inside = Vec::new();
            while let Some(edit) = edits.next_if(|(place, _)| is_in(place, cell)) {
                inside.push(edit);
            }
            texts.push(spliced(self.notebook.document.text, cell.node.span.clone(), &inside));
        }
        outside.extend(edits);
        for (cell, from) in cells.iter().zip(order) {
            outside.push((cell.node.span.clone(), texts[*from].clone()));
        }
        self.edits = outside;
        *names = order.iter().map(|from| names[*from].clone()).collect();
    }

    fn text(mut self) -> String {
        self.edits.sort_by_key(|(place, _)| place.start);
        let text = self.notebook.document.text;
        spliced(text, 0..text.len(), &self.edits)
    }
}

/// Returns a part of a text with edits applied, which have to be in order.
fn spliced(text: &str, part: Range<usize>, edits: &[(Range<usize>, String)]) -> String {
    let mut out = String::with_capacity(part.len());
    let mut done = part.start;
    for (place, new) in edits {
        out.push_str(&text[done..place.start]);
        out.push_str(new);
        done = place.end;
    }
    out.push_str(&text[done..part.end]);
    out
}

/// Returns the separators of a source; `None` if it is not an array of at least two lines.
fn list_style<'a>(text: &'a str, source: &Node<'_>) -> Option<ListStyle<'a>> {
    let Value::Array([first, second, .., last] | [first, second @ last]) = source.value else { return None };
    let style = ListStyle {
        open: &text[source.span.start + 1..first.span.start],
        between: &text[first.span.end..second.span.start],
        close: text[last.span.end..source.span.end - 1].trim_start_matches(','),
    };
    [style.open, style.between, style.close].iter().all(|part| part.len() <= BETWEEN_MAX).then_some(style)
}

/// Returns the indentation of the line with a byte offset.
fn indent(text: &str, at: usize) -> &str {
    let bytes = &text.as_bytes()[..at];
    let from = at.saturating_sub(INDENT_SEARCH_LEN);
    let start = match memchr::memrchr(b'\n', &bytes[from..]) {
        Some(end) => from + end + 1,
        None if from == 0 => 0,
        None => return "",
    };
    let length = bytes[start..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &text[start..start + length]
}
