//! Cost of merging through the library: texts, documents, whole trees.
//!
//! Input for the peers is left in the test bed: triples of files, and for trees the paths that each side
//! changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use workspace_merge::{
    ConflictMarkers, DiffLimits, FileSettings, Input, Strategies, Style, TextMerge, TreeOptions, Versions,
    merge_file, merge_trees,
};
use workspace_state::{
    NewSnapshot, NoProgress, SnapshotId, SnapshotOptions, Store, Tree, VirtualTree, snapshot_directory,
};

use crate::args::Args;
use crate::engine::regular_paths;
use crate::failure::Failure;
use crate::plan::{Kind, Parameters, Plan};
use crate::rng::Rng;
use crate::text::{Language, Writer};
use crate::tree::content;

/// Samples in milliseconds, by name.
type Samples = BTreeMap<&'static str, Vec<f64>>;

/// Measures one part in the test bed `BED` and prints the results as JSON.
pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let part = args.option("part", "text".to_owned())?;
    let bed = args.path("BED")?;
    let (files, rounds) = (args.option("files", 1_000)?, args.option("rounds", 10)?);
    let numbers = match part.as_str() {
        "text" => text(&bed, files, rounds)?,
        "json" => documents(files, rounds)?,
        "tree" => {
            let changes = args.option("changes", 100)?;
            let tree: PathBuf = args.option("tree", PathBuf::new())?;
            let run = args.option("run", 1)?;
            trees(&bed, &tree, files, [changes, run], rounds)?
        }
        "large" => large(&bed, args.option("size", 100 << 20)?)?,
        other => return Err(format!("there is no part `{other}`").into()),
    };
    args.finish()?;
    println!("{numbers}");
    Ok(())
}

/// Three versions of a file.
struct Triple([Vec<u8>; 3]);

/// Number of further merges of a tree after opening the store.
const REPEATED_MERGES: usize = 20;

const SIDES: [&str; 3] = ["base", "ours", "theirs"];

impl Triple {
    fn versions(&self) -> Versions<'_> {
        let [base, ours, theirs] = &self.0;
        Versions { base: Some(base), ours, theirs }
    }
}

/// Returns a text of which each side changes some lines; every tenth time both change the same ones.
fn triple(number: usize, base: Vec<u8>, language: Language, writer: &Writer) -> Triple {
    let mut rng = Rng::for_item(11, number as u64);
    let lines: Vec<&[u8]> = base.split_inclusive(|byte| *byte == b'\n').collect();
    let at = |rng: &mut Rng, part: usize| {
        // Each side changes its own half, so that most merges are clean.
        let half = lines.len() / 2;
        if half < 4 { part.min(lines.len() - 1) } else { part * half + 1 + rng.below(half - 2) }
    };
    let mut sides = [0, 1].map(|side| {
        let count = rng.between(1, 4);
        (0..count).map(|_| at(&mut rng, side)).collect::<BTreeSet<_>>()
    });
    if number.is_multiple_of(10) {
        let shared: Vec<usize> = sides[0].iter().copied().collect();
        sides[1].extend(shared);
    }
    let mut edited = |places: &BTreeSet<usize>| {
        let mut text = Vec::with_capacity(base.len() + 256);
        for (number, line) in lines.iter().enumerate() {
            if places.contains(&number) {
                writer.single_line(&mut rng, language, &mut text);
                if rng.one_in(3) {
                    writer.single_line(&mut rng, language, &mut text);
                }
            } else {
                text.extend_from_slice(line);
            }
        }
        text
    };
    let (ours, theirs) = (edited(&sides[0]), edited(&sides[1]));
    Triple([base, ours, theirs])
}

/// Returns texts of the sizes of typical source files.
fn text_triples(files: usize) -> Vec<Triple> {
    let plan = Plan::new(Parameters { files: files * 2, seed: 1, median: 4096 });
    let writer = Writer::new();
    // The first three files of a plan are large by design.
    let texts = plan.files.iter().skip(3).filter_map(|entry| match entry.kind {
        Kind::Text(language) if entry.size > 0 => Some((entry, language)),
        _ => None,
    });
    let texts = texts.take(files).enumerate();
    texts.map(|(n, (entry, language))| triple(n, content(&plan, &writer, entry), language, &writer)).collect()
}

/// Merges texts, and leaves them for the peers.
fn text(bed: &Path, files: usize, rounds: usize) -> Result<Value, Failure> {
    let triples = text_triples(files);
    for (side, name) in SIDES.iter().enumerate() {
        let directory = bed.join(name);
        fs::create_dir_all(&directory)?;
        for (number, triple) in triples.iter().enumerate() {
            fs::write(directory.join(format!("{number}.txt")), &triple.0[side])?;
        }
    }
    let (mut times, mut conflicts) = (Vec::new(), 0);
    for _ in 0..rounds {
        conflicts = 0;
        let began = Instant::now();
        for Triple([base, ours, theirs]) in &triples {
            let merge = TextMerge::new(base, ours, theirs, DiffLimits::default())?;
            conflicts +=
                usize::from(black_box(merge.render(Style::Merge, &ConflictMarkers::default())).1 > 0);
        }
        times.push(milliseconds(began));
    }
    let bytes: usize = triples.iter().map(|triple| triple.0[0].len()).sum();
    Ok(json!({ "samples": { "all": times }, "bytes": bytes, "conflicts": conflicts }))
}

