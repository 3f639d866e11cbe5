//! Comparison of text merges with `git merge-file`.

use std::path::Path;
use std::process::Command;

use workspace_merge::{
    ConflictMarkers, DiffLimits, Favor, FileSettings, Input, Strategies, Style, TextMerge, Versions,
    merge_file,
};

use crate::model::git_version;
use crate::repository::Repository;

/// Generator of pseudo-random numbers; the field is the seed. A seed gives the same numbers on each run.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % end as u64) as usize
    }
}

/// Three versions of a text.
struct Triple {
    base: Vec<u8>,
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

/// Lines of random texts. There are few, so that lines repeat.
const LINES: [&str; 12] =
    ["a", "b", "c", "d", "e", "}", "{", "", "    x", "        return;", "//", "long line of words"];

/// Joins lines. One of ten texts has no line ending at its end.
fn text(lines: &[&str], rng: &mut Rng, crlf: bool) -> Vec<u8> {
    let end = if crlf { "\r\n" } else { "\n" };
    let mut text = lines.iter().map(|line| format!("{line}{end}")).collect::<String>();
    if rng.below(10) == 0 {
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
    }
    text.into_bytes()
}

/// Returns the lines of a base after up to three random replacements of ranges.
fn edited<'a>(base: &[&'a str], rng: &mut Rng) -> Vec<&'a str> {
    let mut lines = base.to_vec();
    for _ in 0..rng.below(4) {
        let start = rng.below(lines.len() + 1);
        let end = (start + rng.below(3)).min(lines.len());
        let new: Vec<&str> = (0..rng.below(3)).map(|_| LINES[rng.below(LINES.len())]).collect();
        lines.splice(start..end, new);
    }
    lines
}

/// Returns a triple of random texts. Some have CR LF as line ending, and in some of these their side has LF.
fn random_triple(seed: usize) -> Triple {
    let mut rng = Rng(seed as u64);
    let length = if seed.is_multiple_of(5) { 60 } else { 14 };
    let base: Vec<&str> = (0..rng.below(length)).map(|_| LINES[rng.below(LINES.len())]).collect();
    let (ours, theirs) = (edited(&base, &mut rng), edited(&base, &mut rng));
    let crlf = seed.is_multiple_of(11);
    let mixed = seed.is_multiple_of(33);
    Triple {
        base: text(&base, &mut rng, crlf),
        ours: text(&ours, &mut rng, crlf),
        theirs: text(&theirs, &mut rng, crlf && !mixed),
    }
}

/// Returns a triple of repeated lines in which both sides often make the same change. Among repeated lines, such a
/// change has several possible positions, and the diffs of the two sides may find different ones.
fn repeating_triple(seed: usize) -> Triple {
    const BLOCKS: [&[&str]; 6] =
        [&["a"], &["}", ""], &["{", "a", "}"], &["", ""], &["b", "a", "b", "a"], &["if", "  x", "fi"]];
    let mut rng = Rng(seed as u64 ^ 0x5eed_0000_0000);
    let blocks = |rng: &mut Rng, count: usize| -> Vec<&'static str> {
        (0..count).flat_map(|_| BLOCKS[rng.below(BLOCKS.len())]).copied().collect()
    };
    // Single lines or blocks, with few different values, so that the diffs of the two sides may match different lines
    // of the base.
    let base = if seed.is_multiple_of(2) {
        (0..6 + rng.below(8)).map(|_| ["a", "b", "c", ""][rng.below(4)]).collect()
    } else {
        let length = 2 + rng.below(8);
        blocks(&mut rng, length)
    };
    let change = |lines: &mut Vec<&'static str>, rng: &mut Rng| {
        let start = rng.below(lines.len() + 1);
        let end = (start + rng.below(5)).min(lines.len());
        match rng.below(4) {
            0 => drop(lines.drain(start..end)),
            // A duplicated block could have been added before or after the original.
            1 | 2 => {
                let copy = lines[start..end].to_vec();
                lines.splice(end..end, copy);
            }
            _ => {
                let new = blocks(rng, 1);
                lines.splice(start..start, new);
            }
        }
    };
    // Changes that both sides make.
    let mut common = base.clone();
    for _ in 0..rng.below(3) {
        change(&mut common, &mut rng);
    }
    let mut side = |common: &[&'static str]| {
        let mut lines = common.to_vec();
        for _ in 0..rng.below(3) {
            change(&mut lines, &mut rng);
        }
        lines
    };
    let (ours, theirs) = (side(&common), side(&common));
    let [base, ours, theirs] = [base, ours, theirs].map(|lines| text(&lines, &mut rng, false));
    Triple { base, ours, theirs }
}

/// Handling of conflicts in the merged text.
#[derive(Debug, Clone, Copy)]
enum ConflictMode {
    /// Conflicts are shown with markers in this style.
    Shown(Style),
    /// Conflicts are resolved in favour of one or both sides.
    Resolved(Favor),
}

