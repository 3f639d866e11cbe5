//! Roles of child processes.

use workspace_test_support::child::role;
pub(crate) use workspace_test_support::child::{ChildProcess, as_role, mounting, say, text, wait_for_parent};

/// Runs the role that the environment selects; does nothing if there is none.
#[test]
fn child_process_role() {
    let Some((role, arguments)) = role() else { return };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match role.as_str() {
        "commit-loop" => crate::crash::commit_loop(&arguments),
        "exercise" => crate::crash::exercise(&arguments),
        "check-out" => crate::crash::check_out_once(&arguments),
        "undo-checkout" => crate::crash::undo_once(&arguments),
        "collect-loop" => crate::crash::collect_loop(&arguments),
        "history-of-commits" => crate::crash_machine::write_history(&arguments),
        "open" => crate::crash_machine::open_and_list(&arguments),
        "hold-tree" => crate::gc::hold_tree(&arguments),
        "hold-pin" => crate::gc::hold_pin(&arguments),
        "collect-once" => crate::gc::collect_once(&arguments),
        "work-with-little-memory" => crate::gc::work_with_little_memory(&arguments),
        "snapshot-directory" => crate::gc::take_snapshot(&arguments),
        "move-reference" => crate::race::move_reference(&arguments),
        "create-and-commit" => crate::race::create_and_commit(&arguments),
        "commit-forever" => crate::race::commit_forever(&arguments),
        "read-while-committing" => crate::race::read_while_committing(&arguments),
        "commit-until-failure" => crate::failures::commit_until_failure(&arguments),
        "commit-and-panic" => crate::failures::commit_and_panic(&arguments),
        "commit-through-failure" => crate::failures::commit_through_failure(&arguments),
        "collect-with-few-files" => crate::failures::collect_with_few_files(&arguments),
        "use-everything" => crate::failures::use_everything(&arguments),
        "read-and-commit" => crate::unsettled_rows::read_and_commit(&arguments),
        "fill-disk" => crate::disk_full::fill_disk(&arguments),
        "stream-twice" => crate::disk_full::stream_twice(&arguments),
        "fail-once" => crate::disk_full::fail_once(&arguments),
        "open-full" => crate::disk_full::open_full(&arguments),
        "make-room-full" => crate::disk_full::make_room_full(&arguments),
        "read-only" => crate::disk_full::read_only(&arguments),
        "check-out-full" => crate::disk_full::check_out_full(&arguments),
        "hold-write-lock" => crate::stopped::hold_write_lock(&arguments),
        "read-all" => crate::stopped::read_all(&arguments),
        "commit-and-tell" => crate::stopped::commit_and_tell(&arguments),
        "walk-with-few-files" => crate::directory::walk_with_few_files(&arguments),
        "unreadable" => crate::hostile::snapshot_unreadable(&arguments),
        "link-in-closed-directories" => crate::hostile::link_in_closed_directories(&arguments),
        "link-between-unlisted-directories" => crate::hostile::link_between_unlisted_directories(&arguments),
        "check-out-two" => crate::hostile::check_out_two(&arguments),
        other => panic!("there is no role `{other}`"),
    }
}
