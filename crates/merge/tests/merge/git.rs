//! Texts are merged as `git merge-file` merges them.

use std::path::Path;
use std::process::Command;

use workspace_merge::{Effort, Favor, Labels, Style, TextMerge};

use crate::repository::Repository;

/// Numbers that look random and are the same each time.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % end as u64) as usize
    }
}

/// Three versions.
struct Triple {
    base: Vec<u8>,
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

const WORDS: [&str; 12] =
    ["a", "b", "c", "d", "e", "}", "{", "", "    x", "        return;", "//", "long line of words"];

fn text(lines: &[&str], rng: &mut Rng, crlf: bool) -> Vec<u8> {
    let end = if crlf { "\r\n" } else { "\n" };
    let mut text = lines.iter().map(|line| format!("{line}{end}")).collect::<String>();
    if rng.below(10) == 0 {
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
    }
    text.into_bytes()
}

fn edited<'a>(base: &[&'a str], rng: &mut Rng) -> Vec<&'a str> {
    let mut lines = base.to_vec();
    for _ in 0..rng.below(4) {
        let at = rng.below(lines.len() + 1);
        let end = (at + rng.below(3)).min(lines.len());
        let new: Vec<&str> = (0..rng.below(3)).map(|_| WORDS[rng.below(WORDS.len())]).collect();
        lines.splice(at..end, new);
    }
    lines
}

fn random(seed: usize) -> Triple {
    let mut rng = Rng(seed as u64);
    let length = if seed.is_multiple_of(5) { 60 } else { 14 };
    let base: Vec<&str> = (0..rng.below(length)).map(|_| WORDS[rng.below(WORDS.len())]).collect();
    let (ours, theirs) = (edited(&base, &mut rng), edited(&base, &mut rng));
    let crlf = seed.is_multiple_of(11);
    let mixed = seed.is_multiple_of(33);
    Triple {
        base: text(&base, &mut rng, crlf),
        ours: text(&ours, &mut rng, crlf),
        theirs: text(&theirs, &mut rng, crlf && !mixed),
    }
}

/// What becomes of conflicts.
#[derive(Debug, Clone, Copy)]
enum Way {
    Shown(Style),
    Settled(Favor),
}

const WAYS: [Way; 6] = [
    Way::Shown(Style::Merge),
    Way::Shown(Style::Diff3),
    Way::Shown(Style::Zdiff3),
    Way::Settled(Favor::Ours),
    Way::Settled(Favor::Theirs),
    Way::Settled(Favor::Union),
];

/// What git makes of it: whether it is clean, and the text.
fn by_git(at: &Path, triple: &Triple, way: Way) -> (usize, Vec<u8>) {
    let names = ["ours", "base", "theirs"];
    for (name, text) in names.iter().zip([&triple.ours, &triple.base, &triple.theirs]) {
        std::fs::write(at.join(name), text).unwrap();
    }
    let mut git = Command::new("git");
    git.current_dir(at).args(["-c", "merge.conflictStyle=merge", "merge-file", "-p"]);
    git.args(match way {
        Way::Shown(Style::Merge) => None,
        Way::Shown(Style::Diff3) => Some("--diff3"),
        Way::Shown(Style::Zdiff3) => Some("--zdiff3"),
        Way::Settled(Favor::Ours) => Some("--ours"),
        Way::Settled(Favor::Theirs) => Some("--theirs"),
        Way::Settled(Favor::Union) => Some("--union"),
    });
    let output = git.args(["-L", "ours", "-L", "base", "-L", "theirs"]).args(names).output().unwrap();
    let code = output.status.code().unwrap();
    assert!(code < 128, "git failed: {}", String::from_utf8_lossy(&output.stderr));
    (usize::try_from(code).unwrap(), output.stdout)
}

/// How we differ from git, if we do.
fn difference(at: &Path, triple: &Triple, way: Way) -> Option<String> {
    let ours = TextMerge::new(&triple.base, &triple.ours, &triple.theirs, Effort::default()).unwrap();
    let (text, conflicts) = match way {
        Way::Shown(style) => ours.render(style, &Labels::default()),
        Way::Settled(favor) => (ours.favor(favor), 0),
    };
    let (git_conflicts, git_text) = by_git(at, triple, way);
    let show = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let told = || {
        let [base, ours, theirs] = [&triple.base, &triple.ours, &triple.theirs].map(|text| show(text));
        format!(
            "{way:?}\nbase\n{base}\nours\n{ours}\ntheirs\n{theirs}\nis {conflicts}\n{}\ngit {git_conflicts}\n{}",
            show(&text),
            show(&git_text)
        )
    };
    (conflicts.min(127) != git_conflicts || text != git_text).then(told)
}

/// Compares all of them in every way, on a few threads.
fn compare(triples: usize, triple: impl Fn(usize) -> Option<Triple> + Sync) {
    let threads = 4;
    let differences = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (triple, differences) = (&triple, &differences);
            scope.spawn(move || {
                let home = tempfile::tempdir().unwrap();
                for number in (thread..triples).step_by(threads) {
                    let Some(triple) = triple(number) else { continue };
                    for way in WAYS {
                        let found = difference(home.path(), &triple, way);
                        differences
                            .lock()
                            .unwrap()
                            .extend(found.map(|found| format!("number {number}: {found}")));
                    }
                }
            });
        }
    });
    let differences = differences.into_inner().unwrap();
    let heads: Vec<&str> = differences.iter().filter_map(|one| one.lines().next()).collect();
    assert!(differences.is_empty(), "{heads:?} differ; the first:\n{}", differences[0]);
}

#[test]
fn random_texts_are_merged_as_git_does() {
    let count =
        std::env::var("WORKSPACE_TEST_MERGES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_500);
    compare(count, |number| Some(random(number)));
}

#[test]
fn files_of_a_repository_are_merged_as_git_does() {
    let Some(repository) = Repository::find() else { return };
    let files = repository.files();
    compare(files.len(), |number| {
        let (path, [base, ours, theirs]) = &files[number];
        let [base, ours, theirs] = [base, ours, theirs].map(|commit| repository.read(commit, path));
        let is_text = |text: &[u8]| !text[..text.len().min(8000)].contains(&0);
        [&base, &ours, &theirs].iter().all(|text| is_text(text)).then_some(Triple { base, ours, theirs })
    });
    eprintln!("{} files", files.len());
}
