//! Notebooks are merged by cell: no edit of a source is lost, and results never conflict.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};
use workspace_merge::{FileSettings, Input, OnConflict, Strategies, Versions, conflict_sides};

use crate::documents::{clean, conflicts, merged, merged_by};
use crate::git::Rng;

const PATH: &str = "a.ipynb";

#[derive(Debug, Clone)]
struct Cell {
    kind: &'static str,
    id: Option<String>,
    lines: Vec<String>,
    /// Execution count and output.
    run: Option<(usize, String)>,
}

fn code(id: &str, source: &str) -> Cell {
    let id = (!id.is_empty()).then(|| id.to_owned());
    Cell { kind: "code", id, lines: source.lines().map(str::to_owned).collect(), run: None }
}

impl Cell {
    fn run(mut self, number: usize, output: &str) -> Self {
        self.run = Some((number, output.to_owned()));
        self
    }

    fn json(&self, form: Form) -> Value {
        let source = self.lines.join("\n");
        let source = match form {
            Form::Lines => json!(source.split_inclusive('\n').collect::<Vec<_>>()),
            Form::Text => json!(source),
        };
        let mut cell = json!({"cell_type": self.kind, "metadata": {}, "source": source});
        if let Some(id) = &self.id {
            cell["id"] = json!(id);
        }
        if self.kind == "code" {
            let (number, outputs) = match &self.run {
                None => (Value::Null, json!([])),
                Some((number, text)) => {
                    let output = json!({"name": "stdout", "output_type": "stream", "text": [text]});
                    (json!(number), json!([output]))
                }
            };
            cell["execution_count"] = number;
            cell["outputs"] = outputs;
        }
        cell
    }
}

/// Format of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    Text,
}

#[derive(Debug, Clone)]
struct Notebook {
    cells: Vec<Cell>,
    language: String,
}

impl Notebook {
    fn new(cells: impl Into<Vec<Cell>>) -> Self {
        Self { cells: cells.into(), language: "3.10.4".to_owned() }
    }

    fn text(&self, form: Form, indent: &str) -> String {
        let has_ids = self.cells.iter().any(|cell| cell.id.is_some());
        let notebook = json!({
            "cells": self.cells.iter().map(|cell| cell.json(form)).collect::<Vec<_>>(),
            "metadata": {
                "kernelspec": {"display_name": "Python 3", "name": "python3"},
                "language_info": {"name": "python", "version": self.language},
            },
            "nbformat": 4,
            "nbformat_minor": if has_ids { 5 } else { 4 },
        });
        let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
        let mut text = Vec::new();
        serde::Serialize::serialize(
            &notebook,
            &mut serde_json::Serializer::with_formatter(&mut text, formatter),
        )
        .unwrap();
        String::from_utf8(text).unwrap() + "\n"
    }
}

fn written(cells: impl Into<Vec<Cell>>) -> String {
    Notebook::new(cells).text(Form::Lines, " ")
}

/// Returns type, source and execution count of all cells.
fn read(text: &str) -> Vec<(String, String, Value)> {
    let notebook: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let cells = notebook["cells"].as_array().expect("a notebook has cells");
    let source = |cell: &Value| match &cell["source"] {
        Value::String(text) => text.clone(),
        lines => lines.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect(),
    };
    let kind = |cell: &Value| cell["cell_type"].as_str().unwrap().to_owned();
    cells.iter().map(|cell| (kind(cell), source(cell), cell["execution_count"].clone())).collect()
}

fn sources(text: &str) -> Vec<String> {
    read(text).into_iter().map(|(_, source, _)| source).collect()
}

