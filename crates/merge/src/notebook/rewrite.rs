//! The texts of both sides with what was decided about cells written into both, so that all that is left to merge are values.

use std::collections::HashMap;
use std::ops::Range;

use super::cells::{Cell, ENVIRONMENT, Notebook, RESULTS, member};
use super::matching::matched;
use super::names::{self, Names, joined_order};
use crate::conflict::ValueConflict;
use crate::file::Side;
use crate::json::{Letters, push_quoted};
use crate::layout::push_indented;
use crate::text::{Effort, Favor, TextMerge};
use crate::value::{Document, Node, Value};

/// Lines are not looked at further back for how they are indented.
const LOOKED_BACK: usize = 400;

/// Longest text between the lines of a source that is repeated for each line.
const BETWEEN_MAX: usize = 400;

/// Both sides, rewritten.
pub(super) struct Rewritten {
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) names: Names,
    /// Sources that both sides changed in the same lines; they are settled for a side in both texts.
    pub(super) conflicts: Vec<ValueConflict>,
}

/// Merges sources, and settles which results are taken.
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
        ours: Sheet::new(ours),
        theirs: Sheet::new(theirs),
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
    if let Some(order) = joined_order(&values(&our_common), &values(&their_common)) {
        ours.0.reorder(&in_order(&order, &our_common), ours.1);
        theirs.0.reorder(&in_order(&order, &their_common), theirs.1);
    }
    let (ours, theirs) = (ours.0.text(), theirs.0.text());
    Rewritten { ours, theirs, names, conflicts }
}

/// For each cell of a side, the cell of the base that it was, if the other side has it too.
fn common(side: &[Option<usize>], other: &[Option<usize>]) -> Vec<Option<usize>> {
    let there: std::collections::HashSet<usize> = other.iter().flatten().copied().collect();
    side.iter().map(|found| found.filter(|found| there.contains(found))).collect()
}

fn values(common: &[Option<usize>]) -> Vec<usize> {
    common.iter().flatten().copied().collect()
}

/// Cells of a side by another order of those that all versions have. The others stay behind the cell that they are behind.
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

/// Whose results a cell gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Results {
    Of(Side),
    /// None: neither side has run what the source is now, or somebody has to decide what it is.
    Cleared,
}

struct Rewrite<'n, 'a> {
    base: Option<&'n Notebook<'a>>,
    ours: Sheet<'n, 'a>,
    theirs: Sheet<'n, 'a>,
    settle: Side,
    /// Whose results and environment are taken where nothing else tells. The same side whoever is ours, and in the whole file.
    preferred: Side,
    conflicts: Vec<ValueConflict>,
}

type Maybe<'a> = Option<&'a Node<'a>>;

impl<'n, 'a> Rewrite<'n, 'a> {
    /// Settles what programs write into a notebook that run it, and the version of the format.
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

    /// A cell that the other side has removed: that it was run is no reason to keep it.
    fn removed(&mut self, side: Side, base: &Cell<'a>, cell: &Cell<'a>) {
        let Some(notebook) = self.base else { return };
        if cell.node != base.node && cell.is_but_results(base) {
            let text = self.sheet(side).pasted(&notebook.document, base.node, cell.node);
            self.sheet(side).replace(cell.node, text);
        }
    }

    /// A cell that both sides have.
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