/// Returns a document with some fields, a map and a list of `length` items with an id.
fn document(number: usize, length: usize) -> Value {
    let mut rng = Rng::for_item(12, number as u64);
    let mut word = || crate::text::word(&mut rng).to_owned();
    let map: serde_json::Map<String, Value> =
        (0..24).map(|n| (format!("{}-{n}", word()), json!(format!("^{n}.{}.0", n * 7 % 13)))).collect();
    let items: Vec<Value> = (0..length)
        .map(|n| json!({"id": n, "title": format!("{} {} {}", word(), word(), word()), "done": n % 3 == 0, "weight": n * 17 % 101}))
        .collect();
    json!({
        "name": word(), "version": "1.0.0", "description": format!("{} {} {} {}", word(), word(), word(), word()),
        "settings": {"retries": 3, "timeout": 30, "verbose": false, "owner": {"name": word(), "team": word()}},
        "dependencies": map, "items": items,
    })
}

/// Returns three versions: each side changes different fields, removes and adds something.
fn document_versions(number: usize, length: usize) -> [Value; 3] {
    let base = document(number, length);
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    ours["version"] = json!("1.1.0");
    ours["settings"]["retries"] = json!(5);
    ours["items"][number % (length / 2)]["done"] = json!("yes");
    theirs["settings"]["timeout"] = json!(60);
    theirs["items"][length / 2 + number % (length / 2)]["title"] = json!("another title");
    if let Some(items) = theirs["items"].as_array_mut() {
        items.push(json!({"id": 1000, "title": "new", "done": false, "weight": 1}));
    }
    [base, ours, theirs]
}

/// Merges documents of about 4 KB on one line, which only a merge of values can handle, and on many lines.
fn documents(files: usize, rounds: usize) -> Result<Value, Failure> {
    let triples = |length: usize, write: fn(&Value) -> serde_json::Result<Vec<u8>>| {
        let triple = |number| {
            let [base, ours, theirs] = document_versions(number, length);
            Ok::<_, Failure>(Triple([write(&base)?, write(&ours)?, write(&theirs)?]))
        };
        (0..files).map(triple).collect::<Result<Vec<_>, _>>()
    };
    let written = [
        ("many lines", triples(28, serde_json::to_vec_pretty)?),
        ("one line", triples(50, serde_json::to_vec)?),
    ];
    let (strategies, settings) = (Strategies::default(), FileSettings::default());
    let mut samples = Samples::new();
    for _ in 0..rounds {
        for (what, triples) in &written {
            let began = Instant::now();
            for triple in triples {
                let merged = merge_file(&strategies, &settings, &Input::new("a.json", triple.versions()))?;
                check(
                    merged.conflict.is_none(),
                    "documents that exclude each other nowhere are in conflict",
                )?;
                black_box(merged);
            }
            samples.entry(what).or_default().push(milliseconds(began));
        }
    }
    let size = |triples: &[Triple]| triples.iter().map(|triple| triple.0[0].len()).sum::<usize>() / files;
    let bytes: BTreeMap<_, _> = written.iter().map(|(what, triples)| (*what, size(triples))).collect();
    Ok(json!({ "samples": samples, "bytes": bytes }))
}

/// Changes of a side to a tree.
struct Changes {
    /// Paths and content of changed and new files.
    written: Vec<(String, Vec<u8>)>,
    removed: Vec<String>,
}

/// Returns `count` changes: 80 % are edits, a tenth of them to files that the other side edits too; the rest
/// is added, removed and renamed.
///
/// Changes are far from each other, except for runs of `run` neighbours.
fn changes(plan: &Plan, [count, run]: [usize; 2], side: usize) -> Changes {
    let writer = Writer::new();
    let mut texts: Vec<_> = plan
        .files
        .iter()
        .skip(3)
        .filter(|entry| matches!(entry.kind, Kind::Text(_)) && entry.size > 200)
        .collect();
    texts.sort_by_cached_key(|entry| plan.path(entry));
    let runs = count.div_ceil(run);
    // Each side has its own files, except for the shared ones.
    let file = |number: usize, side: usize| {
        texts[((number / run) * 2 + side) * texts.len() / (runs * 2) + number % run + 1]
    };
    let mut changes = Changes { written: Vec::new(), removed: Vec::new() };
    for number in 0..count {
        let is_shared = number % 10 == 0;
        let entry = file(number, if is_shared { 0 } else { side });
        let (path, before) = (plan.path(entry), content(plan, &writer, entry));
        match number % 20 {
            0..16 => {
                let Kind::Text(language) = entry.kind else { continue };
                let mut lines: Vec<Vec<u8>> =
                    before.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                // One side at the start, the other at the end: shared files merge.
                let at = if side == 0 { 0 } else { lines.len() - 1 };
                let mut rng = Rng::for_item(13 + side as u64, number as u64);
                lines[at].clear();
                writer.single_line(&mut rng, language, &mut lines[at]);
                changes.written.push((path, lines.concat()));
            }
            16 | 17 => changes.written.push((format!("{path}.{side}.new"), before)),
            18 => changes.removed.push(path),
            _ => {
                changes.written.push((format!("{path}.{side}.renamed"), before));
                changes.removed.push(path);
            }
        }
    }
    changes
}