const CONFLICT_MODES: [ConflictMode; 6] = [
    ConflictMode::Shown(Style::Merge),
    ConflictMode::Shown(Style::Diff3),
    ConflictMode::Shown(Style::Zdiff3),
    ConflictMode::Resolved(Favor::Ours),
    ConflictMode::Resolved(Favor::Theirs),
    ConflictMode::Resolved(Favor::Union),
];

/// First version of git with the style `zdiff3`.
const ZDIFF3_VERSION: (u32, u32) = (2, 35);

/// Returns the modes that the installed git supports.
fn supported_modes() -> Vec<ConflictMode> {
    let is_known = |mode: &ConflictMode| {
        !matches!(mode, ConflictMode::Shown(Style::Zdiff3)) || git_version() >= ZDIFF3_VERSION
    };
    CONFLICT_MODES.into_iter().filter(is_known).collect()
}

/// Merges with `git merge-file`. Returns the number of conflicts (at most 127), and the merged text.
fn by_git(directory: &Path, triple: &Triple, mode: ConflictMode) -> (usize, Vec<u8>) {
    let names = ["ours", "base", "theirs"];
    for (name, text) in names.iter().zip([&triple.ours, &triple.base, &triple.theirs]) {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let mut git = Command::new("git");
    git.current_dir(directory).args(["-c", "merge.conflictStyle=merge", "merge-file", "-p"]);
    git.args(match mode {
        ConflictMode::Shown(Style::Merge) => None,
        ConflictMode::Shown(Style::Diff3) => Some("--diff3"),
        ConflictMode::Shown(Style::Zdiff3) => Some("--zdiff3"),
        ConflictMode::Resolved(Favor::Ours) => Some("--ours"),
        ConflictMode::Resolved(Favor::Theirs) => Some("--theirs"),
        ConflictMode::Resolved(Favor::Union) => Some("--union"),
    });
    let output = git.args(["-L", "ours", "-L", "base", "-L", "theirs"]).args(names).output().unwrap();
    let code = output.status.code().unwrap();
    assert!(code < 128, "git failed: {}", String::from_utf8_lossy(&output.stderr));
    (usize::try_from(code).unwrap(), output.stdout)
}

/// Returns the result of `git merge-file`; `None` if there are conflicts.
pub(crate) fn merged_by_git(directory: &Path, [base, ours, theirs]: [&[u8]; 3]) -> Option<Vec<u8>> {
    let triple = Triple { base: base.to_vec(), ours: ours.to_vec(), theirs: theirs.to_vec() };
    let (conflicts, text) = by_git(directory, &triple, ConflictMode::Shown(Style::Merge));
    (conflicts == 0).then_some(text)
}

/// Resolves conflicts in which both sides have the same text, in the output of git. This crate always resolves them,
/// but git only in the style `merge`; it shows them in the styles that show the base. Returns the number of other
/// conflicts, and the text.
fn resolve_equal_sides(triple: &Triple, style: Style, conflicts: usize, text: Vec<u8>) -> (usize, Vec<u8>) {
    let shown = String::from_utf8(text).unwrap();
    // Between markers, every line has a line ending, although the last line of a text may have none.
    let has_end = |text: &[u8]| text.is_empty() || text.ends_with(b"\n");
    let (ours_has_end, theirs_has_end) = (has_end(&triple.ours), has_end(&triple.theirs));
    let mut read_length = 0;
    // `part` is the part of the current conflict: 0 for ours, 1 for the base, 2 for theirs, 3 for the last marker;
    // `None` outside conflicts.
    let (mut out, mut other_conflicts, mut part) = (String::new(), conflicts, None);
    // Lines of both sides of the current conflict, and the whole conflict with its markers.
    let (mut sides, mut whole) = ([String::new(), String::new()], String::new());
    for line in shown.split_inclusive('\n') {
        read_length += line.len();
        let is_marker = |marker: &str| line.trim_end() == marker;
        part = match part {
            None if is_marker("<<<<<<< ours") => Some(0),
            None => {
                out.push_str(line);
                continue;
            }
            Some(0) if is_marker("||||||| base") => Some(1),
            Some(0 | 1) if is_marker("=======") => Some(2),
            Some(2) if is_marker(">>>>>>> theirs") => Some(3),
            Some(part) => {
                if part != 1 {
                    sides[part / 2].push_str(line);
                }
                Some(part)
            }
        };
        whole.push_str(line);
        if part == Some(3) {
            let is_last = read_length == shown.len();
            let is_equal =
                style != Style::Merge && sides[0] == sides[1] && (!is_last || ours_has_end == theirs_has_end);
            out.push_str(if is_equal { &sides[0] } else { &whole });
            if is_equal && is_last && !ours_has_end {
                out.truncate(out.trim_end_matches(['\r', '\n']).len());
            }
            other_conflicts -= usize::from(is_equal);
            (part, sides, whole) = (None, Default::default(), String::new());
        }
    }
    assert!(part.is_none(), "a conflict without an end: {shown}");
    (other_conflicts, out.into_bytes())
}

/// Merges a triple, and describes the difference from the result of git; `None` if there is none.
fn difference(directory: &Path, triple: &Triple, mode: ConflictMode) -> Option<String> {
    let merge = TextMerge::new(&triple.base, &triple.ours, &triple.theirs, DiffLimits::default()).unwrap();
    let is_clean = merge.is_clean();
    let (text, conflicts) = match mode {
        ConflictMode::Shown(style) => merge.render(style, &ConflictMarkers::default()),
        ConflictMode::Resolved(favor) => (merge.favor(favor), 0),
    };
    let (git_conflicts, git_text) = match (mode, by_git(directory, triple, mode)) {
        // From 127 conflicts on, the exit code of git no longer is their number.
        (ConflictMode::Shown(style), (shown, text))
            if shown > 0 && shown < 127 && str::from_utf8(&text).is_ok() =>
        {
            resolve_equal_sides(triple, style, shown, text)
        }
        (_, by_git) => by_git,
    };
    let show = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let describe = || {
        let [base, ours, theirs] = [&triple.base, &triple.ours, &triple.theirs].map(|text| show(text));
        format!(
            "{mode:?}\nbase\n{base}\nours\n{ours}\ntheirs\n{theirs}\nis {conflicts}\n{}\ngit {git_conflicts}\n{}",
            show(&text),
            show(&git_text)
        )
    };
    let has_other_verdict = matches!(mode, ConflictMode::Shown(_)) && is_clean != (git_conflicts == 0);
    (conflicts.min(127) != git_conflicts || text != git_text || has_other_verdict).then(describe)
}

/// Compares the merges of `count` triples with git in several modes, on several threads. `triple` returns the triple
/// with a number, or `None` to skip it.
fn compare(count: usize, triple: impl Fn(usize) -> Option<Triple> + Sync, supported_modes: &[ConflictMode]) {
    let threads = 4;
    let differences = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (triple, differences) = (&triple, &differences);
            scope.spawn(move || {
                let directory = tempfile::tempdir().unwrap();
                for number in (thread..count).step_by(threads) {
                    let Some(triple) = triple(number) else { continue };
                    for &mode in supported_modes {
                        let found = difference(directory.path(), &triple, mode);
                        differences.lock().extend(found.map(|found| format!("number {number}: {found}")));
                    }
                }
            });
        }
    });
    let differences = differences.into_inner();
    let titles: Vec<&str> = differences.iter().filter_map(|one| one.lines().next()).collect();
    assert!(differences.is_empty(), "{titles:?} differ; the first:\n{}", differences[0]);
}

