//! Randomly mangled files: merging never panics, and whether it conflicts does not depend on which side is
//! ours.

use std::path::Path;

use workspace_merge::{FileSettings, OnConflict};

use crate::documents::merged_bytes;
use crate::git::Rng;

/// Returns the seeds of the fuzz targets, as inputs to mangle.
fn samples(kind: &str) -> Vec<Vec<Vec<u8>>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(format!("merge_{kind}"));
    let mut paths: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let split = |bytes: Vec<u8>| bytes.split(|byte| *byte == 0x1e).map(<[u8]>::to_vec).collect();
    paths.into_iter().map(|path| split(std::fs::read(path).unwrap())).collect()
}

/// Strings that have a meaning in one of the formats.
const PIECES: [&str; 34] = [
    "{", "}", "[", "]", ",", ":", "=", "\"", "'", "#", "//", "/*", "*/", "\n", "\r\n", " ", "  ", "\t", "-",
    "- ", "|", ">", "&a", "*a", "? ", "<<: ", "---\n", "a", "1", "null", "\\", "é", "[[a]]\n", "\"\"\"",
];

fn mangle(text: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.below(4) {
        let at = rng.below(text.len() + 1);
        let end = (at + rng.below(4)).min(text.len());
        let piece = match rng.below(3) {
            0 => Vec::new(),
            1 => PIECES[rng.below(PIECES.len())].as_bytes().to_vec(),
            _ => {
                let from = rng.below(text.len() + 1);
                text[from..(from + rng.below(12)).min(text.len())].to_vec()
            }
        };
        text.splice(at..end, piece);
    }
}

fn check(path: &str, base: &[u8], ours: &[u8], theirs: &[u8]) {
    let by = |on_conflict, ours: &[u8], theirs: &[u8]| {
        merged_bytes(&FileSettings { on_conflict, ..FileSettings::default() }, path, Some(base), ours, theirs)
    };
    let result = by(OnConflict::Ours, ours, theirs);
    let swapped = by(OnConflict::Theirs, theirs, ours);
    let describe = || {
        let [base, ours, theirs, merged, other] =
            [base, ours, theirs, &result.merged.content, &swapped.merged.content]
                .map(String::from_utf8_lossy);
        format!(
            "{path}\n--- base\n{base}\n--- ours\n{ours}\n--- theirs\n{theirs}\n--- merged\n{merged}\n--- swapped\n{other}"
        )
    };
    assert_eq!(result.conflict.is_none(), swapped.conflict.is_none(), "{}", describe());
    by(OnConflict::Theirs, ours, theirs);
}

#[test]
fn mangled_files_merge_symmetrically() {
    let rounds =
        std::env::var("WORKSPACE_TEST_MERGES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_500);
    let kinds = [
        ("json", "json"),
        ("notebook", "ipynb"),
        ("toml", "toml"),
        ("yaml", "yaml"),
        ("crdt", "crdt.json"),
        ("text", "txt"),
        ("log", "log"),
    ];
    for (kind, ending) in kinds {
        let path = format!("a.{ending}");
        for (number, versions) in samples(kind).iter().enumerate() {
            for round in 0..rounds {
                let mut rng = Rng((number * 1_000_000 + round) as u64);
                let mut mangled = versions.clone();
                // The first round uses the corpus unchanged.
                for _ in 0..if round == 0 { 0 } else { 1 + rng.below(3) } {
                    mangle(&mut mangled[rng.below(3)], &mut rng);
                }
                check(&path, &mangled[0], &mangled[1], &mangled[2]);
            }
        }
    }
}
