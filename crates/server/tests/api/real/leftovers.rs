//! Snapshots that killed servers left behind, and the failpoints at which tests kill them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use workspace_catalog::{Catalog, Transactions, sqlite_url};
use workspace_state::{SnapshotId, Store};

use super::test_server::{TestServer, wait_until};

/// Steps of a rebase.
pub(super) const REBASE_STEPS: [&str; 6] = [
    "rebase-committed",
    "workspace-reset",
    "workspace-swapped",
    "rebase-replaced",
    "rebase-recorded",
    "rebase-owned",
];
/// Step of a rebase in which a rule drops versions of the agent.
pub(super) const FORMER_STEP: &str = "rebase-former-recorded";
/// Steps of a completion by the server: of a running sandbox, or of one that ends.
pub(super) const WORK_STEPS: [&str; 4] = ["work-committed", "work-synced", "work-owned", "work-recorded"];
/// Step of a rebase of the workspace of an agent, before its files are merged.
pub(super) const FILES_READ_STEP: &str = "files-read";
/// Step of such a rebase in which a rule drops versions of the agent.
pub(super) const FILES_OWNED_STEP: &str = "files-owned";
/// Steps of a move of the workspace of an agent to a newer head, without changes or with them.
pub(super) const MOVE_STEPS: [&str; 5] =
    ["move-begun", "move-committed", "move-checked-out", "move-recorded", "move-done"];

/// Snapshots of a server that no reference or pin protects, and that no owner has.
pub(super) struct Leftovers(BTreeSet<SnapshotId>);

impl Leftovers {
    /// Finds the snapshots that exist now.
    pub(super) fn of(server: &TestServer) -> Self {
        Self(find(server))
    }

    /// Restarts the server, and waits until it has removed all that were added since [`Leftovers::of`].
    #[track_caller]
    pub(super) fn assert_none_added(&self, server: &mut TestServer) {
        server.restart();
        wait_until("nothing is left behind", || find(server).is_subset(&self.0) && abandoned(server) == 0);
    }
}

fn open(server: &TestServer) -> Store {
    Store::open_or_create(server.path().join("store")).unwrap()
}

fn abandoned(server: &TestServer) -> usize {
    open(server).abandoned_snapshots().unwrap().len()
}

fn find(server: &TestServer) -> BTreeSet<SnapshotId> {
    let store = open(server);
    let mut found: BTreeSet<SnapshotId> = store.snapshots().unwrap().iter().map(|one| one.id).collect();
    let named = store.references().unwrap().into_iter().map(|(_, id)| id);
    let held: BTreeSet<SnapshotId> =
        named.chain(store.pins().unwrap().into_iter().map(|pin| pin.snapshot)).collect();
    found.retain(|id| !held.contains(id));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let catalog = Catalog::open(&sqlite_url(&server.path().join("catalog.db"))).await.unwrap();
        let names: Vec<String> = found.iter().map(ToString::to_string).collect();
        let recorded = catalog.snapshots().recorded(&names, Transactions::Ended).await.unwrap();
        found.retain(|id| !recorded.contains(&id.to_string()));
        catalog.close().await;
    });
    found
}

#[test]
fn every_failpoint_of_sandboxes_and_workspaces_is_tested() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut open = ["sandbox/src", "workspace/src", "server/src"].map(|path| crates.join(path)).to_vec();
    let mut found = BTreeSet::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        for part in fs::read_to_string(&path).unwrap_or_default().split("failpoint::hit(\"").skip(1) {
            found.insert(part.split('"').next().unwrap().to_owned());
        }
    }
    let single = [FORMER_STEP, FILES_READ_STEP, FILES_OWNED_STEP];
    let listed = [&REBASE_STEPS[..], &single, &WORK_STEPS, &MOVE_STEPS].concat();
    assert_eq!(found, listed.into_iter().map(str::to_owned).collect());
}
