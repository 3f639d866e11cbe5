use std::collections::HashMap;

use workspace_catalog::{
    Advance, AdvanceResult, Catalog, CatalogError, FileChange, FileVersion, NewFileVersion,
};

use super::projects::{advance, advanced, create, step, version};
use crate::test_database::TestDatabase;

fn renamed(file_id: &str, from: &str, to: &str) -> NewFileVersion {
    let previous_path = Some(from.as_bytes().to_vec());
    NewFileVersion { previous_path, ..version(file_id, to, FileChange::Renamed) }
}

/// Advances the head by one step with these versions.
async fn write(catalog: &Catalog, versions: Vec<NewFileVersion>) -> i64 {
    let sequence = catalog.projects().get("prj-1").await.unwrap().unwrap().sequence;
    advanced(catalog, &advance("prj-1", sequence, vec![step("s", versions)])).await
}

/// Returns the ids of files by path, as `path=id`, sorted.
async fn ids(catalog: &Catalog, paths: &[&str]) -> String {
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    let found: HashMap<Vec<u8>, String> = catalog.file_versions().file_ids("prj-1", &paths).await.unwrap();
    let mut found: Vec<String> =
        found.iter().map(|(path, id)| format!("{}={id}", String::from_utf8_lossy(path))).collect();
    found.sort();
    found.join(" ")
}

fn sequences(versions: &[FileVersion]) -> Vec<i64> {
    versions.iter().map(|version| version.sequence).collect()
}

pub(crate) async fn renamed_file_keeps_its_id(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let all = ["a", "b", "c"];
    write(&catalog, vec![version("f1", "a", FileChange::Added), version("f2", "b", FileChange::Added)]).await;
    assert_eq!(ids(&catalog, &all).await, "a=f1 b=f2");
    write(&catalog, vec![version("f1", "a", FileChange::Modified)]).await;
    write(&catalog, vec![renamed("f1", "a", "c")]).await;
    assert_eq!(ids(&catalog, &all).await, "b=f2 c=f1");
    let history = catalog.file_versions().of_path("prj-1", b"c", None, 10).await.unwrap();
    assert_eq!(sequences(&history), [3, 2, 1]);
    assert_eq!(history[0].version, renamed("f1", "a", "c"));
    assert!(history[0].created_at > 0);
    // Nothing has the old path, so it is the path of the file that had it last.
    assert_eq!(catalog.file_versions().of_path("prj-1", b"a", None, 10).await.unwrap(), history);
    assert_eq!(catalog.file_versions().of_file("prj-1", "f1", Some(3), 1).await.unwrap(), history[1..2]);
    assert_eq!(
        sequences(&catalog.file_versions().moves_of_file("prj-1", "f1", 4, 10).await.unwrap()),
        [3, 1]
    );
    assert_eq!(catalog.file_versions().moves_of_file("prj-1", "f1", 3, 10).await.unwrap(), history[2..]);

    // A new file gets the old path, two files exchange theirs, and one is removed.
    write(&catalog, vec![version("f3", "a", FileChange::Added)]).await;
    assert_eq!(ids(&catalog, &all).await, "a=f3 b=f2 c=f1");
    assert_eq!(sequences(&catalog.file_versions().of_path("prj-1", b"a", None, 10).await.unwrap()), [4]);
    write(&catalog, vec![renamed("f1", "c", "b"), renamed("f2", "b", "c")]).await;
    assert_eq!(ids(&catalog, &all).await, "a=f3 b=f1 c=f2");
    write(&catalog, vec![version("f3", "a", FileChange::Removed)]).await;
    assert_eq!(ids(&catalog, &all).await, "b=f1 c=f2");
    let removed = catalog.file_versions().of_path("prj-1", b"a", None, 10).await.unwrap();
    assert_eq!(sequences(&removed), [6, 4]);
    // One operation replaces a file by another.
    write(&catalog, vec![version("f2", "c", FileChange::Removed), version("f4", "c", FileChange::Added)])
        .await;
    assert_eq!(ids(&catalog, &all).await, "b=f1 c=f4");
    assert_eq!(sequences(&catalog.file_versions().of_path("prj-1", b"c", None, 10).await.unwrap()), [7]);
    assert_eq!(catalog.file_versions().of_path("prj-1", b"d", None, 10).await.unwrap(), []);
    assert_eq!(catalog.file_versions().of_path("prj-2", b"a", None, 10).await.unwrap(), []);
}

pub(crate) async fn any_path_round_trips(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let every_byte: Vec<u8> = (1..=255).collect();
    // Longer than an entry of an index may be, and not compressible; they differ at the end only.
    let mut random = 1_u64;
    let mut character = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from_u32(0x4e00 + (random >> 40) as u32 % 20_000).unwrap()
    };
    let long: String = (0..3_000).map(|_| character()).collect();
    let paths: [Vec<u8>; 6] = [
        every_byte,
        b"\\xff".to_vec(),
        b"\xff".to_vec(),
        "'; DROP TABLE projects; --".into(),
        format!("{long}1").into(),
        format!("{long}2").into(),
    ];
    let versions = paths.iter().zip(0..).map(|(path, n)| NewFileVersion {
        path: path.clone(),
        previous_path: Some(path.clone()),
        size: u64::MAX >> 1,
        mode: 0o7777,
        ..version(&format!("f{n}"), "", FileChange::Added)
    });
    let versions: Vec<NewFileVersion> = versions.collect();
    write(&catalog, versions.clone()).await;
    let ids = catalog.file_versions().file_ids("prj-1", &paths).await.unwrap();
    for (n, path) in paths.iter().enumerate() {
        assert_eq!(ids[path], format!("f{n}"));
        let found = catalog.file_versions().of_path("prj-1", path, None, 10).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].version, versions[n]);
    }
}