#[test]
fn notebooks_are_merged_by_cell() {
    for ids in [["a", "b", "ours", "theirs"], [""; 4]] {
        let [a, b, our, their] = ids;
        let (one, two) = (code(a, "one = 1"), code(b, "two = 2\nprint(two)"));
        let base = written([one.clone(), two.clone()]);
        let ours = written([one.clone(), two, code(our, "from_ours()")]);
        let changed = code(b, "two = 20\nprint(two)");
        let theirs = written([one.clone(), changed.clone(), code(their, "theirs = 4")]);
        let merged = clean(PATH, Some(&base), &ours, &theirs);
        let mut found = sources(&merged);
        assert_eq!(&found[..2], ["one = 1", "two = 20\nprint(two)"], "{merged}");
        found.sort();
        assert_eq!(found, ["from_ours()", "one = 1", "theirs = 4", "two = 20\nprint(two)"]);
        // The result does not depend on which side is ours.
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), merged);
        let added = if sources(&merged)[2] == "from_ours()" {
            [code(our, "from_ours()"), code(their, "theirs = 4")]
        } else {
            [code(their, "theirs = 4"), code(our, "from_ours()")]
        };
        assert_eq!(merged, written([vec![one, changed], added.to_vec()].concat()));
    }
}

#[test]
fn results_do_not_conflict() {
    for id in ["a", ""] {
        let cell = |source: &str, number: usize, output: &str| code(id, source).run(number, output);
        let base = written([cell("x = 1\ny = 2\nprint(x)", 1, "1")]);
        // Both sides only ran it: one of the results, with its execution count.
        let (ours, theirs) = (
            written([cell("x = 1\ny = 2\nprint(x)", 7, "ours")]),
            written([cell("x = 1\ny = 2\nprint(x)", 9, "theirs")]),
        );
        let merged = clean(PATH, Some(&base), &ours, &theirs);
        assert!(merged == ours || merged == theirs, "{merged}");
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), merged);
        // One side also changed the source: its results, since they belong to that source.
        let theirs = written([cell("x = 1\ny = 2\nprint(x + y)", 9, "theirs")]);
        assert_eq!(clean(PATH, Some(&base), &ours, &theirs), theirs);
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), theirs);
        // Both changed it: neither has run the merged source.
        let ours = written([cell("x = 5\ny = 2\nprint(x)", 7, "ours")]);
        let expected = written([code(id, "x = 5\ny = 2\nprint(x + y)")]);
        assert_eq!(clean(PATH, Some(&base), &ours, &theirs), expected);
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), expected);
        // One changed the source and ran it, the other only changed it: neither has run the merged source.
        let theirs = written([cell("x = 1\ny = 2\nprint(x + y)", 1, "1")]);
        assert_eq!(clean(PATH, Some(&base), &ours, &theirs), expected);
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), expected);
        // One changed the source, the other ran the old one.
        let ours = written([cell("x = 1\ny = 2\nprint(x)", 7, "ours")]);
        let expected = written([code(id, "x = 1\ny = 2\nprint(x + y)")]);
        assert_eq!(clean(PATH, Some(&base), &ours, &theirs), expected);
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), expected);
        // A cell that one side ran and the other removed is removed; a changed cell is not.
        let other = code("b", "z = 3");
        let [base, ran, gone, edited] = [
            vec![cell("x = 1", 1, "1"), other.clone()],
            vec![cell("x = 1", 2, "2"), other.clone()],
            vec![other.clone()],
            vec![cell("x = 2", 2, "2"), other.clone()],
        ]
        .map(written);
        for (ours, theirs) in [(&ran, &gone), (&gone, &ran)] {
            assert_eq!(sources(&clean(PATH, Some(&base), ours, theirs)), ["z = 3"]);
        }
        for (ours, theirs) in [(&edited, &gone), (&gone, &edited)] {
            let place = if id.is_empty() { "cells[0]" } else { "cells[id=a]" };
            assert_eq!(conflicts(PATH, Some(&base), ours, theirs), [place]);
        }
    }
}

