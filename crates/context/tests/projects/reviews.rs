//! Tests of reviews (conflicts that wait for a decision): decisions, changes of the head (the present files of the
//! project) meanwhile, expiry, and protection of the snapshots. The sequence of a head is the number of changes of the
//! project.
//!
//! Helpers of `Fixture`: `workspace` gives an agent a copy of the head, `complete` queues its finished work (a
//! completion), and `land` merges it; `replace_files` replaces all files of the project in one change.
//! `new_client_snapshot` returns the parameters of a snapshot that a test commits.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde_json::json;
use workspace_catalog::{
    Completion, CompletionState, EventFilter, NewReview, OperationKind, Operator, Review, ReviewFilter,
    ReviewState,
};
use workspace_context::projects::{
    ChangeAuthor, Daemon, MergeMode, ProjectError, ProjectSettings, Projects, Resolution, ResolveRequest,
    ReviewSide, TheirsChoice, check_reviewer,
};
use workspace_state::{Attributes, Entry, Node, Retention, StoreError, Timestamp, Tree, VirtualTree, Xattrs};

use crate::database::DatabaseKind;
use crate::fixture::{Fixture, NO_LIMIT, PRESENT};
use crate::server::new_client_snapshot;

/// Returns a person who decides reviews.
fn reviewer(name: &str) -> ChangeAuthor {
    ChangeAuthor { name: name.to_owned(), operator: Operator::Person }
}

/// Returns a decision that expects the version of the head when the review was opened.
fn take(resolution: Resolution) -> ResolveRequest {
    ResolveRequest { resolution, expect: None, message: "decided".to_owned() }
}

/// Returns a decision that expects another version of the path: its identity, or the sequence of a head.
fn expecting(resolution: Resolution, expect: &str) -> ResolveRequest {
    ResolveRequest { expect: Some(expect.to_owned()), ..take(resolution) }
}

/// Returns the choice of this content.
fn content(text: &str) -> Resolution {
    Resolution::Content(text.as_bytes().to_vec())
}

/// Merges changes of `paths` by two agents. Those of the second agent conflict: returns its completion (its finished
/// work), which waits for reviews.
async fn conflicts(fixture: &mut Fixture, paths: &[&str]) -> Completion {
    // With the sequence, the ids of the workspaces are new each time.
    let sequence = fixture.project.sequence;
    let (first_id, second_id) = (format!("w1-{sequence}"), format!("w2-{sequence}"));
    let mut first = fixture.workspace("first", &first_id).await;
    let mut second = fixture.workspace("second", &second_id).await;
    for path in paths {
        first.files.write(path, "from the first\n").unwrap();
        second.files.write(path, "from the second\n").unwrap();
    }
    fixture.complete(&mut first).await;
    let waiting = fixture.complete(&mut second).await;
    fixture.land().await;
    assert_eq!(fixture.state(&waiting).await.state, CompletionState::InReview);
    waiting
}

/// Returns all reviews of the project, open or not.
async fn reviews(fixture: &Fixture) -> Vec<Review> {
    let filter = ReviewFilter { limit: 1_000, ..ReviewFilter::default() };
    fixture.catalog.reviews().list(&fixture.project.id, &filter).await.unwrap()
}

/// Returns the id of the only review of the project.
async fn only_review(fixture: &Fixture) -> String {
    let found = reviews(fixture).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].opened.id.clone()
}

/// Decides a review as `carol`. Returns the sequence of the new head; `None` if the head did not change.
async fn resolve(
    fixture: &mut Fixture,
    id: &str,
    request: ResolveRequest,
) -> Result<Option<i64>, ProjectError> {
    let done = fixture.projects.resolve_review(&fixture.project, id, &reviewer("carol"), request).await;
    fixture.refresh().await;
    done.map(|resolved| resolved.operation.map(|operation| operation.sequence))
}

/// Returns the kinds of all events of the owner, except those of projects, the oldest first.
async fn kinds(fixture: &Fixture) -> Vec<String> {
    let filter = EventFilter { owner: Some("alice".to_owned()), ..EventFilter::default() };
    let events = fixture.catalog.events().read(&filter, 1, 1_000).await.unwrap().events;
    events.into_iter().map(|event| event.kind).filter(|kind| !kind.starts_with("project.")).collect()
}