pub(crate) async fn staged_versions_count_when_the_head_moves(database: TestDatabase) {
    const FILES: usize = 10_000;
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    write(&catalog, vec![version("f", "old", FileChange::Added)]).await;
    let rows: Vec<_> =
        (0..FILES).map(|n| version(&format!("f{n:05}"), &format!("dir/{n}"), FileChange::Added)).collect();
    let versions = catalog.file_versions();
    let staging = versions.begin_staging("prj-1", 1, "one").await.unwrap().unwrap();
    for rows in rows.chunks(3_000) {
        versions.stage(&staging, rows).await.unwrap();
    }
    assert_eq!(staging.sequence(), 2);
    assert_eq!(versions.of_sequence("prj-1", 2, None, 10).await.unwrap(), []);
    assert_eq!(versions.of_file("prj-1", "f00001", None, 10).await.unwrap(), []);
    assert_eq!(versions.of_path("prj-1", b"dir/1", None, 10).await.unwrap(), []);
    assert_eq!(ids(&catalog, &["dir/1", "old"]).await, "old=f");

    let more = vec![version("f", "old", FileChange::Removed)];
    let change = Advance { staging: Some(staging.clone()), ..advance("prj-1", 1, vec![step("s2", more)]) };
    assert_eq!(advanced(&catalog, &change).await, 2);
    let mut cursor = None;
    let mut found = Vec::new();
    loop {
        let page = versions.of_sequence("prj-1", 2, cursor.as_deref(), 4_000).await.unwrap();
        let Some(last) = page.last() else { break };
        cursor = Some(last.version.file_id.clone());
        found.extend(page.into_iter().map(|version| version.version));
    }
    assert_eq!(found.len(), FILES + 1);
    assert_eq!(found[1..], rows);
    assert_eq!(ids(&catalog, &["dir/1", "old"]).await, "dir/1=f00001");
    let paths: Vec<Vec<u8>> = rows.iter().map(|row| row.path.clone()).collect();
    assert_eq!(versions.file_ids("prj-1", &paths).await.unwrap().len(), FILES);

    // The attempt has ended.
    let error = versions.stage(&staging, &rows[..1]).await.unwrap_err();
    assert!(matches!(error, CatalogError::StagingReplaced { .. }), "{error}");
    versions.discard_staged(&staging).await.unwrap();
    assert_eq!(ids(&catalog, &["dir/1"]).await, "dir/1=f00001");
}

pub(crate) async fn new_attempt_replaces_staged_versions(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let versions = catalog.file_versions();
    let rows = |from: usize, to: usize| {
        (from..to).map(|n| version(&format!("f{n}"), &n.to_string(), FileChange::Added)).collect::<Vec<_>>()
    };
    let first = versions.begin_staging("prj-1", 0, "one").await.unwrap().unwrap();
    // More than one batch of a deletion.
    versions.stage(&first, &rows(0, 2_500)).await.unwrap();
    let second = versions.begin_staging("prj-1", 0, "two").await.unwrap().unwrap();
    versions.stage(&second, &rows(0, 2)).await.unwrap();
    // The first import cannot add to, remove or use the rows of the second.
    let error = versions.stage(&first, &rows(2, 3)).await.unwrap_err();
    assert!(matches!(error, CatalogError::StagingReplaced { .. }), "{error}");
    versions.discard_staged(&first).await.unwrap();
    let of = |staging| Advance { staging: Some(staging), ..advance("prj-1", 0, vec![step("s1", vec![])]) };
    let error = catalog.projects().advance(&of(first)).await.unwrap_err();
    assert!(matches!(error, CatalogError::StagingReplaced { .. }), "{error}");
    assert_eq!(advanced(&catalog, &of(second.clone())).await, 1);
    assert_eq!(versions.of_sequence("prj-1", 1, None, 10).await.unwrap().len(), 2);

    // A head that moves without the staged rows does not take them along.
    let third = versions.begin_staging("prj-1", 1, "three").await.unwrap().unwrap();
    versions.stage(&third, &rows(10, 20)).await.unwrap();
    assert_eq!(write(&catalog, rows(30, 31)).await, 2);
    assert_eq!(versions.of_sequence("prj-1", 2, None, 100).await.unwrap().len(), 1);
    let late = Advance { staging: Some(third), ..advance("prj-1", 1, vec![step("s2", vec![])]) };
    let moved = catalog.projects().advance(&late).await.unwrap();
    assert!(matches!(moved, AdvanceResult::Moved { sequence: 2, .. }), "{moved:?}");
    assert_eq!(versions.begin_staging("prj-1", 1, "four").await.unwrap(), None);
    let error = versions.begin_staging("prj-2", 0, "four").await.unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "project", .. }), "{error}");

    // Discarded rows are gone, and more can be staged.
    let fifth = versions.begin_staging("prj-1", 2, "five").await.unwrap().unwrap();
    versions.stage(&fifth, &rows(40, 50)).await.unwrap();
    versions.discard_staged(&fifth).await.unwrap();
    versions.stage(&fifth, &rows(40, 41)).await.unwrap();
    let change = Advance { staging: Some(fifth), ..advance("prj-1", 2, vec![step("s3", vec![])]) };
    assert_eq!(advanced(&catalog, &change).await, 3);
    assert_eq!(versions.of_sequence("prj-1", 3, None, 100).await.unwrap().len(), 1);
}
