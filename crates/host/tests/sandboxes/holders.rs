//! Namespace holders, and many sandboxes with one holder.
//!
//! `Fixture` (`guest.rs`) has the directories of one sandbox and launches it. `start` (`launcher.rs`) runs a task in
//! another process, like another server, and `runs` returns true while a process runs.

use libtest_mimic::Trial;
use workspace_host::NamespaceHolder;
use workspace_host::Process;
use workspace_test_support::wait_until;

use crate::guest::Fixture;
use crate::launcher::{runs, start};

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        concurrent_servers_share_one_holder,
        a_holder_outlives_its_server,
        a_sandbox_outlives_its_holder_and_the_next_gets_a_new_one,
        fifty_sandboxes_start_concurrently,
    ]
}

/// Returns a fixture whose holder has ended.
fn without_holder() -> Fixture {
    let home = Fixture::new();
    home.holder.kill();
    if let NamespaceHolder::Process(process) = &home.holder {
        wait_until("the holder ends", || !process.is_running());
    }
    home
}

fn recorded(home: &Fixture) -> Option<Process> {
    Process::read(&home.path("holder")).unwrap()
}

fn concurrent_servers_share_one_holder() {
    let home = without_holder();
    let former = recorded(&home);
    let mut servers: Vec<_> = (0..8).map(|_| start("holder", &home.path(""))).collect();
    let mut found = Vec::new();
    for server in &mut servers {
        assert!(server.wait().unwrap().success());
        found.push(recorded(&home));
    }
    found.dedup();
    assert_eq!(found.len(), 1, "{found:?}");
    let Some(holder) = &found[0] else {
        assert!(rustix::process::geteuid().is_root(), "only root has no holder");
        return;
    };
    assert_ne!(found[0], former);
    assert!(holder.is_running());
    assert_eq!(
        NamespaceHolder::find_or_start(&home.path("")).unwrap(),
        NamespaceHolder::Process(holder.clone())
    );
    holder.kill();
}

fn a_holder_outlives_its_server() {
    let home = without_holder();
    assert!(start("holder", &home.path("")).wait().unwrap().success());
    if let Some(holder) = recorded(&home) {
        // In its own session, apart from the server's terminal and process group.
        let session = rustix::process::getsid(rustix::process::Pid::from_raw(holder.pid())).unwrap();
        assert_eq!(session.as_raw_nonzero().get(), holder.pid());
        assert!(holder.is_running());
        holder.kill();
    }
}

fn a_sandbox_outlives_its_holder_and_the_next_gets_a_new_one() {
    let home = Fixture::new();
    let sandbox = home.launch(|_| {});
    if let NamespaceHolder::Process(former) = &home.holder {
        home.holder.kill();
        wait_until("the holder ends", || !runs(former.pid()));
        assert!(home.try_launch(|launch| launch.id = "sbx-other").is_err());
    }
    assert_eq!(sandbox.sh("echo goes on > /workspace/x; cat /workspace/x"), "goes on\n");
    let holder = NamespaceHolder::find_or_start(&home.path("")).unwrap();
    assert_eq!(holder == home.holder, holder == NamespaceHolder::None);
    let other = Fixture::new();
    let next = other.launch(|launch| launch.holder = &holder);
    assert_eq!(next.sh("echo runs"), "runs\n");
    assert!(sandbox.process.is_running());
    holder.kill();
}

fn fifty_sandboxes_start_concurrently() {
    let homes: Vec<Fixture> = (0..50).map(|_| Fixture::new()).collect();
    let holder = &homes[0].holder;
    let sandboxes: Vec<_> = std::thread::scope(|scope| {
        let one = |home| scope.spawn(move || Fixture::launch(home, |launch| launch.holder = holder));
        let all: Vec<_> = homes.iter().map(one).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (home, sandbox) in homes.iter().zip(&sandboxes) {
        assert_eq!(sandbox.sh("hostname"), format!("{}\n", home.id()));
    }
}