pub(crate) async fn a_review_shows_all_versions_and_their_causes(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "base\n")]).await;
    let waiting = conflicts(&mut fixture, &["a.txt"]).await;
    let id = only_review(&fixture).await;
    let found = fixture.projects.review_details(&fixture.project, &id).await.unwrap();
    let texts = [&found.base, &found.ours_at_opening, &found.theirs, &found.head]
        .map(|version| version.content.clone().unwrap());
    assert_eq!(texts, ["base\n", "from the first\n", "from the second\n", "from the first\n"]);
    assert_eq!(found.ours_at_opening.version, found.head.version);
    assert_ne!(found.theirs.version, found.head.version);
    assert_eq!((found.base.is_text, found.base.mime.as_deref()), (Some(true), Some("text/plain")));
    assert_eq!((found.data.regions.len(), found.data.sequence), (1, 2));
    assert_eq!(found.completion.unwrap().completion.id, waiting.completion.id);
    assert_eq!(found.ours_operation.unwrap().author, "first");
    // Our version came from the merge of a completion, so there are snapshots of the agent before and after its work.
    assert!(found.ours_range.is_some());
    // The policy names no reviewers.
    assert_eq!(found.entry.reviewers, None);
    let missing = fixture.projects.review_details(&fixture.project, "rev-x").await.unwrap_err();
    assert!(missing.to_string().contains("workspace review ls"), "{missing}");
}

pub(crate) async fn each_choice_is_applied_to_the_head_with_the_reviewer_as_author(database: DatabaseKind) {
    let text = "1\n";
    let paths = ["a.txt", "b.txt", "c.txt", "d.txt"];
    let mut fixture = Fixture::new(database, &paths.map(|path| (path, text))).await;
    let waiting = conflicts(&mut fixture, &paths).await;
    let open = reviews(&fixture).await;
    let choices = [
        (Resolution::Ours, Some("from the first\n")),
        (Resolution::Theirs, Some("from the second\n")),
        (content("by hand\n"), Some("by hand\n")),
        (Resolution::Delete, None),
    ];
    // The strategy `log` merges only appended lines. It fails, and the review stays open.
    let strategy = take(Resolution::Strategy("log".to_owned()));
    let error = resolve(&mut fixture, &open[0].opened.id, strategy).await.unwrap_err();
    assert!(matches!(error, ProjectError::ResolutionNotApplicable { .. }), "{error}");
    for (review, (choice, expected)) in open.iter().zip(choices) {
        assert_eq!(fixture.state(&waiting).await.state, CompletionState::InReview);
        let (id, path) = (&review.opened.id, String::from_utf8(review.opened.path.clone()).unwrap());
        let sequence = resolve(&mut fixture, id, take(choice.clone())).await;
        let sequence = sequence.unwrap();
        assert_eq!(sequence.is_some(), choice != Resolution::Ours, "{path}");
        assert_eq!(fixture.files().await.get(&path).map(String::as_str), expected, "{path}");
        if let Some(sequence) = sequence {
            let done =
                fixture.catalog.operations().find(&fixture.project.id, sequence).await.unwrap().unwrap();
            assert_eq!((done.operation, done.author.as_str()), (OperationKind::Resolve, "carol"));
            assert_eq!(done.completion.as_deref(), Some(waiting.completion.id.as_str()));
        }
        let stored = fixture.catalog.reviews().find(&fixture.project.id, id).await.unwrap().unwrap();
        assert_eq!((stored.state, stored.resolved_by.as_deref()), (ReviewState::Resolved, Some("carol")));
        assert_eq!(stored.resolution.unwrap()["choice"], choice.name());
    }
    assert_eq!(fixture.state(&waiting).await.state, CompletionState::Landed);
    let events = kinds(&fixture).await;
    assert_eq!(events.iter().filter(|kind| *kind == "review.resolved").count(), 4);
    assert_eq!(events.last().map(String::as_str), Some("completion.landed"));
}

