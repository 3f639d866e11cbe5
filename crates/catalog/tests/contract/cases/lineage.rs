use serde_json::json;
use workspace_catalog::{
    Catalog, CatalogError, CommandEnd, CommandState, CommandTrace, CreationOrder, EventFilter, EventKind,
    Filter, NewCommand, NewEpisode, NewEvent, NewNote, NewSandbox, Note, NoteFilter, NoteInsertion,
    NoteQuota,
};

use super::{event, ids, insert, new_sandbox};
use crate::test_database::TestDatabase;

const QUOTA: NoteQuota = NoteQuota { per_sandbox: 100, per_owner: Some(100), owner_bytes: Some(1_000) };
const END: CommandEnd =
    CommandEnd { exited: true, exit_code: Some(0), timed_out: false, pid: Some(7), ended_at: 1_500 };

/// Undoes the migration that added lineage.
pub(crate) async fn remove_lineage(database: &TestDatabase) {
    // The last one was added later, for the same column.
    let indexes =
        ["sandboxes_project", "events_project", "snapshots_traces", "episodes_root", "episodes_searches"];
    for index in indexes.into_iter().chain(["sandboxes_of_project"]) {
        database.tamper(&format!("DROP INDEX {index}")).await;
    }
    for (table, column) in [
        ("sandboxes", "project"),
        ("sandboxes", "agent"),
        ("events", "project"),
        ("commands", "snapshot"),
        ("commands", "trace_error"),
        ("snapshots", "command"),
        ("episodes", "root"),
    ] {
        database.tamper(&format!("ALTER TABLE {table} DROP COLUMN {column}")).await;
    }
    for table in ["notes", "note_usage"] {
        database.tamper(&format!("DROP TABLE {table}")).await;
    }
}

fn note(id: &str, sandbox: &str) -> NewNote {
    NewNote {
        id: id.to_owned(),
        owner: "alice".to_owned(),
        sandbox_id: sandbox.to_owned(),
        command_id: None,
        snapshot: None,
        text: format!("text of {id}"),
        data: None,
        bytes: 10,
        created_at: 1_000,
    }
}

async fn add(catalog: &Catalog, new: NewNote) {
    assert_eq!(catalog.notes().insert(&new, QUOTA).await.unwrap(), NoteInsertion::Done);
}

async fn notes(catalog: &Catalog, sandbox: &str) -> Vec<Note> {
    let filter = NoteFilter { limit: 100, bytes: 1 << 20, ..NoteFilter::default() };
    catalog.notes().list(sandbox, &filter).await.unwrap().notes
}

/// Returns the snapshot of each note of a sandbox.
async fn snapshots(catalog: &Catalog, sandbox: &str) -> Vec<Option<String>> {
    notes(catalog, sandbox).await.into_iter().map(|note| note.snapshot).collect()
}

async fn command(catalog: &Catalog, id: &str, sandbox: &str) {
    let new = NewCommand {
        id: id.to_owned(),
        sandbox_id: sandbox.to_owned(),
        command: "make".to_owned(),
        argv: None,
        cwd: None,
        tag: None,
        started_at: 1_000,
    };
    catalog.commands().insert(&new).await.unwrap();
}

fn trace(id: &str) -> CommandTrace {
    let round_id = Some(format!("sbx-1/{id}"));
    CommandTrace::Snapshot { id: id.to_owned(), owner: "alice".to_owned(), round_id, bytes: 5 }
}

