//! Comparison of tree merges with `git merge-tree --write-tree`.

use std::collections::{BTreeMap, BTreeSet};

use workspace_merge::{
    ConflictClass, FileSettings, PathRule, PathRules, TreeConflict, TreeMerge, TreeOptions,
};

use crate::git::{Rng, merged_by_git};
use crate::model::{ChangeKinds, Git, GitMerge, Leaf, Model, TestStore, base, read_merge, side};
use crate::repository::Repository;

/// Three versions of a tree.
struct Case {
    base: Model,
    ours: Model,
    theirs: Model,
}

/// Returns a random case.
fn case(seed: u64, changes: ChangeKinds) -> Case {
    let mut rng = Rng(seed);
    let base = base(&mut rng);
    let ours = side(&base, &mut rng, changes);
    let theirs = side(&base, &mut rng, changes);
    Case { base, ours, theirs }
}

/// Returns the paths of all entries that a conflict names.
fn paths(conflict: &TreeConflict) -> impl Iterator<Item = String> {
    let versions = [&conflict.base, &conflict.ours, &conflict.theirs].into_iter().flatten();
    let versions = versions.map(|version| version.path.clone());
    let paths = versions
        .chain([conflict.path.0.clone()])
        .chain(conflict.theirs_path_in_merged.iter().map(|path| path.0.clone()));
    paths.map(|path| String::from_utf8(path).unwrap()).collect::<Vec<_>>().into_iter()
}

/// Removes the suffixes that entries with a taken name get, such as `~theirs`.
fn without_suffixes(path: &str) -> String {
    path.split('/').map(|name| name.split('~').next().unwrap_or_default()).collect::<Vec<_>>().join("/")
}

/// Checks that no new content of either side is lost: it is in the result, merged into it, or named by a conflict.
fn assert_nothing_lost(case: &Case, merge: &TreeMerge, result: &Model) {
    // Only contents are compared, since permission bits of one side and content of the other side may be combined.
    let content = |leaf: &Leaf| match leaf {
        Leaf::File { content, .. } => content.clone(),
        Leaf::Link(target) => format!("-> {target}").into_bytes(),
    };
    let in_result: BTreeSet<_> = result.values().map(content).collect();
    // Paths of versions that are in conflicts or were merged.
    let mut reported = BTreeSet::new();
    for conflict in &merge.conflicts {
        for version in [&conflict.ours, &conflict.theirs].into_iter().flatten() {
            reported.insert(String::from_utf8(version.path.clone()).unwrap());
        }
    }
    for merged in &merge.merged {
        for version in [&merged.ours, &merged.theirs] {
            reported.insert(String::from_utf8(version.path.clone()).unwrap());
        }
    }
    let base: BTreeSet<_> = case.base.values().map(content).collect();
    for (path, leaf) in case.ours.iter().chain(&case.theirs) {
        let leaf = content(leaf);
        assert!(
            base.contains(&leaf) || in_result.contains(&leaf) || reported.contains(path),
            "{path} is lost"
        );
    }
}

/// Describes the difference between a merge and the merge by git; `None` if there is none. Conflicts only have to be
/// about the same paths, and all other paths must be equal.
fn compare(git: &GitMerge, merge: &TreeMerge, result: &Model) -> Option<String> {
    if git.is_clean != merge.conflicts.is_empty() {
        return Some("another verdict".to_owned());
    }
    if git.is_clean {
        return (git.tree != *result).then(|| "another tree".to_owned());
    }
    let ours: BTreeSet<String> =
        merge.conflicts.iter().flat_map(paths).map(|path| without_suffixes(&path)).collect();
    let by_git: BTreeSet<String> = git.conflicted.iter().map(|path| without_suffixes(path)).collect();
    // True if a path is in the set, or below a path in the set.
    let is_about = |set: &BTreeSet<String>, path: &str| {
        let path = without_suffixes(path);
        set.iter().any(|other| path == *other || path.starts_with(&format!("{other}/")))
    };
    if let Some(path) = by_git.iter().find(|path| !is_about(&ours, path)) {
        return Some(format!("git has a conflict at {path}"));
    }
    let rest = |model: &Model| -> Model {
        let rest = model.iter().filter(|(path, _)| !is_about(&ours, path) && !is_about(&by_git, path));
        rest.map(|(path, leaf)| (path.clone(), leaf.clone())).collect()
    };
    (rest(&git.tree) != rest(result)).then(|| "another rest of the tree".to_owned())
}

/// Formats a model for debugging.
fn show(model: &Model) -> String {
    model
        .iter()
        .map(|(path, leaf)| {
            let text = match leaf {
                Leaf::Link(target) => format!("-> {target}"),
                Leaf::File { content, executable } => {
                    format!("{executable} {:?}", String::from_utf8_lossy(content))
                }
            };
            format!("  {path}: {text}\n")
        })
        .collect()
}

