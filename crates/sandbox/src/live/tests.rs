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
