//! Merge of the cells that both sides changed, by rewriting the texts of both sides so that they agree.

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

/// Maximum number of bytes before a value that are searched for the start of its line.
const INDENT_SEARCH_LEN: usize = 400;

/// Maximum number of bytes of a separator between the lines of a source, which is repeated for each line.
const BETWEEN_MAX: usize = 400;

/// Rewritten texts of both sides.
pub(super) struct RewriteResult {
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) names: Names,
    /// Conflicts within sources. In both texts they are resolved in favour of one side.
    pub(super) conflicts: Vec<ValueConflict>,
}

/// Merges sources, selects results, and merges the order of cells. Conflicts are resolved in favour of
/// `favored`.
pub(super) fn rewrite(
    base: Option<&Notebook<'_>>,
    ours: &Notebook<'_>,
    theirs: &Notebook<'_>,
    favored: Side,
) -> RewriteResult {
    let base_cells = base.map_or(&[][..], |base| &base.cells);
    let [of_ours, of_theirs] = [ours, theirs].map(|side| match_cells(base_cells, &side.cells));
    let mut names = Names::new(
        base_cells,
        names::SideCells { cells: &ours.cells, matched: &of_ours },
        names::SideCells { cells: &theirs.cells, matched: &of_theirs },
    );
    let mut rewrite = Rewrite {
        base,
        ours: TextEditor::new(ours),
        theirs: TextEditor::new(theirs),
        favored,
        preferred: if ours.document.text >= theirs.document.text { Side::Ours } else { Side::Theirs },
        conflicts: Vec::new(),
    };
    rewrite.merge_environment();
    rewrite.merge_cells(&names);
    let conflicts = rewrite.conflicts;
    let [ours, theirs] = [(rewrite.ours, &mut names.ours), (rewrite.theirs, &mut names.theirs)];
    let (mut ours, mut theirs) = (ours, theirs);
    let (our_common, their_common) = (common(&of_ours, &of_theirs), common(&of_theirs, &of_ours));
    if let Some(order) = merge_order(&values(&our_common), &values(&their_common)) {
        ours.0.reorder(&sort_cells(&order, &our_common), ours.1);
        theirs.0.reorder(&sort_cells(&order, &their_common), theirs.1);
    }
    let (ours, theirs) = (ours.0.text(), theirs.0.text());
    RewriteResult { ours, theirs, names, conflicts }
}

/// Returns the matching base cell of each cell of a side, if the other side has it too.
fn common(side: &[Option<usize>], other: &[Option<usize>]) -> Vec<Option<usize>> {
    let there: std::collections::HashSet<usize> = other.iter().flatten().copied().collect();
    side.iter().map(|found| found.filter(|found| there.contains(found))).collect()
}

fn values(common: &[Option<usize>]) -> Vec<usize> {
    common.iter().flatten().copied().collect()
}

/// Returns the indexes of the cells of a side, sorted by a new order of the cells that all versions have. Other
/// cells stay after their predecessor.
fn sort_cells(order: &[usize], common: &[Option<usize>]) -> Vec<usize> {
    let mut groups: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    let mut group = None;
    for (at, found) in common.iter().enumerate() {
        group = found.or(group);
        groups.entry(group).or_default().push(at);
    }
    let all = std::iter::once(None).chain(order.iter().copied().map(Some));
    all.flat_map(|group| groups.remove(&group).unwrap_or_default()).collect()
}

/// Origin of a cell's results in the merged notebook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Results {
    Of(Side),
    /// No results, since neither side ran the merged source.
    Cleared,
}

struct Rewrite<'n, 'a> {
    base: Option<&'n Notebook<'a>>,
    ours: TextEditor<'n, 'a>,
    theirs: TextEditor<'n, 'a>,
    favored: Side,
    /// Side whose results and environment are taken by default, for the whole file. It depends only on the
    /// contents, so that the merge is symmetric.
    preferred: Side,
    conflicts: Vec<ValueConflict>,
}

type OptionalNode<'a> = Option<&'a SyntaxNode<'a>>;