#[test]
fn timestamps_and_versions_do_not_conflict() {
    let notebook = |time: Option<&str>, version: &str, minor: usize, id: Option<&str>| {
        let execution =
            time.map_or_else(|| json!({}), |time| json!({"execution": {"iopub.status.busy": time}}));
        let mut cell = json!({
            "cell_type": "code", "execution_count": time.map(str::len), "metadata": execution, "outputs": [],
            "source": ["x = 1"],
        });
        if let Some(id) = id {
            cell["id"] = json!(id);
        }
        let notebook = json!({
            "cells": [cell],
            "metadata": {
                "kernelspec": {"name": version, "display_name": "Python 3"},
                "language_info": {"name": "python", "version": version, "pygments_lexer": "ipython3"},
            },
            "nbformat": 4, "nbformat_minor": minor,
        });
        serde_json::to_string_pretty(&notebook).unwrap()
    };
    let base = notebook(None, "3.8.0", 2, None);
    let ours = notebook(Some("10:00"), "3.9.1", 5, Some("our-id"));
    let theirs = notebook(Some("11:000"), "3.10.2", 4, Some("their-id"));
    let merged = clean(PATH, Some(&base), &ours, &theirs);
    assert_eq!(clean(PATH, Some(&base), &theirs, &ours), merged);
    let merged: Value = serde_json::from_str(&merged).unwrap();
    let [ours, theirs] = [ours, theirs].map(|text| serde_json::from_str::<Value>(&text).unwrap());
    // Everything from one side, except the format version, which is the later one.
    assert!([&ours, &theirs].iter().any(|side| side["cells"] == merged["cells"]), "{merged}");
    assert!([&ours, &theirs].iter().any(|side| side["metadata"] == merged["metadata"]), "{merged}");
    assert_eq!(merged["nbformat_minor"], 5);
}

#[test]
fn sources_keep_their_format_and_indentation() {
    for form in [Form::Lines, Form::Text] {
        for indent in [" ", "    ", "\t"] {
            let text = |source: &str| Notebook::new([code("", source)]).text(form, indent);
            let base = text("é = 1\nb = 2\nc = \"\\n\"\nd = 4");
            let ours = text("é = 10\nb = 2\nc = \"\\n\"\nd = 4");
            let theirs = text("é = 1\nb = 2\nc = \"\\n\"\nd = 4\ne = 5");
            let merged = clean(PATH, Some(&base), &ours, &theirs);
            assert_eq!(merged, text("é = 10\nb = 2\nc = \"\\n\"\nd = 4\ne = 5"), "{form:?}");
        }
    }
    // One side has other indentation.
    let base = Notebook::new([code("", "a = 1\nb = 2\nc = 3").run(1, "x")]);
    let mut ours = base.clone();
    ours.cells[0] = code("", "a = 10\nb = 2\nc = 3").run(2, "y");
    let mut theirs = base.clone();
    theirs.cells[0] = code("", "a = 1\nb = 2\nc = 30").run(3, "z");
    let expected = Notebook::new([code("", "a = 10\nb = 2\nc = 30")]).text(Form::Lines, "  ");
    let [ours, theirs] = [ours.text(Form::Lines, "  "), theirs.text(Form::Text, "    ")];
    assert_eq!(clean(PATH, Some(&base.text(Form::Lines, " ")), &ours, &theirs), expected);
}

#[test]
fn moved_cells_keep_edits_of_the_other_side() {
    let all = ["a", "b", "c", "d"];
    for with_ids in [true, false] {
        let cell = |name: &str, source: &str| code(if with_ids { name } else { "" }, source);
        let cells = |order: &[usize], changed: Option<usize>| {
            let cells = order.iter().map(|at| {
                let more = if changed == Some(*at) { "\nmore()" } else { "" };
                cell(all[*at], &format!("def {}():\n  return {at}{more}", all[*at].repeat(20)))
            });
            written(cells.collect::<Vec<_>>())
        };
        let base = cells(&[0, 1, 2, 3], None);
        let merged = clean(PATH, Some(&base), &cells(&[1, 2, 3, 0], None), &cells(&[0, 1, 2, 3], Some(0)));
        assert_eq!(merged, cells(&[1, 2, 3, 0], Some(0)));
        // Each side moved a different cell.
        let [one, other] = [cells(&[1, 0, 2, 3], None), cells(&[0, 1, 3, 2], Some(1))];
        assert_eq!(clean(PATH, Some(&base), &one, &other), cells(&[1, 0, 3, 2], Some(1)));
        assert_eq!(clean(PATH, Some(&base), &other, &one), cells(&[1, 0, 3, 2], Some(1)));
    }
    // Both moved the same cell to different positions.
    let cells = |order: &[usize]| {
        let cell = |at: &usize| code(all[*at], &format!("def {}():\n  return {at}", all[*at].repeat(20)));
        written(order.iter().map(cell).collect::<Vec<_>>())
    };
    let base = cells(&[0, 1, 2, 3]);
    assert_eq!(conflicts(PATH, Some(&base), &cells(&[3, 0, 1, 2]), &cells(&[0, 3, 1, 2])), ["cells"]);
}

