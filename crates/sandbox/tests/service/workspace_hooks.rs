//! Services that use the files of workspaces from outside.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libtest_mimic::Trial;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, openat};
use workspace_catalog::{Change, Filter, State};
use workspace_sandbox::{
    HookFailure, HookedWorkspace, IfInUse, KeptWorkspace, NewSandbox, PauseMode, ReclaimPolicy, RemovalCause,
    Retain, SandboxError, SandboxInfo, Scope, Service, Settings, WorkspaceHooks, WorkspaceRoot,
};
use workspace_state::{NewSnapshot, SnapshotId};

use crate::home::{DEFAULT_LIFETIME, TIMEOUT, TestHome, alice, base, create, creator, run, sh, wait_until};
use crate::kind::RuntimeKind;
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! on_embedded {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(concat!("workspace_hooks::", stringify!($name)), || {
                run(RuntimeKind::Embedded, |home| Box::pin($name(home)));
                Ok(())
            })),*]
        };
    }
    let mut trials = trials![hooks_can_read_new_and_restored_workspaces, hooks_are_called_at_pauses];
    trials.append(&mut on_embedded![
        files_that_a_hook_keeps_outlive_their_sandbox,
        workspace_that_a_hook_keeps_becomes_a_snapshot_for_the_caller,
        nothing_is_deleted_until_a_hook_answers,
        expired_sandbox_stays_until_a_hook_answers,
        creation_is_undone_if_a_hook_does_not_accept_the_workspace,
        orphans_are_kept_until_a_hook_answers,
    ]);
    trials
}

/// Behaviour of a call.
#[derive(Debug, Clone, Copy, Default)]
enum Behaviour {
    #[default]
    Answers,
    Fails,
    Hangs,
}