impl Changes {
    fn commit(&self, store: &Store, base: SnapshotId) -> Result<SnapshotId, Failure> {
        let mut tree = store.restore(&base)?;
        for (path, content) in &self.written {
            tree.write(path, content.clone())?;
        }
        for path in &self.removed {
            tree.remove(path)?;
        }
        Ok(tree.commit(NewSnapshot::default())?.id)
    }

    /// Writes the changes for git: changed content as files, removals as a list.
    fn leave(&self, at: &Path) -> Result<(), Failure> {
        for (path, content) in &self.written {
            let path = at.join(path);
            fs::create_dir_all(path.parent().unwrap_or(at))?;
            fs::write(path, content)?;
        }
        fs::write(at.with_extension("removed"), self.removed.join("\n"))?;
        Ok(())
    }
}

/// Merges two sides of a tree in the test bed's store: first right after opening it, then again.
fn trees(
    bed: &Path,
    tree: &Path,
    files: usize,
    [count, run]: [usize; 2],
    rounds: usize,
) -> Result<Value, Failure> {
    let plan = Plan::new(Parameters { files, seed: 1, median: 4096 });
    check(regular_paths(&plan).len() > count * 4, "there are too few files for so many changes")?;
    let note = bed.join("snapshots");
    let path = bed.join("store");
    let ids: Vec<SnapshotId> = match fs::read_to_string(&note) {
        Ok(text) => text.lines().map(str::parse).collect::<Result<_, _>>()?,
        Err(_) => {
            fs::create_dir_all(bed)?;
            let store = Store::open_or_create(&path)?;
            let options =
                SnapshotOptions { record_as_checkout: false, quiescent: true, ..SnapshotOptions::default() };
            let base = snapshot_directory(&store, tree, options, &NoProgress)?.snapshot.id;
            let mut ids = vec![base];
            for (side, name) in [(0, "ours"), (1, "theirs")] {
                let changes = changes(&plan, [count, run], side);
                changes.leave(&bed.join(name))?;
                ids.push(changes.commit(&store, base)?);
            }
            let text: Vec<String> = ids.iter().map(SnapshotId::to_string).collect();
            fs::write(&note, text.join("\n"))?;
            ids
        }
    };
    let mut samples = Samples::new();
    let (mut merged, mut conflicts) = (0, 0);
    for _ in 0..rounds {
        let store = Store::open(&path)?;
        for what in std::iter::once("first").chain(std::iter::repeat_n("again", REPEATED_MERGES)) {
            let began = Instant::now();
            let merge = merge_three(&store, &ids)?;
            black_box(merge.0.tree_id()?);
            samples.entry(what).or_default().push(milliseconds(began));
            (merged, conflicts) = (merge.1, merge.2);
        }
        let began = Instant::now();
        merge_three(&store, &ids)?.0.commit(NewSnapshot::default())?;
        samples.entry("with a commit").or_default().push(milliseconds(began));
    }
    Ok(json!({ "samples": samples, "merged": merged, "conflicts": conflicts, "snapshots": ids }))
}

fn merge_three(store: &Store, ids: &[SnapshotId]) -> Result<(VirtualTree, usize, usize), Failure> {
    let trees: Vec<Tree> =
        ids.iter().map(|id| Tree::of_snapshot(store, &store.snapshot(id)?)).collect::<Result<_, _>>()?;
    let merge = merge_trees(&trees[0], &trees[1], &trees[2], &TreeOptions::default())?;
    Ok((merge.tree, merge.merged.len(), merge.conflicts.len()))
}

/// Merges one large text, and leaves it for the peers.
fn large(bed: &Path, size: usize) -> Result<Value, Failure> {
    let writer = Writer::new();
    let mut base = Vec::with_capacity(size);
    let mut rng = Rng::new(14);
    while base.len() < size {
        base.extend(writer.text(&mut rng, Language::Braces, 64 << 10));
    }
    let Triple(all) = triple(1, base, Language::Braces, &writer);
    fs::create_dir_all(bed)?;
    for (content, name) in all.iter().zip(SIDES) {
        fs::write(bed.join(format!("{name}.txt")), content)?;
    }
    let lines = all[0].iter().filter(|byte| **byte == b'\n').count();
    Ok(json!({ "bytes": all[0].len(), "lines": lines }))
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn check(is_right: bool, message: &str) -> Result<(), Failure> {
    if is_right { Ok(()) } else { Err(message.into()) }
}