#[test]
fn positional_ids_do_not_identify_cells() {
    let (plot_a, plot_b) = ("import x\nplot(a)\nshow()", "import x\nplot(b)\nshow()");
    for prefix in ["", "cell-"] {
        let numbered = |sources: &[&str]| {
            let cells = sources.iter().enumerate().map(|(at, source)| code(&format!("{prefix}{at}"), source));
            written(cells.collect::<Vec<_>>())
        };
        let base = numbered(&[plot_a, plot_b, "c = 1"]);
        let inserted = numbered(&["n = 0", plot_a, plot_b, "c = 1"]);
        let edited = numbered(&[plot_a, "import x\nplot(b)\nshow()\nsave()", "c = 1"]);
        let expected = numbered(&["n = 0", plot_a, "import x\nplot(b)\nshow()\nsave()", "c = 1"]);
        assert_eq!(clean(PATH, Some(&base), &inserted, &edited), expected);
        assert_eq!(clean(PATH, Some(&base), &edited, &inserted), expected);
    }
}

#[test]
fn long_separators_are_not_repeated() {
    let lines = |first: &str, last: &str| {
        let many = (0..5_000).map(|number| format!("\"{number}\\n\"")).collect::<Vec<_>>().join(", ");
        let wide = " ".repeat(200_000);
        format!(
            "{{\"cells\": [{{\"cell_type\": \"raw\", \"metadata\": {{}}, \"source\": \
             [\"{first}\\n\",{wide}{many}, \"{last}\"]}}], \"metadata\": {{}}, \"nbformat\": 4, \"nbformat_minor\": 4}}\n"
        )
    };
    let (base, ours, theirs) = (lines("a", "z"), lines("b", "z"), lines("a", "y"));
    let merged = clean(PATH, Some(&base), &ours, &theirs);
    assert!(merged.len() < 2 * base.len(), "{}", merged.len());
    let source = sources(&merged).remove(0);
    assert!(source.starts_with("b\n0\n") && source.ends_with("4999\ny"), "{}", source.len());
}

#[test]
fn cells_added_by_both_appear_once() {
    for with_ids in [true, false] {
        let cell = |id: &str, source: &str| code(if with_ids { id } else { "" }, source);
        let end = [cell("first", "first()"), cell("last", "last()")];
        let around = |cells: Vec<Cell>| written([vec![end[0].clone()], cells, vec![end[1].clone()]].concat());
        let base = around(Vec::new());
        let ours = around(vec![cell("x1", "import os"), cell("x2", "a()"), cell("x3", "b()")]);
        let theirs = around(vec![cell("y1", "import os"), cell("y2", "c()"), cell("y3", "d()")]);
        let merged = clean(PATH, Some(&base), &ours, &theirs);
        let sources = sources(&merged);
        let middle = sources[2..6].join(" ");
        assert!(["a() b() c() d()", "c() d() a() b()"].contains(&middle.as_str()), "{sources:?}");
        assert_eq!((sources.len(), sources[1].as_str()), (7, "import os"), "{sources:?}");
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), merged);
    }
    // Equal cells in different positions are two cells.
    let base = written([code("", "one()"), code("", "two()"), code("", "three()")]);
    let ours = written([code("", "one()"), code("", "show()"), code("", "two()"), code("", "three()")]);
    let theirs = written([code("", "one()"), code("", "two()"), code("", "three()"), code("", "show()")]);
    let merged = clean(PATH, Some(&base), &ours, &theirs);
    assert_eq!(sources(&merged), ["one()", "show()", "two()", "three()", "show()"]);
}