pub(crate) async fn a_strategy_merges_with_the_present_head(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.log", "1\n")]).await;
    fixture.set_policy(json!({"rules": [{"path": "a.log", "critical": true}]})).await;
    let mut workspace = fixture.workspace("writer", "w1").await;
    workspace.files.write("a.log", "1\ntheirs\n").unwrap();
    fixture.complete(&mut workspace).await;
    fixture.land().await;
    // The head changes after the review was opened.
    fixture.replace_files(&[("a.log", "1\nours\n")]).await;
    let id = only_review(&fixture).await;
    let shown = fixture.projects.review_details(&fixture.project, &id).await.unwrap();
    assert!(shown.strategies.iter().any(|choice| choice.name == "log"), "{:?}", shown.strategies);
    let strategy = || Resolution::Strategy("log".to_owned());
    let error = resolve(&mut fixture, &id, take(strategy())).await.unwrap_err();
    assert!(matches!(error, ProjectError::ReviewOutdated { .. }), "{error}");
    let done = resolve(&mut fixture, &id, expecting(strategy(), &shown.head.version)).await.unwrap().unwrap();
    assert_eq!(fixture.files().await["a.log"], "1\nours\ntheirs\n");
    let versions = fixture.catalog.file_versions();
    let newest = None;
    let version = &versions.of_path(&fixture.project.id, b"a.log", newest, 1).await.unwrap()[0];
    assert_eq!((version.sequence, version.version.strategy.as_deref()), (done, Some("log")));
    let unknown = take(Resolution::Strategy("guess".to_owned()));
    let error = resolve(&mut fixture, &id, unknown).await.unwrap_err();
    assert!(matches!(error, ProjectError::UnknownStrategy(_)), "{error}");
}

pub(crate) async fn of_two_concurrent_decisions_one_fails_with_the_name_of_the_other_reviewer(
    database: DatabaseKind,
) {
    let mut fixture = Fixture::new(database, &[("a.txt", "base\n")]).await;
    for _ in 0..10 {
        conflicts(&mut fixture, &["a.txt"]).await;
        let open: Vec<Review> =
            reviews(&fixture).await.into_iter().filter(|review| review.state == ReviewState::Open).collect();
        let id = open[0].opened.id.clone();
        let attempt = |projects: Projects, name: &'static str, resolution: Resolution| {
            let (project, id) = (fixture.project.clone(), id.clone());
            tokio::spawn(async move {
                projects.resolve_review(&project, &id, &reviewer(name), take(resolution)).await
            })
        };
        let first = attempt(fixture.projects.clone(), "carol", content("carol\n"));
        let second = attempt(fixture.other_server().await, "dave", Resolution::Ours);
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
        let (winner, error) = match first {
            Ok(_) => ("carol", second.unwrap_err()),
            Err(error) => ("dave", error),
        };
        assert!(matches!(&error, ProjectError::ReviewDecided { by, .. } if by == winner), "{error}");
        fixture.refresh().await;
        let expected = if winner == "carol" { "carol\n" } else { "from the first\n" };
        assert_eq!(fixture.files().await["a.txt"], expected);
        // The next round starts with the same file.
        fixture.replace_files(&[("a.txt", "base\n")]).await;
    }
}

/// Returns an entry of the present head.
async fn entry_of_head(fixture: &Fixture, path: &str) -> Entry {
    let head = fixture.projects.head(&fixture.project, PRESENT).await.unwrap().unwrap();
    Tree::of_snapshot(&fixture.store, &head).unwrap().entry(path).unwrap().unwrap()
}

pub(crate) async fn taking_the_mode_of_the_agent_keeps_the_time_of_the_file(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "1\n")]).await;
    let mut first = fixture.workspace("first", "w1").await;
    let mut second = fixture.workspace("second", "w2").await;
    for (workspace, mode) in [(&mut first, 0o755), (&mut second, 0o744)] {
        let attributes = Attributes { mode, modified: Some(Timestamp(5)), ..Attributes::default() };
        workspace.files.put_content("run.sh", b"echo\n".to_vec(), attributes).unwrap();
    }
    fixture.complete(&mut first).await;
    fixture.complete(&mut second).await;
    fixture.land().await;
    let before = entry_of_head(&fixture, "run.sh").await;
    assert!(before.modified.is_some());
    let review = reviews(&fixture).await.remove(0).opened;
    assert_eq!(review.class, "mode");
    resolve(&mut fixture, &review.id, take(Resolution::Theirs)).await.unwrap().unwrap();
    let after = entry_of_head(&fixture, "run.sh").await;
    assert_eq!((after.node.mode(), after.modified), (0o744, before.modified));
}

/// Puts the file `run.sh` and the directory `dir`, both with this mode and these extended attributes.
fn put_with_attributes(tree: &mut VirtualTree, mode: u16, xattrs: &[(&str, &str)]) {
    let xattrs: Xattrs =
        xattrs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
    let attributes = Attributes { mode, xattrs, ..Attributes::default() };
    tree.put_content("run.sh", b"echo\n".to_vec(), attributes.clone()).unwrap();
    tree.put_directory("dir", attributes).unwrap();
}

