//! Checks that the catalog (an SQL database) and the store agree about a project, after servers were killed. The
//! catalog has the operations (changes of the head, numbered by their sequences) and the completions (finished work of
//! agents, merged into the head). The store has the snapshots, and references and pins, which keep snapshots from
//! removal.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use workspace_catalog::{
    Completion, CompletionFilter, CompletionState, CreationOrder, FileChange, FileVersion, Operation,
    OperationFilter, OperationKind, ReviewState,
};
use workspace_context::projects::Daemon;
use workspace_state::{Entry, Extent, NoProgress, Node, SnapshotId, Tree};

use crate::fixture::PRESENT;
use crate::server::{CLIENT_LABEL, Server};

/// Number of rows that are read at once: more than any of these tests makes.
const ALL: u32 = 100_000;

/// Returns all completions of a project, the oldest first.
pub(crate) async fn completions(server: &Server, project: &str) -> Vec<Completion> {
    let filter = CompletionFilter { order: CreationOrder::Oldest, limit: ALL, ..CompletionFilter::default() };
    server.catalog.completions().list(project, &filter).await.unwrap()
}

/// Returns all operations of a project, the oldest first.
pub(crate) async fn operations(server: &Server, project: &str) -> Vec<Operation> {
    let filter = OperationFilter { order: CreationOrder::Oldest, limit: ALL, ..OperationFilter::default() };
    server.catalog.operations().list(project, &filter).await.unwrap()
}

/// Removes abandoned snapshots, and checks that every other snapshot of the servers has a reference or a pin.
pub(crate) async fn check_no_leftovers(server: &Server) {
    server.projects.remove_abandoned().await.unwrap();
    let store = &server.store;
    assert_eq!(store.abandoned_snapshots().unwrap(), []);
    let named = store.references().unwrap().into_iter().map(|(_, id)| id);
    let pinned = store.pins().unwrap().into_iter().map(|pin| pin.snapshot);
    let kept: HashSet<SnapshotId> = named.chain(pinned).collect();
    let mut left = store.snapshots().unwrap();
    left.retain(|found| !kept.contains(&found.id) && !found.labels.contains_key(CLIENT_LABEL));
    assert_eq!(left, [], "snapshots of killed servers");
}

/// Checks that nothing in the store is damaged.
pub(crate) fn check_store(server: &Server) {
    let report = server.store.verify(&NoProgress).unwrap();
    assert!(report.damage.is_empty(), "{:#?}", report.damage);
}

/// Checks head, history, completions and references of a project.
pub(crate) async fn check_project(server: &Server, id: &str) {
    let project = server.project(id).await;
    let operations = operations(server, id).await;
    let completions = completions(server, id).await;
    check_chain(server, &operations, project.head.as_deref());
    assert_eq!(project.sequence, operations.len() as i64);
    check_completions(&operations, &completions);
    check_references(server, id, &operations, &completions);
    if let Some(head) = server.projects.head(&project, PRESENT).await.unwrap() {
        let tree = Tree::of_snapshot(&server.store, &head).unwrap();
        check_versions(server, id, project.sequence, &tree).await;
    }
}

/// Checks that the operations (changes of the head) are a chain of complete snapshots that ends with the present head.
fn check_chain(server: &Server, operations: &[Operation], head: Option<&str>) {
    let mut previous: Option<&str> = None;
    for (operation, sequence) in operations.iter().zip(1..) {
        assert_eq!(operation.sequence, sequence);
        assert_eq!(operation.previous.as_deref(), previous, "{operation:?}");
        let snapshot = server.store.find_snapshot(&operation.snapshot.parse().unwrap()).unwrap();
        let snapshot = snapshot.unwrap_or_else(|| panic!("the head {sequence} is lost"));
        if let Some(previous) = previous {
            assert_eq!(snapshot.parents.first().map(ToString::to_string).as_deref(), Some(previous));
        }
        Tree::of_snapshot(&server.store, &snapshot).unwrap().walk(&mut |_, _| Ok(())).unwrap();
        previous = Some(&operation.snapshot);
    }
    assert_eq!(head, previous);
}