#[test]
fn conflicts_are_limited_to_the_source_of_a_cell() {
    let cells = |x: &str, y: usize, z: usize, run: usize| {
        let first = code("a", &format!("import os\nx = {x}\nprint(x)\nz = {z}")).run(run, &run.to_string());
        written([first, code("b", &format!("y = {y}"))])
    };
    let (base, ours, theirs) = (cells("1", 1, 1, 1), cells("2", 2, 1, 2), cells("3", 1, 2, 3));
    let merge = merged(PATH, Some(&base), &ours, &theirs);
    let conflict = merge.conflict.clone().unwrap();
    assert_eq!(conflicts(PATH, Some(&base), &ours, &theirs), ["cells[id=a].source"]);
    assert_eq!((conflict.strategy, conflict.locations.len()), ("notebook", 1));
    let versions = Versions { base: Some(base.as_bytes()), ours: ours.as_bytes(), theirs: theirs.as_bytes() };
    let (strategies, settings) = (Strategies::default(), FileSettings::default());
    let halves = conflict_sides(&strategies, &settings, &Input::new(PATH, versions)).unwrap().unwrap();
    let halves = halves.map(|half| String::from_utf8(half).unwrap());
    // Each side is a notebook with everything else merged.
    for (half, x) in halves.iter().zip(["2", "3"]) {
        let expected = [format!("import os\nx = {x}\nprint(x)\nz = 2"), "y = 2".to_owned()];
        assert_eq!(sources(half), expected);
    }
    let differ = halves[0].lines().zip(halves[1].lines()).filter(|(one, other)| one != other);
    assert_eq!(differ.collect::<Vec<_>>(), [("    \"x = 2\\n\",", "    \"x = 3\\n\",")]);
    for (on_conflict, half) in [(OnConflict::Ours, &halves[0]), (OnConflict::Theirs, &halves[1])] {
        let settings = FileSettings { on_conflict, ..FileSettings::default() };
        let resolved = merged_by(&settings, PATH, Some(&base), &ours, &theirs);
        assert_eq!(resolved.merged.content, half.as_bytes());
    }
}

#[test]
fn notebooks_added_by_both_are_merged() {
    let [ours, theirs] = [["same()", "ours()"], ["same()", "theirs()"]]
        .map(|sources| written(sources.map(|source| code("", source))));
    let mut merged = sources(&clean(PATH, None, &ours, &theirs));
    merged.sort();
    assert_eq!(merged, ["ours()", "same()", "theirs()"]);
}