pub(crate) async fn sandboxes_are_filtered_by_project_and_agent(database: TestDatabase) {
    let catalog = database.open().await;
    let lineage = |project: &str, agent: &str| json!({"lineage": {"project": project, "agent": agent}});
    for (id, config) in [("sbx-1", lineage("p", "a")), ("sbx-2", lineage("p", "b")), ("sbx-3", json!({}))] {
        insert(&catalog, NewSandbox { config, ..new_sandbox(id) }).await;
    }
    let found = async |project: Option<&str>, agent: Option<&str>| {
        let (project, agent) = (project.map(str::to_owned), agent.map(str::to_owned));
        let filter = Filter { project_name: project, agent_name: agent, ..Filter::default() };
        let (found, total) = catalog.sandboxes().list(&filter).await.unwrap();
        assert_eq!(found.len() as u64, total);
        ids(&found).join(" ")
    };
    assert_eq!(found(Some("p"), None).await, "sbx-1 sbx-2");
    assert_eq!(found(Some("p"), Some("b")).await, "sbx-2");
    assert_eq!(found(None, Some("a")).await, "sbx-1");
    assert_eq!(found(Some("' OR 1=1 --"), None).await, "");

    let events = async |project: &str| {
        let filter = EventFilter { project: Some(project.to_owned()), ..EventFilter::default() };
        let read = catalog.events().read(&filter, 0, 10).await.unwrap();
        read.events.iter().filter_map(|event| event.sandbox_id.clone()).collect::<Vec<_>>().join(" ")
    };
    for id in ["sbx-1", "sbx-3", "sbx-2"] {
        catalog.events().insert(Some("alice"), Some(id), &event(EventKind::AgentConnected)).await.unwrap();
    }
    let deleted = NewEvent { kind: EventKind::SandboxDeleted, data: json!({"project": "p"}) };
    catalog.sandboxes().delete("sbx-1", &[deleted]).await.unwrap();
    assert_eq!((events("p").await.as_str(), events("q").await.as_str()), ("sbx-1 sbx-2 sbx-1", ""));
}

pub(crate) async fn notes_get_the_next_snapshot_and_live_as_long(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    insert(&catalog, new_sandbox("sbx-2")).await;
    add(&catalog, NewNote { data: Some(json!({"a": [1]})), ..note("note-1", "sbx-1") }).await;
    add(&catalog, note("note-2", "sbx-2")).await;
    assert_eq!(notes(&catalog, "sbx-1").await[0].data, Some(json!({"a": [1]})));
    catalog.snapshots().add_owner("alice", "one", Some("sbx-1"), 0).await.unwrap();
    add(&catalog, note("note-3", "sbx-1")).await;
    let one = Some("one".to_owned());
    assert_eq!(snapshots(&catalog, "sbx-1").await, [one.clone(), None]);
    assert_eq!(snapshots(&catalog, "sbx-2").await, [None]);

    // A note with a snapshot outlives its sandbox; one without is deleted with it.
    catalog.sandboxes().delete("sbx-1", &[]).await.unwrap();
    assert_eq!(snapshots(&catalog, "sbx-1").await, [one]);
    let (found, is_cut) =
        catalog.notes().of_snapshots(Some("alice"), &["one".to_owned()], 10, 1_000).await.unwrap();
    assert_eq!((found.len(), found[0].id.as_str(), is_cut), (1, "note-1", false));
    let other = catalog.notes().of_snapshots(Some("bob"), &["one".to_owned()], 10, 1_000).await.unwrap();
    assert_eq!(other, (Vec::new(), false));
    // Notes of an agent are shown to the owner for whom it works, and to no other agent.
    insert(&catalog, NewSandbox { owner: "alice/agents/one".to_owned(), ..new_sandbox("sbx-3") }).await;
    add(&catalog, NewNote { owner: "alice/agents/one".to_owned(), ..note("note-4", "sbx-3") }).await;
    catalog.snapshots().add_owner("alice/agents/one", "four", Some("sbx-3"), 0).await.unwrap();
    for (reader, count) in [("alice", 1), ("alice/agents/one", 1), ("alice/agents/two", 0), ("alic", 0)] {
        let found =
            catalog.notes().of_snapshots(Some(reader), &["four".to_owned()], 10, 1_000).await.unwrap();
        assert_eq!(found.0.len(), count, "{reader}");
    }
    catalog.snapshots().remove_owner(Some("bob"), "one").await.unwrap();
    assert_eq!(notes(&catalog, "sbx-1").await.len(), 1);
    catalog.snapshots().remove_owner(Some("alice"), "one").await.unwrap();
    assert_eq!(notes(&catalog, "sbx-1").await, []);

    let error = catalog.notes().insert(&note("note-4", "sbx-1"), QUOTA).await.unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "sandbox", .. }), "{error}");
}