/// Checks that each completion was merged once or not at all, as its row says.
fn check_completions(operations: &[Operation], completions: &[Completion]) {
    let mut merges: HashMap<&str, Vec<i64>> = HashMap::new();
    let mut resolutions: HashSet<(&str, i64)> = HashSet::new();
    for operation in operations {
        let completion = operation.completion.as_deref();
        match operation.operation {
            OperationKind::Merge => {
                let completion = completion.expect("a merge has a completion");
                merges.entry(completion).or_default().push(operation.sequence);
            }
            _ => resolutions.extend(completion.map(|completion| (completion, operation.sequence))),
        }
    }
    for completion in completions {
        let id = completion.completion.id.as_str();
        let merged = merges.remove(id).unwrap_or_default();
        // If no change of the completion could be merged at first, its sequence is that of a decision about a review.
        let is_resolved = completion.sequence.is_some_and(|sequence| resolutions.contains(&(id, sequence)));
        let expected = Vec::from_iter(completion.sequence.filter(|_| !is_resolved));
        assert_eq!(merged, expected, "{completion:?}");
        let is_decided = ![CompletionState::Queued, CompletionState::Failed].contains(&completion.state);
        assert!(is_decided, "{completion:?}");
    }
    assert!(merges.is_empty(), "{merges:?}");
}

/// Checks that each snapshot of the history has its reference, and that no reference has a sequence that does not
/// exist.
fn check_references(server: &Server, id: &str, operations: &[Operation], completions: &[Completion]) {
    let prefix = format!("projects/{id}/");
    let found: BTreeMap<String, SnapshotId> =
        server.store.references_with_prefix(&prefix).unwrap().into_iter().collect();
    let heads: BTreeMap<String, SnapshotId> = operations
        .iter()
        .map(|operation| (format!("{prefix}{:012}", operation.sequence), operation.snapshot.parse().unwrap()))
        .collect();
    let is_head = |name: &str| !name.starts_with(&format!("{prefix}snapshots/"));
    let found_heads: BTreeMap<String, SnapshotId> =
        found.clone().into_iter().filter(|(name, _)| is_head(name)).collect();
    let has = |heads: &BTreeMap<String, SnapshotId>, name: &str, id: &SnapshotId| heads.get(name) == Some(id);
    let missing: Vec<_> = heads.iter().filter(|(name, id)| !has(&found_heads, name, id)).collect();
    let extra: Vec<_> = found_heads.iter().filter(|(name, id)| !has(&heads, name, id)).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:?}, extra: {extra:?}");
    for completion in completions.iter().map(|completion| &completion.completion) {
        for snapshot in [&completion.base_snapshot, &completion.theirs_snapshot] {
            let reference = found.get(&format!("{prefix}snapshots/{snapshot}"));
            assert_eq!(reference.map(ToString::to_string).as_ref(), Some(snapshot), "{completion:?}");
        }
    }
}

/// Checks that the versions of the files, one operation after another, lead to the files of the head.
async fn check_versions(server: &Server, id: &str, sequence: i64, head: &Tree) {
    let versions = server.catalog.file_versions();
    let mut files: BTreeMap<Vec<u8>, FileVersion> = BTreeMap::new();
    let no_cursor = None;
    for sequence in 1..=sequence {
        let rows = versions.of_sequence(id, sequence, no_cursor, ALL).await.unwrap();
        for row in &rows {
            let former = row.version.previous_path.as_ref().unwrap_or(&row.version.path);
            if row.version.change != FileChange::Added {
                let former = files.remove(former).unwrap_or_else(|| panic!("no file before {row:?}"));
                assert_eq!(former.version.file_id, row.version.file_id, "{row:?}");
            }
        }
        for row in rows.into_iter().filter(|row| row.version.change != FileChange::Removed) {
            let taken = files.insert(row.version.path.clone(), row);
            assert!(taken.is_none(), "{taken:?}");
        }
    }
    let mut found = BTreeMap::new();
    head.walk(&mut |path, entry| {
        if !matches!(entry.node, Node::Directory(_)) {
            found.insert(path.to_vec(), (entry.node.size(), content_hash(entry)));
        }
        Ok(())
    })
    .unwrap();
    let paths: Vec<Vec<u8>> = found.keys().cloned().collect();
    let ids = versions.file_ids(id, &paths).await.unwrap();
    let current: BTreeMap<_, _> =
        files.iter().map(|(path, row)| (path.clone(), row.version.file_id.clone())).collect();
    assert_eq!(ids.into_iter().collect::<BTreeMap<_, _>>(), current);
    let recorded: BTreeMap<_, _> =
        files.into_iter().map(|(path, row)| (path, (row.version.size, row.version.content))).collect();
    assert_eq!(recorded, found);
}