#[test]
fn random_texts_merge_like_git() {
    // Number of merges.
    let count =
        std::env::var("WORKSPACE_TEST_MERGES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_500);
    compare(count, |number| Some(random_triple(number)), &supported_modes());
}

#[test]
fn repeated_lines_merge_like_git() {
    // Number of merges.
    let count =
        std::env::var("WORKSPACE_TEST_MERGES").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000);
    compare(count, |number| Some(repeating_triple(number)), &[ConflictMode::Shown(Style::Merge)]);
    // A tenth is enough to test equal changes by both sides in every mode.
    compare(count / 10, |number| Some(repeating_triple(count + number)), &supported_modes());
}

#[test]
fn equal_sides_do_not_conflict() {
    // Both sides removed one of the lines `a`, but their diffs against the base pick different ones.
    let [base, ours, theirs] =
        ["c\na\na\n\nb\nc\n", "c\na\n\nb\n", "\nc\nc\na\n\nb\nc\n"].map(|text| text.as_bytes().to_vec());
    let triple = Triple { base, ours, theirs };
    let directory = tempfile::tempdir().unwrap();
    // git shows the conflict in the styles that show the base, and resolves it in the style `merge`.
    let by_git = |style| by_git(directory.path(), &triple, ConflictMode::Shown(style));
    assert_eq!(by_git(Style::Diff3).0, 1);
    let merge = TextMerge::new(&triple.base, &triple.ours, &triple.theirs, DiffLimits::default()).unwrap();
    assert!(merge.is_clean() && merge.conflicts().is_empty());
    let merged = merge.merged().unwrap();
    assert_eq!((0, merged.clone()), by_git(Style::Merge));
    for style in [Style::Merge, Style::Diff3, Style::Zdiff3] {
        assert_eq!(merge.render(style, &ConflictMarkers::default()), (merged.clone(), 0));
    }
    let versions = Versions { base: Some(&triple.base), ours: &triple.ours, theirs: &triple.theirs };
    let input = Input::new("a.txt", versions);
    let file = merge_file(&Strategies::default(), &FileSettings::default(), &input).unwrap();
    assert_eq!((file.conflict, file.merged.content), (None, merged));
}

#[test]
fn repository_files_merge_like_git() {
    let Some(repository) = Repository::find() else { return };
    let files = repository.files();
    compare(
        files.len(),
        |number| {
            let (path, [base, ours, theirs]) = &files[number];
            let [base, ours, theirs] = [base, ours, theirs].map(|commit| repository.read(commit, path));
            let is_text = |text: &[u8]| !text[..text.len().min(8000)].contains(&0);
            [&base, &ours, &theirs].iter().all(|text| is_text(text)).then_some(Triple { base, ours, theirs })
        },
        &supported_modes(),
    );
    eprintln!("{} files", files.len());
}