pub(crate) async fn notes_count_until_they_are_deleted(database: TestDatabase) {
    let catalog = database.open().await;
    for id in ["sbx-1", "sbx-2"] {
        insert(&catalog, new_sandbox(id)).await;
    }
    let try_add = async |id: &str, sandbox: &str, quota: NoteQuota| {
        catalog.notes().insert(&note(id, sandbox), quota).await.unwrap()
    };
    let quota = NoteQuota { per_sandbox: 2, per_owner: Some(3), owner_bytes: Some(40) };
    assert_eq!(try_add("note-1", "sbx-1", quota).await, NoteInsertion::Done);
    assert_eq!(try_add("note-2", "sbx-1", quota).await, NoteInsertion::Done);
    assert_eq!(try_add("note-3", "sbx-1", quota).await, NoteInsertion::SandboxFull);
    assert_eq!(try_add("note-3", "sbx-2", quota).await, NoteInsertion::Done);
    assert_eq!(try_add("note-4", "sbx-2", quota).await, NoteInsertion::OwnerCountFull);
    let bytes = NoteQuota { per_owner: None, owner_bytes: Some(39), ..quota };
    assert_eq!(try_add("note-4", "sbx-2", bytes).await, NoteInsertion::OwnerBytesFull);
    let unlimited = NoteQuota { per_owner: None, owner_bytes: None, ..quota };
    assert_eq!(try_add("note-4", "sbx-2", unlimited).await, NoteInsertion::Done);
    catalog.snapshots().add_owner("alice", "one", Some("sbx-2"), 0).await.unwrap();
    catalog.sandboxes().delete("sbx-1", &[]).await.unwrap();
    catalog.snapshots().remove_owner(None, "one").await.unwrap();
    let two = NoteQuota { per_owner: Some(2), owner_bytes: Some(20), ..quota };
    assert_eq!(try_add("note-5", "sbx-2", two).await, NoteInsertion::Done);
    assert_eq!(try_add("note-6", "sbx-2", two).await, NoteInsertion::Done);
    assert_eq!(try_add("note-7", "sbx-2", two).await, NoteInsertion::OwnerCountFull);
}

pub(crate) async fn notes_are_listed_in_pages_of_limited_size(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    for number in 0..5 {
        let command_id = (number % 2 == 0).then(|| "cmd-1".to_owned());
        add(&catalog, NewNote { command_id, ..note(&format!("note-{number}"), "sbx-1") }).await;
    }
    let page = async |filter: NoteFilter| {
        let page = catalog.notes().list("sbx-1", &filter).await.unwrap();
        let numbers: String = page.notes.iter().map(|note| note.id.trim_start_matches("note-")).collect();
        (numbers, page.total, page.has_more)
    };
    let all = NoteFilter { limit: 100, bytes: 1_000, ..NoteFilter::default() };
    assert_eq!(page(all.clone()).await, ("01234".to_owned(), 5, false));
    assert_eq!(page(NoteFilter { limit: 2, ..all.clone() }).await, ("01".to_owned(), 5, true));
    let newest =
        NoteFilter { order: CreationOrder::Newest, cursor: Some("note-3".to_owned()), ..all.clone() };
    assert_eq!(page(NoteFilter { limit: 2, ..newest.clone() }).await, ("21".to_owned(), 5, true));
    assert_eq!(page(newest).await, ("210".to_owned(), 5, false));
    assert_eq!(page(NoteFilter { bytes: 25, ..all.clone() }).await, ("01".to_owned(), 5, true));
    assert_eq!(page(NoteFilter { bytes: 1, ..all.clone() }).await, ("0".to_owned(), 5, true));
    let of_command = NoteFilter { command_id: Some("cmd-1".to_owned()), ..all };
    assert_eq!(page(of_command).await, ("024".to_owned(), 3, false));
    catalog.snapshots().add_owner("alice", "one", Some("sbx-1"), 0).await.unwrap();
    let (found, is_cut) = catalog.notes().of_snapshots(None, &["one".to_owned()], 3, 1_000).await.unwrap();
    assert_eq!((found.len(), is_cut), (3, true));
    let (found, is_cut) = catalog.notes().of_snapshots(None, &["one".to_owned()], 10, 20).await.unwrap();
    assert_eq!((found.len(), is_cut), (2, true));
}

