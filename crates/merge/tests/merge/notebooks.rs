//! Merges of Jupyter notebooks, cell by cell: no edit of a source is lost, and the results of runs (outputs and
//! execution counts) never conflict.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};
use workspace_merge::{FileSettings, Input, OnConflict, Strategies, Versions, conflict_sides};

use crate::documents::{clean, conflicts, merged, merged_by};
use crate::git::Rng;

const PATH: &str = "a.ipynb";

/// Cell of a notebook.
#[derive(Debug, Clone)]
struct Cell {
    /// Type: `code` or `markdown`.
    kind: &'static str,
    id: Option<String>,
    /// Lines of the source.
    lines: Vec<String>,
    /// Execution count and output; `None` if the cell did not run.
    run: Option<(usize, String)>,
}

/// Creates a code cell; without an id if `id` is empty.
fn code(id: &str, source: &str) -> Cell {
    let id = (!id.is_empty()).then(|| id.to_owned());
    Cell { kind: "code", id, lines: source.lines().map(str::to_owned).collect(), run: None }
}

impl Cell {
    /// Sets the execution count and the output.
    fn run(mut self, number: usize, output: &str) -> Self {
        self.run = Some((number, output.to_owned()));
        self
    }

    fn json(&self, format: SourceFormat) -> Value {
        let source = self.lines.join("\n");
        let source = match format {
            SourceFormat::Lines => json!(source.split_inclusive('\n').collect::<Vec<_>>()),
            SourceFormat::Text => json!(source),
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

/// Format of sources in a notebook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceFormat {
    /// Array of lines.
    Lines,
    /// Single string.
    Text,
}

/// Notebook in Python.
#[derive(Debug, Clone)]
struct Notebook {
    cells: Vec<Cell>,
    /// Version of Python that ran the notebook.
    language_version: String,
}

impl Notebook {
    fn new(cells: impl Into<Vec<Cell>>) -> Self {
        Self { cells: cells.into(), language_version: "3.10.4".to_owned() }
    }

    /// Writes the notebook.
    fn text(&self, format: SourceFormat, indent: &str) -> String {
        let has_ids = self.cells.iter().any(|cell| cell.id.is_some());
        let notebook = json!({
            "cells": self.cells.iter().map(|cell| cell.json(format)).collect::<Vec<_>>(),
            "metadata": {
                "kernelspec": {"display_name": "Python 3", "name": "python3"},
                "language_info": {"name": "python", "version": self.language_version},
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

/// Writes a notebook of these cells.
fn written(cells: impl Into<Vec<Cell>>) -> String {
    Notebook::new(cells).text(SourceFormat::Lines, " ")
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

/// Returns the sources of all cells.
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
        // Both sides only ran the cell: the outputs and the execution count of one side are taken.
        let (ours, theirs) = (
            written([cell("x = 1\ny = 2\nprint(x)", 7, "ours")]),
            written([cell("x = 1\ny = 2\nprint(x)", 9, "theirs")]),
        );
        let merged = clean(PATH, Some(&base), &ours, &theirs);
        assert!(merged == ours || merged == theirs, "{merged}");
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), merged);
        // One side also changed the source: the results of that side are taken, since they belong to the merged source.
        let theirs = written([cell("x = 1\ny = 2\nprint(x + y)", 9, "theirs")]);
        assert_eq!(clean(PATH, Some(&base), &ours, &theirs), theirs);
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), theirs);
        // Both sides changed the source: neither side ran the merged source, so the results are cleared.
        let ours = written([cell("x = 5\ny = 2\nprint(x)", 7, "ours")]);
        let expected = written([code(id, "x = 5\ny = 2\nprint(x + y)")]);
        assert_eq!(clean(PATH, Some(&base), &ours, &theirs), expected);
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), expected);
        // The results of both sides are equal, but belong to other sources.
        let [ours_equal, theirs_equal] = ["x = 5\ny = 2\nprint(x)", "x = 1\ny = 2\nprint(x + y)"]
            .map(|source| written([cell(source, 7, "both")]));
        assert_eq!(clean(PATH, Some(&base), &ours_equal, &theirs_equal), expected);
        // Both sides changed the source, and only our side ran its version: neither side ran the merged source.
        let theirs = written([cell("x = 1\ny = 2\nprint(x + y)", 1, "1")]);
        assert_eq!(clean(PATH, Some(&base), &ours, &theirs), expected);
        assert_eq!(clean(PATH, Some(&base), &theirs, &ours), expected);
        // One side changed the source, the other side ran the old source.
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
            let path = if id.is_empty() { "cells[0]" } else { "cells[id=a]" };
            assert_eq!(conflicts(PATH, Some(&base), ours, theirs), [path]);
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
    // The base was never run, and its cell has no id.
    let base = notebook(None, "3.8.0", 2, None);
    let ours = notebook(Some("10:00"), "3.9.1", 5, Some("our-id"));
    let theirs = notebook(Some("11:000"), "3.10.2", 4, Some("their-id"));
    let merged = clean(PATH, Some(&base), &ours, &theirs);
    assert_eq!(clean(PATH, Some(&base), &theirs, &ours), merged);
    let merged: Value = serde_json::from_str(&merged).unwrap();
    let [ours, theirs] = [ours, theirs].map(|text| serde_json::from_str::<Value>(&text).unwrap());
    // Everything is from one side, except the minor version of the format, which is the larger one.
    assert!([&ours, &theirs].iter().any(|side| side["cells"] == merged["cells"]), "{merged}");
    assert!([&ours, &theirs].iter().any(|side| side["metadata"] == merged["metadata"]), "{merged}");
    assert_eq!(merged["nbformat_minor"], 5);
}

#[test]
fn sources_keep_their_format_and_indentation() {
    for format in [SourceFormat::Lines, SourceFormat::Text] {
        for indent in [" ", "    ", "\t"] {
            let text = |source: &str| Notebook::new([code("", source)]).text(format, indent);
            let base = text("é = 1\nb = 2\nc = \"\\n\"\nd = 4");
            let ours = text("é = 10\nb = 2\nc = \"\\n\"\nd = 4");
            let theirs = text("é = 1\nb = 2\nc = \"\\n\"\nd = 4\ne = 5");
            let merged = clean(PATH, Some(&base), &ours, &theirs);
            assert_eq!(merged, text("é = 10\nb = 2\nc = \"\\n\"\nd = 4\ne = 5"), "{format:?}");
        }
    }
    // The sides have different formats and indentations.
    let base = Notebook::new([code("", "a = 1\nb = 2\nc = 3").run(1, "x")]);
    let mut ours = base.clone();
    ours.cells[0] = code("", "a = 10\nb = 2\nc = 3").run(2, "y");
    let mut theirs = base.clone();
    theirs.cells[0] = code("", "a = 1\nb = 2\nc = 30").run(3, "z");
    let expected = Notebook::new([code("", "a = 10\nb = 2\nc = 30")]).text(SourceFormat::Lines, "  ");
    let [ours, theirs] = [ours.text(SourceFormat::Lines, "  "), theirs.text(SourceFormat::Text, "    ")];
    assert_eq!(clean(PATH, Some(&base.text(SourceFormat::Lines, " ")), &ours, &theirs), expected);
}

#[test]
fn moved_cells_keep_edits_of_the_other_side() {
    let names = ["a", "b", "c", "d"];
    for with_ids in [true, false] {
        let cell = |name: &str, source: &str| code(if with_ids { name } else { "" }, source);
        // `order` has the index in the base of each cell; the side edited the cell `changed`, or none.
        let cells = |order: &[usize], changed: Option<usize>| {
            let cells = order.iter().map(|index| {
                let more = if changed == Some(*index) { "\nmore()" } else { "" };
                let name = names[*index];
                cell(name, &format!("def {}():\n  return {index}{more}", name.repeat(20)))
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
    // Both sides moved the same cell to different positions.
    let cells = |order: &[usize]| {
        let cell = |index: &usize| {
            let name = names[*index];
            code(name, &format!("def {}():\n  return {index}", name.repeat(20)))
        };
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
            let cells =
                sources.iter().enumerate().map(|(index, source)| code(&format!("{prefix}{index}"), source));
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
    // A notebook with many lines, and much whitespace between the first two.
    let notebook = |first: &str, last: &str| {
        let many = (0..5_000).map(|number| format!("\"{number}\\n\"")).collect::<Vec<_>>().join(", ");
        let wide = " ".repeat(200_000);
        format!(
            "{{\"cells\": [{{\"cell_type\": \"raw\", \"metadata\": {{}}, \"source\": \
             [\"{first}\\n\",{wide}{many}, \"{last}\"]}}], \"metadata\": {{}}, \"nbformat\": 4, \"nbformat_minor\": 4}}\n"
        )
    };
    let (base, ours, theirs) = (notebook("a", "z"), notebook("b", "z"), notebook("a", "y"));
    let merged = clean(PATH, Some(&base), &ours, &theirs);
    assert!(merged.len() < 2 * base.len(), "{}", merged.len());
    let source = sources(&merged).remove(0);
    assert!(source.starts_with("b\n0\n") && source.ends_with("4999\ny"), "{}", source.len());
}

#[test]
fn cells_added_by_both_appear_once() {
    for with_ids in [true, false] {
        let cell = |id: &str, source: &str| code(if with_ids { id } else { "" }, source);
        let ends = [cell("first", "first()"), cell("last", "last()")];
        let with_cells_between =
            |cells: Vec<Cell>| written([vec![ends[0].clone()], cells, vec![ends[1].clone()]].concat());
        let base = with_cells_between(Vec::new());
        let ours = with_cells_between(vec![cell("x1", "import os"), cell("x2", "a()"), cell("x3", "b()")]);
        let theirs = with_cells_between(vec![cell("y1", "import os"), cell("y2", "c()"), cell("y3", "d()")]);
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
    let notebook = |x: &str, y: usize, z: usize, run: usize| {
        let first = code("a", &format!("import os\nx = {x}\nprint(x)\nz = {z}")).run(run, &run.to_string());
        written([first, code("b", &format!("y = {y}"))])
    };
    let (base, ours, theirs) = (notebook("1", 1, 1, 1), notebook("2", 2, 1, 2), notebook("3", 1, 2, 3));
    let merge = merged(PATH, Some(&base), &ours, &theirs);
    let conflict = merge.conflict.clone().unwrap();
    assert_eq!(conflicts(PATH, Some(&base), &ours, &theirs), ["cells[id=a].source"]);
    assert_eq!((conflict.strategy, conflict.locations.len()), ("notebook", 1));
    let versions = Versions { base: Some(base.as_bytes()), ours: ours.as_bytes(), theirs: theirs.as_bytes() };
    let (strategies, settings) = (Strategies::default(), FileSettings::default());
    let resolved_sides =
        conflict_sides(&strategies, &settings, &Input::new(PATH, versions)).unwrap().unwrap();
    let resolved_sides = resolved_sides.map(|text| String::from_utf8(text).unwrap());
    // Each side is a notebook with all other changes merged.
    for (text, x) in resolved_sides.iter().zip(["2", "3"]) {
        let expected = [format!("import os\nx = {x}\nprint(x)\nz = 2"), "y = 2".to_owned()];
        assert_eq!(sources(text), expected);
    }
    let pairs = resolved_sides[0].lines().zip(resolved_sides[1].lines());
    let different_lines = pairs.filter(|(our, their)| our != their);
    assert_eq!(different_lines.collect::<Vec<_>>(), [("    \"x = 2\\n\",", "    \"x = 3\\n\",")]);
    let rules = [OnConflict::Ours, OnConflict::Theirs];
    for (on_conflict, expected) in rules.into_iter().zip(&resolved_sides) {
        let settings = FileSettings { on_conflict, ..FileSettings::default() };
        let resolved = merged_by(&settings, PATH, Some(&base), &ours, &theirs);
        assert_eq!(resolved.merged.content, expected.as_bytes());
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
    // Returns the strategy that reported a conflict, if any, and the merged text.
    let merge = |path: &str, [base, ours, theirs]: [&str; 3]| {
        let merged = merged(path, Some(base), ours, theirs);
        let content = String::from_utf8(merged.merged.content).unwrap();
        (merged.conflict.map(|conflict| conflict.strategy), content)
    };
    assert_eq!(
        merge(PATH, ["{\"a\":1,\"b\":1}", "{\"a\":2,\"b\":1}", "{\"a\":1,\"b\":2}"]),
        (None, "{\"a\":2,\"b\":2}".to_owned())
    );
    assert_eq!(merge(PATH, ["1\n", "2\n", "3\n"]).0, Some("json"));
    assert_eq!(merge(PATH, ["{", "{1", "{2"]).0, Some("text"));
    let deep = |text: &str| format!("{{\"nbformat\":4,\"cells\":{}{text}", "[".repeat(10_000));
    assert_eq!(merge(PATH, [&deep("1"), &deep("2"), &deep("3")]).0, Some("text"));
    // Notebooks with other format versions, invalid cells or comments are merged as JSON.
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
        assert_eq!(merge(PATH, [&text, &ours, &theirs]).0, Some("json"), "{text}");
    }
}

#[test]
fn large_notebooks_merge_in_bounded_time() {
    let huge = "o".repeat(2_000_000);
    let with_output =
        |number: usize, source: &str| written([code("", source).run(number, &huge), code("b", "b")]);
    let merged_text = clean(PATH, Some(&with_output(1, "a")), &with_output(2, "a"), &with_output(3, "a\nc"));
    assert_eq!(sources(&merged_text), ["a\nc", "b"]);
    // Notebooks with the maximum number of cells, each of which one side changed: with ids, with one id for all
    // cells, and without ids. `version` is 0 for ours, 1 for theirs and 2 for the base.
    let count = 10_000;
    let large = |id: &dyn Fn(usize) -> String, version: usize| {
        let cell = |index: usize| {
            let changed = if version < 2 && index % 2 == version { "!" } else { "" };
            let id = id(index);
            let id = if id.is_empty() { String::new() } else { format!("\"id\":\"{id}\",") };
            format!(
                "{{\"cell_type\":\"code\",{id}\"source\":[\"call number {index}{changed}\"],\"outputs\":[],\"execution_count\":{version}}}"
            )
        };
        let cells: Vec<_> = (0..count).map(cell).collect();
        format!("{{\"cells\":[\n{}\n],\"nbformat\":4}}\n", cells.join(",\n"))
    };
    let ids: [&dyn Fn(usize) -> String; 3] =
        [&|index| format!("id{index}"), &|_| "same".to_owned(), &|_| String::new()];
    for id in ids {
        let [base, ours, theirs] = [2, 0, 1].map(|version| large(id, version));
        let merged = sources(&clean(PATH, Some(&base), &ours, &theirs));
        assert!(merged.iter().enumerate().all(|(index, source)| *source == format!("call number {index}!")));
    }
    // Notebooks with only three different sources, and none in common. The sources of base and ours are similar.
    let repeating = |words: &str| {
        let cells =
            (0..count).map(|index| format!("{{\"cell_type\":\"code\",\"source\":\"{words}{}\"}}", index % 3));
        format!("{{\"cells\":[{}],\"nbformat\":4}}", cells.collect::<Vec<_>>().join(","))
    };
    let merge = merged(PATH, Some(&repeating("a b c d ")), &repeating("a b c e "), &repeating("x y z "));
    assert!(merge.conflict.is_some());
}

/// Returns a notebook after random edits by an author. Each new line is unique and names the author.
fn randomly_edited(notebook: &Notebook, rng: &mut Rng, author: &str) -> Notebook {
    let mut edited = notebook.clone();
    let mut next = 0;
    let mut line = || {
        next += 1;
        format!("{author}_{next} = compute({next})")
    };
    for _ in 0..1 + rng.below(3) {
        let cell_index = rng.below(edited.cells.len());
        let line_index = rng.below(edited.cells[cell_index].lines.len() + 1);
        let cell = &mut edited.cells[cell_index];
        match rng.below(8) {
            0..3 => cell.lines.insert(line_index, line()),
            3..5 if line_index < cell.lines.len() => cell.lines[line_index] = line(),
            5 if line_index < cell.lines.len() && cell.lines.len() > 1 => drop(cell.lines.remove(line_index)),
            6 if edited.cells.len() > 2 => drop(edited.cells.remove(cell_index)),
            _ => {
                let id = notebook.cells[0].id.is_some().then(|| format!("{author}-{}", rng.below(1_000_000)));
                edited
                    .cells
                    .insert(cell_index, Cell { kind: "code", id, lines: vec![line(), line()], run: None });
            }
        }
    }
    // Three of four authors run the notebook after their edits.
    if rng.below(4) > 0 {
        let first = 1 + rng.below(5);
        for (number, cell) in edited.cells.iter_mut().filter(|cell| cell.kind == "code").enumerate() {
            cell.run = Some((first + number, format!("{author}: {}", rng.below(1000))));
        }
        if rng.below(3) == 0 {
            edited.language_version = format!("3.11.{}", rng.below(9));
        }
    }
    edited
}

/// Returns the lines of all sources.
fn lines_of(text: &str) -> BTreeSet<String> {
    let lines =
        sources(text).into_iter().flat_map(|source| source.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.collect()
}

/// Returns true if `git merge-file` merges the versions (ours, base and theirs) without a conflict.
fn git_merges(directory: &std::path::Path, versions: [&str; 3]) -> bool {
    let names = ["ours", "base", "theirs"];
    for (name, text) in names.iter().zip(versions) {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let run = Command::new("git").arg("merge-file").arg("-p").args(names).current_dir(directory).output();
    run.expect("git runs").status.success()
}

#[test]
fn no_edit_is_lost_and_no_conflict_is_found_where_git_finds_none() {
    let directory = tempfile::tempdir().unwrap();
    // Numbers of clean merges by git, and by cell.
    let (mut by_git, mut by_cell, count) = (0, 0, 240);
    for seed in 0..count {
        let mut rng = Rng(seed);
        let has_ids = seed % 2 == 0;
        let cells = (0..3 + rng.below(8)).map(|number| {
            let length = 1 + rng.below(6);
            let kind = if rng.below(4) == 0 { "markdown" } else { "code" };
            Cell {
                kind,
                id: has_ids.then(|| format!("cell-{number}")),
                lines: (0..length)
                    .map(|line| format!("base_{number}_{line} = load({number}, {line})"))
                    .collect(),
                run: (kind == "code").then(|| (number + 1, format!("base: {number}"))),
            }
        });
        let base = Notebook::new(cells.collect::<Vec<_>>());
        let (ours, theirs) =
            (randomly_edited(&base, &mut rng, "ours"), randomly_edited(&base, &mut rng, "theirs"));
        let format = if seed % 5 == 0 { SourceFormat::Text } else { SourceFormat::Lines };
        let [base, ours, theirs] = [base, ours, theirs].map(|notebook| notebook.text(format, " "));
        let git = git_merges(directory.path(), [&ours, &base, &theirs]);
        by_git += usize::from(git);
        let merge = merged(PATH, Some(&base), &ours, &theirs);
        let swapped = merged(PATH, Some(&base), &theirs, &ours);
        assert_eq!(merge.conflict.is_none(), swapped.conflict.is_none(), "{seed}");
        if let Some(conflict) = merge.conflict {
            assert!(!git, "{seed}: git merges it: {conflict:?}\n{base}\n{ours}\n{theirs}");
            continue;
        }
        by_cell += 1;
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
    println!("of {count} notebooks, git merges {by_git}, cells {by_cell}");
    assert!(by_cell > 2 * by_git, "of {count} notebooks, git merges {by_git}, cells {by_cell}");
}