#[test]
fn invalid_notebooks_are_merged_as_json_or_lines() {
    let says = |path: &str, [base, ours, theirs]: [&str; 3]| {
        let merged = merged(path, Some(base), ours, theirs);
        let content = String::from_utf8(merged.merged.content).unwrap();
        (merged.conflict.map(|conflict| conflict.strategy), content)
    };
    assert_eq!(
        says(PATH, ["{\"a\":1,\"b\":1}", "{\"a\":2,\"b\":1}", "{\"a\":1,\"b\":2}"]),
        (None, "{\"a\":2,\"b\":2}".to_owned())
    );
    assert_eq!(says(PATH, ["1\n", "2\n", "3\n"]).0, Some("json"));
    assert_eq!(says(PATH, ["{", "{1", "{2"]).0, Some("text"));
    let deep = |text: &str| format!("{{\"nbformat\":4,\"cells\":{}{text}", "[".repeat(10_000));
    assert_eq!(says(PATH, [&deep("1"), &deep("2"), &deep("3")]).0, Some("text"));
    // Other format versions, invalid cells, and comments.
    let cell = r#"{"cell_type":"code","source":"x"}"#;
    for text in [
        r#"{"nbformat":3,"worksheets":[{"cells":[]}],"n":1}"#.to_owned(),
        format!(r#"{{"nbformat":"4","cells":[{cell}],"n":1}}"#),
        format!(r#"{{"cells":[{cell}],"n":1}}"#),
        r#"{"nbformat":4,"cells":[{"cell_type":"code"}],"n":1}"#.to_owned(),
        r#"{"nbformat":4,"cells":[{"cell_type":1,"source":"x"}],"n":1}"#.to_owned(),
        r#"{"nbformat":4,"cells":[{"cell_type":"code","source":[1]}],"n":1}"#.to_owned(),
        r#"{"nbformat":4,"cells":[1],"n":1}"#.to_owned(),
        r#"{"nbformat":4,"cells":{},"n":1}"#.to_owned(),
        format!(r#"{{"nbformat":4,/**/"cells":[{cell}],"n":1}}"#),
    ] {
        let [ours, theirs] = ["\"n\":2}", "\"n\":3}"].map(|end| text.replace("\"n\":1}", end));
        assert_eq!(says(PATH, [&text, &ours, &theirs]).0, Some("json"), "{text}");
    }
}

#[test]
fn large_notebooks_merge_in_bounded_time() {
    let huge = "o".repeat(2_000_000);
    let with_output =
        |number: usize, source: &str| written([code("", source).run(number, &huge), code("b", "b")]);
    let merged_text = clean(PATH, Some(&with_output(1, "a")), &with_output(2, "a"), &with_output(3, "a\nc"));
    assert_eq!(sources(&merged_text), ["a\nc", "b"]);
    // At the limit, each cell changed by one side: with ids, with the same id everywhere, and without ids.
    let count = 10_000;
    let large = |id: &dyn Fn(usize) -> String, by: usize| {
        let cell = |at: usize| {
            let changed = if by < 2 && at % 2 == by { "!" } else { "" };
            let id = id(at);
            let id = if id.is_empty() { String::new() } else { format!("\"id\":\"{id}\",") };
            format!(
                "{{\"cell_type\":\"code\",{id}\"source\":[\"call number {at}{changed}\"],\"outputs\":[],\"execution_count\":{by}}}"
            )
        };
        let cells: Vec<_> = (0..count).map(cell).collect();
        format!("{{\"cells\":[\n{}\n],\"nbformat\":4}}\n", cells.join(",\n"))
    };
    let ids: [&dyn Fn(usize) -> String; 3] =
        [&|at| format!("id{at}"), &|_| "same".to_owned(), &|_| String::new()];
    for id in ids {
        let [base, ours, theirs] = [2, 0, 1].map(|by| large(id, by));
        let merged = sources(&clean(PATH, Some(&base), &ours, &theirs));
        assert!(merged.iter().enumerate().all(|(at, source)| *source == format!("call number {at}!")));
    }
    // Nothing in common, and everything equal.
    let all_of = |word: &str| {
        let cells =
            (0..count).map(|at| format!("{{\"cell_type\":\"code\",\"source\":\"{word}{}\"}}", at % 3));
        format!("{{\"cells\":[{}],\"nbformat\":4}}", cells.collect::<Vec<_>>().join(","))
    };
    let merge = merged(PATH, Some(&all_of("a b c d ")), &all_of("a b c e "), &all_of("x y z "));
    assert!(merge.conflict.is_some());
}

/// Returns a notebook after random edits by one author. All lines are unique, so that a test can tell the
/// author of each.
fn randomly_edited(notebook: &Notebook, rng: &mut Rng, by: &str) -> Notebook {
    let mut edited = notebook.clone();
    let mut next = 0;
    let mut line = || {
        next += 1;
        format!("{by}_{next} = compute({next})")
    };
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(edited.cells.len());
        let place = rng.below(edited.cells[at].lines.len() + 1);
        let cell = &mut edited.cells[at];
        match rng.below(8) {
            0..3 => cell.lines.insert(place, line()),
            3..5 if place < cell.lines.len() => cell.lines[place] = line(),
            5 if place < cell.lines.len() && cell.lines.len() > 1 => drop(cell.lines.remove(place)),
            6 if edited.cells.len() > 2 => drop(edited.cells.remove(at)),
            _ => {
                let id = notebook.cells[0].id.is_some().then(|| format!("{by}-{}", rng.below(1_000_000)));
                edited.cells.insert(at, Cell { kind: "code", id, lines: vec![line(), line()], run: None });
            }
        }
    }
    // Most people run what they have changed.
    if rng.below(4) > 0 {
        let first = 1 + rng.below(5);
        for (number, cell) in edited.cells.iter_mut().filter(|cell| cell.kind == "code").enumerate() {
            cell.run = Some((first + number, format!("{by}: {}", rng.below(1000))));
        }
        if rng.below(3) == 0 {
            edited.language = format!("3.11.{}", rng.below(9));
        }
    }
    edited
}

fn lines_of(text: &str) -> BTreeSet<String> {
    let lines =
        sources(text).into_iter().flat_map(|source| source.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.collect()
}

/// Returns whether git merges the versions without a conflict.
fn git_merges(directory: &std::path::Path, versions: [&str; 3]) -> bool {
    let names = ["ours", "base", "theirs"];
    for (name, text) in names.iter().zip(versions) {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let run = Command::new("git").arg("merge-file").arg("-p").args(names).current_dir(directory).output();
    run.expect("git runs").status.success()
}

#[test]
fn no_edit_is_lost_and_everything_git_merges_is_merged() {
    let directory = tempfile::tempdir().unwrap();
    let (mut by_git, mut by_us, count) = (0, 0, 240);
    for seed in 0..count {
        let mut rng = Rng(seed);
        let has_ids = seed % 2 == 0;
        let cells = (0..3 + rng.below(8)).map(|at| {
            let length = 1 + rng.below(6);
            let kind = if rng.below(4) == 0 { "markdown" } else { "code" };
            Cell {
                kind,
                id: has_ids.then(|| format!("cell-{at}")),
                lines: (0..length).map(|line| format!("base_{at}_{line} = load({at}, {line})")).collect(),
                run: (kind == "code").then(|| (at + 1, format!("base: {at}"))),
            }
        });
        let base = Notebook::new(cells.collect::<Vec<_>>());
        let (ours, theirs) =
            (randomly_edited(&base, &mut rng, "ours"), randomly_edited(&base, &mut rng, "theirs"));
        let form = if seed % 5 == 0 { Form::Text } else { Form::Lines };
        let [base, ours, theirs] = [base, ours, theirs].map(|notebook| notebook.text(form, " "));
        let git = git_merges(directory.path(), [&ours, &base, &theirs]);
        by_git += usize::from(git);
        let merge = merged(PATH, Some(&base), &ours, &theirs);
        let swapped = merged(PATH, Some(&base), &theirs, &ours);
        assert_eq!(merge.conflict.is_none(), swapped.conflict.is_none(), "{seed}");
        if let Some(conflict) = merge.conflict {
            assert!(!git, "{seed}: git merges it: {conflict:?}\n{base}\n{ours}\n{theirs}");
            continue;
        }
        by_us += 1;
        let [merged, swapped] =
            [merge, swapped].map(|merge| String::from_utf8(merge.merged.content).unwrap());
        assert_eq!(read(&merged), read(&swapped), "{seed}");
        let [in_base, in_ours, in_theirs] = [&base, &ours, &theirs].map(|text| lines_of(text));
        let expected: BTreeSet<String> = in_ours
            .union(&in_theirs)
            .filter(|line| !in_base.contains(*line) || (in_ours.contains(*line) && in_theirs.contains(*line)))
            .cloned()
            .collect();
        assert_eq!(lines_of(&merged), expected, "{seed}");
    }
    println!("of {count} notebooks, git merges {by_git}, cells {by_us}");
    assert!(by_us > 2 * by_git, "of {count} notebooks, git merges {by_git}, cells {by_us}");
}