pub(crate) async fn exit_and_trace_are_recorded_together(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    let commands = catalog.commands();
    for id in ["cmd-1", "cmd-2", "cmd-3"] {
        command(&catalog, id, "sbx-1").await;
    }
    add(&catalog, note("note-1", "sbx-1")).await;
    commands.finish_traced("sbx-1", "cmd-1", END, trace("one")).await.unwrap();
    let ended = commands.get("cmd-1").await.unwrap().unwrap();
    assert_eq!(
        (ended.state, ended.snapshot.as_deref(), ended.trace_error),
        (CommandState::Exited, Some("one"), None)
    );
    assert!(catalog.snapshots().owns("alice", "one").await.unwrap());
    assert_eq!(snapshots(&catalog, "sbx-1").await, [Some("one".to_owned())]);
    // Traces make no events.
    assert_eq!(catalog.events().after(0, 10).await.unwrap(), []);

    // A command that has ended keeps its exit, and nothing else is written.
    let error = commands.finish_traced("sbx-1", "cmd-1", END, trace("two")).await.unwrap_err();
    assert!(matches!(error, CatalogError::Ended { .. }), "{error}");
    let error = commands.finish_traced("sbx-2", "cmd-2", END, trace("two")).await.unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { .. }), "{error}");
    assert!(!catalog.snapshots().owns("alice", "two").await.unwrap());

    commands.finish("sbx-1", "cmd-2", END).await.unwrap();
    commands.record_trace("sbx-1", "cmd-2", trace("two")).await.unwrap();
    assert_eq!(commands.get("cmd-2").await.unwrap().unwrap().snapshot.as_deref(), Some("two"));
    let failed = CommandTrace::Failed("the disk is full".to_owned());
    commands.finish_traced("sbx-1", "cmd-3", END, failed).await.unwrap();
    let failed = commands.get("cmd-3").await.unwrap().unwrap();
    assert_eq!(
        (failed.state, failed.trace_error.as_deref()),
        (CommandState::Exited, Some("the disk is full"))
    );

    // A snapshot is final; a reason is not.
    let pending = || CommandTrace::Failed("not yet".to_owned());
    commands.record_trace("sbx-1", "cmd-2", pending()).await.unwrap();
    let traced = commands.get("cmd-2").await.unwrap().unwrap();
    assert_eq!((traced.snapshot.as_deref(), traced.trace_error), (Some("two"), None));
    commands.record_trace("sbx-1", "cmd-3", CommandTrace::Unchanged).await.unwrap();
    assert_eq!(commands.get("cmd-3").await.unwrap().unwrap().trace_error, None);

    // A note about a command that has a snapshot belongs to that one, unless it was removed.
    let about =
        |id: &str, snapshot: &str| NewNote { snapshot: Some(snapshot.to_owned()), ..note(id, "sbx-1") };
    add(&catalog, about("note-2", "one")).await;
    add(&catalog, about("note-3", "gone")).await;
    let expected = [Some("one".to_owned()), Some("one".to_owned()), None];
    assert_eq!(snapshots(&catalog, "sbx-1").await, expected);
}