/// Describes a case for debugging.
fn describe(case: &Case, git: &GitMerge, merge: &TreeMerge, result: &Model) -> String {
    let [base, ours, theirs] = [&case.base, &case.ours, &case.theirs].map(show);
    let conflicts = merge.conflicts.iter().map(|conflict| {
        format!("  {}: {}\n", conflict.class.name(), String::from_utf8_lossy(&conflict.path.0))
    });
    let conflicts: String = conflicts.collect();
    let (by_git, messages, result) = (show(&git.tree), &git.messages, show(result));
    format!("base\n{base}ours\n{ours}theirs\n{theirs}git {messages}\n{by_git}result\n{result}{conflicts}")
}

/// Returns the seeds to try, starting with `from`: 300, or the number in the environment variable `MERGE_TREE_SEEDS`.
fn seeds(from: u64) -> std::ops::Range<u64> {
    let count = std::env::var("MERGE_TREE_SEEDS").ok().and_then(|count| count.parse().ok());
    from..from + count.unwrap_or(300)
}

/// Merges random cases, and checks that git merges them equally. Returns the classes of conflicts that occurred.
fn assert_merges_like_git(changes: ChangeKinds, seeds: std::ops::Range<u64>) -> BTreeSet<ConflictClass> {
    let cases: BTreeMap<u64, Case> = seeds.map(|seed| (seed, case(seed, changes))).collect();
    let triples: Vec<_> =
        cases.iter().map(|(seed, case)| (seed.to_string(), [&case.base, &case.ours, &case.theirs])).collect();
    let mut git = Git::new(&triples);
    let fixture = TestStore::new();
    let (mut different, mut classes, mut failures) = (Vec::new(), BTreeSet::new(), 0);
    for (seed, case) in &cases {
        let merge = fixture.merge(&case.base, &case.ours, &case.theirs);
        let result = read_merge(&merge);
        assert_nothing_lost(case, &merge, &result);
        let swapped = fixture.merge(&case.base, &case.theirs, &case.ours);
        assert_eq!(
            merge.conflicts.is_empty(),
            swapped.conflicts.is_empty(),
            "seed {seed}: the verdict depends on which side is ours"
        );
        let Some(by_git) = git.merge(&format!("{seed}-ours"), &format!("{seed}-theirs")) else {
            failures += 1;
            continue;
        };
        classes.extend(merge.conflicts.iter().map(|conflict| conflict.class));
        if let Some(why) = compare(&by_git, &merge, &result) {
            println!("==== seed {seed}: {why}\n{}", describe(case, &by_git, &merge, &result));
            different.push((seed, why));
        }
    }
    assert!(different.is_empty(), "{} of {}: {different:?}", different.len(), cases.len());
    assert!(failures * 50 <= cases.len(), "git failed {failures} times");
    classes
}

#[test]
fn edits_and_type_changes_merge_like_git() {
    use ConflictClass::{AddAdd, Content, DistinctTypes, FileDirectory, ModifyDelete, Symlink};
    let classes = assert_merges_like_git(ChangeKinds::Plain, seeds(0));
    let expected = [AddAdd, Content, DistinctTypes, FileDirectory, ModifyDelete, Symlink];
    assert!(classes.is_superset(&BTreeSet::from(expected)), "{classes:?}");
}

#[test]
fn file_renames_merge_like_git() {
    use ConflictClass::{RenameAdd, RenameDelete, RenameRename};
    let classes = assert_merges_like_git(ChangeKinds::Renames, seeds(100_000));
    assert!(classes.is_superset(&BTreeSet::from([RenameAdd, RenameDelete, RenameRename])), "{classes:?}");
}

#[test]
fn directory_renames_merge_like_git() {
    let classes = assert_merges_like_git(ChangeKinds::Directories, seeds(200_000));
    assert!(classes.contains(&ConflictClass::FileLocation), "{classes:?}");
}

/// Returns options with which a merge reads all changed directories. They require a review of every change of one file,
/// which no case has.
fn options_with_full_reads() -> TreeOptions {
    let settings = FileSettings { strategy: Some("critical".to_owned()), ..FileSettings::default() };
    let rule = PathRule { path: "nobody-has-this".to_owned(), settings };
    TreeOptions { rules: PathRules::new([rule]).unwrap(), ..TreeOptions::default() }
}