/// Returns the mode of an entry, and its extended attributes as `name=value`.
fn attributes_of(entry: &Entry) -> (u16, Vec<String>) {
    let xattrs = match &entry.node {
        Node::File(file) => &file.xattrs,
        Node::Directory(directory) => &directory.xattrs,
        Node::Symlink(_) => panic!("{entry:?}"),
    };
    let text = |(name, value): (&Vec<u8>, &Vec<u8>)| {
        format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    (entry.node.mode(), xattrs.iter().map(text).collect())
}

pub(crate) async fn a_decision_about_the_mode_or_the_extended_attributes_leaves_the_other(
    database: DatabaseKind,
) {
    for class in ["mode", "attributes"] {
        let mut fixture = Fixture::new(database, &[("a.txt", "1\n")]).await;
        // Modes conflict only if both agents add the file, and directories that both add are merged without a conflict.
        let paths = if class == "mode" { &["run.sh"][..] } else { &["run.sh", "dir"] };
        if class == "attributes" {
            let mut tree = fixture.store.empty_tree().unwrap();
            put_with_attributes(&mut tree, 0o644, &[("user.removed", "base"), ("user.tag", "base")]);
            let content = tree.commit(new_client_snapshot()).unwrap();
            fixture.import_snapshot(content.id).await;
        }
        let mut first = fixture.workspace("first", "w1").await;
        let mut second = fixture.workspace("second", "w2").await;
        let ours = [("user.only", "ours"), ("user.removed", "base"), ("user.tag", "ours")];
        put_with_attributes(&mut first.files, 0o755, &ours);
        put_with_attributes(&mut second.files, 0o744, &[("user.tag", "theirs")]);
        fixture.complete(&mut first).await;
        fixture.complete(&mut second).await;
        fixture.land().await;
        let found = reviews(&fixture).await;
        for path in paths.iter().copied() {
            let of = |review: &&Review| review.opened.class == class && review.opened.path == path.as_bytes();
            let id = &found.iter().find(of).unwrap().opened.id;
            let shown = fixture.projects.review_details(&fixture.project, id).await.unwrap();
            let size = (path == "run.sh").then_some(5);
            assert_eq!(shown.theirs_choice, Some(TheirsChoice { size }), "{path}");
            resolve(&mut fixture, id, take(Resolution::Theirs)).await.unwrap().unwrap();
            let expected = match class {
                "mode" => (0o744, vec!["user.only=ours", "user.removed=base", "user.tag=ours"]),
                _ => (0o755, vec!["user.only=ours", "user.tag=theirs"]),
            };
            let expected = (expected.0, expected.1.into_iter().map(str::to_owned).collect());
            assert_eq!(attributes_of(&entry_of_head(&fixture, path).await), expected, "{class} of {path}");
        }
    }
}

pub(crate) async fn a_directory_in_the_head_cannot_be_replaced_by_their_file(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "base\n")]).await;
    conflicts(&mut fixture, &["a.txt"]).await;
    let id = only_review(&fixture).await;
    let shown = fixture.projects.review_details(&fixture.project, &id).await.unwrap();
    assert_eq!(shown.theirs_choice, Some(TheirsChoice { size: Some(16) }));
    // In the new head, `a.txt` is a directory.
    fixture.replace_files(&[("a.txt/inside", "x\n")]).await;
    let shown = fixture.projects.review_details(&fixture.project, &id).await.unwrap();
    assert_eq!(shown.theirs_choice, None);
}

pub(crate) async fn a_change_of_the_settings_leaves_a_concurrent_rename(database: DatabaseKind) {
    let fixture = Fixture::new(database, &[]).await;
    // Any setting but the default: work is also merged after each command that wrote files.
    let settings = ProjectSettings { merge: Some(MergeMode::Write), ..ProjectSettings::default() };
    fixture.projects.update(&fixture.project, Some("renamed"), ProjectSettings::default()).await.unwrap();
    // This caller has read the project before the rename, and leaves the name.
    let changed = fixture.projects.update(&fixture.project, None, settings).await.unwrap();
    assert_eq!(changed.name, "renamed");
}

