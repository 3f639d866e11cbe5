//! Roles of child processes.
//!
//! A test starts this test program again as a child, and selects a role (a function to run) with its arguments. Only
//! `child_process_role` runs in the child.

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
        "write-history" => crate::crash_machine::write_history(&arguments),
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
        "run-all-operations" => crate::failures::run_all_operations(&arguments),
        "read-and-commit" => crate::unsettled_rows::read_and_commit(&arguments),
        "fill-disk" => crate::disk_full::fill_disk(&arguments),
        "stream-into-two-clones" => crate::disk_full::stream_into_two_clones(&arguments),
        "run-with-failing-write" => crate::disk_full::run_with_failing_write(&arguments),
        "open-on-full-disk" => crate::disk_full::open_on_full_disk(&arguments),
        "free-space-on-full-disk" => crate::disk_full::free_space_on_full_disk(&arguments),
        "use-read-only-mount" => crate::disk_full::use_read_only_mount(&arguments),
        "check-out-on-full-disk" => crate::disk_full::check_out_on_full_disk(&arguments),
        "hold-write-lock" => crate::stopped::hold_write_lock(&arguments),
        "read-all" => crate::stopped::read_all(&arguments),
        "commit-and-report-notices" => crate::stopped::commit_and_report_notices(&arguments),
        "walk-with-few-files" => crate::directory::walk_with_few_files(&arguments),
        "snapshot-unreadable" => crate::hostile::snapshot_unreadable(&arguments),
        "link-in-inaccessible-directories" => crate::hostile::link_in_inaccessible_directories(&arguments),
        "link-between-unlisted-directories" => crate::hostile::link_between_unlisted_directories(&arguments),
        "check-out-two" => crate::hostile::check_out_two(&arguments),
        other => panic!("there is no role `{other}`"),
    }
}