impl<'n, 'a> Rewrite<'n, 'a> {
    /// Selects the metadata that programs write when they run a notebook, and the later format version.
    fn merge_environment(&mut self) {
        let base = self.base.map(|base| &base.document.root);
        let (ours, theirs) = (&self.ours.notebook.document.root, &self.theirs.notebook.document.root);
        let metadata = |root: &SyntaxNode<'a>, key: &str| member(member(root, "metadata")?, key);
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
            let number = |node: &SyntaxNode<'_>| match node.value {
                Value::Literal(text) => text.parse::<u32>().ok(),
                _ => None,
            };
            let later = if number(our) >= number(their) { Side::Ours } else { Side::Theirs };
            self.take(three, Results::Of(later), "null");
        }
    }

    fn merge_cells(&mut self, names: &Names) {
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
                    self.merge_cell(label, base, our, &theirs.cells[*their]);
                }
                (Some(base), None) => self.reset_removed(Side::Ours, base, our),
                (None, None) => {}
            }
        }
        for (name, their) in names.theirs.iter().zip(&theirs.cells) {
            if let (Some(base), None) = (of_base(name), in_ours.get(name)) {
                self.reset_removed(Side::Theirs, base, their);
            }
        }
    }

    /// Resets a cell that the other side removed to the base, if only its results changed. The merge then
    /// removes it instead of reporting a conflict.
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
            Results::Of(self.preferred)
        } else if source.is_clean && source.text == ours.source {
            Results::Of(Side::Ours)
        } else if source.is_clean && source.text == theirs.source {
            Results::Of(Side::Theirs)
        } else {
            Results::Cleared
        };
        self.merge_results(base, ours, theirs, (&source.text, results));
        let id = |cell: &Cell<'a>| member(cell.node, "id");
        let three = [base.and_then(id), id(ours), id(theirs)];
        if is_changed_by_both(three) {
            self.take(three, Results::Of(self.preferred), "null");
        }
    }

    /// Selects results that both sides changed, and clears results of a source that changed. All results of a
    /// cell come from the same side.
    fn merge_results(
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

    /// Writes the selected value of one side, or `empty` for cleared results, into both sides.
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
                let text = self.theirs.reindented(&self.ours.notebook.document, ours, theirs);
                self.theirs.replace(theirs, text);
            }
            (Some(ours), Some(theirs), Results::Of(Side::Theirs)) => {
                let text = self.ours.reindented(&self.theirs.notebook.document, theirs, ours);
                self.ours.replace(ours, text);
            }
            // One side removed the value: the other side is reset to the base, so that the merge removes it.
            (Some(there), None, _) | (None, Some(there), _) => {
                let side = if ours.is_some() { Side::Ours } else { Side::Theirs };
                if let (Some(notebook), Some(base)) = (self.base, base) {
                    let text = self.editor(side).reindented(&notebook.document, base, there);
                    self.editor(side).replace(there, text);
                }
            }
            (None, None, _) => {}
        }
    }

    /// Merges the source of a cell, and writes it into both sides.
    fn merge_source(
        &mut self,
        label: &str,
        base: Option<&Cell<'a>>,
        ours: &Cell<'a>,
        theirs: &Cell<'a>,
    ) -> MergedSource {
        let node = |cell: &Cell<'a>| member(cell.node, "source");
        let three = [base.and_then(node), node(ours), node(theirs)];
        let text = base.map_or("", |base| &base.source);
        let merged = merge_lines(text, &ours.source, &theirs.source, self.favored);
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
                let text = editor.format_source(node, &merged.text, is_list, &lines);
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

fn merge_lines(base: &str, ours: &str, theirs: &str, favored: Side) -> MergedSource {
    let taken = |text: &str| MergedSource { text: text.to_owned(), is_clean: true };
    if ours == theirs || base == theirs {
        return taken(ours);
    }
    if base == ours {
        return taken(theirs);
    }
    // The last line of a cell has no line ending. With an ending, appending a line does not change it.
    let ended = |text: &str| if text.is_empty() { String::new() } else { format!("{text}\n") };
    let [base, our, their] = [base, ours, theirs].map(ended);
    let (favor, side) = match favored {
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

    fn replace(&mut self, node: &SyntaxNode<'_>, text: String) {
        self.edits.push((node.span.clone(), text));
    }

    /// Returns the text of a value of another document, indented like `target`.
    fn reindented(&self, from: &Document<'_>, value: &SyntaxNode<'_>, target: &SyntaxNode<'_>) -> String {
        let written = from.written(&value.span);
        if !written.contains('\n') {
            return written.to_owned();
        }
        let (old, new) = (indent(from.text, value.start), indent(self.notebook.document.text, target.start));
        let mut out = String::with_capacity(written.len());
        push_indented(&mut out, written, old, new, self.end_of_line);
        out
    }

    /// Returns the text of a source, formatted like the value `target`. Lines of either side keep their
    /// escaping.
    fn format_source(
        &self,
        target: &SyntaxNode<'a>,
        text: &str,
        is_list: bool,
        written: &HashMap<&str, &str>,
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
        let style = list_style(document, target).or(self.lists);
        let indent = indent(document, target.start);
        let is_on_line = document[..target.start].ends_with(indent) && !indent.is_empty();
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

    fn text(mut self) -> String {
        self.edits.sort_by_key(|(range, _)| range.start);
        let text = self.notebook.document.text;
        apply_edits(text, 0..text.len(), &self.edits)
    }
}

/// Returns a part of a text with edits applied, which have to be in order.
fn apply_edits(text: &str, part: Range<usize>, edits: &[(Range<usize>, String)]) -> String {
    let mut out = String::with_capacity(part.len());
    let mut done = part.start;
    for (range, new) in edits {
        out.push_str(&text[done..range.start]);
        out.push_str(new);
        done = range.end;
    }
    out.push_str(&text[done..part.end]);
    out
}

/// Returns the separators of a source; `None` if it is not an array of at least two lines.
fn list_style<'a>(text: &'a str, source: &SyntaxNode<'_>) -> Option<ListStyle<'a>> {
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
