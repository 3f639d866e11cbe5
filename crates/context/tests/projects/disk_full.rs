//! Tests of full disks: a merge without enough free space changes nothing, and succeeds once there is space. The
//! sequence of a project is the number of merges and other changes.
//!
//! `check_project` checks that the catalog and the store agree about a project, and `check_store` that nothing in the
//! store is damaged; `files_at` returns the files of a project. `mounting` runs a role in a mount namespace of its own,
//! and `SmallDisk` is a tmpfs there.

use std::path::{Path, PathBuf};

use workspace_catalog::{CompletionState, Project, sqlite_url};
use workspace_context::projects::{Daemon, ProjectSettings};
use workspace_state::NewSnapshot;
use workspace_test_support::SmallDisk;
use workspace_test_support::child::{ChildProcess, mounting, say, text};

use crate::crash_check::{check_project, check_store};
use crate::fixture::{ANY_SEQUENCE, NO_LIMIT, NOT_FROM_GIT, files_at, person};
use crate::server::Server;

const MIB: usize = 1 << 20;
/// Number of lines of the file that the agents change.
const LINES: usize = 21_000;
/// Number of agents. Each changes every [`STRIDE`]-th line of the file, and no two change neighbouring lines.
const AGENTS: usize = 3;
/// Number of lines from one change of an agent to the next.
const STRIDE: usize = 30;

/// Role of a child process: merges completions (finished work of agents) while the disk of the store or of the catalog
/// is nearly full.
pub(crate) fn land_on_full_disk(arguments: &[&str]) {
    let [home, full] = arguments else { panic!("directory, `store` or `catalog`") };
    let home = Path::new(home);
    let disk = SmallDisk::mount(&home.join("disk"), 96 * MIB);
    let on_disk = |name: &str| if name == *full { home.join("disk") } else { home.to_owned() };
    let directories = (on_disk("store"), on_disk("catalog"));
    tokio::runtime::Runtime::new().unwrap().block_on(land_with_growing_space(directories, &disk));
    drop(disk);
}

/// Merges completions of all agents with more free space each time: at first too little for anything, at last enough.
async fn land_with_growing_space((store, catalog): (PathBuf, PathBuf), disk: &SmallDisk) {
    let server = Server::with_catalog(&store, &sqlite_url(&catalog.join("catalog.db"))).await;
    let project =
        server.projects.create("alice", "website", ProjectSettings::default(), NO_LIMIT).await.unwrap();
    let mut files = server.store.empty_tree().unwrap();
    files.write("text.txt", text_of_lines()).unwrap();
    let content = files.commit(NewSnapshot::default()).unwrap().id;
    server
        .projects
        .import(&project, content, &person(), "import", ANY_SEQUENCE, NOT_FROM_GIT)
        .await
        .unwrap()
        .unwrap();
    let daemon = Daemon::new(server.projects.clone(), "server-1".to_owned());
    let mut refused = 0;
    for (round, free_bytes) in [0, 8 << 10, 64 << 10, 256 << 10, MIB, 8 * MIB].into_iter().enumerate() {
        let before = server.project(&project.id).await;
        queue(&server, &before, round).await;
        disk.fill(free_bytes as u64);
        daemon.land_all().await.ok();
        // Either all completions are merged, or none is. The lack of space does not count as a failed attempt.
        disk.make_room();
        let now = server.project(&project.id).await;
        let expected = match now.sequence == before.sequence {
            true => CompletionState::Queued,
            false => CompletionState::Landed,
        };
        for id in ids(round) {
            let found = server.catalog.completions().find(&project.id, &id).await.unwrap().unwrap();
            assert_eq!((found.state, found.attempts, found.error), (expected, 0, None), "{free_bytes}: {id}");
        }
        refused += usize::from(expected == CompletionState::Queued);
        server.end_leases().await;
        daemon.land_all().await.unwrap();
        let now = server.project(&project.id).await;
        assert_eq!(now.sequence, before.sequence + AGENTS as i64, "{free_bytes}");
        let landed = files_at(&server, &now).await;
        for agent in 0..AGENTS {
            let changed = format!("round {round} agent {agent}");
            assert_eq!(
                landed["text.txt"].matches(&changed).count(),
                LINES / STRIDE,
                "{free_bytes}: {changed}"
            );
        }
        check_project(&server, &project.id).await;
        check_store(&server);
    }
    say(&format!("refused {refused}"));
}

/// Returns the ids of the completions of a round, one for each agent.
fn ids(round: usize) -> Vec<String> {
    (0..AGENTS).map(|agent| format!("{round}-{agent}")).collect()
}

/// Queues a completion for each agent. They change different lines, so the merge writes new content.
async fn queue(server: &Server, project: &Project, round: usize) {
    let before = files_at(server, project).await;
    for (agent, id) in ids(round).iter().enumerate() {
        let base = server.projects.workspace_base(project, "agent").await.unwrap();
        let mut files = server.store.restore(&base.snapshot).unwrap();
        let changed = |(number, line): (usize, &str)| match number % STRIDE == agent * (STRIDE / AGENTS) {
            true => format!("{number} round {round} agent {agent}\n"),
            false => format!("{line}\n"),
        };
        let text: String = before["text.txt"].lines().enumerate().map(changed).collect();
        files.write("text.txt", text).unwrap();
        server.complete(project, "agent", id, &base, &mut files).await;
    }
}

fn text_of_lines() -> String {
    (0..LINES).map(|number| format!("{number} {}\n", blake3::hash(&number.to_le_bytes()).to_hex())).collect()
}

/// Runs the role with the store or the catalog on a nearly full disk.
fn run_with_full_disk(full: &str) {
    let home = tempfile::tempdir().unwrap();
    let ended = ChildProcess::run(mounting("land-on-full-disk", &[text(home.path()), full])).finish();
    ended.assert_success();
    let refused: usize = ended.lines[0].strip_prefix("refused ").unwrap().parse().unwrap();
    assert!(refused > 0, "every merge had room: this test proves nothing");
}

#[test]
fn a_merge_without_space_in_the_store_succeeds_once_there_is_space() {
    run_with_full_disk("store");
}

#[test]
fn a_merge_without_space_in_the_catalog_succeeds_once_there_is_space() {
    run_with_full_disk("catalog");
}