/// Returns the content hash of a file, computed as in the history.
fn content_hash(entry: &Entry) -> Option<String> {
    let Node::File(file) = &entry.node else { return None };
    let mut hasher = blake3::Hasher::new();
    for extent in &file.extents {
        hasher.update(&extent.len().to_le_bytes());
        if let Extent::Data { chunk, .. } = extent {
            hasher.update(chunk.as_bytes());
        }
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// Checks that all work that a killed server acknowledged in its output is recorded. Returns the number of
/// acknowledgements.
pub(crate) async fn check_acknowledged(server: &Server, id: &str, lines: &[String]) -> usize {
    let operations = operations(server, id).await;
    let messages: Vec<&str> =
        operations.iter().filter_map(|operation| operation.message.as_deref()).collect();
    assert_eq!(messages.iter().collect::<BTreeSet<_>>().len(), messages.len(), "{messages:?}");
    let mut acknowledged = 0;
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["queued", completion] => {
                assert!(server.catalog.completions().find(id, completion).await.unwrap().is_some(), "{line}");
            }
            ["landed", completion, sequence] => {
                let found = server.catalog.completions().find(id, completion).await.unwrap().unwrap();
                assert_eq!(found.sequence, sequence.parse().ok(), "{line}");
            }
            ["changed", kind, sequence, message] => {
                let operation = &operations[sequence.parse::<usize>().unwrap() - 1];
                assert_eq!(operation.operation.as_str(), kind, "{line}");
                assert_eq!(operation.message.as_deref(), Some(message), "{line}");
            }
            ["resolved", review, sequence] => {
                let found = server.catalog.reviews().find(id, review).await.unwrap().unwrap();
                assert_eq!(found.state, ReviewState::Resolved, "{line}");
                let sequence: usize = sequence.parse().unwrap();
                if sequence > 0 {
                    assert_eq!(operations[sequence - 1].details["review"], review, "{line}");
                }
            }
            ["created", project] => check_other_project(server, project).await,
            ["deleted", project] => {
                assert!(server.catalog.projects().get(project).await.unwrap().is_none(), "{line}");
            }
            ["ready"] => continue,
            _ => panic!("{line}"),
        }
        acknowledged += 1;
    }
    acknowledged
}

/// Checks that a project is complete, or that nothing is left of it.
async fn check_other_project(server: &Server, id: &str) {
    if server.catalog.projects().get(id).await.unwrap().is_some() {
        return check_project(server, id).await;
    }
    assert_eq!(operations(server, id).await, []);
    assert_eq!(completions(server, id).await, []);
    assert_eq!(server.store.references_with_prefix(&format!("projects/{id}/")).unwrap(), []);
    assert_eq!(server.catalog.projects().unfinished_deletions().await.unwrap(), [""; 0]);
}

/// Queues all completions again with the same ids, and checks that this changes nothing.
pub(crate) async fn check_repetitions(server: &Server, id: &str) {
    let (project, before) = (server.project(id).await, completions(server, id).await);
    for completion in &before {
        let again = server.projects.complete(completion.completion.clone()).await.unwrap();
        assert_eq!(&again, completion);
    }
    Daemon::new(server.projects.clone(), "repeated".to_owned()).land_all().await.unwrap();
    assert_eq!(server.project(id).await, project);
    assert_eq!(completions(server, id).await, before);
}