pub(crate) async fn the_first_file_of_an_emptied_project_leaves_the_mode_of_its_root(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "base\n")]).await;
    conflicts(&mut fixture, &["a.txt"]).await;
    let mut empty = fixture.store.empty_tree().unwrap();
    empty.put_directory("", Attributes { mode: 0o750, ..Attributes::default() }).unwrap();
    let empty = empty.commit(new_client_snapshot()).unwrap();
    fixture.import_snapshot(empty.id).await;
    let (id, now) = (only_review(&fixture).await, fixture.project.sequence.to_string());
    resolve(&mut fixture, &id, expecting(Resolution::Theirs, &now)).await.unwrap().unwrap();
    assert_eq!(fixture.files().await["a.txt"], "from the second\n");
    let head = fixture.projects.head(&fixture.project, PRESENT).await.unwrap().unwrap();
    assert_eq!(Tree::of_snapshot(&fixture.store, &head).unwrap().root().node.mode(), 0o750);
}

pub(crate) async fn concurrent_decisions_by_two_servers_are_all_recorded(database: DatabaseKind) {
    let paths: Vec<String> = (0..40).map(|number| format!("{number}.txt")).collect();
    let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "base\n")).collect();
    let mut fixture = Fixture::new(database, &files).await;
    let names: Vec<&str> = paths.iter().map(String::as_str).collect();
    let waiting = conflicts(&mut fixture, &names).await;
    let (open, other) = (reviews(&fixture).await, fixture.other_server().await);
    assert_eq!(open.len(), 40);
    let tasks: Vec<_> = open
        .chunks(10)
        .zip([fixture.projects.clone(), other.clone(), fixture.projects.clone(), other])
        .map(|(part, projects)| {
            let (part, project) = (part.to_vec(), fixture.project.clone());
            tokio::spawn(async move {
                for review in part {
                    let (id, carol) = (&review.opened.id, reviewer("carol"));
                    let done = projects.resolve_review(&project, id, &carol, take(Resolution::Theirs)).await;
                    done.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    fixture.refresh().await;
    assert!(fixture.files().await.values().all(|text| text == "from the second\n"));
    assert_eq!(fixture.project.sequence, 42);
    assert_eq!(fixture.state(&waiting).await.state, CompletionState::Landed);
    assert_eq!(kinds(&fixture).await.iter().filter(|kind| *kind == "completion.landed").count(), 2);
}

pub(crate) async fn a_changed_path_needs_the_version_that_the_reviewer_saw(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "base\n"), ("b.txt", "base\n")]).await;
    conflicts(&mut fixture, &["a.txt", "b.txt"]).await;
    let open = reviews(&fixture).await;
    let (a, b) = (open[0].opened.id.clone(), open[1].opened.id.clone());
    fixture.replace_files(&[("a.txt", "later\n"), ("b.txt", "later\n")]).await;
    let sequence = fixture.project.sequence.to_string();
    for choice in [Resolution::Theirs, content("x"), Resolution::Delete] {
        let error = resolve(&mut fixture, &a, take(choice.clone())).await.unwrap_err();
        assert!(matches!(error, ProjectError::ReviewOutdated { .. }), "{error}");
        let stale = expecting(choice, "1");
        let error = resolve(&mut fixture, &a, stale).await.unwrap_err();
        assert!(matches!(error, ProjectError::ReviewOutdated { .. }), "{error}");
    }
    assert_eq!(fixture.files().await["a.txt"], "later\n");
    resolve(&mut fixture, &a, expecting(Resolution::Theirs, &sequence)).await.unwrap();
    assert_eq!(fixture.files().await["a.txt"], "from the second\n");
    assert_eq!(resolve(&mut fixture, &b, take(Resolution::Ours)).await.unwrap(), None);
    assert_eq!(fixture.files().await["b.txt"], "later\n");
}

pub(crate) async fn decisions_fail_if_the_path_is_a_directory_or_a_parent_is_none(database: DatabaseKind) {
    let mut fixture =
        Fixture::new(database, &[("dir/a.txt", "base\n"), ("b.txt", "base\n"), ("sub/c.txt", "base\n")])
            .await;
    conflicts(&mut fixture, &["dir/a.txt", "b.txt", "sub/c.txt"]).await;
    let ids: Vec<String> = reviews(&fixture).await.into_iter().map(|review| review.opened.id).collect();
    // In the new head, `b.txt` is a directory, `dir` is a file, and `sub` does not exist.
    fixture.replace_files(&[("b.txt/inside", "x\n"), ("dir", "now a file\n")]).await;
    let now = fixture.project.sequence.to_string();
    for (index, words) in [(0, "`b.txt` is a directory"), (1, "`dir` is no directory")] {
        for choice in [Resolution::Theirs, content("x")] {
            let error = resolve(&mut fixture, &ids[index], expecting(choice, &now)).await.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    resolve(&mut fixture, &ids[2], expecting(Resolution::Theirs, &now)).await.unwrap();
    assert_eq!(fixture.files().await["sub/c.txt"], "from the second\n");
    let huge = Resolution::Content(vec![b'x'; (16 << 20) + 1]);
    let error = resolve(&mut fixture, &ids[0], take(huge)).await.unwrap_err();
    assert!(matches!(error, ProjectError::ResolutionTooLarge { .. }), "{error}");
    assert_eq!(resolve(&mut fixture, &ids[0], take(Resolution::Ours)).await.unwrap(), None);
}

pub(crate) async fn the_head_keeps_a_removal_until_the_review_is_resolved(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("dir/a.txt", "base\n"), ("b.txt", "b\n")]).await;
    let mut first = fixture.workspace("first", "w1").await;
    let mut second = fixture.workspace("second", "w2").await;
    first.files.remove("dir").unwrap();
    second.files.write("dir/a.txt", "changed\n").unwrap();
    fixture.complete(&mut first).await;
    fixture.complete(&mut second).await;
    fixture.land().await;
    assert_eq!(fixture.files().await.keys().collect::<Vec<_>>(), ["b.txt"]);
    let head = fixture.projects.head(&fixture.project, PRESENT).await.unwrap().unwrap();
    assert!(!fixture.store.restore(&head.id).unwrap().exists("dir").unwrap());
    let id = only_review(&fixture).await;
    let shown = fixture.projects.review_details(&fixture.project, &id).await.unwrap();
    assert_eq!((shown.ours_at_opening.entry, shown.head.version.as_str()), (None, "absent"));
    resolve(&mut fixture, &id, take(Resolution::Theirs)).await.unwrap().unwrap();
    assert_eq!(fixture.files().await["dir/a.txt"], "changed\n");
}

pub(crate) async fn a_critical_addition_to_an_empty_project_waits_for_a_review(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[]).await;
    fixture.set_policy(json!({"rules": [{"path": "**", "critical": true}]})).await;
    let mut workspace = fixture.workspace("writer", "w1").await;
    workspace.files.write("dir/a.txt", "new\n").unwrap();
    workspace.files.write("b.txt", "new\n").unwrap();
    let waiting = fixture.complete(&mut workspace).await;
    fixture.land().await;
    assert_eq!(fixture.project.head, None);
    let ids: Vec<String> = reviews(&fixture).await.into_iter().map(|review| review.opened.id).collect();
    let shown = fixture.projects.review_details(&fixture.project, &ids[0]).await.unwrap();
    assert_eq!((shown.ours_at_opening.entry, shown.theirs.content.as_deref()), (None, Some("new\n")));
    assert_eq!(resolve(&mut fixture, &ids[0], take(Resolution::Ours)).await.unwrap(), None);
    assert_eq!(resolve(&mut fixture, &ids[1], take(Resolution::Theirs)).await.unwrap(), Some(1));
    assert_eq!(fixture.files().await.len(), 1);
    let landed = fixture.state(&waiting).await;
    assert_eq!((landed.state, landed.sequence), (CompletionState::Landed, Some(1)));
}