pub(crate) async fn an_exit_is_not_recorded_without_its_trace_when_many_commands_end(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    let ids: Vec<String> = (0..50).map(|number| format!("cmd-{number}")).collect();
    for id in &ids {
        command(&catalog, id, "sbx-1").await;
    }
    // Writes that arrive while another one is executed share a transaction.
    let mut writes = tokio::task::JoinSet::new();
    for id in ids.clone() {
        let catalog = catalog.clone();
        let trace = CommandTrace::Failed("no text\0".to_owned());
        writes.spawn(async move { catalog.commands().finish_traced("sbx-1", &id, END, trace).await });
    }
    for result in writes.join_all().await {
        assert!(matches!(result, Err(CatalogError::Nul { field: "trace_error" })), "{result:?}");
    }
    for id in &ids {
        let found = catalog.commands().get(id).await.unwrap().unwrap();
        assert_eq!(found.state, CommandState::Running, "{id}");
    }
}

pub(crate) async fn old_traces_are_found_until_they_are_kept(database: TestDatabase) {
    let catalog = database.open().await;
    insert(&catalog, new_sandbox("sbx-1")).await;
    for number in 0..5 {
        command(&catalog, &format!("cmd-{number}"), "sbx-1").await;
        let (id, trace) = (format!("cmd-{number}"), trace(&format!("s{number}")));
        catalog.commands().finish_traced("sbx-1", &id, END, trace).await.unwrap();
    }
    catalog.snapshots().add_owner("alice", "s0-other", Some("sbx-1"), 0).await.unwrap();
    let old = async |keep, limit| catalog.snapshots().old_traces("sbx-1", keep, limit).await.unwrap();
    assert_eq!(old(2, 10).await, ["s2", "s1", "s0"]);
    assert_eq!(old(2, 1).await, ["s2"]);
    catalog.snapshots().keep("s1").await.unwrap();
    assert_eq!(old(2, 10).await, ["s2", "s0"]);
    assert_eq!(old(5, 10).await, [] as [String; 0]);
    assert!(catalog.snapshots().owns("alice", "s1").await.unwrap());
}

pub(crate) async fn searches_are_listed_with_their_steps(database: TestDatabase) {
    let catalog = database.open().await;
    let step = async |owner: &str, id: &str, parent: Option<&str>| {
        let new = NewEpisode { id, owner, server: "here", bytes: 1, parent };
        catalog.episodes().insert(&new, None).await.unwrap();
    };
    for (owner, id, parent) in [
        ("alice", "e1", None),
        ("alice", "e2", Some("e1")),
        ("alice", "e3", Some("e2")),
        ("alice", "e4", None),
        ("bob", "e5", None),
        ("alice", "e6", None),
        ("bob", "e7", Some("e1")),
        ("alice", "e8", Some("unknown")),
    ] {
        step(owner, id, parent).await;
    }
    let page = async |order, cursor: Option<&str>, limit| {
        let page = catalog.episodes().searches("alice", order, cursor, limit).await.unwrap();
        let searches: Vec<String> =
            page.searches.iter().map(|search| format!("{}:{}", search.id, search.steps)).collect();
        (searches.join(" "), page.total, page.has_more)
    };
    assert_eq!(page(CreationOrder::Newest, None, 10).await, ("e6:1 e4:1 e1:3".to_owned(), 3, false));
    assert_eq!(page(CreationOrder::Newest, Some("e6"), 1).await, ("e4:1".to_owned(), 3, true));
    assert_eq!(page(CreationOrder::Oldest, Some("e1"), 10).await, ("e4:1 e6:1".to_owned(), 3, false));
    let episodes = catalog.episodes();
    assert_eq!(episodes.without_search("here", "", 10).await.unwrap(), ["e8"]);
    assert_eq!(episodes.without_search("there", "", 10).await.unwrap(), [] as [String; 0]);
    episodes.set_searches(&[("e8".to_owned(), "e4".to_owned())]).await.unwrap();
    assert_eq!(page(CreationOrder::Newest, Some("e6"), 1).await.0, "e4:2");
}