/// Returns a case that consists of several random trees in different directories, so that many directories are changed
/// by one side only.
fn wide_case(seed: u64, changes: ChangeKinds) -> Case {
    let mut rng = Rng(seed);
    let mut case = Case { base: Model::new(), ours: Model::new(), theirs: Model::new() };
    for part in 0..6 {
        let base = base(&mut rng);
        // A side changes this tree with the probability `chance` / 6.
        let mut side =
            |chance| if rng.below(6) < chance { side(&base, &mut rng, changes) } else { base.clone() };
        let (ours, theirs) = (side(3), side(2));
        let parts = [(&mut case.base, &base), (&mut case.ours, &ours), (&mut case.theirs, &theirs)];
        for (whole, model) in parts {
            let paths =
                model.iter().map(|(path, leaf)| (format!("part{}/p{part}/{path}", part % 2), leaf.clone()));
            whole.extend(paths);
        }
    }
    // Moves files between the trees: `side` is 0 for ours and 1 for theirs.
    for (side, from, to) in [(0, 1, 4), (1, 4, 1), (1, 0, 3)] {
        let model = if side == 0 { &mut case.ours } else { &mut case.theirs };
        let prefix = format!("part{}/p{from}/", from % 2);
        let path = model.keys().find(|path| path.starts_with(&prefix)).cloned();
        if let (0, Some(path)) = (rng.below(3), path) {
            let leaf = model.remove(&path).unwrap();
            model.insert(format!("part{}/p{to}/moved-{from}", to % 2), leaf);
        }
    }
    case
}

#[test]
fn partial_and_full_reads_give_the_same_tree() {
    let (fixture, full_reads) = (TestStore::new(), options_with_full_reads());
    let mut clean = 0;
    for (number, changes) in
        [ChangeKinds::Plain, ChangeKinds::Renames, ChangeKinds::Directories].into_iter().enumerate()
    {
        for seed in seeds(300_000 + 100_000 * number as u64).step_by(3) {
            let case = wide_case(seed, changes);
            let merge = fixture.merge(&case.base, &case.ours, &case.theirs);
            let full = fixture.merge_by(&full_reads, &case.base, &case.ours, &case.theirs);
            let summary = |merge: &TreeMerge| -> Vec<_> {
                let conflicts = merge.conflicts.iter();
                conflicts
                    .map(|one| {
                        (one.class, one.path.0.clone(), one.theirs_path_in_merged.clone().map(|path| path.0))
                    })
                    .collect()
            };
            let merged = |merge: &TreeMerge| -> Vec<_> {
                merge.merged.iter().map(|one| (one.path.0.clone(), one.strategy)).collect()
            };
            assert_eq!(summary(&merge), summary(&full), "seed {seed}");
            assert_eq!(merged(&merge), merged(&full), "seed {seed}");
            assert_eq!(merge.tree.tree_id().unwrap(), full.tree.tree_id().unwrap(), "seed {seed}");
            clean += usize::from(merge.conflicts.is_empty());
        }
    }
    assert!(clean > 30, "{clean} clean merges");
}

/// Returns options that merge all files by lines, since other strategies merge more than git.
fn line_merge_options() -> TreeOptions {
    let rule = |extension: &str| PathRule {
        path: format!("**/*.{extension}"),
        settings: FileSettings { strategy: Some("text".to_owned()), ..FileSettings::default() },
    };
    let rules = ["json", "jsonc", "ipynb", "yaml", "yml", "toml", "jsonl", "log"].map(rule);
    TreeOptions { rules: PathRules::new(rules).unwrap(), ..TreeOptions::default() }
}

/// Replaces each file with a conflict by the result of `git merge-file`, if that merges the file. Tree merges of git
/// use the histogram diff, which sometimes gives a conflict where the diff of `git merge-file` gives none.
fn merge_texts_as_files(git: &mut GitMerge, case: &Case) {
    let directory = tempfile::tempdir().unwrap();
    let GitMerge { tree, conflicted, .. } = git;
    conflicted.retain(|path| {
        let content = |model: &Model| match model.get(path) {
            Some(Leaf::File { content, .. }) => Some(content.clone()),
            _ => None,
        };
        let (Some(base), Some(ours), Some(theirs)) =
            (content(&case.base), content(&case.ours), content(&case.theirs))
        else {
            return true;
        };
        let merged = merged_by_git(directory.path(), [&base, &ours, &theirs]);
        match (merged, tree.get_mut(path)) {
            (Some(merged), Some(Leaf::File { content, .. })) => {
                *content = merged;
                false
            }
            _ => true,
        }
    });
    git.is_clean = git.conflicted.is_empty();
}

#[test]
fn repository_trees_merge_like_git() {
    let Some(repository) = Repository::find() else { return };
    let mut git = Git::sharing(&repository.path);
    let (fixture, mut different) = (TestStore::new(), Vec::new());
    let merges = repository.trees(8);
    for commits in &merges {
        let [base, ours, theirs] =
            commits.each_ref().map(|commit| git.read(commit).expect("a commit has a tree"));
        let case = Case { base, ours, theirs };
        let merge = fixture.merge_by(&line_merge_options(), &case.base, &case.ours, &case.theirs);
        let result = read_merge(&merge);
        assert_nothing_lost(&case, &merge, &result);
        let [base, ours, theirs] = commits;
        let [ours, theirs] = git.with_base(base, [ours, theirs]);
        let mut by_git = git.merge(&ours, &theirs).expect("git merges its own history");
        merge_texts_as_files(&mut by_git, &case);
        different.extend(compare(&by_git, &merge, &result).map(|why| (commits.clone(), why)));
    }
    assert!(different.is_empty(), "{} of {}: {different:?}", different.len(), merges.len());
}