pub(crate) async fn the_policy_names_the_reviewers(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "base\n"), ("b.txt", "base\n")]).await;
    let rule = json!({"agent": "second", "path": "a.txt", "reviewers": ["lead-*"]});
    fixture.set_policy(json!({"rules": [rule]})).await;
    conflicts(&mut fixture, &["a.txt", "b.txt"]).await;
    let open = reviews(&fixture).await;
    let policy = fixture.projects.policy(&fixture.project).await.unwrap();
    check_reviewer(&policy, &open[0], "lead-1").unwrap();
    let error = check_reviewer(&policy, &open[0], "carol").unwrap_err();
    assert!(error.to_string().contains("lead-*"), "{error}");
    check_reviewer(&policy, &open[1], "carol").unwrap();
    let id = open[0].opened.id.clone();
    let error = resolve(&mut fixture, &id, take(Resolution::Ours)).await.unwrap_err();
    assert!(matches!(error, ProjectError::NotReviewer { .. }), "{error}");
    let filter = || ReviewFilter { limit: 10, ..ReviewFilter::default() };
    let (any_reviewer, any_view) = (None, None);
    let page = fixture.projects.reviews(&fixture.project, filter(), Some("carol"), any_view).await.unwrap();
    assert_eq!(
        page.reviews.iter().map(|entry| &entry.stored.opened.id).collect::<Vec<_>>(),
        [&open[1].opened.id]
    );
    let page = fixture.projects.reviews(&fixture.project, filter(), Some("lead-1"), any_view).await.unwrap();
    assert_eq!((page.reviews.len(), page.next), (2, None));
    let one = ReviewFilter { limit: 1, ..filter() };
    let page = fixture.projects.reviews(&fixture.project, one, any_reviewer, any_view).await.unwrap();
    assert_eq!((page.reviews.len(), page.next), (1, Some(id)));
}

