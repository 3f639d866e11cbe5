use workspace_catalog::{
    AgentWorkspace, AgentWorkspaceFilter, AgentWorkspaceInsertion, AgentWorkspaceState, Catalog,
    CatalogError, NewAgentWorkspace, WorkspaceDirectory, WorkspaceHead,
};

use super::projects::create;
use crate::test_database::TestDatabase;

fn head(sequence: i64) -> WorkspaceHead {
    WorkspaceHead { snapshot: format!("snapshot-{sequence}"), sequence, policy_version: 7 }
}

fn workspace(id: &str, project: &str, agent: &str) -> NewAgentWorkspace {
    NewAgentWorkspace {
        id: id.to_owned(),
        project: project.to_owned(),
        agent: agent.to_owned(),
        owner: "alice".to_owned(),
        server: "here".to_owned(),
        base: head(3),
    }
}

fn directory() -> WorkspaceDirectory {
    WorkspaceDirectory {
        provider: "copy".to_owned(),
        path: "/srv/wsp-1".to_owned(),
        owner: (1_000, u32::MAX),
    }
}

async fn insert(catalog: &Catalog, new: &NewAgentWorkspace) -> AgentWorkspace {
    match catalog.agent_workspaces().insert(new, None).await.unwrap() {
        AgentWorkspaceInsertion::New(row) => *row,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn agent_has_one_workspace_per_project(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    create(&catalog, "prj-2").await;
    let workspaces = catalog.agent_workspaces();
    let new = workspace("wsp-1", "prj-1", "writer");
    let row = insert(&catalog, &new).await;
    assert_eq!((&row.workspace, row.state), (&new, AgentWorkspaceState::Creating));
    assert_eq!((row.directory.clone(), row.round, row.next.clone()), (None, 0, None));
    assert_eq!(workspaces.find("prj-1", "writer").await.unwrap(), Some(row.clone()));
    let again = workspaces.insert(&workspace("wsp-2", "prj-1", "writer"), None).await.unwrap();
    assert_eq!(again, AgentWorkspaceInsertion::Existing(Box::new(row)));
    insert(&catalog, &workspace("wsp-3", "prj-2", "writer")).await;
    assert_eq!(workspaces.find("prj-1", "editor").await.unwrap(), None);
    let missing = workspaces.insert(&workspace("wsp-4", "prj-9", "writer"), None).await;
    assert!(matches!(missing, Err(CatalogError::NotFound { what: "project", .. })), "{missing:?}");
    let of_agent = async |owner: &str, agent: &str, limit: u32| {
        let rows = workspaces.of_agent(owner, agent, limit).await.unwrap();
        rows.into_iter().map(|row| row.workspace.id).collect::<Vec<_>>()
    };
    assert_eq!(of_agent("alice", "writer", 9).await, ["wsp-1", "wsp-3"]);
    assert_eq!(of_agent("alice", "writer", 1).await, ["wsp-1"]);
    assert_eq!(of_agent("bob", "writer", 9).await, [""; 0]);
    assert_eq!(of_agent("alice", "editor", 9).await, [""; 0]);
}

pub(crate) async fn agent_workspace_is_inserted_once_by_concurrent_servers(database: TestDatabase) {
    let (one, two) = (database.open().await, database.open().await);
    create(&one, "prj-1").await;
    let tasks: Vec<_> = (0..10)
        .map(|n| {
            let catalog = if n % 2 == 0 { one.clone() } else { two.clone() };
            let new = workspace(&format!("wsp-{n}"), "prj-1", "writer");
            tokio::spawn(async move { catalog.agent_workspaces().insert(&new, Some(5)).await.unwrap() })
        })
        .collect();
    let mut inserted = 0;
    for task in tasks {
        match task.await.unwrap() {
            AgentWorkspaceInsertion::New(_) => inserted += 1,
            AgentWorkspaceInsertion::Existing(_) => {}
            AgentWorkspaceInsertion::LimitReached => panic!("there is one"),
        }
    }
    assert_eq!(inserted, 1);
}

pub(crate) async fn agent_workspaces_of_an_owner_are_limited(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let workspaces = catalog.agent_workspaces();
    for agent in ["a", "b"] {
        let new = workspace(&format!("wsp-{agent}"), "prj-1", agent);
        let inserted = workspaces.insert(&new, Some(2)).await.unwrap();
        assert!(matches!(inserted, AgentWorkspaceInsertion::New(_)), "{inserted:?}");
    }
    let third = workspace("wsp-c", "prj-1", "c");
    let limited = workspaces.insert(&third, Some(2)).await.unwrap();
    assert_eq!(limited, AgentWorkspaceInsertion::LimitReached);
    // An existing one is found at the limit, and another owner has its own.
    let existing = workspaces.insert(&workspace("wsp-d", "prj-1", "a"), Some(2)).await.unwrap();
    assert!(matches!(existing, AgentWorkspaceInsertion::Existing(_)), "{existing:?}");
    let other = NewAgentWorkspace { owner: "alice/agents/c".to_owned(), ..third.clone() };
    let other = workspaces.insert(&other, Some(1)).await.unwrap();
    assert!(matches!(other, AgentWorkspaceInsertion::New(_)), "{other:?}");
    assert!(workspaces.delete("wsp-a").await.unwrap());
    assert!(!workspaces.delete("wsp-a").await.unwrap());
    let again = workspaces.insert(&workspace("wsp-e", "prj-1", "e"), Some(2)).await.unwrap();
    assert!(matches!(again, AgentWorkspaceInsertion::New(_)), "{again:?}");
}

pub(crate) async fn agent_workspace_changes_state_only_from_the_expected_one(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let workspaces = catalog.agent_workspaces();
    insert(&catalog, &workspace("wsp-1", "prj-1", "writer")).await;
    assert_eq!(workspaces.begin_move("wsp-1", &head(4), None).await.unwrap(), None);
    assert_eq!(workspaces.finish_move("wsp-1").await.unwrap(), None);
    let ready = workspaces.set_ready("wsp-1", &directory()).await.unwrap().unwrap();
    assert_eq!((ready.state, ready.directory), (AgentWorkspaceState::Ready, Some(directory())));
    assert_eq!(workspaces.set_ready("wsp-1", &directory()).await.unwrap(), None);

    let moving = workspaces.begin_move("wsp-1", &head(4), None).await.unwrap().unwrap();
    assert_eq!((moving.state, moving.next), (AgentWorkspaceState::Moving, Some(head(4))));
    assert_eq!(moving.workspace.base, head(3));
    assert_eq!(workspaces.begin_move("wsp-1", &head(5), None).await.unwrap(), None);
    let stayed = workspaces.cancel_move("wsp-1").await.unwrap().unwrap();
    assert_eq!((stayed.state, stayed.next, stayed.round), (AgentWorkspaceState::Ready, None, 0));
    assert_eq!(stayed.workspace.base, head(3));
    assert_eq!(workspaces.cancel_move("wsp-1").await.unwrap(), None);
    let merging = workspaces.begin_move("wsp-1", &head(5), Some("files")).await.unwrap().unwrap();
    assert_eq!((merging.next, merging.next_files.as_deref()), (Some(head(5)), Some("files")));
    let moved = workspaces.finish_move("wsp-1").await.unwrap().unwrap();
    assert_eq!((moved.state, moved.next, moved.round), (AgentWorkspaceState::Ready, None, 1));
    assert_eq!((moved.workspace.base, moved.next_files), (head(5), None));
    let merging = workspaces.begin_move("wsp-1", &head(6), Some("files")).await.unwrap().unwrap();
    assert_eq!(merging.next_files.as_deref(), Some("files"));
    let stayed = workspaces.cancel_move("wsp-1").await.unwrap().unwrap();
    assert_eq!((stayed.next_files, stayed.round), (None, 1));

    for _ in 0..2 {
        let removing = workspaces.begin_removal("wsp-1").await.unwrap().unwrap();
        assert_eq!(removing.state, AgentWorkspaceState::Removing);
    }
    assert_eq!(workspaces.begin_move("wsp-1", &head(6), None).await.unwrap(), None);
    assert_eq!(workspaces.begin_removal("wsp-9").await.unwrap(), None);
}

pub(crate) async fn agent_workspaces_are_listed_by_agent_and_found_by_id(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    create(&catalog, "prj-2").await;
    let workspaces = catalog.agent_workspaces();
    for (id, agent) in [("wsp-3", "c"), ("wsp-1", "a"), ("wsp-2", "b")] {
        insert(&catalog, &workspace(id, "prj-1", agent)).await;
    }
    insert(&catalog, &workspace("wsp-4", "prj-2", "a")).await;
    let elsewhere = NewAgentWorkspace { server: "there".to_owned(), ..workspace("wsp-5", "prj-2", "b") };
    insert(&catalog, &elsewhere).await;
    let list = async |agent: Option<&str>, cursor: Option<&str>, limit: u32| {
        let filter = AgentWorkspaceFilter {
            agent: agent.map(str::to_owned),
            cursor: cursor.map(str::to_owned),
            limit,
        };
        let rows = workspaces.list("prj-1", &filter).await.unwrap();
        rows.into_iter().map(|row| row.workspace.agent).collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, 10).await, ["a", "b", "c"]);
    assert_eq!(list(None, Some("a"), 1).await, ["b"]);
    assert_eq!(list(Some("b"), None, 10).await, ["b"]);
    assert_eq!(list(Some("d"), None, 10).await, [""; 0]);

    workspaces.set_ready("wsp-1", &directory()).await.unwrap().unwrap();
    let unfinished = workspaces.unfinished("here").await.unwrap();
    let unfinished: Vec<_> = unfinished.iter().map(|row| row.workspace.id.as_str()).collect();
    assert_eq!(unfinished, ["wsp-2", "wsp-3", "wsp-4"]);
    let ids: Vec<String> = (0..1_000).map(|n| format!("wsp-{n}")).collect();
    let mut existing: Vec<_> = workspaces.existing(&ids).await.unwrap().into_iter().collect();
    existing.sort_unstable();
    assert_eq!(existing, ["wsp-1", "wsp-2", "wsp-3", "wsp-4", "wsp-5"]);
    assert!(workspaces.existing(&[]).await.unwrap().is_empty());
}

pub(crate) async fn project_with_agent_workspaces_is_not_deleted(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    insert(&catalog, &workspace("wsp-1", "prj-1", "writer")).await;
    let refused = catalog.projects().delete("prj-1", &[]).await;
    assert!(matches!(refused, Err(CatalogError::ProjectBusy { .. })), "{refused:?}");
    assert!(catalog.projects().get("prj-1").await.unwrap().is_some());
    catalog.agent_workspaces().delete("wsp-1").await.unwrap();
    assert!(catalog.projects().delete("prj-1", &[]).await.unwrap());
}