    /// Settles results that both sides changed, and those of a source that is another one now. They are taken together, of
    /// one side.
    fn results(
        &mut self,
        base: Option<&Cell<'a>>,
        ours: &Cell<'a>,
        theirs: &Cell<'a>,
        (source, of_both): (&str, Results),
    ) {
        let of_base: Vec<Maybe<'a>> = match base {
            Some(base) => base.results().collect(),
            None => ours.results().map(|_| None).collect(),
        };
        let three: Vec<[Maybe<'a>; 3]> = of_base
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

    /// Makes both sides hold the value of one.
    fn take(&mut self, [base, ours, theirs]: [Maybe<'a>; 3], results: Results, empty: &str) {
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
            // One side removed it: it is removed, as if the other one had not changed it.
            (Some(there), None, _) | (None, Some(there), _) => {
                let side = if ours.is_some() { Side::Ours } else { Side::Theirs };
                if let (Some(notebook), Some(base)) = (self.base, base) {
                    let text = self.sheet(side).pasted(&notebook.document, base, there);
                    self.sheet(side).replace(there, text);
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
            let written = |document: &Document<'_>, node: Maybe<'_>| {
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
            for (sheet, node) in [(&mut self.ours, our), (&mut self.theirs, their)] {
                let text = sheet.source(node, &merged.text, is_list, &lines);
                sheet.replace(node, text);
            }
        }
        merged
    }

    fn sheet(&mut self, side: Side) -> &mut Sheet<'n, 'a> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }
}

/// Returns whether both sides changed a value, and not to the same.
fn is_changed_by_both([base, ours, theirs]: [Maybe<'_>; 3]) -> bool {
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
    // The last line of a cell has no end, and would be another line as soon as one is added behind it.
    let ended = |text: &str| if text.is_empty() { String::new() } else { format!("{text}\n") };
    let [base, our, their] = [base, ours, theirs].map(ended);
    let (favor, side) = match settle {
        Side::Ours => (Favor::Ours, ours),
        Side::Theirs => (Favor::Theirs, theirs),
    };
    match TextMerge::new(base.as_bytes(), our.as_bytes(), their.as_bytes(), Effort::default()) {
        Err(_) => MergedSource { text: side.to_owned(), is_clean: false },
        Ok(text) => {
            // Whole lines of texts are text.
            let mut merged = String::from_utf8_lossy(&text.favor(favor)).into_owned();
            merged.truncate(merged.strip_suffix('\n').map_or(merged.len(), str::len));
            MergedSource { text: merged, is_clean: text.is_clean() }
        }
    }
}

/// The text of a side, and what is put in where.
struct Sheet<'n, 'a> {
    notebook: &'n Notebook<'a>,
    edits: Vec<(Range<usize>, String)>,
    lists: Option<ListStyle<'a>>,
    letters: Letters,
    end_of_line: &'static str,
}

/// Text between the lines of a source.
#[derive(Debug, Clone, Copy)]
struct ListStyle<'a> {
    open: &'a str,
    between: &'a str,
    close: &'a str,
}

impl<'n, 'a> Sheet<'n, 'a> {
    fn new(notebook: &'n Notebook<'a>) -> Self {
        let text = notebook.document.text;
        let sources = notebook.cells.iter().filter_map(|cell| member(cell.node, "source"));
        let is_crlf = memchr::memchr(b'\n', text.as_bytes()).is_some_and(|at| text[..at].ends_with('\r'));
        let has_escapes = text.is_ascii() && memchr::memmem::find(text.as_bytes(), b"\\u").is_some();
        Self {
            notebook,
            edits: Vec::new(),
            lists: sources.filter_map(|source| list_style(text, source)).next(),
            letters: if has_escapes { Letters::Ascii } else { Letters::All },
            end_of_line: if is_crlf { "\r\n" } else { "\n" },
        }
    }

    fn replace(&mut self, node: &Node<'_>, text: String) {
        self.edits.push((node.span.clone(), text));
    }

    /// A value of another text as it would be written in the place of a value here.
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

    /// A source as it would be written in the place of another one. Lines that are written somewhere are written so.
    fn source(&self, place: &Node<'a>, text: &str, is_list: bool, written: &HashMap<&str, &str>) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 8 + 2);
        if !is_list {
            push_quoted(&mut out, text, self.letters);
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
                None => push_quoted(&mut out, line, self.letters),
            }
        }
        out.push_str(&close);
        out.push(']');
        out
    }

    /// Puts cells in another order.
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

/// A part of a text with other words in some places, which are in order.
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

/// None for what is no list of two lines at least.
fn list_style<'a>(text: &'a str, source: &Node<'_>) -> Option<ListStyle<'a>> {
    let Value::Array([first, second, .., last] | [first, second @ last]) = source.value else { return None };
    let style = ListStyle {
        open: &text[source.span.start + 1..first.span.start],
        between: &text[first.span.end..second.span.start],
        close: text[last.span.end..source.span.end - 1].trim_start_matches(','),
    };
    [style.open, style.between, style.close].iter().all(|part| part.len() <= BETWEEN_MAX).then_some(style)
}

/// Indentation of the line that something begins in.
fn indent(text: &str, at: usize) -> &str {
    let bytes = &text.as_bytes()[..at];
    let from = at.saturating_sub(LOOKED_BACK);
    let start = match memchr::memrchr(b'\n', &bytes[from..]) {
        Some(end) => from + end + 1,
        None if from == 0 => 0,
        None => return "",
    };
    let length = bytes[start..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &text[start..start + length]
}