impl Behaviour {
    async fn act(self) -> Result<(), HookFailure> {
        match self {
            Self::Answers => Ok(()),
            Self::Fails => Err("a failure for a test".into()),
            Self::Hangs => std::future::pending().await,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Call {
    Created { id: String, owner: String },
    Recovered { id: String },
    Removal { id: String, cause: RemovalCause },
    Replaced { id: String },
}

/// Hooks that record their calls and keep the roots of all workspaces open.
#[derive(Debug, Default)]
struct RecordingHooks {
    on_created: Mutex<Behaviour>,
    on_removal: Mutex<Behaviour>,
    on_retained: Mutex<Behaviour>,
    /// True if it answers that it keeps the files of every workspace.
    keeps: Mutex<bool>,
    /// Ids of the workspaces whose files it keeps.
    kept: Mutex<HashSet<String>>,
    /// Calls in their order.
    calls: Mutex<Vec<Call>>,
    /// Open roots of workspaces, by id.
    roots: Mutex<HashMap<String, WorkspaceRoot>>,
}

impl RecordingHooks {
    fn record(&self, call: Call) {
        self.calls.lock().push(call);
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    /// Reads a file of a workspace; `None` if there is none.
    fn read(&self, id: &str, name: &str) -> Option<String> {
        read_below(&self.roots.lock().get(id)?.directory, name)
    }
}

fn set<T>(value: &Mutex<T>, new: T) {
    *value.lock() = new;
}

fn read_below(root: &OwnedFd, name: &str) -> Option<String> {
    let file = openat(root, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    Some(std::io::read_to_string(File::from(file)).unwrap())
}

#[async_trait]
impl WorkspaceHooks for RecordingHooks {
    async fn created(&self, workspace: HookedWorkspace<'_>, root: WorkspaceRoot) -> Result<(), HookFailure> {
        self.record(Call::Created { id: workspace.id.to_owned(), owner: workspace.owner.to_owned() });
        let behaviour = *self.on_created.lock();
        behaviour.act().await?;
        self.roots.lock().insert(workspace.id.to_owned(), root);
        Ok(())
    }

    async fn recovered(&self, workspace: HookedWorkspace<'_>, root: WorkspaceRoot) {
        self.record(Call::Recovered { id: workspace.id.to_owned() });
        self.roots.lock().insert(workspace.id.to_owned(), root);
    }

    async fn before_removal(&self, id: &str, cause: RemovalCause) -> Result<Retain, HookFailure> {
        self.record(Call::Removal { id: id.to_owned(), cause });
        let behaviour = *self.on_removal.lock();
        behaviour.act().await?;
        if *self.keeps.lock() {
            self.kept.lock().insert(id.to_owned());
            return Ok(Retain::Keep);
        }
        self.roots.lock().remove(id);
        Ok(Retain::Release)
    }

    async fn replaced(&self, id: &str, root: Option<WorkspaceRoot>) {
        self.record(Call::Replaced { id: id.to_owned() });
        let mut roots = self.roots.lock();
        match root {
            Some(root) => drop(roots.insert(id.to_owned(), root)),
            None => drop(roots.remove(id)),
        }
    }

    async fn retained(&self, ids: &[String]) -> Result<HashSet<String>, HookFailure> {
        let behaviour = *self.on_retained.lock();
        behaviour.act().await?;
        let kept = self.kept.lock();
        Ok(ids.iter().filter(|id| kept.contains(*id)).cloned().collect())
    }
}

async fn start(home: &TestHome, hooks: &Arc<RecordingHooks>) -> Service {
    home.start_with(with_hooks(&[hooks])).await
}

fn with_hooks(hooks: &[&Arc<RecordingHooks>]) -> impl FnOnce(&mut Settings) + use<> {
    let shared =
        |one: &&Arc<RecordingHooks>| -> Arc<dyn WorkspaceHooks> { Arc::<RecordingHooks>::clone(one) };
    let hooks: Vec<_> = hooks.iter().map(shared).collect();
    move |settings: &mut Settings| {
        settings.workspace_hooks = hooks;
        settings.hook_timeout = Duration::from_millis(100);
        settings.expiry_interval = Duration::from_millis(50);
    }
}

fn snapshot(service: &Service) -> SnapshotId {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("file", "content\n").unwrap();
    tree.commit(NewSnapshot::default()).unwrap().id
}

async fn create_from(service: &Service, snapshot: SnapshotId) -> SandboxInfo {
    service.create(creator(), NewSandbox { snapshot: Some(snapshot), ..base() }).await.unwrap()
}

/// Ends the lifetime of a sandbox.
async fn expire(home: &TestHome, id: &str) {
    let catalog = home.catalog().await;
    let found = catalog.sandboxes().get(id).await.unwrap().unwrap();
    let change = Change { expires_at: Some(found.created_at), ..Change::default() };
    let no_events = &[];
    catalog.sandboxes().change(id, found.version, change, no_events).await.unwrap();
}

async fn wait_until_removed(service: &Service, id: &str) {
    wait_until("it is removed", async || service.get(&alice(), id).await.is_err()).await;
}

async fn hooks_are_called_at_pauses(home: &TestHome) {
    let hooks = Arc::new(RecordingHooks::default());
    let service = start(home, &hooks).await;
    let info = create(&service).await;
    let id = &info.sandbox.id;
    sh(&service, &info, "echo hello > greeting").await;
    service.pause(&alice(), id, PauseMode::Disk).await.unwrap();
    assert_eq!(hooks.read(id, "greeting"), None, "it was told that the workspace is gone");
    service.resume(&alice(), id, creator(), DEFAULT_LIFETIME).await.unwrap();
    assert_eq!(hooks.read(id, "greeting").as_deref(), Some("hello\n"));
    sh(&service, &info, "echo later > later").await;
    assert_eq!(hooks.read(id, "later").as_deref(), Some("later\n"));
    service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
}

async fn hooks_can_read_new_and_restored_workspaces(home: &TestHome) {
    let hooks = Arc::new(RecordingHooks::default());
    let service = start(home, &hooks).await;
    let from = snapshot(&service);
    // A plain directory, and layers where that is possible.
    for from_snapshot in [false, true] {
        let info = if from_snapshot { create_from(&service, from).await } else { create(&service).await };
        let id = &info.sandbox.id;
        sh(&service, &info, "echo hello > greeting").await;
        assert_eq!(hooks.read(id, "greeting").as_deref(), Some("hello\n"));
        service.restore(&alice(), id, from, IfInUse::KillProcesses).await.unwrap();
        assert_eq!(hooks.read(id, "file").as_deref(), Some("content\n"));
        assert_eq!(hooks.read(id, "greeting"), None);
        sh(&service, &info, "echo later > later").await;
        assert_eq!(hooks.read(id, "later").as_deref(), Some("later\n"));
        service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
        let id = id.clone();
        let expected = [
            Call::Created { id: id.clone(), owner: "alice".to_owned() },
            Call::Replaced { id: id.clone() },
            Call::Removal { id, cause: RemovalCause::Deleted },
        ];
        assert_eq!(std::mem::take(&mut *hooks.calls.lock()), expected);
    }
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(service.workspaces().list().unwrap().is_empty());
}

async fn files_that_a_hook_keeps_outlive_their_sandbox(home: &TestHome) {
    let hooks = Arc::new(RecordingHooks::default());
    set(&hooks.keeps, true);
    let service = start(home, &hooks).await;
    let from = snapshot(&service);
    let infos = [create(&service).await, create_from(&service, from).await];
    for info in &infos {
        sh(&service, info, "echo mine > file").await;
    }
    let ids = infos.each_ref().map(|info| info.sandbox.id.as_str());
    let removed = service.remove(&alice(), ids[0], ReclaimPolicy::Delete).await.unwrap().kept;
    assert_eq!(removed, KeptWorkspace::None);
    expire(home, ids[1]).await;
    wait_until_removed(&service, ids[1]).await;
    let calls = hooks.calls();
    for (id, cause) in [(ids[0], RemovalCause::Deleted), (ids[1], RemovalCause::Expired)] {
        assert!(calls.contains(&Call::Removal { id: id.to_owned(), cause }), "{calls:?}");
        assert_eq!(hooks.read(id, "file").as_deref(), Some("mine\n"));
        assert!(!home.path().join("sandboxes").join(id).exists());
    }
    assert_eq!(service.collect().await.unwrap().workspaces, 0);
    service.close().await;
    drop(service);
    let service = start(home, &hooks).await;
    for id in ids {
        let root = service.workspaces().open_root(id).unwrap();
        assert_eq!(read_below(&root, "file").as_deref(), Some("mine\n"));
    }
    // The hook no longer needs the files.
    hooks.kept.lock().clear();
    hooks.roots.lock().clear();
    assert_eq!(service.collect().await.unwrap().workspaces, 2);
    assert!(service.workspaces().list().unwrap().is_empty());
}

async fn workspace_that_a_hook_keeps_becomes_a_snapshot_for_the_caller(home: &TestHome) {
    let hooks = Arc::new(RecordingHooks::default());
    set(&hooks.keeps, true);
    let service = start(home, &hooks).await;
    let info = create(&service).await;
    sh(&service, &info, "echo mine > file").await;
    let kept = service.remove(&Scope::All, &info.sandbox.id, ReclaimPolicy::Keep).await.unwrap().kept;
    let KeptWorkspace::Snapshot(kept) = kept else { panic!("{kept:?}") };
    let tree = service.workspaces().store().restore(&kept).unwrap();
    assert_eq!(tree.read("file").unwrap(), b"mine\n");
    assert_eq!(hooks.read(&info.sandbox.id, "file").as_deref(), Some("mine\n"));
    assert!(home.workspace(&info).join("file").exists());
}

async fn nothing_is_deleted_until_a_hook_answers(home: &TestHome) {
    let hooks = Arc::new(RecordingHooks::default());
    let service = start(home, &hooks).await;
    for behaviour in [Behaviour::Fails, Behaviour::Hangs] {
        let info = create(&service).await;
        let id = info.sandbox.id.as_str();
        sh(&service, &info, "echo mine > file").await;
        set(&hooks.on_removal, behaviour);
        for _ in 0..2 {
            let refused = service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap_err();
            assert!(matches!(refused, SandboxError::RemovalHook { .. }), "{refused}");
        }
        assert_eq!(service.get(&alice(), id).await.unwrap().sandbox.state, State::Stopping);
        assert_eq!(service.collect().await.unwrap().workspaces, 0);
        assert_eq!(hooks.read(id, "file").as_deref(), Some("mine\n"));
        set(&hooks.on_removal, Behaviour::Answers);
        wait_until_removed(&service, id).await;
        assert!(service.wait_for_removed_files(TIMEOUT).await);
        assert!(!home.workspace(&info).exists());
    }
}

async fn expired_sandbox_stays_until_a_hook_answers(home: &TestHome) {
    let hooks = Arc::new(RecordingHooks::default());
    let service = start(home, &hooks).await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo mine > file").await;
    set(&hooks.on_removal, Behaviour::Fails);
    expire(home, id).await;
    let asked = Call::Removal { id: id.to_owned(), cause: RemovalCause::Expired };
    let count = || hooks.calls().iter().filter(|call| **call == asked).count();
    // Asked once more in the background.
    wait_until("the hook is called again", async || count() >= 2).await;
    assert_eq!(service.get(&alice(), id).await.unwrap().sandbox.state, State::Stopping);
    assert!(home.workspace(&info).join("file").exists());
    // The next server asks with the same cause.
    service.close().await;
    drop(service);
    hooks.calls.lock().clear();
    let service = start(home, &hooks).await;
    assert_eq!(hooks.calls().first(), Some(&asked));
    assert!(home.workspace(&info).join("file").exists());
    set(&hooks.on_removal, Behaviour::Answers);
    wait_until_removed(&service, id).await;
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(!home.workspace(&info).exists());
}

async fn creation_is_undone_if_a_hook_does_not_accept_the_workspace(home: &TestHome) {
    for pool in [0, 1] {
        let (first, second) = (Arc::new(RecordingHooks::default()), Arc::new(RecordingHooks::default()));
        let set_hooks = with_hooks(&[&first, &second]);
        let service = home
            .start_with(|settings| {
                set_hooks(settings);
                settings.max_pool_size = pool;
            })
            .await;
        wait_until("the pool is full", async || service.warm_pool_size() == pool as usize).await;
        for behaviour in [Behaviour::Fails, Behaviour::Hangs] {
            set(&second.on_created, behaviour);
            let refused = service.create(creator(), base()).await.unwrap_err();
            assert!(matches!(refused, SandboxError::CreationHook { .. }), "{refused}");
            let calls = std::mem::take(&mut *first.calls.lock());
            let [Call::Created { id, .. }, Call::Removal { id: removed, cause }] = &calls[..] else {
                panic!("{calls:?}")
            };
            assert_eq!((id, *cause), (removed, RemovalCause::CreationFailed));
            assert!(!home.path().join("sandboxes").join(id).exists());
            assert!(service.workspaces().list().unwrap().is_empty());
            assert_eq!(service.list(&Scope::All, Filter::default()).await.unwrap().1, 0);
        }
        set(&second.on_created, Behaviour::Answers);
        let info = create(&service).await;
        assert_eq!(sh(&service, &info, "echo works").await.stdout, "works\n");
        service.remove(&alice(), &info.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
        service.close().await;
    }
}

async fn orphans_are_kept_until_a_hook_answers(home: &TestHome) {
    let hooks = Arc::new(RecordingHooks::default());
    let service = start(home, &hooks).await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    sh(&service, &info, "echo mine > file").await;
    let process = home.process(id);
    service.close().await;
    drop(service);
    let no_events = &[];
    home.catalog().await.sandboxes().delete(id, no_events).await.unwrap();
    set(&hooks.on_retained, Behaviour::Fails);
    let service = start(home, &hooks).await;
    assert!(!process.is_running());
    let file = home.workspace(&info).join("file");
    for behaviour in [Behaviour::Fails, Behaviour::Hangs] {
        set(&hooks.on_retained, behaviour);
        assert_eq!(service.collect().await.unwrap().workspaces, 0);
        assert!(file.exists());
    }
    set(&hooks.on_retained, Behaviour::Answers);
    hooks.kept.lock().insert(id.to_owned());
    assert_eq!(service.collect().await.unwrap().workspaces, 0);
    assert!(file.exists());
    hooks.kept.lock().clear();
    assert_eq!(service.collect().await.unwrap().workspaces, 1);
    assert!(!file.exists());
}
