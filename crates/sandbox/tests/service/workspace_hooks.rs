//! Services that use the files of workspaces from outside.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use libtest_mimic::Trial;
use rustix::fs::{Mode, OFlags, openat};
use workspace_catalog::{Change, Filter, State};
use workspace_sandbox::{
    HookFailure, IfInUse, KeptWorkspace, NewSandbox, PauseMode, ReclaimPolicy, RemovalCause, Retain,
    SandboxError, Scope, Service, Settings, View, WorkspaceHooks,
};
use workspace_state::{NewSnapshot, SnapshotId};

use crate::home::{TIMEOUT, TestHome, alice, base, create, creator, run, sh, wait_until};
use crate::kind::Kind;
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! on_embedded {
        ($($name:ident),* $(,)?) => {
            vec![$(Trial::test(concat!("workspace_users::", stringify!($name)), || {
                run(Kind::Embedded, |home| Box::pin($name(home)));
                Ok(())
            })),*]
        };
    }
    let mut trials = trials![user_reads_new_and_restored_workspaces, user_follows_pauses];
    trials.append(&mut on_embedded![
        files_that_a_user_keeps_outlive_their_sandbox,
        workspace_that_a_user_keeps_becomes_a_snapshot_for_the_caller,
        nothing_is_deleted_until_a_user_answers,
        expired_sandbox_stays_until_a_user_answers,
        creation_is_undone_if_a_user_does_not_accept_the_workspace,
        orphans_are_kept_until_a_user_answers,
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
    Removal { id: String, cause: RemovalCause },
    Replaced { id: String },
}

/// A user that records its calls and keeps the roots of all workspaces open.
#[derive(Debug, Default)]
struct TestUser {
    on_created: Mutex<Behaviour>,
    on_removal: Mutex<Behaviour>,
    on_retained: Mutex<Behaviour>,
    /// True if it keeps all files.
    keeps: Mutex<bool>,
    kept: Mutex<HashSet<String>>,
    calls: Mutex<Vec<Call>>,
    roots: Mutex<HashMap<String, OwnedFd>>,
}

impl TestUser {
    fn record(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Reads a file of a workspace; `None` if there is none.
    fn read(&self, id: &str, name: &str) -> Option<String> {
        read_below(self.roots.lock().unwrap().get(id)?, name)
    }
}

fn set<T>(value: &Mutex<T>, new: T) {
    *value.lock().unwrap() = new;
}

fn read_below(root: &OwnedFd, name: &str) -> Option<String> {
    let file = openat(root, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    Some(std::io::read_to_string(File::from(file)).unwrap())
}

#[async_trait]
impl WorkspaceHooks for TestUser {
    async fn created(&self, id: &str, owner: &str, root: OwnedFd) -> Result<(), HookFailure> {
        self.record(Call::Created { id: id.to_owned(), owner: owner.to_owned() });
        let behaviour = *self.on_created.lock().unwrap();
        behaviour.act().await?;
        self.roots.lock().unwrap().insert(id.to_owned(), root);
        Ok(())
    }

    async fn before_removal(&self, id: &str, cause: RemovalCause) -> Result<Retain, HookFailure> {
        self.record(Call::Removal { id: id.to_owned(), cause });
        let behaviour = *self.on_removal.lock().unwrap();
        behaviour.act().await?;
        if *self.keeps.lock().unwrap() {
            self.kept.lock().unwrap().insert(id.to_owned());
            return Ok(Retain::Keep);
        }
        self.roots.lock().unwrap().remove(id);
        Ok(Retain::Release)
    }

    async fn replaced(&self, id: &str, root: Option<OwnedFd>) {
        self.record(Call::Replaced { id: id.to_owned() });
        let mut roots = self.roots.lock().unwrap();
        match root {
            Some(root) => drop(roots.insert(id.to_owned(), root)),
            None => drop(roots.remove(id)),
        }
    }

    async fn retained(&self, ids: &[String]) -> Result<HashSet<String>, HookFailure> {
        let behaviour = *self.on_retained.lock().unwrap();
        behaviour.act().await?;
        let kept = self.kept.lock().unwrap();
        Ok(ids.iter().filter(|id| kept.contains(*id)).cloned().collect())
    }
}

async fn start(home: &TestHome, user: &Arc<TestUser>) -> Service {
    home.start_with(with_users(&[user])).await
}

fn with_users(users: &[&Arc<TestUser>]) -> impl FnOnce(&mut Settings) + use<> {
    let of = |user: &&Arc<TestUser>| -> Arc<dyn WorkspaceHooks> { Arc::<TestUser>::clone(user) };
    let users: Vec<_> = users.iter().map(of).collect();
    move |settings: &mut Settings| {
        settings.workspace_hooks = users;
        settings.hook_timeout = Duration::from_millis(100);
        settings.expiry_interval = Duration::from_millis(50);
    }
}

fn snapshot(service: &Service) -> SnapshotId {
    let mut tree = service.workspaces().store().empty_tree().unwrap();
    tree.write("file", "content\n").unwrap();
    tree.commit(NewSnapshot::default()).unwrap().id
}

async fn create_from(service: &Service, snapshot: SnapshotId) -> View {
    service.create(creator(), NewSandbox { snapshot: Some(snapshot), ..base() }).await.unwrap()
}

/// Ends the lifetime of a sandbox.
async fn expire(home: &TestHome, id: &str) {
    let catalog = home.catalog().await;
    let found = catalog.sandboxes().get(id).await.unwrap().unwrap();
    let change = Change { expires_at: Some(found.created_at), ..Change::default() };
    catalog.sandboxes().change(id, found.version, change, &[]).await.unwrap();
}

async fn wait_until_removed(service: &Service, id: &str) {
    wait_until("it is removed", async || service.get(&alice(), id).await.is_err()).await;
}

async fn user_follows_pauses(home: &TestHome) {
    let user = Arc::new(TestUser::default());
    let service = start(home, &user).await;
    let view = create(&service).await;
    let id = &view.sandbox.id;
    sh(&service, &view, "echo hello > greeting").await;
    service.pause(&alice(), id, PauseMode::Disk).await.unwrap();
    assert_eq!(user.read(id, "greeting"), None, "it was told that the workspace is gone");
    service.resume(&alice(), id, creator(), None).await.unwrap();
    assert_eq!(user.read(id, "greeting").as_deref(), Some("hello\n"));
    sh(&service, &view, "echo later > later").await;
    assert_eq!(user.read(id, "later").as_deref(), Some("later\n"));
    service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
}

async fn user_reads_new_and_restored_workspaces(home: &TestHome) {
    let user = Arc::new(TestUser::default());
    let service = start(home, &user).await;
    let from = snapshot(&service);
    // A plain directory, and layers where that is possible.
    for from_snapshot in [false, true] {
        let view = if from_snapshot { create_from(&service, from).await } else { create(&service).await };
        let id = &view.sandbox.id;
        sh(&service, &view, "echo hello > greeting").await;
        assert_eq!(user.read(id, "greeting").as_deref(), Some("hello\n"));
        service.restore(&alice(), id, from, IfInUse::KillProcesses).await.unwrap();
        assert_eq!(user.read(id, "file").as_deref(), Some("content\n"));
        assert_eq!(user.read(id, "greeting"), None);
        sh(&service, &view, "echo later > later").await;
        assert_eq!(user.read(id, "later").as_deref(), Some("later\n"));
        service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap();
        let id = id.clone();
        let expected = [
            Call::Created { id: id.clone(), owner: "alice".to_owned() },
            Call::Replaced { id: id.clone() },
            Call::Removal { id, cause: RemovalCause::Deleted },
        ];
        assert_eq!(std::mem::take(&mut *user.calls.lock().unwrap()), expected);
    }
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(service.workspaces().list().unwrap().is_empty());
}

async fn files_that_a_user_keeps_outlive_their_sandbox(home: &TestHome) {
    let user = Arc::new(TestUser::default());
    set(&user.keeps, true);
    let service = start(home, &user).await;
    let from = snapshot(&service);
    let views = [create(&service).await, create_from(&service, from).await];
    for view in &views {
        sh(&service, view, "echo mine > file").await;
    }
    let ids = views.each_ref().map(|view| view.sandbox.id.as_str());
    let removed = service.remove(&alice(), ids[0], ReclaimPolicy::Delete).await.unwrap();
    assert_eq!(removed, KeptWorkspace::None);
    expire(home, ids[1]).await;
    wait_until_removed(&service, ids[1]).await;
    let calls = user.calls();
    for (id, cause) in [(ids[0], RemovalCause::Deleted), (ids[1], RemovalCause::Expired)] {
        assert!(calls.contains(&Call::Removal { id: id.to_owned(), cause }), "{calls:?}");
        assert_eq!(user.read(id, "file").as_deref(), Some("mine\n"));
        assert!(!home.path().join("sandboxes").join(id).exists());
    }
    assert_eq!(service.collect().await.unwrap().workspaces, 0);
    service.close().await;
    drop(service);
    let service = start(home, &user).await;
    for id in ids {
        let root = service.workspaces().open_root(id).unwrap();
        assert_eq!(read_below(&root, "file").as_deref(), Some("mine\n"));
    }
    // The user no longer needs them.
    user.kept.lock().unwrap().clear();
    user.roots.lock().unwrap().clear();
    assert_eq!(service.collect().await.unwrap().workspaces, 2);
    assert!(service.workspaces().list().unwrap().is_empty());
}

async fn workspace_that_a_user_keeps_becomes_a_snapshot_for_the_caller(home: &TestHome) {
    let user = Arc::new(TestUser::default());
    set(&user.keeps, true);
    let service = start(home, &user).await;
    let view = create(&service).await;
    sh(&service, &view, "echo mine > file").await;
    let kept = service.remove(&Scope::All, &view.sandbox.id, ReclaimPolicy::Keep).await.unwrap();
    let KeptWorkspace::Snapshot(kept) = kept else { panic!("{kept:?}") };
    let tree = service.workspaces().store().restore(&kept).unwrap();
    assert_eq!(tree.read("file").unwrap(), b"mine\n");
    assert_eq!(user.read(&view.sandbox.id, "file").as_deref(), Some("mine\n"));
    assert!(home.workspace(&view).join("file").exists());
}

async fn nothing_is_deleted_until_a_user_answers(home: &TestHome) {
    let user = Arc::new(TestUser::default());
    let service = start(home, &user).await;
    for behaviour in [Behaviour::Fails, Behaviour::Hangs] {
        let view = create(&service).await;
        let id = view.sandbox.id.as_str();
        sh(&service, &view, "echo mine > file").await;
        set(&user.on_removal, behaviour);
        for _ in 0..2 {
            let refused = service.remove(&alice(), id, ReclaimPolicy::Delete).await.unwrap_err();
            assert!(matches!(refused, SandboxError::RemovalHook { .. }), "{refused}");
        }
        assert_eq!(service.get(&alice(), id).await.unwrap().sandbox.state, State::Stopping);
        assert_eq!(service.collect().await.unwrap().workspaces, 0);
        assert_eq!(user.read(id, "file").as_deref(), Some("mine\n"));
        set(&user.on_removal, Behaviour::Answers);
        wait_until_removed(&service, id).await;
        assert!(service.wait_for_removed_files(TIMEOUT).await);
        assert!(!home.workspace(&view).exists());
    }
}

async fn expired_sandbox_stays_until_a_user_answers(home: &TestHome) {
    let user = Arc::new(TestUser::default());
    let service = start(home, &user).await;
    let view = create(&service).await;
    let id = view.sandbox.id.as_str();
    sh(&service, &view, "echo mine > file").await;
    set(&user.on_removal, Behaviour::Fails);
    expire(home, id).await;
    let asked = Call::Removal { id: id.to_owned(), cause: RemovalCause::Expired };
    let count = || user.calls().iter().filter(|call| **call == asked).count();
    // Asked once more in the background.
    wait_until("the user is asked again", async || count() >= 2).await;
    assert_eq!(service.get(&alice(), id).await.unwrap().sandbox.state, State::Stopping);
    assert!(home.workspace(&view).join("file").exists());
    // The next server asks with the same cause.
    service.close().await;
    drop(service);
    user.calls.lock().unwrap().clear();
    let service = start(home, &user).await;
    assert_eq!(user.calls().first(), Some(&asked));
    assert!(home.workspace(&view).join("file").exists());
    set(&user.on_removal, Behaviour::Answers);
    wait_until_removed(&service, id).await;
    assert!(service.wait_for_removed_files(TIMEOUT).await);
    assert!(!home.workspace(&view).exists());
}

async fn creation_is_undone_if_a_user_does_not_accept_the_workspace(home: &TestHome) {
    for pool in [0, 1] {
        let (first, second) = (Arc::new(TestUser::default()), Arc::new(TestUser::default()));
        let users = with_users(&[&first, &second]);
        let service = home
            .start_with(|settings| {
                users(settings);
                settings.max_pool_size = pool;
            })
            .await;
        wait_until("the pool is full", async || service.warm_pool_size() == pool as usize).await;
        for behaviour in [Behaviour::Fails, Behaviour::Hangs] {
            set(&second.on_created, behaviour);
            let refused = service.create(creator(), base()).await.unwrap_err();
            assert!(matches!(refused, SandboxError::CreationHook { .. }), "{refused}");
            let calls = std::mem::take(&mut *first.calls.lock().unwrap());
            let [Call::Created { id, .. }, Call::Removal { id: removed, cause }] = &calls[..] else {
                panic!("{calls:?}")
            };
            assert_eq!((id, *cause), (removed, RemovalCause::CreationFailed));
            assert!(!home.path().join("sandboxes").join(id).exists());
            assert!(service.workspaces().list().unwrap().is_empty());
            assert_eq!(service.list(&Scope::All, Filter::default()).await.unwrap().1, 0);
        }
        set(&second.on_created, Behaviour::Answers);
        let view = create(&service).await;
        assert_eq!(sh(&service, &view, "echo works").await.stdout, "works\n");
        service.remove(&alice(), &view.sandbox.id, ReclaimPolicy::Delete).await.unwrap();
        service.close().await;
    }
}

async fn orphans_are_kept_until_a_user_answers(home: &TestHome) {
    let user = Arc::new(TestUser::default());
    let service = start(home, &user).await;
    let view = create(&service).await;
    let id = view.sandbox.id.as_str();
    sh(&service, &view, "echo mine > file").await;
    let process = home.process(id);
    service.close().await;
    drop(service);
    home.catalog().await.sandboxes().delete(id, &[]).await.unwrap();
    set(&user.on_retained, Behaviour::Fails);
    let service = start(home, &user).await;
    assert!(!process.is_running());
    let file = home.workspace(&view).join("file");
    for behaviour in [Behaviour::Fails, Behaviour::Hangs] {
        set(&user.on_retained, behaviour);
        assert_eq!(service.collect().await.unwrap().workspaces, 0);
        assert!(file.exists());
    }
    set(&user.on_retained, Behaviour::Answers);
    user.kept.lock().unwrap().insert(id.to_owned());
    assert_eq!(service.collect().await.unwrap().workspaces, 0);
    assert!(file.exists());
    user.kept.lock().unwrap().clear();
    assert_eq!(service.collect().await.unwrap().workspaces, 1);
    assert!(!file.exists());
}
