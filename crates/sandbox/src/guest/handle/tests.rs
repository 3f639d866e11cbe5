use super::*;

fn handle() -> SandboxHandle {
    SandboxHandle::new("sbx-1", SandboxDir::new("/nonexistent".into()), "")
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_guest_that_is_given_up_is_told_so() {
    let handle = handle();
    let running = Running::new("cmd-1", 1);
    let mut progress = running.follow();
    let given_up = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        handle.set_lost("away");
    };
    let (news, ()) = tokio::join!(handle.news(&running, &mut progress), given_up);
    assert!(matches!(news, Err(SandboxError::AgentLost { reason, .. }) if reason == "away"));
    // What was told before comes first.
    running.advance(1, None);
    assert!(handle.news(&running, &mut progress).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_end_is_not_told_in_time_is_an_error_unless_its_sandbox_is_frozen() {
    let handle = handle();
    let running = Running::new("cmd-1", 1);
    running.set_due(Duration::from_secs(2));
    let mut progress = running.follow();
    let frozen = handle.expect_silence();
    let waiting = tokio::time::timeout(Duration::from_secs(100), handle.news(&running, &mut progress));
    assert!(waiting.await.is_err(), "it is waited for while it may be frozen");
    drop(frozen);
    *handle.silences() = (0, None);
    let news = handle.news(&running, &mut progress).await;
    assert!(matches!(news, Err(SandboxError::AgentLost { .. })), "{news:?}");
}

#[test]
fn commands_that_a_guest_makes_up_are_not_all_remembered() {
    let handle = handle();
    for number in 0..TOLD_OF_MAX + 10 {
        assert_eq!(handle.told_of(&number.to_string()).id, number.to_string());
    }
    assert_eq!(handle.commands().len(), TOLD_OF_MAX);
    assert!(handle.command("0").is_some());
    let handle = self::handle();
    handle.told_of(&"x".repeat(ID_MAX + 1));
    assert_eq!(handle.commands().len(), 0);
}

#[test]
fn a_guest_lists_no_more_processes_than_a_sandbox_may_have() {
    let handle = handle();
    let long = |text: &str| Process { arguments: text.repeat(ARGUMENTS_MAX), ..Process::default() };
    let nobodys = Process { command_id: "x".repeat(ID_MAX + 1), ..Process::default() };
    handle.listed(vec![long("x"), long("\u{e9}"), Process::default(), nobodys]);
    let lengths: Vec<_> = handle.processes.borrow().iter().map(|one| one.arguments.len()).collect();
    assert_eq!(lengths, [ARGUMENTS_MAX, ARGUMENTS_MAX, 0]);
    handle.listed(vec![long("\u{20ac}")]);
    assert_eq!(handle.processes.borrow()[0].arguments.len(), ARGUMENTS_MAX / 3 * 3);
    handle.listed(vec![Process::default(); 10 * PROCESSES_MAX]);
    assert_eq!(handle.processes.borrow().len(), PROCESSES_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_connects_again_and_again_is_told_of_a_few_times() {
    let handle = handle();
    let told = || (0..1_000).filter(|_| handle.tells_connection()).count();
    assert_eq!(told(), CONNECTION_EVENTS.0 as usize);
    assert_eq!(told(), 0);
    tokio::time::advance(CONNECTION_EVENTS.1).await;
    assert_eq!(told(), CONNECTION_EVENTS.0 as usize);
}

#[tokio::test]
async fn ends_that_are_written_down_at_once_are_few() {
    let handle = handle();
    let known = handle.told_of("cmd-1").id.clone();
    let turn = async |id: &str| tokio::time::timeout(Duration::ZERO, handle.end_turn(id)).await;
    let mut turns = Vec::new();
    while let Ok(taken) = turn(&known).await {
        turns.push(taken.unwrap());
    }
    assert_eq!(turns.len(), ENDS_AT_ONCE);
    // Nothing is done for a command that nobody knows.
    assert!(turn("cmd-2").await.unwrap().is_none());
    turns.pop();
    assert!(turn(&known).await.unwrap().is_some());
}

fn usage(bytes: u64, files: u64) -> Usage {
    Usage { bytes, files, at_least: false }
}

#[test]
fn all_that_a_new_sandbox_writes_is_growth() {
    let handle = handle();
    handle.disk_begins(usage(10, 1));
    assert_eq!(handle.disk_grown(usage(100, 5)), usage(90, 4));
    assert_eq!(handle.disk_grown(usage(100, 5)), usage(0, 0));
    assert_eq!(handle.disk_last_seen().unwrap().0, 100);
}

#[test]
fn another_look_hides_no_growth_from_the_check_of_the_disk() {
    let handle = handle();
    handle.disk_begins(usage(0, 0));
    handle.disk_seen(usage(100, 5));
    assert_eq!(handle.disk_grown(usage(100, 5)), usage(100, 5));
    handle.disk_seen(usage(150, 6));
    let found = handle.disk_last_usage();
    // One that comes after the look at the disk may have found what filled it.
    handle.disk_seen(usage(170, 6));
    handle.disk_had_room(found);
    // With a quota, files that hold nothing take no bytes.
    assert_eq!(handle.disk_grown(usage(170, 60)), usage(20, 54));
}

#[test]
fn what_a_sandbox_of_another_server_has_is_no_growth() {
    let handle = handle();
    handle.disk_had_room(handle.disk_last_usage());
    assert_eq!((handle.disk_used(), handle.disk_last_seen()), (0, None));
    assert_eq!(handle.disk_grown(usage(100, 5)), usage(0, 0));
    assert_eq!(handle.disk_grown(usage(101, 6)), usage(1, 1));
}

#[test]
fn a_look_that_was_not_finished_takes_nothing_back() {
    let handle = handle();
    handle.disk_begins(usage(100, 5));
    handle.disk_seen(Usage { at_least: true, ..usage(50, 7) });
    assert_eq!(handle.disk_used(), 100);
    assert_eq!(handle.disk_grown(usage(60, 7)), usage(0, 2));
    assert_eq!(handle.disk_used(), 60);
}

#[test]
fn a_look_that_found_no_end_has_more_time_the_next_time() {
    let (handle, usual) =
        (SandboxHandle::new("sbx-1", SandboxDir::new("/nonexistent".into()), ""), Duration::from_secs(10));
    assert_eq!(handle.look_time(usual), usual);
    handle.look_ended(false);
    handle.look_ended(false);
    assert_eq!(handle.look_time(usual), usual * 4);
    (0..100).for_each(|_| handle.look_ended(false));
    assert_eq!(handle.look_time(usual), usual * 8);
    handle.look_ended(true);
    assert_eq!(handle.look_time(usual), usual);
}

#[test]
fn growth_after_a_look_without_an_end_is_uncertain_and_counts_again_if_nothing_came_of_it() {
    let handle = handle();
    let used = |bytes, at_least| Usage { bytes, files: 1, at_least };
    handle.disk_begins(used(100, true));
    let grown = handle.disk_grown(used(500, false));
    assert_eq!((grown.bytes, grown.at_least), (400, true), "it may have been there");
    let grown = handle.disk_grown(used(700, false));
    assert_eq!((grown.bytes, grown.at_least), (200, false));
    handle.disk_grew(grown);
    assert_eq!(handle.disk_grown(used(700, false)).bytes, 200);
    assert_eq!(handle.disk_grown(used(700, false)).bytes, 0);
}
