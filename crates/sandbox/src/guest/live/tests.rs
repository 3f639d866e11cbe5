use super::*;

fn live() -> Live {
    Live::new("sbx-1", Place::new("/nonexistent".into()), "")
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_guest_that_is_given_up_is_told_so() {
    let live = live();
    let running = Running::new("cmd-1", 1);
    let mut progress = running.follow();
    let given_up = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        live.set_lost("away");
    };
    let (news, ()) = tokio::join!(live.news(&running, &mut progress), given_up);
    assert!(matches!(news, Err(SandboxError::AgentLost { reason, .. }) if reason == "away"));
    // What was told before comes first.
    running.advance(1, None);
    assert!(live.news(&running, &mut progress).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_end_is_not_told_in_time_is_an_error_unless_its_sandbox_is_frozen() {
    let live = live();
    let running = Running::new("cmd-1", 1);
    running.set_due(Duration::from_secs(2));
    let mut progress = running.follow();
    let frozen = live.expect_silence();
    let waiting = tokio::time::timeout(Duration::from_secs(100), live.news(&running, &mut progress));
    assert!(waiting.await.is_err(), "it is waited for while it may be frozen");
    drop(frozen);
    *live.silences() = (0, None);
    let news = live.news(&running, &mut progress).await;
    assert!(matches!(news, Err(SandboxError::AgentLost { .. })), "{news:?}");
}

#[test]
fn commands_that_a_guest_makes_up_are_not_all_remembered() {
    let live = live();
    for number in 0..TOLD_OF_MAX + 10 {
        assert_eq!(live.told_of(&number.to_string()).id, number.to_string());
    }
    assert_eq!(live.commands().len(), TOLD_OF_MAX);
    assert!(live.command("0").is_some());
    let live = self::live();
    live.told_of(&"x".repeat(ID_MAX + 1));
    assert_eq!(live.commands().len(), 0);
}

#[test]
fn a_guest_lists_no_more_processes_than_a_sandbox_may_have() {
    let live = live();
    let long = |text: &str| Process { arguments: text.repeat(ARGUMENTS_MAX), ..Process::default() };
    let nobodys = Process { command_id: "x".repeat(ID_MAX + 1), ..Process::default() };
    live.listed(vec![long("x"), long("\u{e9}"), Process::default(), nobodys]);
    let lengths: Vec<_> = live.processes.borrow().iter().map(|one| one.arguments.len()).collect();
    assert_eq!(lengths, [ARGUMENTS_MAX, ARGUMENTS_MAX, 0]);
    live.listed(vec![long("\u{20ac}")]);
    assert_eq!(live.processes.borrow()[0].arguments.len(), ARGUMENTS_MAX / 3 * 3);
    live.listed(vec![Process::default(); 10 * PROCESSES_MAX]);
    assert_eq!(live.processes.borrow().len(), PROCESSES_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_connects_again_and_again_is_told_of_a_few_times() {
    let live = live();
    let told = || (0..1_000).filter(|_| live.tells_connection()).count();
    assert_eq!(told(), CONNECTION_EVENTS.0 as usize);
    assert_eq!(told(), 0);
    tokio::time::advance(CONNECTION_EVENTS.1).await;
    assert_eq!(told(), CONNECTION_EVENTS.0 as usize);
}

#[tokio::test]
async fn ends_that_are_written_down_at_once_are_few() {
    let live = live();
    let known = live.told_of("cmd-1").id.clone();
    let turn = async |id: &str| tokio::time::timeout(Duration::ZERO, live.end_turn(id)).await;
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
    let live = live();
    live.disk_begins(usage(10, 1));
    assert_eq!(live.disk_grown(usage(100, 5)), usage(90, 4));
    assert_eq!(live.disk_grown(usage(100, 5)), usage(0, 0));
    assert_eq!(live.disk_last_seen().unwrap().0, 100);
}

#[test]
fn another_look_hides_no_growth_from_the_check_of_the_disk() {
    let live = live();
    live.disk_begins(usage(0, 0));
    live.disk_seen(usage(100, 5));
    assert_eq!(live.disk_grown(usage(100, 5)), usage(100, 5));
    live.disk_seen(usage(150, 6));
    let found = live.disk_last_usage();
    // One that comes after the look at the disk may have found what filled it.
    live.disk_seen(usage(170, 6));
    live.disk_had_room(found);
    // With a quota, files that hold nothing take no bytes.
    assert_eq!(live.disk_grown(usage(170, 60)), usage(20, 54));
}

#[test]
fn what_a_sandbox_of_another_server_has_is_no_growth() {
    let live = live();
    live.disk_had_room(live.disk_last_usage());
    assert_eq!((live.disk_used(), live.disk_last_seen()), (0, None));
    assert_eq!(live.disk_grown(usage(100, 5)), usage(0, 0));
    assert_eq!(live.disk_grown(usage(101, 6)), usage(1, 1));
}

#[test]
fn a_look_that_was_not_finished_takes_nothing_back() {
    let live = live();
    live.disk_begins(usage(100, 5));
    live.disk_seen(Usage { at_least: true, ..usage(50, 7) });
    assert_eq!(live.disk_used(), 100);
    assert_eq!(live.disk_grown(usage(60, 7)), usage(0, 2));
    assert_eq!(live.disk_used(), 60);
}

#[test]
fn a_look_that_found_no_end_has_more_time_the_next_time() {
    let (live, usual) = (Live::new("sbx-1", Place::new("/nonexistent".into()), ""), Duration::from_secs(10));
    assert_eq!(live.look_time(usual), usual);
    live.look_ended(false);
    live.look_ended(false);
    assert_eq!(live.look_time(usual), usual * 4);
    (0..100).for_each(|_| live.look_ended(false));
    assert_eq!(live.look_time(usual), usual * 8);
    live.look_ended(true);
    assert_eq!(live.look_time(usual), usual);
}

#[test]
fn growth_after_a_look_without_an_end_is_uncertain_and_counts_again_if_nothing_came_of_it() {
    let live = live();
    let used = |bytes, at_least| Usage { bytes, files: 1, at_least };
    live.disk_begins(used(100, true));
    let grown = live.disk_grown(used(500, false));
    assert_eq!((grown.bytes, grown.at_least), (400, true), "it may have been there");
    let grown = live.disk_grown(used(700, false));
    assert_eq!((grown.bytes, grown.at_least), (200, false));
    live.disk_grew(grown);
    assert_eq!(live.disk_grown(used(700, false)).bytes, 200);
    assert_eq!(live.disk_grown(used(700, false)).bytes, 0);
}
