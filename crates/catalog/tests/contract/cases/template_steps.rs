use workspace_catalog::TemplateStep;

use crate::test_database::TestDatabase;

fn step(key: &str, snapshot: &str) -> TemplateStep {
    let text = str::to_owned;
    TemplateStep { key: text(key), snapshot: text(snapshot), reference: format!("steps/{snapshot}") }
}

pub(crate) async fn first_result_of_a_step_is_kept(database: TestDatabase) {
    let catalog = database.open().await;
    let steps = catalog.template_steps();
    assert_eq!(steps.find("one", "a").await.unwrap(), None);
    assert_eq!(steps.insert("one", &step("a", "1")).await.unwrap(), step("a", "1"));
    assert_eq!(steps.insert("one", &step("a", "2")).await.unwrap(), step("a", "1"));
    // Every server has a store of its own.
    assert_eq!(steps.insert("two", &step("a", "3")).await.unwrap(), step("a", "3"));
    // Another result has taken its place.
    steps.delete("one", &step("a", "2")).await.unwrap();
    assert_eq!(steps.find("one", "a").await.unwrap(), Some(step("a", "1")));
    steps.delete("one", &step("a", "1")).await.unwrap();
    assert_eq!(steps.find("one", "a").await.unwrap(), None);
    assert_eq!(steps.list("two").await.unwrap(), [step("a", "3")]);
}

pub(crate) async fn old_results_of_steps_are_pruned(database: TestDatabase) {
    let catalog = database.open().await;
    let steps = catalog.template_steps();
    for key in ["a", "b", "c", "d"] {
        steps.insert("one", &step(key, key)).await.unwrap();
    }
    steps.insert("two", &step("a", "z")).await.unwrap();
    database.tamper("UPDATE template_steps SET used_at = 1000 WHERE key = 'a'").await;
    database.tamper("UPDATE template_steps SET used_at = 2000 WHERE key = 'b'").await;
    database.tamper("UPDATE template_steps SET used_at = 3000 WHERE key = 'c'").await;
    assert_eq!(steps.prune("one", 2_000, 10).await.unwrap(), 1);
    // A use makes it young again.
    steps.find("one", "b").await.unwrap().unwrap();
    assert_eq!(steps.prune("one", 0, 2).await.unwrap(), 1);
    let mut kept: Vec<_> = steps.list("one").await.unwrap().into_iter().map(|step| step.key).collect();
    kept.sort();
    assert_eq!(kept, ["b", "d"]);
    assert_eq!(steps.prune("one", 0, 0).await.unwrap(), 2);
    assert_eq!(steps.list("two").await.unwrap().len(), 1);
}
