//! Holders, and many sandboxes over one.

use libtest_mimic::Trial;
use workspace_host::Holder;
use workspace_host::Process;

use crate::guest::{Home, soon};
use crate::launcher::{runs, start};

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        of_several_servers_at_once_one_makes_the_holder,
        a_holder_outlives_whoever_started_it,
        without_its_holder_a_sandbox_goes_on_and_the_next_has_another,
        fifty_sandboxes_start_at_once,
    ]
}

/// Ends everything of a home before, so that the next has to make a holder.
fn without_holder() -> Home {
    let home = Home::new();
    home.holder.end();
    if let Holder::Process(process) = &home.holder {
        soon("the holder ends", || !process.is_running());
    }
    home
}

fn noted(home: &Home) -> Option<Process> {
    Process::read(&home.path("holder")).unwrap()
}

fn of_several_servers_at_once_one_makes_the_holder() {
    let home = without_holder();
    let former = noted(&home);
    let mut servers: Vec<_> = (0..8).map(|_| start("holder", &home.path(""))).collect();
    let mut found = Vec::new();
    for server in &mut servers {
        assert!(server.wait().unwrap().success());
        found.push(noted(&home));
    }
    found.dedup();
    assert_eq!(found.len(), 1, "{found:?}");
    let Some(holder) = &found[0] else {
        assert!(rustix::process::geteuid().is_root(), "no holder");
        return;
    };
    assert_ne!(found[0], former);
    assert!(holder.is_running());
    assert_eq!(Holder::find_or_start(&home.path("")).unwrap(), Holder::Process(holder.clone()));
    holder.kill();
}

fn a_holder_outlives_whoever_started_it() {
    let home = without_holder();
    assert!(start("holder", &home.path("")).wait().unwrap().success());
    if let Some(holder) = noted(&home) {
        // In a session of its own, whose terminal and group of processes are not the server's.
        let session = rustix::process::getsid(rustix::process::Pid::from_raw(holder.pid())).unwrap();
        assert_eq!(session.as_raw_nonzero().get(), holder.pid());
        assert!(holder.is_running());
        holder.kill();
    }
}

fn without_its_holder_a_sandbox_goes_on_and_the_next_has_another() {
    let home = Home::new();
    let sandbox = home.launch(|_| {});
    if let Holder::Process(former) = &home.holder {
        home.holder.end();
        soon("the holder ends", || !runs(former.pid()));
        assert!(home.try_launch(|launch| launch.id = "sbx-other").is_err());
    }
    assert_eq!(sandbox.sh("echo goes on > /workspace/x; cat /workspace/x"), "goes on\n");
    let holder = Holder::find_or_start(&home.path("")).unwrap();
    assert_eq!(holder == home.holder, holder == Holder::Machine);
    let other = Home::new();
    let next = other.launch(|launch| launch.holder = &holder);
    assert_eq!(next.sh("echo runs"), "runs\n");
    assert!(sandbox.process.is_running());
    holder.end();
}

fn fifty_sandboxes_start_at_once() {
    let homes: Vec<Home> = (0..50).map(|_| Home::new()).collect();
    let holder = &homes[0].holder;
    let sandboxes: Vec<_> = std::thread::scope(|scope| {
        let one = |home| scope.spawn(move || Home::launch(home, |launch| launch.holder = holder));
        let all: Vec<_> = homes.iter().map(one).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (home, sandbox) in homes.iter().zip(&sandboxes) {
        assert_eq!(sandbox.sh("hostname"), format!("{}\n", home.id()));
    }
}