pub(crate) async fn overdue_reviews_are_escalated_and_then_expire_once(database: DatabaseKind) {
    let mut fixture =
        Fixture::new(database, &[("a.txt", "base\n"), ("b.txt", "base\n"), ("c.txt", "base\n")]).await;
    // For each setting of a path, the most specific rule that has this setting decides. So `a.txt` has a timeout of 10
    // minutes, `lead` reviews `c.txt`, and only `a.txt` is escalated.
    fixture
        .set_policy(json!({"rules": [
            {"path": "*", "reviewTimeout": "10m", "reviewers": ["lead"]},
            {"path": "a.txt", "escalateTo": "boss"},
            {"path": "c.txt", "reviewTimeout": "1d"},
        ]}))
        .await;
    let waiting = conflicts(&mut fixture, &["a.txt", "b.txt", "c.txt"]).await;
    let due = |review: &Review| review.opened.expires_at.unwrap();
    let open = reviews(&fixture).await;
    assert_eq!(due(&open[0]) - open[0].created_at, due(&open[1]) - open[1].created_at);
    assert_eq!((due(&open[2]) - due(&open[0])) / 60_000, 24 * 60 - 10);
    let early = fixture.projects.settle_overdue_reviews(due(&open[0]) - 1).await.unwrap();
    assert_eq!((early.escalated, early.expired), (0, 0));

    // Two servers handle the overdue reviews at the same time.
    let (other, time) = (fixture.other_server().await, due(&open[1]).max(due(&open[0])));
    let (one, two) =
        tokio::join!(fixture.projects.settle_overdue_reviews(time), other.settle_overdue_reviews(time));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.escalated + two.escalated, one.expired + two.expired), (1, 1), "{one:?} {two:?}");
    assert_eq!((one.failed, two.failed), (0, 0));
    let found = reviews(&fixture).await;
    let states: Vec<_> = found.iter().map(|review| review.state).collect();
    assert_eq!(states, [ReviewState::Escalated, ReviewState::Expired, ReviewState::Open]);
    assert_eq!(found[0].opened.assigned.as_deref(), Some("boss"));
    let policy = fixture.projects.policy(&fixture.project).await.unwrap();
    check_reviewer(&policy, &found[0], "boss").unwrap();
    check_reviewer(&policy, &found[0], "lead").unwrap();
    assert_eq!(fixture.state(&waiting).await.state, CompletionState::InReview);

    let settled = fixture.projects.settle_overdue_reviews(due(&open[2]) + 86_400_000).await.unwrap();
    assert_eq!((settled.escalated, settled.expired), (0, 2));
    fixture.refresh().await;
    assert!(fixture.files().await.values().all(|text| text == "from the first\n"));
    assert_eq!(fixture.project.sequence, 2);
    assert_eq!(fixture.state(&waiting).await.state, CompletionState::Landed);
    let escalated = fixture.catalog.events().after(0, 1_000).await.unwrap();
    let escalated = escalated.into_iter().find(|event| event.kind == "review.escalated").unwrap();
    assert_eq!((escalated.owner.as_deref(), &escalated.data["escalatedTo"]), (Some("alice"), &json!("boss")));
    let events = kinds(&fixture).await;
    let count = |kind: &str| events.iter().filter(|found| *found == kind).count();
    assert_eq!((count("review.escalated"), count("review.expired"), count("completion.landed")), (1, 3, 2));
    let error =
        resolve(&mut fixture, &open[1].opened.id.clone(), take(Resolution::Theirs)).await.unwrap_err();
    assert!(error.to_string().contains("expired by `system`"), "{error}");
}

