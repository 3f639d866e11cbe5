//! Randomly mangled files: merging never panics, and swapping the sides does not change the verdict (clean or
//! conflict).

use std::path::Path;

use workspace_merge::{FileSettings, OnConflict};

use crate::documents::merged_bytes;
use crate::git::Rng;

/// Returns the inputs to mangle: the corpus of the fuzz target for a kind of files. Each input has three versions
/// (base, ours and theirs), separated in its file by the byte 0x1e.
fn samples(kind: &str) -> Vec<Vec<Vec<u8>>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(format!("merge_{kind}"));
    let mut paths: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let split = |bytes: Vec<u8>| bytes.split(|byte| *byte == 0x1e).map(<[u8]>::to_vec).collect();
    paths.into_iter().map(|path| split(std::fs::read(path).unwrap())).collect()
}

/// Strings with a meaning in at least one of the formats.
const PIECES: [&str; 34] = [
    "{", "}", "[", "]", ",", ":", "=", "\"", "'", "#", "//", "/*", "*/", "\n", "\r\n", " ", "  ", "\t", "-",
    "- ", "|", ">", "&a", "*a", "? ", "<<: ", "---\n", "a", "1", "null", "\\", "é", "[[a]]\n", "\"\"\"",
];

/// Replaces up to three short ranges of a text by nothing, by one of [`PIECES`], or by another part of the text.
fn mangle(text: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.below(4) {
        let start = rng.below(text.len() + 1);
        let end = (start + rng.below(4)).min(text.len());
        let piece = match rng.below(3) {
            0 => Vec::new(),
            1 => PIECES[rng.below(PIECES.len())].as_bytes().to_vec(),
            _ => {
                let from = rng.below(text.len() + 1);
                text[from..(from + rng.below(12)).min(text.len())].to_vec()
            }
        };
        text.splice(start..end, piece);
    }
}

/// Merges in both directions, and checks that the verdicts are equal.
fn check(path: &str, base: &[u8], ours: &[u8], theirs: &[u8]) {
    let merge_by = |on_conflict, ours: &[u8], theirs: &[u8]| {
        merged_bytes(&FileSettings { on_conflict, ..FileSettings::default() }, path, Some(base), ours, theirs)
    };
    let result = merge_by(OnConflict::Ours, ours, theirs);
    let swapped = merge_by(OnConflict::Theirs, theirs, ours);
    let describe = || {
        let [base, ours, theirs, merged, swapped] =
            [base, ours, theirs, &result.merged.content, &swapped.merged.content]
                .map(String::from_utf8_lossy);
        format!(
            "{path}\n--- base\n{base}\n--- ours\n{ours}\n--- theirs\n{theirs}\n--- merged\n{merged}\n--- swapped\n{swapped}"
        )
    };
    assert_eq!(result.conflict.is_none(), swapped.conflict.is_none(), "{}", describe());
    // Only checks that there is no panic.
    merge_by(OnConflict::Theirs, ours, theirs);
}

#[test]
fn mangled_files_merge_symmetrically() {
    // Number of merges for each input.
    let merge_count =
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
            for merge_number in 0..merge_count {
                let mut rng = Rng((number * 1_000_000 + merge_number) as u64);
                let mut mangled = versions.clone();
                // The first merge uses the input unchanged.
                for _ in 0..if merge_number == 0 { 0 } else { 1 + rng.below(3) } {
                    mangle(&mut mangled[rng.below(3)], &mut rng);
                }
                check(&path, &mangled[0], &mangled[1], &mangled[2]);
            }
        }
    }
}