pub(crate) async fn reviews_that_always_fail_do_not_keep_later_ones_from_expiring(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "base\n")]).await;
    conflicts(&mut fixture, &["a.txt"]).await;
    let open = reviews(&fixture).await.remove(0).opened;
    let overdue = |id: String, expires_at: i64| NewReview {
        id,
        completion: None,
        expires_at: Some(expires_at),
        ..open.clone()
    };
    let failing: Vec<NewReview> = (0..1_000).map(|number| overdue(format!("rev-{number:04}"), 1)).collect();
    fixture.catalog.reviews().insert(&fixture.project.id, "alice", &failing, &[]).await.unwrap();
    let other =
        fixture.projects.create("alice", "other", ProjectSettings::default(), NO_LIMIT).await.unwrap();
    let later = [overdue("rev-later".to_owned(), 2)];
    fixture.catalog.reviews().insert(&other.id, "alice", &later, &[]).await.unwrap();
    fixture.set_policy(json!({"rules": "unreadable"})).await;
    let settled = fixture.projects.settle_overdue_reviews(2).await.unwrap();
    assert_eq!((settled.failed, settled.expired), (1_000, 1));
}

pub(crate) async fn the_daemon_expires_reviews(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "base\n")]).await;
    conflicts(&mut fixture, &["a.txt"]).await;
    let open = reviews(&fixture).await.remove(0).opened;
    let overdue = NewReview { id: "rev-overdue".to_owned(), expires_at: Some(1), ..open };
    fixture.catalog.reviews().insert(&fixture.project.id, "alice", &[overdue], &[]).await.unwrap();
    let daemon = tokio::spawn(Daemon::new(fixture.projects.clone(), "server-1".to_owned()).run());
    while reviews(&fixture).await[1].state != ReviewState::Expired {
        tokio::task::yield_now().await;
    }
    daemon.abort();
    assert_eq!(reviews(&fixture).await[0].state, ReviewState::Open);
}

pub(crate) async fn a_decision_that_is_dropped_before_its_transaction_leaves_the_review_open(
    database: DatabaseKind,
) {
    let mut fixture = Fixture::new(database, &[("a.txt", "base\n")]).await;
    conflicts(&mut fixture, &["a.txt"]).await;
    let id = only_review(&fixture).await;
    let before = fixture.store.snapshots().unwrap().len();
    {
        let author = reviewer("carol");
        let request = take(content("by hand\n"));
        let mut resolving = pin!(fixture.projects.resolve_review(&fixture.project, &id, &author, request));
        // A thread commits the content. At most one poll comes after the commit. It ends at the next query of the
        // catalog, the one for the completion, and the future is dropped before it gets to the transaction.
        while fixture.store.snapshots().unwrap().len() == before {
            let polled = resolving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending), "{polled:?}");
            tokio::task::yield_now().await;
        }
    }
    let (sequence, stored) = (fixture.project.sequence, reviews(&fixture).await);
    assert_eq!(stored[0].state, ReviewState::Open);
    fixture.refresh().await;
    assert_eq!(fixture.project.sequence, sequence);
    let done = resolve(&mut fixture, &id, take(content("by hand\n"))).await.unwrap();
    assert_eq!(done, Some(sequence + 1));
    assert_eq!(fixture.files().await["a.txt"], "by hand\n");
}

pub(crate) async fn snapshots_of_a_review_are_kept_as_long_as_the_project(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "base\n")]).await;
    conflicts(&mut fixture, &["a.txt"]).await;
    let id = only_review(&fixture).await;
    fixture.replace_files(&[("a.txt", "later\n")]).await;
    resolve(&mut fixture, &id, take(Resolution::Ours)).await.unwrap();
    let rules = Retention { keep_last: Some(0), ..Retention::default() };
    let plan = fixture.store.retention_plan(&rules).unwrap();
    let review = reviews(&fixture).await.remove(0);
    for side in [ReviewSide::Base, ReviewSide::Ours, ReviewSide::Theirs, ReviewSide::Head] {
        let (snapshot, path) =
            fixture.projects.review_side(&fixture.project, &review, side).await.unwrap().unwrap();
        assert_eq!(path, b"a.txt");
        let removed = fixture.store.remove_snapshots(&[snapshot.id]);
        assert!(matches!(removed, Err(StoreError::Refused(_))), "{side}: {removed:?}");
        assert!(plan.remove.iter().all(|removed| removed.id != snapshot.id), "{side}");
    }
}
